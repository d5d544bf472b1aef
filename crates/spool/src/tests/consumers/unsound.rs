//! Marks and leases that are damaged, of other formats, or above the end of the spool.

use super::*;

#[test]
fn a_file_that_is_no_mark_is_named() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 3).unwrap();
    let path = file(&spool, "prod");
    let whole = fs::read(&path).unwrap();
    let named = |error: SpoolError| {
        assert_eq!(error.code(), "spool.corrupt");
        let text = error.to_string();
        let cure = format!(
            "`ackline spool consumers rm {} prod`",
            spool.folder.dir().display()
        );
        assert!(text.contains("consumers/prod.json"), "{text}");
        assert!(text.contains(&cure), "{text}");
    };
    for at in 0..whole.len() {
        fs::write(&path, &whole[..at]).unwrap();
        named(spool.consumers().unwrap_err());
        named(refused(&spool, "prod"));
        named(spool.seek_consumer("prod", 3).unwrap_err());
    }
    for (member, value) in [
        ("committed", json!(-1)),
        ("committed", json!("3")),
        ("committed", json!(1.5)),
        ("committed", json!(1_u64 << 63)),
        ("generation", json!([])),
        ("updated", json!("yesterday")),
        ("seen", json!(3)),
        ("holder", json!({})),
        ("uuid", json!(null)),
    ] {
        fs::write(&path, &whole).unwrap();
        edit(&spool, "prod", |all| all[member] = value.clone());
        named(spool.consumers().unwrap_err());
    }
    fs::write(&path, vec![0; whole.len()]).unwrap();
    named(spool.commit_mark("prod", 3).unwrap_err());
    assert!(
        spool.remove_consumer("prod").unwrap(),
        "a file that is no mark can be removed"
    );
}

#[test]
fn a_mark_of_a_newer_writer_says_that_the_spool_was_restored() {
    let (_temp, spool) = spool_of(9);
    let newest = durable(&spool).epoch;
    let other_copy = newest ^ 1;
    let later = newest + (1 << 32);
    for epoch in [other_copy, later] {
        let mut mark = consumers::Mark::new("prod", 60);
        mark.epoch = epoch;
        consumers::write(&spool.folder, &spool.identity, &mark).unwrap();
        let errors = [
            refused(&spool, "prod"),
            spool.seek_consumer("prod", 3).unwrap_err(),
            spool.add_consumer("prod", 3).unwrap_err(),
            spool.commit_mark("prod", 3).unwrap_err(),
            consumers::check_marks(&spool.folder, &spool.identity, 9, newest).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.code(), "spool.restored");
            let text = error.to_string();
            assert!(text.contains("ends at position 9"), "{text}");
            assert!(text.contains("\"prod\" stands at position 60"), "{text}");
        }
    }
}

#[test]
fn a_mark_above_the_durable_position_is_listed_and_not_obeyed() {
    let (_temp, spool) = spool_of(9);
    let held = lease(&spool, "held");
    spool.add_consumer("prod", 9).unwrap();
    for name in ["prod", "held"] {
        edit(&spool, name, |value| value["committed"] = json!(60));
    }
    assert_eq!(mark(&spool, "prod").committed, 60);
    let errors = [
        refused(&spool, "prod"),
        spool.seek_consumer("prod", 3).unwrap_err(),
        spool.add_consumer("prod", 3).unwrap_err(),
        spool.commit_mark("prod", 3).unwrap_err(),
        held.committed().unwrap_err(),
        held.commit(3).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), "spool.mark_ahead");
    }
    assert_eq!(mark(&spool, "prod").committed, 60);
    assert!(spool.remove_consumer("prod").unwrap());
}

#[test]
fn positions_below_a_mark_are_never_given_out_again() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 9).unwrap();
    edit(&spool, "prod", |value| value["committed"] = json!(60));
    fs::copy(file(&spool, "prod"), file(&spool, "bad")).unwrap();
    fs::write(file(&spool, "bad"), "[]").unwrap();
    let open = || Writer::open(spool.folder.dir(), WriterOptions::default());
    for _ in 0..2 {
        let error = open().unwrap_err();
        assert_eq!(error.code(), "spool.mark_ahead");
        let text = error.to_string();
        assert!(text.contains("\"prod\" is at position 60"), "{text}");
        assert!(text.contains("end 9 of"), "{text}");
    }
    assert_eq!(spool.durable().unwrap(), 9);
    fs::remove_file(file(&spool, "prod")).unwrap();
    assert_eq!(open().unwrap().1.position, 9);
}

#[test]
fn an_unreadable_mark_does_not_prevent_writing() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 9).unwrap();
    fs::write(file(&spool, "prod"), "[]").unwrap();
    let (writer, recovered) = Writer::open(spool.folder.dir(), WriterOptions::default()).unwrap();
    assert_eq!(recovered.position, 9);
    fill(&writer, 9, 1);
}

#[test]
fn each_flipped_bit_of_a_mark_is_refused() {
    let (_temp, spool) = spool_of(9);
    drop(lease(&spool, "prod"));
    let path = file(&spool, "prod");
    let whole = fs::read(&path).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let epoch = format!("\"epoch\":\"{}\"", epoch_hex(durable(&spool).epoch));
    assert!(text.contains(&epoch), "{text}");
    for bit in 0..whole.len() * 8 {
        let mut bad = whole.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bad).unwrap();
        let error = consumers::read(&spool.folder, "prod").unwrap_err();
        assert_eq!(error.code(), "spool.corrupt", "bit {bit}: {error}");
    }
    let value: Value = serde_json::from_slice(&whole).unwrap();
    let mut without = value;
    without.as_object_mut().unwrap().remove("crc");
    fs::write(&path, without.to_string()).unwrap();
    assert_eq!(refused(&spool, "prod").code(), "spool.corrupt");
}

#[test]
fn a_mark_of_a_later_format_is_named_and_a_later_member_is_passed_over() {
    let (_temp, spool) = spool_of(9);
    spool.add_consumer("prod", 3).unwrap();
    edit(&spool, "prod", |value| value["later"] = json!(1));
    assert_eq!(mark(&spool, "prod").committed, 3);
    edit(&spool, "prod", |value| value["format"] = json!(3));
    assert_eq!(refused(&spool, "prod").code(), "spool.format");
    fs::write(file(&spool, "prod"), "{\"format\":9}").unwrap();
    assert_eq!(refused(&spool, "prod").code(), "spool.format");
}

#[test]
fn each_flipped_bit_of_a_lease_ends_its_reader_and_is_obeyed_by_none() {
    let (_temp, spool) = spool_of(9);
    let held = lease(&spool, "prod");
    let path = lock_path(&spool, "prod");
    let whole = fs::read(&path).unwrap();
    // Its line, without the line feed.
    let line = whole.iter().position(|byte| *byte == b'\n').unwrap();
    for bit in 0..line * 8 {
        let mut bad = whole.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bad).unwrap();
        let error = held.commit(3).expect_err(&format!("bit {bit}"));
        assert_eq!(error.code(), "spool.corrupt", "bit {bit}: {error}");
        assert!(error.to_string().contains("prod.lock"), "{error}");
    }
    drop(held);
    // Another result of power loss: the mark counts.
    assert_eq!(lease(&spool, "prod").generation(), 2);
    assert_eq!(mark(&spool, "prod").committed, 0);
    fs::write(&path, b"{\"generation\":77,\"format\":2").unwrap();
    spool.seek_consumer("prod", 3).unwrap();
    assert_eq!(lease(&spool, "prod").generation(), 4);
}

#[test]
fn a_lease_that_a_loss_of_power_left_empty_counts_as_none() {
    let (_temp, spool) = spool_of(9);
    drop(lease(&spool, "prod"));
    for (bytes, generation) in [(0, 2), (1, 3), (300, 4)] {
        fs::write(lock_path(&spool, "prod"), vec![0; bytes]).unwrap();
        assert_eq!(lease(&spool, "prod").generation(), generation);
    }
}

#[test]
fn the_end_of_a_longer_lease_before_is_no_part_of_the_next_one() {
    let (_temp, spool) = spool_of(9);
    drop(lease(&spool, "prod"));
    let path = lock_path(&spool, "prod");
    let mut text = fs::read(&path).unwrap();
    text.extend(b"ner\",\"crc\":\"00000000\"}\n");
    fs::write(&path, text).unwrap();
    assert_eq!(lease(&spool, "prod").generation(), 2);
}

#[test]
fn a_lease_of_the_release_before_is_read() {
    let (_temp, spool) = spool_of(9);
    let text = json!({"generation": 6, "pid": 4, "since": rfc3339(0), "host": "elsewhere"});
    fs::write(lock_path(&spool, "prod"), format!("{text}\n")).unwrap();
    let held = spool.lease("prod", "", Duration::ZERO, None).unwrap();
    assert_eq!(held.generation(), 7);
}

#[test]
fn a_mark_of_the_release_before_is_read() {
    let (_temp, spool) = spool_of(9);
    let updated = "2026-11-21T12:00:00.000000Z";
    let text = json!({"format": 1, "uuid": spool.uuid(), "committed": 6, "updated": updated});
    fs::write(file(&spool, "prod"), text.to_string()).unwrap();
    let consumer = mark(&spool, "prod");
    assert_eq!((consumer.committed, consumer.generation), (6, 0));
    assert_eq!(rfc3339(consumer.updated_us), updated);
    assert_eq!(consumer.seen_us, consumer.updated_us);
    assert_eq!(lease(&spool, "prod").generation(), 1);
}
