//! Random schedules of calls, deliveries and cuts. The same seed gives the same schedule.
#![allow(clippy::unwrap_used)] // tests may panic

use std::time::Duration;

use ackline_relink::frame::Parameters;

use super::world::{End, Setup, World};

/// A small generator (`SplitMix64`): schedules need many different numbers, but not good randomness.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn between(&mut self, first: u32, last: u32) -> u32 {
        first + u32::try_from(self.below(u64::from(last - first) + 1)).unwrap()
    }
}

/// Runs one schedule, from an empty pair of ends to an orderly shutdown, and checks every invariant.
///
/// # Panics
/// An invariant does not hold.
pub(crate) fn run(seed: u64) {
    let mut random = Random::new(seed);
    let setup = setup(&mut random);
    let starts: Vec<End> = (0..2).filter(|end| setup.first[*end] > 0).collect();
    let mut world = World::new(setup);
    if !starts.is_empty() {
        world.settle();
    }
    for end in starts {
        // A channel that exists from the start has to be closed in the end, so it is used.
        (0..3).for_each(|channel| assert!(world.send(end, &[channel], 4)));
    }
    let steps = 20 + random.below(200);
    let cuts = random.below(3);
    for _ in 0..steps {
        step(&mut world, &mut random, cuts);
    }
    world.finish();
}

fn setup(random: &mut Random) -> Setup {
    let sizes = [0, 1, 1, 2, 30];
    let mut size = || sizes[usize::try_from(random.below(5)).unwrap()];
    let (connector_channel_id_size, listener_channel_id_size) = (size(), size());
    let mut setup = Setup::new(Parameters {
        connector_channel_id_size,
        listener_channel_id_size,
        connector_transactions: random.one_in(2),
        listener_transactions: random.one_in(2),
    });
    for end in &mut setup.ends {
        end.send_window = random.between(1, 8);
        end.receive_window = 8;
        end.ack_window = random.between(1, 4);
        if random.one_in(2) {
            end.ack_delay = Duration::ZERO;
        }
        end.close_when_consumed = random.one_in(2);
        end.resume_from_consumed = random.one_in(2);
        // An end must not announce more than a crash would leave.
        end.journal = random.one_in(3);
        end.resume_from_consumed |= end.journal;
        end.undecided_bytes = [0, 100, 300, 64 << 10][usize::try_from(random.below(4)).unwrap()];
        end.max_events = usize::try_from(random.between(1, 20)).unwrap();
        end.max_outcome_runs = usize::try_from(random.between(40, 60)).unwrap();
    }
    // A journal has no channels that exist from the start.
    if setup.ends.iter().all(|end| !end.journal) && random.one_in(3) {
        for end in [0, 1] {
            setup.start_at(end, random.between(u32::MAX - 12, u32::MAX));
            setup.ends[end].send_window += 3;
            setup.ends[end].receive_window += 3;
        }
    }
    setup
}

fn step(world: &mut World, random: &mut Random, cuts: u64) {
    for end in [0, 1] {
        if random.one_in(2) {
            world.keep(end, random.one_in(2));
        }
    }
    let end = usize::from(random.one_in(2));
    let channel = u8::try_from(random.below(3)).unwrap();
    match random.below(20) {
        0..=3 => send(world, random, end),
        4..=6 => {
            let most = usize::try_from(random.below(60)).unwrap();
            world.transmit(end);
            world.deliver(end, most);
        }
        7 | 8 => {
            world.transmit(end);
            world.deliver(end, usize::MAX);
        }
        9 | 19 => {
            if !world.is_connected {
                world.connect();
            }
        }
        10 | 11 => consume(world, random, end, channel),
        12 | 13 => decide(world, random, end, channel),
        14 | 15 => {
            if world.oracle.may_answer(end, channel) {
                let success = !random.one_in(3);
                world.answer(end, channel, None, success);
            }
        }
        16 => {
            if random.one_in(3) {
                world.close_channel(end, channel);
            }
        }
        17 => match random.below(3) {
            0 => world.ping(end),
            1 => world.notify_received(end, channel),
            _ => world.advance(Duration::from_millis(random.below(120))),
        },
        18 if cuts > 0 && random.one_in(1 + 3 / cuts) => {
            if random.one_in(2) {
                let more = usize::try_from(random.below(5)).unwrap();
                world.crash(end, more, random.one_in(2));
            } else {
                world.cut();
            }
        }
        _ => {
            world.transmit(end);
        }
    }
}

fn send(world: &mut World, random: &mut Random, end: End) {
    let mut channels = vec![u8::try_from(random.below(3)).unwrap()];
    while random.one_in(3) && channels.len() < 4 {
        channels.push(u8::try_from(random.below(3)).unwrap());
    }
    let size = match random.below(20) {
        0 => 2_000,
        1 => 300,
        _ => usize::try_from(random.below(20)).unwrap(),
    };
    world.send(end, &channels, size);
}

fn consume(world: &mut World, random: &mut Random, end: End, channel: u8) {
    let first = world.oracle.first_to_consume(end, channel);
    let last = world.oracle.to_consume(end, channel);
    if let (Some(first), Some(last)) = (first, last) {
        let through = random.between(first, last);
        world.consume(end, channel, through);
    }
}

fn decide(world: &mut World, random: &mut Random, end: End, channel: u8) {
    if let Some((first, last)) = world.oracle.to_decide(end, channel) {
        let through = random.one_in(3).then(|| random.between(first, last));
        world.decide(end, channel, !random.one_in(3), through);
    }
}
