//! The blocks that landed before this start: the receiver may have been killed between landing and
//! acknowledging.
//!
//! The spool's tail is looked through once, back from its end and only as far as a limit, when the first
//! connection sends: which blocks are the last ones of each link. Their bodies are not read for that.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ackline_core::locked;
use ackline_spool::{Spool, SpoolError};
use tokio::time::Instant;

use super::order::RUN;
use super::sender::EXPIRY;
use super::trail::{Span, Standing, Trail, WINDOWS};

/// The last blocks of each sender, one trail for each of its links.
type Found = HashMap<String, Vec<Arc<Trail>>>;

/// The blocks that landed before this start.
pub(super) struct Before {
    end: u64,
    mark: Option<u64>,
    /// Links that are known to have ended in order.
    in_order: Mutex<HashSet<String>>,
    since: Instant,
    is_over: AtomicBool,
    /// Looked for once.
    found: Mutex<Option<Found>>,
}

impl Before {
    /// Of a spool that ended there, with the links that ended in order; where acknowledgements waited for
    /// commits, with the consumer's mark.
    pub(super) fn new(end: u64, mark: Option<u64>, in_order: HashSet<String>) -> Self {
        Self {
            end,
            mark,
            in_order: Mutex::new(in_order),
            since: Instant::now(),
            is_over: AtomicBool::new(end == 0),
            found: Mutex::default(),
        }
    }

    /// The time of the start.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Whether nothing is left of it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Takes the blocks that this sender landed before this start. Reads the spool: call it off the runtime.
    pub(super) fn take(&self, spool: &Spool, sender: &str) -> Vec<Arc<Trail>> {
        let mut found = locked(&self.found);
        if self.since.elapsed() >= EXPIRY {
            *found = Some(Found::new());
        }
        let found = found.get_or_insert_with(|| {
            self.look(spool).unwrap_or_else(|error| {
                tracing::warn!(code = "receiver.repeats", sender = "all", %error, "repeats are not judged");
                Found::new()
            })
        });
        found.remove(sender).unwrap_or_default()
    }

    /// Nothing more is looked for once all was taken.
    pub(super) fn end_if_empty(&self) {
        let found = locked(&self.found);
        if found.as_ref().is_some_and(Found::is_empty) {
            self.is_over.store(true, Ordering::Release);
        }
    }

    fn look(&self, spool: &Spool) -> Result<Found, SpoolError> {
        let mut links: HashMap<String, (String, u32, VecDeque<Span>)> = HashMap::new();
        let mut left = MOST_BLOCKS;
        for blocks in spool.back_from(self.end, MOST_BYTES)? {
            let blocks = blocks?;
            left = left.saturating_sub(blocks.len());
            for block in blocks {
                let end = block.first_position + u64::from(block.events);
                let is_waiting = self.mark.is_some_and(|mark| end > mark);
                let (_, windows, spans) = links
                    .entry(block.link)
                    .or_insert_with(|| (block.sender, 0, VecDeque::new()));
                if *windows < WINDOWS || is_waiting {
                    *windows = windows.saturating_add(block.windows);
                    spans.push_front(Span {
                        first: block.first_position,
                        events: block.events,
                        windows: block.windows,
                    });
                }
            }
            if left == 0 {
                break;
            }
        }
        let mut found = Found::new();
        let in_order = std::mem::take(&mut *locked(&self.in_order));
        // Apart from those of connections of this start, which count from 0.
        for ((link, (sender, _, spans)), number) in links.into_iter().zip(0..) {
            let standing = if in_order.contains(&link) {
                Standing::InOrder
            } else {
                Standing::Cut
            };
            let trail = Trail::of_before(u64::MAX - number, spans, standing);
            if standing == Standing::InOrder && trail.size().1 < RUN {
                continue;
            }
            found.entry(sender).or_default().push(Arc::new(trail));
        }
        Ok(found)
    }
}

/// Blocks looked at, and their bytes on disk: a second's work at the most.
const MOST_BLOCKS: usize = 262_144;
const MOST_BYTES: u64 = 1 << 30;
