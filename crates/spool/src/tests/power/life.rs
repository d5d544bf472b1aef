//! One process on one spool: it recovers, is checked, appends, and moves marks, until it ends or is
//! killed.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use arrow_array::{cast::AsArray as _, types::Int64Type};

use super::{
    super::{WAIT, block, layouts},
    history::Fact,
    seam::{Control, Seam, World},
    shadow::Dice,
};
use crate::{
    Access, Lease, Promise, ReadOptions, Settle, Spool, SpoolError, Writer, WriterOptions,
    WriterState, commit::Pace, folder::Folder,
};

/// The consumer whose commits acknowledge, where there is one.
pub(super) const ACKS: &str = "etl";

/// Tells the world of settled promises, unless the process is dead by then.
struct Promised {
    seam: Seam,
    first: u64,
    number: u64,
    count: u64,
    promise: Promise,
}

impl Settle for Promised {
    fn settle(&self, _: &[u64]) {
        self.seam.control.gate(false);
        let mut inner = self.seam.world.lock();
        if self.seam.control.is_dead() {
            return;
        }
        inner.learn(Fact::Known {
            position: self.first,
            number: self.number,
            count: self.count,
        });
        let (end, highest) = (self.first + self.count, inner.history.highest_mark(ACKS));
        if self.promise == Promise::Committed && highest < end {
            let text = format!("told as committed up to {end}, the mark was never above {highest}");
            inner.history.violations.push(text);
        }
    }

    fn failed(&self, _: &SpoolError) {}
}

/// A process that may be killed.
pub(super) struct Life {
    pub(super) world: Arc<World>,
    pub(super) control: Arc<Control>,
    pub(super) dice: Dice,
    /// The number of the life and the seed, for messages.
    pub(super) story: String,
    pub(super) acks: bool,
    /// The next event's number; each is used once.
    pub(super) number: u64,
}

/// A life with an open writer.
pub(super) struct Running {
    pub(super) life: Life,
    pub(super) writer: Writer,
    folder: Folder,
    /// The position that the next event gets.
    position: u64,
    leases: Vec<Lease>,
    can_age: bool,
}

impl Life {
    fn seam(&self) -> Seam {
        Seam {
            world: Arc::clone(&self.world),
            control: Arc::clone(&self.control),
        }
    }

    fn options(&mut self) -> WriterOptions {
        let dice = &mut self.dice;
        let retain_max = match dice.below(8) {
            0 => Some(Duration::from_millis(5)),
            // Longer than any test: only a step of the clock could reach it.
            1 | 2 => Some(Duration::from_secs(3_600)),
            _ => None,
        };
        WriterOptions {
            budget: dice.pick(&[40_000, 90_000, 90_000, 400_000]),
            segment_bytes: 1 + dice.below(24_000),
            segment_age: Duration::from_millis(dice.pick(&[3, 600_000, 600_000])),
            retain_committed: Duration::from_millis(dice.pick(&[0, 3, 86_400_000])),
            retain_max,
            acks: self.acks.then(|| ACKS.to_owned()),
            reserve: dice.pick(&[0, 4_096]),
            ..WriterOptions::default()
        }
    }

    /// Whether a failed disk may have left files that cannot be placed, or no sound mark in a spool
    /// without events.
    fn is_beyond_repair(&self, error: &SpoolError) -> bool {
        let history = &self.world.lock().history;
        history.has_faulted
            && match error {
                SpoolError::Unplaced { .. } => true,
                SpoolError::Corrupt { path, .. } => {
                    path.ends_with("durable") && history.owed(0) == 0
                }
                _ => false,
            }
    }

    /// Opens the spool. `None` if the process was killed meanwhile, or the disk failed.
    pub(super) fn open(mut self) -> Option<Running> {
        let options = self.options();
        let can_age = options
            .retain_max
            .is_some_and(|most| most < Duration::from_secs(1));
        if can_age {
            self.world.learn(Fact::Ages(true));
        }
        if self.dice.once_in(5) {
            self.control.fail_syncs(20);
        }
        let pace = Pace {
            recheck: Duration::from_millis(1),
            sweep: Duration::from_millis(4),
            ..Pace::default()
        };
        let (dir, disk) = (self.world.spool(), Arc::new(self.seam()));
        let opened = Writer::open_on(&dir, options, Arc::clone(&disk) as _, pace);
        let (writer, recovered) = match opened {
            Ok(opened) => opened,
            Err(_) if self.control.is_dead() => return None,
            Err(SpoolError::Io { .. }) if self.control.has_failed() => return None,
            Err(error) if self.is_beyond_repair(&error) => return None,
            Err(error) => panic!("{}: {error}", self.story),
        };
        assert_eq!(recovered.lost, None, "{}", self.story);
        let owed = self.world.lock().history.owed(0);
        assert!(
            recovered.position >= owed,
            "{}: it goes on at {}, below {owed}",
            self.story,
            recovered.position
        );
        self.control.fail_syncs(0);
        let folder = Folder::open(&dir, Access::default(), disk).unwrap();
        Some(Running {
            life: self,
            writer,
            folder,
            position: recovered.position,
            leases: Vec::new(),
            can_age,
        })
    }
}

impl Running {
    fn is_dead(&self) -> bool {
        self.life.control.is_dead()
    }

    /// Checks the result of recovery, and begins to work.
    pub(super) fn begin(&mut self) {
        let marks = self.look();
        let is_made = !self.life.acks || marks.contains_key(ACKS) || self.is_dead();
        assert!(is_made, "{}: no consumer {ACKS}", self.life.story);
        if !self.can_age {
            self.life.world.learn(Fact::Ages(false));
        }
        if self.life.dice.once_in(3) {
            self.life.control.fail_syncs(12);
        }
    }

    /// Works for a while; ends early when the process is dead or its writer has failed.
    pub(super) fn work(&mut self, rounds: u64) {
        for _ in 0..rounds {
            if self.is_over() {
                return;
            }
            self.befall();
            self.append();
            self.wait();
            if self.life.dice.once_in(2) {
                self.consume();
            }
            if self.life.dice.once_in(6) && !self.is_over() {
                self.look();
            }
        }
    }

    /// Whether the process is dead, or its writer has failed.
    pub(super) fn is_over(&self) -> bool {
        self.is_dead() || self.writer.stats().state == WriterState::Failed
    }

    /// Applies an event of the machine's life.
    fn befall(&mut self) {
        let (dice, control) = (&mut self.life.dice, &self.life.control);
        match dice.below(24) {
            0 => {
                let day_us = 86_400_000_000;
                control.set_clock(dice.pick(&[-20_000 * day_us, -day_us, 0, 8 * day_us]));
            }
            1 | 2 => {
                let used = self.life.world.lock().shadow.used() as u64;
                control.set_capacity(used + dice.below(20_000));
            }
            3 => self.life.world.evict(),
            _ => {}
        }
    }

    /// Appends blocks of a few events.
    pub(super) fn append(&mut self) {
        for _ in 0..=self.life.dice.below(3) {
            let count = 1 + self.life.dice.below(4);
            let is_held = self.life.acks && self.life.dice.once_in(3);
            let promise = if is_held {
                Promise::Committed
            } else {
                Promise::Durable
            };
            let number = self.life.number;
            let told = Arc::new(Promised {
                seam: self.life.seam(),
                first: self.position,
                number,
                count,
                promise,
            });
            let block = block(number, u32::try_from(count).unwrap());
            self.writer.append(block, told, 0, promise);
            self.position += count;
            self.life.number += count;
        }
    }

    /// Waits until the appended blocks are durable, and frees a stalled writer.
    fn wait(&mut self) {
        let deadline = Instant::now() + WAIT;
        while !self.writer.flush(Duration::from_millis(2)) {
            if self.is_over() || self.life.control.is_held() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{}: nothing becomes durable: {:?}, marks {:?}",
                self.life.story,
                self.writer.stats(),
                self.life.world.lock().history
            );
            match self.writer.stats().state {
                WriterState::StalledDisk => {
                    if self.life.dice.once_in(2) {
                        self.consume();
                    } else {
                        self.life.control.set_capacity(u64::MAX);
                    }
                }
                WriterState::StalledBudget => {
                    self.life.control.set_capacity(u64::MAX);
                    self.commit_all();
                }
                _ => {}
            }
        }
    }

    fn spool(&self) -> Option<Spool> {
        match Spool::open_in(self.folder.clone()) {
            Ok(spool) => Some(spool),
            Err(_) if self.is_dead() => None,
            Err(error) => panic!("{}: {error}", self.life.story),
        }
    }

    /// Moves every consumer's mark to the end; makes one where there is none.
    fn commit_all(&mut self) {
        let Some(spool) = self.spool() else { return };
        let durable = spool.durable().unwrap();
        let mut names: Vec<String> = self.life.world.lock().history.all_consumers();
        if names.is_empty() {
            names.push("b".to_owned());
        }
        for name in names {
            self.try_mark(
                &name,
                durable,
                |spool| spool.commit_mark(&name, durable),
                &spool,
            );
        }
    }

    /// Moves or removes a mark, and tells the world its possible values from now on.
    fn try_mark(
        &self,
        name: &str,
        position: u64,
        work: impl FnOnce(&Spool) -> Result<(), SpoolError>,
        spool: &Spool,
    ) -> bool {
        let world = &self.life.world;
        world.learn(Fact::Trying(name.to_owned(), Some(position)));
        match work(spool) {
            Ok(()) if !self.is_dead() => {
                world.learn(Fact::Done(name.to_owned(), Some(position)));
                true
            }
            Ok(()) => false,
            Err(error) => {
                self.excuse(&error, RACES);
                false
            }
        }
    }

    /// Accepts an error that may come; `races` are those that come without any fault.
    fn excuse(&self, error: &SpoolError, races: &[&str]) {
        let is_io = matches!(error, SpoolError::Io { .. });
        let is_excused = self.is_dead()
            || races.contains(&error.code())
            || (is_io && self.life.control.has_failed());
        assert!(is_excused, "{}: {error}", self.life.story);
    }

    /// A reader or a tool works with a consumer.
    fn consume(&mut self) {
        let Some(spool) = self.spool() else { return };
        let (Ok(first), Ok(durable)) = (spool.first_kept(), spool.durable()) else {
            assert!(self.is_dead(), "{}", self.life.story);
            return;
        };
        let name = self.life.dice.pick(&[ACKS, "b", "c"]);
        let anywhere = first + self.life.dice.below(durable - first + 1);
        match self.life.dice.below(8) {
            0 | 1 => drop(self.try_mark(
                name,
                anywhere,
                |spool| spool.commit_mark(name, anywhere),
                &spool,
            )),
            2 => {
                self.try_mark(
                    name,
                    durable,
                    |spool| spool.commit_mark(name, durable),
                    &spool,
                );
            }
            3 | 4 => self.lease(name, anywhere, &spool),
            5 => self.seek(name, anywhere, &spool),
            6 => self.add(name, anywhere, &spool),
            _ => self.remove(name, &spool),
        }
    }

    fn let_go_of(&mut self, name: &str) {
        self.leases.retain(|lease| lease.name() != name);
    }

    /// A reader takes a consumer, or commits with the one it has.
    fn lease(&mut self, name: &str, position: u64, spool: &Spool) {
        if let Some(lease) = self.leases.iter().find(|lease| lease.name() == name) {
            self.try_mark(name, position, |_| lease.commit(position), spool);
            return;
        }
        let exists = self
            .life
            .world
            .lock()
            .history
            .consumers()
            .contains(&name.to_owned());
        if !exists {
            let fact = Fact::Trying(name.to_owned(), Some(position));
            self.life.world.learn(fact);
        }
        match spool.lease(name, "a reader", Duration::ZERO, Some(position)) {
            Ok(lease) if !self.is_dead() => {
                let mark = lease.committed().unwrap();
                if !exists {
                    self.life.world.learn(Fact::Done(name.to_owned(), mark));
                }
                self.leases.push(lease);
            }
            Ok(_) => {}
            Err(error) => self.excuse(&error, RACES),
        }
    }

    fn seek(&mut self, name: &str, position: u64, spool: &Spool) {
        self.let_go_of(name);
        let is_known = self
            .life
            .world
            .lock()
            .history
            .consumers()
            .contains(&name.to_owned());
        if is_known {
            let seek = |spool: &Spool| spool.seek_consumer(name, position).map(drop);
            if self.try_mark(name, position, seek, spool) {
                let first = spool.first_kept().unwrap();
                assert!(
                    first <= position || self.can_age,
                    "{}: sought to {position}, and it begins at {first}",
                    self.life.story
                );
            }
        }
    }

    fn add(&mut self, name: &str, position: u64, spool: &Spool) {
        self.let_go_of(name);
        let all = self.life.world.lock().history.all_consumers();
        if !all.contains(&name.to_owned()) {
            let add = |spool: &Spool| spool.add_consumer(name, position);
            self.try_mark(name, position, add, spool);
        }
    }

    fn remove(&mut self, name: &str, spool: &Spool) {
        if self.life.acks && name == ACKS {
            return;
        }
        self.let_go_of(name);
        let world = &self.life.world;
        world.learn(Fact::Trying(name.to_owned(), None));
        match spool.remove_consumer(name) {
            Ok(_) if !self.is_dead() => world.learn(Fact::Done(name.to_owned(), None)),
            Ok(_) => {}
            Err(error) => self.excuse(&error, RACES),
        }
    }

    /// Whether the writer has failed within a while; it is given something to write.
    pub(super) fn fails(&mut self) -> bool {
        let deadline = Instant::now() + WAIT;
        while Instant::now() < deadline {
            if self.is_over() {
                return true;
            }
            self.append();
            self.writer.flush(Duration::from_millis(2));
        }
        false
    }

    /// Ends the process: in good order, unless it is dead.
    pub(super) fn end(mut self) {
        if self.life.dice.once_in(3) && !self.is_over() {
            self.commit_all();
        }
        let ends_well = self.life.dice.once_in(2) && !self.is_dead();
        self.life.control.set_capacity(u64::MAX);
        if !ends_well {
            self.life.control.kill();
        }
        self.leases.clear();
        self.writer.clone().close(Duration::from_millis(3));
    }

    /// Checks that everything promised is there, whole and once, and nothing is half there. Returns
    /// all marks.
    pub(super) fn look(&self) -> BTreeMap<String, u64> {
        look(&self.life.world, &self.life.story, &self.life.control)
    }
}

impl Drop for Running {
    /// Also when a test fails, so that it does not wait for a thread that is held up.
    fn drop(&mut self) {
        self.life.control.kill();
    }
}

/// Reads a spool as a reader beside a writer does. The remains of a killed process are read in the
/// next life.
pub(super) fn look(world: &World, story: &str, control: &Control) -> BTreeMap<String, u64> {
    for _ in 0..200 {
        let owed_before = world.lock().history.clone();
        let spool = Spool::open(&world.spool()).unwrap_or_else(|error| panic!("{story}: {error}"));
        let first = spool
            .first_kept()
            .unwrap_or_else(|error| panic!("{story}: {error}"));
        let seen = look_once(&spool, first, world);
        let after = spool.first_kept().unwrap();
        let seen = match seen {
            // Retention continued meanwhile.
            Err(_) if first != after => continue,
            Err(_) if control.is_dead() => return BTreeMap::new(),
            seen => seen.unwrap_or_else(|error| panic!("{story}: {error}")),
        };
        let owed = owed_before.owed(first);
        if seen.durable < owed && owed_before.has_rivals {
            // The newer mark comes with the writer's next look around.
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let mut inner = world.lock();
        assert!(
            seen.durable >= owed,
            "{story}: durable are {first} to {}, owed up to {owed}",
            seen.durable
        );
        for (position, number) in (first..).zip(&seen.numbers) {
            inner.learn(Fact::Known {
                position,
                number: *number,
                count: 1,
            });
        }
        let history = &mut inner.history;
        let checked = history
            .check_start(first)
            .and_then(|()| history.check_marks(&seen.marks, ACKS));
        checked.unwrap_or_else(|text| panic!("{story}: {text}"));
        let violations = std::mem::take(&mut history.violations);
        assert_eq!(violations, Vec::<String>::new(), "{story}");
        return seen.marks;
    }
    panic!("{story}: retention never rests");
}

/// Errors that come without any fault: retention was quicker, another reader has the consumer.
const RACES: &[&str] = &["spool.gap", "spool.consumer_busy"];

struct Seen {
    durable: u64,
    numbers: Vec<u64>,
    marks: BTreeMap<String, u64>,
}

fn look_once(spool: &Spool, first: u64, world: &World) -> Result<Seen, String> {
    let failed = |error: SpoolError| error.to_string();
    let marks = spool.consumers().map_err(failed)?;
    let durable = spool.durable().map_err(failed)?;
    let marks: BTreeMap<String, u64> = marks
        .into_iter()
        .map(|consumer| (consumer.name, consumer.committed))
        .collect();
    if let Some((name, mark)) = marks.iter().find(|(_, mark)| **mark > durable) {
        return Err(format!("the mark of {name} is {mark}, above {durable}"));
    }
    let read = spool.read(&layouts(), first..durable, &ReadOptions::default());
    let mut numbers = Vec::new();
    for batch in read.map_err(failed)? {
        let batch = batch.map_err(failed)?;
        let positions = batch["position"].as_primitive::<Int64Type>();
        for (position, payload) in positions
            .values()
            .iter()
            .zip(batch["payload"].as_binary::<i32>())
        {
            let want = first + numbers.len() as u64;
            if u64::try_from(*position) != Ok(want) {
                return Err(format!("position {position} comes, not {want}"));
            }
            let text = std::str::from_utf8(payload.unwrap()).unwrap_or_default();
            let number = text
                .parse()
                .map_err(|_| format!("{text:?} at position {position}"))?;
            numbers.push(number);
        }
    }
    if numbers.len() as u64 != durable - first {
        return Err(format!("{} events of {first} to {durable}", numbers.len()));
    }
    let report = spool.verify(&mut |_, _| {}).map_err(failed)?;
    let mut problems = report.problems;
    // Asked after the reading: a fault may come meanwhile.
    if world.lock().history.has_faulted {
        // A sync that fails may damage entries that were durable: their groups are read by their seals.
        problems.retain(|text| !text.contains("are read by their seals"));
    }
    if !problems.is_empty() || !report.losses.is_empty() {
        return Err(format!("{problems:?}, {:?}", report.losses));
    }
    Ok(Seen {
        durable,
        numbers,
        marks,
    })
}
