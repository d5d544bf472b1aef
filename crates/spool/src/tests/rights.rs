//! A spool belongs to its owner, or to its group if requested.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use super::*;
use crate::{
    Access, adopt,
    folder::{self, Folder},
    lock::Lock,
    reserve,
};

const GROUP: Access = Access { group: true };

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Every file and directory of the spool.
fn all(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut at = 0;
    while at < found.len() {
        if found[at].is_dir() {
            let entries = fs::read_dir(&found[at]).unwrap();
            found.extend(entries.map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    found
}

fn filled(group: bool) -> (tempfile::TempDir, PathBuf) {
    let (temp, dir) = temp();
    let options = WriterOptions {
        group,
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::open(&dir, options).unwrap();
    fill(&writer, 0, 2);
    writer.close(WAIT);
    let spool = Spool::open_with(&dir, Access { group }).unwrap();
    drop(spool.lease("prod", "", Duration::ZERO, Some(0)).unwrap());
    (temp, dir)
}

fn read_all(dir: &Path, access: Access) -> Result<(), SpoolError> {
    let spool = Spool::open_with(dir, access)?;
    let read = spool.read(&layouts(), 0..6, &ReadOptions::default())?;
    read.collect::<Result<Vec<_>, _>>().map(drop)
}

#[test]
fn a_spool_is_made_for_its_owner_or_its_group() {
    for (group, of_dir, of_file) in [(false, 0o700, 0o600), (true, 0o770, 0o660)] {
        let (_temp, dir) = filled(group);
        let files = all(&dir);
        assert!(files.len() >= 10, "{files:?}");
        for path in files {
            let want = if path.is_dir() { of_dir } else { of_file };
            assert_eq!(mode(&path), want, "{}", path.display());
        }
    }
}

#[test]
fn each_file_that_is_wider_is_refused_by_name() {
    let (_temp, dir) = filled(false);
    for path in all(&dir) {
        let before = mode(&path);
        for bit in [0o040, 0o020, 0o010, 0o004, 0o002, 0o001] {
            set(&path, before | bit);
            let mut errors = vec![
                read_all(&dir, Access::default()).unwrap_err(),
                Writer::open(&dir, WriterOptions::default()).unwrap_err(),
            ];
            // There may be many segments: each one is looked at when it is read.
            if !path.starts_with(dir.join("segments/")) || path.is_dir() {
                errors.push(Spool::open(&dir).unwrap_err());
                errors.push(adopt(&dir, Access::default()).unwrap_err());
            }
            for error in errors {
                assert_eq!(error.code(), "spool.rights", "{}", path.display());
                let text = error.to_string();
                let cure = format!("`chmod -R go= {}`", dir.display());
                assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
                assert!(text.contains(&format!("{:04o}", before | bit)), "{text}");
                assert!(text.contains(&cure), "{text}");
            }
            let shared = read_all(&dir, GROUP);
            assert_eq!(shared.is_ok(), bit > 0o007, "{bit:o} {}", path.display());
        }
        set(&path, before);
    }
    Spool::open(&dir).unwrap();
}

#[test]
fn a_spool_of_a_group_needs_the_option() {
    let (_temp, dir) = filled(true);
    assert_eq!(Spool::open(&dir).unwrap_err().code(), "spool.rights");
    let refused = Writer::open(&dir, WriterOptions::default()).unwrap_err();
    assert_eq!(refused.code(), "spool.rights");
    Spool::open_with(&dir, GROUP)
        .unwrap()
        .commit_mark("prod", 6)
        .unwrap();
    set(&dir.join("durable"), 0o664);
    let error = Spool::open_with(&dir, GROUP).unwrap_err();
    assert!(error.to_string().contains("`chmod -R o= "), "{error}");
}

#[test]
fn an_empty_directory_is_tightened_and_a_full_one_is_not() {
    let (_temp, dir) = temp();
    fs::create_dir(&dir).unwrap();
    set(&dir, 0o755);
    drop(open(&dir));
    assert_eq!(mode(&dir), 0o700);

    let (_temp, dir) = temp();
    fs::create_dir(&dir).unwrap();
    set(&dir, 0o755);
    fs::write(dir.join("notes"), "mine").unwrap();
    let error = Writer::open(&dir, WriterOptions::default()).unwrap_err();
    assert_eq!(error.code(), "spool.not_a_spool");
    assert_eq!(mode(&dir), 0o755);
}

#[test]
fn a_group_handed_on_by_the_directory_stays_handed_on() {
    let (_temp, dir) = temp();
    fs::create_dir(&dir).unwrap();
    set(&dir, 0o2775);
    let options = WriterOptions {
        group: true,
        ..WriterOptions::default()
    };
    drop(Writer::open(&dir, options).unwrap());
    let bits = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(bits(&dir), 0o2770);
    assert_eq!(bits(&dir.join("consumers")), 0o2770);
}

/// Another owner's file that no spool may change: its bytes, owner, group and mode.
struct Victim {
    path: PathBuf,
    before: (Vec<u8>, u32, u32, u32),
}

impl Victim {
    fn new(path: PathBuf) -> Self {
        fs::write(&path, "precious\n").unwrap();
        set(&path, 0o600);
        let before = Self::look(&path);
        Self { path, before }
    }

    fn look(path: &Path) -> (Vec<u8>, u32, u32, u32) {
        let meta = fs::metadata(path).unwrap();
        let bytes = fs::read(path).unwrap();
        (bytes, meta.uid(), meta.gid(), meta.mode())
    }

    #[track_caller]
    fn is_unchanged(&self) {
        assert_eq!(Self::look(&self.path), self.before);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Everything under a directory belongs to this user and group.
#[track_caller]
fn belongs_to(dir: &Path, user: u32) {
    for path in all(dir) {
        let meta = fs::symlink_metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (user, user), "{}", path.display());
    }
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(done: Result<T, SpoolError>, path: &Path) {
    let error = done.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.code(), "spool.rights", "{text}");
    assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
}

const NAMES: [&str; 11] = [
    "consumers/etl.lock",
    "consumers/prod.json",
    "consumers/prod.lock",
    "reserve",
    "durable",
    "lock",
    "marks.lock",
    "spool.json",
    "start",
    "key",
    "ends",
];

#[test]
fn a_link_in_a_spool_is_refused_and_not_followed() {
    for name in NAMES {
        let (temp, dir) = filled(false);
        let victim = Victim::new(temp.path().join("victim"));
        let path = dir.join(name);
        let _ = fs::remove_file(&path);
        symlink(&victim.path, &path).unwrap();
        is_refused(Spool::open(&dir), &path);
        is_refused(Writer::open(&dir, WriterOptions::default()), &path);
        is_refused(adopt(&dir, Access::default()), &path);
        victim.is_unchanged();
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink(), "{name}");
    }
}

#[test]
fn a_link_in_place_of_a_directory_is_refused_and_not_followed() {
    for name in ["segments", "consumers"] {
        let (temp, dir) = filled(false);
        let elsewhere = temp.path().join("elsewhere");
        fs::rename(dir.join(name), &elsewhere).unwrap();
        let before = all(&elsewhere);
        symlink(&elsewhere, dir.join(name)).unwrap();
        is_refused(Spool::open(&dir), &dir.join(name));
        let refused = Writer::open(&dir, WriterOptions::default());
        is_refused(refused, &dir.join(name));
        assert_eq!(all(&elsewhere), before);
    }
}

#[test]
fn a_link_that_is_planted_under_an_open_spool_is_refused_and_not_followed() {
    let (temp, dir) = filled(false);
    let victim = Victim::new(temp.path().join("victim"));
    let spool = Spool::open(&dir).unwrap();
    let lock = dir.join("consumers/etl.lock");
    symlink(&victim.path, &lock).unwrap();
    is_refused(spool.lease("etl", "", Duration::ZERO, Some(0)), &lock);
    is_refused(spool.add_consumer("etl", 0), &lock);
    is_refused(spool.commit_mark("etl", 3), &lock);
    fs::remove_file(&lock).unwrap();
    let missing = temp.path().join("missing");
    symlink(&missing, &lock).unwrap();
    is_refused(spool.lease("etl", "", Duration::ZERO, Some(0)), &lock);
    assert!(!missing.exists(), "the target of a link is not made");
    let mark = dir.join("consumers/prod.json");
    fs::remove_file(&mark).unwrap();
    symlink(&victim.path, &mark).unwrap();
    is_refused(spool.consumers(), &mark);
    is_refused(spool.lease("prod", "", Duration::ZERO, Some(0)), &mark);
    let temporary = format!("consumers/.more.json.{}.tmp", std::process::id());
    symlink(&victim.path, dir.join(temporary)).unwrap();
    spool.add_consumer("more", 3).unwrap();
    let reserve = dir.join("reserve");
    let _ = fs::remove_file(&reserve);
    symlink(&victim.path, &reserve).unwrap();
    assert!(!reserve::give_piece(&spool.folder) && !reserve::give_back(&spool.folder));
    assert!(fs::symlink_metadata(&reserve).unwrap().is_symlink());
    victim.is_unchanged();
}

#[test]
fn a_pipe_in_a_spool_is_refused_without_waiting_for_its_other_end() {
    for name in ["durable", "lock", "spool.json", "consumers/prod.json"] {
        let (_temp, dir) = filled(false);
        let path = dir.join(name);
        fs::remove_file(&path).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let opened = Writer::open(&dir, WriterOptions::default());
        // An unreadable mark does not prevent writing.
        if name == "consumers/prod.json" {
            opened.unwrap().0.close(WAIT);
        } else {
            is_refused(opened, &path);
        }
        if name != "lock" {
            let read = Spool::open(&dir).and_then(|spool| spool.consumers());
            is_refused(read, &path);
        }
        is_refused(adopt(&dir, Access::default()), &path);
    }
}

#[test]
fn a_second_name_of_another_users_file_is_refused_and_the_file_unchanged() {
    if !is_root() {
        eprintln!("skipped: only root can make another user's files");
        return;
    }
    let (temp, dir) = filled(false);
    for path in all(&dir) {
        chown(path, Some(4_321), Some(4_321)).unwrap();
    }
    let victim = Victim::new(temp.path().join("victim"));
    let others = NAMES.into_iter().filter(|name| *name != folder::RESERVE);
    for name in others {
        let path = dir.join(name);
        let aside = dir.with_extension("aside");
        let was_there = fs::rename(&path, &aside).is_ok();
        fs::hard_link(&victim.path, &path).unwrap();
        let opened = match name {
            "ends" => Spool::open(&dir).and_then(|spool| spool.ends()).map(drop),
            "marks.lock" => Lock::marks(&folder_of(&dir)).map(drop),
            "consumers/etl.lock" | "consumers/prod.lock" | "consumers/prod.json" => {
                let consumer = if name.contains("etl") { "etl" } else { "prod" };
                let spool = Spool::open(&dir).unwrap();
                spool.lease(consumer, "", Duration::ZERO, Some(0)).map(drop)
            }
            _ => Writer::open(&dir, WriterOptions::default()).map(drop),
        };
        is_refused(opened, &path);
        victim.is_unchanged();
        fs::remove_file(&path).unwrap();
        if was_there {
            fs::rename(&aside, &path).unwrap();
        }
    }
}

fn folder_of(dir: &Path) -> Folder {
    Folder::open(dir, Access::default(), Arc::new(crate::disk::RealDisk)).unwrap()
}

#[test]
fn a_reserve_that_no_spool_made_is_left_alone() {
    if !is_root() {
        eprintln!("skipped: only root can make another user's files");
        return;
    }
    let (_temp, dir) = filled(false);
    let folder = folder_of(&dir);
    let path = dir.join(folder::RESERVE);
    let _ = fs::remove_file(&path);
    let victim = Victim::new(path);
    chown(&victim.path, Some(4_321), Some(4_321)).unwrap();
    let before = Victim::look(&victim.path);
    assert!(!reserve::give_piece(&folder) && !reserve::give_back(&folder));
    assert_eq!(Victim::look(&victim.path), before);
    chown(&victim.path, Some(0), Some(0)).unwrap();
    fs::hard_link(&victim.path, dir.with_extension("second")).unwrap();
    assert!(!reserve::give_piece(&folder) && !reserve::give_back(&folder));
    victim.is_unchanged();
}

#[test]
fn a_spool_that_root_makes_in_a_users_folder_is_the_users() {
    if !is_root() {
        eprintln!("skipped: only root can make another user's files");
        return;
    }
    let (temp, dir) = temp();
    chown(temp.path(), Some(4_321), Some(4_321)).unwrap();
    let options = WriterOptions {
        segment_bytes: 1,
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::open(&dir, options).unwrap();
    fill(&writer, 0, 3);
    let spool = Spool::open(&dir).unwrap();
    let held = spool.lease("prod", "", Duration::ZERO, Some(0)).unwrap();
    held.commit(6).unwrap();
    spool.add_consumer("more", 3).unwrap();
    drop(held);
    spool.seek_consumer("prod", 0).unwrap();
    writer.close(WAIT);
    adopt(&dir, Access::default()).unwrap();
    drop(open(&dir));
    belongs_to(&dir, 4_321);
}

#[test]
fn the_writers_lock_outlives_a_copy_of_the_folder() {
    let (_temp, dir) = filled(false);
    let writer = open(&dir);
    drop(fs::File::open(dir.join("lock")).unwrap());
    copy(&dir, &dir.with_extension("copy"));
    let error = Lock::writer(&folder_of(&dir)).unwrap_err();
    assert_eq!(error.code(), "spool.locked");
    let pid = std::process::id().to_string();
    assert!(error.to_string().contains(&pid), "{error}");
    fill(&writer, 6, 1);
    let spool = Spool::open(&dir).unwrap();
    let held = spool.lease("prod", "", Duration::ZERO, None).unwrap();
    drop(fs::File::open(dir.join("consumers/prod.lock")).unwrap());
    let busy = spool.lease("prod", "", Duration::ZERO, None).unwrap_err();
    assert_eq!(busy.code(), "spool.consumer_busy");
    held.commit(9).unwrap();
}
