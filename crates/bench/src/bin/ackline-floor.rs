//! The minimal work of a Lumberjack v2 receiver, as a figure to compare with: the time to read,
//! inflate, walk and acknowledge, and with a file to store the bytes as received. It trusts its
//! sender, bounds nothing and recovers nothing.
//!
//! `ackline-floor [FILE]` listens on a port of its own, which it prints as `ackline receive --json`
//! does. A thread for each connection reads the available bytes, walks their frames, appends them
//! to FILE with one fdatasync, and acknowledges the complete windows.

#![forbid(unsafe_code)]

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use libdeflater::Decompressor;

/// Bytes read ahead, and of one inflated envelope, at the most.
const BUFFER_BYTES: usize = 16 << 20;
/// Bytes of a window frame, of an envelope's head, and of a JSON frame's head.
const WINDOW_BYTES: usize = 6;
const JSON_HEAD_BYTES: usize = 10;

#[allow(clippy::print_stdout)] // a program
fn main() -> io::Result<()> {
    let file = env::args_os().nth(1).map(File::create).transpose()?;
    let file = file.map(|file| Arc::new(Mutex::new(file)));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!(
        "{{\"event\":\"listening\",\"urls\":[\"floor://{}\"]}}",
        listener.local_addr()?
    );
    loop {
        let (stream, _) = listener.accept()?;
        let file = file.clone();
        thread::spawn(move || serve(stream, file.as_deref()));
    }
}

fn serve(mut stream: TcpStream, file: Option<&Mutex<File>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = vec![0; BUFFER_BYTES];
    let mut walk = Walk::new();
    let (mut taken, mut filled) = (0, 0);
    loop {
        if taken == filled {
            (taken, filled) = (0, 0);
        } else if filled == input.len() {
            input.copy_within(taken..filled, 0);
            (taken, filled) = (0, filled - taken);
        }
        let read = stream.read(&mut input[filled..])?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let fresh = walk.frames(&input[taken..filled])?;
        if fresh == 0 {
            continue;
        }
        if let Some(file) = file {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(&input[taken..taken + fresh])?;
            if !walk.acks.is_empty() {
                file.sync_data()?;
            }
        }
        taken += fresh;
        if !walk.acks.is_empty() {
            stream.write_all(&walk.acks)?;
            walk.acks.clear();
        }
    }
}

/// The state of one connection's frames.
struct Walk {
    inflater: Decompressor,
    scratch: Vec<u8>,
    window: u32,
    seen: u32,
    acks: Vec<u8>,
}

impl Walk {
    fn new() -> Self {
        Self {
            inflater: Decompressor::new(),
            scratch: vec![0; BUFFER_BYTES],
            window: 0,
            seen: 0,
            acks: Vec::new(),
        }
    }

    /// Walks the whole frames at the front of `bytes`. Returns their length.
    fn frames(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        while let Some(head) = bytes.get(at..at + WINDOW_BYTES) {
            let number = number(&head[2..]);
            let len = match head[1] {
                b'W' => {
                    (self.window, self.seen) = (number, 0);
                    WINDOW_BYTES
                }
                b'C' => {
                    let len = WINDOW_BYTES + number as usize;
                    let Some(envelope) = bytes.get(at + WINDOW_BYTES..at + len) else {
                        break;
                    };
                    let inflated = self.inflater.zlib_decompress(envelope, &mut self.scratch);
                    let inflated = inflated.map_err(io::Error::other)?;
                    self.seen += json_frames(&self.scratch[..inflated]);
                    len
                }
                b'J' => match bytes.get(at + WINDOW_BYTES..at + JSON_HEAD_BYTES) {
                    Some(len)
                        if bytes.len() - at - JSON_HEAD_BYTES >= self::number(len) as usize =>
                    {
                        self.seen += 1;
                        JSON_HEAD_BYTES + self::number(len) as usize
                    }
                    _ => break,
                },
                other => return Err(io::Error::other(format!("frame type {other}"))),
            };
            at += len;
            if self.window > 0 && self.seen == self.window {
                self.acks.extend_from_slice(b"2A");
                self.acks.extend_from_slice(&self.window.to_be_bytes());
                self.window = 0;
            }
        }
        Ok(at)
    }
}

/// The number of JSON frames.
fn json_frames(mut bytes: &[u8]) -> u32 {
    let mut count = 0;
    while let Some(len) = bytes.get(WINDOW_BYTES..JSON_HEAD_BYTES) {
        bytes = &bytes[JSON_HEAD_BYTES + number(len) as usize..];
        count += 1;
    }
    count
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}
