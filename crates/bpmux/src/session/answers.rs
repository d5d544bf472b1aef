//! Responses that wait to be sent, and the requests that they will answer: how many bytes of them there may be.
//!
//! A peer that asks and gives no credit, or does not read, makes responses pile up. Their bytes, and those of
//! requests that were accepted and are not answered yet, are charged to an eighth of the memory, beside it
//! ([`AnswerRoom`]). While there is no room for one more request it is not handed out; openings are. Of all connections
//! one at a time may have a request handed out although there is no room.
//!
//! ```text
//!            no room for one more            room again, or its own responses have left
//! open ──────────────────────────────► shut ──────────────────────────────────────────► open
//!   │                                   │ no response byte has left for 30 s
//!   └───────────────────────────────────┴──────────────────────────────────────────────► the connection is ended
//!     others are shut, and it takes its responses too slowly
//! ```

use std::time::{Duration, Instant};

use ackline_core::{AnswerRoom, AnswerUsage};

use super::wide;
use crate::{Kind, Waiting};

/// The charge of one connection.
#[derive(Debug)]
pub(super) struct Answers<A> {
    share: A,
    /// Bytes of accepted requests that are not answered.
    accepted: u64,
    /// Bytes of all responses at the last look.
    given: u64,
    /// A request waits for room.
    is_shut: bool,
    /// The responses that waited at the last look, and since when none of their bytes has left, while it is shut.
    stalled: Option<(Waiting, Instant)>,
}

impl<A: AnswerRoom> Answers<A> {
    pub(super) const fn new(share: A) -> Self {
        Self {
            share,
            accepted: 0,
            given: 0,
            is_shut: false,
            stalled: None,
        }
    }

    pub(super) const fn room(&mut self) -> &mut A {
        &mut self.share
    }

    /// Whether a request of so many bytes may be handed out; if not, it waits itself.
    pub(super) fn may_accept(&mut self, now: Instant, bytes: usize, can_begin: bool) -> bool {
        let has_room = self.share.ask(now, wide(bytes), can_begin);
        self.is_shut = !has_room;
        has_room
    }

    /// A request was handed out.
    pub(super) fn accept(&mut self, bytes: u64) {
        self.accepted = self.accepted.saturating_add(bytes);
        self.share.handed_out();
    }

    /// It was answered, or given up; all responses have so many bytes now.
    pub(super) fn answered(&mut self, bytes: u64, given: u64) {
        self.accepted = self.accepted.saturating_sub(bytes);
        let before = std::mem::replace(&mut self.given, given);
        self.share.answered(given.saturating_sub(before));
    }

    /// So much waits now; whether a request that waits for room is to be looked at again.
    pub(super) fn look(&mut self, now: Instant, waiting: Waiting, given: u64) -> bool {
        let answers = wide(waiting.bytes);
        let kept = AnswerUsage {
            accepted: self.accepted,
            answers,
            left: given.saturating_sub(answers),
        };
        let is_granted = self.share.settle(now, kept);
        if !self.is_shut || waiting.payloads == 0 {
            self.stalled = None;
            return self.is_shut;
        }
        let before = self.stalled;
        let has_moved = before.is_none_or(|(before, _)| before != waiting);
        if has_moved {
            self.stalled = Some((waiting, now));
        }
        has_moved || is_granted
    }

    /// The connection is over: others need not wait for its responses.
    pub(super) fn end(&mut self) {
        self.stalled = None;
        self.share.end();
    }

    /// When it is to be looked at again.
    pub(super) fn due(&self) -> Option<Instant> {
        let times = [self.stalled_until(), self.share.due()];
        times.into_iter().flatten().min()
    }

    fn stalled_until(&self) -> Option<Instant> {
        let (_, since) = self.stalled?;
        since.checked_add(MOST_STALLED)
    }

    /// The fault of a peer that takes its responses too slowly.
    pub(super) fn fault(&self, now: Instant, waiting: Waiting) -> Option<Kind> {
        let is_stalled = self.stalled_until().is_some_and(|due| due <= now);
        let (taken, seconds) = match self.share.slow() {
            Some(slow) => (slow.taken, slow.seconds),
            None if is_stalled => (0, MOST_STALLED.as_secs()),
            None => return None,
        };
        let bytes = waiting.bytes;
        Some(Kind::NoCredit {
            bytes,
            taken,
            seconds,
        })
    }
}

/// How long responses may wait without a byte of them leaving, while requests wait for them. Two ends that both ask
/// and answer can, in theory, wait for each other: that has an end too.
const MOST_STALLED: Duration = Duration::from_secs(30);

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::disallowed_methods)] // a test needs some instant
mod tests {
    use ackline_core::{Connection as _, ErrorKind as _, SendQueue};
    use ackline_link::{AnswerShare, Budget};
    use bytes::{Buf as _, Bytes, BytesMut};

    use super::super::{Arrival, Memory, Session};
    use super::*;
    use crate::{self as machine, Config, CreditPolicy, Event, LinkOptions};

    const RESPONSE: usize = 32 << 10;

    /// One end that asks by hand, and one that answers.
    struct Pair {
        now: Instant,
        asking: machine::Connection,
        answering: Session<AnswerShare>,
        answers: usize,
        response: usize,
    }

    impl Pair {
        fn new(budget: &Budget) -> Self {
            let now = Instant::now();
            let config = Config {
                credit: CreditPolicy::Manual,
                ..Config::default()
            };
            let options = LinkOptions {
                machine: Config {
                    ping_after: None,
                    pong_timeout: None,
                    chunk_receive_timeout: None,
                    ..LinkOptions::default().machine
                },
                ..LinkOptions::default()
            };
            Self {
                now,
                asking: machine::Connection::new(now, config),
                answering: Session::new(now, &options, memory(budget), budget.answers().share()),
                answers: 0,
                response: RESPONSE,
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

        /// Takes the next request or opening that is handed out.
        fn arrival(&mut self) -> Option<Arrival> {
            self.answering.accept().unwrap_or_default()
        }

        /// Answers all that is handed out; how many.
        fn answer(&mut self) -> usize {
            let mut count = 0;
            while let Some(request) = self.arrival() {
                self.respond(&request);
                self.pass();
                count += 1;
            }
            count
        }

        fn respond(&mut self, request: &Arrival) {
            let response = Bytes::from(vec![7; self.response]);
            let responded = self
                .answering
                .answer(request.serial, |it, id| it.respond(id, response));
            responded.unwrap();
        }

        fn grant(&mut self, bytes: usize) {
            let top = machine::Target::Top;
            self.asking.grant_credit(top, wide(bytes)).unwrap();
            self.pass();
        }
    }

    fn memory(budget: &Budget) -> Memory {
        Memory {
            limit: budget.limit(),
            largest: budget.largest(),
            quota: budget.quota(),
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
        let opened = pair.arrival().unwrap();
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

    /// Peers that ask for responses of a quarter of the room and give no credit for them.
    fn hogs(budget: &Budget, count: usize) -> Vec<Pair> {
        let asks = |_| {
            let mut pair = Pair::new(budget);
            pair.response = 256 << 10;
            // So that a response can begin.
            pair.grant(1);
            pair.ask(2);
            pair.pass();
            pair
        };
        (0..count).map(asks).collect()
    }

    #[test]
    fn large_responses_of_all_connections_exceed_the_room_by_one() {
        let budget = budget();
        // The size of the first one is learnt.
        let mut first = hogs(&budget, 1);
        first[0].answer();
        drop(first);
        let mut pairs = hogs(&budget, 100);
        let mut kept = 0;
        // Requests that are handed out at once are bounded as well.
        let requests: Vec<_> = pairs.iter_mut().map(Pair::arrival).collect();
        for (pair, request) in pairs.iter_mut().zip(requests) {
            if let Some(request) = request {
                pair.respond(&request);
                kept += pair.response;
            }
        }
        for pair in &mut pairs {
            kept += pair.answer() * pair.response;
        }
        let most = (1 << 20) + (256 << 10) + 5 * (64 << 10);
        assert!((1 << 19..=most).contains(&kept), "{kept} of {most}");
    }

    #[test]
    fn those_who_wait_for_room_are_answered_when_others_leave_in_turns() {
        let budget = budget();
        let mut pairs = hogs(&budget, 20);
        let mut answered = [0; 20];
        for _ in 0..20 {
            for (at, pair) in pairs.iter_mut().enumerate() {
                answered[at] += pair.answer();
                pair.grant(1 << 20);
                answered[at] += pair.answer();
            }
        }
        assert_eq!(answered, [2; 20]);
        assert_eq!(budget.answers().used(), 0);
    }

    #[test]
    fn a_peer_that_drips_while_others_wait_is_ended_and_one_that_takes_its_response_is_not() {
        let budget = budget();
        let mut pairs = hogs(&budget, 20);
        for pair in &mut pairs {
            pair.answer();
        }
        let mut ended = Vec::new();
        for _ in 0..8 {
            for (at, pair) in pairs.iter_mut().enumerate() {
                if ended.contains(&at) {
                    continue;
                }
                pair.now += Duration::from_secs(1);
                pair.grant(if at == 0 { 8_000 } else { 1 });
                if let Err(error) = pair.answering.handle_timeout(pair.now) {
                    assert_eq!(error.kind.code(), "bpmux.no_credit");
                    ended.push(at);
                    continue;
                }
                pair.pass();
                pair.answer();
            }
        }
        assert!(ended.len() > 1 && !ended.contains(&0), "{ended:?}");
    }

    #[test]
    fn a_peer_that_drips_is_left_alone_while_nobody_waits() {
        let budget = budget();
        let mut pair = hogs(&budget, 1).remove(0);
        assert_eq!(pair.answer(), 2);
        for _ in 0..100 {
            pair.now += Duration::from_secs(10);
            pair.grant(1);
            pair.answering.handle_timeout(pair.now).unwrap();
        }
    }

    #[test]
    fn a_handler_that_takes_long_keeps_nobody_waiting() {
        let budget = budget();
        let mut pairs = hogs(&budget, 40);
        let mut at_work = 0;
        for _ in 0..40 {
            for pair in &mut pairs {
                pair.now += Duration::from_secs(1);
                pair.pass();
                // Nobody answers.
                at_work += usize::from(pair.arrival().is_some());
            }
        }
        assert_eq!(at_work, 80);
    }

    #[test]
    fn an_accepted_request_counts_until_it_is_answered_or_let_go() {
        let budget = budget();
        let (mut answers, now) = (Answers::new(budget.answers().share()), Instant::now());
        let none = Waiting::default();
        assert!(answers.may_accept(now, 900 << 10, true), "the only one");
        answers.accept(900 << 10);
        assert!(answers.look(now, none, 0) || !answers.is_shut);
        assert!(!answers.may_accept(now, 1, true));
        assert!(answers.look(now, none, 0), "it is looked at again");
        answers.answered(900 << 10, 0);
        answers.look(now, none, 0);
        assert!(answers.may_accept(now, 1, true));
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
