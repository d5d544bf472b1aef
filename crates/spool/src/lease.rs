//! Who may move a consumer's mark: one live reader at a time, under a lease with a generation; tools only
//! while no reader is live.
//!
//! The lease is a lock that ends with its process. Whoever lost it all the same (its file was removed,
//! the kernel let go of it) finds a newer generation in the lock or the mark and is refused.

use std::{
    fs::File,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Spool, SpoolError,
    consumers::{self, Consumer, Holder, Mark, check_name, holder_of, lock_file},
    disk::{Disk, RealDisk},
    format::{DurableMark, Identity, Layout, now_us},
    lock::{self, Lock, Other, Taken},
};

/// What moving a mark by hand does to what its consumer reads next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sought {
    /// The mark before.
    pub from: u64,
    /// The mark now.
    pub to: u64,
    /// Events that are kept and will not be read.
    pub skipped: u64,
    /// Events that will be read a second time.
    pub repeated: u64,
}

/// A consumer held by this process: its mark moves through here alone. Dropping it lets go of it.
#[derive(Debug)]
pub struct Lease {
    name: String,
    layout: Layout,
    identity: Identity,
    generation: u64,
    lock: Lock,
    durable: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Whether the consumer has a file: without one there is nothing that it holds.
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
    /// `spool.stale_generation`, `spool.lease_forked`, `spool.corrupt`, `spool.io`.
    pub fn committed(&self) -> Result<Option<u64>, SpoolError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.current(&state)?.map(|mark| mark.committed))
    }

    /// Moves the mark: everything below `position` is done with. Durable when it returns. It may go
    /// back, which is logged.
    ///
    /// # Errors
    /// `spool.stale_generation` when another reader has taken over, `spool.lease_forked` in a fork of
    /// the process that holds it, `spool.behind_checkpoint` above the durable position,
    /// `spool.no_consumer` when its file was removed, `spool.corrupt`, `spool.io`.
    pub fn commit(&self, position: u64) -> Result<(), SpoolError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.current(&state)?;
        check_durable(&self.durable, &self.layout, position)?;
        let before = found.as_ref().map(|mark| mark.committed);
        if before == Some(position) {
            return self.touch(&mut state);
        }
        if let Some(before) = before.filter(|before| *before > position) {
            goes_back(&self.name, before, position);
        }
        let mut mark = found.unwrap_or_else(|| Mark::new(&self.name, position));
        mark.committed = position;
        mark.generation = self.generation;
        mark.updated_us = now_us();
        mark.seen_us = mark.updated_us;
        mark.holder = holder_of(&self.lock.text());
        consumers::write(&mut RealDisk, &self.layout, &self.identity, &mark)?;
        state.exists = true;
        self.touch(&mut state)
    }

    /// Says that the reader lives; writes at most every 5 seconds.
    ///
    /// # Errors
    /// `spool.lease_forked`, `spool.io`.
    pub fn seen(&self) -> Result<(), SpoolError> {
        self.check_process()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The mark as it stands, if it is still this lease's to move.
    fn current(&self, state: &State) -> Result<Option<Mark>, SpoolError> {
        self.check_process()?;
        let found = read_mark(&self.layout, &self.identity, &self.name)?;
        if !self.lock.is_in_place() {
            check_identity(&self.layout, &self.identity)?;
            let other = lock::holder(&lock_file(&self.layout, &self.name))?;
            let text = other.map(|other| other.text).unwrap_or_default();
            let newer = generation_of(&text).max(found.as_ref().map_or(0, |mark| mark.generation));
            return Err(self.stale(newer, holder_of(&text)));
        }
        let text = self.lock.text();
        if generation_of(&text) != self.generation {
            return Err(self.stale(generation_of(&text), holder_of(&text)));
        }
        match found {
            Some(mark) if mark.generation != self.generation && state.exists => {
                Err(self.stale(mark.generation, mark.holder))
            }
            None if state.exists => Err(SpoolError::NoConsumer {
                name: self.name.clone(),
                dir: self.layout.dir.clone(),
            }),
            found => Ok(found),
        }
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
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(Some(mut mark)) = self.current(&state) else {
            return;
        };
        mark.holder = None;
        mark.seen_us = now_us();
        if let Err(error) = consumers::write(&mut RealDisk, &self.layout, &self.identity, &mark) {
            tracing::warn!(code = "consumer.release", consumer = self.name, %error,
                "the lease ended without saying so");
        }
    }
}

impl Spool {
    /// Takes a consumer for this process, waiting for at most `wait` while another reader has it.
    /// `holder` says who it is, for the one that is refused. A consumer that does not exist yet is made
    /// at `create_at`; without that it stays without a file until the first commit.
    ///
    /// # Errors
    /// `spool.consumer_busy` naming the holder, `spool.consumer_name`, `spool.behind_checkpoint` when
    /// `create_at` is above the durable position, `spool.replaced` when the directory or the
    /// consumer's file is another spool's, `spool.corrupt`, `spool.io`.
    pub fn lease(
        &self,
        name: &str,
        holder: &str,
        wait: Duration,
        create_at: Option<u64>,
    ) -> Result<Lease, SpoolError> {
        let lock = self.wait_for(name, wait)?;
        let found = read_mark(&self.layout, &self.identity, name)?;
        let held = found.as_ref().map_or(0, |mark| mark.generation);
        let generation = held.max(generation_of(&lock.text())).saturating_add(1);
        let holder = Holder::this(holder);
        let mut text = holder.encode();
        text["generation"] = generation.into();
        lock.say(&format!("{text}\n"))?;
        let made = found.is_none();
        let mark = match (found, create_at) {
            (Some(mark), _) => Some(mark),
            (None, None) => None,
            (None, Some(position)) => {
                self.check_durable(position)?;
                Some(Mark::new(name, position))
            }
        };
        if let Some(mut mark) = mark.clone() {
            mark.generation = generation;
            mark.holder = Some(holder);
            mark.seen_us = now_us();
            consumers::write(&mut RealDisk, &self.layout, &self.identity, &mark)?;
        }
        tracing::info!(
            code = "consumer.leased",
            consumer = name,
            generation,
            made,
            committed = mark.as_ref().map(|mark| mark.committed),
            "a reader holds a consumer"
        );
        let path = self.layout.durable();
        Ok(Lease {
            name: name.to_owned(),
            layout: self.layout.clone(),
            identity: self.identity.clone(),
            generation,
            lock,
            durable: File::open(&path).map_err(|error| SpoolError::io("open", &path, error))?,
            state: Mutex::new(State {
                exists: mark.is_some(),
                touched: Instant::now(),
            }),
        })
    }

    /// All consumers, by name.
    ///
    /// # Errors
    /// `spool.corrupt` naming the file that is no mark, `spool.replaced` one of another spool,
    /// `spool.format`, `spool.io`.
    pub fn consumers(&self) -> Result<Vec<Consumer>, SpoolError> {
        let known = |mark: Mark| {
            mark.check(&self.layout, &self.identity)?
                .with_lock(&self.layout)
        };
        consumers::list(&self.layout)?
            .into_iter()
            .map(known)
            .collect()
    }

    /// Makes a consumer before its reader exists, so that nothing is removed that it will want.
    ///
    /// # Errors
    /// `spool.consumer_exists`, `spool.consumer_busy`, `spool.consumer_name`, `spool.gap` below the
    /// first kept position, `spool.behind_checkpoint` above the durable one, `spool.io`.
    pub fn add_consumer(&self, name: &str, position: u64) -> Result<(), SpoolError> {
        let lock = self.hold(name)?;
        let added = self.add_held(name, position);
        if added.is_err() && !consumers::file(&self.layout, name).exists() {
            self.forget_lock(name, lock)?;
        }
        added
    }

    fn add_held(&self, name: &str, position: u64) -> Result<(), SpoolError> {
        if let Some(mark) = read_mark(&self.layout, &self.identity, name)? {
            return Err(SpoolError::ConsumerExists {
                name: name.to_owned(),
                committed: mark.committed,
                dir: self.layout.dir.clone(),
            });
        }
        self.check_kept(position)?;
        consumers::write(
            &mut RealDisk,
            &self.layout,
            &self.identity,
            &Mark::new(name, position),
        )?;
        tracing::info!(
            code = "consumer.added",
            consumer = name,
            position,
            "a consumer was added"
        );
        Ok(())
    }

    /// Forgets a consumer, which frees what it alone held; whether there was one. A file that is no mark
    /// goes too.
    ///
    /// # Errors
    /// `spool.consumer_busy` while a reader holds it, `spool.consumer_name`, `spool.io`.
    pub fn remove_consumer(&self, name: &str) -> Result<bool, SpoolError> {
        let lock = self.hold(name)?;
        let removed = consumers::remove(&mut RealDisk, &self.layout, name)?;
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
    /// `spool.corrupt`, `spool.io`.
    pub fn seek_consumer(&self, name: &str, position: u64) -> Result<Sought, SpoolError> {
        let lock = self.hold(name)?;
        let Some(mut mark) = read_mark(&self.layout, &self.identity, name)? else {
            self.forget_lock(name, lock)?;
            return Err(SpoolError::NoConsumer {
                name: name.to_owned(),
                dir: self.layout.dir.clone(),
            });
        };
        let first_kept = self.check_kept(position)?;
        let from = mark.committed;
        mark.committed = position;
        // A reader that lost its lock without knowing must not undo this.
        mark.generation = mark
            .generation
            .max(generation_of(&lock.text()))
            .saturating_add(1);
        mark.updated_us = now_us();
        mark.holder = None;
        consumers::write(&mut RealDisk, &self.layout, &self.identity, &mark)?;
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

    /// Moves a consumer's mark without a lease: everything below `position` is done with. Durable when
    /// it returns. It may go back, which is logged.
    ///
    /// # Errors
    /// `spool.consumer_busy` while another process holds the consumer, `spool.consumer_name`,
    /// `spool.behind_checkpoint` above the durable position, `spool.corrupt`, `spool.io`.
    pub fn commit_mark(&self, name: &str, position: u64) -> Result<(), SpoolError> {
        check_name(name)?;
        check_identity(&self.layout, &self.identity)?;
        self.check_durable(position)?;
        if let Some(other) = lock::holder(&lock_file(&self.layout, name))?
            && other.pid != std::process::id()
        {
            return Err(self.busy(name, &other));
        }
        let mut mark = read_mark(&self.layout, &self.identity, name)?
            .unwrap_or_else(|| Mark::new(name, position));
        if mark.committed > position {
            goes_back(name, mark.committed, position);
        }
        mark.committed = position;
        mark.updated_us = now_us();
        mark.seen_us = mark.updated_us;
        consumers::write(&mut RealDisk, &self.layout, &self.identity, &mark)
    }

    /// The process that writes the spool now; 0 when it cannot be seen from here.
    ///
    /// # Errors
    /// `spool.io`.
    pub fn writer(&self) -> Result<Option<u32>, SpoolError> {
        Ok(lock::holder(&self.layout.lock())?.map(|other| other.pid))
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
        check_identity(&self.layout, &self.identity)?;
        match Lock::take(&lock_file(&self.layout, name), &self.layout)? {
            Taken::Ours(lock) => Ok(lock),
            Taken::Theirs(other) => Err(self.busy(name, &other)),
        }
    }

    /// Removes the lock of a name under which there is no consumer, and lets go of it.
    fn forget_lock(&self, name: &str, lock: Lock) -> Result<(), SpoolError> {
        RealDisk.remove(&lock_file(&self.layout, name))?;
        drop(lock);
        Ok(())
    }

    fn busy(&self, name: &str, other: &Other) -> SpoolError {
        busy(&self.layout, name, other)
    }

    fn check_durable(&self, position: u64) -> Result<(), SpoolError> {
        check_durable(&self.mark, &self.layout, position)
    }

    /// Whether the events from `position` on can be read; answers the first kept position.
    fn check_kept(&self, position: u64) -> Result<u64, SpoolError> {
        self.check_durable(position)?;
        let first_kept = self.first_kept()?;
        if position < first_kept {
            return Err(SpoolError::Gap {
                position,
                first_kept,
            });
        }
        Ok(first_kept)
    }
}

/// The error of who wants a consumer that `other` holds.
pub(crate) fn busy(layout: &Layout, name: &str, other: &Other) -> SpoolError {
    let holder = holder_of(&other.text);
    let said = holder.as_ref().map_or(0, |holder| holder.pid);
    SpoolError::ConsumerBusy {
        name: name.to_owned(),
        dir: layout.dir.clone(),
        pid: if other.pid == 0 { said } else { other.pid },
        holder: holder.map(Box::new),
    }
}

fn read_mark(layout: &Layout, identity: &Identity, name: &str) -> Result<Option<Mark>, SpoolError> {
    consumers::read(layout, name)?
        .map(|mark| mark.check(layout, identity))
        .transpose()
}

/// Whether the directory still holds the spool that was opened, under the name it had then.
fn check_identity(layout: &Layout, identity: &Identity) -> Result<(), SpoolError> {
    let path = layout.identity();
    let Some(found) = Identity::read(&path)? else {
        return Err(SpoolError::NotASpool {
            dir: layout.dir.clone(),
            detail: "its spool.json is gone".to_owned(),
        });
    };
    if found.uuid == identity.uuid {
        return Ok(());
    }
    Err(SpoolError::Replaced {
        path,
        expected: identity.uuid.clone(),
        found: found.uuid,
    })
}

fn check_durable(mark: &File, layout: &Layout, position: u64) -> Result<(), SpoolError> {
    let durable = DurableMark::read(mark, &layout.durable())?;
    if position > durable {
        return Err(SpoolError::BehindCheckpoint { position, durable });
    }
    Ok(())
}

fn generation_of(text: &str) -> u64 {
    serde_json::from_str::<Value>(text)
        .ok()
        .and_then(|value| value["generation"].as_u64())
        .unwrap_or(0)
}

fn goes_back(name: &str, from: u64, to: u64) {
    tracing::warn!(
        code = "consumer.back",
        consumer = name,
        from,
        to,
        "a mark goes back: its reader begins again from an older state"
    );
}

/// How often a consumer that is taken is tried again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often a live reader writes that it lives, at the most.
const SEEN_EVERY: Duration = Duration::from_secs(5);
