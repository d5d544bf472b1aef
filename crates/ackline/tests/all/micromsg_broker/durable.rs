//! Queues in a spool.

use super::moving::mark;
use super::moving::{SMALL, small_spool};
use super::*;

pub(super) fn durable(dir: &Path) -> BrokerOptions {
    BrokerOptions {
        spool: Some(dir.to_owned()),
        ..BrokerOptions::default()
    }
}

/// A broker on a spool that another one may still be leaving.
pub(super) async fn reopened(options: BrokerOptions) -> Broker {
    let deadline = Instant::now() + LONG;
    loop {
        match micromsg::serve("micromsg://127.0.0.1:0", options.clone()).await {
            Ok(broker) => return broker,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_is_acknowledged_once_its_message_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(durable(dir.path())).await;
    let publisher = client(&broker, 100).await;
    for number in 0..20 {
        let last = publish(&publisher, "queue/jobs", number..number + 1).await;
        soon(publisher.acknowledged(last)).await.unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        assert_eq!(spool.durable().unwrap(), number + 1);
    }
    let stored = Spool::open(dir.path()).unwrap();
    let blocks: Vec<_> = stored.blocks(0..20).unwrap().map(Result::unwrap).collect();
    assert!(blocks.iter().all(|block| block.layout == "micromsg/1"
        && block.origin.stream.as_deref() == Some("queue/jobs")));
    assert_eq!(broker.stats().held_bytes, 0, "they are on the disk alone");
    let worker = worker(&broker, "queue/jobs", 7).await;
    for number in 0..20 {
        assert_eq!(work(&worker).await, number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_outlives_its_broker_and_goes_on_behind_what_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let first = broker(durable(dir.path())).await;
    let typed = Offer {
        optional_extensions: Some("batch-ack;pub-sub;dotnet".to_owned()),
        ..Offer::default()
    };
    let typed = ConnectOptions {
        offer: typed,
        ..options(100, AckPolicy::Manual)
    };
    let publisher = soon(micromsg::connect(first.url(), typed.clone()))
        .await
        .unwrap();
    for number in 0..50 {
        let mut message = numbered("queue/jobs", number);
        message.dotnet_type = (number % 3 > 0).then(|| format!("Type{}", number % 3));
        soon(publisher.send(&message)).await.unwrap();
    }
    publish(&publisher, "queue/others", 100..120).await;
    soon(publisher.acknowledged(70)).await.unwrap();
    let one = worker(&first, "queue/jobs", 10).await;
    for number in 0..20 {
        assert_eq!(work(&one).await, number);
    }
    // Its acknowledgements go out first.
    soon(one.close(Some(LONG))).await.unwrap();
    drop(publisher);
    until("they leave", || first.stats().connections == 0).await;
    soon(first.close(Some(LONG))).await.unwrap();

    let second = broker(durable(dir.path())).await;
    assert_eq!(second.stats().queues, 2);
    let one = soon(micromsg::connect(second.url(), typed)).await.unwrap();
    one.subscribe("queue/jobs", None).await.unwrap();
    let mut last_type = None;
    for number in 20..50 {
        let received = soon(one.receive()).await.unwrap().unwrap();
        assert_eq!(self::number(&received), number);
        assert_eq!(
            received.message.raw_properties(),
            format!("number:N{number};")
        );
        if number % 3 > 0 {
            last_type = Some(format!("Type{}", number % 3));
        }
        assert_eq!(
            received.message.dotnet_type.as_deref(),
            last_type.as_deref()
        );
        one.ack(received.position).unwrap();
    }
    let two = worker(&second, "queue/others", 10).await;
    for number in 100..120 {
        assert_eq!(work(&two).await, number);
    }
    let publisher = client(&second, 10).await;
    publish(&publisher, "queue/jobs", 50..51).await;
    assert_eq!(work(&one).await, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_ends_at_once_loses_no_acknowledged_message_and_repeats_none_below_the_mark()
{
    const MESSAGES: u64 = 600;
    const WINDOW: u64 = 16;
    let dir = tempfile::tempdir().unwrap();
    let mut random = XorShift::new(5);
    let mut sent = 0;
    let mut done: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut rounds, mut marked) = (0, 0);
    while (done.len() as u64) < MESSAGES {
        rounds += 1;
        assert!(rounds < 100, "{} of {MESSAGES} are done", done.len());
        let broker = reopened(durable(dir.path())).await;
        let worker = worker(&broker, "queue/jobs", WINDOW).await;
        let publisher = client(&broker, 50).await;
        let many = (sent + 1 + random.next() % 100).min(MESSAGES);
        // The publisher sends again those that were not acknowledged.
        let last = publish(&publisher, "queue/jobs", sent..many).await;
        let quota = random.next() % 120;
        let mut to = marked;
        for _ in 0..quota {
            let came = timeout(MOMENT, worker.receive()).await;
            let Ok(Ok(Some(received))) = came else { break };
            let number = number(&received);
            assert!(number >= marked, "{number} was acknowledged");
            *done.entry(number).or_default() += 1;
            worker.ack(received.position).unwrap();
            to = number + 1;
        }
        if sent < many {
            soon(publisher.acknowledged(last)).await.unwrap();
        }
        sent = many;
        // A mark is written every 100 ms, so not in every round, but soon.
        tokio::time::sleep(Duration::from_millis(random.next() % 200)).await;
        if rounds % 2 == 0 {
            until("all is marked", || mark(dir.path(), "jobs") == to).await;
        }
        marked = mark(dir.path(), "jobs");
        // Without close, as a kill would end it.
        drop(broker);
    }
    assert!(done.keys().copied().eq(0..MESSAGES));
    let repeats: u64 = done.values().map(|times| times - 1).sum();
    assert!(
        repeats > 0,
        "what was acknowledged since the last mark comes again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_hangs_holds_no_publisher_up_while_the_spool_has_room() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(BrokerOptions {
        max_subscriber_bytes: 256 << 10,
        ..durable(dir.path())
    })
    .await;
    let hanging = worker(&broker, "queue/jobs", 10).await;
    let publisher = client(&broker, 100).await;
    for number in 0..200 {
        let message = large("queue/jobs", number, 10_000);
        let last = soon(publisher.send(&message)).await.unwrap();
        soon(publisher.acknowledged(last)).await.unwrap();
    }
    assert!(
        broker.stats().held_bytes < 512 << 10,
        "the others are on the disk alone"
    );
    assert_eq!(next(&hanging).await, 0);
    drop(hanging);
    let worker = worker(&broker, "queue/jobs", 10).await;
    for number in 0..200 {
        assert_eq!(work(&worker).await, number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_that_is_larger_than_the_memory_is_read_from_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(BrokerOptions {
        memory: 8 << 20,
        max_subscriber_bytes: 64 << 10,
        ..durable(dir.path())
    })
    .await;
    let publisher = client(&broker, 1_000).await;
    let large = |number| large("queue/jobs", number, 300);
    for number in 0..6_000 {
        soon(publisher.send(&large(number))).await.unwrap();
    }
    soon(publisher.acknowledged(6_000)).await.unwrap();
    assert_eq!(broker.stats().held_bytes, 0);
    let worker = worker(&broker, "queue/jobs", 100).await;
    for number in 0..3_000 {
        assert_eq!(work(&worker).await, number);
        assert!(broker.stats().held_bytes < 512 << 10);
    }
    // While it is behind, and once it has caught up.
    for number in 6_000..6_100 {
        soon(publisher.send(&large(number))).await.unwrap();
    }
    for number in 3_000..6_100 {
        assert_eq!(work(&worker).await, number);
    }
    for number in 6_100..6_200 {
        soon(publisher.send(&large(number))).await.unwrap();
        assert_eq!(work(&worker).await, number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_many_unacknowledged_bytes_leaves_messages_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(BrokerOptions {
        max_subscriber_bytes: 128 << 10,
        ..durable(dir.path())
    })
    .await;
    let publisher = client(&broker, 100).await;
    for number in 0..40 {
        let message = large("queue/jobs", number, 10_000);
        soon(publisher.send(&message)).await.unwrap();
    }
    soon(publisher.acknowledged(40)).await.unwrap();
    let hoarder = worker(&broker, "queue/jobs", 100).await;
    let mut has = 0;
    while let Ok(received) = timeout(MOMENT, hoarder.receive()).await {
        assert_eq!(number(&received.unwrap().unwrap()), has);
        has += 1;
    }
    // Half of `max_subscriber_bytes`, and the message that goes above it.
    assert_eq!(has, 7);
    let other = worker(&broker, "queue/jobs", 100).await;
    for number in has..40 {
        assert_eq!(work(&other).await, number);
    }
    drop(hoarder);
    for number in 0..has {
        assert_eq!(work(&other).await, number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_spool_makes_publishers_wait_until_workers_have_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let writer = WriterOptions {
        budget: 256 << 10,
        segment_bytes: 32 << 10,
        retain_committed: Duration::ZERO,
        reserve: 0,
        ..WriterOptions::default()
    };
    let broker = broker(BrokerOptions {
        writer,
        ..durable(dir.path())
    })
    .await;
    let publisher = client(&broker, 4).await;
    let publishing = tokio::spawn(async move {
        for number in 0..100 {
            let message = large("queue/jobs", number, 10_000);
            soon(publisher.send(&message)).await.unwrap();
        }
        soon(publisher.acknowledged(100)).await.unwrap();
        publisher
    });
    tokio::time::sleep(MOMENT).await;
    assert!(!publishing.is_finished(), "the spool is full");
    let topic = subscriber(&broker, "t", None).await;
    publish(&topic, "t", 1..2).await;
    assert_eq!(next(&topic).await, 1, "topics go on");
    let worker = worker(&broker, "queue/jobs", 10).await;
    for number in 0..100 {
        assert_eq!(work(&worker).await, number);
    }
    soon(publishing).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_the_spool_is_never_served_as_a_topic() {
    let dir = tempfile::tempdir().unwrap();
    let named = || BrokerOptions {
        queues: Some("queue/*;jobs".to_owned()),
        ..durable(dir.path())
    };
    let first = broker(named()).await;
    let publisher = client(&first, 10).await;
    let last = publish(&publisher, "jobs", 0..1).await;
    soon(publisher.acknowledged(last)).await.unwrap();
    drop(publisher);
    soon(first.close(Some(LONG))).await.unwrap();

    let refused = micromsg::serve("micromsg://127.0.0.1:0", durable(dir.path())).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "queues does not name \"jobs\", a queue of the spool: name it, or remove its consumer micromsg.jobs from the spool"
    );
    let second = reopened(named()).await;
    let worker = worker(&second, "jobs", 1).await;
    assert_eq!(work(&worker).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_no_consumer_is_refused_with_a_spool() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(durable(dir.path())).await;
    let one = client(&broker, 10).await;
    publish(&one, &format!("queue/{}", "x".repeat(60)), 0..1).await;
    let reason = reason(&one).await;
    assert!(
        reason.ends_with("is too long for its consumer in the spool"),
        "{reason}"
    );
}

/// The directory of the spool of a broker in a process of its own.
const CHILD: &str = "ACKLINE_TEST_BROKER";

/// No test: the process that the next test kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_in_a_process_of_its_own() {
    let Some(dir) = std::env::var_os(CHILD) else {
        return;
    };
    // It does not outlive the test.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let dir = Path::new(&dir);
    let options = if dir.ends_with(SMALL) {
        small_spool(dir)
    } else {
        durable(dir)
    };
    let broker = reopened(options).await;
    writeln!(std::io::stderr(), "\nURL {}", broker.url()).unwrap();
    std::future::pending::<()>().await;
}

pub(super) fn broker_process(dir: &Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "micromsg_broker::durable::broker_in_a_process_of_its_own",
            "--nocapture",
        ])
        .env(CHILD, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut urls = lines
        .map_while(Result::ok)
        .filter_map(|line| Some(line.strip_prefix("URL ")?.to_owned()));
    let url = urls.next().expect("it listens");
    // Nothing more is read of it: it says nothing more.
    (child, url)
}

#[tokio::test]
async fn a_broker_whose_process_is_killed_loses_no_acknowledged_message() {
    const MESSAGES: u64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let mut random = XorShift::new(9);
    let mut acknowledged = 0;
    let mut done = BTreeSet::new();
    for round in 0.. {
        assert!(round < 60, "{} of {MESSAGES} are done", done.len());
        let (mut child, url) = broker_process(dir.path());
        let connect = |window| micromsg::connect(&url, options(window, AckPolicy::Manual));
        let publisher = soon(connect(30)).await.unwrap();
        let worker = soon(connect(8)).await.unwrap();
        worker.subscribe("queue/jobs", None).await.unwrap();
        let many = (acknowledged + 60).min(MESSAGES);
        let publishing = async {
            // Those that were not acknowledged are sent again.
            let last = publish(&publisher, "queue/jobs", acknowledged..many).await;
            if last > 0 {
                soon(publisher.acknowledged(last)).await.unwrap();
            }
        };
        let working = async {
            let until = Instant::now() + Duration::from_millis(150 + random.next() % 200);
            while let Ok(Ok(Some(received))) =
                tokio::time::timeout_at(until, worker.receive()).await
            {
                done.insert(number(&received));
                worker.ack(received.position).unwrap();
            }
        };
        tokio::join!(publishing, working);
        acknowledged = many;
        child.kill().unwrap();
        child.wait().unwrap();
        if acknowledged == MESSAGES && done.len() as u64 == MESSAGES {
            break;
        }
    }
    assert!(done.into_iter().eq(0..MESSAGES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_acknowledges_nothing_and_topics_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(durable(dir.path())).await;
    let reader = subscriber(&broker, "prices", None).await;
    let idle = worker(&broker, "queue/jobs", 10).await;
    let publisher = client(&broker, 10).await;
    // No segment can be made any more.
    std::fs::rename(dir.path().join("segments"), dir.path().join("gone")).unwrap();
    let last = publish(&publisher, "queue/jobs", 0..3).await;
    let ended = soon(publisher.acknowledged(last)).await.unwrap_err();
    assert_eq!(ended.code(), "micromsg.failed");
    assert!(
        ended
            .to_string()
            .contains("the spool of the queues has failed"),
        "{ended}"
    );
    assert_eq!(publisher.stats().acknowledged, 0);
    until("it is told", || {
        broker
            .next_refusal()
            .is_some_and(|line| line.contains("micromsg.spool_failed"))
    })
    .await;
    // Later publishers are refused too, and nobody is given what is not durable.
    let later = client(&broker, 10).await;
    let last = publish(&later, "queue/others", 0..1).await;
    assert!(soon(later.acknowledged(last)).await.is_err());
    assert!(timeout(MOMENT, idle.receive()).await.is_err());
    let other = client(&broker, 10).await;
    publish(&other, "prices", 7..8).await;
    assert_eq!(next(&reader).await, 7, "topics need no disk");
}
