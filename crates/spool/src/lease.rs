//! Leases on a consumer's mark: one live reader at a time, under a lease with a generation; tools only
//! while no reader is live.
//!
//! The lease is a lock that ends with its process. A reader that has lost it nevertheless (its file
//! was removed, the kernel released it) finds a newer generation in the lock or the mark and is
//! refused.
//!
//! A mark that goes back, or is new, is checked and written under the lock under which events are
//! removed ([`Lock::marks`]), so that the events it holds are not removed a moment later. A mark
//! that goes forward needs no event and takes no lock.

mod marks;

use std::{
    fs::File,
    sync::Mutex,
    time::{Duration, Instant},
};

use ackline_core::locked;

use crate::{
    Spool, SpoolError,
    clock::now_us,
    consumers::{self, Consumer, Holder, LeaseText, Mark, check_name, lock_file},
    folder::{self, Folder},
    format::Identity,
    lock::{self, Lock, Other, Taken},
    mark, reserve,
};

pub(crate) use marks::busy;
use marks::{check_identity, check_kept, move_mark, read_mark};

/// The effect of a seek on its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sought {
    /// The mark before.
    pub from: u64,
    /// The mark now.
    pub to: u64,
    /// Kept events that will not be read.
    pub skipped: u64,
    /// Events that will be read a second time.
    pub repeated: u64,
}

/// A consumer held by this process: its mark moves through here alone. Dropping it releases the
/// consumer.
#[derive(Debug)]
pub struct Lease {
    name: String,
    folder: Folder,
    identity: Identity,
    generation: u64,
    lock: Lock,
    durable: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Whether the consumer has a file: without one it holds no events.
    exists: bool,
    touched: Instant,
}

impl Lease {
    /// The consumer's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts the leases of this consumer; a mark is moved only by the newest one.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The consumer's mark; `None` while it has no file.
    ///
    /// # Errors
    /// `spool.stale_generation`, `spool.lease_forked`, `spool.restored` or `spool.mark_ahead` above the durable
    /// position, `spool.corrupt`, `spool.io`.
    pub fn committed(&self) -> Result<Option<u64>, SpoolError> {
        let state = locked(&self.state);
        let found = self.current(&state)?;
        if let Some(mark) = &found {
            let durable = self.durable()?;
            mark.check_end(&self.folder, durable.position, durable.epoch)?;
        }
        Ok(found.map(|mark| mark.committed))
    }

    /// Moves the mark: the reader has finished with everything below `position`. Durable when it
    /// returns. It may go back, which is logged, but not below the first kept position.
    ///
    /// # Errors
    /// `spool.stale_generation` when another reader has taken over, `spool.lease_forked` in a fork of
    /// the process that holds it, `spool.behind_checkpoint` above the durable position, `spool.gap` back
    /// below the first kept position, `spool.no_consumer` when its file was removed, `spool.restored` or
    /// `spool.mark_ahead` when the mark is above the durable position, `spool.corrupt`, `spool.io`.
    pub fn commit(&self, position: u64) -> Result<(), SpoolError> {
        let mut state = locked(&self.state);
        let found = self.current(&state)?;
        let durable = self.durable()?;
        if found.as_ref().map(|mark| mark.committed) == Some(position) {
            return self.touch(&mut state);
        }
        let mut moved = move_mark(&self.folder, &self.name, found, position, durable)?;
        moved.mark.generation = self.generation;
        moved.mark.holder = self.text()?.holder;
        moved.write(&self.folder, &self.identity)?;
        state.exists = true;
        self.touch(&mut state)
    }

    /// Records that the reader lives; writes at most every 5 seconds.
    ///
    /// # Errors
    /// `spool.lease_forked`, `spool.io`.
    pub fn seen(&self) -> Result<(), SpoolError> {
        self.check_process()?;
        let mut state = locked(&self.state);
        if state.touched.elapsed() < SEEN_EVERY {
            return Ok(());
        }
        self.touch(&mut state)
    }

    fn touch(&self, state: &mut State) -> Result<(), SpoolError> {
        state.touched = Instant::now();
        self.lock.touch()
    }

    fn check_process(&self) -> Result<(), SpoolError> {
        if self.lock.is_ours() {
            return Ok(());
        }
        Err(SpoolError::LeaseForked {
            name: self.name.clone(),
        })
    }

    fn durable(&self) -> Result<mark::Mark, SpoolError> {
        mark::Mark::read(&self.durable, &self.folder.root().join(folder::MARK))
    }

    /// The text in its lock.
    fn text(&self) -> Result<LeaseText, SpoolError> {
        LeaseText::decode(&self.lock.text(), &self.folder, &self.name)
    }

    /// The current mark, if this lease may still move it.
    fn current(&self, state: &State) -> Result<Option<Mark>, SpoolError> {
        self.check_process()?;
        let found = read_mark(&self.folder, &self.identity, &self.name)?;
        if !self.lock.is_in_place() {
            check_identity(&self.folder, &self.identity)?;
            let text = self.newer_text()?;
            let marked = found.as_ref().map_or(0, |mark| mark.generation);
            return Err(self.stale(text.generation.max(marked), text.holder));
        }
        let text = self.text()?;
        if text.generation != self.generation {
            return Err(self.stale(text.generation, text.holder));
        }
        match found {
            Some(mark) if mark.generation != self.generation && state.exists => {
                Err(self.stale(mark.generation, mark.holder))
            }
            None if state.exists => Err(SpoolError::no_consumer(&self.name, &self.folder)),
            found => Ok(found),
        }
    }

    /// The text of the lock that has replaced this lease's; empty while it is being written.
    fn newer_text(&self) -> Result<LeaseText, SpoolError> {
        let other = lock::holder(self.folder.consumers()?, &lock_file(&self.name))?;
        let text = other.map(|other| LeaseText::decode(&other.text, &self.folder, &self.name));
        Ok(text.and_then(Result::ok).unwrap_or_default())
    }

    fn stale(&self, newer: u64, holder: Option<Holder>) -> SpoolError {
        let holder = holder.map(|holder| (holder.pid, holder.host));
        let (pid, host) = holder.unwrap_or_default();
        SpoolError::StaleGeneration {
            name: self.name.clone(),
            ours: self.generation,
            newer,
            pid,
            host,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let state = locked(&self.state);
        let Ok(Some(mut mark)) = self.current(&state) else {
            return;
        };
        mark.holder = None;
        mark.seen_us = now_us();
        if let Err(error) = consumers::write(&self.folder, &self.identity, &mark) {
            tracing::warn!(code = "consumer.release", consumer = self.name, %error,
                "the lease ended without saying so");
        }
    }
}

impl Spool {
    /// Takes a consumer for this process, waiting for at most `wait` while another reader has it.
    /// `holder` names this reader, for the error of a reader that is refused. A consumer that does
    /// not exist yet is made at `create_at`; without that it has no file until the first commit.
    ///
    /// # Errors
    /// `spool.consumer_busy` naming the holder, `spool.consumer_name`, `spool.behind_checkpoint` when
    /// `create_at` is above the durable position, `spool.gap` when it is below the first kept one,
    /// `spool.restored` or `spool.mark_ahead` when the consumer's mark is above the durable position,
    /// `spool.replaced` when the directory or the consumer's file is another spool's,
    /// `spool.marks_busy`, `spool.corrupt`, `spool.io`.
    pub fn lease(
        &self,
        name: &str,
        holder: &str,
        wait: Duration,
        create_at: Option<u64>,
    ) -> Result<Lease, SpoolError> {
        let lock = self.wait_for(name, wait)?;
        let found = self.sound_mark(name)?;
        let before = self.former_text(&lock, name);
        let held = found.as_ref().map_or(0, |mark| mark.generation);
        let generation = held.max(before.generation).saturating_add(1);
        let holder = Holder::this(holder);
        let made = found.is_none();
        let (mark, marks) = match (found, create_at) {
            (None, Some(position)) => {
                let marks = Lock::marks(&self.folder)?;
                self.check_kept(position)?;
                (Some(Mark::new(name, position)), Some(marks))
            }
            (found, _) => (found, None),
        };
        self.say(&lock, &LeaseText::encode(&holder, generation))?;
        if let Some(mut mark) = mark.clone() {
            mark.epoch = self.durable_mark()?.epoch;
            mark.generation = generation;
            mark.holder = Some(holder);
            mark.seen_us = now_us();
            consumers::write(&self.folder, &self.identity, &mark)?;
        }
        drop(marks);
        tracing::info!(
            code = "consumer.leased",
            consumer = name,
            generation,
            made,
            committed = mark.as_ref().map(|mark| mark.committed),
            "a reader holds a consumer"
        );
        Ok(Lease {
            name: name.to_owned(),
            folder: self.folder.clone(),
            identity: self.identity.clone(),
            generation,
            lock,
            durable: self.folder.root().read_file(folder::MARK)?,
            state: Mutex::new(State {
                exists: mark.is_some(),
                touched: Instant::now(),
            }),
        })
    }

    /// All consumers, by name, also those whose marks are above the durable position.
    ///
    /// # Errors
    /// `spool.corrupt` naming the file that is no mark, `spool.replaced` for one of another spool,
    /// `spool.format`, `spool.io`.
    pub fn consumers(&self) -> Result<Vec<Consumer>, SpoolError> {
        let known = |mark: Mark| {
            mark.check(&self.folder, &self.identity)?
                .with_lock(&self.folder)
        };
        consumers::list(&self.folder)?
            .into_iter()
            .map(known)
            .collect()
    }

    /// Makes a consumer before its reader exists, so that nothing that it will need is removed.
    ///
    /// # Errors
    /// `spool.consumer_exists`, `spool.consumer_busy`, `spool.consumer_name`, `spool.gap` below the
    /// first kept position, `spool.behind_checkpoint` above the durable one, `spool.restored` or
    /// `spool.mark_ahead` when it exists above that, `spool.marks_busy`, `spool.io`.
    pub fn add_consumer(&self, name: &str, position: u64) -> Result<(), SpoolError> {
        let lock = self.hold(name)?;
        let added = self.add_held(name, position);
        if added.is_err() && !self.folder.consumers()?.has(&consumers::file(name))? {
            self.forget_lock(name, lock)?;
        }
        added
    }

    fn add_held(&self, name: &str, position: u64) -> Result<(), SpoolError> {
        if let Some(mark) = self.sound_mark(name)? {
            return Err(SpoolError::ConsumerExists {
                name: name.to_owned(),
                committed: mark.committed,
                dir: self.folder.dir().to_owned(),
            });
        }
        let _marks = Lock::marks(&self.folder)?;
        self.check_kept(position)?;
        let mut mark = Mark::new(name, position);
        mark.epoch = self.durable_mark()?.epoch;
        consumers::write(&self.folder, &self.identity, &mark)?;
        tracing::info!(
            code = "consumer.added",
            consumer = name,
            position,
            "a consumer was added"
        );
        Ok(())
    }

    /// Removes a consumer, which frees the events that it alone held. Returns whether there was
    /// one. A file that is no mark is removed too.
    ///
    /// # Errors
    /// `spool.consumer_busy` while a reader holds it, `spool.consumer_name`, `spool.io`.
    pub fn remove_consumer(&self, name: &str) -> Result<bool, SpoolError> {
        let lock = self.hold(name)?;
        let removed = consumers::remove(&self.folder, name)?;
        self.forget_lock(name, lock)?;
        if removed {
            tracing::info!(
                code = "consumer.removed",
                consumer = name,
                "a consumer was removed"
            );
        }
        Ok(removed)
    }

    /// Moves the mark of a consumer that no reader holds.
    ///
    /// # Errors
    /// `spool.consumer_busy` while a reader holds it, `spool.no_consumer`, `spool.consumer_name`,
    /// `spool.gap` below the first kept position, `spool.behind_checkpoint` above the durable one,
    /// `spool.restored` or `spool.mark_ahead` when the mark is above that, `spool.marks_busy`,
    /// `spool.corrupt`, `spool.io`.
    pub fn seek_consumer(&self, name: &str, position: u64) -> Result<Sought, SpoolError> {
        let lock = self.hold(name)?;
        let Some(mut mark) = self.sound_mark(name)? else {
            self.forget_lock(name, lock)?;
            return Err(SpoolError::no_consumer(name, &self.folder));
        };
        let text = self.former_text(&lock, name);
        let _marks = Lock::marks(&self.folder)?;
        let first_kept = self.check_kept(position)?;
        let from = mark.committed;
        mark.committed = position;
        mark.epoch = self.durable_mark()?.epoch;
        // A reader that lost its lock unnoticed must not undo this.
        mark.generation = mark.generation.max(text.generation).saturating_add(1);
        mark.updated_us = now_us();
        mark.holder = None;
        consumers::write(&self.folder, &self.identity, &mark)?;
        tracing::info!(
            code = "consumer.sought",
            consumer = name,
            from,
            to = position,
            "a mark was moved by hand"
        );
        Ok(Sought {
            from,
            to: position,
            skipped: position.saturating_sub(from.max(first_kept)),
            repeated: from.saturating_sub(position),
        })
    }

    /// Moves a consumer's mark without a lease: the consumer has finished with everything below
    /// `position`. Durable when it returns. It may go back, which is logged, but not below the
    /// first kept position.
    ///
    /// # Errors
    /// `spool.consumer_busy` while another process holds the consumer, `spool.consumer_name`,
    /// `spool.behind_checkpoint` above the durable position, `spool.gap` back below the first kept one,
    /// `spool.restored` or `spool.mark_ahead` when the mark is above the durable position,
    /// `spool.marks_busy`, `spool.corrupt`, `spool.io`.
    pub fn commit_mark(&self, name: &str, position: u64) -> Result<(), SpoolError> {
        check_name(name)?;
        check_identity(&self.folder, &self.identity)?;
        if let Some(other) = lock::holder(self.folder.consumers()?, &lock_file(name))? {
            let text = LeaseText::decode(&other.text, &self.folder, name).unwrap_or_default();
            let is_ours = text.holder.is_some_and(|holder| holder.is_this());
            if !is_ours {
                return Err(self.busy(name, &other));
            }
        }
        let found = read_mark(&self.folder, &self.identity, name)?;
        let durable = self.durable_mark()?;
        move_mark(&self.folder, name, found, position, durable)?.write(&self.folder, &self.identity)
    }

    /// The process that writes the spool now; 0 when it cannot be seen from here.
    ///
    /// # Errors
    /// `spool.io`.
    pub fn writer(&self) -> Result<Option<u32>, SpoolError> {
        let other = lock::holder(self.folder.root(), folder::LOCK)?;
        Ok(other.map(|other| other.pid))
    }

    /// Returns the text of the last reader in a lock that this process has taken. An unsound text,
    /// as power loss leaves it, is ignored: the mark holds the generation too.
    fn former_text(&self, lock: &Lock, name: &str) -> LeaseText {
        LeaseText::decode(&lock.text(), &self.folder, name).unwrap_or_else(|error| {
            tracing::warn!(code = "consumer.lease_unsound", dir = %self.folder.dir().display(), consumer = name,
                %error, "the last reader's text cannot be read: its mark counts");
            LeaseText::default()
        })
    }

    fn wait_for(&self, name: &str, wait: Duration) -> Result<Lock, SpoolError> {
        let deadline = Instant::now() + wait;
        loop {
            let held = self.hold(name);
            let left = deadline.saturating_duration_since(Instant::now());
            match held {
                Err(SpoolError::ConsumerBusy { .. }) if !left.is_zero() => {
                    std::thread::sleep(left.min(LOOK_EVERY));
                }
                held => return held,
            }
        }
    }

    fn hold(&self, name: &str) -> Result<Lock, SpoolError> {
        check_name(name)?;
        check_identity(&self.folder, &self.identity)?;
        match Lock::take(self.folder.consumers()?, &lock_file(name), &self.folder)? {
            Taken::Ours(lock) => Ok(lock),
            Taken::Theirs(other) => Err(self.busy(name, &other)),
        }
    }

    /// Writes the holder into a lock; on a full disk with space from the reserve.
    fn say(&self, lock: &Lock, text: &str) -> Result<(), SpoolError> {
        match lock.say(&self.folder, text) {
            Err(error) if error.is_full() && reserve::give_piece(&self.folder) => {
                lock.say(&self.folder, text)
            }
            said => said,
        }
    }

    /// Removes the lock of a name without a consumer, and releases it.
    fn forget_lock(&self, name: &str, lock: Lock) -> Result<(), SpoolError> {
        self.folder
            .disk()
            .remove(self.folder.consumers()?, &lock_file(name))?;
        drop(lock);
        Ok(())
    }

    fn busy(&self, name: &str, other: &Other) -> SpoolError {
        busy(&self.folder, name, other)
    }

    /// A consumer's mark, if there is one and it is not above the durable position.
    fn sound_mark(&self, name: &str) -> Result<Option<Mark>, SpoolError> {
        let found = read_mark(&self.folder, &self.identity, name)?;
        if let Some(mark) = &found {
            let durable = self.durable_mark()?;
            mark.check_end(&self.folder, durable.position, durable.epoch)?;
        }
        Ok(found)
    }

    fn durable_mark(&self) -> Result<mark::Mark, SpoolError> {
        mark::Mark::read(&self.mark, &self.folder.root().join(folder::MARK))
    }

    /// Checks that the events from `position` on can be read. Returns the first kept position. The
    /// lock on marks is held.
    fn check_kept(&self, position: u64) -> Result<u64, SpoolError> {
        check_kept(&self.folder, position, self.durable_mark()?.position)
    }
}

/// The interval between tries to take a held consumer.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The least interval between two records that a live reader lives.
const SEEN_EVERY: Duration = Duration::from_secs(5);
