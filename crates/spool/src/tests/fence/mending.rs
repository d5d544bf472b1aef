//! Spools that are mended: cut, misplaced and damaged files, a lost identity.

use super::*;

#[test]
fn a_mark_above_the_end_is_refused_and_mending_continues_above_it() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 2);
    writer.close(WAIT);
    Spool::open(&dir).unwrap().commit_mark("etl", 6).unwrap();
    edit(
        &dir.join("consumers/etl.json"),
        "\"committed\":6",
        "\"committed\":60",
    );
    let error = Writer::open(&dir, WriterOptions::default()).unwrap_err();
    assert_eq!(error.code(), "spool.mark_ahead");
    assert!(error.to_string().contains("ackline spool mend"), "{error}");
    let planned = mend(&dir, Access::default(), true).unwrap();
    assert_eq!(
        Writer::open(&dir, WriterOptions::default())
            .unwrap_err()
            .code(),
        "spool.mark_ahead"
    );
    let mended = mend(&dir, Access::default(), false).unwrap();
    assert_eq!(
        (&planned.steps, planned.position),
        (&mended.steps, mended.position)
    );
    assert_eq!(mended.position, 60);
    let writer = open(&dir);
    fill(&writer, 60, 1);
    let spool = Spool::open(&dir).unwrap();
    assert_eq!(ranges(&spool.losses().unwrap()), [(6, 60)]);
    assert_eq!(positions(&batches(&dir, 60..63, 1, 9)), [60, 61, 62]);
}

#[test]
fn mending_announces_its_steps_and_keeps_the_parts_it_cuts() {
    let (_temp, dir) = temp();
    let writer = open_segments(&dir, 4);
    writer.close(WAIT);
    let name = |first: u64, end: &str| format!("segments/{first:020}.{end}");
    // One index is gone, one segment's group is damaged, one segment holds nothing that a spool wrote.
    fs::remove_file(dir.join(name(0, "idx"))).unwrap();
    let path = dir.join(name(3, "arrows"));
    let mut bytes = fs::read(&path).unwrap();
    bytes[8_100] ^= 1;
    fs::write(&path, &bytes).unwrap();
    fs::write(dir.join(name(6, "arrows")), [9; 12_345]).unwrap();
    fs::remove_file(dir.join(name(6, "idx"))).unwrap();
    let error = Writer::open(&dir, WriterOptions::default()).unwrap_err();
    assert_eq!(error.code(), "spool.unplaced");
    assert!(error.to_string().contains("ackline spool mend"), "{error}");
    let planned = mend(&dir, Access::default(), true).unwrap();
    assert!(!dir.join("lost+found").exists());
    let mended = mend(&dir, Access::default(), false).unwrap();
    assert_eq!(planned.steps, mended.steps);
    assert_eq!(planned.position, mended.position);
    let spool = Spool::open(&dir).unwrap();
    assert_eq!(ranges(&spool.losses().unwrap()), [(3, 9)]);
    assert!(
        spool
            .losses()
            .unwrap()
            .iter()
            .all(|one| one.why == LossWhy::Corrupt)
    );
    let report = spool.verify(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(positions(&batches(&dir, 0..3, 1, 9)), [0, 1, 2]);
    assert_eq!(positions(&batches(&dir, 9..12, 1, 9)), [9, 10, 11]);
    assert!(fs::read_dir(dir.join("lost+found")).unwrap().count() >= 2);
    // Nothing is left to do.
    assert_eq!(mend(&dir, Access::default(), false).unwrap().steps, []);
    fill(&open(&dir), 12, 1);
}

#[test]
fn no_event_gets_a_position_that_is_noted_as_lost() {
    let damages: [Way; 3] = [
        ("the last segment and the mark", |dir| {
            fs::write(dir.join("segments/00000000000000000009.arrows"), [0; 9_000]).unwrap();
            fs::remove_file(dir.join("durable")).unwrap();
        }),
        ("a stray file above the end", |dir| {
            let stray = dir.join("segments/00000000000000000070.arrows");
            fs::copy(dir.join("segments/00000000000000000003.arrows"), stray).unwrap();
        }),
        ("a list of losses that is newer", |dir| {
            let spool = Spool::open(dir).unwrap();
            let one = Loss::new(12, 50, LossWhy::Lost);
            crate::losses::add(&spool.folder, spool.uuid(), &[one]).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let (_temp, dir) = temp();
        let writer = open_segments(&dir, 4);
        writer.close(WAIT);
        damage(&dir);
        let planned = mend(&dir, Access::default(), true).unwrap();
        let mended = mend(&dir, Access::default(), false).unwrap();
        assert_eq!(planned.position, mended.position, "{what}");
        assert_eq!(
            mend(&dir, Access::default(), false).unwrap().steps,
            [],
            "{what}"
        );
        let writer = open(&dir);
        let end = writer.stats().durable;
        assert_eq!(end, mended.position, "{what}");
        fill(&writer, end, 1);
        let spool = Spool::open(&dir).unwrap();
        for loss in spool.losses().unwrap() {
            assert!(loss.to <= end, "{what}: {loss:?} of {end}");
        }
        assert_eq!(
            positions(&batches(&dir, 0..9, 1, 99)),
            (0..9).collect::<Vec<_>>(),
            "{what}"
        );
    }
}

#[test]
fn a_stray_file_between_two_segments_takes_nothing_from_the_one_before() {
    let (_temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 4);
    writer.close(WAIT);
    let stray = dir.join("segments/00000000000000000007.arrows");
    fs::copy(dir.join("spool.json"), &stray).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&stray)
        .unwrap()
        .set_len(0)
        .unwrap();
    mend(&dir, Access::default(), false).unwrap();
    assert!(!stray.exists());
    assert_eq!(
        positions(&batches(&dir, 0..12, 1, 99)),
        (0..12).collect::<Vec<_>>()
    );
    assert_eq!(Spool::open(&dir).unwrap().losses().unwrap(), []);
    fill(&open(&dir), 12, 1);
}

#[test]
fn a_damaged_list_of_losses_hides_nothing_and_is_made_anew() {
    let (_temp, dir) = temp();
    let writer = open_segments(&dir, 3);
    writer.close(WAIT);
    let path = dir.join("losses");
    fs::copy(dir.join("spool.json"), &path).unwrap();
    assert_eq!(
        positions(&batches(&dir, 0..9, 1, 99)),
        (0..9).collect::<Vec<_>>()
    );
    let report = Spool::open(&dir).unwrap().verify(&mut |_, _| {}).unwrap();
    assert!(report.problems[0].contains("losses"), "{report:?}");
    assert_eq!(mend(&dir, Access::default(), true).unwrap().steps.len(), 1);
    fill(&open(&dir), 9, 1);
    let report = Spool::open(&dir).unwrap().verify(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn an_identity_that_is_damaged_or_missing_is_refused_and_made_anew() {
    let (_temp, dir) = temp();
    open_segments(&dir, 2).close(WAIT);
    let former = adopt(&dir, Access::default()).unwrap();
    let writer = open(&dir);
    fill(&writer, 6, 1);
    writer.close(WAIT);
    let path = dir.join("spool.json");
    let whole = fs::read(&path).unwrap();
    let refused = |code: &str, how: &str| {
        let opened = Writer::open(&dir, WriterOptions::default()).map(drop);
        let errors = [
            opened.unwrap_err(),
            Spool::open(&dir).map(drop).unwrap_err(),
        ];
        for error in errors.map(|error| error.code()) {
            // A digit of the format may be the damaged byte.
            let is_digit = how.starts_with("bit") && error == "spool.format";
            assert!(error == code || is_digit, "{how}: {error}");
        }
        let steps = mend(&dir, Access::default(), true).unwrap().steps;
        assert_eq!((steps.len(), steps[0].what), (1, "file_rebuilt"), "{how}");
        assert!(steps[0].why.contains(&former.new), "{steps:?}");
    };
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, bytes).unwrap();
        refused("spool.corrupt", &format!("bit {bit}"));
    }
    fs::write(&path, b"").unwrap();
    refused("spool.corrupt", "empty");
    fs::remove_file(&path).unwrap();
    refused("spool.not_a_spool", "missing");
    assert_eq!(mend(&dir, Access::default(), false).unwrap().position, 9);
    assert_eq!(mend(&dir, Access::default(), true).unwrap().steps, []);
    let spool = Spool::open(&dir).unwrap();
    assert_eq!(spool.uuid(), former.new);
    fill(&open(&dir), 9, 1);
    let read = positions(&batches(&dir, 0..12, 1, 99));
    assert_eq!(read, (0..12).collect::<Vec<_>>());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(&former.old), "{text}");
    // Without a file that names a UUID nothing can be rebuilt.
    fs::remove_file(&path).unwrap();
    fs::remove_file(dir.join("start")).unwrap();
    fs::remove_dir_all(dir.join("segments")).unwrap();
    let error = mend(&dir, Access::default(), false).unwrap_err();
    assert_eq!(error.code(), "spool.not_a_spool");
}

#[test]
fn mending_twice_does_nothing_the_second_time() {
    let (_temp, dir) = temp();
    let options = WriterOptions {
        segment_bytes: 8_000,
        ..WriterOptions::default()
    };
    let (writer, _) = Writer::open(&dir, options).unwrap();
    fill(&writer, 0, 6);
    writer.close(WAIT);
    // The last group of the first of three segments.
    let path = dir.join(SEGMENT);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let first = mend(&dir, Access::default(), false).unwrap();
    assert!(!first.steps.is_empty());
    assert_eq!(mend(&dir, Access::default(), false).unwrap().steps, []);
    assert_eq!(mend(&dir, Access::default(), true).unwrap().steps, []);
}
