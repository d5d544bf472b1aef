//! One direction of a recorded connection, frame by frame, for tools.

use ackline_core::{Inspect, Inspected, Spans, Value};
use bytes::{Bytes, BytesMut};

use crate::envelope::inflate_all;
use crate::frame::From;
use crate::record::{Record, parse_record};
use crate::walker::{Head, Walked, Walker};
use crate::wire::HEADER;
use crate::{Kind, Limits};

/// Bytes of a length field.
const LENGTH: usize = 4;

/// Reads the bytes of one side. Members have the names of the conformance vectors; an envelope is
/// shown with its inflated frames.
#[derive(Debug, Clone)]
pub struct Inspector {
    from: From,
    limits: Limits,
}

impl Inspector {
    /// A reader of the bytes of `from`, at the start of any frame.
    pub const fn new(from: From, limits: Limits) -> Self {
        Self { from, limits }
    }

    fn shown(&self, walked: &Walked, bytes: Bytes) -> Result<Inspected, Kind> {
        let version = walked.version.number();
        let mut members = vec![("version", Value::Number(version.into()))];
        let mut spans = Spans::new();
        spans.push(1, format!("version {version}"));
        let name = match walked.head {
            Head::Window { size } => {
                spans.push(1, "window");
                spans.push(LENGTH, format!("{size} events"));
                members.push(("window_size", Value::Number(size.into())));
                "window"
            }
            Head::Ack { sequence } => {
                spans.push(1, "ack");
                push_sequence(sequence, &mut members, &mut spans);
                "ack"
            }
            Head::Compressed => {
                spans.push(1, "compressed");
                let stream = bytes.get(HEADER..).unwrap_or_default();
                spans.push(LENGTH, format!("{} bytes", stream.len()));
                spans.push(stream.len(), "zlib stream");
                members.push(("frames", Value::Frames(self.envelope(stream)?)));
                "compressed"
            }
            Head::Json { .. } | Head::Data { .. } => {
                let (record, _) = parse_record(&bytes).ok_or(Kind::TruncatedEnvelope)?;
                push_record(record, &bytes, &mut members, &mut spans)
            }
        };
        Ok(Inspected {
            name,
            bytes,
            members,
            spans: spans.into_vec(),
        })
    }

    /// The frames of an envelope; the zlib stream is checked before them.
    fn envelope(&self, stream: &[u8]) -> Result<Vec<Inspected>, Kind> {
        let mut rest = Bytes::from(inflate_all(stream, self.limits.max_inflated_bytes)?);
        let mut frames = Vec::new();
        while !rest.is_empty() {
            let walked = self.walk(&rest, true)?.ok_or(Kind::TruncatedEnvelope)?;
            frames.push(self.shown(&walked, rest.split_to(walked.len))?);
        }
        Ok(frames)
    }

    fn walk(&self, mut input: &[u8], inside: bool) -> Result<Option<Walked>, Kind> {
        Walker::new(self.from, inside).step(&mut input, &self.limits)
    }
}

impl Inspect for Inspector {
    type Kind = Kind;

    fn inspect(&mut self, input: &mut BytesMut) -> Result<Option<Inspected>, Kind> {
        let Some(walked) = self.walk(input, false)? else {
            return Ok(None);
        };
        let bytes = input.split_to(walked.len).freeze();
        self.shown(&walked, bytes).map(Some)
    }
}

fn push_sequence(sequence: u32, members: &mut Vec<(&'static str, Value)>, spans: &mut Spans) {
    spans.push(LENGTH, format!("sequence number {sequence}"));
    members.push(("sequence_number", Value::Number(sequence.into())));
}

fn push_record(
    record: Record<'_>,
    bytes: &Bytes,
    members: &mut Vec<(&'static str, Value)>,
    spans: &mut Spans,
) -> &'static str {
    match record {
        Record::Json { sequence, payload } => {
            spans.push(1, "json");
            push_sequence(sequence, members, spans);
            spans.push(LENGTH, format!("{} bytes", payload.len()));
            spans.push(payload.len(), "payload");
            members.push(("payload", Value::Bytes(bytes.slice_ref(payload))));
            "json"
        }
        Record::Data { sequence, pairs } => {
            spans.push(1, "data");
            push_sequence(sequence, members, spans);
            spans.push(LENGTH, format!("{} pairs", pairs.clone().count()));
            let mut listed = Vec::new();
            for (key, value) in pairs {
                for (field, what) in [(key, "key"), (value, "value")] {
                    spans.push(LENGTH, format!("{what} of {} bytes", field.len()));
                    spans.push(field.len(), what);
                }
                let own = |field| Value::Bytes(bytes.slice_ref(field));
                listed.push(Value::List(vec![own(key), own(value)]));
            }
            members.push(("pairs", Value::List(listed)));
            "data"
        }
    }
}
