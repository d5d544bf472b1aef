//! A disk that records each step, and fails the requested ones.

use std::{
    fs::File,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    SpoolError, Writer, WriterOptions,
    commit::Pace,
    disk::{Disk, Name, RealDisk},
    folder::Dir,
};

/// Steps such as `sync arrows`: a verb, and the file's extension, `mark`, or the name of a file or directory
/// without an extension. The extension of a temporary file is `tmp`.
pub(super) type Steps = Arc<Mutex<Vec<String>>>;

/// Steps that fail, once each, and their errors.
pub(super) type Faults = Arc<Mutex<Vec<(String, std::io::ErrorKind)>>>;

/// Stands for EMFILE, which has no kind of its own.
pub(super) const NO_DESCRIPTOR: std::io::ErrorKind = std::io::ErrorKind::ResourceBusy;

/// The real disk, recorded.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) steps: Steps,
    pub(super) fail: Faults,
    /// A function that is called once, after a step was recorded and before it is done.
    pub(super) then: Hook,
    /// By how many microseconds its wall clock is ahead.
    pub(super) ahead_us: Arc<Mutex<i64>>,
    /// How long it takes to remove a file of a segment.
    pub(super) removal: Duration,
}

/// A step, and the function to call then.
pub(super) type Hook = Arc<Mutex<Option<(String, Box<dyn FnOnce() + Send>)>>>;

impl Recorder {
    /// Records a step and runs its hook, which may use the disk too.
    fn step(&self, verb: &'static str, path: &Path) -> Result<(), SpoolError> {
        let name = path.file_name().unwrap_or_default();
        let what = path.extension().unwrap_or(name).to_string_lossy();
        let what = if what == "durable" { "mark" } else { &what };
        if what == "lock" {
            // The text of a lock informs others, and nothing depends on it.
            return Ok(());
        }
        let step = format!("{verb} {what}");
        self.steps.lock().unwrap().push(step.clone());
        let hook = self.then.lock().unwrap().take_if(|(at, _)| *at == step);
        if let Some((_, happen)) = hook {
            happen();
        }
        let mut fail = self.fail.lock().unwrap();
        if let Some(at) = fail.iter().position(|(wanted, _)| *wanted == step) {
            let (_, kind) = fail.remove(at);
            let error = match kind {
                NO_DESCRIPTOR => std::io::Error::from_raw_os_error(24),
                kind => kind.into(),
            };
            return Err(SpoolError::io(verb, path, error));
        }
        Ok(())
    }
}

impl Disk for Recorder {
    fn make_dir(&self, at: &Dir, name: &str, mode: u32) -> Result<bool, SpoolError> {
        RealDisk.make_dir(at, name, mode)
    }

    fn create(&self, at: &Dir, name: &str) -> Result<File, SpoolError> {
        self.step("create", &at.join(name))?;
        RealDisk.create(at, name)
    }

    fn open(&self, at: &Dir, name: &str) -> Result<File, SpoolError> {
        RealDisk.open(at, name)
    }

    fn write(&self, file: &File, path: &Path, pieces: &[&[u8]]) -> Result<(), SpoolError> {
        RealDisk.write(file, path, pieces)?;
        self.step("write", path)
    }

    fn sync(&self, file: &File, path: &Path) -> Result<(), SpoolError> {
        self.step("sync", path)?;
        RealDisk.sync(file, path)
    }

    fn sync_dir(&self, dir: &Dir) -> Result<(), SpoolError> {
        self.step("sync", dir.path())?;
        RealDisk.sync_dir(dir)
    }

    fn publish(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> Result<(), SpoolError> {
        self.step("publish", path)?;
        RealDisk.publish(file, path, bytes, at)
    }

    fn cut(&self, file: &File, path: &Path, len: u64) -> Result<(), SpoolError> {
        self.step("cut", path)?;
        RealDisk.cut(file, path, len)
    }

    fn rename(&self, from: Name<'_>, to: Name<'_>) -> Result<(), SpoolError> {
        self.step("rename", &to.dir.join(to.name))?;
        RealDisk.rename(from, to)
    }

    fn remove(&self, at: &Dir, name: &str) -> Result<bool, SpoolError> {
        if at.path().ends_with("segments") {
            std::thread::sleep(self.removal);
        }
        self.step("remove", &at.join(name))?;
        RealDisk.remove(at, name)
    }

    fn allocate(&self, file: &File, path: &Path, bytes: u64) -> Result<(), SpoolError> {
        self.step("allocate", path)?;
        RealDisk.allocate(file, path, bytes)
    }

    fn free_bytes(&self, dir: &Dir) -> Option<u64> {
        RealDisk.free_bytes(dir)
    }

    fn now_us(&self) -> i64 {
        RealDisk.now_us() + *self.ahead_us.lock().unwrap()
    }
}

/// A writer on such a disk; its steps begin after recovery.
pub(super) fn open_faulty(dir: &Path) -> (Writer, Steps, Faults) {
    let (writer, steps, fail) = open_recorded(dir, WriterOptions::default());
    steps.lock().unwrap().clear();
    (writer, steps, fail)
}

/// A writer on such a disk; its steps begin with recovery.
pub(super) fn open_recorded(dir: &Path, options: WriterOptions) -> (Writer, Steps, Faults) {
    let disk = Recorder::default();
    let (steps, fail) = (disk.steps.clone(), disk.fail.clone());
    let writer = Writer::open_on(dir, options, Arc::new(disk), Pace::default())
        .unwrap()
        .0;
    (writer, steps, fail)
}
