//! The blocks of one group, read and checked.
//!
//! A CRC detects accidents, not hostile files. So every number that Arrow would trust is checked
//! before Arrow sees it: how many buffers there are, where each lies, whether it holds as many
//! values as the batch has rows. Then the blocks are checked against each other.

use std::{collections::HashMap, fs::File, ops::Range, path::Path, sync::Arc};

use arrow_array::{
    Array, BinaryArray, Int32Array, Int64Array, MapArray, StringArray, TimestampMicrosecondArray,
    UInt32Array, cast::AsArray, types,
};
use arrow_buffer::Buffer;
use arrow_ipc::FieldNode;
use arrow_schema::{ArrowError, DataType, Field};

use crate::{
    Origin, SpoolError, StoredBlock,
    index::{Entry, Kind},
    segment::{
        MOST_HEAD_BYTES, PREFIX_BYTES, block_schema, check_end, crc_of, message_bytes, read_group,
        unlike,
    },
};

/// The blocks of one group, checked.
#[derive(Debug)]
pub(crate) struct Group {
    columns: Columns,
    buffer: Buffer,
}

#[derive(Debug)]
struct Columns {
    first_position: Int64Array,
    count: Int32Array,
    received_at: TimestampMicrosecondArray,
    origin: OriginColumns,
    first_sequence: Int64Array,
    windows: Int32Array,
    repeats: BinaryArray,
    attributes: MapArray,
    body: BodyColumns,
}

#[derive(Debug)]
struct OriginColumns {
    protocol: StringArray,
    peer: StringArray,
    link: StringArray,
    stream: StringArray,
}

#[derive(Debug)]
struct BodyColumns {
    layout: StringArray,
    codec: StringArray,
    checksum: UInt32Array,
    inflated_bytes: Int64Array,
    bytes: BinaryArray,
}

impl OriginColumns {
    fn value(&self, at: usize) -> Origin<&str> {
        Origin {
            protocol: self.protocol.value(at),
            peer: self.peer.value(at),
            link: self.link.value(at),
            stream: self.stream.is_valid(at).then(|| self.stream.value(at)),
        }
    }
}

impl Group {
    /// Reads a group into `buffer` and checks its CRC before Arrow sees a byte of it.
    pub(crate) fn read(
        file: &File,
        path: &Path,
        entry: &Entry,
        mut buffer: Vec<u8>,
    ) -> Result<Self, SpoolError> {
        check_end(file, path, entry)?;
        buffer.resize(entry.length as usize, 0);
        read_group(file, path, &mut buffer, entry.offset, entry)?;
        let crc = crc_of(&buffer, entry);
        if crc != Some(entry.crc) {
            return Err(unlike(path, entry, crc));
        }
        Self::of(buffer, path, entry)
    }

    /// The group in these bytes.
    pub(crate) fn of(buffer: Vec<u8>, path: &Path, entry: &Entry) -> Result<Self, SpoolError> {
        let buffer = Buffer::from_vec(buffer);
        let broken = |detail: String| {
            let (first, end) = (entry.first, entry.end());
            let at = entry.offset;
            let detail = format!("the group at byte {at} (positions {first} to {end}): {detail}");
            SpoolError::corrupt(path, detail)
        };
        let columns = decode(&buffer).map_err(|error| broken(error.to_string()))?;
        let group = Self { columns, buffer };
        if group.len() != entry.blocks as usize || group.first(0) != entry.first {
            let (first, end) = (entry.first, entry.end());
            let detail = format!(
                "the group at byte {} is not the one of positions {first} to {end} that its index names",
                entry.offset
            );
            return Err(SpoolError::corrupt(path, detail));
        }
        group.check_blocks(entry).map_err(broken)?;
        Ok(group)
    }

    /// Checks that the blocks follow each other and hold all positions of the group.
    fn check_blocks(&self, entry: &Entry) -> Result<(), String> {
        let of = &self.columns;
        let mut next = entry.first;
        for at in 0..self.len() {
            let (first, count) = (of.first_position.value(at), of.count.value(at));
            if u64::try_from(first) != Ok(next) {
                return Err(format!("a block begins at position {first}, not at {next}"));
            }
            if count < 1 || of.windows.value(at) < 0 || of.body.inflated_bytes.value(at) < 0 {
                let (windows, bytes) = (of.windows.value(at), of.body.inflated_bytes.value(at));
                return Err(format!(
                    "the block at position {first} has {count} events, {windows} windows and {bytes} \
                     inflated bytes"
                ));
            }
            let attributes = of.attributes.value_length(at);
            if attributes > MOST_ATTRIBUTES {
                return Err(format!(
                    "the block at position {first} has {attributes} attributes, more than {MOST_ATTRIBUTES}"
                ));
            }
            next = next
                .checked_add(u64::from(count.unsigned_abs()))
                .filter(|next| i64::try_from(*next).is_ok())
                .ok_or_else(|| format!("the block at position {first} ends above 2^63"))?;
        }
        if Some(next) != entry.first.checked_add(entry.count) {
            let end = entry.end();
            return Err(format!("its blocks end at position {next}, not at {end}"));
        }
        Ok(())
    }

    /// The bytes of the group as it is on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// The number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.columns.count.len()
    }

    fn first(&self, at: usize) -> u64 {
        if at < self.len() {
            unsigned(self.columns.first_position.value(at))
        } else {
            0
        }
    }

    /// The block in row `at`, which is below [`len`](Self::len).
    pub(crate) fn block(&self, at: usize) -> StoredBlock<'_> {
        let (of, body) = (&self.columns, &self.columns.body);
        StoredBlock {
            first_position: self.first(at),
            count: of.count.value(at).unsigned_abs(),
            received_at_us: of.received_at.value(at),
            origin: of.origin.value(at),
            first_sequence: of.first_sequence.value(at),
            layout: body.layout.value(at),
            codec: body.codec.value(at),
            checksum: body.checksum.value(at),
            windows: of.windows.value(at).unsigned_abs(),
            inflated_bytes: unsigned(body.inflated_bytes.value(at)),
            repeats: of.repeats.is_valid(at).then(|| of.repeats.value(at)),
            body: body.bytes.value(at),
        }
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = StoredBlock<'_>> {
        (0..self.len()).map(|at| self.block(at))
    }

    /// Where the body of the block in row `at` lies among the bodies.
    pub(crate) fn body_range(&self, at: usize) -> Range<u64> {
        let offsets = self.columns.body.bytes.value_offsets();
        let offset = |at: usize| {
            offsets
                .get(at)
                .map_or(0, |offset| u64::from(offset.unsigned_abs()))
        };
        offset(at)..offset(at + 1)
    }

    /// The attributes of the link of the block in row `at`.
    pub(crate) fn attributes(&self, at: usize) -> Arc<[(String, String)]> {
        let entries = self.columns.attributes.value(at);
        let keys = entries.column(0).as_string::<i32>().iter();
        let values = entries.column(1).as_string::<i32>().iter();
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        keys.zip(values)
            .map(|(key, value)| (text(key), text(value)))
            .collect()
    }

    /// The buffer it was read into, if nothing else holds it.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        drop(self.columns);
        self.buffer.into_vec().unwrap_or_default()
    }
}

/// The entry of a group of format 1, from its bytes alone; `None` unless its blocks follow each other and
/// each body fits its checksum. The rest of it is covered by no checksum.
pub(crate) fn old_entry(bytes: &[u8], offset: u64) -> Option<Entry> {
    let buffer = Buffer::from_vec(bytes.to_vec());
    let columns = decode(&buffer).ok()?;
    let group = Group { columns, buffer };
    let (first, mut next, mut inflated) = (group.first(0), group.first(0), 0_u64);
    for block in group.blocks() {
        if block.first_position != next || crc32c::crc32c(block.body) != block.checksum {
            return None;
        }
        next = next.checked_add(u64::from(block.count))?;
        inflated = inflated.saturating_add(block.inflated_bytes);
    }
    let last = group.len().checked_sub(1)?;
    Some(Entry {
        kind: Kind::Group,
        blocks: u32::try_from(group.len()).ok()?,
        offset,
        length: u32::try_from(bytes.len()).ok()?,
        crc: crc32c::crc32c(bytes),
        first,
        count: next - first,
        time_us: group.block(last).received_at_us,
        inflated,
        epoch: 0,
        watched_us: 0,
        is_sealed: false,
    })
}

fn decode(buffer: &Buffer) -> Result<Columns, ArrowError> {
    let broken = |what: &str| ArrowError::IpcError(what.to_owned());
    let head = message_bytes(buffer).filter(|bytes| *bytes as u64 <= MOST_HEAD_BYTES);
    let head = PREFIX_BYTES + head.ok_or_else(|| broken("it does not begin with a message"))?;
    let message = buffer
        .get(PREFIX_BYTES..head)
        .ok_or_else(|| broken("too short"))?;
    let message = arrow_ipc::root_as_message(message).map_err(|e| broken(&e.to_string()))?;
    let header = message
        .header_as_record_batch()
        .ok_or_else(|| broken("no record batch"))?;
    check_batch(&header, buffer.len() - head).map_err(|detail| broken(&detail))?;
    let body = buffer.slice(head);
    let batch = arrow_ipc::reader::read_record_batch(
        &body,
        header,
        block_schema(),
        &HashMap::new(),
        None,
        &message.version(),
    )?;
    let of = |at: usize| batch.column(at);
    let text = |at: usize| of(at).as_string::<i32>().clone();
    Ok(Columns {
        first_position: of(0).as_primitive::<types::Int64Type>().clone(),
        count: of(1).as_primitive::<types::Int32Type>().clone(),
        received_at: of(2)
            .as_primitive::<types::TimestampMicrosecondType>()
            .clone(),
        origin: OriginColumns {
            protocol: text(3),
            peer: text(4),
            link: text(5),
            stream: text(6),
        },
        first_sequence: of(7).as_primitive::<types::Int64Type>().clone(),
        windows: of(11).as_primitive::<types::Int32Type>().clone(),
        repeats: of(13).as_binary::<i32>().clone(),
        attributes: of(14).as_map().clone(),
        body: BodyColumns {
            layout: text(8),
            codec: text(9),
            checksum: of(10).as_primitive::<types::UInt32Type>().clone(),
            inflated_bytes: of(12).as_primitive::<types::Int64Type>().clone(),
            bytes: of(15).as_binary::<i32>().clone(),
        },
    })
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Checks that a batch has the columns of the block table, and that each of its buffers lies in the
/// `body_bytes` after the message and holds a value for each row. Arrow checks the values of
/// offsets and texts itself.
fn check_batch(header: &arrow_ipc::RecordBatch<'_>, body_bytes: usize) -> Result<(), String> {
    if header.compression().is_some() {
        return Err("its buffers are compressed".to_owned());
    }
    let mut batch = Batch {
        nodes: header.nodes().into_iter().flatten(),
        buffers: header.buffers().into_iter().flatten(),
        body_bytes,
    };
    let rows = length("rows", header.length())?;
    for field in block_schema().fields() {
        let found = batch.column(field)?;
        if found != rows {
            let name = field.name();
            return Err(format!("column {name} has {found} values in {rows} rows"));
        }
    }
    if batch.nodes.next().is_some() || batch.buffers.next().is_some() {
        return Err("it has more columns than the block table".to_owned());
    }
    Ok(())
}

/// The columns and buffers of a record batch that are not checked yet.
struct Batch<N, B> {
    nodes: N,
    buffers: B,
    /// The bytes after the message, which hold the buffers.
    body_bytes: usize,
}

impl<'a, N, B> Batch<N, B>
where
    N: Iterator<Item = &'a FieldNode>,
    B: Iterator<Item = &'a arrow_ipc::Buffer>,
{
    /// Checks the next column and returns the number of its values.
    fn column(&mut self, field: &Field) -> Result<usize, String> {
        let name = field.name();
        let node = self.nodes.next();
        let node = node.ok_or_else(|| format!("column {name} is missing"))?;
        let values = length("values", node.length())?;
        let nulls = length("nulls", node.null_count())?;
        if nulls > values || (nulls > 0 && !field.is_nullable()) {
            return Err(format!(
                "column {name} has {nulls} nulls in {values} values"
            ));
        }
        let bits = if nulls > 0 { values.div_ceil(8) } else { 0 };
        self.buffer(name, bits)?;
        let offsets = values.saturating_add(1).saturating_mul(4);
        match field.data_type() {
            DataType::Utf8 | DataType::Binary => {
                self.buffer(name, if values > 0 { offsets } else { 0 })?;
                self.buffer(name, 0)?;
            }
            DataType::Map(entries, _) => {
                self.buffer(name, if values > 0 { offsets } else { 0 })?;
                self.column(entries)?;
            }
            DataType::Struct(members) => {
                for member in members {
                    if self.column(member)? != values {
                        return Err(format!("column {name} has members of several lengths"));
                    }
                }
            }
            fixed => {
                let width = fixed.primitive_width().unwrap_or(1);
                self.buffer(name, values.saturating_mul(width))?;
            }
        }
        Ok(values)
    }

    /// Checks the next buffer, which must have `least` bytes.
    fn buffer(&mut self, name: &str, least: usize) -> Result<(), String> {
        let buffer = self.buffers.next();
        let buffer = buffer.ok_or_else(|| format!("a buffer of column {name} is missing"))?;
        let at = length("bytes in front of a buffer", buffer.offset())?;
        let bytes = length("bytes in a buffer", buffer.length())?;
        let all = self.body_bytes;
        if at.checked_add(bytes).is_none_or(|end| end > all) {
            return Err(format!(
                "a buffer of column {name} has {bytes} bytes from byte {at} of {all}"
            ));
        }
        if bytes < least {
            return Err(format!(
                "a buffer of column {name} has {bytes} bytes and needs {least}"
            ));
        }
        Ok(())
    }
}

fn length(what: &str, number: i64) -> Result<usize, String> {
    usize::try_from(number).map_err(|_| format!("it announces {number} {what}"))
}

/// More attributes than any receiver gives a link.
const MOST_ATTRIBUTES: i32 = 1_024;
