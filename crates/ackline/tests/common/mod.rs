//! A receiver and raw senders for the tests of one behaviour each.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses some of it; a failed unwrap is a failed test

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackline::spool::{Access, ReadOptions, Spool};
use ackline::{Receiver, ReceiverOptions, ReceiverStats};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A receiver with a spool in `dir` and these options.
pub(crate) async fn start(dir: &Path, options: &Value) -> Arc<Receiver> {
    let mut all = ReceiverOptions {
        urls: vec!["lumberjack://127.0.0.1:0".to_owned()],
        spool: Some(dir.to_owned()),
        ..ReceiverOptions::default()
    };
    let members: &Map<String, Value> = options.as_object().unwrap();
    all.set_all(members).unwrap();
    Arc::new(Receiver::start(all).await.unwrap())
}

/// A receiver, as soon as its addresses and its spool are free: the one before it may still be ending.
pub(crate) async fn receiving(options: &ReceiverOptions) -> Arc<Receiver> {
    let begin = Instant::now();
    loop {
        match Receiver::start(options.clone()).await {
            Ok(receiver) => return Arc::new(receiver),
            Err(error) => assert!(begin.elapsed() < DEADLINE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The URL of the endpoint `n` at a socket in this directory.
pub(crate) fn at_socket(dir: &Path) -> String {
    format!("relink+unix://{}?endpoint=n", dir.join("x.sock").display())
}

/// The longest wait for an expected result.
pub(crate) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("in time")
}

/// A sender that writes what it is told, from an address of this machine.
pub(crate) struct Sender(TcpStream);

impl Sender {
    pub(crate) async fn new(receiver: &Receiver) -> Self {
        Self::from(receiver, "127.0.0.1").await
    }

    pub(crate) async fn from(receiver: &Receiver, host: &str) -> Self {
        let to: SocketAddr = receiver.urls()[0]
            .trim_start_matches("lumberjack://")
            .parse()
            .unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{host}:0").parse().unwrap()).unwrap();
        Self(socket.connect(to).await.unwrap())
    }

    /// One with a receive buffer of so many bytes, or of the fewest that the system allows.
    pub(crate) async fn with_buffer(receiver: &Receiver, bytes: u32) -> Self {
        let to = receiver.urls()[0]
            .trim_start_matches("lumberjack://")
            .to_owned();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(bytes).unwrap();
        Self(socket.connect(to.parse().unwrap()).await.unwrap())
    }

    /// Bytes that the receiver has written and that this end's system has not taken, from the kernel's table.
    pub(crate) fn untaken(&self) -> u64 {
        let ports = [self.0.peer_addr(), self.0.local_addr()].map(|end| end.unwrap().port());
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let of_receiver = table.lines().skip(1).find_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let port = |at: usize| u16::from_str_radix(columns[at].split(':').nth(1)?, 16).ok();
            (port(1) == Some(ports[0]) && port(2) == Some(ports[1])).then(|| columns[4].to_owned())
        });
        let queues = of_receiver.unwrap();
        u64::from_str_radix(queues.split(':').next().unwrap(), 16).unwrap()
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Reads so many bytes, whatever they are.
    pub(crate) async fn read(&mut self, bytes: usize) {
        let mut read = vec![0; bytes];
        let reading = tokio::time::timeout(DEADLINE, self.0.read_exact(&mut read));
        reading.await.unwrap().unwrap();
    }

    /// The next acknowledgement: its version byte and number, or `None` at the end of the connection.
    pub(crate) async fn ack(&mut self) -> Option<(u8, u32)> {
        let mut ack = [0; 6];
        let read = tokio::time::timeout(DEADLINE, self.0.read_exact(&mut ack));
        read.await.unwrap().ok()?;
        assert_eq!(ack[1], b'A');
        Some((ack[0], u32::from_be_bytes([ack[2], ack[3], ack[4], ack[5]])))
    }

    /// The next acknowledgement that is no keepalive.
    pub(crate) async fn ack_of_window(&mut self) -> Option<(u8, u32)> {
        loop {
            let ack = self.ack().await;
            if ack.is_none_or(|(_, number)| number > 0) {
                return ack;
            }
        }
    }

    /// Ends the connection so that the receiver cannot know whether its last bytes arrived.
    pub(crate) fn reset(self) {
        socket_linger_zero(&self.0);
    }
}

#[allow(deprecated)] // the test needs a close that does not wait
fn socket_linger_zero(socket: &TcpStream) {
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

/// A window of these JSON events as it stands on the wire, numbered from 1.
pub(crate) fn window(version: u8, events: &[&str]) -> Vec<u8> {
    let size = u32::try_from(events.len()).unwrap();
    let mut out = vec![version, b'W'];
    out.extend_from_slice(&size.to_be_bytes());
    for (number, event) in (1_u32..).zip(events) {
        out.extend_from_slice(&[version, b'J']);
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&u32::try_from(event.len()).unwrap().to_be_bytes());
        out.extend_from_slice(event.as_bytes());
    }
    out
}

/// A window announced to hold `events` events whose envelope is no zlib stream.
pub(crate) fn broken(events: u32) -> Vec<u8> {
    let size = events.to_be_bytes();
    [b"2W", &size[..], b"2C\0\0\0\x05noise"].concat()
}

/// Waits until the receiver's numbers are as wanted.
pub(crate) async fn until(
    receiver: &Receiver,
    what: &str,
    is: impl Fn(&ReceiverStats) -> bool,
) -> ReceiverStats {
    let begin = Instant::now();
    loop {
        let stats = receiver.stats();
        if is(&stats) {
            return stats;
        }
        assert!(begin.elapsed() < DEADLINE, "{what}: {stats:?}");
        tokio::task::yield_now().await;
    }
}

/// The next line of this name, read off the runtime.
pub(crate) async fn line(receiver: &Arc<Receiver>, event: &str) -> Value {
    let (receiver, name) = (Arc::clone(receiver), format!("\"event\":\"{event}\""));
    let found = tokio::task::spawn_blocking(move || {
        std::iter::from_fn(|| receiver.next_event(DEADLINE))
            .take(100)
            .find(|line| line.contains(&name))
    });
    serde_json::from_str(&found.await.unwrap().unwrap()).unwrap()
}

/// The payload of every durable event, and whether it is a repeat.
pub(crate) fn landed(dir: &Path) -> Vec<(String, bool)> {
    let row = |batch: &RecordBatch, row| {
        let payloads = batch.column_by_name("payload").unwrap().as_binary::<i32>();
        let repeats = batch.column_by_name("repeat").unwrap().as_boolean();
        let payload = String::from_utf8_lossy(payloads.value(row)).into_owned();
        (payload, repeats.is_valid(row) && repeats.value(row))
    };
    let rows = |batch: RecordBatch| {
        (0..batch.num_rows())
            .map(|at| row(&batch, at))
            .collect::<Vec<_>>()
    };
    batches(dir).into_iter().flat_map(rows).collect()
}

/// Everything durable in a spool.
pub(crate) fn batches(dir: &Path) -> Vec<RecordBatch> {
    let spool = Spool::open_with(dir, Access::default()).unwrap();
    let range = spool.first_kept().unwrap()..spool.durable().unwrap();
    let read = spool.read(&ackline::layouts(), range, &ReadOptions::default());
    read.unwrap().map(Result::unwrap).collect()
}

/// Only the events that are marked as repeats.
pub(crate) fn repeats(dir: &Path) -> Vec<String> {
    let repeats = landed(dir).into_iter().filter(|(_, repeat)| *repeat);
    repeats.map(|(payload, _)| payload).collect()
}
