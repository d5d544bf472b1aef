//! The results of zlib codecs for windows of log events: CPU time and bytes for each event, as JSON
//! lines.
//!
//! `ackline-codecs [ROUNDS]` deflates windows of 50 and of 2,048 events, with and without random ids, with
//! every level of zlib-rs and of libdeflate; the least time of all rounds (5) counts, each round goes
//! through all codecs.

#![forbid(unsafe_code)]

#[path = "../events.rs"]
mod events;

use std::error::Error;
use std::io::{self, Read, Write};

use events::{EVENT_BYTES, Fields, Numbers, window};
use flate2::read::ZlibDecoder;
use flate2::{Compress, Compression, FlushCompress, Status};
use libdeflater::{CompressionLvl, Compressor};
use rustix::time::{ClockId, clock_gettime};

/// Windows of 50 events and of 2,048, about as many bytes of each.
const BATCHES: [(u32, u32); 2] = [(50, 200), (2048, 5)];
/// Window frame and the envelope's header.
const HEADERS: usize = 12;

enum Codec {
    Zlib(Compress),
    Libdeflate(Compressor),
}

/// One codec at one level, and its best time.
struct Contender {
    name: &'static str,
    level: u32,
    codec: Codec,
    nanoseconds: i128,
    bytes: usize,
}

impl Contender {
    fn all() -> Result<Vec<Self>, Box<dyn Error>> {
        let mut all = Vec::new();
        for level in 0..=9 {
            let zlib = Codec::Zlib(Compress::new(Compression::new(level), true));
            all.push(Self::new("zlib-rs", level, zlib));
            let whole = CompressionLvl::new(level.try_into()?).map_err(|_| "no such level")?;
            let whole = Codec::Libdeflate(Compressor::new(whole));
            all.push(Self::new("libdeflate", level, whole));
        }
        Ok(all)
    }

    fn new(name: &'static str, level: u32, codec: Codec) -> Self {
        Self {
            name,
            level,
            codec,
            nanoseconds: i128::MAX,
            bytes: 0,
        }
    }

    fn run(&mut self, windows: &[Vec<u8>], out: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
        let before = cpu();
        let mut bytes = 0;
        for plain in windows {
            bytes += self.deflate(plain, out)?;
        }
        self.nanoseconds = self.nanoseconds.min(cpu() - before);
        self.bytes = bytes;
        Ok(())
    }

    fn deflate(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<usize, Box<dyn Error>> {
        match &mut self.codec {
            Codec::Zlib(zlib) => {
                zlib.reset();
                out.resize(plain.len() + plain.len() / 8 + 64, 0);
                match zlib.compress(plain, out, FlushCompress::Finish)? {
                    Status::StreamEnd => Ok(zlib.total_out().try_into()?),
                    _ => Err("the buffer is too small".into()),
                }
            }
            Codec::Libdeflate(zlib) => {
                out.resize(zlib.zlib_compress_bound(plain.len()), 0);
                Ok(zlib.zlib_compress(plain, out)?)
            }
        }
    }
}

/// CPU time of this thread, in nanoseconds.
fn cpu() -> i128 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// The frames of several windows, not deflated.
fn plain(events: u32, fields: Fields, count: u32) -> io::Result<Vec<Vec<u8>>> {
    let mut numbers = Numbers::new(0x5eed);
    (0..count)
        .map(|_| {
            let wire = window(events, fields, 3, &mut numbers)?;
            let mut frames = Vec::new();
            ZlibDecoder::new(&wire[HEADERS..]).read_to_end(&mut frames)?;
            Ok(frames)
        })
        .collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u32 = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    for fields in [Fields::Default, Fields::Ids] {
        for (events, count) in BATCHES {
            let windows = plain(events, fields, count)?;
            let mut contenders = Contender::all()?;
            let mut out = Vec::new();
            for _ in 0..rounds {
                for contender in &mut contenders {
                    contender.run(&windows, &mut out)?;
                }
            }
            for contender in &contenders {
                report(contender, fields, events, events * count)?;
            }
        }
    }
    Ok(())
}

fn report(contender: &Contender, fields: Fields, events: u32, total: u32) -> io::Result<()> {
    let each = f64::from(total);
    let nanoseconds = i32::try_from(contender.nanoseconds).map_or(f64::NAN, f64::from);
    let bytes = u32::try_from(contender.bytes).map_or(f64::NAN, f64::from);
    writeln!(
        io::stdout(),
        r#"{{"codec":"{}","level":{},"ids":{},"batch":{events},"event_bytes":{EVENT_BYTES},"cpu_us":{:.3},"bytes":{:.1}}}"#,
        contender.name,
        contender.level,
        fields == Fields::Ids,
        nanoseconds / 1000.0 / each,
        bytes / each,
    )
}
