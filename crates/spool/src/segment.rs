//! A group of blocks as a record batch of an Arrow IPC stream, and back.
//!
//! ```text
//! segment   [ schema … 0 … index header ] [ group ] [ group ] … [ end of stream ]
//! group     [ prefix, Arrow's message … 0 … seal ] [ bodies and other columns ]
//! ```
//!
//! Each part in brackets but the last begins and ends at a multiple of 4,096 bytes: later writes
//! share no sector with acknowledged ones, and damage none when they are torn. The zeros and the
//! seal are in the padding that Arrow allows after a message, so that plain Arrow reads a segment.

use std::{
    collections::HashMap, fs::File, ops::Range, os::unix::fs::FileExt, path::Path, sync::Arc,
};

use arrow_array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, MapArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, UInt32Array,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::{
    Block, SpoolError,
    events::{map_entries, map_fields},
    format::{self, FORMAT},
    index::{ENTRY_BYTES, Entry, HEADER_BYTES, IndexHeader, Kind},
};

/// A block with its position and time.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) block: Block,
    pub(crate) received_at_us: i64,
}

/// Writes the stream of one segment, without any I/O.
pub(crate) struct Encoder {
    stream: StreamEncoder,
    schema: SchemaRef,
}

impl Encoder {
    /// The encoder and the bytes that begin the segment.
    pub(crate) fn new(header: &IndexHeader) -> Result<(Self, Vec<u8>), ArrowError> {
        let metadata = HashMap::from([
            ("ackline.format".to_owned(), FORMAT.to_string()),
            ("ackline.min_reader".to_owned(), FORMAT.to_string()),
            ("ackline.uuid".to_owned(), header.uuid.clone()),
            (
                "ackline.first_position".to_owned(),
                header.first.to_string(),
            ),
            (
                "ackline.first_time_us".to_owned(),
                header.first_time_us.to_string(),
            ),
        ]);
        let schema = Schema::new_with_metadata(block_schema().fields().clone(), metadata);
        let begin: Vec<u8> = StreamEncoder::try_new(&schema)?
            .finish()?
            .iter()
            .flat_map(|b| b.to_vec())
            .collect();
        let message = begin
            .get(PREFIX_BYTES..begin.len().saturating_sub(END_OF_STREAM.len()))
            .unwrap_or_default();
        let mut begin = padded(message, HEADER_BYTES, 0)?;
        begin.extend(header.encode());
        let mut stream = StreamEncoder::try_new(&schema)?;
        let schema = Arc::new(schema);
        // The first batch would repeat the schema, which `begin` holds already.
        stream.encode(&RecordBatch::new_empty(schema.clone()))?;
        Ok((Self { stream, schema }, begin))
    }

    /// The bytes of a group whose first event gets position `stamp.first`, and its entry.
    pub(crate) fn group(
        &mut self,
        blocks: &[Placed],
        stamp: &Stamp,
    ) -> Result<(Entry, Vec<Buffer>), ArrowError> {
        let pieces = self
            .stream
            .encode(&batch(self.schema.clone(), stamp.first, blocks)?)?;
        let (message, mut pieces) = split_head(pieces)?;
        let body: usize = pieces.iter().map(Buffer::len).sum();
        let head = padded(&message, SEAL_BYTES, body)?;
        let crc = pieces.iter().fold(crc32c::crc32c(&head), |crc, piece| {
            crc32c::crc32c_append(crc, piece)
        });
        let entry = Entry {
            kind: Kind::Group,
            blocks: number(blocks.len() as u64)?,
            offset: stamp.offset,
            length: number((head.len() + SEAL_BYTES + body) as u64)?,
            crc,
            first: stamp.first,
            count: blocks.iter().map(|one| u64::from(one.block.count)).sum(),
            time_us: stamp.time_us,
            inflated: blocks.iter().map(|one| one.block.inflated_bytes).sum(),
            epoch: stamp.epoch,
            watched_us: stamp.watched_us,
            is_sealed: true,
        };
        let seal = seal_bytes(&entry)?;
        pieces.splice(0..0, [Buffer::from_vec(head), Buffer::from_vec(seal)]);
        Ok((entry, pieces))
    }
}

/// The position, time and writer of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    /// The position of its first event.
    pub(crate) first: u64,
    /// Its offset in the segment, in bytes.
    pub(crate) offset: u64,
    pub(crate) time_us: i64,
    pub(crate) epoch: u64,
    pub(crate) watched_us: u64,
}

/// The message of an encoded batch, without its prefix, and the pieces of its body.
fn split_head(pieces: Vec<Buffer>) -> Result<(Vec<u8>, Vec<Buffer>), ArrowError> {
    let broken = || ArrowError::IpcError("a batch is not encoded as expected".to_owned());
    let mut head = Vec::with_capacity(2_048);
    let mut pieces = pieces.into_iter();
    let mut wanted = PREFIX_BYTES;
    while head.len() < wanted {
        head.extend_from_slice(&pieces.next().ok_or_else(broken)?);
        if wanted == PREFIX_BYTES && head.len() >= PREFIX_BYTES {
            wanted += message_bytes(&head).ok_or_else(broken)?;
        }
    }
    if head.len() != wanted {
        return Err(broken());
    }
    head.drain(..PREFIX_BYTES);
    Ok((head, pieces.collect()))
}

/// A message with its prefix and zeros after it, so that with `tail` and `body` it fills whole
/// sectors. The prefix counts the tail as part of the message.
fn padded(message: &[u8], tail: usize, body: usize) -> Result<Vec<u8>, ArrowError> {
    let whole = PREFIX_BYTES + message.len() + tail + body;
    let padding = whole.next_multiple_of(SECTOR_BYTES) - whole;
    let mut head = Vec::with_capacity(PREFIX_BYTES + message.len() + padding);
    head.extend([0xFF; 4]);
    let bytes: i32 = number((message.len() + padding + tail) as u64)?;
    head.extend(bytes.to_le_bytes());
    head.extend_from_slice(message);
    head.resize(head.len() + padding, 0);
    Ok(head)
}

/// The bytes of the message after a prefix; `None` if the bytes are no prefix.
pub(crate) fn message_bytes(prefix: &[u8]) -> Option<usize> {
    let (marker, length) = prefix.get(..PREFIX_BYTES)?.split_at(4);
    let length = i32::from_le_bytes(length.try_into().ok()?);
    if marker != [0xFF; 4] {
        return None;
    }
    usize::try_from(length).ok()
}

/// The end of the seal in the bytes of a group, of which there are `available`.
fn seal_end(prefix: &[u8], available: u64) -> Option<usize> {
    let end = PREFIX_BYTES.checked_add(message_bytes(prefix)?)?;
    (end as u64 <= available).then_some(end)
}

/// The bytes of the entry in a seal, by the seal's last bytes.
fn seal_entry_bytes(tail: &[u8]) -> Option<usize> {
    let (bytes, magic) = tail.split_at_checked(4)?;
    let bytes = u32::from_le_bytes(bytes.try_into().ok()?) as usize;
    (magic == SEAL_MAGIC && (ENTRY_BYTES..MOST_SEAL_BYTES).contains(&bytes)).then_some(bytes)
}

/// The entry of the sealed group that begins at `offset` of a segment of so many bytes, by its
/// seal; `None` if no such group begins there. The group's other bytes are not read.
pub(crate) fn seal_at(
    file: &File,
    path: &Path,
    offset: u64,
    len: u64,
) -> Result<Option<Entry>, SpoolError> {
    let read = |bytes: &mut [u8], at: u64| {
        file.read_exact_at(bytes, at)
            .map_err(|error| SpoolError::io("read", path, error))
    };
    let available = len.saturating_sub(offset);
    if available < SECTOR_BYTES as u64 {
        return Ok(None);
    }
    let mut prefix = [0; PREFIX_BYTES];
    read(&mut prefix, offset)?;
    let end = seal_end(&prefix, available.min(MOST_HEAD_BYTES));
    let Some(end) = end.filter(|end| *end >= PREFIX_BYTES + SEAL_BYTES) else {
        return Ok(None);
    };
    let end = offset + end as u64;
    let mut tail = [0; SEAL_TAIL_BYTES];
    read(&mut tail, end - SEAL_TAIL_BYTES as u64)?;
    let Some(bytes) = seal_entry_bytes(&tail) else {
        return Ok(None);
    };
    let begin = end.checked_sub((bytes + SEAL_TAIL_BYTES) as u64);
    let Some(begin) = begin.filter(|begin| *begin >= offset) else {
        return Ok(None);
    };
    let mut entry = vec![0; bytes];
    read(&mut entry, begin)?;
    let found = Entry::decode(&entry).filter(|entry| {
        entry.kind == Kind::Group && entry.offset == offset && entry.byte_end() > end
    });
    Ok(found)
}

/// The length and the bytes of the whole Arrow message that begins at `offset`, its body included;
/// `None` if no whole message begins there.
pub(crate) fn message_at(
    file: &File,
    path: &Path,
    offset: u64,
    len: u64,
) -> Result<Option<(u64, Vec<u8>)>, SpoolError> {
    let failed = |error| SpoolError::io("read", path, error);
    let available = len.saturating_sub(offset);
    if available < PREFIX_BYTES as u64 {
        return Ok(None);
    }
    let mut prefix = [0; PREFIX_BYTES];
    file.read_exact_at(&mut prefix, offset).map_err(failed)?;
    let Some(head) = seal_end(&prefix, available.min(MOST_HEAD_BYTES)) else {
        return Ok(None);
    };
    let mut message = vec![0; head - PREFIX_BYTES];
    file.read_exact_at(&mut message, offset + PREFIX_BYTES as u64)
        .map_err(failed)?;
    let body = arrow_ipc::root_as_message(&message)
        .ok()
        .filter(|message| message.header_as_record_batch().is_some())
        .and_then(|message| u64::try_from(message.bodyLength()).ok());
    let Some(length) = body.and_then(|body| body.checked_add(head as u64)) else {
        return Ok(None);
    };
    if length > available || u32::try_from(length).is_err() {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, offset).map_err(failed)?;
    Ok(Some((length, bytes)))
}

/// The range of the seal in a sealed group's bytes, from the bytes of its head.
fn seal_in(bytes: &[u8]) -> Option<Range<usize>> {
    let end = seal_end(bytes, bytes.len() as u64)?;
    let tail = end.checked_sub(SEAL_TAIL_BYTES)?;
    let entry = seal_entry_bytes(bytes.get(tail..end)?)?;
    Some(tail.checked_sub(entry)?..end)
}

/// Gives a group that is moved to `offset` the right seal for it, also to a group of format 1,
/// which has none. Returns its new entry.
pub(crate) fn seal_at_offset(
    bytes: &mut Vec<u8>,
    group: &Entry,
    offset: u64,
) -> Result<Entry, ArrowError> {
    if group.is_sealed {
        let entry = Entry { offset, ..*group };
        seal_anew(bytes, group, &entry);
        return Ok(entry);
    }
    let broken = || ArrowError::IpcError("a group has no message".to_owned());
    let end = seal_end(bytes, bytes.len() as u64).ok_or_else(broken)?;
    let (head, body) = bytes.split_at(end);
    let head = padded(&head[PREFIX_BYTES..], SEAL_BYTES, body.len())?;
    let entry = Entry {
        offset,
        length: number((head.len() + SEAL_BYTES + body.len()) as u64)?,
        crc: crc32c::crc32c_append(crc32c::crc32c(&head), body),
        is_sealed: true,
        ..*group
    };
    *bytes = [&head, seal_bytes(&entry)?.as_slice(), body].concat();
    Ok(entry)
}

/// The seal of a group: its entry, the entry's length, and the marker of a seal.
fn seal_bytes(entry: &Entry) -> Result<Vec<u8>, ArrowError> {
    let mut seal = entry.encode();
    seal.extend(number::<u32>(seal.len() as u64)?.to_le_bytes());
    seal.extend(SEAL_MAGIC);
    Ok(seal)
}

/// Replaces the seal in a moved group's bytes: `old` is its present entry, `new` its next one.
pub(crate) fn seal_anew(bytes: &mut [u8], old: &Entry, new: &Entry) {
    if !old.is_sealed {
        return;
    }
    let Some(seal) = seal_in(bytes) else { return };
    // A later release's entry is longer: its unknown part stays.
    let entry = new.encode();
    let end = seal.end - SEAL_TAIL_BYTES;
    if let Some(place) = bytes.get_mut(seal.start..end) {
        let known = ENTRY_BYTES - 4;
        place[..known].copy_from_slice(&entry[..known]);
        format::seal(place);
    }
}

/// Checks the CRC of all of a group, a piece at a time.
///
/// # Errors
/// `spool.corrupt` naming its positions, `spool.io`.
pub(crate) fn check_group(file: &File, path: &Path, entry: &Entry) -> Result<(), SpoolError> {
    check_end(file, path, entry)?;
    let (mut at, end) = (entry.offset, entry.byte_end());
    let mut piece = vec![0; PIECE_BYTES];
    let (mut crc, mut seal) = (0, None);
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(PIECE_BYTES);
        piece.truncate(left);
        read_group(file, path, &mut piece, at, entry)?;
        let mut bytes = piece.as_slice();
        if at == entry.offset && entry.is_sealed {
            // The head of a group is shorter than a piece.
            let found = seal_in(bytes).ok_or_else(|| unlike(path, entry, None))?;
            crc = crc32c::crc32c(&bytes[..found.start]);
            seal = Entry::decode(&bytes[found.start..found.end - SEAL_TAIL_BYTES]);
            bytes = &bytes[found.end..];
        }
        crc = crc32c::crc32c_append(crc, bytes);
        at += piece.len() as u64;
    }
    if crc == entry.crc && (!entry.is_sealed || seal == Some(*entry)) {
        return Ok(());
    }
    Err(unlike(path, entry, Some(crc)))
}

pub(crate) fn read_group(
    file: &File,
    path: &Path,
    bytes: &mut [u8],
    at: u64,
    entry: &Entry,
) -> Result<(), SpoolError> {
    file.read_exact_at(bytes, at).map_err(|error| {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return cut_off(file, path, entry);
        }
        SpoolError::io("read", path, error)
    })
}

/// Refuses a group that ends after the file, before memory is allocated for it.
pub(crate) fn check_end(file: &File, path: &Path, entry: &Entry) -> Result<(), SpoolError> {
    let meta = file
        .metadata()
        .map_err(|error| SpoolError::io("look at", path, error))?;
    if entry.byte_end() > meta.len() {
        return Err(cut_off(file, path, entry));
    }
    Ok(())
}

/// The error of a group that ends after its file.
fn cut_off(file: &File, path: &Path, entry: &Entry) -> SpoolError {
    let (end, len) = (entry.byte_end(), file.metadata().map_or(0, |m| m.len()));
    let (first, last) = (entry.first, entry.end());
    SpoolError::corrupt(
        path,
        format!("the group of positions {first} to {last} ends at byte {end}, the file at {len}"),
    )
}

/// The error of a group that does not match its index.
pub(crate) fn unlike(path: &Path, entry: &Entry, crc: Option<u32>) -> SpoolError {
    let found = crc.map_or("no sound seal".to_owned(), |crc| format!("CRC {crc:08x}"));
    let detail = format!(
        "the group at byte {} (positions {} to {}) has {found}, not CRC {:08x}",
        entry.offset,
        entry.first,
        entry.end(),
        entry.crc
    );
    SpoolError::corrupt(path, detail)
}

/// The length of a segment's beginning, and its copy of the index header.
///
/// # Errors
/// `spool.corrupt` if the file does not begin like a segment, `spool.io`.
pub(crate) fn begin_of(file: &File, path: &Path) -> Result<(u64, Option<IndexHeader>), SpoolError> {
    let broken = |what: &str| SpoolError::corrupt(path, what);
    let mut prefix = [0; PREFIX_BYTES];
    match file.read_exact_at(&mut prefix, 0) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Err(broken("it ends before its first block"));
        }
        read => read.map_err(|error| SpoolError::io("read", path, error))?,
    }
    let message = message_bytes(&prefix).filter(|bytes| *bytes as u64 <= MOST_HEAD_BYTES);
    let message = message.ok_or_else(|| broken("it does not begin like a segment"))?;
    let mut bytes = vec![0; message];
    file.read_exact_at(&mut bytes, PREFIX_BYTES as u64)
        .map_err(|_| broken("it ends before its first block"))?;
    let at = message.saturating_sub(HEADER_BYTES);
    let header = IndexHeader::decode(bytes.get(at..).unwrap_or_default(), path).ok();
    Ok(((PREFIX_BYTES + message) as u64, header))
}

/// The columns of the block table.
pub(crate) fn block_schema() -> SchemaRef {
    let utf8 = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    let int32 = |name: &str| Field::new(name, DataType::Int32, false);
    let int64 = |name: &str| Field::new(name, DataType::Int64, false);
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        int64("first_position"),
        int32("count"),
        Field::new("received_at", time, false),
        utf8("protocol", false),
        utf8("peer", false),
        utf8("link", false),
        utf8("stream", true),
        int64("first_sequence"),
        utf8("layout", false),
        utf8("codec", false),
        Field::new("checksum", DataType::UInt32, false),
        int32("windows"),
        int64("inflated_bytes"),
        Field::new("repeats", DataType::Binary, true),
        Field::new("attributes", DataType::Map(map_entries(), false), false),
        Field::new("body", DataType::Binary, false),
    ]))
}

/// The bodies of a group's blocks, with their checksums.
struct Bodies {
    checksums: Vec<u32>,
    values: BinaryArray,
}

fn bodies(placed: &[Placed]) -> Result<Bodies, ArrowError> {
    let blocks = || placed.iter().map(|placed| &placed.block);
    let mut checksums = Vec::with_capacity(placed.len());
    let mut body = Vec::with_capacity(blocks().map(Block::body_bytes).sum());
    let mut ends = vec![0_i32];
    for block in blocks() {
        let begin = body.len();
        block
            .body
            .iter()
            .for_each(|piece| body.extend_from_slice(piece));
        checksums.push(crc32c::crc32c(&body[begin..]));
        ends.push(number(body.len() as u64)?);
    }
    let values = BinaryArray::try_new(
        OffsetBuffer::new(ScalarBuffer::from(ends)),
        Buffer::from_vec(body),
        None,
    )?;
    Ok(Bodies { checksums, values })
}

fn batch(schema: SchemaRef, first: u64, placed: &[Placed]) -> Result<RecordBatch, ArrowError> {
    let blocks = || placed.iter().map(|placed| &placed.block);
    let mut next = first;
    let mut firsts = Vec::with_capacity(placed.len());
    for block in blocks() {
        firsts.push(number::<i64>(next)?);
        next = next.saturating_add(u64::from(block.count));
    }
    let Bodies { checksums, values } = bodies(placed)?;
    let int32 = |of: fn(&Block) -> u32| -> Result<ArrayRef, ArrowError> {
        let values = blocks().map(|block| number::<i32>(u64::from(of(block))));
        Ok(Arc::new(Int32Array::from(
            values.collect::<Result<Vec<_>, _>>()?,
        )))
    };
    let text = |of: fn(&Block) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(blocks().map(of)))
    };
    let times = placed
        .iter()
        .map(|placed| placed.received_at_us)
        .collect::<Vec<_>>();
    let inflated = blocks().map(|block| number::<i64>(block.inflated_bytes));
    RecordBatch::try_new(
        schema,
        vec![
            Arc::new(Int64Array::from(firsts)),
            int32(|block| block.count)?,
            Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
            text(|block| &block.origin.protocol),
            text(|block| &block.origin.peer),
            text(|block| &block.origin.link),
            Arc::new(
                blocks()
                    .map(|block| block.origin.stream.as_deref())
                    .collect::<StringArray>(),
            ),
            Arc::new(Int64Array::from_iter_values(
                blocks().map(|block| block.first_sequence),
            )),
            text(|block| block.layout),
            text(|block| block.codec),
            Arc::new(UInt32Array::from(checksums)),
            int32(|block| block.windows)?,
            Arc::new(Int64Array::from(inflated.collect::<Result<Vec<_>, _>>()?)),
            Arc::new(
                blocks()
                    .map(|block| block.repeats.as_deref())
                    .collect::<BinaryArray>(),
            ),
            Arc::new(attributes(placed)?),
            Arc::new(values),
        ],
    )
}

fn attributes(placed: &[Placed]) -> Result<MapArray, ArrowError> {
    let pairs = || placed.iter().flat_map(|placed| &placed.block.attributes);
    let keys = StringArray::from_iter_values(pairs().map(|(key, _)| key));
    let values = StringArray::from_iter_values(pairs().map(|(_, value)| value));
    let lengths = placed.iter().map(|placed| placed.block.attributes.len());
    let offsets = OffsetBuffer::from_lengths(lengths);
    let entries = StructArray::try_new(map_fields(), vec![Arc::new(keys), Arc::new(values)], None)?;
    MapArray::try_new(map_entries(), offsets, entries, None, false)
}

fn number<T: TryFrom<u64>>(value: u64) -> Result<T, ArrowError> {
    T::try_from(value)
        .map_err(|_| ArrowError::InvalidArgumentError(format!("{value} is too large")))
}

/// The CRC of a group's bytes, without its seal if it has one; `None` unless it equals the entry's.
pub(crate) fn crc_of(bytes: &[u8], entry: &Entry) -> Option<u32> {
    if !entry.is_sealed {
        return Some(crc32c::crc32c(bytes));
    }
    let seal = seal_in(bytes)?;
    let found = Entry::decode(bytes.get(seal.start..seal.end - SEAL_TAIL_BYTES)?);
    (found == Some(*entry)).then(|| crc_without_seal(bytes))?
}

/// The CRC of a sealed group's bytes without its seal.
pub(crate) fn crc_without_seal(bytes: &[u8]) -> Option<u32> {
    let seal = seal_in(bytes)?;
    let before = crc32c::crc32c(bytes.get(..seal.start)?);
    Some(crc32c::crc32c_append(before, bytes.get(seal.end..)?))
}

/// The end of an Arrow IPC stream: a continuation marker and length 0.
pub(crate) const END_OF_STREAM: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];

/// The bytes before a message of Arrow: a continuation marker and its length.
pub(crate) const PREFIX_BYTES: usize = 8;

/// The parts of a segment begin at multiples of this: the largest sector that disks write at once.
pub(crate) const SECTOR_BYTES: usize = 4_096;

/// The last bytes of a seal, after those of its entry.
const SEAL_MAGIC: &[u8; 4] = b"SEAL";
const SEAL_TAIL_BYTES: usize = 4 + SEAL_MAGIC.len();
const SEAL_BYTES: usize = ENTRY_BYTES + SEAL_TAIL_BYTES;

/// More than a later release will need.
const MOST_SEAL_BYTES: usize = 4_096;

/// More than the message of a group or a schema takes.
pub(crate) const MOST_HEAD_BYTES: u64 = 64 << 10;

/// Bytes read at once for a checksum alone; more than the head of a group.
const PIECE_BYTES: usize = 256 << 10;
