//! A Lumberjack sender that is never the limit: windows prepared beforehand, three in flight on each connection.
//!
//! `ackline-bench [--ids] [--level L] [--ca FILE] [--connections N] [--events E] HOST:PORT SECONDS
//! [WINDOWS]` prepares 256 windows of 2,048 (E) events, waits for a line on standard input, sends
//! them in turn over one (N) connection until the time is over (or each has sent WINDOWS windows),
//! and prints one JSON line with the acknowledged events and the time taken. The events are those
//! of Filebeat with its default `filebeat.yml`; with `--ids` each carries a trace id and a span id,
//! which deflate badly; with `--level 0` they come without an envelope; with `--ca` over TLS, to a
//! server of this authority.
//!
//! `ackline-bench project [SECONDS]` measures the projection of these events to columns instead, without a network;
//! `ackline-bench relink decode|links [SECONDS]` how fast Relink's packets are decoded and encoded in memory, and its links;
//! `ackline-bench bpmux connections [SECONDS]` bpmux's connections, beside yamux;
//! `ackline-bench micromsg messages [SECONDS]` MicroMsg2's messages, beside bare TCP, its filters and its fan-out;
//! `ackline-bench reactive streams [SECONDS]` Reactive Streams' elements, beside bare TCP;
//! `ackline-bench lines COUNT` prints events, one on each line, for senders that take them as bytes.

#![forbid(unsafe_code)]

mod bpmux;
mod ends;
mod events;
mod micromsg;
mod project;
mod reactive;
mod relink;
mod secure;

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use tokio_rustls::rustls::ClientConfig;

use events::{EVENT_BYTES, Fields, Numbers, push_event, window};

/// Events in a window: the most that Beats sends.
const EVENTS: u32 = 2048;
/// The zlib level of Beats.
const LEVEL: u32 = 3;
/// Different windows, so that no cache of the receiver holds them all.
const DISTINCT: usize = 256;
/// Windows sent and not yet acknowledged.
const IN_FLIGHT: usize = 3;
/// Length of an acknowledgement frame.
const ACK_BYTES: usize = 6;
/// A thread for each connection, with little to remember.
const STACK_BYTES: usize = 128 * 1024;
const USAGE: &str = "usage: ackline-bench [--ids] [--level L] [--ca FILE] [--connections N] [--events E] HOST:PORT SECONDS [WINDOWS]";

/// The windows to send, and their target.
struct Load {
    address: String,
    time: Duration,
    most: usize,
    connections: usize,
    events: u32,
    fields: Fields,
    level: u32,
    secure: Option<Arc<ClientConfig>>,
}

/// The result of sending them.
#[derive(Default)]
struct Sent {
    wire_bytes: u64,
    /// Times from the first byte of a window to its acknowledgement.
    waits: Vec<Duration>,
}

impl Load {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut load = Self {
            address: String::new(),
            time: Duration::ZERO,
            most: usize::MAX,
            connections: 1,
            events: EVENTS,
            fields: Fields::Default,
            level: LEVEL,
            secure: None,
        };
        let mut positional = Vec::new();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--ids" => load.fields = Fields::Ids,
                "--level" => load.level = arguments.next().ok_or(USAGE)?.parse()?,
                "--ca" => {
                    let ca = arguments.next().ok_or(USAGE)?;
                    load.secure = Some(secure::trusting(Path::new(&ca))?);
                }
                "--connections" => load.connections = arguments.next().ok_or(USAGE)?.parse()?,
                "--events" => load.events = arguments.next().ok_or(USAGE)?.parse()?,
                _ => positional.push(argument),
            }
        }
        let mut positional = positional.into_iter();
        load.address = positional.next().ok_or(USAGE)?;
        load.time = Duration::from_secs_f64(positional.next().ok_or(USAGE)?.parse()?);
        if let Some(windows) = positional.next() {
            load.most = windows.parse()?;
        }
        Ok(load)
    }

    /// Different windows, as many as are needed.
    fn windows(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut numbers = Numbers::new(0x5eed);
        (0..DISTINCT.min(self.most))
            .map(|_| window(self.events, self.fields, self.level, &mut numbers))
            .collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if_eq("project").is_some() {
        return project::run(arguments);
    }
    if arguments.next_if_eq("relink").is_some() {
        return relink::run(arguments);
    }
    if arguments.next_if_eq("bpmux").is_some() {
        return bpmux::run(arguments);
    }
    if arguments.next_if_eq("micromsg").is_some() {
        return micromsg::run(arguments);
    }
    if arguments.next_if_eq("reactive").is_some() {
        return reactive::run(arguments);
    }
    if arguments.next_if_eq("lines").is_some() {
        return Ok(lines(arguments.next().ok_or(USAGE)?.parse()?)?);
    }
    let load = Load::parse(arguments)?;
    let windows = load.windows()?;
    let mut stdout = io::stdout();
    writeln!(stdout, "{{\"event\":\"ready\"}}")?;
    io::stdin().read_line(&mut String::new())?;

    let begun = Instant::now();
    let sent = send_all(&load, &windows)?;
    let took = begun.elapsed().as_secs_f64();
    let mut waits: Vec<f64> = sent.waits.iter().map(Duration::as_secs_f64).collect();
    waits.sort_by(f64::total_cmp);
    let percentile = |percent: usize| {
        let at = (waits.len() * percent).div_ceil(100).saturating_sub(1);
        waits.get(at).map_or(0.0, |seconds| seconds * 1000.0)
    };
    let (acked, events) = (waits.len(), waits.len() as u64 * u64::from(load.events));
    writeln!(
        stdout,
        r#"{{"event":"done","connections":{},"windows":{acked},"events":{events},"event_bytes":{EVENT_BYTES},"wire_bytes":{},"seconds":{took},"ack_p50_ms":{:.3},"ack_p99_ms":{:.3}}}"#,
        load.connections,
        sent.wire_bytes,
        percentile(50),
        percentile(99),
    )?;
    Ok(())
}

/// Prints so many events.
fn lines(count: u64) -> io::Result<()> {
    let (mut numbers, mut out) = (Numbers::new(0x5eed), io::stdout().lock());
    for offset in 0..count {
        let mut event = Vec::new();
        push_event(&mut event, Fields::Default, &mut numbers, offset * 231)?;
        event.push(b'\n');
        out.write_all(&event)?;
    }
    out.flush()
}

/// Sends over all connections at once, each with a thread of its own.
fn send_all(load: &Load, windows: &[Vec<u8>]) -> Result<Sent, Box<dyn Error>> {
    let all_connected = Barrier::new(load.connections);
    thread::scope(|scope| {
        let threads = (0..load.connections)
            .map(|first| {
                let all_connected = &all_connected;
                thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || send(load, windows, first, all_connected))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let mut all = Sent::default();
        for thread in threads {
            let one = thread.join().map_err(|_| "a connection's thread ended")??;
            all.wire_bytes += one.wire_bytes;
            all.waits.extend(one.waits);
        }
        Ok(all)
    })
}

/// Sends windows in turn until the time or their number is over, then waits for the last acknowledgement.
fn send(
    load: &Load,
    windows: &[Vec<u8>],
    first: usize,
    all_connected: &Barrier,
) -> io::Result<Sent> {
    let connected = connect(load);
    all_connected.wait();
    let mut stream = connected?;
    let deadline = Instant::now() + load.time;
    // Each connection has windows of its own: equal ones over several would be duplicates.
    let others = load.connections.clamp(1, windows.len());
    let own = windows.iter().skip(first % windows.len()).step_by(others);
    let mut turn = own.cycle();
    let (mut sent, mut in_flight, mut count) = (Sent::default(), VecDeque::new(), 0);
    loop {
        while in_flight.len() < IN_FLIGHT && count < load.most && Instant::now() < deadline {
            let Some(window) = turn.next() else {
                return Err(io::Error::other("no windows"));
            };
            in_flight.push_back(Instant::now());
            stream.write_all(window)?;
            sent.wire_bytes += window.len() as u64;
            count += 1;
        }
        let Some(begun) = in_flight.front() else {
            return Ok(sent);
        };
        if read_ack(&mut *stream, load.events)? {
            sent.waits.push(begun.elapsed());
            in_flight.pop_front();
        }
    }
}

/// The time for an acknowledgement: the slowest server has a thousand connections' windows before
/// it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A connection, plain or not.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

fn connect(load: &Load) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(&load.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    match &load.secure {
        None => Ok(Box::new(stream)),
        Some(config) => Ok(Box::new(secure::wrap(stream, Arc::clone(config))?)),
    }
}

/// Reads one acknowledgement; false if it is a keepalive.
fn read_ack(stream: &mut dyn Stream, events: u32) -> io::Result<bool> {
    let mut frame = [0; ACK_BYTES];
    stream.read_exact(&mut frame)?;
    let [b'2', b'A', value @ ..] = frame else {
        return Err(io::Error::other(format!("no ack: {frame:?}")));
    };
    match u32::from_be_bytes(value) {
        0 => Ok(false),
        acked if acked == events => Ok(true),
        other => Err(io::Error::other(format!(
            "acknowledged {other}, not {events}"
        ))),
    }
}
