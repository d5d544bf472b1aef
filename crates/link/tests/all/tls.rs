//! TLS over real sockets: trust, and the errors that both ends report.

#![allow(clippy::unwrap_used)] // a test may panic

mod options;

use crate::pki::meeting::{DEADLINE, Pair, listener, meet, tell};
use crate::pki::{Authority, Identity, Pki, params};
use ackline_link::tls::{Client, ClientAuth, Server, Session, TlsError, TlsOptions};
use ackline_link::{Endpoint, Stream, connect};
use rcgen::{BasicConstraints, IsCa, KeyPair, date_time_ymd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A client and a server with these options meet at `localhost`.
async fn pair(server: &TlsOptions, client: &TlsOptions) -> Pair {
    let (server, client) = (Server::new(server).unwrap(), Client::new(client).unwrap());
    meet(&server, &client, "localhost").await
}

fn failed(side: Result<(Stream, Session), TlsError>) -> (&'static str, String) {
    let error = side.map(|(_, session)| session).unwrap_err();
    (error.code(), error.to_string())
}

#[track_caller]
fn assert_says((code, text): (&str, String), expected: &str, parts: &[&str]) {
    assert_eq!(code, expected, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_end_knows_the_other() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = pki.server(&ca, &["localhost", "127.0.0.1", "::1"], Some("required"));
    let pair = pair(&server, &pki.client(&ca, Some("web-1"))).await;
    let ((mut there, seen), (mut here, met)) = (pair.server.unwrap(), pair.client.unwrap());
    assert_eq!(seen.subject.as_deref(), Some("CN=web-1"));
    assert_eq!(seen.sans, ["DNS:web-1"]);
    assert_eq!(seen.identity().as_deref(), Some("CN=web-1; issuer CN=ca"));
    assert_eq!(met.sans, ["DNS:localhost", "IP:127.0.0.1", "IP:::1"]);
    assert_eq!((&*met.version, &met.cipher), ("TLSv1_3", &seen.cipher));
    assert!(seen.cipher.starts_with("TLS13_"), "{}", seen.cipher);
    tell(&mut here, &mut there, b"ping").await;
    tell(&mut there, &mut here, b"pong").await;
    there.shutdown().await.unwrap();
    let mut back = Vec::new();
    here.read_to_end(&mut back).await.unwrap();
    assert!(back.is_empty());
}

#[tokio::test]
async fn different_subjects_have_different_texts() {
    use rcgen::{CustomExtension, DistinguishedName, DnType, DnValue};
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], Some("required"))).unwrap();
    let seen = async |name: &[(DnType, DnValue)]| {
        let mut own = params("", &[]);
        own.distinguished_name = DistinguishedName::new();
        for (kind, value) in name {
            own.distinguished_name.push(kind.clone(), value.clone());
        }
        // A version 3 certificate has an extension.
        own.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0])];
        let own = ca.issue_with(&own);
        let mut client = pki.client(&ca, None);
        client.cert = Some(pki.write("client.pem", &own.cert));
        client.key = Some(pki.write("client.key", &own.key));
        let client = Client::new(&client).unwrap();
        let session = meet(&server, &client, "localhost").await.server.unwrap().1;
        session.subject.unwrap()
    };
    let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
    let name = |text: &str| (DnType::CommonName, utf8(text));
    let other = |numbers: &[u64]| (DnType::CustomDnType(numbers.to_vec()), utf8("x"));
    let organization = (DnType::OrganizationName, utf8("x"));
    assert_eq!(seen(&[name("d"), organization]).await, "CN=d, O=x");
    assert_eq!(seen(&[other(&[2, 5, 4, 12])]).await, "title=x");
    assert_eq!(seen(&[other(&[1, 2, 3, 4])]).await, "1.2.3.4=x");
    let printable = DnValue::PrintableString("d".try_into().unwrap());
    assert_eq!(seen(&[(DnType::CommonName, printable)]).await, "CN=d");
    let bmp = DnValue::BmpString("dü".try_into().unwrap());
    assert_eq!(seen(&[(DnType::CommonName, bmp)]).await, "CN=dü");
    let universal = DnValue::UniversalString("d".try_into().unwrap());
    let number = "CN=#1C0400000064";
    assert_eq!(seen(&[(DnType::CommonName, universal)]).await, number);
    for (value, text) in [
        ("d, O=x", "CN=d\\, O=x"),
        ("d + O=x", "CN=d \\+ O=x"),
        ("a\nb", "CN=a\\0Ab"),
        ("a\\nb", "CN=a\\\\nb"),
        ("a\\0Ab", "CN=a\\\\0Ab"),
        ("a\u{202e}b", "CN=a\\E2\\80\\AEb"),
        ("\"a\";<b>", "CN=\\\"a\\\"\\;\\<b\\>"),
        (" a b ", "CN=\\ a b\\ "),
        (" ", "CN=\\ "),
        ("#0500", "CN=\\#0500"),
        ("a#b", "CN=a#b"),
    ] {
        assert_eq!(seen(&[name(value)]).await, text, "{value:?}");
    }
}

#[tokio::test]
async fn the_fingerprint_is_the_sha256_of_the_certificate() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = pki.server(&ca, &["localhost"], None);
    let met = pair(&server, &pki.client(&ca, None))
        .await
        .client
        .unwrap()
        .1;
    let openssl = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(server.cert.unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8(openssl.stdout).unwrap();
    let hex = text.trim().rsplit('=').next().unwrap();
    assert_eq!(
        met.fingerprint.unwrap(),
        hex.replace(':', "").to_lowercase()
    );
}

#[tokio::test]
async fn a_client_without_a_certificate_has_no_name() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    for auth in [None, Some("optional")] {
        let server = pki.server(&ca, &["localhost"], auth);
        let pair = pair(&server, &pki.client(&ca, None)).await;
        let (mut there, seen) = pair.server.unwrap();
        assert_eq!(
            (seen.identity(), &seen.fingerprint),
            (None, &None),
            "{auth:?}"
        );
        tell(&mut pair.client.unwrap().0, &mut there, b"ping").await;
    }
}

#[tokio::test]
async fn a_ca_of_a_listener_requires_clients_to_have_certificates() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut server = pki.server(&ca, &["localhost"], Some("required"));
    server.client_auth = None;
    let pair = pair(&server, &pki.client(&ca, None)).await;
    assert_says(failed(pair.server), "tls.certificate", &["it sent none"]);
}

#[tokio::test]
async fn an_optional_certificate_that_is_sent_must_be_a_good_one() {
    let (pki, ca, other) = (Pki::new(), Authority::new("ca"), Authority::new("other"));
    let server = pki.server(&ca, &["localhost"], Some("optional"));
    let good = pair(&server, &pki.client(&ca, Some("web-1"))).await;
    assert_eq!(
        good.server.unwrap().1.identity().as_deref(),
        Some("CN=web-1; issuer CN=ca")
    );
    let mut client = pki.client(&other, Some("web-1"));
    client.ca = Some(pki.write("ca.pem", &ca.pem));
    let bad = pair(&server, &client).await;
    assert_says(failed(bad.server), "tls.certificate", &["issuer", "(ca)"]);
}

/// With TLS 1.3 the client's handshake is over before the server has looked at its certificate.
async fn first_read(pair: Pair) -> String {
    let (mut stream, _) = pair.client.unwrap();
    stream.write_all(b"an event").await.unwrap();
    let error = stream.read_u8().await.unwrap_err();
    assert_eq!(TlsError::of(&error).unwrap().code(), "tls.handshake");
    error.to_string()
}

#[tokio::test]
async fn a_client_without_the_required_certificate_is_told_so() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = pki.server(&ca, &["localhost"], Some("required"));
    let mut pair = pair(&server, &pki.client(&ca, None)).await;
    let refused = std::mem::replace(&mut pair.server, Err(TlsError::Options(String::new())));
    assert_says(
        failed(refused),
        "tls.certificate",
        &["it sent none", "client_auth"],
    );
    let told = first_read(pair).await;
    assert!(told.contains("certificate_required (116)"), "{told}");
    assert!(told.contains("set cert and key"), "{told}");
}

#[tokio::test]
async fn a_client_of_another_authority_is_told_so() {
    let (pki, ca, other) = (Pki::new(), Authority::new("ca"), Authority::new("other"));
    let server = pki.server(&ca, &["localhost"], Some("required"));
    let mut client = pki.client(&other, Some("web-1"));
    client.ca = Some(pki.write("ca.pem", &ca.pem));
    let mut pair = pair(&server, &client).await;
    let refused = std::mem::replace(&mut pair.server, Err(TlsError::Options(String::new())));
    assert_says(
        failed(refused),
        "tls.certificate",
        &["its issuer is not among the trusted"],
    );
    let told = first_read(pair).await;
    assert!(told.contains("unknown_ca (48)"), "{told}");
}

/// A server with this certificate, and a client that trusts `ca` and connects to it as `localhost`.
async fn presented(ca: &Authority, own: &Identity) -> Pair {
    let pki = Pki::new();
    pair(&pki.server_as(ca, own, None), &pki.client(ca, None)).await
}

#[tokio::test]
async fn an_expired_certificate_is_refused_and_both_ends_say_so() {
    let ca = Authority::new("ca");
    let mut expired = params("server", &["localhost"]);
    expired.not_before = date_time_ymd(2020, 1, 1);
    expired.not_after = date_time_ymd(2020, 1, 8);
    let pair = presented(&ca, &ca.issue_with(&expired)).await;
    assert_says(failed(pair.client), "tls.certificate", &["expired"]);
    let told = failed(pair.server);
    assert_says(
        told,
        "tls.handshake",
        &["certificate_expired (45)", "our certificate"],
    );
}

#[tokio::test]
async fn a_certificate_of_the_future_is_refused() {
    let ca = Authority::new("ca");
    let mut early = params("server", &["localhost"]);
    early.not_before = date_time_ymd(2900, 1, 1);
    let pair = presented(&ca, &ca.issue_with(&early)).await;
    assert_says(failed(pair.client), "tls.certificate", &["not valid yet"]);
}

#[tokio::test]
async fn a_name_that_the_certificate_does_not_carry_is_refused() {
    let ca = Authority::new("ca");
    let pair = presented(&ca, &ca.issue("localhost", &["logs.example"])).await;
    let parts = ["localhost", "logs.example"];
    assert_says(failed(pair.client), "tls.certificate", &parts);
    assert_says(
        failed(pair.server),
        "tls.handshake",
        &["bad_certificate (42)"],
    );

    let bare = presented(&ca, &ca.issue("localhost", &[])).await;
    let parts = ["no subject alternative name", "common name does not count"];
    assert_says(failed(bare.client), "tls.certificate", &parts);
}

#[tokio::test]
async fn a_wildcard_stands_for_one_label() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["*.logs.example"], None)).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    for (host, is_good) in [
        ("a.logs.example", true),
        ("logs.example", false),
        ("a.b.logs.example", false),
    ] {
        let met = meet(&server, &client, host).await.client;
        assert_eq!(met.is_ok(), is_good, "{host}");
    }
}

#[tokio::test]
async fn the_server_name_takes_the_place_of_the_host() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["logs.example"], None)).unwrap();
    let mut options = pki.client(&ca, None);
    options.server_name = Some("logs.example".to_owned());
    let client = Client::new(&options).unwrap();
    let met = meet(&server, &client, "127.0.0.1").await.client;
    assert_eq!(met.unwrap().1.sans, ["DNS:logs.example"]);
}

#[tokio::test]
async fn an_address_is_a_name_too() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["127.0.0.1"], None)).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    assert!(meet(&server, &client, "127.0.0.1").await.client.is_ok());
    assert!(meet(&server, &client, "127.0.0.2").await.client.is_err());
}

#[tokio::test]
async fn another_authority_is_refused_and_both_ends_say_so() {
    let (pki, ca, other) = (Pki::new(), Authority::new("ca"), Authority::new("other"));
    let pair = pair(
        &pki.server(&ca, &["localhost"], None),
        &pki.client(&other, None),
    )
    .await;
    assert_says(
        failed(pair.client),
        "tls.certificate",
        &["its issuer is not among"],
    );
    assert_says(failed(pair.server), "tls.handshake", &["unknown_ca (48)"]);
}

/// As `openssl req -x509` makes it: an authority by its mark.
fn self_signed(sans: &[&str]) -> Identity {
    let mut own = params("self", sans);
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    Identity {
        cert: own.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_only_where_ca_names_it() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let own = self_signed(&["localhost"]);
    let server = pki.server_as(&ca, &own, None);
    let refused = pair(&server, &pki.client(&ca, None)).await;
    assert_says(failed(refused.client), "tls.certificate", &[]);
    let mut client = pki.client(&ca, None);
    client.ca = Some(pki.write("own.pem", &own.cert));
    assert!(pair(&server, &client).await.client.is_ok());
    // Its name counts all the same.
    let (server, client) = (Server::new(&server).unwrap(), Client::new(&client).unwrap());
    let misnamed = meet(&server, &client, "logs.example").await;
    assert_says(
        failed(misnamed.client),
        "tls.certificate",
        &["logs.example"],
    );
}

#[tokio::test]
async fn a_self_signed_certificate_that_is_expired_is_refused_though_it_is_named() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut old = params("self", &["localhost"]);
    old.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    old.not_before = date_time_ymd(2020, 1, 1);
    old.not_after = date_time_ymd(2020, 1, 8);
    let key = KeyPair::generate().unwrap();
    let own = Identity {
        cert: old.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    };
    let mut client = pki.client(&ca, None);
    client.ca = Some(pki.write("own.pem", &own.cert));
    let met = pair(&pki.server_as(&ca, &own, None), &client).await;
    assert_eq!(failed(met.client).0, "tls.certificate");
}

#[tokio::test]
async fn a_self_signed_client_is_served_where_it_is_named() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let own = self_signed(&["web-1"]);
    let mut server = pki.server(&ca, &["localhost"], Some("required"));
    let mut client = pki.client(&ca, None);
    client.cert = Some(pki.write("own.pem", &own.cert));
    client.key = Some(pki.write("own.key", &own.key));
    assert_says(
        failed(pair(&server, &client).await.server),
        "tls.certificate",
        &[],
    );
    server.ca = client.cert.clone();
    let seen = pair(&server, &client).await.server.unwrap().1;
    assert_eq!(seen.sans, ["DNS:web-1"]);
}

#[tokio::test]
async fn the_systems_roots_do_not_trust_a_private_authority() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = pki.server(&ca, &["localhost"], None);
    let pair = pair(&server, &TlsOptions::default()).await;
    assert_says(failed(pair.client), "tls.certificate", &["its issuer"]);
}
