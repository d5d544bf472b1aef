//! URLs of TLS in a build without the feature `tls`.

#![allow(clippy::unwrap_used)] // a test may panic

use std::time::Duration;

use ackline_link::tls::TlsError;
use ackline_link::{Endpoint, ListenSpec, connect};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_url_of_tls_is_refused_by_the_name_of_the_feature() {
    let endpoint = Endpoint::parse("toy+tls://127.0.0.1:1?ca=ca.pem").unwrap();
    let connected = connect(&endpoint, SECOND).await.unwrap_err();
    let connected = TlsError::of(&connected).unwrap().clone();
    let listened = ListenSpec::new(endpoint, SECOND).unwrap_err();
    assert_eq!(
        (connected.code(), listened.code()),
        ("tls.not_built", "tls.not_built")
    );
    for told in [connected.to_string(), listened.to_string()] {
        assert!(told.contains("feature \"tls\""), "{told}");
    }
}
