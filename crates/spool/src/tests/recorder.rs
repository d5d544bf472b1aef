//! A disk that records each step, and fails those it is told to.

use std::{
    fs::File,
    path::Path,
    sync::{Arc, Mutex},
};

use crate::{
    SpoolError, Writer, WriterOptions,
    commit::Pace,
    disk::{Disk, RealDisk},
};

/// Steps such as `sync arrows`: a verb and the file's extension, `mark` or the directory's name.
pub(super) type Steps = Arc<Mutex<Vec<String>>>;

/// Steps that fail, once each, and how.
pub(super) type Faults = Arc<Mutex<Vec<(String, std::io::ErrorKind)>>>;

/// The disk as it is, watched.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) steps: Steps,
    pub(super) fail: Faults,
    /// What is done once, behind a step.
    pub(super) then: Hook,
}

/// A step, and what happens behind it.
pub(super) type Hook = Arc<Mutex<Option<(String, Box<dyn FnOnce() + Send>)>>>;

impl Recorder {
    fn step(&self, verb: &'static str, path: &Path) -> Result<(), SpoolError> {
        let name = path.file_name().unwrap_or_default();
        let what = path.extension().unwrap_or(name).to_string_lossy();
        let what = if what == "durable" { "mark" } else { &what };
        let step = format!("{verb} {what}");
        self.steps.lock().unwrap().push(step.clone());
        let hook = self.then.lock().unwrap().take_if(|(at, _)| *at == step);
        if let Some((_, happen)) = hook {
            happen();
        }
        let mut fail = self.fail.lock().unwrap();
        if let Some(at) = fail.iter().position(|(wanted, _)| *wanted == step) {
            let (_, kind) = fail.remove(at);
            return Err(SpoolError::io(verb, path, kind.into()));
        }
        Ok(())
    }
}

impl Disk for Recorder {
    fn make_dir(&mut self, path: &Path) -> Result<(), SpoolError> {
        RealDisk.make_dir(path)
    }

    fn open(&mut self, path: &Path) -> Result<File, SpoolError> {
        RealDisk.open(path)
    }

    fn create(&mut self, path: &Path) -> Result<File, SpoolError> {
        self.step("create", path)?;
        RealDisk.create(path)
    }

    fn write(&mut self, file: &File, path: &Path, pieces: &[&[u8]]) -> Result<(), SpoolError> {
        RealDisk.write(file, path, pieces)?;
        self.step("write", path)
    }

    fn sync(&mut self, file: &File, path: &Path) -> Result<(), SpoolError> {
        self.step("sync", path)?;
        RealDisk.sync(file, path)
    }

    fn sync_dir(&mut self, path: &Path) -> Result<(), SpoolError> {
        self.step("sync", path)?;
        RealDisk.sync_dir(path)
    }

    fn publish(
        &mut self,
        file: &File,
        path: &Path,
        bytes: &[u8],
        at: u64,
    ) -> Result<(), SpoolError> {
        self.step("publish", path)?;
        RealDisk.publish(file, path, bytes, at)
    }

    fn cut(&mut self, path: &Path, len: u64) -> Result<File, SpoolError> {
        self.step("cut", path)?;
        RealDisk.cut(path, len)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), SpoolError> {
        self.step("rename", to)?;
        RealDisk.rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> Result<bool, SpoolError> {
        self.step("remove", path)?;
        RealDisk.remove(path)
    }
}

/// A writer on such a disk; its steps begin behind recovery.
pub(super) fn open_faulty(dir: &Path) -> (Writer, Steps, Faults) {
    let (writer, steps, fail) = open_recorded(dir, WriterOptions::default());
    steps.lock().unwrap().clear();
    (writer, steps, fail)
}

/// A writer on such a disk; its steps begin with recovery.
pub(super) fn open_recorded(dir: &Path, options: WriterOptions) -> (Writer, Steps, Faults) {
    let disk = Recorder::default();
    let (steps, fail) = (disk.steps.clone(), disk.fail.clone());
    let writer = Writer::open_on(dir, options, Box::new(disk), Pace::default())
        .unwrap()
        .0;
    (writer, steps, fail)
}
