//! Links over TLS: one that an identity has made is its own.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use ackline::relink::KeepOptions;
use ackline::relink::ReconnectOptions;
use std::time::Duration;

use crate::cutter::{Cutter, soon};
use crate::pki::{Authority, Identity, Pki};
use ackline::link::tls::TlsOptions;
use ackline::relink::{self, ChannelId, ConnectOptions, Error, Link, ListenOptions, Listener};

const ANY: &str = "relink+tls://127.0.0.1:0/orders";

struct Site {
    files: Pki,
    authority: Authority,
    listener: Listener,
    cutter: Cutter,
}

impl Site {
    async fn new(bind_identity: bool) -> Self {
        let (files, authority) = (Pki::new(), Authority::new("site"));
        let options = ListenOptions {
            tls: files.server(&authority, &["127.0.0.1"], Some("optional")),
            keep: KeepOptions {
                bind_identity,
                ..KeepOptions::default()
            },
            ..ListenOptions::default()
        };
        let listener = relink::listen(ANY, options).await.unwrap();
        let cutter = Cutter::new(listener.url()).await;
        Self {
            files,
            authority,
            listener,
            cutter,
        }
    }

    fn tls(&self, identity: Option<(&str, &Identity)>) -> TlsOptions {
        let ca = self.files.write("ca.pem", &self.authority.pem);
        let mut tls = TlsOptions {
            ca: Some(ca),
            ..TlsOptions::default()
        };
        if let Some((name, identity)) = identity {
            tls.cert = Some(self.files.write(&format!("{name}.pem"), &identity.cert));
            tls.key = Some(self.files.write(&format!("{name}.key"), &identity.key));
        }
        tls
    }

    /// A connector with a link that is kept in `state`.
    async fn connect(&self, tls: TlsOptions, state: &std::path::Path) -> Result<Link, Error> {
        self.connect_for(None, tls, state).await
    }

    /// The same; the link is lost after so long without a connection.
    async fn connect_for(
        &self,
        lost_after: Option<Duration>,
        tls: TlsOptions,
        state: &std::path::Path,
    ) -> Result<Link, Error> {
        let options = ConnectOptions {
            tls,
            state: Some(state.to_owned()),
            reconnect: ReconnectOptions {
                lost_after,
                ..ReconnectOptions::default()
            },
            ..ConnectOptions::default()
        };
        relink::connect(&self.cutter.url(self.listener.url()), options).await
    }
}

fn channel() -> ChannelId {
    ChannelId::from(1_u32)
}

async fn text(link: &Link) -> Vec<u8> {
    let message = soon(link.receive()).await.unwrap().unwrap();
    link.consume(&message.channel, message.sequence).unwrap();
    message.payload.parts().next().unwrap().to_vec()
}

/// Whether a thief with these options can go on with the link of `owner`, whose state it has copied.
async fn goes_on(site: &Site, owner: Option<(&str, &Identity)>, thief: TlsOptions) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let [own, copy] = ["own", "copy"].map(|name| dir.path().join(name));
    let link = site.connect(site.tls(owner), &own).await.unwrap();
    let accepted = soon(site.listener.accept()).await.unwrap();
    link.kept(None).await.unwrap();
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(own.join("link.journal"), copy.join("link.journal")).unwrap();
    let key = link.key();
    drop(link);
    let stall_timeouts = Some(Duration::from_secs(2));
    let stolen = site
        .connect_for(stall_timeouts, thief, &copy)
        .await
        .unwrap();
    assert_eq!(stolen.key(), key);
    stolen.try_send(&channel(), b"stolen".as_slice()).unwrap();
    // One of two comes first: the message, or the thief's giving up.
    let went_on = soon(async {
        loop {
            if accepted.stats().link.messages_received > 0 {
                return true;
            }
            if stolen.driven().is_ended() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    if went_on {
        assert_eq!(text(&accepted).await, b"stolen");
    } else {
        let error = soon(stolen.receive()).await.unwrap_err();
        assert!(error.to_string().contains("lost_after"), "{error}");
    }
    went_on
}

#[tokio::test]
async fn a_link_over_tls_survives_its_connections() {
    let site = Site::new(true).await;
    let own = site.authority.issue("client", &[]);
    let dir = tempfile::tempdir().unwrap();
    let tls = site.tls(Some(("client", &own)));
    let link = site.connect(tls, &dir.path().join("state")).await.unwrap();
    let accepted = soon(site.listener.accept()).await.unwrap();
    assert_eq!(
        &*accepted.peer().unwrap().sender,
        "tls:CN=client; issuer CN=site"
    );
    for round in 0..5_u8 {
        link.try_send(&channel(), vec![round]).unwrap();
        site.cutter.cut();
        assert_eq!(text(&accepted).await, [round]);
    }
}

#[tokio::test]
async fn a_link_of_an_identity_is_refused_to_others_and_to_those_without_one() {
    let site = Site::new(true).await;
    let [own, other] = ["own", "other"].map(|name| site.authority.issue(name, &[]));
    let owner = Some(("own", &own));
    assert!(!goes_on(&site, owner, site.tls(Some(("other", &other)))).await);
    assert!(!goes_on(&site, owner, site.tls(None)).await);
}

#[tokio::test]
async fn a_renewed_certificate_of_the_same_subject_goes_on() {
    let site = Site::new(true).await;
    let [own, renewed] = ["own", "own"].map(|name| site.authority.issue(name, &[]));
    let owner = Some(("own", &own));
    assert!(goes_on(&site, owner, site.tls(Some(("renewed", &renewed)))).await);
}

#[tokio::test]
async fn a_link_without_an_identity_or_without_the_binding_is_anybodys() {
    let site = Site::new(true).await;
    let other = site.authority.issue("other", &[]);
    assert!(goes_on(&site, None, site.tls(Some(("other", &other)))).await);
    let unbound = Site::new(false).await;
    let own = unbound.authority.issue("own", &[]);
    let owner = Some(("own", &own));
    assert!(goes_on(&unbound, owner, unbound.tls(None)).await);
}
