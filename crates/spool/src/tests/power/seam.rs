//! The disk of one process: every change is made to real files, which represent the page cache, and
//! reported to the [`Shadow`], which knows the bytes that would survive. A process may be killed at
//! any step, held up at one, find the disk full, and have its syncs fail.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use super::{
    history::{Fact, History},
    shadow::{Dice, Image, Op, Shadow, write_image},
};
use crate::{
    SpoolError,
    clock::now_us,
    disk::{Disk, Name, RealDisk},
    folder::{Dir, TEMPORARY},
    lock,
};

/// A directory with a spool, and the state of its model over all processes.
pub(super) struct World {
    pub(super) root: PathBuf,
    inner: Mutex<Inner>,
}

pub(super) struct Inner {
    pub(super) shadow: Shadow,
    pub(super) history: History,
    /// The number of the file with each inode.
    files: HashMap<u64, usize>,
    dice: Dice,
    /// The steps so far, where they are wanted.
    pub(super) log: Option<Vec<Event>>,
}

/// The steps in a world.
#[derive(Debug, Clone)]
#[allow(dead_code)] // printed where a seed fails
pub(super) enum Event {
    Op(Op),
    Fact(Fact),
}

impl World {
    /// Files as they are found after the power came back.
    pub(super) fn new(root: &Path, image: &Image, history: History, dice: Dice) -> Arc<Self> {
        write_image(image, root);
        let shadow = Shadow::new(image);
        let number =
            |(path, number): (&Path, usize)| (fs::metadata(root.join(path)).unwrap().ino(), number);
        Arc::new(Self {
            root: root.to_owned(),
            inner: Mutex::new(Inner {
                files: shadow.files().map(number).collect(),
                shadow,
                history,
                dice,
                log: None,
            }),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spool(&self) -> PathBuf {
        self.root.join("spool")
    }

    pub(super) fn learn(&self, fact: Fact) {
        self.lock().learn(fact);
    }

    /// Returns the disk after a loss of power, and the promises that hold then.
    pub(super) fn crash(&self, dice: &mut Dice) -> (Image, History) {
        let inner = self.lock();
        (inner.shadow.clone().crash(dice), inner.history.clone())
    }

    /// The cache drops every page that it considers written.
    pub(super) fn evict(&self) {
        for (path, bytes) in self.lock().shadow.evicted() {
            let path = self.root.join(path);
            if fs::read(&path).unwrap() != bytes {
                let file = File::options().write(true).open(&path).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
            }
        }
    }

    /// Replaces the file of the writer's lock.
    pub(super) fn replace_lock(&self) {
        let mut inner = self.lock();
        let (name, path) = (Path::new("spool/lock"), self.root.join("spool/lock"));
        inner.play(Op::Remove(name.to_owned()));
        fs::remove_file(&path).unwrap();
        inner.play(Op::Create(name.to_owned()));
        let file = File::create_new(&path).unwrap();
        rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        inner.name_file(&file, name);
    }

    /// Releases the writer's lock without its knowledge.
    pub(super) fn lose_lock(&self) {
        let meta = fs::metadata(self.root.join("spool/lock")).unwrap();
        lock::let_go((meta.dev(), meta.ino()));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

impl Inner {
    pub(super) fn learn(&mut self, fact: Fact) {
        self.history.learn(&fact);
        if let Some(log) = &mut self.log {
            log.push(Event::Fact(fact));
        }
    }

    fn play(&mut self, op: Op) {
        self.shadow.play(&op, &mut self.dice);
        if let Some(log) = &mut self.log {
            log.push(Event::Op(op));
        }
    }

    fn name_file(&mut self, file: &File, path: &Path) {
        let number = self.shadow.file(path).unwrap();
        self.files.insert(file.metadata().unwrap().ino(), number);
    }

    fn number(&self, file: &File) -> usize {
        self.files[&file.metadata().unwrap().ino()]
    }
}

/// The disk of one process.
#[derive(Clone)]
pub(super) struct Seam {
    pub(super) world: Arc<World>,
    pub(super) control: Arc<Control>,
}

/// The faults of one process.
pub(super) struct Control {
    /// Its steps have no effect any more.
    is_dead: AtomicBool,
    /// Steps until it is killed.
    left: AtomicU64,
    hold: Mutex<Hold>,
    let_go: Condvar,
    /// One sync in so many fails.
    faults: AtomicU64,
    has_faulted: AtomicBool,
    /// The capacity of the disk in bytes.
    capacity: AtomicU64,
    has_been_full: AtomicBool,
    /// How far its clock is ahead, in microseconds.
    ahead_us: AtomicI64,
    /// The process number in the names of its temporary files, where that is not this process's.
    pid: Option<u32>,
}

#[derive(Default)]
struct Hold {
    /// Steps of the writer's own threads until they are held up.
    after: Option<u64>,
    is_held: bool,
}

impl Control {
    pub(super) fn new(left: u64, pid: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            is_dead: AtomicBool::new(false),
            left: AtomicU64::new(left),
            hold: Mutex::default(),
            let_go: Condvar::new(),
            faults: AtomicU64::new(0),
            has_faulted: AtomicBool::new(false),
            capacity: AtomicU64::new(u64::MAX),
            has_been_full: AtomicBool::new(false),
            ahead_us: AtomicI64::new(0),
            pid,
        })
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    pub(super) fn kill(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        self.let_go();
    }

    /// Fails one sync in so many; none with 0.
    pub(super) fn fail_syncs(&self, times: u64) {
        self.faults.store(times, Ordering::SeqCst);
    }

    /// Whether something failed that may fail without a fault too.
    pub(super) fn has_failed(&self) -> bool {
        self.has_faulted.load(Ordering::SeqCst) || self.has_been_full.load(Ordering::SeqCst)
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::SeqCst);
    }

    pub(super) fn set_clock(&self, ahead_us: i64) {
        self.ahead_us.store(ahead_us, Ordering::SeqCst);
    }

    /// Holds the writer's threads up after so many of their steps.
    pub(super) fn hold_after(&self, steps: u64) {
        self.hold.lock().unwrap().after = Some(steps);
    }

    pub(super) fn is_held(&self) -> bool {
        self.hold.lock().unwrap().is_held
    }

    pub(super) fn let_go(&self) {
        *self.hold.lock().unwrap() = Hold::default();
        self.let_go.notify_all();
    }

    /// Waits here while the writer is held up.
    pub(super) fn gate(&self, is_removal: bool) {
        let thread = std::thread::current();
        let is_its_own = match thread.name() {
            // The writer checks a file just before it removes it.
            Some("ackline-spool") => !is_removal,
            // At other steps it holds a lock that others wait for.
            Some("ackline-retain") => is_removal,
            _ => false,
        };
        let mut hold = self.hold.lock().unwrap();
        if !is_its_own || hold.after.is_none() {
            return;
        }
        match hold.after {
            Some(0) => hold.is_held = true,
            Some(left) => hold.after = Some(left - 1),
            None => {}
        }
        while hold.is_held {
            hold = self.let_go.wait(hold).unwrap();
        }
    }

    /// Counts a step. Returns whether it is the last one.
    fn is_last(&self) -> bool {
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            self.kill();
            return true;
        }
        self.left.store(left - 1, Ordering::SeqCst);
        false
    }
}

impl Seam {
    fn path(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.world.root).unwrap().to_owned()
    }

    fn at(&self, at: &Dir, name: &str) -> PathBuf {
        self.path(&at.join(name))
    }

    /// A step that has no effect once the process is dead.
    fn step(
        &self,
        verb: &'static str,
        path: &Path,
        is_removal: bool,
    ) -> Result<MutexGuard<'_, Inner>, SpoolError> {
        self.control.gate(is_removal);
        let inner = self.world.lock();
        if self.control.is_dead() || self.control.is_last() {
            return Err(killed(verb, path));
        }
        Ok(inner)
    }

    /// The number of these bytes that still fit on the disk.
    fn room(&self, inner: &Inner, wanted: usize) -> usize {
        let capacity = self.control.capacity.load(Ordering::SeqCst);
        let free = capacity.saturating_sub(inner.shadow.used() as u64);
        wanted.min(usize::try_from(free).unwrap_or(usize::MAX))
    }

    fn full(&self, verb: &'static str, path: &Path) -> SpoolError {
        self.control.has_been_full.store(true, Ordering::SeqCst);
        SpoolError::io(verb, path, ErrorKind::StorageFull.into())
    }

    fn is_faulty(&self, inner: &mut Inner) -> bool {
        let times = self.control.faults.load(Ordering::SeqCst);
        let fails = times > 0 && inner.dice.once_in(times);
        self.control.has_faulted.fetch_or(fails, Ordering::SeqCst);
        inner.history.has_faulted |= fails;
        fails
    }

    /// This process's temporary name for a file that will replace another.
    fn own_name(&self, name: &str) -> String {
        let Some(pid) = self.control.pid else {
            return name.to_owned();
        };
        match name.strip_suffix(&format!(".{}.tmp", std::process::id())) {
            Some(stem) => format!("{stem}.{pid}.tmp"),
            None => name.to_owned(),
        }
    }

    /// Writes as many bytes as fit, or a part if the process is killed meanwhile.
    fn write_at(
        &self,
        file: &File,
        path: &Path,
        bytes: &[u8],
        at: Option<u64>,
    ) -> Result<(), SpoolError> {
        self.control.gate(false);
        let mut inner = self.world.lock();
        if self.control.is_dead() {
            return Err(killed("write", path));
        }
        let number = inner.number(file);
        let len = inner.shadow.inodes[number].len;
        let at = at.map_or(len, |at| usize::try_from(at).unwrap());
        let room = self.room(&inner, (at + bytes.len()).saturating_sub(len));
        let fitting = bytes.len().min((len + room).saturating_sub(at));
        let is_last = self.control.is_last();
        let count = if is_last {
            inner.dice.index(fitting + 1)
        } else {
            fitting
        };
        file_write(file, &bytes[..count], at);
        inner.play(Op::Write(number, at, bytes[..count].to_vec()));
        if is_last {
            return Err(killed("write", path));
        }
        if fitting < bytes.len() {
            return Err(self.full("write", path));
        }
        Ok(())
    }
}

/// Writes at a place also where the file is open for appending.
fn file_write(file: &File, bytes: &[u8], at: usize) {
    use std::io::Write as _;
    let flags = rustix::fs::fcntl_getfl(file).unwrap();
    if flags.contains(rustix::fs::OFlags::APPEND) {
        let mut file = file;
        file.write_all(bytes).unwrap();
    } else {
        file.write_all_at(bytes, at as u64).unwrap();
    }
}

fn killed(verb: &'static str, path: &Path) -> SpoolError {
    SpoolError::io(verb, path, std::io::Error::other("the process was killed"))
}

impl Disk for Seam {
    fn make_dir(&self, at: &Dir, name: &str, mode: u32) -> Result<bool, SpoolError> {
        let mut inner = self.step("create", &at.join(name), false)?;
        let made = RealDisk.make_dir(at, name, mode)?;
        if made {
            inner.play(Op::MakeDir(self.at(at, name)));
        }
        Ok(made)
    }

    fn create(&self, at: &Dir, name: &str) -> Result<File, SpoolError> {
        let name = &self.own_name(name);
        let mut inner = self.step("create", &at.join(name), false)?;
        let file = RealDisk.create(at, name)?;
        let path = self.at(at, name);
        inner.play(Op::Create(path.clone()));
        inner.name_file(&file, &path);
        Ok(file)
    }

    fn open(&self, at: &Dir, name: &str) -> Result<File, SpoolError> {
        RealDisk.open(at, name)
    }

    fn write(&self, file: &File, path: &Path, pieces: &[&[u8]]) -> Result<(), SpoolError> {
        self.write_at(file, path, &pieces.concat(), None)
    }

    fn sync(&self, file: &File, path: &Path) -> Result<(), SpoolError> {
        let mut inner = self.step("sync", path, false)?;
        let fails = self.is_faulty(&mut inner);
        let number = inner.number(file);
        inner.play(Op::Sync(number, !fails));
        failed(fails, path)
    }

    fn sync_dir(&self, dir: &Dir) -> Result<(), SpoolError> {
        let mut inner = self.step("sync", dir.path(), false)?;
        let fails = self.is_faulty(&mut inner);
        inner.play(Op::SyncDir(self.path(dir.path()), !fails));
        failed(fails, dir.path())
    }

    fn publish(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> Result<(), SpoolError> {
        self.write_at(file, path, bytes, Some(at))
    }

    fn cut(&self, file: &File, path: &Path, len: u64) -> Result<(), SpoolError> {
        let mut inner = self.step("cut", path, false)?;
        RealDisk.cut(file, path, len)?;
        let number = inner.number(file);
        inner.play(Op::Cut(number, usize::try_from(len).unwrap()));
        Ok(())
    }

    fn rename(&self, from: Name<'_>, to: Name<'_>) -> Result<(), SpoolError> {
        let name = &self.own_name(from.name);
        let mut inner = self.step("rename", &to.dir.join(to.name), false)?;
        RealDisk.rename(Name::new(from.dir, name), to)?;
        inner.play(Op::Rename(
            self.at(from.dir, name),
            self.at(to.dir, to.name),
        ));
        Ok(())
    }

    fn remove(&self, at: &Dir, name: &str) -> Result<bool, SpoolError> {
        let name = &self.own_name(name);
        let path = at.join(name);
        let mut inner = self.step("remove", &path, !name.ends_with(TEMPORARY))?;
        let was_there = RealDisk.remove(at, name)?;
        if was_there {
            inner.play(Op::Remove(self.path(&path)));
        }
        Ok(was_there)
    }

    fn allocate(&self, file: &File, path: &Path, bytes: u64) -> Result<(), SpoolError> {
        let mut inner = self.step("allocate", path, false)?;
        let number = inner.number(file);
        let (len, wanted) = (
            inner.shadow.inodes[number].len,
            usize::try_from(bytes).unwrap(),
        );
        if wanted <= len {
            return Ok(());
        }
        if self.room(&inner, wanted - len) < wanted - len {
            return Err(self.full("allocate", path));
        }
        file.set_len(bytes).unwrap();
        inner.play(Op::Cut(number, wanted));
        Ok(())
    }

    fn free_bytes(&self, _: &Dir) -> Option<u64> {
        let capacity = self.control.capacity.load(Ordering::SeqCst);
        let used = self.world.lock().shadow.used() as u64;
        Some(capacity.saturating_sub(used))
    }

    fn is_in_memory(&self, _: &Dir) -> bool {
        false
    }

    fn now_us(&self) -> i64 {
        now_us() + self.control.ahead_us.load(Ordering::SeqCst)
    }
}

fn failed(fails: bool, path: &Path) -> Result<(), SpoolError> {
    if fails {
        let error = std::io::Error::other("the disk failed");
        return Err(SpoolError::io("sync", path, error));
    }
    Ok(())
}
