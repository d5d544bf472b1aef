use std::sync::atomic::Ordering;
use std::time::Duration;

use ackline_core::{Connection as _, OneRun as _, Room};
use bytes::BufMut as _;
use proptest::prelude::*;

use super::*;
use crate::{Config, ReceiveOptions};

fn config(role: Role, demand: u64) -> IntakeConfig {
    IntakeConfig::new(
        role,
        &ReceiveOptions {
            demand,
            ..ReceiveOptions::default()
        },
        &["p".to_owned()],
        (u64::MAX, Room::unlimited()),
    )
}

/// An intake and its peer, which publishes.
struct Pair {
    now: Instant,
    intake: Intake,
    peer: Connection,
    /// Input of the intake that it did not take.
    input: BytesMut,
    told: Vec<Event>,
}

impl Pair {
    fn new(demand: u64) -> Self {
        Self::with(config(Role::Client, demand), Config::default())
    }

    fn with(config: IntakeConfig, peer: Config) -> Self {
        let now = Instant::now();
        let role = match config.role {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        };
        let mut peer = Connection::new(now, role, peer);
        peer.connect(now).unwrap();
        let mut pair = Self {
            now,
            intake: Intake::new(now, config),
            peer,
            input: BytesMut::new(),
            told: Vec::new(),
        };
        pair.flow();
        pair
    }

    /// With a publisher that has accepted the subscription.
    fn accepted(demand: u64, element_size: u64) -> Self {
        let mut pair = Self::new(demand);
        pair.peer.accept(1, element_size).unwrap();
        pair.flow();
        pair
    }

    /// Everything is said, both ways, until nothing more is.
    fn flow(&mut self) {
        self.try_flow().unwrap();
    }

    fn try_flow(&mut self) -> Result<(), Kind> {
        loop {
            let (mut there, mut back) = (SendQueue::new(), SendQueue::new());
            self.peer.poll_transmit(self.now, &mut there);
            self.intake.poll_transmit(self.now, &mut back);
            let before = self.input.len() + there.len();
            self.input.put(there);
            self.receive()?;
            if back.is_empty() && self.input.len() == before {
                return Ok(());
            }
            let mut input = BytesMut::new();
            input.put(back);
            self.peer.receive(self.now, &mut input).unwrap();
            self.told
                .extend(std::iter::from_fn(|| self.peer.poll_event()));
        }
    }

    /// The intake takes its input until it needs more or has no room.
    fn receive(&mut self) -> Result<(), Kind> {
        loop {
            let need = self.intake.receive(self.now, &mut self.input);
            if need.map_err(|error| error.kind)? != Need::Again {
                return Ok(());
            }
        }
    }

    fn publish(&mut self, elements: &[&'static [u8]]) {
        let elements = elements.iter().map(|one| Bytes::from_static(one));
        self.peer.next(1, elements.collect()).unwrap();
        self.flow();
    }

    fn runs(&mut self) -> Vec<Run> {
        std::iter::from_fn(|| self.intake.poll_event()).collect()
    }

    fn settle_all(&mut self) {
        for run in self.runs() {
            assert!(self.intake.settle(self.now, run.token));
        }
        self.flow();
    }

    fn goodbye(&self) -> Option<&str> {
        self.told.iter().find_map(|event| match event {
            Event::Goodbye { reason } => Some(reason.as_str()),
            _ => None,
        })
    }

    fn is_cancelled(&self) -> bool {
        self.told.contains(&Event::Cancel { subscriber: 1 })
    }
}

/// The elements of a run, apart.
fn elements(run: &Run) -> Vec<Bytes> {
    match &run.elements {
        Elements::Any(elements) => elements.iter().map(Payload::to_bytes).collect(),
        Elements::Fixed { size, pieces } => {
            let all = Payload::from_parts(pieces.clone()).to_bytes();
            let size = usize::try_from(*size).unwrap();
            assert_eq!(all.len() % size, 0);
            all.chunks(size).map(Bytes::copy_from_slice).collect()
        }
    }
}

#[test]
fn a_client_subscribes_before_the_hello_of_the_server() {
    let now = Instant::now();
    let mut intake = Intake::new(now, config(Role::Client, 9));
    let mut out = SendQueue::new();
    intake.poll_transmit(now, &mut out);
    let mut sent = BytesMut::new();
    sent.put(out);
    assert_eq!(sent[..], [1, 0, 0, 3, 1, b'p', 1, 9]);
}

#[test]
fn a_server_subscribes_when_a_client_has_said_hello() {
    let mut pair = Pair::with(config(Role::Server, 9), Config::default());
    let wanted = Event::Subscribe {
        publisher: "p".to_owned(),
        subscriber: 1,
        initial_demand: 9,
    };
    assert!(pair.told.contains(&wanted), "{:?}", pair.told);
    pair.peer.accept(1, 0).unwrap();
    pair.publish(&[b"a"]);
    assert_eq!(pair.runs().len(), 1);
}

#[test]
fn elements_that_came_together_are_one_run_and_the_numbers_go_on() {
    let mut pair = Pair::accepted(100, 0);
    pair.publish(&[b"a", b"", b"ccc"]);
    let runs = pair.runs();
    assert_eq!((runs.len(), runs[0].first, runs[0].count), (1, 0, 3));
    assert_eq!((runs[0].bytes, runs[0].size()), (4, (3, 4)));
    assert_eq!(elements(&runs[0]), ["a", "", "ccc"]);
    pair.publish(&[b"d"]);
    assert_eq!(pair.runs()[0].first, 3);
    let source = &runs[0].source;
    let pair_of = |name: &str, value: &str| (Arc::from(name), Arc::from(value));
    assert_eq!(source.attributes, [pair_of("reactive.publisher", "p")]);
}

#[test]
fn packed_elements_and_single_ones_are_pieces_of_one_run() {
    let mut pair = Pair::accepted(100, 2);
    pair.publish(&[b"aa", b"bb", b"cc"]);
    pair.publish(&[b"dd"]);
    let runs = pair.runs();
    assert_eq!((runs.len(), runs[0].count, runs[0].size()), (1, 4, (2, 8)));
    assert_eq!(elements(&runs[0]), ["aa", "bb", "cc", "dd"]);
    let attributes = &runs[0].source.attributes;
    assert_eq!(&*attributes[1].0, "reactive.element_size");
    assert_eq!(&*attributes[1].1, "2");
}

#[test]
fn elements_in_parts_come_whole() {
    for size in [0, 5] {
        let small = Config {
            split_threshold: 2,
            ..Config::default()
        };
        let mut pair = Pair::with(config(Role::Client, 10), small);
        pair.peer.accept(1, size).unwrap();
        pair.publish(&[b"abcde", b"fghij"]);
        let runs = pair.runs();
        assert_eq!((runs.len(), runs[0].count, runs[0].bytes), (1, 2, 10));
        assert_eq!(elements(&runs[0]), ["abcde", "fghij"]);
        let held = runs[0].held;
        assert!(held >= 10, "{held}");
        assert_eq!(pair.intake.held_bytes(), held + pair.intake.runs.extra());
        pair.settle_all();
        assert!(pair.intake.settle(pair.now, runs[0].token));
        assert_eq!(pair.intake.held_bytes(), 0);
    }
}

#[test]
fn a_run_of_single_bytes_is_cut() {
    let threshold = Config {
        split_threshold: 16 << 20,
        ..Config::default()
    };
    let count = RUN_BYTES + RUN_BYTES / 2;
    let mut pair = Pair::with(config(Role::Client, u64::MAX >> 1), threshold);
    pair.peer.accept(1, 1).unwrap();
    let all: Bytes = (0..=u8::MAX).cycle().take(count).collect();
    pair.peer.next_packed(1, all.clone()).unwrap();
    pair.flow();
    let runs = pair.runs();
    let counts: Vec<_> = runs.iter().map(|run| (run.first, run.count)).collect();
    let (whole, half) = (4 << 20, 2 << 20);
    assert_eq!(counts, [(0, whole), (u64::from(whole), half)]);
    let pieces = runs.iter().flat_map(|run| match &run.elements {
        Elements::Fixed { pieces, .. } => pieces.clone(),
        Elements::Any(_) => Vec::new(),
    });
    let pieces = pieces.collect();
    assert_eq!(Payload::from_parts(pieces).to_bytes(), all);
}

#[test]
fn an_element_larger_than_a_run_is_whole() {
    let mut pair = Pair::accepted(10, 5 << 20);
    for byte in 0..2 {
        let element = Bytes::from(vec![byte; 5 << 20]);
        pair.peer.next(1, vec![element]).unwrap();
    }
    pair.intake.config.most_incomplete = usize::MAX;
    pair.flow();
    let mut runs = pair.runs();
    // The first one fills the machine: it is taken, then the rest comes.
    pair.flow();
    runs.extend(pair.runs());
    let counts: Vec<_> = runs.iter().map(|run| run.count).collect();
    assert_eq!(counts, [1, 1]);
}

#[test]
fn elements_are_requested_again_when_half_of_the_demand_has_landed() {
    let mut pair = Pair::accepted(4, 0);
    pair.publish(&[b"a"]);
    let first = pair.runs();
    pair.publish(&[b"b"]);
    let second = pair.runs();
    assert_eq!(pair.peer.demand(1), Ok(2));
    pair.intake.landed(pair.now, first[0].token);
    pair.flow();
    assert_eq!(pair.peer.demand(1), Ok(2), "one of four is too few");
    pair.intake.landed(pair.now, second[0].token);
    pair.flow();
    assert_eq!(pair.peer.demand(1), Ok(4));
    for run in [&first[0], &second[0]] {
        assert!(pair.intake.settle(pair.now, run.token));
    }
    pair.flow();
    assert_eq!(pair.peer.demand(1), Ok(4), "each is counted once");
    assert_eq!(pair.intake.held_bytes(), 0);
}

#[derive(Debug, Clone)]
enum Op {
    Publish(u64),
    Take,
    Land(prop::sample::Index),
    Settle(prop::sample::Index),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1_u64..6).prop_map(Op::Publish),
        Just(Op::Take),
        any::<prop::sample::Index>().prop_map(Op::Land),
        any::<prop::sample::Index>().prop_map(Op::Settle),
    ]
}

/// A run that was taken and is not settled, in the model.
struct Known {
    token: u64,
    elements: u64,
    has_landed: bool,
}

/// Does a step; returns the elements that became durable by it.
fn step(pair: &mut Pair, op: &Op, taken: &mut Vec<Known>, published: &mut u64) -> u64 {
    match op {
        Op::Publish(count) => {
            let count = (*count).min(pair.peer.demand(1).unwrap());
            let elements = (0..count).map(|_| Bytes::from_static(b"1234"));
            pair.peer.next(1, elements.collect()).unwrap();
            *published += count;
            0
        }
        Op::Take => {
            let runs = pair.runs().into_iter().map(|run| Known {
                token: run.token,
                elements: u64::from(run.count),
                has_landed: false,
            });
            taken.extend(runs);
            0
        }
        Op::Land(at) if !taken.is_empty() => {
            let at = at.index(taken.len());
            pair.intake.landed(pair.now, taken[at].token);
            let is_first = !std::mem::replace(&mut taken[at].has_landed, true);
            if is_first { taken[at].elements } else { 0 }
        }
        Op::Settle(at) if !taken.is_empty() => {
            let run = taken.swap_remove(at.index(taken.len()));
            assert!(pair.intake.settle(pair.now, run.token));
            if run.has_landed { 0 } else { run.elements }
        }
        Op::Land(_) | Op::Settle(_) => 0,
    }
}

proptest! {
    /// The elements that were requested and are not durable are never more than the demand, and always more than half of it.
    #[test]
    fn never_more_than_the_demand_is_outstanding(
        demand in 1_u64..12,
        size in prop_oneof![Just(0_u64), Just(4)],
        ops in proptest::collection::vec(op(), 1..80),
    ) {
        let mut pair = Pair::accepted(demand, size);
        let (mut taken, mut published, mut durable) = (Vec::new(), 0, 0);
        for op in ops {
            durable += step(&mut pair, &op, &mut taken, &mut published);
            pair.flow();
            let requested = published + pair.peer.demand(1).unwrap();
            let outstanding = requested - durable;
            prop_assert!(outstanding <= demand, "{outstanding} of {demand}");
            prop_assert!(outstanding * 2 > demand, "{outstanding} of {demand}");
        }
        // It goes on for ever.
        for _ in 0..3 {
            for run in take(&mut taken) {
                pair.intake.settle(pair.now, run.token);
            }
            pair.settle_all();
            let left = pair.peer.demand(1).unwrap();
            prop_assert!(left * 2 > demand, "{left} of {demand}");
            step(&mut pair, &Op::Publish(left), &mut taken, &mut published);
            pair.flow();
        }
    }
}

#[test]
fn a_stream_that_is_complete_ends_with_a_note_and_a_goodbye_once_it_is_settled() {
    let mut pair = Pair::accepted(10, 0);
    let completion = pair.intake.config.completion().clone();
    pair.publish(&[b"a", b"b"]);
    pair.peer.complete(1).unwrap();
    pair.flow();
    assert!(!completion.is_complete(), "it is not handed out yet");
    let runs = pair.runs();
    let [first, note] = &runs[..] else {
        unreachable!("{runs:?}");
    };
    assert_eq!(note.note, Some(Note::Completed { elements: 2 }));
    assert_eq!((note.count, note.first, note.bytes), (0, 2, 0));
    assert!(completion.is_complete());
    assert!(pair.intake.settle(pair.now, note.token));
    pair.flow();
    assert_eq!(pair.goodbye(), None);
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Open);
    assert!(pair.intake.settle(pair.now, first.token));
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
    pair.flow();
    assert_eq!(pair.goodbye(), Some("all streams have ended"));
}

#[test]
fn an_error_is_told_and_nothing_is_complete() {
    let mut pair = Pair::accepted(10, 0);
    pair.publish(&[b"a"]);
    pair.peer.error(1, &"é".repeat(5_000)).unwrap();
    pair.flow();
    let runs = pair.runs();
    let Some(Note::Failed { error }) = &runs[1].note else {
        unreachable!("{runs:?}");
    };
    assert_eq!(**error, "é".repeat(ERROR_BYTES / 2) + "…");
    assert!(!pair.intake.config.completion().is_complete());
    for run in &runs {
        assert!(pair.intake.settle(pair.now, run.token));
    }
    pair.flow();
    assert_eq!(pair.goodbye(), Some("all streams have ended"));
}

#[test]
fn every_publisher_has_its_own_runs_and_the_last_end_is_the_end() {
    let mut config = config(Role::Client, 10);
    config.publishers = vec!["p".into(), "q".into()];
    let mut pair = Pair::with(config, Config::default());
    for id in [1, 2] {
        pair.peer.accept(id, 0).unwrap();
        pair.peer.next(id, vec!["x".into()]).unwrap();
    }
    pair.peer.complete(1).unwrap();
    pair.flow();
    let runs = pair.runs();
    let publishers: Vec<_> = runs.iter().map(|run| &*run.source.publisher).collect();
    assert_eq!(publishers, ["p", "q", "p"]);
    for run in &runs {
        assert!(pair.intake.settle(pair.now, run.token));
    }
    assert!(!pair.intake.config.completion().is_complete());
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Open);
    pair.peer.complete(2).unwrap();
    pair.flow();
    pair.settle_all();
    assert!(pair.intake.config.completion().is_complete());
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
}

#[test]
fn a_stop_cancels_takes_nothing_more_and_ends_once_all_is_settled() {
    let mut pair = Pair::accepted(10, 0);
    pair.publish(&[b"a"]);
    let token = pair.runs()[0].token;
    pair.peer.next(1, vec!["late".into()]).unwrap();
    pair.intake.stop(pair.now);
    pair.flow();
    assert!(pair.is_cancelled() && pair.runs().is_empty());
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Open);
    assert_eq!(pair.intake.poll_timeout(), None);
    assert!(pair.intake.settle(pair.now, token));
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
    pair.flow();
    assert_eq!(pair.goodbye(), Some("the receiver stops"));
}

#[test]
fn a_connection_that_is_retired_ends_in_order() {
    for has_elements in [false, true] {
        let mut pair = Pair::accepted(10, 0);
        if has_elements {
            pair.publish(&[b"a"]);
        }
        pair.intake.retire();
        pair.flow();
        assert!(pair.is_cancelled());
        assert_eq!(pair.goodbye().is_some(), !has_elements);
        pair.settle_all();
        assert_eq!(pair.goodbye(), Some("the connection has reached its age"));
        assert_ne!(pair.intake.lifecycle(), Lifecycle::Open);
    }
}

#[test]
fn a_stop_before_the_hello_of_the_client_is_an_end_without_a_word() {
    let now = Instant::now();
    let mut intake = Intake::new(now, config(Role::Server, 9));
    intake.stop(now);
    let mut out = SendQueue::new();
    intake.poll_transmit(now, &mut out);
    assert!(out.is_empty());
    assert_eq!(intake.lifecycle(), Lifecycle::Draining);
}

#[test]
fn a_subscription_of_the_peer_is_rejected() {
    let mut pair = Pair::new(9);
    pair.peer.subscribe("q", 1, 5).unwrap();
    pair.flow();
    let rejected = Event::Error {
        subscriber: 1,
        error: ONLY_RECEIVES.into(),
    };
    assert!(pair.told.contains(&rejected), "{:?}", pair.told);
}

#[test]
fn a_connection_that_is_lost_ends_the_subscription_with_a_note() {
    let mut pair = Pair::accepted(10, 0);
    pair.publish(&[b"a"]);
    assert!(!pair.intake.detached(pair.now));
    let runs = pair.runs();
    assert_eq!(elements(&runs[0]), ["a"]);
    assert!(matches!(runs[1].note, Some(Note::Failed { .. })));
    assert!(!pair.intake.config.completion().is_complete());
}

#[test]
fn a_goodbye_of_the_peer_is_the_error_of_its_streams() {
    let mut pair = Pair::accepted(10, 0);
    pair.peer.goodbye("enough").unwrap();
    pair.flow();
    let error = Arc::from("enough");
    assert_eq!(pair.runs()[0].note, Some(Note::Failed { error }));
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
}

#[test]
fn a_peer_that_begins_more_than_the_memory_holds_is_ended() {
    let mut pair = Pair::accepted(10, 0);
    pair.intake.config.most_incomplete = 100_000;
    let element = Bytes::from(vec![7; 200_000]);
    pair.peer.next(1, vec![element]).unwrap();
    let mut out = SendQueue::new();
    pair.peer.poll_transmit(pair.now, &mut out);
    pair.input.put(out);
    // Its last part is missing.
    pair.input.truncate(180_000);
    let Err(Kind::Limit(hit)) = pair.receive() else {
        unreachable!();
    };
    assert_eq!((hit.limit, hit.option), (100_000, "--memory"));
    assert!(hit.value > 100_000, "{}", hit.value);
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Closed);
    let mut out = SendQueue::new();
    pair.intake.poll_transmit(pair.now, &mut out);
    assert!(!out.is_empty(), "a goodbye says why");
    let token = pair.runs()[0].token;
    assert!(!pair.intake.settle(pair.now, token));
}

#[test]
fn a_server_without_a_hello_is_given_up() {
    let now = Instant::now();
    let mut intake = Intake::new(now, config(Role::Client, 9));
    let due = intake.poll_timeout().unwrap();
    assert_eq!(due, now + Duration::from_secs(10));
    let ended = intake.handle_timeout(due).unwrap_err();
    assert!(matches!(ended.kind, Kind::Timeout { .. }));
    assert!(matches!(
        intake.poll_event().unwrap().note,
        Some(Note::Failed { .. })
    ));
}

#[test]
fn a_full_spool_stops_its_publisher_and_a_drained_one_is_seen_by_itself() {
    use std::sync::atomic::AtomicU64;
    let free = Arc::new(AtomicU64::new(0));
    let room = {
        let free = Arc::clone(&free);
        Room::new(1 << 20, move || free.load(Ordering::Relaxed))
    };
    let mut config = config(Role::Client, 1_000);
    config.room = room.clone();
    let mut pair = Pair::with(config, Config::default());
    pair.peer.accept(1, 0).unwrap();
    pair.flow();
    assert_eq!(pair.peer.demand(1), Ok(0));
    assert_eq!(room.waiting(), 1);
    let due = pair.intake.poll_timeout().unwrap();
    assert_eq!(due, pair.now + LOOK_AGAIN);
    free.store(1 << 20, Ordering::Relaxed);
    pair.now = due;
    pair.intake.handle_timeout(due).unwrap();
    pair.flow();
    assert_eq!(pair.peer.demand(1), Ok(1), "its size is unknown");
    assert_eq!((room.waiting(), pair.intake.poll_timeout()), (0, None));
    pair.publish(&[b"a"]);
    pair.settle_all();
    pair.publish(&[b"a", b"b"]);
    pair.settle_all();
    assert!(pair.peer.demand(1).unwrap() > 2);
    drop(pair);
    assert_eq!(room.join().left(), 1 << 20, "it has given its room back");
}
