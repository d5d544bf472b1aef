//! Links that are kept on disk survive the end of their process at either end.
//!
//! A crash is simulated by a copy of the directory at that moment, with the transports cut: a
//! killed process leaves the same.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use ackline::relink::LinkConfig;
use ackline::relink::ReconnectOptions;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cutter::{Cutter, soon, until};
use ackline::core::Sequence;
use ackline::relink::{
    self, ChannelId, ConnectOptions, Error, Link, LinkOptions, ListenOptions, Listener, Outcome,
    Parameters,
};

const ANY: &str = "relink://127.0.0.1:0/orders";

fn channel() -> ChannelId {
    ChannelId::from(1_u32)
}

fn link_options() -> LinkOptions {
    LinkOptions {
        machine: LinkConfig {
            ack_delay: Duration::from_millis(1),
            ..LinkOptions::default().machine
        },
        ..LinkOptions::default()
    }
}

fn listening(state: Option<&Path>) -> ListenOptions {
    ListenOptions {
        link: link_options(),
        state: state.map(Path::to_owned),
        ..ListenOptions::default()
    }
}

fn connecting(state: Option<&Path>) -> ConnectOptions {
    ConnectOptions {
        link: link_options(),
        state: state.map(Path::to_owned),
        reconnect: ReconnectOptions {
            reconnect_max: Duration::from_millis(200),
            ..ReconnectOptions::default()
        },
        ..ConnectOptions::default()
    }
}

/// Listens with a directory that an earlier listener of this test may still hold for a moment.
async fn listen(state: &Path) -> Listener {
    soon(async {
        loop {
            match relink::listen(ANY, listening(Some(state))).await {
                Ok(listener) => return listener,
                Err(Error::State(_)) => tokio::time::sleep(Duration::from_millis(2)).await,
                Err(other) => unreachable!("{other}"),
            }
        }
    })
    .await
}

/// Goes on with the link in a directory that an earlier one of this test may still hold for a moment.
async fn connect(url: &str, state: &Path) -> Link {
    soon(async {
        loop {
            match relink::connect(url, connecting(Some(state))).await {
                Ok(link) => return link,
                Err(Error::State(_)) => tokio::time::sleep(Duration::from_millis(2)).await,
                Err(other) => unreachable!("{other}"),
            }
        }
    })
    .await
}

/// A copy of `dir` as a killed process leaves it.
fn crashed(dir: &Path, name: &str) -> PathBuf {
    let copy = dir.with_file_name(name);
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "journal") {
            fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
        }
    }
    copy
}

async fn number(link: &Link) -> u32 {
    let message = soon(link.receive()).await.unwrap().unwrap();
    let part = message.payload.parts().next().unwrap();
    link.consume(&message.channel, message.sequence).unwrap();
    u32::from_le_bytes(part[..].try_into().unwrap())
}

fn send(link: &Link, numbers: std::ops::Range<u32>) -> relink::Receipt {
    let send_one = |one: u32| link.try_send(&channel(), one.to_le_bytes().to_vec());
    let mut receipts: Vec<_> = numbers.map(|one| send_one(one).unwrap()).collect();
    receipts.pop().unwrap()
}

#[tokio::test]
async fn a_listener_that_was_killed_goes_on_with_its_links() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = dir.path().join("0");
    let mut listener = listen(&state).await;
    let cutter = Cutter::new(listener.url()).await;
    let url = cutter.url(listener.url());
    let link = relink::connect(&url, connecting(None)).await.unwrap();
    let mut next = 0;
    for round in 1..=5_u32 {
        let accepted = soon(listener.accept()).await.unwrap();
        assert_eq!(accepted.key(), link.key());
        let last = send(&link, next..next + 100);
        // Some are consumed on disk, some only here, some not at all.
        for _ in 0..50 {
            assert_eq!(number(&accepted).await, next);
            next += 1;
        }
        soon(accepted.kept(None)).await.unwrap();
        let copy = crashed(&state, &round.to_string());
        cutter.lead_to(None);
        cutter.cut();
        drop((accepted, listener));
        state = copy;
        listener = listen(&state).await;
        cutter.lead_to(Some(listener.url()));
        let again = soon(listener.accept()).await.unwrap();
        for _ in 0..50 {
            assert_eq!(number(&again).await, next);
            next += 1;
        }
        soon(last.consumed()).await.unwrap();
        soon(again.kept(None)).await.unwrap();
        // An orderly end of the process is no worse.
        cutter.lead_to(None);
        cutter.cut();
        drop((again, listener));
        listener = listen(&state).await;
        cutter.lead_to(Some(listener.url()));
    }
    assert_eq!(link.stats().link.messages_sent, 500);
}

#[tokio::test]
async fn a_connector_that_was_killed_sends_what_it_had_promised_to_keep() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = dir.path().join("0");
    let listener = relink::listen(ANY, listening(None)).await.unwrap();
    let cutter = Cutter::new(listener.url()).await;
    let url = cutter.url(listener.url());
    let mut link = connect(&url, &state).await;
    let accepted = soon(listener.accept()).await.unwrap();
    let key = link.key();
    let mut next = 0;
    for round in 1..=5_u32 {
        send(&link, next..next + 50);
        assert_eq!(number(&accepted).await, next);
        cutter.lead_to(None);
        cutter.cut();
        send(&link, next + 50..next + 100);
        soon(link.kept(None)).await.unwrap();
        let copy = crashed(&state, &round.to_string());
        drop(link);
        state = copy;
        // It answers although nobody can be reached.
        link = connect(&url, &state).await;
        assert_eq!(link.key(), key);
        cutter.lead_to(Some(listener.url()));
        for one in next + 1..next + 100 {
            assert_eq!(number(&accepted).await, one);
        }
        next += 100;
    }
    let link = &link;
    until(move || link.stats().unacknowledged_bytes == 0).await;
    assert_eq!(listener.links(), 1);
}

#[tokio::test]
async fn both_ends_are_killed_at_once_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (mut near, mut far) = (dir.path().join("near0"), dir.path().join("far0"));
    let mut listener = listen(&far).await;
    let cutter = Cutter::new(listener.url()).await;
    let url = cutter.url(listener.url());
    let mut link = connect(&url, &near).await;
    let mut accepted = soon(listener.accept()).await.unwrap();
    let mut next = 0;
    for round in 1..=5_u32 {
        send(&link, next..next + 100);
        soon(link.kept(None)).await.unwrap();
        for _ in 0..round * 10 {
            assert_eq!(number(&accepted).await, next);
            next += 1;
        }
        soon(accepted.kept(None)).await.unwrap();
        cutter.lead_to(None);
        cutter.cut();
        let (one, other) = (
            crashed(&near, &format!("near{round}")),
            crashed(&far, &format!("far{round}")),
        );
        drop((link, accepted, listener));
        (near, far) = (one, other);
        link = connect(&url, &near).await;
        listener = listen(&far).await;
        cutter.lead_to(Some(listener.url()));
        accepted = soon(listener.accept()).await.unwrap();
        assert_eq!(accepted.key(), link.key());
        while next < round * 100 {
            assert_eq!(number(&accepted).await, next);
            next += 1;
        }
    }
    let link = &link;
    until(move || link.stats().unacknowledged_bytes == 0).await;
}

#[tokio::test]
async fn a_transaction_goes_on_after_both_ends_were_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (near, far) = (dir.path().join("near"), dir.path().join("far"));
    let parameters = Parameters {
        connector_transactions: true,
        ..relink::PARAMETERS
    };
    let listen = |state: &Path| ListenOptions {
        parameters,
        ..listening(Some(state))
    };
    let connect = |state: &Path| ConnectOptions {
        parameters,
        ..connecting(Some(state))
    };
    let listener = relink::listen(ANY, listen(&far)).await.unwrap();
    let cutter = Cutter::new(listener.url()).await;
    let url = cutter.url(listener.url());
    let link = relink::connect(&url, connect(&near)).await.unwrap();
    let accepted = soon(listener.accept()).await.unwrap();
    send(&link, 0..4);
    link.rollback(&channel(), Some(Sequence(0))).unwrap();
    link.commit(&channel(), Some(Sequence(2))).unwrap();
    soon(link.kept(None)).await.unwrap();
    for one in 0..4 {
        assert_eq!(number(&accepted).await, one);
    }
    let decided = soon(accepted.decided()).await.unwrap();
    assert_eq!((decided.is_commit, decided.through), (false, Sequence(0)));
    let decided = soon(accepted.decided()).await.unwrap();
    assert_eq!((decided.is_commit, decided.through), (true, Sequence(2)));
    accepted.committed(&channel(), Some(Sequence(1))).unwrap();
    soon(accepted.kept(None)).await.unwrap();
    cutter.lead_to(None);
    cutter.cut();
    let (near, far) = (crashed(&near, "near1"), crashed(&far, "far1"));
    drop((link, accepted, listener));
    let link = relink::connect(&url, connect(&near)).await.unwrap();
    let listener = relink::listen(ANY, listen(&far)).await.unwrap();
    cutter.lead_to(Some(listener.url()));
    let accepted = soon(listener.accept()).await.unwrap();
    // A commit that was not answered is asked again.
    let decided = soon(accepted.decided()).await.unwrap();
    assert_eq!((decided.is_commit, decided.through), (true, Sequence(2)));
    accepted.uncommitted(&channel(), Some(Sequence(2))).unwrap();
    let receipt = send(&link, 4..5);
    link.commit(&channel(), Some(Sequence(4))).unwrap();
    assert_eq!(number(&accepted).await, 4);
    let decided = soon(accepted.decided()).await.unwrap();
    assert_eq!((decided.is_commit, decided.through), (true, Sequence(4)));
    accepted.committed(&channel(), Some(Sequence(4))).unwrap();
    assert_eq!(soon(receipt.committed()).await.unwrap(), Outcome::Committed);
}

#[tokio::test]
async fn a_link_that_cannot_be_kept_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let listener = listen(&state).await;
    // A link's file cannot be made there any more.
    fs::rename(&state, dir.path().join("moved")).unwrap();
    let refused = relink::connect(listener.url(), connecting(None)).await;
    let error = refused.unwrap_err();
    assert_eq!(error.code(), "relink.connect");
    assert_eq!(listener.links(), 0);
}

#[tokio::test]
async fn a_link_is_on_the_disk_before_its_connector_knows_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = dir.path().join("0");
    let mut listener = listen(&state).await;
    let cutter = Cutter::new(listener.url()).await;
    let url = cutter.url(listener.url());
    for round in 1..=20_u32 {
        let link = relink::connect(&url, connecting(None)).await.unwrap();
        let copy = crashed(&state, &round.to_string());
        cutter.lead_to(None);
        cutter.cut();
        drop(listener);
        state = copy;
        listener = listen(&state).await;
        cutter.lead_to(Some(listener.url()));
        send(&link, round..round + 1);
        let accepted = loop {
            let accepted = soon(listener.accept()).await.unwrap();
            if accepted.key() == link.key() {
                break accepted;
            }
        };
        assert_eq!(number(&accepted).await, round);
        let (one, other) = tokio::join!(link.shutdown(None), accepted.shutdown(None));
        one.unwrap();
        other.unwrap();
    }
}

#[tokio::test]
async fn a_lost_link_stays_on_disk_until_it_is_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let listener = relink::listen(ANY, listening(None)).await.unwrap();
    let link = connect(listener.url(), &state).await;
    let key = link.key();
    send(&link, 0..3);
    soon(link.kept(None)).await.unwrap();
    drop(link);
    drop(listener);
    let other = relink::listen(ANY, listening(None)).await.unwrap();
    for _ in 0..2 {
        let link = connect(other.url(), &state).await;
        assert_eq!(link.key(), key);
        let Error::Lost(lost) = soon(link.receive()).await.unwrap_err() else {
            unreachable!("it is lost");
        };
        assert_eq!(lost.unacknowledged.len(), 3);
    }
    let link = connect(other.url(), &state).await;
    link.discard().unwrap();
    drop(link);
    let link = connect(other.url(), &state).await;
    assert_ne!(link.key(), key);
    send(&link, 0..1);
    let accepted = soon(other.accept()).await.unwrap();
    assert_eq!(number(&accepted).await, 0);
}

#[tokio::test]
async fn a_closed_link_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (near, far) = (dir.path().join("near"), dir.path().join("far"));
    let listener = listen(&far).await;
    let link = connect(listener.url(), &near).await;
    let accepted = soon(listener.accept()).await.unwrap();
    send(&link, 0..1);
    assert_eq!(number(&accepted).await, 0);
    let (one, other) = tokio::join!(link.shutdown(None), accepted.shutdown(None));
    one.unwrap();
    other.unwrap();
    let journals = |dir: &Path| {
        let entries = fs::read_dir(dir).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("link")).count()
    };
    until(|| journals(&near) + journals(&far) == 0).await;
}

#[tokio::test]
async fn a_directory_has_one_user_and_one_endpoint() {
    let dir = tempfile::tempdir().unwrap();
    let (near, far) = (dir.path().join("near"), dir.path().join("far"));
    let listener = listen(&far).await;
    let held = relink::listen(ANY, listening(Some(&far)))
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(held.code(), "relink.state");
    assert!(held.to_string().contains("in use by process"), "{held}");
    let link = connect(listener.url(), &near).await;
    drop((link, listener));
    let others = ListenOptions {
        parameters: Parameters::default(),
        ..listening(Some(&far))
    };
    let error = soon(async {
        loop {
            let error = relink::listen(ANY, others.clone())
                .await
                .map(|_| ())
                .unwrap_err();
            if !error.to_string().contains("in use by") {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert!(error.to_string().contains("is not served"), "{error}");
    let url = "relink://127.0.0.1:1/other";
    let error = soon(async {
        loop {
            let error = relink::connect(url, connecting(Some(&near)))
                .await
                .unwrap_err();
            if !error.to_string().contains("in use by") {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert!(
        error.to_string().contains("a link to endpoint orders"),
        "{error}"
    );
}

#[tokio::test]
async fn journals_do_not_grow_with_what_has_passed() {
    let dir = tempfile::tempdir().unwrap();
    let (near, far) = (dir.path().join("near"), dir.path().join("far"));
    let listener = listen(&far).await;
    let link = connect(listener.url(), &near).await;
    let accepted = soon(listener.accept()).await.unwrap();
    let receiving = tokio::spawn(async move {
        for _ in 0..8_000 {
            let message = soon(accepted.receive()).await.unwrap().unwrap();
            accepted
                .consume(&message.channel, message.sequence)
                .unwrap();
        }
        accepted
    });
    let mut last = None;
    for _ in 0..8_000 {
        last = Some(link.send(&channel(), vec![7; 1_000], None).await.unwrap());
    }
    soon(last.unwrap().consumed()).await.unwrap();
    let accepted = soon(receiving).await.unwrap();
    soon(link.kept(None)).await.unwrap();
    let key = link.key();
    for journal in [
        near.join("link.journal"),
        far.join(format!("link-{}.journal", key.link_id)),
    ] {
        // The file is rewritten after the awaited write.
        let is_short = async {
            while fs::metadata(&journal).unwrap().len() >= 4 << 20 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        soon(is_short).await;
    }
    drop(accepted);
    let copy = crashed(&near, "copy");
    drop(link);
    assert_eq!(connect(listener.url(), &copy).await.key(), key);
}

#[tokio::test]
async fn an_id_of_a_link_is_never_given_out_twice() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("0");
    let listener = listen(&state).await;
    let connect = async |listener: &Listener| {
        let link = relink::connect(listener.url(), connecting(None)).await;
        link.unwrap()
    };
    let one = connect(&listener).await;
    let accepted = soon(listener.accept()).await.unwrap();
    let key = one.key();
    let first = state.join(format!("link-{}.journal", key.link_id));
    assert!(first.exists());
    // Nothing is left of it.
    let (ended, other) = tokio::join!(one.shutdown(None), accepted.shutdown(None));
    ended.unwrap();
    other.unwrap();
    until(|| !first.exists()).await;
    let copy = crashed(&state, "1");
    let listener = listen(&copy).await;
    let other = connect(&listener).await;
    assert_eq!(key.epoch, other.key().epoch);
    assert_ne!(other.key().link_id, key.link_id, "ids are 63 random bits");
}

#[tokio::test]
async fn what_was_delivered_and_not_consumed_comes_again_also_after_a_resume() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("0");
    let listener = listen(&state).await;
    let cutter = Cutter::new(listener.url()).await;
    let url = cutter.url(listener.url());
    let link = relink::connect(&url, connecting(None)).await.unwrap();
    let accepted = soon(listener.accept()).await.unwrap();
    send(&link, 0..3);
    assert_eq!(number(&accepted).await, 0);
    for _ in 0..2 {
        soon(accepted.receive()).await.unwrap().unwrap();
    }
    soon(accepted.kept(None)).await.unwrap();
    // At a resume each side lists the messages that it has received.
    for transports in [2, 3] {
        cutter.cut();
        let (one, other) = (&link, &accepted);
        until(move || one.stats().link.resumes + 1 == transports).await;
        until(move || other.stats().link.resumes + 1 == transports).await;
    }
    assert_eq!(accepted.stats().waiting, 0, "this process has them already");
    let copy = crashed(&state, "1");
    cutter.lead_to(None);
    cutter.cut();
    drop((accepted, listener));
    let listener = listen(&copy).await;
    cutter.lead_to(Some(listener.url()));
    let again = soon(listener.accept()).await.unwrap();
    assert_eq!((number(&again).await, number(&again).await), (1, 2));
}
