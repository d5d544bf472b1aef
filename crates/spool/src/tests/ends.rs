//! The links that ended in good order: kept, bounded, and harmless when they are damaged.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn filled() -> (tempfile::TempDir, PathBuf) {
    let (temp, dir) = temp();
    let (writer, _) = Writer::open(&dir, WriterOptions::default()).unwrap();
    let told = Arc::new(Told::default());
    writer.append(block(0, 5), told, 0, Promise::Durable);
    assert!(writer.flush(Duration::from_secs(20)));
    writer.close(Duration::from_secs(20));
    (temp, dir)
}

fn link(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn noted(dir: &Path) -> Vec<String> {
    let (_, found) = Spool::open(dir).unwrap().ends().unwrap();
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort();
    found
}

#[test]
fn links_that_ended_in_order_are_known_after_a_restart() {
    let (_temp, dir) = filled();
    let (ends, found) = Spool::open(&dir).unwrap().ends().unwrap();
    assert!(found.is_empty());
    ends.note(&link(1));
    ends.note("a name that is no link's");
    ends.note(&link(2));
    // Nothing is released, as when the process is killed.
    std::mem::forget(ends);
    assert_eq!(noted(&dir), [link(1), link(2)]);
}

#[test]
fn a_cut_note_does_not_count_and_the_next_one_is_separate() {
    let (_temp, dir) = filled();
    let path = dir.join("ends");
    fs::write(&path, format!("{}\n{}", link(1), &link(2)[..20])).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let (ends, found) = Spool::open(&dir).unwrap().ends().unwrap();
    assert_eq!(found.len(), 1);
    ends.note(&link(3));
    drop(ends);
    assert_eq!(noted(&dir), [link(1), link(3)]);
}

#[test]
fn the_newest_ones_are_kept_in_a_file_of_bounded_size() {
    let (_temp, dir) = filled();
    let (ends, _) = Spool::open(&dir).unwrap().ends().unwrap();
    for number in 0..100_000 {
        ends.note(&link(number));
    }
    drop(ends);
    assert!(fs::metadata(dir.join("ends")).unwrap().len() <= 1 << 20);
    let found = noted(&dir);
    assert!(found.len() >= 14_000, "{}", found.len());
    assert_eq!(found.last(), Some(&link(99_999)));
    let oldest = 100_000 - found.len();
    assert_eq!(
        found.first(),
        Some(&link(oldest)),
        "none is missing between"
    );
}

#[test]
fn a_spool_with_these_notes_verifies() {
    let (_temp, dir) = filled();
    let (ends, _) = Spool::open(&dir).unwrap().ends().unwrap();
    ends.note(&link(1));
    let report = Spool::open(&dir).unwrap().verify(&mut |_, _| ()).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}
