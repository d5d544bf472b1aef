//! The order of what is done to the disk, where durability rests on it; and limits that only the
//! writer's own files show.

use super::recorder::{Recorder, open_recorded};
use super::*;
use crate::{consumers, format};

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
        "sync spool",
        "sync segments",
        "publish mark",
        "sync mark",
        "publish mark",
        "sync mark",
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
fn a_closed_segment_is_synced_before_its_footer_and_that_too() {
    let (_temp, dir) = temp();
    let (writer, steps, _) = open_faulty(&dir);
    fill(&writer, 0, 1);
    taken(&steps);
    writer.close(WAIT);
    let want = ["write arrows", "sync arrows", "write idx", "sync idx"];
    assert_eq!(taken(&steps), want);
}

#[test]
fn what_is_lost_is_published_before_anything_is_cut() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    let killed = dir.with_extension("killed");
    copy(&dir, &killed);
    let segment = killed.join("segments/00000000000000000000.arrows");
    let bytes = fs::read(&segment).unwrap();
    fs::write(&segment, &bytes[..bytes.len() - 1]).unwrap();
    let (_writer, steps, _) = open_recorded(&killed, WriterOptions::default());
    let want = [
        "sync killed",
        "sync killed",
        "publish mark",
        "sync mark",
        "publish mark",
        "sync mark",
        "cut arrows",
        "sync arrows",
        "cut idx",
        "sync idx",
        "write arrows",
        "sync arrows",
        "write idx",
        "sync idx",
        "sync segments",
        "publish mark",
        "sync mark",
        "publish mark",
        "sync mark",
        "remove tmp",
        "create tmp",
        "write tmp",
        "sync tmp",
        "rename key",
        "sync killed",
    ];
    assert_eq!(taken(&steps), want);
}

#[test]
fn a_segment_goes_after_the_mark_that_stands_for_it() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        budget: 12_000,
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
    let removed = steps.iter().position(|step| step == "remove arrows");
    let removed = removed.unwrap();
    assert_eq!(
        steps[removed - 3..removed + 3],
        [
            "publish mark",
            "sync mark",
            "sync consumers",
            "remove arrows",
            "sync segments",
            "remove idx"
        ]
    );
}

#[test]
fn a_consumers_mark_is_synced_renamed_and_its_name_synced() {
    let (_temp, dir) = temp();
    drop(open(&dir));
    let mut disk = Recorder::default();
    let layout = format::Layout::new(&dir);
    let identity = format::Identity::read(&layout.identity()).unwrap().unwrap();
    consumers::write(
        &mut disk,
        &layout,
        &identity,
        &consumers::Mark::new("etl", 0),
    )
    .unwrap();
    let want = [
        "remove tmp",
        "create tmp",
        "write tmp",
        "sync tmp",
        "rename json",
        "sync consumers",
    ];
    assert_eq!(taken(&disk.steps), want);
    assert!(consumers::remove(&mut disk, &layout, "etl").unwrap());
    assert_eq!(taken(&disk.steps), ["remove json", "sync consumers"]);
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
        group_bytes: 2_000,
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
    // Two blocks of 800 bytes fit, a third does not.
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
    let mut entry = format::Entry::decode(&entries[64..128]).unwrap();
    let group = usize::try_from(entry.offset).unwrap();
    entry.crc = crc32c::crc32c(&bytes[group..group + entry.length as usize]);
    entries[64..128].copy_from_slice(&entry.encode());
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
