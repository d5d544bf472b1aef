//! Validity of certificates, and the peer that each of them identifies.

#![allow(clippy::unwrap_used)] // a test may panic

use ackline_link::tls::{Client, IdentityBy, Server, Session, TlsError, TlsOptions};
use ackline_link::{Endpoint, ListenSpec, Networks, PeerInfo};

use crate::pki::meeting::{DEADLINE, Pair, meet};
use crate::pki::{Authority, Identity, Pki, params};

async fn pair(server: &TlsOptions, client: &TlsOptions) -> Pair {
    let (server, client) = (Server::new(server).unwrap(), Client::new(client).unwrap());
    meet(&server, &client, "localhost").await
}

/// The options of a client with this certificate.
fn client_with(pki: &Pki, ca: &Authority, own: &Identity) -> TlsOptions {
    TlsOptions {
        ca: Some(pki.write("ca.pem", &ca.pem)),
        cert: Some(pki.write("client.pem", &own.cert)),
        key: Some(pki.write("client.key", &own.key)),
        ..TlsOptions::default()
    }
}

fn numbered(ca: &Authority, name: &str, serial: u64) -> Identity {
    let mut own = params(name, &[name]);
    own.serial_number = Some(serial.into());
    ca.issue_with(&own)
}

#[track_caller]
fn assert_refused(side: Result<impl Sized, TlsError>, part: &str) {
    let error = side.err().unwrap();
    assert_eq!(error.code(), "tls.certificate", "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[tokio::test]
async fn a_revoked_client_is_refused_and_another_is_served() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut server = pki.server(&ca, &["localhost"], Some("required"));
    server.crl = Some(pki.write("crl.pem", &ca.revoke(&[7], 2090)));
    let good = pair(&server, &client_with(&pki, &ca, &numbered(&ca, "a", 8))).await;
    assert!(good.server.is_ok());
    let revoked = pair(&server, &client_with(&pki, &ca, &numbered(&ca, "a", 7))).await;
    assert_refused(revoked.server, "it is revoked");
}

#[tokio::test]
async fn a_new_revocation_list_counts_from_the_next_handshake() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut options = pki.server(&ca, &["localhost"], Some("required"));
    options.crl = Some(pki.write("crl.pem", &ca.revoke(&[], 2090)));
    let server = Server::new(&options).unwrap();
    let own = client_with(&pki, &ca, &numbered(&ca, "a", 7));
    let client = Client::new(&own).unwrap();
    assert!(meet(&server, &client, "localhost").await.server.is_ok());
    pki.write("crl.pem", &ca.revoke(&[7], 2090));
    let later = meet(&server, &client, "localhost").await;
    assert_refused(later.server, "it is revoked");
}

#[tokio::test]
async fn a_list_that_expired_or_is_of_another_authority_refuses() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut server = pki.server(&ca, &["localhost"], Some("required"));
    let client = client_with(&pki, &ca, &numbered(&ca, "a", 8));
    server.crl = Some(pki.write("old.pem", &ca.revoke(&[], 2021)));
    assert_refused(pair(&server, &client).await.server, "has expired");
    let other = Authority::new("other").revoke(&[], 2090);
    server.crl = Some(pki.write("other.pem", &other));
    assert_refused(pair(&server, &client).await.server, "no revocation list");
}

#[tokio::test]
async fn a_client_refuses_a_revoked_server() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut own = params("server", &["localhost"]);
    own.serial_number = Some(7.into());
    let server = pki.server_as(&ca, &ca.issue_with(&own), None);
    let mut client = pki.client(&ca, None);
    assert!(pair(&server, &client).await.client.is_ok());
    client.crl = Some(pki.write("crl.pem", &ca.revoke(&[7], 2090)));
    assert_refused(pair(&server, &client).await.client, "it is revoked");
}

#[tokio::test]
async fn a_revoked_certificate_in_ca_itself_is_refused() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let own = numbered(&ca, "a", 7);
    let mut server = pki.server(&ca, &["localhost"], Some("required"));
    server.ca = Some(pki.write("both.pem", &format!("{}{}", ca.pem, own.cert)));
    server.crl = Some(pki.write("crl.pem", &ca.revoke(&[7], 2090)));
    let met = pair(&server, &client_with(&pki, &ca, &own)).await;
    assert_refused(met.server, "it is revoked");
}

#[test]
fn a_file_without_revocation_lists_and_lists_without_use_are_refused_at_the_start() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut server = pki.server(&ca, &["localhost"], Some("required"));
    server.crl = Some(pki.write("crl.pem", &ca.pem));
    let text = Server::new(&server).unwrap_err().to_string();
    assert!(text.contains("crl.pem holds no revocation list"), "{text}");
    let mut server = pki.server(&ca, &["localhost"], None);
    server.identity = Some(IdentityBy::San);
    let text = Server::new(&server).unwrap_err().to_string();
    assert!(text.contains("need ca"), "{text}");
    let mut client = pki.client(&ca, None);
    client.identity = Some(IdentityBy::San);
    let text = Client::new(&client).unwrap_err().to_string();
    assert!(text.contains("identity is for listeners"), "{text}");
}

/// The client's name and its name in earlier releases, by a server that trusts `trusted`.
async fn known(
    trusted: &[&Authority],
    own: &Identity,
    identity: Option<IdentityBy>,
) -> (String, Option<String>, Session) {
    let pki = Pki::new();
    let mut server = pki.server(trusted[0], &["localhost"], Some("required"));
    let all: String = trusted.iter().map(|ca| &*ca.pem).collect();
    server.ca = Some(pki.write("all.pem", &all));
    server.identity = identity;
    let met = pair(&server, &client_with(&pki, trusted[0], own)).await;
    let session = met.server.unwrap().1;
    let peer = PeerInfo::unix(None).with_session(&session);
    let former = peer.former.map(|text| text.to_string());
    (peer.sender.to_string(), former, session)
}

#[tokio::test]
async fn one_subject_of_two_authorities_is_two_identities() {
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    let both = [&one, &two];
    let (first, former, _) = known(&both, &one.issue("a", &["a"]), None).await;
    assert_eq!(first, "tls:CN=a; issuer CN=one");
    assert_eq!(
        former, None,
        "the subject alone could be the other authority's"
    );
    let (second, former, _) = known(&both, &two.issue("a", &["a"]), None).await;
    assert_eq!((&*second, former), ("tls:CN=a; issuer CN=two", None));
    let (again, former, _) = known(&[&one], &one.issue("a", &["a"]), None).await;
    assert_eq!(again, first, "a renewed certificate changes nothing");
    assert_eq!(former.as_deref(), Some("tls:CN=a"));
}

#[tokio::test]
async fn a_subject_cannot_be_written_as_another_with_its_issuer() {
    let ca = Authority::new("ca");
    let own = ca.issue("a; issuer CN=one", &["a"]);
    let (sender, _, _) = known(&[&ca], &own, None).await;
    assert_eq!(
        sender,
        "tls:CN=a\\; issuer CN\\=one; issuer CN=ca".replace("\\=", "=")
    );
}

#[tokio::test]
async fn an_identity_may_be_the_alternative_names_or_the_fingerprint() {
    let ca = Authority::new("ca");
    let own = ca.issue("a", &["b", "10.0.0.1"]);
    let (sender, former, _) = known(&[&ca], &own, Some(IdentityBy::San)).await;
    assert_eq!((&*sender, former), ("tls:DNS:b,IP:10.0.0.1", None));
    let (sender, _, session) = known(&[&ca], &own, Some(IdentityBy::Fingerprint)).await;
    assert_eq!(sender, format!("tls:{}", session.fingerprint.unwrap()));
    let (sender, _, session) = known(&[&ca], &ca.issue("a", &[]), Some(IdentityBy::San)).await;
    assert_eq!(sender, format!("tls:{}", session.fingerprint.unwrap()));
}

#[tokio::test]
async fn a_listener_is_exposed_without_certificates_or_networks_or_loopback() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let listener = async |url: &str, tls: Option<TlsOptions>| {
        let mut endpoint = Endpoint::parse(url).unwrap();
        if let Some(tls) = &tls {
            Endpoint::fill(std::slice::from_mut(&mut endpoint), tls).unwrap();
        }
        ListenSpec::new(endpoint, DEADLINE)
            .unwrap()
            .bind()
            .await
            .unwrap()
    };
    let everybody = Networks::default();
    let some: Networks = "10.0.0.0/8".parse().unwrap();
    let proven = pki.server(&ca, &["localhost"], Some("required"));
    let asked = pki.server(&ca, &["localhost"], Some("optional"));
    let socket = format!("toy+unix://{}", pki.path("socket").display());
    for (url, tls, allow, is_exposed) in [
        ("toy://0.0.0.0:0", None, &everybody, true),
        ("toy://0.0.0.0:0", None, &some, false),
        ("toy://127.0.0.1:0", None, &everybody, false),
        ("toy+tls://0.0.0.0:0", Some(proven), &everybody, false),
        ("toy+tls://0.0.0.0:0", Some(asked), &everybody, true),
        (&*socket, None, &everybody, false),
    ] {
        assert_eq!(
            listener(url, tls).await.is_exposed(allow),
            is_exposed,
            "{url}"
        );
    }
}
