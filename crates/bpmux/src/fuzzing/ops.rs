//! Two ends, calls and deliveries by a script.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::expect_used
)] // a panic is a finding

use std::time::Instant;

use ackline_core::{Connection as _, Lifecycle, Need, SendQueue};
use bytes::{Buf, BytesMut};

use super::model::Model;
use super::script::Script;
use crate::{Config, Connection, CreditPolicy, Limits};

/// Rounds after which nothing may move any more: chunks of one byte for a few kilobytes.
const ROUNDS: usize = 20_000;

/// Credit that the script may have given beside the automatic credit, in bytes.
const CALLED: u64 = 1 << 16;

struct End {
    connection: Connection,
    /// Bytes that it has sent and that were not delivered.
    wire: BytesMut,
    /// Bytes that were delivered to it and not taken.
    input: BytesMut,
    /// Whether the end of the peer's bytes was delivered.
    told: bool,
}

/// Returns a configuration by one byte: chunk size, credit and whether closes are held.
pub(super) fn config(shape: u8) -> Config {
    let automatic = |floor, ceiling, budget| CreditPolicy::Automatic {
        floor,
        ceiling,
        budget,
    };
    Config {
        chunk_size: [1, 3, 64, 16_384][usize::from(shape & 3)],
        credit: match shape >> 2 & 3 {
            0 | 1 => CreditPolicy::Manual,
            2 => automatic(1, 1, 0),
            _ => automatic(16, 200, 300),
        },
        holds_close_acks: shape >> 4 & 1 == 1,
        limits: Limits {
            max_payload_bytes: 1_000,
            ..Limits::default()
        },
        ..Config::default()
    }
}

pub(super) fn ops(now: Instant, data: &[u8]) {
    let mut script = Script::new(data);
    let mut model = Model::default();
    let shape = script.byte();
    model.cancels_top = shape & 3 == 3;
    model.takes_late = shape & 4 == 4;
    let mut ends = [script.byte(), script.byte()].map(|shape| End {
        connection: Connection::new(now, config(shape)),
        wire: BytesMut::new(),
        input: BytesMut::new(),
        told: false,
    });
    while !script.is_over() {
        let step = script.byte();
        let at = usize::from(step & 1);
        match step >> 1 & 7 {
            0..=4 => model.act(at, &mut ends[at].connection, &mut script),
            5 => {
                model.take(at, &mut ends[at].connection, script.below(9));
            }
            6 => {
                let most = usize::from(script.byte()) + 1;
                deliver(now, &mut ends, at, most);
            }
            _ => transmit(now, &mut ends[at]),
        }
        bounded(&ends);
    }
    rest(now, &mut model, &mut ends);
    model.check([&ends[0].connection, &ends[1].connection]);
}

/// Ends the run and delivers until nothing moves.
fn rest(now: Instant, model: &mut Model, ends: &mut [End; 2]) {
    for _ in 0..ROUNDS {
        let mut moved = false;
        for at in 0..2 {
            moved |= model.take(at, &mut ends[at].connection, usize::MAX);
            model.wind_down(at, &mut ends[at].connection);
            transmit(now, &mut ends[at]);
            moved |= deliver(now, ends, at, usize::MAX);
        }
        bounded(ends);
        if !moved {
            return;
        }
    }
    unreachable!("no rest after {ROUNDS} rounds");
}

fn transmit(now: Instant, end: &mut End) {
    loop {
        let mut out = SendQueue::new();
        end.connection.poll_transmit(now, &mut out);
        if out.is_empty() {
            return;
        }
        end.wire
            .extend_from_slice(&out.copy_to_bytes(out.remaining()));
    }
}

/// Delivers up to `most` bytes that one end has sent to the other. Returns whether anything moved.
fn deliver(now: Instant, ends: &mut [End; 2], from: usize, most: usize) -> bool {
    if ends[from].connection.lifecycle() != Lifecycle::Open {
        // The end of a direction comes behind all that is sent.
        transmit(now, &mut ends[from]);
    }
    let len = ends[from].wire.len().min(most);
    let bytes = ends[from].wire.split_to(len);
    let is_over =
        ends[from].wire.is_empty() && ends[from].connection.lifecycle() != Lifecycle::Open;
    let end = &mut ends[1 - from];
    let before = (end.input.len(), end.connection.lifecycle());
    end.input.extend_from_slice(&bytes);
    let need = end.connection.receive(now, &mut end.input);
    let need = need.expect("neither end finds fault with the other");
    if let Need::Input { at_least } = need {
        assert!(
            at_least > end.input.len(),
            "more input is asked for than there is"
        );
        if is_over && !end.told {
            end.told = true;
            end.connection.receive_eof(now).expect("the end may come");
        }
    }
    len > 0 || before != (end.input.len(), end.connection.lifecycle())
}

/// Checks the bounds of automatic credit, which hold at any time.
fn bounded(ends: &[End; 2]) {
    for end in ends {
        let config = end.connection.config();
        let CreditPolicy::Automatic { floor, budget, .. } = config.credit else {
            continue;
        };
        if end.connection.lifecycle() != Lifecycle::Open {
            continue;
        }
        let counts = end.connection.counts();
        let largest = config.limits.max_payload_bytes;
        assert!(counts.credit.windows_above_floor <= budget, "{counts:?}");
        assert!(
            counts.credit.windows_above_floor + counts.credit.set_aside <= budget + largest,
            "{counts:?}"
        );
        let halves = u64::try_from(counts.tables.own_entities + counts.tables.peer_entities + 1)
            .expect("there are few");
        let most = halves * floor + 2 * budget + (8 + 2) * largest + CALLED;
        assert!(
            counts.credit.granted + counts.credit.unread <= most,
            "{counts:?} above {most}"
        );
    }
}
