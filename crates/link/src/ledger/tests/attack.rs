//! Senders that fill the memory with windows and hold them for seconds, and a good sender.

use super::*;

/// A ledger as of `--memory 16MiB`.
const MEMORY: u64 = 16 << 20;

/// Bytes that a link asks for at a time.
const STEP: u64 = 16 << 10;

/// Milliseconds after which a link that holds a whole greedy window is ended.
const HOLDS: u64 = 6_000;

/// Steps of a greedy sender for each step of the good one.
const SLOWER: u64 = 8;

/// A link that asks for a window step by step.
struct Peer {
    id: u64,
    sender: Arc<str>,
    /// Bytes of its window.
    window: u64,
    held: u64,
    waits: bool,
    /// When its window began, in milliseconds.
    begun: u64,
    /// When its window was complete.
    complete: Option<u64>,
}

impl Peer {
    fn open(ledger: &mut Ledger, number: u64, window: u64, begun: u64) -> Self {
        Self {
            id: ledger.open(sender(number)),
            sender: sender(number),
            window,
            held: 0,
            waits: false,
            begun,
            complete: None,
        }
    }

    fn may_step(&self, now: u64) -> bool {
        !self.waits && self.complete.is_none() && self.begun <= now
    }

    /// Asks for one more step, if it may now. Returns whether it was granted.
    fn step(&mut self, ledger: &mut Ledger, now: u64) -> bool {
        if !self.may_step(now) {
            return false;
        }
        let planned = self.window.min(self.held + STEP);
        if !ledger.ask(self.id, self.held, planned, false) {
            self.waits = true;
            return false;
        }
        self.read(now);
        true
    }

    fn read(&mut self, now: u64) {
        self.waits = false;
        self.held = self.window.min(self.held + STEP);
        self.complete = (self.held == self.window).then_some(now);
    }
}

/// Peers of one ledger; the first one is good: its windows are settled at once.
struct Attack {
    ledger: Ledger,
    peers: Vec<Peer>,
    /// Milliseconds since the start.
    now: u64,
    /// Milliseconds that each window of the good sender has taken.
    took: Vec<u64>,
    turns: u64,
    /// Addresses that were used.
    addresses: u64,
}

impl Attack {
    fn new(greedy: u64, window: u64) -> Self {
        let mut ledger = Ledger::new(MEMORY, &Fairness::default());
        let mut peers = vec![Peer::open(&mut ledger, 0, 240 << 10, 1_000)];
        peers.extend((1..=greedy).map(|number| Peer::open(&mut ledger, number, window, 0)));
        Self {
            ledger,
            peers,
            now: 0,
            took: Vec::new(),
            turns: 0,
            addresses: greedy + 1,
        }
    }

    /// Runs for so many seconds. A greedy sender whose link is ended comes again, from a new
    /// address if `moves`.
    fn run(&mut self, seconds: u64, moves: bool) {
        let end = self.now + seconds * 1_000;
        while self.now < end {
            self.now += 10;
            self.ledger.at(Duration::from_millis(self.now));
            while self.turn() {}
            self.end_windows(moves);
        }
    }

    /// Lets each peer make one step, the good one more seldom. Returns whether a peer has moved or
    /// may.
    fn turn(&mut self) -> bool {
        let mut has_moved = false;
        self.turns += 1;
        for (at, peer) in self.peers.iter_mut().enumerate() {
            if at == 0 && !self.turns.is_multiple_of(SLOWER) {
                has_moved |= peer.may_step(self.now);
                continue;
            }
            has_moved |= peer.step(&mut self.ledger, self.now);
        }
        for id in self.ledger.take_woken() {
            let mut peers = self.peers.iter_mut();
            let peer = peers.find(|peer| peer.id == id).expect("it is open");
            peer.read(self.now);
            has_moved = true;
        }
        has_moved
    }

    fn end_windows(&mut self, moves: bool) {
        let good = &mut self.peers[0];
        if good.complete.take().is_some() {
            self.took.push(self.now - good.begun);
            (good.held, good.begun) = (0, self.now + 20);
            self.ledger.settle(good.id, 0);
        }
        for peer in &mut self.peers[1..] {
            if peer.complete.is_none_or(|at| at + HOLDS > self.now) {
                continue;
            }
            self.ledger.close(peer.id);
            if moves {
                peer.sender = sender(self.addresses);
                self.addresses += 1;
            }
            peer.id = self.ledger.open(Arc::clone(&peer.sender));
            (peer.held, peer.complete, peer.begun) = (0, None, self.now + 100);
        }
    }
}

/// The longest wait of the good sender in 45 s, in milliseconds.
fn longest_wait(greedy: u64, window: u64, moves: bool) -> u64 {
    let mut attack = Attack::new(greedy, window);
    attack.run(45, moves);
    let now = attack.now.saturating_sub(attack.peers[0].begun);
    attack.took.into_iter().fold(now, u64::max)
}

#[test]
fn a_good_sender_waits_for_one_set_of_greedy_senders() {
    for (greedy, window) in [(4, 4 << 20), (8, 2 << 20), (8, 4 << 20), (16, 4 << 20)] {
        for moves in [false, true] {
            let took = longest_wait(greedy, window, moves);
            assert!(took <= HOLDS + 20, "{took} ms, {greedy} of {window}");
        }
    }
}

/// The time of the good sender's first window, in milliseconds, behind five greedy senders and so many more. Those come
/// half a second before it, or at the start too if they are `early`.
fn first_wait(more: u64, early: bool) -> u64 {
    let mut attack = Attack::new(5, 4 << 20);
    let begun = if early { 0 } else { 500 };
    for number in 6..6 + more {
        let peer = Peer::open(&mut attack.ledger, number, 4 << 20, begun);
        attack.peers.push(peer);
    }
    attack.run(45, false);
    attack.took[0]
}

/// The ledger cannot tell a greedy sender that has held nothing from a good one: the order is that of their coming.
#[test]
fn a_new_sender_waits_for_each_that_came_before_it_and_has_held_nothing() {
    for more in 0..4 {
        let took = first_wait(more, true);
        assert!(took <= HOLDS, "{took} ms, all {more} hold memory");
        let took = first_wait(more, false);
        let sets = took.div_ceil(HOLDS);
        assert_eq!(sets, more + 1, "{took} ms, {more} hold nothing");
    }
}
