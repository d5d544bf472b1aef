//! The recovery of the spool, specified small enough to be read in one sitting and explored exhaustively.
//!
//! Each event is a group of its own, and a position is a small number. **On the disk** ([`disk`]) are two slots of
//! the durable mark, segments of groups with their indexes, `start`, `losses` and one consumer's mark. The slots, the
//! groups and the indexes each have two values: in the page cache, which every process reads, and on the disk, which
//! is left after a loss of power. The replacement of a whole file, with its syncs, is one durable step.
//!
//! **A writer** ([`writer`]) opens the spool in this order ([`opening`]), and may die between any two steps:
//!
//! ```text
//! raise the epoch (one slot, then the other) ─► read both back ─► scan ─► note losses ─► publish the position if it needs that
//!   ─► set aside empty segments ─► rewrite the last group (segment, index, shorten the old one)
//!   ─► publish ─► write start ─► running
//! ```
//!
//! Then it makes groups durable ([`landing`]). After a failed sync it cuts the entry, then the group, and leaves the segment:
//!
//! ```text
//! check the epoch ─► write the group ─► sync ─► write its entry ─► sync ─► check the epoch ─► publish ─► ack
//! ```
//!
//! **Around the writers** ([`world`]): retention (lock, read the mark, write `start`, unlock, remove), a consumer
//! that commits and seeks back, a second writer that opens the spool although the first one lives, process death,
//! loss of power (each unsynced write is there, missing, or torn with its whole sector), a sync that fails and leaves
//! its pages in the cache as if they were written, a damaged group, index or slot, a segment removed by hand, and a
//! backup that is put back.
//!
//! **The properties** ([`properties`]): no published event is lost or hidden; no position has two events; the next
//! position never goes back; damage is noted, and nothing else is; a replaced writer acknowledges no event that it
//! began to write after that; every event that counts is on the disk; the events that a consumer may ask for are
//! kept; a copy that was put back is noticed, and no other spool is taken for one. [`Break`] lists deliberate errors:
//! each breaks a property.
//!
//! The model assumes that one writer opens at a time (only a running writer can lose the lock), and that a seek, and
//! a look followed by the removal of a file, are one step each. Ages and budgets, several consumers, leases, format
//! 1, and `mend` are not in the model.

pub mod disk;
pub mod landing;
pub mod opening;
pub mod plans;
pub mod properties;
pub mod world;
pub mod writer;

use disk::{Cell, Index, Segment, Slot, Start};
use properties::Fault;
use stateright::{Model, Property};
use world::{Backup, Consumer, Retire};
use writer::Writer;

/// The budget of each kind of event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Groups that are appended.
    pub groups: u8,
    /// Writers that open the spool.
    pub opens: u8,
    /// Writers that open the spool although another one lives.
    pub intruders: u8,
    /// Processes that die while the page cache lives on.
    pub kills: u8,
    /// Losses of power.
    pub cuts: u8,
    /// Syncs that fail.
    pub failures: u8,
    /// Groups, indexes or slots that are damaged, or segments removed by hand, while no writer runs.
    pub damages: u8,
    /// Sweeps of retention.
    pub sweeps: u8,
    /// Seeks back of the consumer.
    pub seeks: u8,
    /// Backups that are made and put back.
    pub restores: u8,
}

/// A deliberate error in the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Break {
    /// The epoch is not checked after the writes.
    SkipCheck,
    /// The epoch is checked only before the writes.
    CheckBefore,
    /// The spool is listed and scanned before the epoch is raised.
    ScanBeforeRaise,
    /// The raised epoch is not read back.
    SkipReadBack,
    /// Recovery trusts the last group because it can be read.
    SkipRewrite,
    /// Recovery renames the index of the last group into its place before the segment.
    IndexFirst,
    /// A group is published and acknowledged before its entry is synced.
    PublishBeforeSync,
    /// A failed sync is tried again, and counts as good when it succeeds.
    RetrySync,
    /// After a failed sync the group is cut before its entry.
    CutBodyFirst,
    /// The files of a segment that could not be begun are removed, also if another writer made them.
    RemoveForeign,
    /// A failed sync leaves the entry and the group, and the next group goes to the next position.
    SkipCut,
    /// The next position is the durable mark's.
    MarkAlone,
    /// `start` holds no position.
    StartWithoutPosition,
    /// An index that is damaged is not rebuilt from its segment.
    NoSeals,
    /// A segment that cannot be read is set aside before its loss is noted.
    AsideFirst,
    /// Losses are noted after the rewriting.
    NoteLast,
    /// Groups of an older segment count although a later one had their positions.
    IgnoreBelow,
    /// Files are removed before `start` is written.
    StartAfterRemoval,
    /// Retention reads the consumer's mark without the lock.
    MarksUnlocked,
    /// Recovery writes `start` as it was when the writer opened.
    StartFromMemory,
    /// Consumers' marks ahead of the spool are not checked.
    SkipMarks,
    /// The epoch of the consumer's mark is compared with the one that the refused writer raised.
    RestoredByMark,
}

/// One exploration: its budget of events, and at most one deliberate error.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The budget of events.
    pub budget: Budget,
    /// The deliberate error.
    pub broken: Option<Break>,
}

impl Plan {
    /// Whether this error is made.
    pub(crate) fn has(&self, broken: Break) -> bool {
        self.broken == Some(broken)
    }
}

/// A spool with its writers, its consumer and its faults.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The durable mark; a slot that is torn is `None`.
    pub slots: [Cell<Option<Slot>>; 2],
    /// Segments in the order of their first positions.
    pub segments: Vec<Segment>,
    /// An index without a segment: the positions that it names.
    pub orphan: Option<(u8, u8)>,
    /// The file `start`.
    pub start: Start,
    /// The file `losses`: a bit for each position.
    pub losses: u8,
    /// The consumer's mark.
    pub consumer: Consumer,
    /// The writers.
    pub writers: [Writer; 2],
    /// The present sweep of retention.
    pub retire: Retire,
    /// A copy of the quiet spool.
    pub backup: Option<Box<Backup>>,
    /// The rest of the budget of events.
    pub left: Budget,
    /// The past of the spool.
    pub past: Past,
    /// The invariants that were broken.
    pub fault: Option<Fault>,
}

/// The past of a spool, which the properties compare with its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Past {
    /// The event that readers were given for each position; 0 for none.
    pub given: [u8; 8],
    /// Positions that were damaged: a bit for each.
    pub damaged: u8,
    /// Whether a copy was put back.
    pub is_restored: bool,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The next step of a writer.
    Step(usize),
    /// The sync that a writer waits for fails.
    FailSync(usize),
    /// A writer fails to cut back, and leaves the segment as it is.
    FailCut(usize),
    /// A writer begins to open the spool.
    Open(usize),
    /// A writer's process dies.
    Kill(usize),
    /// The power fails; a digit of base 3 for each unsynced write: lost, kept, torn.
    Cut(u8),
    /// A sector is damaged, or a segment removed.
    Damage(world::Damage),
    /// A writer's retention begins a sweep.
    Sweep(usize),
    /// The next step of the sweep.
    Retire,
    /// The consumer commits the events that it can see.
    Commit,
    /// The consumer seeks back to a position.
    Seek(u8),
    /// A copy is made.
    Backup,
    /// The copy is put back.
    Restore,
}

impl Model for Plan {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            slots: [Cell::durable(Some(Slot::default())); 2],
            segments: Vec::new(),
            orphan: None,
            start: Start::default(),
            losses: 0,
            consumer: Consumer::default(),
            writers: Default::default(),
            retire: Retire::Idle,
            backup: None,
            left: self.budget,
            past: Past::default(),
            fault: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_none() {
            Self::work(state, actions);
            Self::disturb(state, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Step(who) => self.step(&mut next, who),
            Action::FailSync(who) => self.fail_sync(&mut next, who),
            Action::FailCut(who) => self.fail_cut(&mut next, who),
            _ => self.happen(&mut next, action),
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

/// An index that names nothing yet.
pub(crate) const EMPTY: Index = Index::Names(0);
