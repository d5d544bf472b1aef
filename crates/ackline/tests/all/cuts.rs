//! A session of two windows is cut at each byte of each direction and its rest sent again: every event is
//! there once among those that are no repeats.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeSet;

use crate::common::{Sender, landed, start, window};
use ackline::Receiver;
use serde_json::json;

/// The byte after which the connection is cut.
#[derive(Debug, Clone, Copy)]
enum At {
    /// Of the sender's bytes.
    Sent(usize),
    /// Of the acknowledgements.
    Acked(usize),
}

/// The way in which it is cut.
#[derive(Debug, Clone, Copy)]
enum Cut {
    End,
    Reset,
}

/// The form of the second sending.
#[derive(Debug, Clone, Copy)]
enum Again {
    /// The windows as they were, one after the other was acknowledged.
    Windows,
    /// All at once, in other windows.
    Merged,
    Singles,
}

/// Lumberjack 2: `2A` and a number.
const ACK_BYTES: usize = 6;

fn numbered(name: &str) -> [Vec<String>; 2] {
    [0..3, 3..5].map(|range| range.map(|at| format!("{name}-{at}")).collect())
}

fn bytes(events: &[String]) -> Vec<u8> {
    window(b'2', &events.iter().map(String::as_str).collect::<Vec<_>>())
}

/// One session, cut and sent again until all of it is acknowledged.
async fn session(receiver: &Receiver, host: &str, name: &str, at: At, (cut, again): (Cut, Again)) {
    let windows = numbered(name);
    let all: Vec<u8> = windows.iter().flat_map(|events| bytes(events)).collect();
    let mut sender = Sender::from(receiver, host).await;
    let known = match at {
        At::Sent(end) => {
            sender.send(&all[..end]).await;
            0
        }
        At::Acked(end) => {
            sender.send(&all).await;
            sender.read(end).await;
            end / ACK_BYTES
        }
    };
    match cut {
        Cut::End => drop(sender),
        Cut::Reset => sender.reset(),
    }
    let pending = &windows[known..];
    let again: Vec<Vec<String>> = match again {
        Again::Windows => pending.to_vec(),
        Again::Merged => vec![pending.concat()],
        Again::Singles => pending.concat().into_iter().map(|one| vec![one]).collect(),
    };
    let mut sender = Sender::from(receiver, host).await;
    let is_pipelined = again.len() != 2;
    for events in &again {
        sender.send(&bytes(events)).await;
        if !is_pipelined {
            sender.read(ACK_BYTES).await;
        }
    }
    if is_pipelined {
        sender
            .read(again.iter().filter(|one| !one.is_empty()).count() * ACK_BYTES)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_is_there_once_wherever_a_session_is_cut() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("spool");
    let receiver = start(&dir, &json!({})).await;
    let ways = [Cut::End, Cut::Reset]
        .into_iter()
        .flat_map(|cut| [Again::Windows, Again::Merged, Again::Singles].map(|again| (cut, again)));
    let mut sessions = tokio::task::JoinSet::new();
    for (number, way) in ways.enumerate() {
        let (receiver, host) = (receiver.clone(), format!("127.0.1.{}", number + 1));
        sessions.spawn(async move {
            let sent: usize = numbered("0-000").iter().map(|one| bytes(one).len()).sum();
            let cuts = (0..=sent).map(At::Sent);
            let cuts = cuts.chain((0..=2 * ACK_BYTES).map(At::Acked));
            let mut names = Vec::new();
            for (at, cut) in cuts.enumerate() {
                let name = format!("{number}-{at:03}");
                session(&receiver, &host, &name, cut, way).await;
                names.extend(numbered(&name).concat());
            }
            names
        });
    }
    let sent: BTreeSet<String> = sessions.join_all().await.into_iter().flatten().collect();
    let stats = receiver.stats();
    assert_eq!(receiver.stop(None).await, 0);
    let all = landed(&dir);
    let mut once = BTreeSet::new();
    for (event, is_repeat) in &all {
        if !is_repeat {
            assert!(once.insert(event.clone()), "{event} stands there twice");
        }
    }
    assert_eq!(once, sent);
    let marked = all.iter().filter(|one| one.1).count();
    assert_eq!(all.len() - marked, sent.len());
    assert_eq!(stats.received.repeats, marked as u64);
    // Each way lands both windows before it is cut at many of its bytes.
    assert!(marked > sent.len() / 10, "{marked} of {}", all.len());
}
