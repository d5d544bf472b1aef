//! Responses that wait to be sent, and the requests that they will answer: how many bytes of them there may be.
//!
//! A peer that asks and gives no credit, or does not read, makes responses pile up. Their bytes, and those of
//! requests that were accepted and are not answered yet, are charged to an eighth of the memory, beside it. While there is
//! no room for one more request it is not handed out; openings are. One request at a time is always handed out.
//!
//! ```text
//!            no room, or 64 KiB of them           room again, or no response waits
//! open ──────────────────────────────────► shut ──────────────────────────────────► open
//!                                           │ no response byte has left for 30 s
//!                                           └──────────────────────────────────────► the connection is ended
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline_bpmux::Waiting;
use ackline_core::{Quota, Share};

use super::wide;

/// The charge of one connection.
#[derive(Debug)]
pub(super) struct Answers {
    share: Share,
    /// Bytes of accepted requests that are not answered.
    accepted: u64,
    /// A request waits for room.
    is_shut: bool,
    /// The responses that waited at the last look, and since when none of their bytes has left, while it is shut.
    stalled: Option<(Waiting, Instant)>,
}

impl Answers {
    pub(super) fn new(quota: Arc<Quota>) -> Self {
        Self {
            share: Share::of(quota, 0),
            accepted: 0,
            is_shut: false,
            stalled: None,
        }
    }

    /// Whether a request of so many bytes may be handed out while so much waits; if not, it waits itself.
    pub(super) fn may_accept(&mut self, waiting: Waiting, bytes: usize) -> bool {
        let kept = self.kept(waiting);
        let wanted = kept.saturating_add(wide(bytes));
        let has_room = kept == 0 || self.share.change(charge(wanted)).is_ok();
        self.is_shut = !has_room;
        has_room
    }

    /// A request was handed out.
    pub(super) fn accept(&mut self, bytes: u64) {
        self.accepted = self.accepted.saturating_add(bytes);
    }

    /// It was answered, or given up.
    pub(super) fn answered(&mut self, bytes: u64) {
        self.accepted = self.accepted.saturating_sub(bytes);
    }

    /// So much waits now; whether a request that waits for room is to be looked at again.
    pub(super) fn look(&mut self, now: Instant, waiting: Waiting) -> bool {
        let kept = charge(self.kept(waiting));
        self.share.set(kept);
        if !self.is_shut || waiting.payloads == 0 {
            self.stalled = None;
            return self.is_shut;
        }
        let before = self.stalled;
        let has_moved = before.is_none_or(|(before, _)| before != waiting);
        if has_moved {
            self.stalled = Some((waiting, now));
        }
        has_moved
    }

    /// When the connection is over if no byte of a response leaves.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let (_, since) = self.stalled?;
        since.checked_add(MOST_STALLED)
    }

    fn kept(&self, waiting: Waiting) -> u64 {
        self.accepted.saturating_add(wide(waiting.bytes))
    }
}

/// Bytes that are charged of so many.
const fn charge(bytes: u64) -> u64 {
    bytes.saturating_sub(FREE_BYTES)
}

/// Bytes that every connection has free of charge.
const FREE_BYTES: u64 = 64 << 10;

/// How long responses may wait without a byte of them leaving, while requests wait for them. Two ends that both ask
/// and answer can, in theory, wait for each other: that has an end too.
pub(super) const MOST_STALLED: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use ackline_bpmux::{self as machine, Config, CreditPolicy, Event};
    use ackline_core::{Connection as _, ErrorKind as _, SendQueue};
    use ackline_link::Budget;
    use bytes::{Buf as _, Bytes, BytesMut};

    use super::super::{Arrival, Session};
    use super::*;
    use crate::bpmux::LinkOptions;

    const RESPONSE: usize = 32 << 10;

    /// One end that asks by hand, and one that answers.
    struct Pair {
        now: Instant,
        asking: machine::Connection,
        answering: Session,
        answers: usize,
    }

    impl Pair {
        fn new(budget: &Budget) -> Self {
            let now = Instant::now();
            let config = Config {
                credit: CreditPolicy::Manual,
                ..Config::default()
            };
            let options = LinkOptions {
                ping_after: None,
                pong_timeout: None,
                chunk_receive_timeout: None,
                ..LinkOptions::default()
            };
            Self {
                now,
                asking: machine::Connection::new(now, config),
                answering: Session::new(now, &options, budget),
                answers: 0,
            }
        }

        fn ask(&mut self, count: usize) {
            self.ask_with(count, b"ask");
        }

        fn ask_with(&mut self, count: usize, request: &'static [u8]) {
            for _ in 0..count {
                let id = self.asking.free_request_id().unwrap();
                let request = Bytes::from_static(request);
                self.asking.request(id, request).unwrap();
            }
        }

        /// Everything that is on its way arrives.
        fn pass(&mut self) {
            let (mut there, mut back) = (BytesMut::new(), BytesMut::new());
            loop {
                let before = (there.len(), back.len());
                let sent = encode(&mut self.asking, self.now, &mut there);
                self.answering.receive(self.now, &mut there).unwrap();
                let sent_back = encode(&mut self.answering, self.now, &mut back);
                self.asking.receive(self.now, &mut back).unwrap();
                while let Some(event) = self.asking.poll_event() {
                    if matches!(event, Event::Response { .. }) {
                        self.answers += 1;
                    }
                }
                if (there.len(), back.len()) == before && !sent && !sent_back {
                    return;
                }
            }
        }

        /// Answers all that is handed out; how many.
        fn answer(&mut self) -> usize {
            let mut count = 0;
            while let Some(request) = self.answering.arrival() {
                self.respond(&request);
                self.pass();
                count += 1;
            }
            count
        }

        fn respond(&mut self, request: &Arrival) {
            let response = Bytes::from(vec![7; RESPONSE]);
            let responded = self
                .answering
                .with_request(request.serial, |it, id| it.respond(id, response));
            responded.unwrap();
            self.answering.leave(request.serial);
        }

        fn grant(&mut self, bytes: usize) {
            let top = machine::Target::Top;
            self.asking.grant_credit(top, wide(bytes)).unwrap();
            self.pass();
        }
    }

    /// Takes all that is to be sent; whether there was something.
    fn encode(end: &mut impl ackline_core::Connection, now: Instant, into: &mut BytesMut) -> bool {
        let (mut out, before) = (SendQueue::new(), into.len());
        end.poll_transmit(now, &mut out);
        while out.has_remaining() {
            let piece = out.chunk().len();
            into.extend_from_slice(&out.copy_to_bytes(piece));
            end.poll_transmit(now, &mut out);
        }
        into.len() > before
    }

    /// 1 MiB for all: a connection may have half of it.
    fn budget() -> Budget {
        Budget::new(8 << 20)
    }

    /// Responses of one connection: 512 KiB and its free part.
    const MOST: usize = ((512 << 10) + (64 << 10)) / RESPONSE;

    #[test]
    fn requests_wait_while_their_responses_have_no_credit() {
        let budget = budget();
        let mut pair = Pair::new(&budget);
        pair.ask(400);
        pair.pass();
        let answered = pair.answer();
        assert!((MOST - 1..=MOST + 1).contains(&answered), "{answered}");
        assert_eq!(pair.answers, 0);
        // Openings do not wait.
        let id = pair.asking.free_id().unwrap();
        pair.asking
            .open(machine::EntityKind::Sink, id, Bytes::new())
            .unwrap();
        pair.pass();
        let opened = pair.answering.arrival().unwrap();
        assert_eq!(
            (opened.kind, pair.answering.has_arrival()),
            (Some(machine::EntityKind::Sink), false)
        );
        // Each response that leaves makes room for another one.
        let mut all = answered;
        while all < 400 {
            pair.grant(RESPONSE * 8);
            let more = pair.answer();
            let is_last = all + more == 400;
            assert!(is_last || (7..=10).contains(&more), "{more}");
            all += more;
        }
        pair.grant(RESPONSE * 400);
        assert_eq!((all, pair.answers), (400, 400));
        assert_eq!(budget.answers().used(), 0);
    }

    #[test]
    fn many_connections_keep_no_more_than_their_part_and_each_is_answered_once() {
        let budget = budget();
        let mut pairs: Vec<_> = (0..40).map(|_| Pair::new(&budget)).collect();
        let mut answered = Vec::new();
        for pair in &mut pairs {
            pair.ask(50);
            pair.pass();
            answered.push(pair.answer());
        }
        let kept = answered.iter().sum::<usize>() * RESPONSE;
        let most = (1 << 20) + pairs.len() * ((64 << 10) + RESPONSE);
        assert!(kept <= most, "{kept} of {most}");
        assert!(answered.iter().all(|count| *count > 0));
    }

    #[test]
    fn an_accepted_request_counts_until_it_is_answered_or_let_go() {
        let quota = Arc::new(Quota::new(1 << 20));
        let mut answers = Answers::new(quota);
        let none = Waiting::default();
        assert!(answers.may_accept(none, 900 << 10), "the only one");
        answers.accept(900 << 10);
        assert!(!answers.may_accept(none, 1));
        assert!(answers.look(Instant::now(), none), "it is looked at again");
        answers.answered(900 << 10);
        assert!(answers.may_accept(none, 1));
    }

    #[test]
    fn answered_requests_are_charged_no_longer() {
        let budget = budget();
        let mut pair = Pair::new(&budget);
        pair.grant(RESPONSE * 100);
        pair.ask_with(100, &[1; 2_000]);
        pair.pass();
        assert_eq!(pair.answer(), 100);
        pair.pass();
        assert_eq!((pair.answers, budget.answers().used()), (100, 0));
    }

    #[test]
    fn a_peer_that_asks_on_and_takes_nothing_is_ended() {
        let budget = budget();
        let mut pair = Pair::new(&budget);
        pair.ask(400);
        pair.pass();
        pair.answer();
        pair.pass();
        let almost = Duration::from_secs(29);
        // A byte of a response leaves.
        pair.now += almost;
        pair.grant(1);
        pair.now += Duration::from_secs(1);
        pair.answering.handle_timeout(pair.now).unwrap();
        let due = pair.answering.poll_timeout().unwrap();
        assert_eq!(due, pair.now + almost);
        pair.now = due;
        let ended = pair.answering.handle_timeout(due).unwrap_err();
        assert_eq!(ended.kind.code(), "bpmux.no_credit");
    }

    #[test]
    fn a_peer_that_waits_with_few_responses_is_not() {
        let budget = budget();
        let mut pair = Pair::new(&budget);
        pair.ask(3);
        pair.pass();
        assert_eq!(pair.answer(), 3);
        pair.now += Duration::from_secs(3_600);
        pair.pass();
        assert_eq!(pair.answering.poll_timeout(), None);
    }
}
