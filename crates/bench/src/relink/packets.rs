//! Relink's packets in memory, alone: one thread, no connection.

use std::error::Error;
use std::hint::black_box;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use ackline::core::SendQueue;
use ackline_relink::frame::{self, Body, Context, Decoded, Packet, Role};
use ackline_relink::{ChannelId, Kind, Limits, Payload};

/// Bytes of packets that are used in turn: they stay in the second cache, as the bytes of a recent
/// read do.
const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes of the payloads.
const SIZES: [usize; 2] = [64, 1024];
/// Bytes of the channel ids.
const ID_BYTES: u8 = 4;

/// Measures for so many seconds each and prints a JSON line for each size.
pub(crate) fn run(seconds: f64) -> Result<(), Box<dyn Error>> {
    for size in SIZES {
        let buffer = packets(size);
        let decoded = best(seconds, || decode(&buffer))?;
        let copied = best(seconds, || copy(&buffer))?;
        let encoded = best(seconds, || Ok(encode(size)))?;
        writeln!(
            io::stdout(),
            r#"{{"event":"decoded","payload_bytes":{size},"packets_per_second":{decoded:.0},"with_copy_per_second":{copied:.0},"encoded_per_second":{encoded:.0}}}"#,
        )?;
    }
    Ok(())
}

/// Messages of one part on channels of their own, one behind the other.
fn packets(size: usize) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(BUFFER_BYTES + 2 * size);
    let payload = Payload::from(vec![7; size]);
    for number in 0_u32.. {
        if buffer.len() >= BUFFER_BYTES {
            break;
        }
        frame::encode_message(&[ChannelId::from(number)], &payload, &mut buffer);
    }
    buffer
}

const CONTEXT: Context = Context {
    from: Role::Connector,
    connector_channel_id_size: ID_BYTES,
    listener_channel_id_size: ID_BYTES,
};

/// The quickest round's packets each second: all others were disturbed.
fn best(seconds: f64, mut round: impl FnMut() -> Result<u32, Kind>) -> Result<f64, Box<dyn Error>> {
    let mut best = (Duration::MAX, 0);
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        let packets = round()?;
        best = best.min((start.elapsed(), packets));
    }
    Ok(f64::from(best.1) / best.0.as_secs_f64())
}

/// Decodes all packets and reads each one's channel and length.
fn decode(buffer: &[u8]) -> Result<u32, Kind> {
    let mut sum = 0;
    let packets = each(buffer, |packet| {
        if let Packet::Channel {
            targets,
            body: Body::Message(parts),
        } = packet
        {
            sum += usize::from(targets.as_bytes()[0]) + parts.bytes();
        }
    })?;
    black_box(sum);
    Ok(packets)
}

/// Decodes all packets and keeps each one's payload for a moment.
fn copy(buffer: &[u8]) -> Result<u32, Kind> {
    each(buffer, |packet| {
        if let Packet::Channel {
            body: Body::Message(parts),
            ..
        } = packet
        {
            black_box(ackline_relink::payload::copied(&parts));
        }
    })
}

fn each<'a>(buffer: &'a [u8], mut take: impl FnMut(Packet<'a>)) -> Result<u32, Kind> {
    let (limits, mut rest, mut packets) = (Limits::default(), buffer, 0);
    while let Decoded::Whole { packet, len } = frame::decode(&CONTEXT, &limits, rest)? {
        take(packet);
        packets += 1;
        rest = &rest[len..];
    }
    Ok(packets)
}

/// Encodes as many packets as fill a buffer.
fn encode(size: usize) -> u32 {
    let mut queue = SendQueue::new();
    let payload = Payload::from(vec![7; size]);
    let mut packets = 0;
    while queue.len() < BUFFER_BYTES {
        frame::encode_message(&[ChannelId::from(packets)], &payload, &mut queue);
        packets += 1;
    }
    black_box(&queue);
    packets
}
