//! The configuration of an intake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ackline_core::Room;

use super::demand::Bounds;
use super::wide;
use crate::{Config, ReceiveOptions, Role};

/// Whether a connection's streams have all come to their end. Clones share the answer.
#[derive(Debug, Clone, Default)]
pub struct Completion(Arc<AtomicBool>);

impl Completion {
    /// Whether every publisher has completed its stream, and every element was handed out to be landed.
    pub fn is_complete(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The configuration of an intake.
#[derive(Debug, Clone)]
pub struct IntakeConfig {
    pub(super) role: Role,
    pub(super) machine: Config,
    /// The publishers of the peer that it subscribes to.
    pub(super) publishers: Vec<Arc<str>>,
    /// The bounds of each subscription's demand.
    pub(super) bounds: Bounds,
    /// The room of the spool.
    pub(super) room: Room,
    /// Bytes of incomplete elements that may be held.
    pub(super) most_incomplete: usize,
    pub(super) completion: Completion,
}

impl IntakeConfig {
    /// A connection of a receiver that subscribes to these publishers of its peer, as the peer's client or its server.
    /// `largest` is the number of bytes of memory that one connection can always get, and `room` that of the spool.
    pub fn new(
        role: Role,
        options: &ReceiveOptions,
        publishers: &[String],
        (largest, room): (u64, Room),
    ) -> Self {
        let bounds = Bounds {
            most: options.demand,
            memory: largest.checked_div(wide(publishers.len())).unwrap_or(0),
            largest: options.link.limits.max_element_bytes,
        };
        let publishers = publishers.iter().map(|name| Arc::from(name.as_str()));
        Self {
            role,
            machine: Config {
                parts: false,
                ..options.link.clone()
            },
            publishers: publishers.collect(),
            bounds,
            room,
            // The rest is for input that is not taken yet.
            most_incomplete: usize::try_from((largest / 8).saturating_mul(7)).unwrap_or(usize::MAX),
            completion: Completion::default(),
        }
    }

    /// Whether the streams of the connections with this configuration are complete.
    pub const fn completion(&self) -> &Completion {
        &self.completion
    }
}
