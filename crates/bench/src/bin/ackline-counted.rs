//! The paths that are counted under callgrind: one path through the library in one process,
//! repeated so often that the start can be subtracted: the difference of two runs, divided by the
//! events between them.
//!
//! `ackline-counted prepare FILE EVENTS LEVEL` writes windows of log events. `ackline-counted PATH FILE WINDOWS`
//! then puts as many through one path, the prepared ones again and again:
//!
//! | path | description |
//! |---|---|
//! | `count` | a receiver that counts, over a Unix socket, three windows in flight |
//! | `land` | a receiver that lands in a spool, one window in flight: each is a commit of its own |
//! | `write` | the writer's machine: records to bytes of that level, and its acknowledgements |
//!
//! There is no second process and, except for the spool's, no second thread, so that the counts are
//! the same each time.

#![forbid(unsafe_code)]

#[path = "../events.rs"]
mod events;

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use ackline::core::{Connection as _, SendQueue};
use ackline::lumberjack::{OutRecord, Record, Writer, WriterConfig};
use ackline::{Receiver, ReceiverOptions};
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use events::{EVENT_BYTES, Fields, Numbers, window};

/// Different windows in a file.
const DISTINCT: usize = 8;
/// Length of a window frame, and of the acknowledgement of one.
const HEADER: usize = 6;
const USAGE: &str =
    "usage: ackline-counted prepare FILE EVENTS LEVEL | count|land|write FILE WINDOWS";

/// Windows ready to be sent.
struct Prepared {
    level: u32,
    events: u32,
    windows: Vec<Vec<u8>>,
}

impl Prepared {
    /// Makes them, and writes them with their lengths in front.
    fn write(path: &Path, events: u32, level: u32) -> Result<(), Box<dyn Error>> {
        let mut numbers = Numbers::new(0x5eed);
        let mut file = Vec::from(level.to_be_bytes());
        for _ in 0..DISTINCT {
            let wire = window(events, Fields::Default, level, &mut numbers)?;
            file.extend_from_slice(&u32::try_from(wire.len())?.to_be_bytes());
            file.extend_from_slice(&wire);
        }
        Ok(std::fs::write(path, file)?)
    }

    fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut file = Bytes::from(std::fs::read(path)?);
        let (level, mut windows) = (file.try_get_u32()?, Vec::new());
        while file.has_remaining() {
            let len = usize::try_from(file.try_get_u32()?)?;
            windows.push(file.split_to(len.min(file.len())).to_vec());
        }
        let first = windows.first().and_then(|wire| wire.get(2..HEADER));
        let events = u32::from_be_bytes(first.ok_or("no windows")?.try_into()?);
        Ok(Self {
            level,
            events,
            windows,
        })
    }

    /// Returns so many of them, in turn.
    fn take(&self, count: usize) -> impl Iterator<Item = &[u8]> {
        self.windows.iter().map(Vec::as_slice).cycle().take(count)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["prepare", file, events, level] => {
            Prepared::write(Path::new(file), events.parse()?, level.parse()?)
        }
        [path, file, windows] => {
            let prepared = Prepared::read(Path::new(file))?;
            run(path, &prepared, windows.parse()?)
        }
        _ => Err(USAGE.into()),
    }
}

fn run(path: &str, prepared: &Prepared, windows: usize) -> Result<(), Box<dyn Error>> {
    let place = std::env::temp_dir().join(format!("ackline-counted-{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    let ran = match path {
        "count" => receive(prepared, windows, &place, None, 3),
        "land" => receive(prepared, windows, &place, Some("spool"), 1),
        "write" => write(prepared, windows),
        _ => Err(USAGE.into()),
    };
    std::fs::remove_dir_all(&place)?;
    ran?;
    let events = u64::from(prepared.events) * u64::try_from(windows)?;
    let line =
        format!(r#"{{"event":"done","path":"{path}","windows":{windows},"events":{events}}}"#);
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

fn receive(
    prepared: &Prepared,
    windows: usize,
    place: &Path,
    spool: Option<&str>,
    in_flight: usize,
) -> Result<(), Box<dyn Error>> {
    let socket = place.join("socket");
    let options = ReceiverOptions {
        urls: vec![format!("lumberjack+unix://{}", socket.display())],
        spool: spool.map(|name| place.join(name)),
        ..ReceiverOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let receiver = Receiver::start(options).await?;
        let stream = UnixStream::connect(&socket).await?;
        send(stream, prepared, windows, in_flight).await?;
        let unacked = receiver.stop(None).await;
        if unacked > 0 {
            return Err(format!("{unacked} windows were not acknowledged").into());
        }
        Ok(())
    })
}

/// Keeps `in_flight` windows in flight, and waits for every acknowledgement.
async fn send(
    mut stream: UnixStream,
    prepared: &Prepared,
    windows: usize,
    in_flight: usize,
) -> Result<(), Box<dyn Error>> {
    let mut frame = [0; HEADER];
    let (mut sent, mut acked) = (0, 0);
    for wire in prepared.take(windows) {
        stream.write_all(wire).await?;
        sent += 1;
        while acked < sent && (sent - acked >= in_flight || sent == windows) {
            stream.read_exact(&mut frame).await?;
            let [b'2', b'A', number @ ..] = frame else {
                return Err(format!("no acknowledgement: {frame:?}").into());
            };
            // 0 only says that the receiver is alive.
            match u32::from_be_bytes(number) {
                0 => {}
                all if all == prepared.events => acked += 1,
                other => return Err(format!("acknowledged {other} events").into()),
            }
        }
    }
    Ok(())
}

/// The records of a window go in, its bytes come out and are dropped, its acknowledgement goes in.
fn write(prepared: &Prepared, windows: usize) -> Result<(), Box<dyn Error>> {
    let records = records(prepared)?;
    let mut writer = Writer::new(WriterConfig {
        compression: (prepared.level > 0).then_some(prepared.level),
        ..WriterConfig::bare()
    });
    let (now, mut out, mut bytes) = (Instant::now(), SendQueue::new(), 0);
    let mut ack = *b"2A\0\0\0\0";
    ack[2..].copy_from_slice(&prepared.events.to_be_bytes());
    for records in records.iter().cycle().take(windows) {
        writer.send_window(now, records)?;
        loop {
            writer.poll_transmit(now, &mut out);
            if out.is_empty() {
                break;
            }
            bytes += out.remaining();
            out.advance(out.remaining());
        }
        writer.receive(now, &mut BytesMut::from(&ack[..]))?;
        if writer.poll_event().is_none() || writer.unacknowledged() > 0 {
            return Err("a window was not acknowledged".into());
        }
    }
    if bytes < windows * EVENT_BYTES / 100 {
        return Err(format!("only {bytes} bytes came out").into());
    }
    Ok(())
}

/// The payloads of the prepared windows.
fn records(prepared: &Prepared) -> Result<Vec<Vec<OutRecord>>, Box<dyn Error>> {
    let mut expander = ackline::lumberjack::Expander::new();
    let mut all = Vec::new();
    for wire in &prepared.windows {
        let mut records = Vec::new();
        expander.expand(wire.get(HEADER..).unwrap_or_default(), &mut |record| {
            if let Record::Json { payload, .. } = record {
                records.push(OutRecord::Json(Bytes::copy_from_slice(payload)));
            }
            std::ops::ControlFlow::Continue(())
        })?;
        all.push(records);
    }
    Ok(all)
}
