//! The tests of this crate in one binary. The files beside this folder need a process of their own.

#[cfg(feature = "spool")]
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "relink")]
#[path = "../cutter/mod.rs"]
mod cutter;
#[cfg(feature = "lumberjack")]
#[path = "../common/pipe.rs"]
mod pipe;
#[cfg(all(
    feature = "tls",
    any(feature = "lumberjack", feature = "reactive", feature = "relink")
))]
#[path = "../../../link/tests/pki/mod.rs"]
mod pki;

#[cfg(feature = "spool")]
mod acceptor;
#[cfg(feature = "spool")]
mod aside;
#[cfg(feature = "bpmux")]
mod bpmux;
#[cfg(feature = "bpmux")]
mod bpmux_answers;
#[cfg(feature = "bpmux")]
mod bpmux_connecting;
#[cfg(feature = "bpmux")]
mod bpmux_held;
#[cfg(feature = "spool")]
mod bpmux_receiver;
#[cfg(feature = "bpmux")]
mod bpmux_sizes;
#[cfg(feature = "spool")]
mod bpmux_subscribe;
#[cfg(feature = "bpmux")]
mod bpmux_turns;
#[cfg(feature = "spool")]
mod commits;
#[cfg(feature = "spool")]
mod cuts;
#[cfg(feature = "spool")]
mod errors;
#[cfg(feature = "spool")]
mod layouts;
#[cfg(all(feature = "lumberjack", feature = "tls"))]
mod listener;
#[cfg(feature = "micromsg")]
mod micromsg;
#[cfg(feature = "spool")]
mod micromsg_broker;
#[cfg(feature = "spool")]
mod micromsg_half_open;
#[cfg(feature = "micromsg")]
mod micromsg_proxy;
#[cfg(feature = "spool")]
mod micromsg_receiver;
#[cfg(feature = "reactive")]
mod reactive;
#[cfg(feature = "spool")]
mod reactive_receiver;
#[cfg(feature = "spool")]
mod receiver;
#[cfg(feature = "relink")]
mod relink;
#[cfg(feature = "relink")]
mod relink_durable;
#[cfg(feature = "spool")]
mod relink_handover;
#[cfg(feature = "spool")]
mod relink_hints;
#[cfg(feature = "spool")]
mod relink_moved;
#[cfg(feature = "spool")]
mod relink_receiver;
#[cfg(all(feature = "spool", feature = "tls"))]
mod relink_receiver_tls;
#[cfg(feature = "relink")]
mod relink_refusals;
#[cfg(feature = "spool")]
mod relink_refused;
#[cfg(feature = "relink")]
mod relink_strangers;
#[cfg(feature = "spool")]
mod relink_subscribe;
#[cfg(all(feature = "relink", feature = "tls"))]
mod relink_tls;
mod relink_waits;
mod repeats;
#[cfg(feature = "lumberjack")]
mod sender;
#[cfg(feature = "lumberjack")]
mod sender_check;
#[cfg(feature = "lumberjack")]
mod sender_end;
#[cfg(feature = "lumberjack")]
mod sender_flapping;
#[cfg(feature = "lumberjack")]
mod sender_property;
#[cfg(feature = "lumberjack")]
mod sender_rows;
#[cfg(all(feature = "bpmux", feature = "relink"))]
mod stopped_peers;
