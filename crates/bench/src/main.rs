//! A Lumberjack sender that is never the limit: windows prepared beforehand, one connection, three in flight.
//!
//! `ackline-bench [--ids] HOST:PORT SECONDS [WINDOWS]` prepares 256 windows of 2,048 events (or sends WINDOWS windows and stops, if
//! given), waits for a line on standard input, sends, and prints one JSON line with what was acknowledged. The events are
//! those of Filebeat with its default `filebeat.yml`; with `--ids` each carries a trace id and a span id, which deflate badly.

mod events;

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use events::{EVENT_BYTES, Fields, Numbers, window};

/// Events in a window: what Beats sends at most.
const EVENTS: u32 = 2048;
/// Different windows, so that no cache of the receiver holds them all.
const DISTINCT: usize = 256;
/// Windows sent and not yet acknowledged.
const IN_FLIGHT: u64 = 3;
/// Length of an acknowledgement frame.
const ACK_BYTES: usize = 6;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let usage = "usage: ackline-bench [--ids] HOST:PORT SECONDS [WINDOWS]";
    let fields = match arguments.next_if(|argument| argument == "--ids") {
        Some(_) => Fields::Ids,
        None => Fields::Default,
    };
    let address = arguments.next().ok_or(usage)?;
    let seconds: f64 = arguments.next().ok_or(usage)?.parse()?;
    let most: u64 = arguments
        .next()
        .map_or(Ok(u64::MAX), |windows| windows.parse())?;

    let mut numbers = Numbers::new(0x5eed);
    let distinct = DISTINCT.min(usize::try_from(most).unwrap_or(DISTINCT));
    let windows = (0..distinct)
        .map(|_| window(EVENTS, fields, &mut numbers))
        .collect::<Result<Vec<_>, _>>()?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{{\"event\":\"ready\"}}")?;
    std::io::stdin().read_line(&mut String::new())?;

    let started = Instant::now();
    let (acked, bytes) = send(&address, &windows, Duration::from_secs_f64(seconds), most)?;
    let took = started.elapsed().as_secs_f64();
    let events = acked * u64::from(EVENTS);
    writeln!(
        stdout,
        r#"{{"event":"done","windows":{acked},"events":{events},"event_bytes":{EVENT_BYTES},"wire_bytes":{bytes},"seconds":{took}}}"#
    )?;
    Ok(())
}

/// Sends windows in turn until the time or their number is over, then waits for the last acknowledgement.
fn send(
    address: &str,
    windows: &[Vec<u8>],
    time: Duration,
    most: u64,
) -> Result<(u64, u64), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let deadline = Instant::now() + time;
    let (mut sent, mut acked, mut bytes) = (0_u64, 0_u64, 0_u64);
    let mut turn = windows.iter().cycle();
    loop {
        while sent - acked < IN_FLIGHT && sent < most && Instant::now() < deadline {
            let Some(window) = turn.next() else {
                return Err("no windows".into());
            };
            stream.write_all(window)?;
            bytes += window.len() as u64;
            sent += 1;
        }
        if sent == acked {
            return Ok((acked, bytes));
        }
        acked += u64::from(read_ack(&mut stream)?);
    }
}

/// Reads one acknowledgement; false if it is a keepalive.
fn read_ack(stream: &mut TcpStream) -> Result<bool, Box<dyn Error>> {
    let mut frame = [0; ACK_BYTES];
    stream.read_exact(&mut frame)?;
    let [b'2', b'A', value @ ..] = frame else {
        return Err(format!("no ack: {frame:?}").into());
    };
    match u32::from_be_bytes(value) {
        0 => Ok(false),
        EVENTS => Ok(true),
        other => Err(format!("acknowledged {other}, not {EVENTS}").into()),
    }
}
