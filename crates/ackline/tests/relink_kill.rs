//! Processes with durable links are killed (SIGKILL) over and over, one end or both: messages that
//! were reported as kept arrive, in order, and messages that were consumed on disk do not come
//! again.
//!
//! This program is the test and, with arguments, either of the processes.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a failed unwrap is a failed test; a process talks to its parent

mod cutter;

use ackline::relink::LinkConfig;
use ackline::relink::ReconnectOptions;
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ackline::relink::{self, ChannelId, ConnectOptions, LinkOptions, ListenOptions};
use ackline_testkit::netem::XorShift;
use cutter::{Cutter, DEADLINE};

const NAME: &str = "all_that_was_kept_arrives_however_often_both_ends_are_killed";
const MESSAGES: u32 = 6_000;
/// Messages between two `kept`.
const BATCH: u32 = 20;
const KILLS: u32 = 12;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    if matches!(words[..], ["listener" | "connector", _, _, ..]) {
        // It does not outlive the test.
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(1);
        });
    }
    match words[..] {
        ["listener", state, log] => runtime.block_on(listen(state.into(), log.as_ref())),
        ["connector", url, state, log] => {
            runtime.block_on(connect(url, state.into(), log.as_ref()));
        }
        // As other tests, it is left out by a filter that does not name it.
        [filter, ..] if !filter.starts_with('-') && !NAME.contains(filter) => {}
        _ => {
            runtime.block_on(all_that_was_kept_arrives_however_often_both_ends_are_killed());
            println!("test {NAME} ... ok");
        }
    }
}

fn link_options() -> LinkOptions {
    LinkOptions {
        machine: LinkConfig {
            ack_delay: Duration::from_millis(1),
            ..LinkOptions::default().machine
        },
        ..LinkOptions::default()
    }
}

fn channel() -> ChannelId {
    ChannelId::from(1_u32)
}

/// A line in one write, which a kill does not cut.
fn note(log: &mut fs::File, what: &impl std::fmt::Display) {
    log.write_all(format!("{what}\n").as_bytes()).unwrap();
}

/// Notes each message and consumes it; then, that this is on the disk.
async fn listen(state: PathBuf, log: &Path) {
    let options = ListenOptions {
        link: link_options(),
        state: Some(state),
        ..ListenOptions::default()
    };
    let listener = relink::listen("relink://127.0.0.1:0/kill", options).await;
    let listener = listener.unwrap();
    println!("{}", listener.url());
    let link = listener.accept().await.unwrap();
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .unwrap();
    while let Some(messages) = link.receive_many(50).await.unwrap() {
        for message in messages {
            let part = message.payload.parts().next().unwrap();
            let number = u32::from_le_bytes(part[..].try_into().unwrap());
            link.consume(&message.channel, message.sequence).unwrap();
            note(&mut log, &number);
        }
        link.kept(None).await.unwrap();
        note(&mut log, &"kept");
    }
}

/// Sends the messages that are not noted as kept yet, and notes them.
async fn connect(url: &str, state: PathBuf, log: &Path) {
    let options = ConnectOptions {
        link: link_options(),
        state: Some(state),
        reconnect: ReconnectOptions {
            reconnect_max: Duration::from_millis(50),
            ..ReconnectOptions::default()
        },
        ..ConnectOptions::default()
    };
    let link = loop {
        match relink::connect(url, options.clone()).await {
            Ok(link) => break link,
            Err(relink::Error::Connect(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => unreachable!("{error}"),
        }
    };
    let mut next = numbers(log).last().map_or(0, |last| last + 1);
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .unwrap();
    while next < MESSAGES {
        let end = (next + BATCH).min(MESSAGES);
        for number in next..end {
            let payload = number.to_le_bytes().to_vec();
            link.send(&channel(), payload, None).await.unwrap();
        }
        link.kept(None).await.unwrap();
        note(&mut log, &(end - 1));
        next = end;
    }
    // Until it is killed.
    std::future::pending::<()>().await;
}

async fn all_that_was_kept_arrives_however_often_both_ends_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (near, far) = (path("near"), path("far"));
    let (sent, received) = (path("sent"), path("received"));
    let (mut listener, url) = listening(&far, &received);
    let cutter = Cutter::new(&url).await;
    let through = cutter.url(&url);
    let mut connector = connecting(&through, &near, &sent);
    let mut random = XorShift::new(11);
    for kill in 0..KILLS {
        // In the middle of the traffic, however fast the disk is.
        let due = kill * MESSAGES / (KILLS + 1) + below(&mut random, BATCH * 4);
        reached(&received, due).await;
        if kill % 3 != 0 {
            killed(&mut listener);
            let (again, url) = listening(&far, &received);
            listener = again;
            cutter.lead_to(Some(&url));
        }
        if kill % 3 != 1 {
            killed(&mut connector);
            connector = connecting(&through, &near, &sent);
        }
    }
    reached(&received, MESSAGES - 1).await;
    killed(&mut listener);
    killed(&mut connector);
    check(&received);
    assert_eq!(
        fs::read_dir(&far).unwrap().filter(is_link).count(),
        1,
        "it was one link"
    );
}

/// Waits until this message has come.
async fn reached(received: &Path, number: u32) {
    let coming = async {
        while numbers(received).max() < Some(number) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let come = tokio::time::timeout(DEADLINE, coming).await;
    assert!(
        come.is_ok(),
        "{number} is due, {:?} came",
        numbers(received).max()
    );
}

fn below(random: &mut XorShift, end: u32) -> u32 {
    u32::try_from(random.below(usize::try_from(end).unwrap())).unwrap()
}

fn is_link(entry: &std::io::Result<fs::DirEntry>) -> bool {
    let name = entry.as_ref().unwrap().file_name();
    name.to_str().is_some_and(|name| name.starts_with("link-"))
}

/// The sender sends messages again that it had not noted, so that runs begin anew; within a run
/// nothing is missing.
fn check(received: &Path) {
    let (mut most, mut kept) = (None, None);
    for line in lines(received) {
        let Ok(number) = line.parse::<u32>() else {
            kept = most;
            continue;
        };
        let next = most.map_or(0, |most: u32| most + 1);
        assert!(number <= next, "{number} came when {next} was due");
        // A message consumed on disk comes again only if its sender had not noted it, and sent it
        // again.
        let again = kept.map_or(0, |kept: u32| kept.saturating_sub(number));
        assert!(again < 2 * BATCH, "{number} came again after {kept:?}");
        most = most.max(Some(number));
    }
    assert_eq!(most, Some(MESSAGES - 1));
}

fn lines(path: &Path) -> impl Iterator<Item = String> + use<> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may be cut.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let lines: Vec<_> = text[..whole].lines().map(str::to_owned).collect();
    lines.into_iter()
}

fn numbers(path: &Path) -> impl Iterator<Item = u32> + use<> {
    lines(path).filter_map(|line| line.parse().ok())
}

fn process(arguments: &[&str]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn listening(state: &Path, log: &Path) -> (Child, String) {
    let mut child = process(&["listener", state.to_str().unwrap(), log.to_str().unwrap()]);
    let mut url = String::new();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    told.read_line(&mut url).unwrap();
    (child, url.trim().to_owned())
}

fn connecting(url: &str, state: &Path, log: &Path) -> Child {
    process(&[
        "connector",
        url,
        state.to_str().unwrap(),
        log.to_str().unwrap(),
    ])
}

fn killed(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}
