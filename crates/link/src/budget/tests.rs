//! A budget under a few links.

use bytes::BytesMut;

use super::*;
use crate::buffer_pool::READ_BYTES;

const FREE: usize = FREE_BYTES;

fn sender() -> Arc<str> {
    Arc::from("one")
}

/// A budget of 400 bytes above the free parts: 300 shared, a reserve of 100.
fn accounts<const N: usize>() -> (Budget, [Account; N]) {
    let budget = Budget::new(400);
    let accounts = std::array::from_fn(|_| budget.clone().open(&sender(), Arc::default()));
    (budget, accounts)
}

#[test]
fn the_needed_budget_admits_its_bytes_and_a_smaller_one_does_not() {
    for bytes in [40_000, 1 << 20, 100 << 20] {
        let needed = Budget::needed(bytes);
        assert_eq!(Budget::new(needed).largest(), bytes);
        assert!(Budget::new(needed - 1).largest() < bytes);
    }
}

#[test]
fn buffers_are_kept_for_use_again_only_where_the_budget_has_room_for_them() {
    static POOL: BufferPool = BufferPool::new();
    let budget = Budget::with_parts(to_u64(MOST_BYTES) + 100, Fairness::default(), &POOL, now);
    let one = budget.open(&sender(), Arc::default());
    let pool = one.pool();
    let keeps = |held| {
        pool.give(BytesMut::with_capacity(READ_BYTES));
        one.settle(FREE + held);
        pool.take().is_some()
    };
    assert!(keeps(100));
    assert!(!keeps(101));
    assert!(keeps(1));
}

#[tokio::test]
async fn a_budget_tells_that_ended_links_have_returned_much() {
    let is_told = || async {
        let told = Budget::much_returned();
        let waited = tokio::time::timeout(std::time::Duration::from_millis(1), told);
        waited.await.is_ok()
    };
    let mib = |count: usize| count << 20;
    let budget = Budget::new(64 << 20);
    let open = || budget.clone().open(&sender(), Arc::default());
    let [one, two, three, other] = [open(), open(), open(), open()];
    one.settle(mib(20));
    one.settle(0);
    assert!(!is_told().await, "it goes on, and needs as much again");
    one.settle(mib(9));
    two.settle(mib(9));
    three.settle(mib(20));
    drop(one);
    assert!(!is_told().await, "9 MiB are little");
    // The bytes are granted at once.
    assert!(other.ask(0, mib(10), false));
    drop(two);
    assert!(is_told().await);
    three.depart(mib(20));
    assert!(!is_told().await, "it still holds them");
    three.settle(mib(1));
    assert!(is_told().await);
    drop(three);
    assert!(!is_told().await);
}

#[test]
fn the_free_part_is_not_charged() {
    let (budget, [one]) = accounts();
    assert!(one.ask(0, FREE, false));
    assert_eq!(budget.used(), 0);
    assert!(one.ask(0, FREE + 10, false));
    assert_eq!((budget.used(), one.charge()), (10, 10));
    drop(one);
    assert_eq!(budget.used(), 0);
}

#[test]
fn links_are_served_in_order_and_none_overtakes() {
    let (budget, [full, reserve, first, second]) = accounts();
    assert!(full.ask(FREE + 300, FREE + 300, false));
    assert!(reserve.ask(FREE, FREE + 100, false));
    assert!(!first.ask(FREE, FREE + 50, false));
    assert!(!second.ask(FREE, FREE + 1, false));
    assert_eq!(budget.waiting(), 2);
    full.settle(FREE + 299);
    assert!(
        !second.ask(FREE, FREE + 1, false),
        "one byte is free, but the first waits for 50"
    );
    assert!(!second.try_ask(FREE, FREE + 1));
    full.settle(FREE + 249);
    assert_eq!((first.charge(), second.charge()), (50, 1));
    assert_eq!(*budget.watch().borrow(), 0);
}

#[test]
fn one_at_a_time_may_use_the_reserve_until_its_charge_is_back_to_0() {
    let (_budget, [full, one, two]) = accounts();
    assert!(full.ask(FREE + 300, FREE + 300, false));
    assert!(one.ask(FREE, FREE + 60, false));
    assert!(
        !two.ask(FREE, FREE + 20, false),
        "the reserve is one's although 40 bytes are left of it"
    );
    assert!(one.ask(FREE + 60, FREE + 100, false));
    one.settle(FREE + 1);
    assert_eq!(two.charge(), 0);
    one.settle(FREE);
    assert_eq!(two.charge(), 20);
}

#[test]
fn a_link_with_a_complete_frame_waits_behind_the_others() {
    let (_budget, [full, one, two]) = accounts();
    assert!(full.ask(FREE + 300, FREE + 300, false));
    assert!(one.ask(FREE, FREE + 60, false));
    assert!(one.ask(FREE + 60, FREE + 60, true), "nobody else waits");
    assert!(!two.ask(FREE, FREE + 20, false));
    assert!(
        !one.ask(FREE + 60, FREE + 60, true),
        "no more, not even within its charge, before it has settled"
    );
    assert!(!one.ask(FREE, FREE + 60, false), "its turn is over");
    assert_eq!((one.charge(), two.charge()), (0, 20));
    two.settle(0);
    assert_eq!(one.charge(), 60);
}

#[test]
fn a_link_that_waits_for_its_own_settling_delays_no_other() {
    let (_budget, [full, reserve, one, first, second]) = accounts();
    assert!(one.ask(FREE + 60, FREE + 60, false));
    assert!(full.ask(FREE + 240, FREE + 240, false));
    assert!(reserve.ask(FREE, FREE + 100, false));
    assert!(!first.ask(FREE, FREE + 20, false));
    assert!(!one.ask(FREE + 60, FREE + 70, true));
    assert!(!second.ask(FREE, FREE + 10, false));
    drop(first);
    full.settle(FREE + 230);
    assert_eq!((one.charge(), second.charge()), (60, 10));
    second.settle(0);
    assert_eq!(one.charge(), 70, "alone it need not wait");
}

#[test]
fn the_holder_of_the_reserve_can_complete_a_frame_that_the_reserve_admits() {
    let (budget, [full, one, two]) = accounts();
    assert!(one.ask(FREE + 50, FREE + 50, false));
    assert!(full.ask(FREE + 250, FREE + 250, false));
    assert!(
        one.ask(FREE + 50, FREE + 80, false),
        "its 50 bytes move to the reserve"
    );
    assert!(
        two.ask(FREE + 50, FREE + 50, false),
        "the shared part that it left"
    );
    assert!(one.ask(FREE + 80, FREE + 100, false));
    assert!(!one.ask(FREE + 100, FREE + 101, false));
    assert_eq!(budget.used(), budget.limit());
    two.settle(FREE + 49);
    assert_eq!(one.charge(), 101);
}

#[test]
fn undecided_bytes_block_no_link_and_are_refused_above_their_part() {
    const KIB: u64 = 1024;
    // 3,072 KiB shared, of which 2,048 may be undecided, and a reserve of 1,024.
    let budget = Budget::new(4_096 * KIB);
    let [one, two] = std::array::from_fn(|_| budget.clone().open(&sender(), Arc::default()));
    let [mut first, mut second] = std::array::from_fn(|_| budget.undecided());
    assert_eq!(budget.most_undecided(), 2_048 * KIB);
    assert_eq!(first.set(1_025 * KIB), Err(1_024 * KIB));
    first.set(1_024 * KIB).unwrap();
    // Half of the rest.
    assert_eq!(second.set(600 * KIB), Err(512 * KIB));
    second.set(512 * KIB).unwrap();
    assert_eq!(budget.used(), 1_536 * KIB);
    let kib = |count: usize| FREE + count * 1_024;
    // The rest of the shared part, and not a byte more but the reserve.
    assert!(one.ask(kib(1_536), kib(1_536), false));
    assert!(two.ask(FREE, kib(1_024), false), "the reserve");
    assert!(!one.ask(kib(1_536), kib(1_537), false));
    // The decision frees memory at once.
    first.set(0).unwrap();
    assert_eq!(budget.waiting(), 0);
    assert_eq!(one.charge(), 1_537 * KIB);
    drop((first, second, one, two));
    assert_eq!(budget.used(), 0);
}

/// Whether a driver with this waker would run once more.
fn is_woken(wake: &Notify) -> bool {
    let mut woken = std::pin::pin!(wake.notified());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    woken.as_mut().poll(&mut context).is_ready()
}

/// A turn that is granted its request, and cannot use it, asks again the next time: it must not
/// be woken by its own request, or it turns for ever.
#[test]
fn a_link_that_asks_is_answered_and_only_others_are_woken() {
    let budget = Budget::new(400);
    let [own, other] = std::array::from_fn(|_| Arc::new(Notify::new()));
    let [one, two] = [&own, &other].map(|wake| budget.clone().open(&sender(), Arc::clone(wake)));
    for _ in 0..3 {
        assert!(one.ask(FREE, FREE + 300, false));
        one.settle(FREE);
        assert!(!is_woken(&own));
    }
    assert!(one.ask(FREE + 300, FREE + 300, false));
    assert!(two.ask(FREE, FREE + 100, false), "the reserve");
    assert!(!two.ask(FREE + 100, FREE + 200, false));
    assert!(!is_woken(&other));
    one.settle(FREE);
    assert!(is_woken(&other), "it waits for what others give back");
    assert!(!is_woken(&own));
}

#[test]
fn undecided_bytes_are_charged_in_steps_that_never_fall_short() {
    let budget = Budget::new(1 << 20);
    let mut own = budget.undecided();
    for (bytes, charged) in [
        (1, 4_096),
        (4_096, 4_096),
        (4_097, 8_192),
        (1, 4_096),
        (0, 0),
    ] {
        own.set(bytes).unwrap();
        assert_eq!(budget.used(), charged);
    }
}

#[test]
fn a_link_that_ends_and_returns_again_and_again_holds_no_more_than_it_was_granted() {
    let budget = Budget::new(1 << 20);
    let one = budget.clone().open(&sender(), Arc::default());
    let mut held = 0;
    for _ in 0..40 {
        let planned = held + FREE;
        if !one.ask(held, planned, held > 0) {
            break;
        }
        held = planned;
        one.depart(held);
        one.return_to();
        assert_eq!(one.charge(), to_u64(held - FREE));
    }
    assert!(to_u64(held) <= budget.limit() + to_u64(FREE), "{held}");
}

#[test]
fn a_link_that_stops_waiting_leaves_the_queue() {
    let (budget, [full, reserve, first, second]) = accounts();
    assert!(full.ask(FREE + 300, FREE + 300, false));
    assert!(reserve.ask(FREE, FREE + 100, false));
    assert!(!first.ask(FREE, FREE + 50, false));
    assert!(!second.ask(FREE, FREE + 10, false));
    full.settle(FREE + 290);
    drop(first);
    assert_eq!((budget.waiting(), second.charge()), (0, 10));
}
