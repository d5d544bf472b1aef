//! Runs of elements, as they are handed out to be landed.

use std::sync::Arc;

use ackline_core::{OneRun, Payload};
use bytes::Bytes;

/// The publisher of a run's elements, as their rows name it.
#[derive(Debug)]
pub struct Source {
    /// The publisher's name.
    pub publisher: Arc<str>,
    /// The attributes of the rows.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
}

impl Source {
    /// The publisher `publisher`, whose elements have `element_size` bytes each, or any number if that is 0.
    pub(super) fn new(publisher: &Arc<str>, element_size: u64) -> Arc<Self> {
        let mut attributes = vec![(Arc::from("reactive.publisher"), Arc::clone(publisher))];
        if element_size > 0 {
            let size = Arc::from(element_size.to_string());
            attributes.push((Arc::from("reactive.element_size"), size));
        }
        Arc::new(Self {
            publisher: Arc::clone(publisher),
            attributes,
        })
    }
}

/// Elements of one subscription with consecutive numbers, or a note about it.
#[derive(Debug)]
pub struct Run {
    /// The token that settles it.
    pub token: u64,
    /// The publisher of its elements.
    pub source: Arc<Source>,
    /// The number of its first element in the subscription, from 0.
    pub first: u64,
    /// The number of its elements. A run with a note has none.
    pub count: u32,
    /// Its elements.
    pub elements: Elements,
    /// Bytes of its elements.
    pub bytes: usize,
    /// Something for an operator.
    pub note: Option<Note>,
    /// Bytes of memory that the elements are charged, besides a price for each piece.
    pub(super) held: usize,
    pub(super) from: From,
}

impl Run {
    /// Counts elements that were added, with their bytes and the memory that they are charged.
    pub(super) fn grow(&mut self, count: u32, bytes: usize, held: usize) {
        self.count = self.count.saturating_add(count);
        self.bytes = self.bytes.saturating_add(bytes);
        self.held = self.held.saturating_add(held);
    }
}

/// The elements of a run.
#[derive(Debug)]
pub enum Elements {
    /// Elements of any size.
    Any(Vec<Payload>),
    /// Elements of one size, one behind the other in all pieces together. An element may begin in one piece and end in
    /// another.
    Fixed {
        /// The bytes of each element, at least 1.
        size: u64,
        /// The pieces.
        pieces: Vec<Bytes>,
    },
}

impl Elements {
    /// None yet, of this size, or of any size if it is 0.
    pub(super) const fn none(size: u64) -> Self {
        match size {
            0 => Self::Any(Vec::new()),
            size => Self::Fixed {
                size,
                pieces: Vec::new(),
            },
        }
    }

    /// The handles that keep them in memory.
    const fn pieces(&self) -> usize {
        match self {
            Self::Any(elements) => elements.len(),
            Self::Fixed { pieces, .. } => pieces.len(),
        }
    }
}

/// The end of a subscription, for an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The publisher has no more elements.
    Completed {
        /// The elements of the subscription, all of which stand in runs before this one.
        elements: u64,
    },
    /// The subscription has ended with an error, or with the connection.
    Failed {
        /// The error's text, as it was sent; only the beginning of a long one.
        error: Arc<str>,
    },
}

/// The kind of a run: only runs of elements grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum From {
    /// Elements of this subscription.
    Elements(u64),
    /// A note about this subscription.
    Note(u64),
}

impl OneRun for Run {
    type Key = From;

    fn key(&self) -> From {
        self.from
    }

    fn size(&self) -> (usize, usize) {
        (self.elements.pieces(), self.held)
    }
}
