//! The order of the disk steps on which durability depends; and limits that only the writer's own
//! files show.

use super::recorder::{Recorder, open_recorded};
use super::*;
use crate::{commit::Pace, consumers, format, index, segment};

fn taken(steps: &recorder::Steps) -> Vec<String> {
    std::mem::take(&mut *steps.lock().unwrap())
}

#[test]
fn a_spool_is_created_name_by_name() {
    let (_temp, dir) = temp();
    let (_writer, steps, _) = open_recorded(&dir, WriterOptions::default());
    let parent = dir.parent().unwrap();
    let parent = parent.extension().or(parent.file_name()).unwrap();
    let parent = format!("sync {}", parent.to_string_lossy());
    let want = [
        &parent,
        "remove tmp",
        "create tmp",
        "write tmp",
        "sync tmp",
        "rename json",
        "sync spool",
        "sync spool",
        "remove tmp",
        "create tmp",
        "write tmp",
        "sync tmp",
        "rename mark",
        "sync spool",
        // The epoch is raised before anything is read.
        "publish mark",
        "sync mark",
        "publish mark",
        "sync mark",
        "sync segments",
        "publish mark",
        "sync mark",
        "publish mark",
        "sync mark",
        "remove tmp",
        "create tmp",
        "write tmp",
        "sync tmp",
        "rename start",
        "sync spool",
        "remove tmp",
        "create tmp",
        "write tmp",
        "sync tmp",
        "rename key",
        "sync spool",
    ];
    assert_eq!(taken(&steps), want);
}

#[test]
fn a_segment_is_ended_by_its_footer_and_the_mark_is_synced_last() {
    let (_temp, dir) = temp();
    let (writer, steps, _) = open_faulty(&dir);
    fill(&writer, 0, 1);
    taken(&steps);
    writer.close(WAIT);
    let want = [
        "write arrows",
        "write idx",
        "sync idx",
        "publish mark",
        "sync mark",
    ];
    assert_eq!(of_commits(taken(&steps)), want);
}

#[test]
fn lost_positions_are_published_before_anything_is_cut() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    let killed = dir.with_extension("killed");
    copy(&dir, &killed);
    let segment = killed.join("segments/00000000000000000000.arrows");
    let bytes = fs::read(&segment).unwrap();
    fs::write(&segment, &bytes[..bytes.len() - 1]).unwrap();
    let (_writer, steps, _) = open_recorded(&killed, WriterOptions::default());
    let steps = taken(&steps);
    let epoch = ["publish mark", "sync mark", "publish mark", "sync mark"];
    assert_eq!(steps[1..5], epoch, "the epoch");
    assert_eq!(steps[5..9], epoch, "what is lost");
    // The segment and the index with the remaining groups, each rewritten.
    let anew = |what| ["remove tmp", "create tmp", "write tmp", "sync tmp", what];
    assert_eq!(steps[9..14], anew("rename losses"));
    assert_eq!(steps[14], "sync killed");
    assert_eq!(steps[15..20], anew("rename arrows"));
    assert_eq!(steps[20], "sync segments");
    assert_eq!(steps[21..26], anew("rename idx"));
}

#[test]
fn the_remains_of_a_failed_sync_are_certainly_cut_and_first_in_the_index() {
    for failing in ["sync arrows", "write idx", "sync idx"] {
        let (_temp, dir) = temp();
        let (writer, steps, fail) = open_faulty(&dir);
        fill(&writer, 0, 1);
        taken(&steps);
        let fault = (failing.to_owned(), std::io::ErrorKind::Other);
        fail.lock().unwrap().push(fault);
        fill(&writer, 3, 1);
        let steps = of_commits(taken(&steps));
        let failed = steps.iter().position(|step| step == failing).unwrap();
        // An entry that outlived its group would report a loss.
        let want = ["cut idx", "sync idx", "cut arrows", "sync arrows"];
        assert_eq!(steps[failed + 1..failed + 5], want, "{failing}");
    }
}

#[test]
fn a_segment_that_failed_with_its_first_group_is_removed_before_its_name_is_used_again() {
    for failing in ["write arrows", "sync arrows", "write idx", "sync idx"] {
        let (_temp, dir) = temp();
        let (writer, steps) = failing_first_group(&dir, &[failing], None);
        fill(&writer, 0, 1);
        writer.close(WAIT);
        let steps = of_commits(taken(&steps));
        let cut = steps.iter().position(|step| step == "cut idx").unwrap();
        let want = [
            "cut idx",
            "sync idx",
            "cut arrows",
            "sync arrows",
            "remove idx",
            "sync segments",
            "remove arrows",
            "sync segments",
            "create idx",
        ];
        assert_eq!(steps[cut..cut + want.len()], want, "{failing}");
        assert_eq!(positions(&batches(&dir, 0..3, 1, 9)), [0, 1, 2]);
    }
}

#[test]
fn a_kill_while_a_failed_segment_is_removed_invents_no_loss() {
    for killed_at in ["remove idx", "remove arrows"] {
        let (_temp, dir) = temp();
        let (from, to) = (dir.clone(), dir.with_extension("killed"));
        let keep = move || copy(&from, &to);
        let then = Some((killed_at.to_owned(), Box::new(keep) as Box<_>));
        let (writer, _) = failing_first_group(&dir, &["sync idx", "cut idx"], then);
        fill(&writer, 0, 1);
        let killed = dir.with_extension("killed");
        let recovered = Writer::open(&killed, WriterOptions::default()).unwrap().1;
        assert_eq!(recovered.lost, None, "{killed_at}");
        let losses = Spool::open(&killed).unwrap().losses().unwrap();
        assert_eq!(losses, [], "{killed_at}");
    }
}

/// A writer whose first segment begins well, and whose first group then meets these faults. Returns
/// its steps, and the outcome at a later one.
fn failing_first_group(
    dir: &Path,
    faults: &[&str],
    then: Option<(String, Box<dyn FnOnce() + Send>)>,
) -> (Writer, recorder::Steps) {
    let disk = Recorder::default();
    let (steps, fail, hook) = (disk.steps.clone(), disk.fail.clone(), disk.then.clone());
    let opened = Writer::open_on(
        dir,
        WriterOptions::default(),
        Arc::new(disk),
        Pace::default(),
    );
    let faults: Vec<_> = faults
        .iter()
        .map(|step| ((*step).to_owned(), std::io::ErrorKind::Other))
        .collect();
    let next = hook.clone();
    let begun = move || {
        fail.lock().unwrap().extend(faults);
        *next.lock().unwrap() = then;
    };
    *hook.lock().unwrap() = Some(("sync segments".to_owned(), Box::new(begun)));
    (opened.unwrap().0, steps)
}

#[test]
fn a_segment_is_removed_after_the_mark_that_covers_it() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        budget: 30_000,
        segment_bytes: 1,
        ..WriterOptions::default()
    };
    let (writer, steps, _) = open_recorded(&dir, options);
    let spool = Spool::open(&dir).unwrap();
    let mut at = 0;
    while spool.first_kept().unwrap() == 0 {
        assert!(at < 60, "nothing was retired");
        taken(&steps);
        fill(&writer, at, 1);
        at += 3;
        spool.commit_mark("all", at).unwrap();
    }
    let steps = taken(&steps);
    let at = |step: &str| steps.iter().position(|other| other == step).unwrap();
    let order = [
        "sync consumers",
        "sync tmp",
        "rename start",
        "sync spool",
        "remove arrows",
        "remove idx",
    ];
    let places: Vec<_> = order.iter().map(|step| at(step)).collect();
    assert!(places.is_sorted(), "{order:?} at {places:?} of {steps:?}");
}

#[test]
fn a_consumers_mark_is_synced_renamed_and_its_name_synced() {
    let (_temp, dir) = temp();
    drop(open(&dir));
    let disk = Recorder::default();
    let steps = disk.steps.clone();
    let folder = folder_on(&dir, Arc::new(disk));
    let identity = format::Identity::read(&folder).unwrap().unwrap();
    consumers::write(&folder, &identity, &consumers::Mark::new("etl", 0)).unwrap();
    let want = [
        "remove tmp",
        "create tmp",
        "write tmp",
        "sync tmp",
        "rename json",
        "sync consumers",
    ];
    assert_eq!(taken(&steps), want);
    assert!(consumers::remove(&folder, "etl").unwrap());
    assert_eq!(taken(&steps), ["remove json", "sync consumers"]);
}

#[test]
fn an_index_without_its_segment_is_removed() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    drop(writer);
    let orphan = dir.join("segments/00000000000000000003.idx");
    // Any file that only its owner may read.
    fs::rename(dir.join("lock"), &orphan).unwrap();
    let writer = open(&dir);
    assert!(!orphan.exists());
    fill(&writer, 3, 1);
}

#[test]
fn a_segment_is_ended_by_its_bytes_and_by_its_age() {
    for (segment_bytes, segment_age) in [(1, WAIT), (1 << 30, Duration::ZERO)] {
        let (_temp, dir) = temp();
        let options = WriterOptions {
            segment_bytes,
            segment_age,
            ..WriterOptions::default()
        };
        let (writer, _) = Writer::open(&dir, options).unwrap();
        fill(&writer, 0, 3);
        let names = fs::read_dir(dir.join("segments")).unwrap();
        assert_eq!(names.count(), 6);
    }
}

#[test]
fn a_group_holds_at_most_its_bytes() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        group_bytes: 3_000,
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::open(&dir, options).unwrap();
    for at in 0..40 {
        writer.append(
            block(at * 100, 100),
            Arc::new(Told::default()),
            at,
            Promise::Durable,
        );
    }
    assert!(writer.flush(WAIT));
    let report = Spool::open(&dir).unwrap().verify(&mut |_, _| {}).unwrap();
    // Two blocks fit, each of 800 bytes and at most 512 beside its body; a third does not.
    assert!(report.blocks == 40 && report.groups >= 20, "{report:?}");
}

#[test]
fn a_body_that_does_not_fit_its_checksum_is_a_problem() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 1);
    let (segment, index) = (
        dir.join("segments/00000000000000000000.arrows"),
        dir.join("segments/00000000000000000000.idx"),
    );
    let (mut bytes, mut entries) = (fs::read(&segment).unwrap(), fs::read(&index).unwrap());
    let body = bytes.windows(8).rposition(|eight| eight == b"00000001");
    bytes[body.unwrap()] = b'9';
    let old = index::Entry::decode(&entries[64..160]).unwrap();
    let group = usize::try_from(old.offset).unwrap();
    let group = &mut bytes[group..];
    // With a seal and an entry that match the current bytes.
    let crc = segment::crc_without_seal(&group[..old.length as usize]).unwrap();
    let new = index::Entry { crc, ..old };
    segment::seal_anew(group, &old, &new);
    entries[64..160].copy_from_slice(&new.encode());
    fs::write(&segment, bytes).unwrap();
    fs::write(&index, entries).unwrap();
    let report = Spool::open(&dir).unwrap().verify(&mut |_, _| {}).unwrap();
    assert_eq!(
        report.problems,
        ["the body at position 0 does not fit its checksum"]
    );
}

#[test]
fn another_process_is_refused_by_name() {
    const NAME: &str = "tests::order::another_process_is_refused_by_name";
    if let Ok(held) = std::env::var("ACKLINE_TEST_LOCKED_SPOOL") {
        let (holder, dir) = held.split_once(' ').unwrap();
        let error = Writer::open(Path::new(dir), WriterOptions::default()).unwrap_err();
        assert_eq!(error.code(), "spool.locked");
        let holder = format!("is locked by process {holder}");
        assert!(error.to_string().ends_with(&holder), "{error}");
        return;
    }
    let (_temp, dir) = temp();
    let _writer = open(&dir);
    let held = format!("{} {}", std::process::id(), dir.display());
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env("ACKLINE_TEST_LOCKED_SPOOL", held)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}
