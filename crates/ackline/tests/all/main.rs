//! The tests of this crate in one binary. The files beside this folder need a process of their own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../cutter/mod.rs"]
mod cutter;
#[path = "../common/pipe.rs"]
mod pipe;
#[path = "../../../link/tests/pki/mod.rs"]
mod pki;

mod acceptor;
mod aside;
mod bpmux;
mod bpmux_answers;
mod bpmux_connecting;
mod bpmux_held;
mod bpmux_receiver;
mod bpmux_sizes;
mod bpmux_subscribe;
mod bpmux_turns;
mod commits;
mod cuts;
mod errors;
mod layouts;
mod listener;
mod receiver;
mod relink;
mod relink_durable;
mod relink_handover;
mod relink_hints;
mod relink_moved;
mod relink_receiver;
mod relink_receiver_tls;
mod relink_refusals;
mod relink_refused;
mod relink_strangers;
mod relink_subscribe;
mod relink_tls;
mod repeats;
mod sender;
mod sender_check;
mod sender_end;
mod sender_flapping;
mod sender_property;
mod sender_rows;
mod stopped_peers;
