//! The condition of an acknowledgement: the disk, or the commit of a consumer.
//!
//! ```text
//! append(Durable)    durable ─► settle
//! append(Committed)  durable ─► landed ─► held here ─► the consumer's mark has passed it ─► settle
//! ```
//!
//! While blocks are held, the consumer's file is read every 20 ms: reading its 200 bytes costs no
//! more than asking whether they changed.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{Settle, Spool, SpoolError, consumers, folder::Folder, format::Identity, mark};

/// When a block is settled. A link keeps to one promise: blocks of different promises are not
/// settled in the order of appending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Promise {
    /// Once it is on this machine's disk.
    #[default]
    Durable,
    /// Once the consumer of [`WriterOptions::acks`](crate::WriterOptions::acks) has committed it.
    Committed,
}

/// A link and its token for a block.
pub(crate) type Token = (Arc<dyn Settle>, u64);

/// Durable blocks that wait for the consumer's commit, in order.
#[derive(Default)]
pub(crate) struct Held {
    consumer: Option<String>,
    waiting: VecDeque<Landed>,
    events: u64,
    looked: Option<Instant>,
    /// The mark at the last look, and since when it is unchanged.
    mark: Option<(u64, Instant)>,
    warned: Option<Instant>,
}

/// A durable block.
pub(crate) struct Landed {
    /// The position after it.
    pub(crate) end: u64,
    pub(crate) events: u64,
    pub(crate) token: Token,
    pub(crate) since: Instant,
}

impl Held {
    pub(crate) fn new(consumer: Option<String>) -> Self {
        Self {
            consumer,
            ..Self::default()
        }
    }

    /// The consumer whose commits acknowledge.
    pub(crate) fn consumer(&self) -> &str {
        self.consumer.as_deref().unwrap_or_default()
    }

    /// Returns the cure for a mark that cannot be read.
    pub(crate) fn cure(&self, folder: &Folder, error: &SpoolError) -> String {
        let (dir, consumer) = (folder.dir().display(), self.consumer());
        match error {
            SpoolError::NoConsumer { .. } => {
                format!("ackline spool consumers add {dir} {consumer}")
            }
            SpoolError::Corrupt { .. } => format!(
                "ackline spool consumers rm {dir} {consumer}; ackline spool consumers add {dir} {consumer}"
            ),
            _ => format!("ackline spool consumers ls {dir}"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Blocks and events that are held.
    pub(crate) fn sizes(&self) -> (usize, u64) {
        (self.waiting.len(), self.events)
    }

    pub(crate) fn push(&mut self, landed: Landed) {
        self.events += landed.events;
        self.waiting.push_back(landed);
    }

    /// When the mark is read next; `None` while nothing depends on it.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let oldest = self.waiting.front()?;
        Some(self.looked.map_or(oldest.since, |at| at + LOOK_EVERY))
    }

    /// Reads the mark. Returns the blocks that it has passed, in order.
    pub(crate) fn look(
        &mut self,
        folder: &Folder,
        identity: &Identity,
    ) -> Result<Vec<Token>, SpoolError> {
        let now = Instant::now();
        self.looked = Some(now);
        let name = self.consumer();
        let Some(mark) = consumers::read(folder, name)? else {
            return Err(SpoolError::no_consumer(name, folder));
        };
        let mark = mark.check(folder, identity)?;
        if self.mark.is_none_or(|(seen, _)| seen != mark.committed) {
            // A mark above the durable position acknowledges nothing.
            let durable = mark::Mark::of(folder)?;
            mark.check_end(folder, durable.position, durable.epoch)?;
            self.mark = Some((mark.committed, now));
        }
        let mut passed = Vec::new();
        while let Some(first) = self.waiting.front()
            && first.end <= mark.committed
        {
            self.events -= first.events;
            passed.extend(self.waiting.pop_front().map(|landed| landed.token));
        }
        Ok(passed)
    }

    /// How long blocks are held without the mark moving, if that must be logged now.
    pub(crate) fn slow(&mut self, slow: Duration, again: Duration) -> Option<Slow> {
        let now = Instant::now();
        let oldest = self.waiting.front()?;
        let since = self
            .mark
            .map_or(oldest.since, |(_, at)| at.max(oldest.since));
        let waited = now - since;
        let is_due = self.warned.is_none_or(|at| now - at >= again);
        if waited < slow || !is_due {
            return None;
        }
        self.warned = Some(now);
        Some(Slow {
            consumer: self.consumer.clone().unwrap_or_default(),
            mark: self.mark.map(|(mark, _)| mark),
            wanted: oldest.end,
            waited,
        })
    }

    /// Takes all held blocks.
    pub(crate) fn take(&mut self) -> Vec<Token> {
        self.events = 0;
        self.waiting.drain(..).map(|landed| landed.token).collect()
    }
}

/// Makes the consumer whose commits acknowledge, unless it exists or its reader is about to make
/// it.
pub(crate) fn make_consumer(folder: &Folder, name: &str) -> Result<(), SpoolError> {
    let spool = Spool::open_in(folder.clone())?;
    match spool.add_consumer(name, spool.first_kept()?) {
        Err(SpoolError::ConsumerExists { .. } | SpoolError::ConsumerBusy { .. }) => Ok(()),
        made => made,
    }
}

/// Calls each link once, in the order of its first token.
pub(crate) fn by_link(tokens: Vec<Token>, mut call: impl FnMut(&dyn Settle, &[u64])) {
    let mut links: Vec<(Arc<dyn Settle>, Vec<u64>)> = Vec::new();
    let mut places: HashMap<*const (), usize> = HashMap::new();
    for (link, token) in tokens {
        let place = *places
            .entry(Arc::as_ptr(&link).cast::<()>())
            .or_insert(links.len());
        match links.get_mut(place) {
            Some((_, tokens)) => tokens.push(token),
            None => links.push((link, vec![token])),
        }
    }
    for (link, tokens) in &links {
        call(&**link, tokens);
    }
}

/// Commits that come too slowly.
#[derive(Debug)]
pub(crate) struct Slow {
    pub(crate) consumer: String,
    pub(crate) mark: Option<u64>,
    pub(crate) wanted: u64,
    pub(crate) waited: Duration,
}

/// The interval of reading the mark while blocks are held.
const LOOK_EVERY: Duration = Duration::from_millis(20);
