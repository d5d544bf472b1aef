use std::time::Duration;

use ackline_core::{LimitHit, RUN_MESSAGES};
use bytes::BufMut as _;

use super::*;
use crate::{Config, Connection as Machine, CreditPolicy, EntityKind, Subject};

const SINK: Target = Target::Own(1);

fn config() -> IntakeConfig {
    IntakeConfig {
        machine: Config {
            credit: CreditPolicy::Automatic {
                floor: 100,
                ceiling: 100,
                budget: 1_000_000,
            },
            holds_close_acks: true,
            ping_after: Some(Duration::from_secs(1)),
            ..Config::default()
        },
        max_opening_bytes: 50,
        most_incomplete: 100_000,
        quota: Arc::new(Quota::new(u64::MAX)),
        stream: None,
    }
}

/// An intake and its peer.
struct Pair {
    now: Instant,
    intake: Intake,
    peer: Machine,
    told: Vec<Event>,
}

impl Pair {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: IntakeConfig) -> Self {
        let now = Instant::now();
        let mut pair = Self {
            now,
            intake: Intake::new(now, config),
            peer: Machine::new(now, Config::default()),
            told: Vec::new(),
        };
        pair.flow();
        pair
    }

    /// With a sink that is open.
    fn with_sink() -> Self {
        let mut pair = Self::new();
        let opened = pair.peer.open(EntityKind::Sink, 1, Bytes::new());
        opened.unwrap();
        pair.flow();
        pair
    }

    /// Everything is said, both ways, until nothing more is.
    fn flow(&mut self) {
        self.try_flow().unwrap();
    }

    fn try_flow(&mut self) -> Result<(), IntakeKind> {
        loop {
            let (mut there, mut back) = (SendQueue::new(), SendQueue::new());
            self.peer.poll_transmit(self.now, &mut there);
            self.intake.poll_transmit(self.now, &mut back);
            if there.is_empty() && back.is_empty() {
                return Ok(());
            }
            let mut input = BytesMut::new();
            input.put(there);
            let taken = self.intake.receive(self.now, &mut input);
            taken.map_err(|error| error.kind)?;
            let mut input = BytesMut::new();
            input.put(back);
            self.peer.receive(self.now, &mut input).unwrap();
            self.told
                .extend(std::iter::from_fn(|| self.peer.poll_event()));
        }
    }

    fn send(&mut self, bytes: usize) {
        self.peer.send(SINK, vec![7; bytes].into()).unwrap();
        self.flow();
    }

    fn close(&mut self, reason: &'static str) {
        self.peer.close(SINK, reason.into()).unwrap();
        self.flow();
    }

    fn runs(&mut self) -> Vec<Run> {
        std::iter::from_fn(|| self.intake.poll_event()).collect()
    }

    /// Settles a run, and answers whether the close is acknowledged now.
    fn settles(&mut self, token: u64) -> bool {
        assert!(self.intake.settle(self.now, token));
        self.is_acknowledged()
    }

    fn is_acknowledged(&mut self) -> bool {
        self.flow();
        let acknowledged = Event::CloseAcknowledged { target: SINK };
        self.told.contains(&acknowledged)
    }

    fn credit(&mut self) -> u64 {
        self.flow();
        self.peer.credit(SINK).unwrap()
    }
}

#[test]
fn a_close_is_acknowledged_once_every_run_is_settled() {
    let mut pair = Pair::with_sink();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        pair.send(10);
        tokens.extend(pair.runs().iter().map(|run| run.token));
    }
    pair.close("3");
    assert_eq!((tokens.len(), pair.intake.unsettled()), (3, 3));
    for token in &tokens {
        pair.intake.landed(pair.now, *token);
    }
    assert!(!pair.is_acknowledged(), "durable is less than promised");
    assert!(!pair.settles(tokens[2]), "in any order");
    assert!(!pair.settles(tokens[0]));
    assert!(pair.settles(tokens[1]));
    assert!(!pair.intake.settle(pair.now, tokens[1]), "settled once");
    assert_eq!((pair.intake.unsettled(), pair.intake.open.kept), (0, 0));
}

#[test]
fn a_close_waits_for_what_is_not_even_handed_out() {
    let mut pair = Pair::with_sink();
    pair.send(10);
    pair.close("");
    assert!(!pair.is_acknowledged());
    let runs = pair.runs();
    assert!(!pair.is_acknowledged());
    assert!(pair.settles(runs[0].token));
}

#[test]
fn a_sink_without_messages_is_acknowledged_at_once() {
    let mut pair = Pair::with_sink();
    pair.close("0");
    assert!(pair.is_acknowledged());
}

#[test]
fn credit_comes_back_when_bytes_have_landed_and_once() {
    let mut pair = Pair::with_sink();
    assert_eq!(pair.credit(), 100);
    pair.send(60);
    let runs = pair.runs();
    assert_eq!(
        (pair.credit(), pair.intake.complete_bytes()),
        (40, 60 + 64 + 256)
    );
    pair.intake.landed(pair.now, runs[0].token);
    assert_eq!((pair.credit(), pair.intake.complete_bytes()), (100, 0));
    pair.intake.landed(pair.now, runs[0].token);
    assert!(pair.intake.settle(pair.now, runs[0].token));
    assert_eq!((pair.credit(), pair.intake.complete_bytes()), (100, 0));
    // Settled without having landed before: as durable acknowledgements are.
    pair.send(60);
    let runs = pair.runs();
    assert!(pair.intake.settle(pair.now, runs[0].token));
    assert_eq!((pair.credit(), pair.intake.complete_bytes()), (100, 0));
}

#[test]
fn what_came_together_is_one_run_of_its_entity() {
    let mut pair = Pair::with_sink();
    pair.peer.open(EntityKind::Sink, 2, Bytes::new()).unwrap();
    pair.flow();
    for (target, bytes) in [
        (SINK, 1),
        (Target::Own(2), 2),
        (SINK, 3),
        (Target::Top, 4),
        (SINK, 5),
    ] {
        pair.peer.send(target, vec![7; bytes].into()).unwrap();
    }
    pair.peer.request(7, Bytes::from_static(b"one")).unwrap();
    pair.peer.request(8, Bytes::from_static(b"two")).unwrap();
    pair.flow();
    let mut runs: Vec<_> = pair
        .runs()
        .iter()
        .map(|run| (run.source.stream.clone(), run.payloads.len(), run.bytes))
        .collect();
    runs.sort();
    let at = |id: &str| Some(Arc::from(id));
    assert_eq!(
        runs,
        [(None, 1, 4), (None, 2, 6), (at("1"), 3, 9), (at("2"), 1, 2)]
    );
    pair.send(1);
    assert_eq!(pair.runs()[0].first, 3, "its numbers go on");
}

#[test]
fn a_run_is_cut_by_its_messages() {
    let mut pair = Pair::with_sink();
    for _ in 0..=RUN_MESSAGES {
        pair.peer.send(SINK, Bytes::new()).unwrap();
    }
    pair.flow();
    let lengths: Vec<_> = pair.runs().iter().map(|run| run.payloads.len()).collect();
    assert_eq!(lengths, [RUN_MESSAGES, 1]);
}

#[test]
fn a_peer_that_begins_more_than_the_memory_holds_is_ended() {
    let mut pair = Pair::new();
    let mut ended = Ok(());
    for id in 0..1_000 {
        pair.peer.open(EntityKind::Sink, id, Bytes::new()).unwrap();
        ended = ended.and_then(|()| pair.try_flow());
    }
    let Err(IntakeKind::Protocol(kind @ Kind::Memory { .. })) = ended else {
        unreachable!("{ended:?}");
    };
    let LimitHit { limit, option, .. } = kind.limit().unwrap();
    assert_eq!((limit, option), (100_000, "--memory"));
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Closed);
}

#[test]
fn a_wrong_count_ends_the_connection_and_nothing_is_acknowledged_any_more() {
    let mut pair = Pair::with_sink();
    pair.send(1);
    let token = pair.runs()[0].token;
    pair.peer.close(SINK, "2".into()).unwrap();
    let ended = pair.try_flow().unwrap_err();
    assert_eq!(ended.code(), "bpmux.count_differs");
    assert!(!pair.intake.settle(pair.now, token));
    let mut out = SendQueue::new();
    pair.intake.poll_transmit(pair.now, &mut out);
    assert!(out.is_empty());
}

#[test]
fn a_stop_takes_nothing_more_and_ends_once_all_is_settled() {
    let mut pair = Pair::with_sink();
    pair.send(10);
    let token = pair.runs()[0].token;
    pair.intake.stop(pair.now);
    pair.send(10);
    assert!(pair.runs().is_empty());
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Open);
    assert_eq!(
        pair.intake.poll_timeout(),
        None,
        "what is not listened to is not silent"
    );
    assert!(pair.intake.settle(pair.now, token));
    assert_eq!(pair.intake.lifecycle(), Lifecycle::Draining);
}

#[test]
fn a_number_of_digits_and_nothing_else_is_a_count() {
    let counts: [(&[u8], Option<&str>); 7] = [
        (b"", None),
        (b"0", Some("0")),
        (b"0012", Some("0012")),
        (b"18446744073709551616", Some("18446744073709551616")),
        (b"+1", None),
        (b"1 ", None),
        ("\u{661}".as_bytes(), None),
    ];
    for (payload, count) in counts {
        assert_eq!(count_of(payload), count);
    }
}

#[test]
fn what_opens_closes_and_cancels_costs_no_credit_for_good() {
    let mut pair = Pair::new();
    for round in 0..50 {
        pair.peer
            .open(EntityKind::Duplex, 1, Bytes::from_static(b"an opening"))
            .unwrap();
        pair.flow();
        pair.peer.grant_credit(Target::Top, 100).unwrap();
        pair.close("a reason");
        pair.peer.request(5, Bytes::from_static(b"asked")).unwrap();
        pair.flow();
        let reason = Bytes::from_static(b"no more");
        pair.peer.cancel_request(5, reason).unwrap();
        pair.flow();
        let _ = pair.peer.cancel(SINK, Bytes::from_static(b"enough"));
        for run in pair.runs() {
            pair.intake.landed(pair.now, run.token);
            pair.intake.settle(pair.now, run.token);
        }
        pair.flow();
        // Less than a quarter of the window is not worth a chunk.
        let credit = pair.peer.credit(Target::Top).unwrap();
        assert!(credit > 75, "{credit} of 100 after round {round}");
        assert!(!pair.peer.exists(Subject::Entity(SINK)));
    }
}

#[test]
fn who_closes_the_top_level_gets_ours_closed_too() {
    let mut pair = Pair::new();
    pair.peer.close(Target::Top, Bytes::new()).unwrap();
    pair.flow();
    let is_ours = |event: &Event| {
        matches!(
            event,
            Event::Closed {
                target: Target::Top,
                ..
            }
        )
    };
    assert!(pair.told.iter().any(is_ours), "{:?}", pair.told);
    assert_ne!(pair.peer.lifecycle(), Lifecycle::Open, "nothing is left");
}

#[test]
fn a_sink_that_was_refused_ends_whatever_crosses_that() {
    let mut pair = Pair::new();
    pair.peer.grant_credit(Target::Top, 1_000).unwrap();
    pair.flow();
    let opening = Bytes::from(vec![b'x'; 51]);
    pair.peer.open(EntityKind::Sink, 1, opening).unwrap();
    pair.peer.send(SINK, Bytes::new()).unwrap();
    // A wrong count, too: refused messages are not counted.
    pair.close("7");
    assert!(pair.is_acknowledged());
    let [
        Event::Cancelled {
            target: SINK,
            payload,
        },
        Event::CloseAcknowledged { .. },
    ] = &pair.told[..]
    else {
        unreachable!("it is told that it is refused, before: {:?}", pair.told);
    };
    let why = "an opening of 51 bytes is above 50, which this receiver takes (--max-opening-bytes)";
    assert_eq!(payload.to_bytes(), why);
    assert!(!pair.peer.exists(Subject::Entity(SINK)));
    let runs = pair.runs();
    assert!(matches!(
        runs[..],
        [Run {
            note: Some(Note::OpeningTooLarge {
                bytes: 51,
                limit: 50
            }),
            ..
        }]
    ));
}

#[test]
fn what_is_refused_without_credit_for_the_reason_is_told_that_it_is_refused() {
    let mut pair = Pair::new();
    pair.peer.grant_credit(Target::Top, 30).unwrap();
    pair.flow();
    let opening = Bytes::from(vec![b'x'; 51]);
    pair.peer.open(EntityKind::Sink, 1, opening).unwrap();
    pair.close("0");
    let [
        Event::Cancelled { payload, .. },
        Event::CloseAcknowledged { .. },
    ] = &pair.told[..]
    else {
        unreachable!("{:?}", pair.told);
    };
    assert_eq!(payload.bytes(), 0);
}

#[test]
fn what_comes_on_a_refused_sink_gives_its_credit_back_until_it_is_cancelled() {
    let mut config = config();
    config.machine.chunk_size = 4;
    let mut pair = Pair::with(config);
    pair.peer.grant_credit(Target::Top, 90).unwrap();
    pair.flow();
    // The frames that this end sends for other entities use up credit: the cancel has to wait for its last
    // bytes.
    pair.peer.open(EntityKind::Stream, 0, Bytes::new()).unwrap();
    let opening = |bytes| Bytes::from(vec![b'x'; bytes]);
    pair.peer.open(EntityKind::Duplex, 1, opening(51)).unwrap();
    pair.peer.send(SINK, Bytes::new()).unwrap();
    pair.flow();
    for _ in 0..5 {
        pair.send(90);
    }
    pair.close("6");
    assert_eq!(pair.peer.waiting(SINK), Ok(0));
    assert!(!pair.is_acknowledged(), "the cancel has to go first");
    assert_eq!(pair.runs().len(), 1, "nothing of it lands");
    pair.peer.grant_credit(Target::Top, 1_000).unwrap();
    assert!(pair.is_acknowledged());
    let at = |is: fn(&Event) -> bool| pair.told.iter().position(is);
    let cancelled = at(|event| matches!(event, Event::Cancelled { target: SINK, .. }));
    let acknowledged = at(|event| matches!(event, Event::CloseAcknowledged { .. }));
    assert!(cancelled.is_some() && cancelled < acknowledged);
}

#[test]
fn a_count_is_shown_as_it_was_sent_and_cut_if_it_is_long() {
    let nines = |count| "9".repeat(count);
    for (sent, told) in [
        (nines(26), nines(26)),
        (nines(32), nines(32)),
        (nines(33), nines(32) + "…"),
    ] {
        let mut pair = Pair::with_sink();
        pair.peer.close(SINK, sent.into()).unwrap();
        let ended = pair.try_flow().unwrap_err();
        let words = format!("was closed with the count {told}, and 0 messages came on it");
        assert!(ended.to_string().ends_with(&words), "{ended}");
    }
}
