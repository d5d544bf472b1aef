use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

const PLENTY: Room = Room {
    messages: 1_000,
    bytes: usize::MAX,
};

fn message(group: u8) -> Arc<Routed> {
    let properties = format!("group:N{group};");
    Arc::new(Routed::new("queue/jobs", &properties, Bytes::new(), None).unwrap())
}

fn filter(group: u8) -> Arc<Filter> {
    let text = format!("group=N{group}");
    Arc::new(Filter::read(text.as_bytes()).unwrap())
}

fn queue(messages: u64) -> Queue<u8, u64> {
    let mut queue = Queue::new(100);
    for position in 0..messages {
        assert!(queue.push(position, message(0), position * 10));
    }
    queue
}

fn join(queue: &mut Queue<u8, u64>, receiver: u8, messages: usize) {
    queue.subscribe(receiver, None);
    queue.set_room(&receiver, Room { messages, ..PLENTY });
}

/// Hands out everything that can be handed out.
fn hand_all(queue: &mut Queue<u8, u64>) -> Vec<(u8, u64)> {
    let handed = std::iter::from_fn(|| queue.hand());
    handed.map(|one| (one.receiver, one.position)).collect()
}

#[test]
fn receivers_with_room_take_turns_and_each_message_goes_to_one() {
    let mut queue = queue(7);
    assert!(queue.hand().is_none(), "there is no receiver");
    join(&mut queue, 1, 10);
    join(&mut queue, 2, 2);
    join(&mut queue, 3, 10);
    let handed = hand_all(&mut queue);
    assert_eq!(
        handed,
        [(1, 0), (2, 1), (3, 2), (1, 3), (2, 4), (3, 5), (1, 6)]
    );
    assert_eq!((queue.waiting(), queue.out()), (0, 7));
}

#[test]
fn the_turn_stays_where_it_is_when_a_receiver_before_it_leaves() {
    let mut queue = queue(3);
    for receiver in 1..=3 {
        join(&mut queue, receiver, 10);
    }
    assert_eq!(queue.hand().unwrap().receiver, 1);
    assert_eq!(queue.hand().unwrap().receiver, 2);
    queue.remove(&1);
    assert_eq!(hand_all(&mut queue), [(3, 0), (2, 2)]);
}

#[test]
fn the_mark_is_the_first_position_that_is_not_acknowledged() {
    let mut queue = queue(3);
    join(&mut queue, 1, 2);
    assert_eq!(queue.mark(), 0);
    hand_all(&mut queue);
    assert_eq!(queue.ack(&1, 1), Some(10));
    assert_eq!(queue.mark(), 0);
    assert_eq!(queue.ack(&1, 0), Some(0));
    assert_eq!(queue.mark(), 2, "it waits");
    assert_eq!(queue.ack(&1, 0), None, "it was acknowledged before");
    assert_eq!(queue.ack(&1, 2), None, "it was not handed out");
    queue.set_room(&1, PLENTY);
    hand_all(&mut queue);
    assert_eq!(queue.ack(&1, 2), Some(20));
    assert_eq!((queue.mark(), queue.bytes()), (3, 0));
    queue.advance(9);
    assert_eq!(queue.mark(), 9);
    assert!(!queue.push(8, message(0), 0), "it is below");
    assert!(queue.push(12, message(0), 0));
    assert_eq!(queue.mark(), 12, "the positions between belong to others");
}

#[test]
fn messages_of_a_receiver_that_has_left_wait_before_all_others() {
    let mut queue = queue(6);
    join(&mut queue, 1, 2);
    join(&mut queue, 2, 2);
    assert_eq!(hand_all(&mut queue), [(1, 0), (2, 1), (1, 2), (2, 3)]);
    assert_eq!(queue.ack(&2, 1), Some(10));
    queue.remove(&1);
    queue.remove(&1);
    assert_eq!(queue.ack(&1, 0), None, "it does not have it any more");
    queue.set_room(&2, PLENTY);
    let handed: Vec<_> = std::iter::from_fn(|| queue.hand()).collect();
    let seen: Vec<_> = handed
        .iter()
        .map(|one| (one.position, one.was_handed))
        .collect();
    assert_eq!(seen, [(0, true), (2, true), (4, false), (5, false)]);
}

#[test]
fn messages_of_a_receiver_that_has_unsubscribed_stay_its_own_until_it_leaves() {
    let mut queue = queue(6);
    join(&mut queue, 1, 2);
    join(&mut queue, 2, 2);
    assert_eq!(hand_all(&mut queue), [(1, 0), (2, 1), (1, 2), (2, 3)]);
    queue.unsubscribe(&1);
    queue.set_room(&2, PLENTY);
    assert_eq!(hand_all(&mut queue), [(2, 4), (2, 5)]);
    assert_eq!(queue.ack(&1, 0), Some(0));
    assert_eq!((queue.mark(), queue.out()), (1, 5));
    queue.unsubscribe(&2);
    assert!(!queue.is_idle(), "they have messages");
    join(&mut queue, 2, usize::MAX);
    queue.remove(&1);
    assert_eq!(hand_all(&mut queue), [(2, 2)]);
}

#[test]
fn a_message_that_nobody_wants_lets_others_pass_until_somebody_does() {
    let mut queue = Queue::new(2);
    for (position, group) in [(0, 1), (1, 2), (2, 1), (3, 1), (4, 2)] {
        queue.push(position, message(group), 0);
    }
    queue.subscribe(2, Some(filter(2)));
    queue.set_room(&2, PLENTY);
    assert_eq!(hand_all(&mut queue), [(2, 1)]);
    assert!(
        queue.is_stuck(),
        "two are aside, and the third keeps its place"
    );
    assert_eq!(queue.mark(), 0);
    queue.subscribe(1, Some(filter(1)));
    queue.set_room(&1, PLENTY);
    assert_eq!(hand_all(&mut queue), [(1, 0), (1, 2), (1, 3), (2, 4)]);
    assert!(!queue.is_stuck());
}

#[test]
fn a_full_receiver_holds_up_only_the_messages_that_nobody_else_wants() {
    let mut queue = Queue::new(10);
    for (position, group) in [(0, 1), (1, 1), (2, 2), (3, 1), (4, 2)] {
        queue.push(position, message(group), 0);
    }
    queue.subscribe(1, Some(filter(1)));
    queue.subscribe(2, Some(filter(2)));
    queue.set_room(
        &1,
        Room {
            messages: 1,
            ..PLENTY
        },
    );
    queue.set_room(&2, PLENTY);
    assert_eq!(hand_all(&mut queue), [(1, 0), (2, 2), (2, 4)]);
    queue.set_room(&1, PLENTY);
    assert_eq!(hand_all(&mut queue), [(1, 1), (1, 3)]);
}

#[test]
fn bytes_of_room_are_a_limit_too() {
    let mut queue = queue(3);
    queue.subscribe(1, None);
    let bytes = message(0).bytes();
    queue.set_room(
        &1,
        Room {
            messages: 9,
            bytes: bytes + 1,
        },
    );
    assert_eq!(
        hand_all(&mut queue),
        [(1, 0), (1, 1)],
        "the last one may be larger"
    );
    assert_eq!(queue.bytes(), 3 * bytes);
}

#[test]
fn a_new_filter_admits_messages_that_wait() {
    let mut queue = Queue::new(10);
    queue.push(0, message(1), 0);
    queue.push(1, message(2), 0);
    assert!(queue.subscribe(7, Some(filter(2))));
    queue.set_room(&7, PLENTY);
    assert_eq!(hand_all(&mut queue), [(7, 1)]);
    assert!(!queue.subscribe(7, Some(filter(1))));
    assert_eq!(hand_all(&mut queue), [(7, 0)]);
    assert_eq!(
        queue.ack(&7, 1),
        Some(0),
        "it keeps the messages that it has"
    );
}

#[derive(Debug, Clone)]
enum Op {
    Push(u8, u64),
    Subscribe(u8, Option<u8>),
    Room(u8, usize),
    Unsubscribe(u8),
    Remove(u8),
    /// Acknowledges the messages of a receiver up to this one of them.
    Ack(u8, usize),
    Hand(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => (0..3_u8, 1..3_u64).prop_map(|(group, step)| Op::Push(group, step)),
        2 => (0..4_u8, prop::option::of(0..3_u8)).prop_map(|(who, group)| Op::Subscribe(who, group)),
        3 => (0..4_u8, 0..5_usize).prop_map(|(who, room)| Op::Room(who, room)),
        1 => (0..4_u8).prop_map(Op::Unsubscribe),
        1 => (0..4_u8).prop_map(Op::Remove),
        3 => (0..4_u8, 0..5_usize).prop_map(|(who, up_to)| Op::Ack(who, up_to)),
        4 => (0..6_usize).prop_map(Op::Hand),
    ];
    proptest::collection::vec(op, 0..120)
}

/// The same in the plainest words: every message with its place.
#[derive(Debug, Default)]
struct Model {
    receivers: BTreeMap<u8, (Option<u8>, usize)>,
    /// Messages that are not acknowledged: their group, their receiver, and whether they were handed out before.
    messages: BTreeMap<u64, (u8, Option<u8>, bool)>,
    acknowledged: BTreeSet<u64>,
    next: u64,
    /// The last first-time position of each receiver since its last change.
    last: HashMap<u8, u64>,
}

impl Model {
    fn wants(&self, who: u8, group: u8) -> bool {
        self.receivers[&who].0.is_none_or(|wanted| wanted == group)
    }

    fn handed(&mut self, handed: &Handed<u8>) {
        let (group, at, before) = self.messages[&handed.position];
        assert_eq!(at, None, "it is at one receiver");
        assert_eq!(before, handed.was_handed);
        assert!(self.wants(handed.receiver, group));
        let room = &mut self.receivers.get_mut(&handed.receiver).unwrap().1;
        *room = room.checked_sub(1).expect("it has room");
        self.messages
            .insert(handed.position, (group, Some(handed.receiver), true));
        if !before {
            let last = self.last.insert(handed.receiver, handed.position);
            assert!(last.is_none_or(|last| last < handed.position), "in order");
        }
    }

    /// The waiting messages that a receiver with room wants.
    fn ready(&self) -> usize {
        let waiting = self.messages.values().filter(|(_, at, _)| at.is_none());
        let mut receivers = self.receivers.iter();
        let wanted = |group| {
            receivers
                .clone()
                .any(|(who, (_, room))| *room > 0 && self.wants(*who, group))
        };
        let ready = waiting.filter(|(group, ..)| wanted(*group)).count();
        receivers.next();
        ready
    }
}

proptest! {
    #[test]
    fn no_message_is_lost_or_at_two_receivers_whatever_happens(ops in ops(), most_aside in 0..40_usize) {
        let mut queue = Queue::<u8, u64>::new(most_aside);
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Push(group, step) => {
                    let position = model.next + step;
                    model.next = position + 1;
                    prop_assert!(queue.push(position, message(group), position));
                    model.messages.insert(position, (group, None, false));
                }
                Op::Subscribe(who, group) => {
                    let is_new = queue.subscribe(who, group.map(filter));
                    let had = model.receivers.get(&who).copied();
                    prop_assert_eq!(is_new, had.is_none());
                    model.receivers.insert(who, (group, had.map_or(0, |(_, room)| room)));
                    model.last.remove(&who);
                }
                Op::Room(who, messages) => {
                    queue.set_room(&who, Room { messages, ..PLENTY });
                    if let Some((_, room)) = model.receivers.get_mut(&who) {
                        *room = messages;
                    }
                }
                Op::Unsubscribe(who) => {
                    queue.unsubscribe(&who);
                    model.receivers.remove(&who);
                }
                Op::Remove(who) => {
                    queue.remove(&who);
                    model.receivers.remove(&who);
                    for (_, at, _) in model.messages.values_mut().filter(|(_, at, _)| *at == Some(who)) {
                        *at = None;
                    }
                    model.last.remove(&who);
                }
                Op::Ack(who, up_to) => {
                    let its: Vec<_> = model.messages.iter().filter(|(_, (_, at, _))| *at == Some(who)).map(|(position, _)| *position).collect();
                    for position in its.into_iter().take(up_to) {
                        prop_assert_eq!(queue.ack(&(who + 1), position), None);
                        prop_assert_eq!(queue.ack(&who, position), Some(position));
                        model.messages.remove(&position);
                        prop_assert!(model.acknowledged.insert(position));
                    }
                }
                Op::Hand(most) => {
                    let mut is_over = false;
                    for _ in 0..most {
                        let Some(handed) = queue.hand() else {
                            is_over = true;
                            break;
                        };
                        model.handed(&handed);
                    }
                    // Messages that are ready stay only behind those that are stuck.
                    prop_assert!(!is_over || model.ready() == 0 || queue.is_stuck());
                }
            }
            let first = model.messages.keys().next().copied();
            prop_assert_eq!(queue.mark(), first.unwrap_or(model.next));
            let out = model.messages.values().filter(|(_, at, _)| at.is_some()).count();
            prop_assert_eq!((queue.out(), queue.waiting()), (out, model.messages.len() - out));
            let bytes: usize = model.messages.values().map(|(group, ..)| message(*group).bytes()).sum();
            prop_assert_eq!(queue.bytes(), bytes);
            let waiting = model.messages.values().filter(|(_, at, _)| at.is_none());
            let bytes: usize = waiting.map(|(group, ..)| message(*group).bytes()).sum();
            prop_assert_eq!(queue.waiting_bytes(), bytes);
        }
        // With one receiver that takes everything, the rest goes out in order.
        for who in 0..4 {
            queue.remove(&who);
        }
        join(&mut queue, 9, usize::MAX);
        let rest: Vec<_> = hand_all(&mut queue).into_iter().map(|(_, position)| position).collect();
        prop_assert_eq!(rest, model.messages.keys().copied().collect::<Vec<_>>());
    }
}
