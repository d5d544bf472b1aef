use std::time::Duration;

use ackline_core::{Connection as _, OneRun as _};
use bytes::{BufMut as _, Bytes};
use proptest::prelude::*;

use super::*;
use crate::Outbound;

mod ends;
mod room;

fn memory(largest: u64) -> Memory {
    let quota = Arc::new(Quota::new(1_000_000));
    Memory { largest, quota }
}

fn options(window: u64) -> ReceiveOptions {
    ReceiveOptions {
        window,
        ..ReceiveOptions::default()
    }
}

fn server(window: u64) -> IntakeConfig {
    IntakeConfig::server(&options(window), memory(1_000_000))
}

fn client(filter: Option<&str>) -> IntakeConfig {
    let subscription = Subscription {
        topic: "a/b c".to_owned(),
        filter: filter.map(str::to_owned),
    };
    IntakeConfig::client(&options(10), memory(1_000_000), subscription)
}

/// A peer with these extensions, suggested and supported.
fn with(extensions: &[&str]) -> Config {
    let extension = |name: &&str| Extension {
        name: (*name).to_owned(),
        properties: Vec::new(),
    };
    Config {
        terms: Terms {
            optional: extensions.iter().map(extension).collect(),
            ..Terms::default()
        },
        ..Config::default()
    }
}

/// An intake and its peer.
struct Pair {
    now: Instant,
    intake: Intake,
    peer: Connection,
    /// Input of the intake that it did not take.
    input: BytesMut,
    told: Vec<Event>,
}

impl Pair {
    fn with(config: IntakeConfig, peer: Config) -> Self {
        let now = Instant::now();
        let role = match config.role() {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        };
        let mut peer = Connection::new(now, role, peer);
        peer.connect(now).unwrap();
        Self {
            now,
            intake: Intake::new(now, config),
            peer,
            input: BytesMut::new(),
            told: Vec::new(),
        }
    }

    /// A publisher with acknowledgements that has ended its handshake.
    fn new(window: u64) -> Self {
        let mut pair = Self::with(server(window), with(&["batch-ack", "dotnet"]));
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
            let is_still = there.is_empty();
            self.input.put(there);
            let received = self.receive();
            self.intake.poll_transmit(self.now, &mut back);
            if is_still && back.is_empty() {
                return received;
            }
            let mut input = BytesMut::new();
            input.put(back);
            self.peer.receive(self.now, &mut input).unwrap();
            self.told
                .extend(std::iter::from_fn(|| self.peer.poll_event()));
            received?;
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

    fn put(&mut self, message: Outbound<'_>, payload: &'static [u8]) {
        let sent = self.peer.send(message, &Bytes::from_static(payload));
        sent.unwrap();
    }

    fn send(&mut self, destination: &str, payload: &'static [u8]) {
        self.put(
            Outbound {
                destination,
                ..Outbound::default()
            },
            payload,
        );
    }

    fn runs(&mut self) -> Vec<Run> {
        std::iter::from_fn(|| self.intake.poll_event()).collect()
    }

    fn settle(&mut self, run: &Run) -> bool {
        let is_told = self.intake.settle(self.now, run.token);
        self.flow();
        is_told
    }

    fn end_of_peer(&mut self) {
        self.intake.receive_eof(self.now).unwrap();
    }

    fn acknowledged(&self) -> Vec<u16> {
        let through = |event: &Event| match event {
            Event::Acknowledged { through } => Some(*through),
            _ => None,
        };
        self.told.iter().filter_map(through).collect()
    }
}

fn payloads(run: &Run) -> Vec<Bytes> {
    let messages = run.messages.iter();
    messages.map(|message| message.payload.to_bytes()).collect()
}

fn destination(run: &Run) -> Option<&str> {
    run.source.destination.as_deref()
}

fn attributes(run: &Run) -> Vec<(&str, &str)> {
    let attributes = run.source.attributes.iter();
    attributes
        .map(|(name, value)| (&**name, &**value))
        .collect()
}

#[test]
fn messages_that_came_together_are_one_run_of_each_destination_and_the_numbers_go_on() {
    let mut pair = Pair::new(100);
    for (destination, payload) in [("a", &b"1"[..]), ("b", b"2"), ("", b""), ("a", b"333")] {
        pair.send(destination, payload);
    }
    pair.flow();
    let runs = pair.runs();
    let shown: Vec<_> = runs
        .iter()
        .map(|run| (destination(run), run.first, payloads(run)))
        .collect();
    let bytes = |texts: &[&'static str]| {
        texts
            .iter()
            .map(|text| Bytes::from(*text))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        shown,
        [
            (Some("a"), 0, bytes(&["1", "333"])),
            (Some("b"), 0, bytes(&["2"])),
            (None, 0, bytes(&[""])),
        ]
    );
    assert_eq!(runs[0].bytes, 4);
    assert!(attributes(&runs[0]).is_empty());
    pair.send("b", b"4");
    pair.send("a", b"5");
    pair.flow();
    let first: Vec<_> = pair.runs().iter().map(|run| run.first).collect();
    assert_eq!(first, [1, 2]);
}

#[test]
fn a_run_has_one_type_and_consecutive_numbers() {
    let mut peer = with(&["batch-ack", "dotnet"]);
    peer.terms.identity = "worker 7".to_owned();
    let mut pair = Pair::with(server(100), peer);
    pair.flow();
    for (destination, dotnet_type) in [
        ("a", None),
        ("a", Some("T")),
        ("b", None),
        ("a", Some("U")),
        ("a", Some("U")),
    ] {
        let message = Outbound {
            destination,
            dotnet_type,
            ..Outbound::default()
        };
        pair.put(message, b"x");
    }
    pair.flow();
    let runs = pair.runs();
    let shown: Vec<_> = runs
        .iter()
        .map(|run| (destination(run).unwrap(), run.first, run.messages.len()))
        .collect();
    // The type stays in force.
    assert_eq!(shown, [("a", 0, 1), ("a", 1, 1), ("b", 0, 1), ("a", 2, 2)]);
    let identity = ("micromsg.identity", "worker 7");
    assert_eq!(attributes(&runs[0]), [identity]);
    assert_eq!(
        attributes(&runs[1]),
        [("micromsg.dotnet_type", "T"), identity]
    );
    assert_eq!(
        attributes(&runs[2]),
        [("micromsg.dotnet_type", "T"), identity]
    );
    assert_eq!(
        attributes(&runs[3]),
        [("micromsg.dotnet_type", "U"), identity]
    );
}

#[test]
fn properties_are_kept_as_they_came() {
    let mut pair = Pair::new(100);
    let message = Outbound {
        destination: "a",
        properties: "k:N5;broken",
        dotnet_type: None,
    };
    pair.put(message, b"x");
    pair.send("a", b"y");
    pair.flow();
    let runs = pair.runs();
    let properties: Vec<_> = runs[0]
        .messages
        .iter()
        .map(|message| &*message.properties)
        .collect();
    assert_eq!(properties, [&b"k:N5;broken"[..], b""]);
}

#[test]
fn nothing_is_acknowledged_before_its_run_is_settled() {
    let mut pair = Pair::new(100);
    pair.send("a", b"1");
    pair.flow();
    let runs = pair.runs();
    assert!(runs[0].is_acknowledged);
    assert!(pair.acknowledged().is_empty());
    pair.intake.landed(pair.now, runs[0].token);
    pair.flow();
    assert!(
        pair.acknowledged().is_empty(),
        "it has landed, and is not settled"
    );
    assert!(pair.settle(&runs[0]));
    assert_eq!(pair.acknowledged(), [1]);
    assert!(!pair.settle(&runs[0]), "it is settled once");
    assert_eq!(pair.acknowledged(), [1]);
}

#[test]
fn a_run_that_is_settled_early_waits_for_the_messages_before_it() {
    let mut pair = Pair::new(100);
    // Runs a: 1, 3, 4; b: 2, 6; c: 5.
    for destination in ["a", "b", "a", "a", "c", "b"] {
        pair.send(destination, b"x");
    }
    pair.flow();
    let runs = pair.runs();
    assert!(pair.settle(&runs[1]));
    assert!(pair.acknowledged().is_empty());
    assert!(pair.settle(&runs[0]));
    assert_eq!(pair.acknowledged(), [4]);
    assert!(pair.settle(&runs[2]));
    assert_eq!(pair.acknowledged(), [4, 6]);
    assert_eq!(pair.peer.pending(), 0);
    assert_eq!(pair.intake.held_bytes(), 0);
}

#[test]
fn the_smaller_count_of_both_ends_is_the_window_and_more_messages_end_the_connection() {
    for (own, theirs, window) in [(3, None, 3), (7, Some("5"), 5), (5, Some("7"), 5)] {
        let mut peer = with(&["batch-ack"]);
        let count = theirs.map(|count| ("max-count".to_owned(), count.to_owned()));
        peer.terms.optional[0].properties.extend(count);
        let mut pair = Pair::with(server(own), peer);
        pair.flow();
        assert_eq!(pair.peer.window(), Ok(window));
    }
    let mut pair = Pair::new(2);
    for number in 1..=3_u8 {
        // By hand: the verb refuses it.
        let frame = [0, 0, number, 1, b'a', 0, 0, 0];
        pair.input.put(&frame[..]);
    }
    let wrong = pair.receive().unwrap_err();
    assert_eq!(wrong, Kind::WindowExceeded { window: 2 });
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Closed);
    let runs = pair.runs();
    assert_eq!(runs[0].messages.len(), 2, "they came before it, and land");
    assert!(!pair.intake.settle(pair.now, runs[0].token));
}

#[test]
fn a_peer_that_takes_no_acknowledgements_sends_no_more_than_the_window() {
    let mut pair = Pair::new(2);
    let put = |pair: &mut Pair, number| pair.input.put(&[0, 0, number, 1, b'a', 0, 0, 0][..]);
    for number in 1..=2 {
        put(&mut pair, number);
        pair.receive().unwrap();
        let run = pair.runs().remove(0);
        assert!(pair.intake.settle(pair.now, run.token));
    }
    // Its send queue is full.
    let mut full = SendQueue::new();
    while full.room() > 0 {
        full.put(Bytes::from_static(&[0; 4_096]));
    }
    let before = full.len();
    pair.intake.poll_transmit(pair.now, &mut full);
    assert_eq!(full.len(), before);
    put(&mut pair, 3);
    let wrong = pair.receive().unwrap_err();
    assert_eq!(wrong, Kind::WindowExceeded { window: 2 });
}

#[test]
fn acknowledgements_that_wait_are_one() {
    let mut pair = Pair::new(10);
    for _ in 0..3 {
        pair.send("a", b"x");
        let mut out = SendQueue::new();
        pair.peer.poll_transmit(pair.now, &mut out);
        pair.input.put(out);
        pair.receive().unwrap();
        let run = pair.runs().remove(0);
        assert!(pair.intake.settle(pair.now, run.token));
    }
    pair.flow();
    assert_eq!(pair.acknowledged(), [3]);
}

#[test]
fn a_publisher_with_the_extension_ack_gets_one_for_each_message() {
    let mut pair = Pair::with(server(100), with(&["ack"]));
    pair.flow();
    for _ in 0..3 {
        pair.send("a", b"x");
        assert!(
            pair.peer.check_send(Outbound::default()).is_err(),
            "one may wait"
        );
        pair.flow();
        let runs = pair.runs();
        assert!(pair.settle(&runs[0]));
    }
    assert_eq!(pair.acknowledged(), [1, 2, 3]);
}

#[test]
fn messages_without_acknowledgements_land_and_the_operator_is_told_once() {
    let mut pair = Pair::with(server(100), with(&["json"]));
    pair.flow();
    for _ in 0..2_000 {
        pair.send("a", b"x");
    }
    pair.flow();
    let runs = pair.runs();
    assert_eq!(runs[0].note, Some(Note::NoAcks));
    assert_eq!((runs.len(), runs[1].messages.len()), (2, 2_000));
    assert!(!runs[1].is_acknowledged);
    for run in &runs {
        assert!(pair.settle(run));
    }
    assert!(pair.acknowledged().is_empty());
    assert_eq!(pair.intake.held_bytes(), 0);
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Open);
    pair.end_of_peer();
    assert!(!pair.intake.owes_answers());
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
}

#[test]
fn a_receiver_is_no_broker() {
    let mut peer = with(&["batch-ack"]);
    peer.terms.required = with(&["pub-sub"]).terms.optional;
    let mut pair = Pair::with(server(100), peer);
    let wrong = pair.try_flow().unwrap_err();
    assert!(matches!(wrong, Kind::MissingExtension { .. }), "{wrong:?}");
    let mut pair = Pair::with(server(100), with(&["pub-sub", "batch-ack"]));
    pair.flow();
    assert!(!pair.peer.has_extension("pub-sub"));
}

#[test]
fn commands_and_frames_of_extensions_are_ignored_and_told_once() {
    let mut pair = Pair::with(server(100), with(&["json", "batch-ack"]));
    pair.flow();
    pair.peer
        .command("subscribe", &[("topic".to_owned(), "t".to_owned())])
        .unwrap();
    pair.peer.send_extension("json", b"x").unwrap();
    pair.send("a", b"x");
    pair.peer.command("other", &[]).unwrap();
    pair.flow();
    let runs = pair.runs();
    let name = Arc::from("subscribe");
    assert_eq!(runs[0].note, Some(Note::Ignored { name }));
    assert_eq!((runs.len(), payloads(&runs[1]).len()), (2, 1));
    assert!(pair.settle(&runs[1]), "a note stands in no message's way");
    assert_eq!(pair.acknowledged(), [1]);
}

#[test]
fn a_client_subscribes_when_the_handshake_has_ended() {
    for filter in [None, Some("age>=N18")] {
        let mut pair = Pair::with(client(filter), with(&["pub-sub", "batch-ack"]));
        pair.flow();
        let subscribed = pair.told.iter().find_map(|event| match event {
            Event::Subscribe(one) => Some((one.topic.as_str(), one.filter_text.as_deref())),
            _ => None,
        });
        assert_eq!(subscribed, Some(("a/b c", filter)));
        pair.send("a/b c", b"x");
        pair.flow();
        let runs = pair.runs();
        assert_eq!(destination(&runs[0]), Some("a/b c"));
        assert!(pair.settle(&runs[0]));
        assert_eq!(pair.acknowledged(), [1]);
    }
}

#[test]
fn a_client_needs_a_broker() {
    let mut pair = Pair::with(client(None), with(&["batch-ack"]));
    let told = pair.peer.poll_event();
    assert_eq!(told, None);
    let mut out = SendQueue::new();
    pair.intake.poll_transmit(pair.now, &mut out);
    let mut input = BytesMut::new();
    input.put(out);
    let wrong = pair.peer.receive(pair.now, &mut input).unwrap_err();
    assert!(
        matches!(wrong.kind, Kind::MissingExtension { .. }),
        "{wrong:?}"
    );
    let mut there = SendQueue::new();
    pair.peer.poll_transmit(pair.now, &mut there);
    pair.input.put(there);
    pair.receive().unwrap();
    let Some(Note::Failed { error }) = &pair.runs()[0].note else {
        unreachable!();
    };
    assert!(error.contains("pub-sub"), "{error}");
    assert_ne!(pair.intake.lifecycle(), Lifecycle::Open);
}

#[test]
fn a_message_in_fragments_is_one_message() {
    let peer = Config {
        fragment_size: 2,
        ..with(&["batch-ack"])
    };
    let mut pair = Pair::with(server(100), peer);
    pair.flow();
    pair.send("a", b"abcde");
    pair.send("a", b"f");
    pair.flow();
    let runs = pair.runs();
    assert_eq!(payloads(&runs[0]), ["abcde", "f"]);
    assert!(pair.settle(&runs[0]));
    assert_eq!(pair.acknowledged(), [2]);
}

#[test]
fn numbers_go_on_behind_65535() {
    let mut pair = Pair::new(65_534);
    let mut sent = 0_u64;
    for round in [65_534, 3, 60_000, 40_000] {
        for _ in 0..round {
            pair.send("a", b"x");
        }
        let mut runs = Vec::new();
        loop {
            pair.flow();
            let some = pair.runs();
            if some.is_empty() {
                break;
            }
            runs.extend(some);
        }
        assert_eq!(runs[0].first, sent);
        sent += round;
        // The last one first.
        for run in runs.iter().rev() {
            assert!(pair.settle(run));
        }
        assert_eq!(pair.peer.pending(), 0);
        let last = u64::from(*pair.acknowledged().last().unwrap());
        assert_eq!(last, (sent - 1) % 65_535 + 1);
    }
}

#[derive(Debug, Clone)]
enum Op {
    Send(u8),
    Take,
    Land(prop::sample::Index),
    Settle(prop::sample::Index),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_u8..4).prop_map(Op::Send),
        1 => Just(Op::Take),
        1 => any::<prop::sample::Index>().prop_map(Op::Land),
        2 => any::<prop::sample::Index>().prop_map(Op::Settle),
    ]
}

proptest! {
    /// The model knows of each message whether its run is settled: never is one acknowledged behind one that is not, and
    /// always all before that one are.
    #[test]
    fn the_longest_settled_beginning_is_acknowledged_and_no_more(
        window in 1_u64..30,
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        let mut pair = Pair::new(window);
        let mut settled: Vec<bool> = Vec::new();
        let mut taken: Vec<Run> = Vec::new();
        for op in ops {
            match op {
                Op::Send(destination) => {
                    if pair.peer.check_send(Outbound::default()).is_ok() {
                        let number = Bytes::from(settled.len().to_be_bytes().to_vec());
                        let message = Outbound { destination: &destination.to_string(), ..Outbound::default() };
                        pair.peer.send(message, &number).unwrap();
                        settled.push(false);
                    }
                }
                Op::Take => taken.extend(pair.runs()),
                Op::Land(at) if !taken.is_empty() => {
                    let token = taken[at.index(taken.len())].token;
                    pair.intake.landed(pair.now, token);
                }
                Op::Settle(at) if !taken.is_empty() => {
                    let run = taken.swap_remove(at.index(taken.len()));
                    for payload in payloads(&run) {
                        settled[usize::from_be_bytes((&*payload).try_into().unwrap())] = true;
                    }
                    prop_assert!(pair.settle(&run));
                }
                Op::Land(_) | Op::Settle(_) => {}
            }
            pair.flow();
            let beginning = settled.iter().take_while(|one| **one).count();
            let acknowledged = settled.len() - usize::from(pair.peer.pending());
            prop_assert_eq!(acknowledged, beginning);
        }
    }
}
