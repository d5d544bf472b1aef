//! A spool is its owner's, or its group's when that was asked for.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::{Access, adopt};

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
            let errors = [
                Spool::open(&dir).unwrap_err(),
                Writer::open(&dir, WriterOptions::default()).unwrap_err(),
                adopt(&dir, Access::default()).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.code(), "spool.rights", "{}", path.display());
                let text = error.to_string();
                let cure = format!("`chmod -R go= {}`", dir.display());
                assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
                assert!(text.contains(&format!("{:04o}", before | bit)), "{text}");
                assert!(text.contains(&cure), "{text}");
            }
            let shared = Spool::open_with(&dir, GROUP);
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
