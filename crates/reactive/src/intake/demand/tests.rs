use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;

const LARGEST: u64 = 16 << 20;

/// A spool of a model: elements take their bytes and the overhead of a group each.
#[derive(Debug, Clone)]
struct Spool {
    budget: u64,
    used: Arc<AtomicU64>,
}

impl Spool {
    fn new(budget: u64) -> Self {
        Self {
            budget,
            used: Arc::default(),
        }
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn room(&self) -> Room {
        let spool = self.clone();
        Room::new(self.budget, move || {
            spool.budget.saturating_sub(spool.used())
        })
    }

    fn keep(&self, count: u64, bytes: u64) {
        let bytes = count * (bytes + SPOOL_OVERHEAD);
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn drain(&self) {
        self.used.store(0, Ordering::Relaxed);
    }
}

fn demand(most: u64, room: &Room) -> Demand {
    let bounds = Bounds {
        most,
        memory: 64 << 20,
        largest: LARGEST,
    };
    Demand::new(bounds, room)
}

/// Elements of one size come and become durable, as many as are requested, until no more are; returns their number.
fn run(demand: &mut Demand, spool: &Spool, size: u64, mut requested: u64, most: u64) -> u64 {
    let mut all = 0;
    while requested > 0 && all < most {
        all += requested;
        demand.came(requested, size);
        spool.keep(requested, size);
        demand.landed(requested);
        requested = demand.take();
    }
    all
}

#[test]
fn elements_of_an_unknown_size_count_as_the_largest_until_one_has_come() {
    let mut one = demand(65_536, &Room::unlimited());
    assert_eq!(one.take(), 4, "64 MiB of memory hold four of 16 MiB");
    one.came(1, 8);
    assert_eq!(one.take(), 0);
    one.came(3, 8);
    assert_eq!(one.take(), 4, "as many again as were seen");
    let mut requested = 8;
    while requested < 65_536 {
        one.came(one.coming, 8);
        one.landed(one.landing);
        requested = one.take();
    }
    assert_eq!(requested, 65_536);
}

#[test]
fn an_announced_size_is_trusted_at_once() {
    let spool = Spool::new(4 << 30);
    let mut one = demand(65_536, &spool.room());
    let first = one.take();
    assert_eq!(first, 4);
    one.announced(8);
    assert_eq!(first + one.take(), 65_536);
}

#[test]
fn a_full_spool_is_asked_for_nothing_and_a_drained_one_goes_on() {
    for (budget, size) in [(2 << 20, 16 << 10), (64 << 10, 100), (64 << 20, 1 << 20)] {
        let spool = Spool::new(budget);
        let mut one = demand(65_536, &spool.room());
        for _ in 0..3 {
            let first = one.take();
            assert!(first > 0, "{budget}");
            let all = run(&mut one, &spool, size, first, u64::MAX);
            assert!(spool.used() <= budget, "{} of {budget}", spool.used());
            assert!(all * (size + SPOOL_OVERHEAD) * 2 > budget, "{all}");
            assert!(one.is_waiting());
            assert_eq!(one.take(), 0);
            spool.drain();
        }
    }
}

#[test]
fn an_element_that_is_larger_than_the_spool_is_asked_for_alone() {
    let spool = Spool::new(1 << 20);
    let mut one = demand(100, &spool.room());
    assert_eq!(one.take(), 1);
    one.came(1, 8 << 20);
    spool.keep(1, 8 << 20);
    one.landed(1);
    assert_eq!(one.take(), 0, "the spool is full");
    spool.drain();
    assert_eq!(one.take(), 1);
}

#[test]
fn larger_elements_lower_the_demand_and_are_forgotten() {
    let mut one = demand(1_000, &Room::unlimited());
    one.announced(0);
    let _ = one.take();
    one.came(4, 1 << 20);
    one.landed(4);
    let spool = Spool::new(u64::MAX);
    run(&mut one, &spool, 1 << 20, 4, 2 * TURN);
    assert!(one.outstanding() <= 64, "{}", one.outstanding());
    let left = one.outstanding();
    run(&mut one, &spool, 8, left, 3 * TURN);
    assert!(one.outstanding() > 500, "{}", one.outstanding());
}

#[test]
fn a_stream_that_has_ended_gives_its_room_back() {
    let spool = Spool::new(1 << 20);
    let room = spool.room();
    let (mut one, mut other) = (demand(1_000, &room), demand(1_000, &room));
    one.announced(12 << 10);
    let first = one.take();
    assert_eq!(first, 32, "half of the room");
    other.announced(12 << 10);
    assert_eq!(other.take(), 16, "half of the rest");
    one.came(2, 12 << 10);
    one.ended();
    assert_eq!(one.promised.bytes(), 2 * (16 << 10), "those that have come");
    drop(one);
    assert_eq!(other.promised.left(), (64 - 16) * (16 << 10));
}

#[derive(Debug, Clone)]
enum Op {
    /// Up to so many elements of this size come.
    Come(u64, u64),
    Land(u64),
    Ask,
    Drain,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1_u64..50, 0_usize..5).prop_map(|(count, size)| Op::Come(count, SIZES[size])),
        4 => (1_u64..50).prop_map(Op::Land),
        2 => Just(Op::Ask),
        1 => Just(Op::Drain),
    ]
}

const SIZES: [u64; 5] = [0, 8, 1_000, 10_000, 60_000];

proptest! {
    /// At each request the outstanding elements fit, at the largest size that any of them has: unless it is a single one.
    #[test]
    fn what_is_requested_fits_into_the_spool_and_the_memory(
        most in 1_u64..200,
        budget in (64_u64 << 10)..(8 << 20),
        announced in prop_oneof![Just(0_u64), Just(8), Just(10_000)],
        ops in proptest::collection::vec(op(), 1..200),
    ) {
        let spool = Spool::new(budget);
        let mut one = demand(most, &spool.room());
        one.announced(announced);
        let mut sizes = std::collections::VecDeque::new();
        for op in ops {
            match op {
                Op::Come(count, size) => {
                    let size = if announced > 0 { announced } else { size };
                    let count = count.min(one.coming);
                    one.came(count, size);
                    sizes.extend((0..count).map(|_| size));
                }
                Op::Land(count) => {
                    let count = count.min(one.landing);
                    for size in sizes.drain(..usize::try_from(count).unwrap_or(0)) {
                        spool.keep(1, size);
                    }
                    one.landed(count);
                }
                Op::Drain => spool.drain(),
                Op::Ask => {}
            }
            let requested = one.take();
            let outstanding = one.outstanding();
            prop_assert!(outstanding <= most);
            if requested > 0 && outstanding > 1 {
                let bytes = outstanding * one.cost();
                prop_assert!(spool.used() + bytes <= budget, "{outstanding} and {}", spool.used());
                prop_assert!(outstanding * one.size() <= 64 << 20);
            }
        }
        // It always goes on when the spool is empty.
        one.came(one.coming, 8);
        one.landed(one.landing);
        spool.drain();
        prop_assert!(one.take() > 0 || one.outstanding() > 0);
    }
}
