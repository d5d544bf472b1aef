//! A copy becomes an independent spool.

use serde_json::{Value, json};

use super::*;
use crate::{
    Access, adopt, consumers,
    folder::Folder,
    format::Identity,
    lock::{self, Lock},
    sealed,
    start::Start,
};

fn folder(dir: &Path) -> Folder {
    Folder::open(dir, Access::default(), Arc::new(crate::disk::RealDisk)).unwrap()
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn copied() -> (tempfile::TempDir, PathBuf, String) {
    let (temp, dir) = temp();
    let writer = open(&dir);
    fill(&writer, 0, 3);
    writer.close(WAIT);
    let spool = Spool::open(&dir).unwrap();
    spool.add_consumer("prod", 6).unwrap();
    let uuid = spool.uuid().to_owned();
    let restored = dir.with_extension("restored");
    copy(&dir, &restored);
    (temp, restored, uuid)
}

fn spools(batches: &[RecordBatch]) -> Vec<String> {
    let column = |batch: &RecordBatch| {
        let spool = batch["spool"].as_string::<i32>();
        (0..batch.num_rows())
            .map(|at| spool.value(at).to_owned())
            .collect::<Vec<_>>()
    };
    let mut all: Vec<String> = batches.iter().flat_map(column).collect();
    all.dedup();
    all
}

#[test]
fn an_adopted_spool_continues_under_its_new_name() {
    let (_temp, dir, old) = copied();
    let adopted = adopt(&dir, Access::default()).unwrap();
    assert_eq!(adopted.old, old);
    assert_ne!(adopted.new, old);
    assert_eq!(adopted.lowered, Vec::<String>::new());
    let (writer, recovered) = Writer::open(&dir, WriterOptions::default()).unwrap();
    assert_eq!((recovered.position, recovered.cut_bytes), (9, 0));
    fill(&writer, 9, 2);
    assert_eq!(writer.stats().uuid, adopted.new);
    let whole = batches(&dir, 0..15, 1, 4);
    assert_eq!(positions(&whole), (0..15).collect::<Vec<_>>());
    assert_eq!(spools(&whole), std::slice::from_ref(&adopted.new));
    writer.close(WAIT);
    let spool = Spool::open(&dir).unwrap();
    assert_eq!(
        spool.verify(&mut |_, _| {}).unwrap().problems,
        Vec::<String>::new()
    );
    assert_eq!(spool.consumers().unwrap()[0].committed, 6);
    let lease = spool.lease("prod", "", Duration::ZERO, None).unwrap();
    lease.commit(15).unwrap();
}

#[test]
fn a_slice_of_an_adopted_spool_is_read_by_its_file() {
    let (_temp, dir, old) = copied();
    let adopted = adopt(&dir, Access::default()).unwrap();
    let slices = Spool::open(&dir).unwrap().slices(0..9, 1, 1).unwrap();
    let read = |slice| -> Result<Vec<RecordBatch>, SpoolError> {
        Spool::read_slice(&layouts(), slice, &ReadOptions::default())?.collect()
    };
    assert_eq!(spools(&read(&slices[0]).unwrap()), [adopted.new]);
    let mut checkpointed = slices[0].clone();
    checkpointed.uuid = "00000000-0000-4000-8000-000000000000".to_owned();
    assert_eq!(read(&checkpointed).unwrap_err().code(), "spool.replaced");
    assert_ne!(Spool::open(&dir).unwrap().uuid(), old);
}

#[test]
fn a_spool_can_be_adopted_again_also_after_a_torn_tail() {
    let (_temp, dir, old) = copied();
    let first = adopt(&dir, Access::default()).unwrap();
    let index = dir.join("segments/00000000000000000000.idx");
    let bytes = fs::read(&index).unwrap();
    // The copy was taken while the footer was written.
    fs::write(&index, &bytes[..bytes.len() - 13]).unwrap();
    let second = adopt(&dir, Access::default()).unwrap();
    assert_eq!(second.old, first.new);
    assert_eq!(open(&dir).stats().durable, 9);
    assert_eq!(spools(&batches(&dir, 0..9, 1, 100)), [second.new]);
    let text = fs::read_to_string(dir.join("spool.json")).unwrap();
    assert!(text.contains(&old) && text.contains(&first.new), "{text}");
}

#[test]
fn adopting_needs_the_spool_for_itself() {
    let (_temp, dir, old) = copied();
    let writer = open(&dir);
    assert_eq!(
        adopt(&dir, Access::default()).unwrap_err().code(),
        "spool.locked"
    );
    writer.close(WAIT);
    let spool = Spool::open(&dir).unwrap();
    let lease = spool.lease("prod", "", Duration::ZERO, None).unwrap();
    let error = adopt(&dir, Access::default()).unwrap_err();
    assert_eq!(error.code(), "spool.consumer_busy");
    drop(lease);
    let unwritten = spool.lease("later", "", Duration::ZERO, None).unwrap();
    let error = adopt(&dir, Access::default()).unwrap_err();
    assert!(error.to_string().contains("\"later\""), "{error}");
    drop(unwritten);
    assert_eq!(Spool::open(&dir).unwrap().uuid(), old);
    adopt(&dir, Access::default()).unwrap();
    let missing = adopt(&dir.join("nothing"), Access::default()).unwrap_err();
    assert_eq!(missing.code(), "spool.not_a_spool");
}

#[test]
fn a_mark_that_knows_more_than_the_copy_is_lowered() {
    let (_temp, dir, old) = copied();
    let path = dir.join("consumers/prod.json");
    let mut mark = json_of(&path);
    mark.as_object_mut().unwrap().remove("crc");
    mark["committed"] = json!(60);
    fs::write(&path, sealed::encode(&mark)).unwrap();
    let refused = Writer::open(&dir, WriterOptions::default()).unwrap_err();
    assert_eq!(refused.code(), "spool.mark_ahead");
    let adopted = adopt(&dir, Access::default()).unwrap();
    assert_eq!(adopted.lowered, ["prod"]);
    assert_eq!(adopted.old, old);
    assert_eq!(
        Spool::open(&dir).unwrap().consumers().unwrap()[0].committed,
        9
    );
}

#[test]
fn adopting_is_the_cure_of_a_spool_that_was_restored() {
    let (_temp, dir, _) = copied();
    let folder = folder(&dir);
    let identity = Identity::read(&folder).unwrap().unwrap();
    let mut mark = consumers::read(&folder, "prod").unwrap().unwrap();
    (mark.committed, mark.epoch) = (60, mark.epoch + (7 << 32));
    consumers::write(&folder, &identity, &mark).unwrap();
    for _ in 0..2 {
        let error = Writer::open(&dir, WriterOptions::default()).unwrap_err();
        assert_eq!(error.code(), "spool.restored");
        let cure = format!("`ackline spool adopt {}`", dir.display());
        assert!(error.to_string().contains(&cure), "{error}");
    }
    let adopted = adopt(&dir, Access::default()).unwrap();
    assert_eq!(adopted.lowered, ["prod"]);
    let (writer, recovered) = Writer::open(&dir, WriterOptions::default()).unwrap();
    assert_eq!(recovered.position, 9);
    fill(&writer, 9, 1);
    let spool = Spool::open(&dir).unwrap();
    let lease = spool.lease("prod", "", Duration::ZERO, None).unwrap();
    assert_eq!(lease.committed().unwrap(), Some(9));
}

#[test]
fn an_adopted_spool_keeps_when_it_was_created_and_where_it_begins() {
    let (_temp, dir, _) = copied();
    let folder = folder(&dir);
    let created = json_of(&dir.join("spool.json"))["created"].clone();
    let start = Start::read(&folder).unwrap().unwrap();
    let adopted = adopt(&dir, Access::default()).unwrap();
    assert_eq!(json_of(&dir.join("spool.json"))["created"], created);
    let uuid = adopted.new;
    let now = Start::read(&folder).unwrap().unwrap();
    assert_eq!(now, Start { uuid, ..start });
    fs::write(dir.join("start"), "damaged").unwrap();
    adopt(&dir, Access::default()).unwrap();
    drop(open(&dir));
    assert_eq!(Spool::open(&dir).unwrap().first_kept().unwrap(), 0);
}

#[test]
fn adopting_holds_the_lock_on_marks() {
    let (_temp, dir, _) = copied();
    let folder = folder(&dir);
    std::thread::scope(|scope| {
        let marks = Lock::marks(&folder).unwrap();
        let adopting = scope.spawn(|| adopt(&dir, Access::default()).unwrap());
        until("the writer's lock", || {
            lock::holder(folder.root(), "lock").unwrap().is_some()
        });
        assert!(!adopting.is_finished());
        drop(marks);
        adopting.join().unwrap();
    });
}

#[test]
fn a_spool_that_was_opened_before_it_was_adopted_moves_no_mark() {
    let (_temp, dir, old) = copied();
    let before = Spool::open(&dir).unwrap();
    let adopted = adopt(&dir, Access::default()).unwrap();
    let errors = [
        before.lease("prod", "", Duration::ZERO, None).unwrap_err(),
        before.commit_mark("prod", 9).unwrap_err(),
        before.seek_consumer("prod", 9).unwrap_err(),
        before.add_consumer("more", 9).unwrap_err(),
        before.remove_consumer("prod").unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), "spool.replaced");
        let text = error.to_string();
        assert!(text.contains(&old) && text.contains(&adopted.new), "{text}");
    }
    assert_eq!(
        Spool::open(&dir).unwrap().consumers().unwrap()[0].committed,
        6
    );
}

#[test]
fn a_lease_of_a_spool_that_is_gone_says_so() {
    let (_temp, dir, old) = copied();
    let spool = Spool::open(&dir).unwrap();
    let lease = spool.lease("prod", "", Duration::ZERO, None).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(lease.commit(9).unwrap_err().code(), "spool.not_a_spool");
    drop(open(&dir));
    let error = lease.commit(9).unwrap_err();
    assert_eq!(error.code(), "spool.replaced");
    assert!(error.to_string().contains(&old), "{error}");
    drop(lease);
    assert_eq!(Spool::open(&dir).unwrap().consumers().unwrap(), []);
}

#[test]
fn a_segment_of_another_spool_is_refused() {
    let (_temp, dir, _) = copied();
    let (_other, other, foreign) = copied();
    for name in ["00000000000000000000.arrows", "00000000000000000000.idx"] {
        let segments = Path::new("segments").join(name);
        fs::copy(other.join(&segments), dir.join(&segments)).unwrap();
    }
    let spool = Spool::open(&dir).unwrap();
    let errors = [
        spool
            .read(&layouts(), 0..9, &ReadOptions::default())
            .unwrap_err(),
        Writer::open(&dir, WriterOptions::default()).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), "spool.replaced");
        assert!(error.to_string().contains(&foreign), "{error}");
    }
}
