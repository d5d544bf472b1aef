//! Log events as Filebeat ships them, each of [`EVENT_BYTES`], and whole windows of them ready to send.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Length of each event's JSON text.
pub(crate) const EVENT_BYTES: usize = 837;

/// A generator of numbers that differ as little from run to run as the rest: xorshift64.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The fields of each event besides its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fields {
    /// The fields of Filebeat with its default `filebeat.yml`: the host's metadata (without its
    /// addresses), the agent, the input.
    Default,
    /// Trace and span ids of an instrumented service in place of the host's metadata: 44 hex digits in
    /// each event that do not deflate.
    Ids,
}

/// Appends one event: an access-log line and Filebeat's additions to it.
pub(crate) fn push_event(
    out: &mut Vec<u8>,
    fields: Fields,
    numbers: &mut Numbers,
    offset: u64,
) -> io::Result<()> {
    let start = out.len();
    let [second, milli] = [numbers.below(60), numbers.below(1000)];
    write!(
        out,
        r#"{{"@timestamp":"2026-11-21T10:{:02}:{second:02}.{milli:03}Z","@metadata":{{"beat":"filebeat","type":"_doc","version":"9.0.0"}},"#,
        numbers.below(60)
    )?;
    write!(
        out,
        r#""log":{{"offset":{offset},"file":{{"path":"/var/log/nginx/access.log","inode":"1847291","device_id":"64769"}}}},"#
    )?;
    let [a, b, c] = [numbers.below(256), numbers.below(256), numbers.below(256)];
    write!(
        out,
        r#""message":"203.{a}.{b}.{c} - - [21/Nov/2026:10:12:{second:02} +0000] \"GET /shop/item/{}?ref={:x} HTTP/1.1\" {} {} \"https://example.org/\" \"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\"","#,
        numbers.below(100_000),
        numbers.below(1 << 32),
        [200, 200, 200, 304, 404, 500][usize::try_from(numbers.below(6)).unwrap_or(0)],
        numbers.below(90_000)
    )?;
    if fields == Fields::Ids {
        write!(
            out,
            r#""trace":{{"id":"{:016x}{:016x}"}},"span":{{"id":"{:012x}"}},"#,
            numbers.below(u64::MAX),
            numbers.below(u64::MAX),
            numbers.below(1 << 48)
        )?;
    }
    out.extend_from_slice(
        br#""input":{"type":"filestream"},"ecs":{"version":"8.0.0"},"agent":{"ephemeral_id":"0f7dc5a4-3b91-4c55-9a5e-6d6b1f0c2f11","id":"8a3b6d20-9d0e-4f0b-8a3c-0d8a3b0d6f52","name":"web-1","type":"filebeat","version":"9.0.0"},"#,
    );
    out.extend_from_slice(match fields {
        Fields::Default => {
            br#""host":{"hostname":"web-1","architecture":"x86_64","os":{"family":"debian","kernel":"6.1.0-18-amd64"},"id":"b6fb4d3bb4ed4d6bb3a0b2cbfcbc1f07","name":"web-1"},"pad":""#
        }
        Fields::Ids => br#""host":{"name":"web-1"},"pad":""#,
    });
    let pad = EVENT_BYTES.saturating_sub(out.len() - start + 2);
    out.resize(out.len() + pad, b'.');
    out.extend_from_slice(br#""}"#);
    Ok(())
}

/// One window as Beats sends it: its size, then all events in one envelope of zlib `level`, or one frame
/// after the other at level 0.
pub(crate) fn window(
    events: u32,
    fields: Fields,
    level: u32,
    numbers: &mut Numbers,
) -> io::Result<Vec<u8>> {
    let mut frames = Vec::new();
    let mut event = Vec::new();
    for sequence in 1..=events {
        event.clear();
        push_event(&mut event, fields, numbers, u64::from(sequence) * 231)?;
        frames.extend_from_slice(b"2J");
        frames.extend_from_slice(&sequence.to_be_bytes());
        frames.extend_from_slice(&length(&event)?);
        frames.extend_from_slice(&event);
    }
    let mut wire = Vec::new();
    wire.extend_from_slice(b"2W");
    wire.extend_from_slice(&events.to_be_bytes());
    if level == 0 {
        wire.append(&mut frames);
        return Ok(wire);
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(&frames)?;
    let stream = encoder.finish()?;
    wire.extend_from_slice(b"2C");
    wire.extend_from_slice(&length(&stream)?);
    wire.extend_from_slice(&stream);
    Ok(wire)
}

fn length(bytes: &[u8]) -> io::Result<[u8; 4]> {
    u32::try_from(bytes.len())
        .map(u32::to_be_bytes)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_the_length_that_the_figures_name() {
        let mut numbers = Numbers::new(7);
        for offset in (0..3_000_000).step_by(997) {
            for fields in [Fields::Default, Fields::Ids] {
                let mut event = Vec::new();
                push_event(&mut event, fields, &mut numbers, offset).unwrap();
                assert_eq!(event.len(), EVENT_BYTES);
            }
        }
    }

    #[test]
    fn a_window_is_its_size_and_one_envelope() {
        let wire = window(10, Fields::Default, 3, &mut Numbers::new(7)).unwrap();
        assert_eq!(&wire[..8], b"2W\0\0\0\x0a2C");
        let announced = u32::from_be_bytes(wire[8..12].try_into().unwrap());
        assert_eq!(usize::try_from(announced).unwrap(), wire.len() - 12);
    }
    #[test]
    fn a_window_of_level_0_is_its_size_and_its_frames() {
        let wire = window(3, Fields::Default, 0, &mut Numbers::new(7)).unwrap();
        assert_eq!(wire.len(), 6 + 3 * (10 + EVENT_BYTES));
        assert_eq!(&wire[6..12], b"2J\0\0\0\x01");
    }
}
