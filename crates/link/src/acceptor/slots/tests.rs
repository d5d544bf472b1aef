//! Slots of a few origins.

use super::*;

#[test]
fn slots_come_back_with_their_connections() {
    let slots = Arc::new(Slots::new(Limits::new(2, Some(1))));
    let mut first = slots.take_unclaimed().unwrap();
    let mut second = slots.take_unclaimed().unwrap();
    first.claim(address(1)).unwrap();
    let full = second.claim(address(1)).unwrap_err().hit().unwrap();
    assert_eq!(
        (full.value, full.limit, full.option),
        (2, 1, MAX_PER_ADDRESS)
    );
    second.claim(address(2)).unwrap();
    let full = slots.take(address(3)).unwrap_err().hit().unwrap();
    assert_eq!(
        (full.value, full.limit, full.option),
        (3, 2, MAX_CONNECTIONS)
    );
    drop(first);
    drop(second);
    assert_eq!(slots.open(), 0);
    assert!(slots.lock().of.is_empty());
}

#[test]
fn an_address_of_ipv6_counts_with_its_64() {
    let slots = Arc::new(Slots::new(Limits::new(100, Some(1))));
    let claim = |address: &str| {
        let mut slot = slots.take_unclaimed().unwrap();
        let origin = Origin::of(address.parse().unwrap());
        slot.claim(origin).map(|()| slot)
    };
    let _held = [
        "2001:db8:0:1::1",
        "2001:db8:0:2::1",
        "::ffff:10.0.0.1",
        "::ffff:10.0.0.2",
    ]
    .map(|address| claim(address).unwrap());
    for same in [
        "2001:db8:0:1::1",
        "2001:db8:0:1::2",
        "2001:db8:0:1:ffff:ffff:ffff:ffff",
        "2001:db8:0:2:8000::",
        "10.0.0.1",
    ] {
        assert!(claim(same).is_err(), "{same}");
    }
    for other in ["2001:db8:0:0:ffff::", "2001:db8:0:3::", "10.0.0.3"] {
        drop(claim(other).unwrap());
    }
}

fn address(last: u8) -> Origin {
    Origin::of(IpAddr::from([10, 0, 0, last]))
}

#[test]
fn one_address_leaves_an_eighth_to_others() {
    let slots = Arc::new(Slots::new(Limits::new(80, None)));
    let take = |last| {
        let slot = slots.take(address(last))?;
        slot.admitted(|| 0);
        Ok::<_, Reason>(slot)
    };
    let held: Vec<_> = (0..70).map(|_| take(1).unwrap()).collect();
    let full = take(1).unwrap_err().hit().unwrap();
    assert_eq!(
        (full.value, full.limit, full.option),
        (71, 70, MAX_PER_ADDRESS)
    );
    let others: Vec<_> = (0..10).map(|_| take(2).unwrap()).collect();
    assert_eq!(slots.open(), 80);
    assert!(!held.iter().chain(&others).any(Slot::is_displaced));
}

#[test]
fn of_the_greediest_address_the_least_useful_goes() {
    let slots = Arc::new(Slots::new(Limits::new(12, Some(0))));
    let take = |last, brought: Option<u64>| {
        let slot = slots.take(address(last))?;
        if let Some(brought) = brought {
            slot.admitted(move || brought);
        }
        Ok::<_, Reason>(slot)
    };
    let mut greedy: Vec<_> = (0..9).map(|at| take(1, Some(100 - at)).unwrap()).collect();
    let waiting = take(1, None).unwrap();
    let others: Vec<_> = (0..2).map(|_| take(2, Some(0)).unwrap()).collect();
    // Its own address has the most: no connection is displaced for it.
    assert!(take(1, None).is_err());
    let third = take(2, Some(0)).unwrap();
    assert!(waiting.is_displaced(), "it was not admitted yet");
    assert_eq!(slots.open(), 12);
    drop(waiting);
    assert_eq!(slots.open(), 12, "given back once");
    let fourth = take(3, Some(0)).unwrap();
    let gone: Vec<_> = greedy.iter().map(Slot::is_displaced).collect();
    assert_eq!(
        gone.iter().position(|gone| *gone),
        Some(8),
        "it brought least"
    );
    assert_eq!(gone.iter().filter(|gone| **gone).count(), 1);
    assert!(
        !others
            .iter()
            .chain([&third, &fourth])
            .any(Slot::is_displaced)
    );
    // Until all have as many.
    greedy.remove(8);
    let mut more = Vec::new();
    while let Ok(slot) = take(3, Some(0)) {
        more.push(slot);
    }
    let left = greedy.iter().filter(|slot| !slot.is_displaced()).count();
    assert_eq!((left, more.len() + 1), (5, 4));
    drop((greedy, others, third, fourth, more));
    assert_eq!(slots.open(), 0);
    let taken = slots.lock();
    assert!(taken.of.is_empty() && taken.by_count.is_empty());
}

#[test]
fn a_displaced_connection_does_not_count_as_greeting() {
    let slots = Arc::new(Slots::new(Limits::new(3, Some(0))));
    let held: Vec<_> = (0..3).map(|_| slots.take(address(1)).unwrap()).collect();
    let _other = slots.take(address(2)).unwrap();
    assert!(held.iter().all(|slot| slot.greets().is_ok()));
    let displaced = held.iter().filter(|slot| slot.is_displaced()).count();
    let greeting = slots.lock().of[&address(1)].greeting.len();
    assert_eq!((displaced, greeting), (1, 2));
}

#[test]
fn one_address_has_so_many_that_are_not_admitted() {
    let slots = Arc::new(Slots::new(Limits::new(2_000, None)));
    let take = |last| {
        let slot = slots.take(address(last))?;
        slot.greets().map(|()| slot)
    };
    let mut held: Vec<_> = (0..200).map(|_| take(1).unwrap()).collect();
    let full = take(1).unwrap_err().hit().unwrap();
    assert_eq!((full.value, full.limit), (201, 200));
    held.push(take(2).unwrap());
    held[7].admitted(|| 0);
    held.push(take(1).unwrap());
    assert!(take(1).is_err());
    assert_eq!(slots.open(), held.len(), "who is refused holds nothing");
}

#[test]
fn a_client_behind_a_proxy_displaces_like_any_other() {
    let slots = Arc::new(Slots::new(Limits::new(40, Some(0))));
    let claim = |last| {
        let mut slot = slots.take_unclaimed()?;
        slot.claim(address(last))?;
        slot.admitted(|| 0);
        Ok::<_, Reason>(slot)
    };
    let held: Vec<_> = (0..40).map(|at| claim(1 + at % 2).unwrap()).collect();
    let full = claim(1).unwrap_err().hit().unwrap();
    assert_eq!((full.value, full.limit), (41, 40));
    let third = claim(3).unwrap();
    assert!(!third.is_displaced());
    assert_eq!(held.iter().filter(|slot| slot.is_displaced()).count(), 1);
    assert_eq!(slots.open(), 40);
}

#[test]
fn unclaimed_connections_have_the_free_slots_and_few_more_and_keep_no_client_out() {
    let slots = Arc::new(Slots::new(Limits::new(100, Some(0))));
    let take = |last| slots.take(address(last)).unwrap();
    let mut held: Vec<_> = (0..90).map(|_| take(1)).collect();
    let mut unclaimed: Vec<_> = (0..74).map(|_| slots.take_unclaimed().unwrap()).collect();
    let full = slots.take_unclaimed().unwrap_err().hit().unwrap();
    assert_eq!(
        (full.value, full.limit, full.option),
        (165, 164, MAX_CONNECTIONS)
    );
    held.extend((0..10).map(|_| take(2)));
    assert!(!held.iter().any(Slot::is_displaced), "ten slots were free");
    assert!(slots.take_unclaimed().is_err(), "all slots are taken now");
    unclaimed.truncate(63);
    unclaimed.push(slots.take_unclaimed().unwrap());
    assert!(slots.take_unclaimed().is_err());
    let mut claimed = unclaimed.remove(0);
    claimed.claim(address(3)).unwrap();
    assert_eq!(held.iter().filter(|slot| slot.is_displaced()).count(), 1);
    assert_eq!(slots.open(), 163);
    drop((held, unclaimed, claimed));
    assert_eq!(slots.open(), 0);
}

#[test]
fn a_local_user_counts_like_an_address() {
    let slots = Arc::new(Slots::new(Limits::new(40, None)));
    let one: Vec<_> = (0..35)
        .map(|_| slots.take(Origin::User(Some(1000))).unwrap())
        .collect();
    let full = slots.take(Origin::User(Some(1000))).unwrap_err().hit();
    assert_eq!(full.unwrap().option, MAX_PER_ADDRESS);
    let origins = [Origin::User(Some(0)), Origin::User(None), address(1)];
    let others: Vec<_> = (0..5)
        .map(|at| slots.take(origins[at % 3]).unwrap())
        .collect();
    assert!(!one.iter().any(Slot::is_displaced));
    let more = slots.take(Origin::User(None)).unwrap();
    assert_eq!(one.iter().filter(|slot| slot.is_displaced()).count(), 1);
    assert!(!others.iter().chain([&more]).any(Slot::is_displaced));
}
