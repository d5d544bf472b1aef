//! Options, files and URLs of TLS.

use super::*;

#[test]
fn options_that_do_not_go_together_are_named() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let full = pki.server(&ca, &["localhost"], Some("required"));
    let with = |change: &dyn Fn(&mut TlsOptions)| {
        let mut options = full.clone();
        change(&mut options);
        options
    };
    let none = Some(ClientAuth::None);
    for (options, said) in [
        (with(&|tls| tls.cert = None), "needs cert and key"),
        (with(&|tls| tls.key = None), "needs cert and key"),
        (with(&|tls| tls.ca = None), "client_auth needs ca"),
        (with(&|tls| tls.client_auth = none), "client_auth none"),
        (
            with(&|tls| tls.server_name = Some("x".into())),
            "server_name is for",
        ),
        (
            with(&|tls| tls.cert = Some("/no/file".into())),
            "cert /no/file cannot be read",
        ),
        (
            with(&|tls| tls.cert.clone_from(&tls.key)),
            "holds no certificate",
        ),
        (
            with(&|tls| tls.key.clone_from(&tls.cert)),
            "holds no private key",
        ),
        (with(&|tls| tls.ca.clone_from(&tls.key)), "ca "),
    ] {
        let error = Server::new(&options).unwrap_err();
        assert_says((error.code(), error.to_string()), "tls.options", &[said]);
    }
    let other = pki.write("other.key", &ca.issue("x", &[]).key);
    let mixed = Server::new(&with(&|tls| tls.key = Some(other.clone()))).unwrap_err();
    assert!(
        mixed.to_string().contains("its key cannot be used"),
        "{mixed}"
    );

    let full = pki.client(&ca, Some("web-1"));
    for (options, said) in [
        (
            TlsOptions {
                key: None,
                ..full.clone()
            },
            "cert needs key",
        ),
        (
            TlsOptions {
                cert: None,
                ..full.clone()
            },
            "key needs cert",
        ),
        (
            TlsOptions {
                client_auth: none,
                ..full.clone()
            },
            "client_auth is for",
        ),
        (
            TlsOptions {
                server_name: Some("a b".into()),
                ..full
            },
            "is no host name",
        ),
    ] {
        let error = Client::new(&options).unwrap_err();
        assert_says((error.code(), error.to_string()), "tls.options", &[said]);
    }
}

#[test]
fn an_encrypted_key_is_named_as_one() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut options = pki.server(&ca, &["localhost"], None);
    let locked = pki.path("locked.key");
    let made = std::process::Command::new("openssl")
        .args(["pkey", "-aes256", "-passout", "pass:secret", "-in"])
        .arg(options.key.as_ref().unwrap())
        .arg("-out")
        .arg(&locked)
        .status();
    assert!(made.unwrap().success());
    options.key = Some(locked);
    let error = Server::new(&options).unwrap_err().to_string();
    assert!(error.contains("encrypted key"), "{error}");
}

#[tokio::test]
async fn a_url_of_tls_connects_over_tls() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], None)).unwrap();
    let listener = listener().await;
    let port = listener.local().unwrap().to_string();
    let port = port.rsplit(':').next().unwrap();
    let file = pki.client(&ca, None).ca.unwrap();
    // The name has an address (::1) without a listener, on most systems.
    let url = format!("toy+tls://localhost:{port}?ca={}", file.display());
    let accept = async {
        let (stream, _) = listener.accept().await.unwrap();
        server.accept(stream).await.unwrap()
    };
    let endpoint = Endpoint::parse(&url).unwrap();
    let both = async { tokio::join!(accept, connect(&endpoint, DEADLINE)) };
    let ((mut there, _), here) = tokio::time::timeout(DEADLINE, both).await.unwrap();
    let mut here = here.unwrap();
    assert!(here.is_tls() && there.is_tls());
    assert!(here.tcp().unwrap().nodelay().unwrap());
    tell(&mut here, &mut there, b"ping").await;
}

#[tokio::test]
async fn the_next_address_is_tried_when_tls_fails_at_one() {
    let (pki, ca, other) = (Pki::new(), Authority::new("ca"), Authority::new("other"));
    let others = Pki::new();
    let wrong = Server::new(&others.server(&other, &["127.0.0.1"], None)).unwrap();
    let right = Server::new(&pki.server(&ca, &["127.0.0.1"], None)).unwrap();
    let (first, second) = (listener().await, listener().await);
    let (one, two) = (first.local().unwrap(), second.local().unwrap());
    let endpoint = Endpoint::new("toy", vec![one, two], Some(pki.client(&ca, None)));
    let serve = async {
        let (stream, _) = first.accept().await.unwrap();
        let refused = wrong.accept(stream).await.map(|_| ()).unwrap_err();
        let (stream, _) = second.accept().await.unwrap();
        (refused, right.accept(stream).await)
    };
    let both = async { tokio::join!(serve, connect(&endpoint, DEADLINE)) };
    let ((refused, accepted), connected) = tokio::time::timeout(DEADLINE, both).await.unwrap();
    assert_eq!(refused.code(), "tls.handshake");
    assert!(accepted.is_ok() && connected.unwrap().is_tls());
}

/// The refusal comes while the client keeps writing and reads nothing: its writes fail first.
#[tokio::test]
async fn a_client_that_only_writes_hears_the_alert_behind_its_broken_write() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = pki.server(&ca, &["localhost"], Some("required"));
    let pair = pair(&server, &pki.client(&ca, None)).await;
    let (mut stream, _) = pair.client.unwrap();
    let chunk = vec![7; 100_000];
    let writing = async {
        loop {
            if let Err(error) = stream.write_all(&chunk).await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(DEADLINE, writing).await.unwrap();
    let told = error.to_string();
    assert!(told.contains("certificate_required (116)"), "{told}");
}

#[tokio::test]
async fn a_certificate_of_another_purpose_is_refused() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let mut own = params("web-1", &["web-1"]);
    own.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let own = ca.issue_with(&own);
    let mut client = pki.client(&ca, None);
    client.cert = Some(pki.write("client.pem", &own.cert));
    client.key = Some(pki.write("client.key", &own.key));
    let server = pki.server(&ca, &["localhost"], Some("required"));
    let refused = failed(pair(&server, &client).await.server);
    assert_says(
        refused,
        "tls.certificate",
        &["extended key usage for client"],
    );
}

#[tokio::test]
async fn a_host_that_is_silent_leaves_the_next_one_its_time() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["127.0.0.1"], None)).unwrap();
    let (mute, good) = (listener().await, listener().await);
    let places = vec![mute.local().unwrap(), good.local().unwrap()];
    let endpoint = Endpoint::new("toy", places, Some(pki.client(&ca, None)));
    let serve = async {
        let silent = mute.accept().await.unwrap();
        let accepted = server.accept(good.accept().await.unwrap().0).await;
        drop(silent);
        accepted
    };
    let limit = std::time::Duration::from_secs(10);
    let both = async { tokio::join!(serve, connect(&endpoint, limit)) };
    let (accepted, connected) = tokio::time::timeout(DEADLINE, both).await.unwrap();
    assert!(accepted.is_ok() && connected.unwrap().is_tls());
}

#[test]
fn files_are_read_once_for_all_users_of_an_endpoint_and_its_options() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let url = "toy+tls://a:1,b:2";
    let mut endpoint = Endpoint::parse(url).unwrap();
    endpoint.tls = Some(pki.client(&ca, None));
    let first = endpoint.client().unwrap().unwrap();
    for same in endpoint.each() {
        assert!(std::sync::Arc::ptr_eq(
            &same.client().unwrap().unwrap(),
            &first
        ));
    }
    endpoint.tls = Some(pki.client(&ca, Some("web-1")));
    let other = endpoint.client().unwrap().unwrap();
    assert!(!std::sync::Arc::ptr_eq(&other, &first));
    assert!(
        Endpoint::parse("toy://a:1")
            .unwrap()
            .client()
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_file_that_is_no_certificates_is_not_read_to_its_end() {
    let pki = Pki::new();
    let options = TlsOptions {
        ca: Some(pki.write("large", &"x".repeat((1 << 20) + 1))),
        ..TlsOptions::default()
    };
    let error = Client::new(&options).unwrap_err();
    assert!(error.to_string().contains("larger than 1 MiB"), "{error}");
    let endless = TlsOptions {
        ca: Some("/dev/zero".into()),
        ..TlsOptions::default()
    };
    assert!(Client::new(&endless).is_err());
}

/// The task of a connection is as large as its largest future, for its whole life.
#[tokio::test]
async fn a_handshake_leaves_the_task_of_its_connection_small() {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost"], None)).unwrap();
    let client = Client::new(&pki.client(&ca, None)).unwrap();
    let listener = listener().await;
    let plain = Endpoint::new("toy", vec![listener.local().unwrap()], None);
    let here = connect(&plain, DEADLINE).await.unwrap();
    let (there, _) = listener.accept().await.unwrap();
    assert!(size_of_val(&server.accept(there)) < 1_024);
    assert!(size_of_val(&client.connect(here, "localhost")) < 1_024);
}
