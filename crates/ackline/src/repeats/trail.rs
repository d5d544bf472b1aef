//! The positions of the last windows that one connection landed: all that is remembered while links are
//! healthy.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A block in the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The position of its first event.
    pub(crate) first: u64,
    pub(crate) events: u32,
    pub(crate) windows: u32,
}

/// What one connection landed last.
#[derive(Debug)]
pub(crate) struct Trail {
    /// Connections that were accepted later have a higher one.
    pub(super) id: u64,
    /// Windows remembered.
    most: u32,
    landed: Mutex<Landed>,
    is_ended: AtomicBool,
    is_finished: AtomicBool,
}

#[derive(Debug, Default)]
struct Landed {
    spans: VecDeque<Span>,
    windows: u32,
    /// Blocks handed to the spool, and those of them that are durable.
    appended: u64,
    placed: u64,
}

impl Trail {
    /// Of connection `id`, which may have up to `unacked` windows unacknowledged.
    pub(crate) fn new(id: u64, unacked: usize) -> Self {
        let most = u32::try_from(unacked).unwrap_or(u32::MAX);
        Self {
            id,
            most: most.max(WINDOWS),
            landed: Mutex::default(),
            is_ended: AtomicBool::new(false),
            is_finished: AtomicBool::new(false),
        }
    }

    /// Of a connection before this start, whose blocks stood at these places, in order.
    pub(super) fn of_before(id: u64, spans: VecDeque<Span>) -> Self {
        let landed = Landed {
            spans,
            appended: 1,
            placed: 1,
            ..Landed::default()
        };
        Self {
            id,
            most: 0,
            landed: Mutex::new(landed),
            is_ended: AtomicBool::new(true),
            is_finished: AtomicBool::new(true),
        }
    }

    /// A block was handed to the spool.
    pub(crate) fn appended(&self) {
        self.lock().appended += 1;
    }

    /// The next block that was handed over is durable.
    pub(crate) fn placed(&self, span: Span) {
        let mut landed = self.lock();
        landed.placed += 1;
        if span.events == 0 {
            return;
        }
        landed.windows = landed.windows.saturating_add(span.windows);
        landed.spans.push_back(span);
        // A block is remembered whole: as long as one of its windows is among the last ones.
        while let Some(oldest) = landed.spans.front()
            && landed.windows.saturating_sub(oldest.windows) >= self.most
        {
            landed.windows -= oldest.windows;
            landed.spans.pop_front();
        }
    }

    /// No block that was handed over becomes durable any more.
    pub(crate) fn failed(&self) {
        let mut landed = self.lock();
        landed.placed = landed.appended;
    }

    /// Its blocks from this position on, in order.
    pub(super) fn spans_from(&self, position: u64) -> Vec<Span> {
        let landed = self.lock();
        let from = landed.spans.partition_point(|span| span.first < position);
        landed.spans.range(from..).copied().collect()
    }

    /// How many blocks, and the events in them.
    pub(super) fn size(&self) -> (usize, u64) {
        let landed = self.lock();
        let events = landed.spans.iter().map(|span| u64::from(span.events));
        (landed.spans.len(), events.sum())
    }

    /// Blocks that were handed over so far.
    pub(super) fn reached(&self) -> u64 {
        self.lock().appended
    }

    /// Whether the first so many of them are durable.
    pub(super) fn has_placed(&self, reached: u64) -> bool {
        self.lock().placed >= reached
    }

    /// The connection is over; what it handed on before may still land.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Everything was handed over that the connection handed on.
    pub(super) fn finish(&self) {
        self.is_finished.store(true, Ordering::Release);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Landed> {
        self.landed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Windows remembered of a connection, at the least.
pub(super) const WINDOWS: u32 = 64;
