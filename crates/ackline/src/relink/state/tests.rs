//! A change that cannot be kept is not promised.

use ackline_relink::frame::{EndpointName, Parameters};
use ackline_relink::{Attach, ChannelId, LinkConfig};
use bytes::BytesMut;
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::relink::Session;

const KEY: LinkKey = LinkKey {
    epoch: 7,
    link_id: 1,
};

/// The bytes that a connector sends of one message, and the state of its link, with a journal on this
/// disk.
async fn sent(is_broken: bool) -> (usize, Result<(), Error>) {
    let dir = tempfile::tempdir().unwrap();
    let held = Arc::new(StateDir::hold(&dir.path().join("state")).unwrap());
    let origin = Origin {
        endpoint_name: EndpointName::default(),
        parameters: Parameters::default(),
        owner: None,
    };
    let file = held.path().join("link.journal");
    let journal = Journal::new(&held, file, KEY, origin)
        .begun()
        .await
        .unwrap();
    let mut journal = journal;
    if is_broken {
        journal.log = Some(Log::broken());
    }
    let config = LinkConfig {
        journal: true,
        ..LinkConfig::new(Role::Connector, Parameters::default())
    };
    let link = Link::new(Session::new(machine::Link::new(config, KEY), usize::MAX));
    let (ours, mut theirs) = tokio::io::duplex(1_024);
    tokio::spawn({
        let link = link.clone();
        async move {
            let begin = |session: &mut Session, now| session.attach(now, Attach::New(KEY));
            link.attach(ours, BytesMut::new(), begin).await;
        }
    });
    let one = [ChannelId::IMPLICIT];
    let send = |session: &mut Session, now| session.send(now, &one, &b"kept?".as_slice().into());
    link.call(send).unwrap();
    journal.keep(link.clone());
    let mut bytes = [0; 64];
    let reading = tokio::time::timeout(Duration::from_secs(10), theirs.read(&mut bytes));
    let count = reading.await.unwrap().unwrap();
    (
        count,
        link.call(|session, _| session.over().cloned().map_or(Ok(()), Err)),
    )
}

#[tokio::test]
async fn nothing_leaves_that_could_not_be_kept() {
    let (count, state) = sent(false).await;
    assert!(count > 0);
    state.unwrap();
    let (count, state) = sent(true).await;
    assert_eq!(count, 0, "the transport ends without a byte");
    assert!(matches!(state, Err(Error::Unkept(_))), "{state:?}");
}
