//! Errors of a spool, each with a stable code.

use std::{io, path::PathBuf, sync::Arc};

use crate::{Holder, clock::rfc3339};

/// The reason a spool could not be opened, written or read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// Another writer holds the spool.
    #[error("spool {} is locked by process {pid}", dir.display())]
    Locked {
        /// The spool's directory.
        dir: PathBuf,
        /// The process that holds the lock (0 if unknown).
        pid: u32,
    },
    /// The directory holds another spool than the one that was asked for.
    #[error("{} belongs to spool {found}, not to spool {expected}", path.display())]
    Replaced {
        /// The file that was checked.
        path: PathBuf,
        /// The UUID that was asked for.
        expected: String,
        /// The UUID that was found.
        found: String,
    },
    /// A retired position was requested.
    #[error(
        "positions {position} to {first_kept} are not kept: they were removed or lost; the next one that is \
             kept is {first_kept}"
    )]
    Gap {
        /// The requested position.
        position: u64,
        /// The first position that is still kept.
        first_kept: u64,
    },
    /// A position was requested that is not durable yet, or that this spool never gave out.
    #[error("position {position} is above the durable position {durable}")]
    BehindCheckpoint {
        /// The requested position.
        position: u64,
        /// The durable position.
        durable: u64,
    },
    /// Durable bytes are no longer as they were written.
    #[error("{} is corrupt: {detail}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The expected and the found value.
        detail: String,
    },
    /// A format that this release does not read.
    #[error("{} has format {found} (needs a reader of at least {min_reader}), this release reads format {supported}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The oldest reader that may read it.
        min_reader: u64,
        /// The format that this release reads and writes.
        supported: u64,
    },
    /// The directory is not a spool and not empty.
    #[error("{} is not a spool: {detail}", dir.display())]
    NotASpool {
        /// The directory.
        dir: PathBuf,
        /// The fault, and the cure where there is one.
        detail: String,
    },
    /// A consumer's name that is not a letter or digit and up to 63 of `A-Z a-z 0-9 . _ -`.
    #[error(
        "consumer name {name:?} is not 1 to 64 of A-Z a-z 0-9 . _ - beginning with a letter or digit"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Another reader holds the consumer.
    #[error("consumer {name:?} of spool {} is held by process {pid}{}: one reader at a time; stop that one, \
             wait for it, or read under another consumer's name", dir.display(), about(holder.as_deref()))]
    ConsumerBusy {
        /// The consumer's name.
        name: String,
        /// The spool's directory.
        dir: PathBuf,
        /// The process that holds it (0 when it cannot be seen from here).
        pid: u32,
        /// The process that holds it, if it says so.
        holder: Option<Box<Holder>>,
    },
    /// A reader that lost its lease tries to move the mark.
    #[error("generation {ours} of consumer {name:?} may not move its mark any more: generation {newer} has \
             taken over{}; this reader must end", by(*pid, host))]
    StaleGeneration {
        /// The consumer's name.
        name: String,
        /// The generation of the lease.
        ours: u64,
        /// The generation that was found.
        newer: u64,
        /// The process that has it (0 if unknown).
        pid: u32,
        /// The host it runs on.
        host: String,
    },
    /// A lease is used in a fork of the process that holds it.
    #[error(
        "consumer {name:?} is held by the process that this one was forked from: take a lease of its own"
    )]
    LeaseForked {
        /// The consumer's name.
        name: String,
    },
    /// A consumer to be added exists already.
    #[error("consumer {name:?} exists, its mark is at position {committed}: move it with \
             `ackline spool consumers seek {} {name} --to POSITION`", dir.display())]
    ConsumerExists {
        /// The consumer's name.
        name: String,
        /// Its mark.
        committed: u64,
        /// The spool's directory.
        dir: PathBuf,
    },
    /// A consumer that does not exist.
    #[error("spool {} has no consumer {name:?}", dir.display())]
    NoConsumer {
        /// The consumer's name.
        name: String,
        /// The spool's directory.
        dir: PathBuf,
    },
    /// A file or directory that users other than the owner can read, or that belongs to another
    /// user.
    #[error("{}: {detail}", path.display())]
    Rights {
        /// The file or directory.
        path: PathBuf,
        /// Its fault, and the cure.
        detail: String,
    },
    /// A file system that may not keep acknowledged writes, or whose locks have no effect.
    #[error("{} is on {kind}, which may lose acknowledged events and let two writers in: use a local disk, or \
             allow it explicitly (unsafe_filesystem, --allow-unsafe-filesystem)", dir.display())]
    Filesystem {
        /// The spool's directory.
        dir: PathBuf,
        /// The file system.
        kind: &'static str,
    },
    /// A file that is written is no longer in the place where readers look for it.
    #[error("{} {detail}: it was removed, moved away or replaced while the spool was written, and what comes \
             would be lost; nothing more is acknowledged. Put it back, or take another directory, and start the \
             receiver again", path.display())]
    Moved {
        /// The file.
        path: PathBuf,
        /// The state of its place now.
        detail: String,
    },
    /// Another writer has opened the spool: this one has been replaced.
    #[error("spool {} was opened by another writer (epoch {}, this one has {}): nothing more is written or \
             acknowledged here; let one receiver run on it", dir.display(), epoch_text(*newer), epoch_text(*ours))]
    Fenced {
        /// The spool's directory.
        dir: PathBuf,
        /// The epoch of this writer.
        ours: u64,
        /// The epoch that was found.
        newer: u64,
    },
    /// A file that is written does not have the length that was written to it.
    #[error("{} has {found} bytes and {written} were written: somebody cut or changed it while the spool was \
             written, and what comes would be lost; nothing more is acknowledged. Look with `ackline spool \
             verify`, and start the receiver again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The bytes that were written.
        written: u64,
        /// The bytes that it has.
        found: u64,
    },
    /// A copy from a backup, whose consumers have read more than it holds.
    #[error("spool {} was put back from a backup: it ends at position {position}, and {who} at position \
             {reached}, of events that this copy does not hold; give the copy an identity of its own with \
             `ackline spool adopt {}`, or put back the newer one", dir.display(), dir.display())]
    Restored {
        /// The spool's directory.
        dir: PathBuf,
        /// The position after the last event of the copy.
        position: u64,
        /// The position that was reached.
        reached: u64,
        /// The reader that reached it, such as `consumer etl stands`.
        who: String,
    },
    /// A consumer's mark that is above the end of the spool.
    #[error("the mark of consumer {name:?} is at position {mark}, above the end {position} of spool {}: events \
             that it counts as done are not there. Start the receiver: after a power failure it finds the end \
             again; if it says the same, `ackline spool mend {}` goes on above the mark and notes the \
             positions in between as lost", dir.display(), dir.display())]
    MarkAhead {
        /// The spool's directory.
        dir: PathBuf,
        /// The consumer.
        name: String,
        /// Its mark.
        mark: u64,
        /// The position after the last event.
        position: u64,
    },
    /// A file in the spool that recovery cannot place.
    #[error("{}: {detail}; nothing was changed: `ackline spool mend {} --dry-run` shows the possible \
             repair", path.display(), dir.display())]
    Unplaced {
        /// The spool's directory.
        dir: PathBuf,
        /// The file.
        path: PathBuf,
        /// Its fault.
        detail: String,
    },
    /// Another process holds the lock under which marks go back and events are removed.
    #[error("process {pid} has been moving marks or removing events of spool {} for more than 10 seconds: \
             try again, or find out why it waits", dir.display())]
    MarksBusy {
        /// The spool's directory.
        dir: PathBuf,
        /// The process (0 when it cannot be seen from here).
        pid: u32,
    },
    /// A defect of Ackline ended the writer's thread.
    #[error("the writer of spool {} ended by a defect of Ackline ({text}): nothing more is written or \
             acknowledged; acknowledged events are kept. Please report it, and start the receiver again", dir.display())]
    Panicked {
        /// The spool's directory.
        dir: PathBuf,
        /// The text of the panic.
        text: String,
    },
    /// A byte budget that is too small for a spool.
    #[error(
        "a budget of {budget} bytes is below the smallest one, {least} bytes (64KiB): a larger one \
             (`WriterOptions::budget`, --budget)"
    )]
    Budget {
        /// The budget.
        budget: u64,
        /// The smallest one.
        least: u64,
    },
    /// A block waits for a commit, but no consumer is named for that.
    #[error(
        "no consumer is named for acknowledgements by commit: name it when the spool is opened (`acks`)"
    )]
    NoAckConsumer,
    /// An unknown column was requested.
    #[error("there is no column {name:?}")]
    Column {
        /// The name.
        name: String,
    },
    /// A block could not be expanded into events.
    #[error("{}: block at position {position}: {detail}", path.display())]
    Layout {
        /// The segment's file.
        path: PathBuf,
        /// The block's first position.
        position: u64,
        /// The error of its layout.
        detail: String,
    },
    /// A group commit or an event that does not fit into the memory of a reader.
    #[error(
        "{}: {what} at position {position} has {bytes} bytes or more, and a reader with a memory of {memory} \
             bytes has room for {room}: give it more (`ReadOptions::memory`, memory=, --memory, readMemory)",
        path.display()
    )]
    Memory {
        /// The segment's file.
        path: PathBuf,
        /// The position of the first event of the block or group.
        position: u64,
        /// `the group` or `an event of the block`.
        what: &'static str,
        /// Its bytes, as far as they are known.
        bytes: u64,
        /// The most bytes that it may have.
        room: u64,
        /// The reader's memory in bytes.
        memory: u64,
    },
    /// A block that cannot be stored (its body or its count does not fit).
    #[error("a block of {bytes} bytes and {count} events cannot be stored")]
    Block {
        /// The bytes of its body.
        bytes: u64,
        /// Its events.
        count: u64,
    },
    /// The writer was closed before the block was durable.
    #[error("the spool was closed before the block was durable")]
    Closed,
    /// The operating system refused.
    #[error("{} {}: {source}", action, path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
}

impl SpoolError {
    /// The stable code, such as `spool.locked`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locked { .. } => "spool.locked",
            Self::Replaced { .. } => "spool.replaced",
            Self::Gap { .. } => "spool.gap",
            Self::BehindCheckpoint { .. } => "spool.behind_checkpoint",
            Self::Corrupt { .. } => "spool.corrupt",
            Self::Format { .. } => "spool.format",
            Self::NotASpool { .. } => "spool.not_a_spool",
            Self::Name { .. } => "spool.consumer_name",
            Self::ConsumerBusy { .. } => "spool.consumer_busy",
            Self::StaleGeneration { .. } => "spool.stale_generation",
            Self::LeaseForked { .. } => "spool.lease_forked",
            Self::ConsumerExists { .. } => "spool.consumer_exists",
            Self::NoConsumer { .. } => "spool.no_consumer",
            Self::Rights { .. } => "spool.rights",
            Self::Filesystem { .. } => "spool.filesystem",
            Self::Moved { .. } => "spool.moved",
            Self::Fenced { .. } => "spool.fenced",
            Self::Changed { .. } => "spool.changed",
            Self::Restored { .. } => "spool.restored",
            Self::MarkAhead { .. } => "spool.mark_ahead",
            Self::Unplaced { .. } => "spool.unplaced",
            Self::MarksBusy { .. } => "spool.marks_busy",
            Self::Panicked { .. } => "spool.panic",
            Self::Budget { .. } => "spool.budget",
            Self::NoAckConsumer => "spool.no_ack_consumer",
            Self::Column { .. } => "spool.unknown_column",
            Self::Layout { .. } => "spool.layout",
            Self::Memory { .. } => "spool.memory",
            Self::Block { .. } => "spool.block_too_large",
            Self::Closed => "spool.closed",
            Self::Io { .. } => "spool.io",
        }
    }

    pub(crate) fn io(action: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// The error of a folder that is no spool.
    pub(crate) fn not_a_spool(dir: &std::path::Path, detail: impl Into<String>) -> Self {
        Self::NotASpool {
            dir: dir.to_owned(),
            detail: detail.into(),
        }
    }

    /// The error of a consumer that does not exist.
    pub(crate) fn no_consumer(name: &str, folder: &crate::folder::Folder) -> Self {
        Self::NoConsumer {
            name: name.to_owned(),
            dir: folder.dir().to_owned(),
        }
    }

    pub(crate) fn corrupt(path: &std::path::Path, detail: impl Into<String>) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            detail: detail.into(),
        }
    }

    /// Whether the disk or the quota is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if matches!(
            source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// Whether this process (EMFILE) or the system (ENFILE) has no file descriptor left: the disk
    /// is not at fault.
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. } if matches!(source.raw_os_error(), Some(23 | 24)))
    }

    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Returns the text about a holder, for a message.
fn about(holder: Option<&Holder>) -> String {
    let Some(holder) = holder else {
        return String::new();
    };
    let mut text = format!(
        " on host {} since {}",
        holder.host,
        rfc3339(holder.since_us)
    );
    if !holder.what.is_empty() {
        text = format!("{text} ({})", holder.what);
    }
    text
}

/// An epoch for a message: the number of the writer, and a part that distinguishes it from another
/// of that number.
pub(crate) fn epoch_text(epoch: u64) -> String {
    format!("{}.{:08x}", epoch >> 32, epoch & 0xFFFF_FFFF)
}

fn by(pid: u32, host: &str) -> String {
    match (pid, host) {
        (0, _) => String::new(),
        (pid, "") => format!(" (process {pid})"),
        (pid, host) => format!(" (process {pid} on host {host})"),
    }
}
