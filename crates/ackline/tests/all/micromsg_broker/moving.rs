//! Queues that nobody works on, which are moved to the end of the spool.

use std::sync::Arc;

use ackline::micromsg::MessageLayout;
use ackline_spool::{Block, Layouts, Origin, Promise, ReadOptions, Settle, SpoolError, Writer};

use super::durable::{broker_process, durable, reopened};
use super::*;

pub(super) fn small_spool(dir: &Path) -> BrokerOptions {
    let writer = WriterOptions {
        budget: 16 << 20,
        segment_bytes: 256 << 10,
        retain_committed: Duration::ZERO,
        reserve: 0,
        ..WriterOptions::default()
    };
    BrokerOptions {
        writer,
        ..durable(dir)
    }
}

/// The mark of the queue that nobody works on.
fn left_mark(dir: &Path) -> u64 {
    mark(dir, "left")
}

/// The mark of the queue whose name ends so.
pub(super) fn mark(dir: &Path, queue: &str) -> u64 {
    let consumers = Spool::open(dir).unwrap().consumers().unwrap();
    let found = consumers.iter().find(|one| one.name.ends_with(queue));
    found.map_or(0, |found| found.committed)
}

/// Waits until that queue keeps so many bytes; its mark has not moved then.
async fn until_kept(dir: &Path, bytes: u64) {
    let kept = || {
        let spool = Spool::open(dir).unwrap();
        spool.lag(left_mark(dir)).unwrap().bytes
    };
    let before = left_mark(dir);
    until("it keeps much", || kept() >= bytes).await;
    assert_eq!(left_mark(dir), before);
}

/// Sends so many large messages to a queue and works on all of them.
async fn traffic(broker: &Broker, queue: &str, numbers: std::ops::Range<u64>) {
    let (publisher, worker) = (client(broker, 16).await, worker(broker, queue, 16).await);
    let sending = {
        let (queue, numbers) = (queue.to_owned(), numbers.clone());
        async move {
            let mut last = 0;
            for number in numbers {
                let message = large(&queue, number, 20_000);
                last = soon(publisher.send(&message)).await.unwrap();
            }
            soon(publisher.acknowledged(last)).await.unwrap();
        }
    };
    let working = async {
        for number in numbers {
            assert_eq!(work(&worker).await, number);
        }
    };
    tokio::join!(sending, working);
    // Its acknowledgements go out first.
    soon(worker.close(Some(LONG))).await.unwrap();
}

/// The same to a queue beside, in a task of its own.
fn beside(broker: &Arc<Broker>, numbers: std::ops::Range<u64>) -> tokio::task::JoinHandle<()> {
    let broker = Arc::clone(broker);
    tokio::spawn(async move { traffic(&broker, "queue/busy", numbers).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_nobody_works_on_does_not_stop_the_others_at_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let first = broker(small_spool(dir.path())).await;
    let publisher = client(&first, 100).await;
    let left = publish(&publisher, "queue/left", 0..6).await;
    soon(publisher.acknowledged(left)).await.unwrap();
    // A worker takes all of them, does none, and leaves: they are set aside, before those that come later.
    let one = worker(&first, "queue/left", 10).await;
    for number in 0..6 {
        assert_eq!(next(&one).await, number);
    }
    soon(one.close(Some(LONG))).await.unwrap();
    // Twice the budget passes.
    traffic(&first, "queue/busy", 0..2_000).await;
    assert!(
        has_copies(dir.path()),
        "the next broker would know of a move that was cut"
    );
    let left = publish(&publisher, "queue/left", 6..9).await;
    soon(publisher.acknowledged(left)).await.unwrap();
    traffic(&first, "queue/busy", 2_000..4_000).await;
    drop(publisher);
    soon(first.close(Some(LONG))).await.unwrap();

    let second = broker(small_spool(dir.path())).await;
    traffic(&second, "queue/busy", 4_000..6_000).await;
    let one = worker(&second, "queue/left", 4).await;
    for number in 0..9 {
        assert_eq!(work(&one).await, number, "in order, none twice");
    }
    nothing_comes(&one).await;
    until("all are done", || second.stats().unacknowledged == 0).await;
    traffic(&second, "queue/busy", 6_000..7_000).await;
    soon(second.close(Some(LONG))).await.unwrap();
    let third = broker(small_spool(dir.path())).await;
    let one = worker(&third, "queue/left", 4).await;
    nothing_comes(&one).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_comes_while_its_queue_is_moved_gets_each_message_once() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(small_spool(dir.path())).await;
    let publisher = client(&broker, 100).await;
    let mut sent = 0;
    let mut done = 0;
    for round in 0..12_u64 {
        let numbers = sent..sent + 20;
        sent = numbers.end;
        // They come before, while and after the queue is moved.
        let publishing = async {
            for number in numbers {
                let last = publish(&publisher, "queue/left", number..number + 1).await;
                soon(publisher.acknowledged(last)).await.unwrap();
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
        };
        // More than half the budget: the queue is moved in most rounds.
        let busy = traffic(&broker, "queue/busy", round * 500..(round + 1) * 500);
        let working = async {
            tokio::time::sleep(Duration::from_millis(round * 5)).await;
            let one = worker(&broker, "queue/left", 5).await;
            for _ in 0..10 {
                assert_eq!(work(&one).await, done);
                done += 1;
            }
            soon(one.close(Some(LONG))).await.unwrap();
        };
        tokio::join!(busy, publishing, working);
        until("it has left", || broker.stats().unacknowledged == 0).await;
    }
    let one = worker(&broker, "queue/left", 100).await;
    while done < sent {
        assert_eq!(work(&one).await, done);
        done += 1;
    }
    nothing_comes(&one).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_worker_hangs_is_moved_once_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Arc::new(broker(small_spool(dir.path())).await);
    let publisher = client(&broker, 100).await;
    let last = publish(&publisher, "queue/left", 0..5).await;
    soon(publisher.acknowledged(last)).await.unwrap();
    let hanging = worker(&broker, "queue/left", 3).await;
    assert_eq!(next(&hanging).await, 0);
    let busy = beside(&broker, 0..3_000);
    // Its messages may be acknowledged at any time.
    until_kept(dir.path(), 11 << 20).await;
    assert!(!busy.is_finished());
    drop(hanging);
    busy.await.unwrap();
    let one = worker(&broker, "queue/left", 3).await;
    for number in 0..5 {
        assert_eq!(work(&one).await, number);
    }
    nothing_comes(&one).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_queue_that_nobody_works_on_stays_until_somebody_does() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Arc::new(broker(small_spool(dir.path())).await);
    let publisher = client(&broker, 1_000).await;
    // More than a sixteenth of the budget.
    for number in 0..120 {
        let message = large("queue/left", number, 10_000);
        soon(publisher.send(&message)).await.unwrap();
    }
    soon(publisher.acknowledged(120)).await.unwrap();
    let busy = beside(&broker, 0..3_000);
    until_kept(dir.path(), 11 << 20).await;
    assert!(!busy.is_finished());
    let one = worker(&broker, "queue/left", 100).await;
    for number in 0..120 {
        assert_eq!(work(&one).await, number);
    }
    busy.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_copies_would_be_large_stays() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Arc::new(broker(small_spool(dir.path())).await);
    let publisher = client_with(&broker, "batch-ack;pub-sub;dotnet", 1_000).await;
    // Small messages, each of another type than the last, and so in a block of its own.
    let mut last = 0;
    for number in 0..3_000 {
        let mut message = Message::new("queue/left", "");
        message.dotnet_type = Some(if number % 2 == 0 { "A" } else { "B" }.to_owned());
        last = soon(publisher.send(&message)).await.unwrap();
    }
    soon(publisher.acknowledged(last)).await.unwrap();
    let busy = beside(&broker, 0..3_000);
    until_kept(dir.path(), 11 << 20).await;
    assert!(!busy.is_finished());
    let one = worker(&broker, "queue/left", 100).await;
    for _ in 0..3_000 {
        let received = soon(one.receive()).await.unwrap().unwrap();
        one.ack(received.position).unwrap();
    }
    busy.await.unwrap();
}

/// Whether a message of the spool says how far its queue was moved.
fn has_copies(dir: &Path) -> bool {
    let spool = Spool::open(dir).unwrap();
    let layouts = Layouts::new(vec![Arc::new(MessageLayout)]);
    let options = ReadOptions {
        columns: Some(vec!["attributes".to_owned()]),
        ..ReadOptions::default()
    };
    let kept = spool.first_kept().unwrap()..spool.durable().unwrap();
    let batches = spool.read(&layouts, kept, &options).unwrap();
    batches.map(Result::unwrap).any(|batch| {
        let text = format!("{batch:?}");
        text.contains("micromsg.moved")
    })
}

struct Nobody;

impl Settle for Nobody {
    fn settle(&self, _tokens: &[u64]) {}
    fn failed(&self, error: &SpoolError) {
        panic!("{error}");
    }
}

/// Writes copies of the messages 0 to `count` of a queue, as a broker does that moves it and is killed before it has
/// written the mark.
fn copy_in_part(dir: &Path, count: u32, [copies_from, mark]: [u64; 2]) {
    let mut body = Vec::new();
    for number in 0..count {
        let payload = number.to_string();
        ackline_micromsg::stored::put_length(&mut body, 0);
        ackline_micromsg::stored::put_length(&mut body, payload.len());
        body.extend_from_slice(payload.as_bytes());
    }
    let name: Arc<str> = "a queue that was moved".into();
    let block = Block {
        origin: Origin {
            protocol: "micromsg".into(),
            peer: Arc::clone(&name),
            link: name,
            stream: Some("queue/left".into()),
        },
        layout: "micromsg/1",
        codec: "none",
        first_sequence: 0,
        count,
        windows: 1,
        inflated_bytes: body.len() as u64,
        repeats: Some(vec![u8::MAX >> (8 - count)]),
        attributes: vec![(
            "micromsg.moved".into(),
            format!("{count} {copies_from} {mark}").into(),
        )],
        body: vec![body.into()],
    };
    let (writer, _) = Writer::open(dir, small_spool(dir).writer).unwrap();
    writer.append(block, Arc::new(Nobody), 0, Promise::Durable);
    assert!(writer.flush(LONG));
    writer.close(LONG);
}

/// A broker that ends with the messages 0 to 5 in a queue.
async fn leave_six(dir: &Path) {
    let first = broker(small_spool(dir)).await;
    let publisher = client(&first, 100).await;
    let last = publish(&publisher, "queue/left", 0..6).await;
    soon(publisher.acknowledged(last)).await.unwrap();
    soon(first.close(Some(LONG))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_a_kill_has_cut_is_ended_and_no_message_is_handed_out_twice() {
    for copied in [1, 3, 6] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        leave_six(dir).await;
        let copies_from = Spool::open(dir).unwrap().durable().unwrap();
        assert_eq!((copies_from, left_mark(dir)), (6, 0));
        copy_in_part(dir, copied, [copies_from, 0]);

        let second = broker(small_spool(dir)).await;
        let (publisher, one) = (
            client(&second, 100).await,
            worker(&second, "queue/left", 4).await,
        );
        let last = publish(&publisher, "queue/left", 6..8).await;
        for number in 0..8 {
            assert_eq!(work(&one).await, number, "in order, none twice");
        }
        nothing_comes(&one).await;
        soon(publisher.acknowledged(last)).await.unwrap();
        soon(second.close(Some(LONG))).await.unwrap();
        assert_eq!(left_mark(dir), 14, "six messages, six copies, two more");
        let third = broker(small_spool(dir)).await;
        nothing_comes(&worker(&third, "queue/left", 4).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_was_ended_is_not_ended_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    leave_six(dir).await;
    copy_in_part(dir, 6, [6, 0]);
    for done in [0, 2, 4] {
        let next = broker(small_spool(dir)).await;
        let one = worker(&next, "queue/left", 2).await;
        for number in done..done + 2 {
            assert_eq!(work(&one).await, number);
        }
        soon(one.close(Some(LONG))).await.unwrap();
        soon(next.close(Some(LONG))).await.unwrap();
        assert_eq!(left_mark(dir), 6 + done + 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_was_moved_back_is_no_move_that_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    leave_six(dir).await;
    // When these were copied, the mark was another one.
    copy_in_part(dir, 6, [6, 3]);
    let second = broker(small_spool(dir)).await;
    let one = worker(&second, "queue/left", 4).await;
    for number in (0..6).chain(0..6) {
        assert_eq!(work(&one).await, number, "as the operator wants");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_queue_that_nobody_works_on_does_not_stop_the_others_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let first = broker(small_spool(dir.path())).await;
    let publisher = client(&first, 100).await;
    let last = publish(&publisher, "queue/left", 0..1).await;
    let one = worker(&first, "queue/left", 4).await;
    assert_eq!(work(&one).await, 0);
    soon(publisher.acknowledged(last)).await.unwrap();
    soon(one.close(Some(LONG))).await.unwrap();
    until("its mark is written", || left_mark(dir.path()) == 1).await;
    traffic(&first, "queue/busy", 0..200).await;
    until("its mark is written", || mark(dir.path(), "busy") > 200).await;
    // The other mark is written now and then, and is an old one.
    first.stop();
    drop((first, publisher));
    let before = left_mark(dir.path());

    let second = reopened(small_spool(dir.path())).await;
    traffic(&second, "queue/busy", 200..2_000).await;
    assert!(left_mark(dir.path()) > before.max(1_000));
}

/// The name of a spool with a small budget.
pub(super) const SMALL: &str = "small";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_while_it_moves_a_queue_loses_none_of_its_messages() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join(SMALL);
    let mut random = XorShift::new(3);
    for round in 0..12 {
        let (mut child, url) = broker_process(&dir);
        let connect = |window| micromsg::connect(&url, options(window, AckPolicy::Manual));
        let (publisher, worker) = (
            soon(connect(16)).await.unwrap(),
            soon(connect(16)).await.unwrap(),
        );
        // The queue has no worker until the last round is over: then nothing of it may come twice.
        if round == 0 {
            let last = publish(&publisher, "queue/left", 0..40).await;
            soon(publisher.acknowledged(last)).await.unwrap();
        }
        worker.subscribe("queue/busy", None).await.unwrap();
        let sending = tokio::spawn(async move {
            let message = large("queue/busy", 0, 100_000);
            while publisher.send(&message).await.is_ok() {}
        });
        let working = tokio::spawn(async move {
            while let Ok(Some(received)) = worker.receive().await {
                let _ = worker.ack(received.position);
            }
        });
        let before = left_mark(&dir);
        if round % 2 == 0 {
            until("the queue was moved", || left_mark(&dir) > before).await;
        }
        tokio::time::sleep(Duration::from_millis(random.next() % 400)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        soon(sending).await.unwrap();
        soon(working).await.unwrap();
    }
    let (mut child, url) = broker_process(&dir);
    let connect = micromsg::connect(&url, options(10, AckPolicy::Manual));
    let worker = soon(connect).await.unwrap();
    worker.subscribe("queue/left", None).await.unwrap();
    let mut done = Vec::new();
    while let Ok(received) = timeout(10 * MOMENT, worker.receive()).await {
        let received = received.unwrap().unwrap();
        done.push(number(&received));
        worker.ack(received.position).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(done.iter().copied().eq(0..40), "{done:?}");
    let report = Spool::open(&dir).unwrap().verify(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}
