//! The tests of this crate in one binary.

#[path = "../common/counting.rs"]
mod counting;
#[path = "../common/one_end.rs"]
mod one_end;
#[path = "../common/schedule.rs"]
mod schedule;
#[path = "../common/world.rs"]
mod world;

mod channel_ends;
mod corpus;
mod cut_everywhere;
mod decisions_again;
mod frame_allocations;
mod frame_limits;
mod frame_properties;
mod handover;
mod handshake;
mod hints;
mod hostile;
mod inspector;
mod link_limits;
mod link_rules;
mod many_channels;
mod one_read;
mod outcomes_kept;
mod random;
mod schedules;
mod states;
mod vectors;
