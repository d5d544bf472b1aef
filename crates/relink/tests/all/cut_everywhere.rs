//! One workload with all features. Its transport is cut at every byte in each direction, and cut again while it
//! resumes.

#![allow(clippy::disallowed_methods, clippy::panic, clippy::unwrap_used)] // tests may panic, and need an instant

use std::time::Duration;

use crate::world::{Cut, Setup, World};
use ackline_relink::frame::Parameters;

/// The workload: several channels each way, multicast, transactions, close and reopen, pings. Every step settles.
fn workload(world: &mut World) {
    world.settle();
    for round in 0..3_u8 {
        for end in [0, 1] {
            world.send(end, &[0], 5);
            world.send(end, &[1, 0, 2], 9);
            world.ping(end);
            world.send(end, &[2], 40);
        }
        world.settle();
        for end in [0, 1] {
            for channel in world.oracle.incoming(end) {
                if round != channel {
                    consume_all(world, end, channel);
                }
            }
            world.notify_received(end, 2);
            world.decide(end, 0, true, None);
            world.decide(end, 0, round == 1, None);
            world.decide(end, 1, true, None);
        }
        world.settle();
        for end in [0, 1] {
            while world.oracle.may_answer(end, 0) {
                world.answer(end, 0, None, round != 1);
            }
            world.close_channel(end, 2);
            while world.oracle.may_decide(end, 2) && world.decide(end, 2, round == 0, None) {}
        }
        world.settle();
        for end in [0, 1] {
            consume_all(world, end, 2);
            while world.oracle.may_answer(end, 2) {
                world.answer(end, 2, None, false);
            }
        }
        world.advance(Duration::from_millis(100));
        world.settle();
    }
    world.finish();
}

fn consume_all(world: &mut World, end: usize, channel: u8) {
    if let Some(through) = world.oracle.to_consume(end, channel) {
        world.consume(end, channel, through);
    }
}

fn setups() -> Vec<Setup> {
    let parameters = |size, transactions| Parameters {
        connector_channel_id_size: size,
        listener_channel_id_size: size,
        connector_transactions: transactions,
        listener_transactions: transactions,
    };
    let plain = Setup::new(parameters(2, false));
    let transactional = Setup::new(parameters(1, true));
    let mut implicit = Setup::new(parameters(0, true));
    for end in &mut implicit.ends {
        // Each decision goes out after its last message, also after a cut.
        end.undecided_bytes = 0;
    }
    let mut careful = Setup::new(parameters(30, true));
    for end in &mut careful.ends {
        end.close_when_consumed = true;
        end.resume_from_consumed = true;
        end.ack_delay = Duration::ZERO;
        end.undecided_bytes = 150;
    }
    vec![plain, transactional, implicit, careful]
}

fn run(setup: &Setup, cuts: &[Cut]) -> World {
    let mut world = World::new(setup.clone());
    world.cuts = cuts.to_vec();
    workload(&mut world);
    assert!(world.cuts.is_empty(), "{:?} did not happen", world.cuts);
    world
}

#[test]
fn a_cut_at_every_byte_loses_nothing_and_doubles_nothing() {
    for setup in setups() {
        let whole = run(&setup, &[]);
        assert_eq!(whole.resumed, 0);
        assert!(whole.arrived.iter().all(|bytes| *bytes > 500));
        for from in [0, 1] {
            for after in 0..whole.arrived[from] {
                let world = run(&setup, &[Cut { from, after }]);
                // The cut does not count within the handshake, or within the last packet when the other end is done.
                let resumes = after > 40 && after + 8 < whole.arrived[from];
                assert!(world.resumed == 2 || !resumes, "{from} {after}");
            }
        }
    }
}

#[test]
fn a_second_cut_at_every_byte_of_the_resume_loses_nothing_and_doubles_nothing() {
    // Longer than any handshake with its announcements and repeated messages.
    const RESUME: u64 = 150;
    for setup in setups() {
        let whole = run(&setup, &[]);
        for from in [0, 1] {
            for after in (33..whole.arrived[from]).step_by(307) {
                let first = Cut { from, after };
                for second in (0..2 * RESUME).map(|at| Cut {
                    from: usize::from(at % 2 == 1),
                    after: at / 2,
                }) {
                    let third = Cut {
                        from: 1 - second.from,
                        after: (second.after * 7 + after) % RESUME,
                    };
                    let mut world = World::new(setup.clone());
                    world.cuts = vec![third, second, first];
                    workload(&mut world);
                    // Near the end there may be fewer bytes to send.
                    assert!(world.cuts.len() < 3);
                }
            }
        }
    }
}

#[test]
fn a_process_that_dies_at_every_journal_point_goes_on_where_it_was() {
    let [_, _, _, mut setup] = <[Setup; 4]>::try_from(setups()).unwrap();
    for end in &mut setup.ends {
        end.journal = true;
    }
    let whole = run(&setup, &[]);
    for end in [0, 1] {
        let changes = whole.journaled(end);
        assert!(changes > 60, "{changes}");
        for at in 2..changes {
            for kept in [false, true] {
                let mut world = World::new(setup.clone());
                world.crash_at = Some((end, at, kept));
                workload(&mut world);
                assert_eq!(world.crash_at, None);
                assert!(world.resumed >= 2 || at + 10 > changes, "{end} {at} {kept}");
            }
        }
    }
}
