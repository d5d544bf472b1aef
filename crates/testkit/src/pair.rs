//! Two connections, the bytes between them and a clock that only a test moves.
//!
//! Drives both as the real driver would (`receive` until it needs something, timers, `poll_transmit`,
//! the end of a direction after `Draining` or `Closed`), but takes no events: they stay in the
//! connections until the test takes them.

use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, Need, ProtocolError, SendQueue};
use bytes::{Buf, BytesMut};

use crate::netem::{Conditions, Delivery, Netem};

/// Two connections that talk to each other in virtual time.
pub struct Pair<A: Connection, B: Connection> {
    /// One side.
    pub left: Side<A>,
    /// The other side.
    pub right: Side<B>,
    start: Instant,
    elapsed: Duration,
}

/// One connection of a pair and its outgoing direction.
pub struct Side<C: Connection> {
    /// The connection; call its verbs, then [`Pair::settle`].
    pub connection: C,
    /// The network of the bytes that it sends.
    pub network: Netem,
    input: BytesMut,
    need: Need,
    reading: bool,
    end: PeerEnd,
    error: Option<ProtocolError<C::Kind>>,
}

/// The state of the peer's direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerEnd {
    /// It is open.
    Open,
    /// It has ended; the connection is told when its input is taken.
    Ended,
    /// It has ended and the connection knows.
    Told,
    /// The transport broke.
    Cut,
}

impl<A: Connection, B: Connection> Pair<A, B> {
    /// A pair on a perfect network.
    pub fn new(left: A, right: B) -> Self {
        Self::on(left, right, Conditions::default(), Conditions::default())
    }

    /// A pair whose directions, left to right and right to left, have these conditions.
    pub fn on(left: A, right: B, to_right: Conditions, to_left: Conditions) -> Self {
        Self {
            left: Side::new(left, to_right),
            right: Side::new(right, to_left),
            start: Instant::now(),
            elapsed: Duration::ZERO,
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.start + self.elapsed
    }

    /// Virtual time since the start.
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The latency of both directions from now on.
    pub fn set_latency(&mut self, latency: Duration) {
        self.left.network.set_latency(latency);
        self.right.network.set_latency(latency);
    }

    /// Does everything that is due now, at both sides, until nothing moves.
    ///
    /// # Panics
    /// The two never become idle: a timer that stays due, or two that answer each other for ever.
    pub fn settle(&mut self) {
        let now = self.now();
        for _ in 0..MAX_ROUNDS {
            let left = self.left.turn(now, &mut self.right.network);
            let right = self.right.turn(now, &mut self.left.network);
            if !left && !right {
                return;
            }
        }
        unreachable!("no rest after {MAX_ROUNDS} rounds at {:?}", self.elapsed);
    }

    /// Lets `duration` pass: every timer fires and every byte arrives at its own time.
    ///
    /// # Panics
    /// As [`Pair::settle`].
    pub fn advance(&mut self, duration: Duration) {
        let target = self.elapsed + duration;
        self.settle();
        while let Some(next) = self.next_due() {
            let next = next.saturating_duration_since(self.start);
            if next > target {
                break;
            }
            self.elapsed = next.max(self.elapsed);
            self.settle();
        }
        self.elapsed = target;
    }

    /// When something happens next without the test.
    pub fn next_due(&self) -> Option<Instant> {
        [self.left.next_due(), self.right.next_due()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// More than any test needs; a pair that needs more never ends.
const MAX_ROUNDS: usize = 1_000_000;

impl<C: Connection> Side<C> {
    fn new(connection: C, conditions: Conditions) -> Self {
        Self {
            connection,
            network: Netem::new(conditions),
            input: BytesMut::new(),
            need: Need::Input { at_least: 1 },
            reading: true,
            end: PeerEnd::Open,
            error: None,
        }
    }

    /// The peer's violation that ended this side, if any.
    pub const fn error(&self) -> Option<&ProtocolError<C::Kind>> {
        self.error.as_ref()
    }

    /// The state of the peer's direction.
    pub const fn peer_end(&self) -> PeerEnd {
        self.end
    }

    /// Bytes that arrived and were not taken.
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    /// All events that are ready.
    pub fn events(&mut self) -> Vec<C::Event> {
        std::iter::from_fn(|| self.connection.poll_event()).collect()
    }

    fn next_due(&self) -> Option<Instant> {
        let timer = self.connection.poll_timeout().filter(|_| self.is_running());
        [timer, self.network.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn is_running(&self) -> bool {
        let is_open = self.connection.lifecycle() == Lifecycle::Open;
        is_open && self.error.is_none() && self.end != PeerEnd::Cut
    }

    /// Runs one round. Returns whether anything moved.
    fn turn(&mut self, now: Instant, incoming: &mut Netem) -> bool {
        let mut moved = self.arrive(now, incoming);
        if self.is_running() {
            match self.run(now, moved) {
                Ok(ran) => moved |= ran,
                Err(error) => {
                    self.error = Some(error);
                    moved = true;
                }
            }
        }
        if self.end == PeerEnd::Cut {
            return moved;
        }
        moved |= self.transmit(now);
        if !self.is_running() {
            self.network.end(now);
        }
        moved
    }

    fn arrive(&mut self, now: Instant, incoming: &mut Netem) -> bool {
        // A blocked connection leaves bytes in the network, as a driver that stopped reading does.
        if self.is_running() && self.need == Need::Room {
            return false;
        }
        // One piece at a time: each chunk is a read of its own, and a cut follows the bytes before
        // it.
        let Some(delivery) = incoming.poll(now) else {
            return false;
        };
        match delivery {
            Delivery::Bytes(bytes) if self.is_running() => self.input.extend_from_slice(&bytes),
            // A draining driver drops received bytes.
            Delivery::Bytes(_) => {}
            Delivery::End => self.end = PeerEnd::Ended,
            Delivery::Cut if self.end == PeerEnd::Cut => {}
            Delivery::Cut => {
                self.end = PeerEnd::Cut;
                self.network.cut(now);
            }
        }
        true
    }

    fn run(&mut self, now: Instant, arrived: bool) -> Result<bool, ProtocolError<C::Kind>> {
        let before = (self.input.len(), self.need);
        if arrived || !matches!(self.need, Need::Input { .. }) {
            self.need = self.connection.receive(now, &mut self.input)?;
        }
        let on = self.need != Need::Room;
        if self.reading != on {
            self.reading = on;
            self.connection.reading(now, on);
        }
        let mut moved = before != (self.input.len(), self.need) || self.need == Need::Again;
        if self.end == PeerEnd::Ended && matches!(self.need, Need::Input { .. }) {
            self.end = PeerEnd::Told;
            self.connection.receive_eof(now)?;
            moved = true;
        }
        if self.connection.poll_timeout().is_some_and(|due| due <= now) {
            self.connection.handle_timeout(now)?;
            moved = true;
        }
        Ok(moved)
    }

    fn transmit(&mut self, now: Instant) -> bool {
        let mut moved = false;
        loop {
            let mut out = SendQueue::new();
            self.connection.poll_transmit(now, &mut out);
            if out.is_empty() {
                return moved;
            }
            moved = true;
            self.network.send(now, out.copy_to_bytes(out.remaining()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Bad;

    impl std::fmt::Display for Bad {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bad")
        }
    }

    impl std::error::Error for Bad {}

    impl ackline_core::ErrorKind for Bad {
        fn code(&self) -> &'static str {
            "toy.bad"
        }
    }

    /// Every byte is a frame: `p` asks, `a` answers, `!` is an error. Asks once a second when told to.
    struct Toy {
        out: Vec<u8>,
        events: VecDeque<u8>,
        room: usize,
        due: Option<Instant>,
        lifecycle: Lifecycle,
        reading: Vec<bool>,
    }

    impl Toy {
        fn new() -> Self {
            Self {
                out: Vec::new(),
                events: VecDeque::new(),
                room: 100,
                due: None,
                lifecycle: Lifecycle::Open,
                reading: Vec::new(),
            }
        }
    }

    impl Connection for Toy {
        type Event = u8;
        type Kind = Bad;

        fn receive(
            &mut self,
            _: Instant,
            input: &mut BytesMut,
        ) -> Result<Need, ProtocolError<Bad>> {
            while let Some(&byte) = input.first() {
                if self.events.len() >= self.room {
                    return Ok(Need::Room);
                }
                input.advance(1);
                self.events.push_back(byte);
                match byte {
                    b'p' => self.out.push(b'a'),
                    b'!' => {
                        self.out.push(b'g');
                        return Err(ProtocolError {
                            kind: Bad,
                            offset: 0,
                        });
                    }
                    _ => {}
                }
            }
            Ok(Need::Input { at_least: 1 })
        }

        fn receive_eof(&mut self, _: Instant) -> Result<(), ProtocolError<Bad>> {
            self.lifecycle = Lifecycle::Closed;
            Ok(())
        }

        fn poll_event(&mut self) -> Option<u8> {
            self.events.pop_front()
        }

        fn poll_transmit(&mut self, _: Instant, out: &mut SendQueue) {
            out.put_slice(&std::mem::take(&mut self.out));
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.due
        }

        fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError<Bad>> {
            self.due = Some(now + Duration::from_secs(1));
            self.out.push(b'p');
            Ok(())
        }

        fn reading(&mut self, _: Instant, on: bool) {
            self.reading.push(on);
        }

        fn lifecycle(&self) -> Lifecycle {
            self.lifecycle
        }
    }

    #[test]
    fn a_question_and_its_answer_take_a_round_trip() {
        let mut pair = Pair::new(Toy::new(), Toy::new());
        pair.set_latency(Duration::from_millis(40));
        pair.left.connection.out.push(b'p');
        pair.advance(Duration::from_millis(79));
        assert_eq!(pair.right.events(), b"p");
        assert_eq!(pair.left.events(), b"");
        pair.advance(Duration::from_millis(1));
        assert_eq!(pair.left.events(), b"a");
    }

    #[test]
    fn timers_fire_at_their_own_times() {
        let mut pair = Pair::new(Toy::new(), Toy::new());
        pair.left.connection.due = Some(pair.now() + Duration::from_secs(1));
        pair.advance(Duration::from_secs(60));
        assert_eq!(pair.right.events().len(), 60);
        assert_eq!(pair.left.events().len(), 60);
        assert_eq!(pair.elapsed().as_secs(), 60);
    }

    #[test]
    fn a_blocked_side_is_told_that_reading_stopped_and_continues_when_events_are_taken() {
        let mut pair = Pair::new(Toy::new(), Toy::new());
        pair.right.connection.room = 2;
        pair.left.connection.out.extend_from_slice(b"ppppp");
        pair.settle();
        assert_eq!(pair.right.events(), b"pp");
        assert_eq!(pair.right.connection.reading, [false]);
        pair.settle();
        assert_eq!(pair.right.events(), b"pp");
        pair.settle();
        assert_eq!(pair.right.events(), b"p");
        assert_eq!(pair.right.connection.reading, [false, true]);
        assert_eq!(pair.left.events(), b"aaaaa");
    }

    #[test]
    fn an_end_is_seen_by_both() {
        let mut pair = Pair::new(Toy::new(), Toy::new());
        pair.left.connection.out.push(b'p');
        pair.left.connection.lifecycle = Lifecycle::Draining;
        pair.settle();
        assert_eq!(pair.right.events(), b"p");
        assert_eq!(pair.right.connection.lifecycle, Lifecycle::Closed);
        assert_eq!(pair.left.peer_end(), PeerEnd::Ended);
    }

    #[test]
    fn after_an_error_the_goodbye_and_the_events_arrive() {
        let mut pair = Pair::new(Toy::new(), Toy::new());
        pair.left.connection.out.extend_from_slice(b"p!p");
        pair.settle();
        assert!(pair.right.error().is_some());
        assert_eq!(pair.right.events(), b"p!");
        assert_eq!(
            (pair.right.input(), &pair.left.events()[..]),
            (&b"p"[..], &b"ag"[..])
        );
        assert_eq!(pair.left.peer_end(), PeerEnd::Told);
    }

    #[test]
    fn a_cut_at_every_byte_delivers_exactly_the_bytes_before_it() {
        for cut in 0..=5 {
            let conditions = Conditions {
                max_chunk: Some(2),
                cut_after: Some(cut),
                ..Conditions::default()
            };
            let mut pair = Pair::on(Toy::new(), Toy::new(), conditions, Conditions::default());
            pair.left.connection.out.extend_from_slice(b"xxxxxxx");
            pair.settle();
            assert_eq!(
                pair.right.connection.events.len(),
                usize::try_from(cut).unwrap()
            );
            assert_eq!(pair.right.peer_end(), PeerEnd::Cut);
            assert_eq!(pair.left.peer_end(), PeerEnd::Cut);
        }
    }
}
