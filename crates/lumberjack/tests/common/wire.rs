//! Frames and inputs for tests of one rule each.

use std::time::{Duration, Instant};

use ackline_core::{Connection, Need, ProtocolError, SendQueue};
use ackline_lumberjack::frame::{self, Frame, Version};
use ackline_lumberjack::{Event, Kind, Reader, Window};
use bytes::{Buf, Bytes, BytesMut};

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn window(version: Version, window_size: u32) -> Frame {
    Frame::Window {
        version,
        window_size,
    }
}

pub(crate) fn json(version: Version, sequence_number: u32) -> Frame {
    Frame::Json {
        version,
        sequence_number,
        payload: Bytes::from_static(b"{}"),
    }
}

pub(crate) fn envelope(version: Version, frames: Vec<Frame>) -> Frame {
    Frame::Compressed { version, frames }
}

pub(crate) fn wire(frames: &[Frame]) -> BytesMut {
    let mut wire = Vec::new();
    for frame in frames {
        frame::encode(frame, 6, &mut wire);
    }
    BytesMut::from(wire.as_slice())
}

/// Gives the reader `input` until it wants more or is full. Returns the windows and its last need.
pub(crate) fn feed(
    reader: &mut Reader,
    now: Instant,
    input: &mut BytesMut,
) -> Result<(Vec<Window>, Need), ProtocolError<Kind>> {
    let mut windows = Vec::new();
    loop {
        let need = reader.receive(now, input)?;
        while let Some(Event::Window(window)) = reader.poll_event() {
            windows.push(window);
        }
        if need != Need::Again {
            return Ok((windows, need));
        }
    }
}

/// The machine's current output.
pub(crate) fn sent<C: Connection>(machine: &mut C, now: Instant) -> Vec<u8> {
    let mut queue = SendQueue::new();
    machine.poll_transmit(now, &mut queue);
    queue.copy_to_bytes(queue.remaining()).to_vec()
}
