//! A group of blocks as a record batch of an Arrow IPC stream, and back.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt, path::Path, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, MapArray, RecordBatch, StringArray,
    StructArray, TimestampMicrosecondArray, UInt32Array, cast::AsArray, types,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::{
    Block, SpoolError, StoredBlock,
    events::{map_entries, map_fields},
    format::{Entry, FORMAT, IndexHeader},
};

/// A block with its place and time.
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
        let mut begin: Vec<u8> = StreamEncoder::try_new(&schema)?
            .finish()?
            .iter()
            .flat_map(|b| b.to_vec())
            .collect();
        begin.truncate(begin.len() - END_OF_STREAM.len());
        let mut stream = StreamEncoder::try_new(&schema)?;
        let schema = Arc::new(schema);
        // The first batch would carry the schema again, which `begin` holds already.
        stream.encode(&RecordBatch::new_empty(schema.clone()))?;
        Ok((Self { stream, schema }, begin))
    }

    /// The bytes of a group whose first event gets position `first`.
    pub(crate) fn group(
        &mut self,
        first: u64,
        blocks: &[Placed],
    ) -> Result<Vec<Buffer>, ArrowError> {
        self.stream
            .encode(&batch(self.schema.clone(), first, blocks)?)
    }
}

/// The columns of the block table.
fn block_schema() -> SchemaRef {
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

fn batch(schema: SchemaRef, first: u64, placed: &[Placed]) -> Result<RecordBatch, ArrowError> {
    let blocks = || placed.iter().map(|placed| &placed.block);
    let mut next = first;
    let mut firsts = Vec::with_capacity(placed.len());
    let mut checksums = Vec::with_capacity(placed.len());
    let mut body = Vec::with_capacity(blocks().map(Block::body_bytes).sum());
    let mut ends = vec![0_i32];
    for block in blocks() {
        firsts.push(number::<i64>(next)?);
        next = next.saturating_add(u64::from(block.count));
        let begin = body.len();
        block
            .body
            .iter()
            .for_each(|piece| body.extend_from_slice(piece));
        checksums.push(crc32c::crc32c(&body[begin..]));
        ends.push(number(body.len() as u64)?);
    }
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
    let body = BinaryArray::try_new(
        OffsetBuffer::new(ScalarBuffer::from(ends)),
        Buffer::from_vec(body),
        None,
    )?;
    RecordBatch::try_new(
        schema,
        vec![
            Arc::new(Int64Array::from(firsts)),
            int32(|block| block.count)?,
            Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")),
            text(|block| &block.protocol),
            text(|block| &block.peer),
            text(|block| &block.link),
            Arc::new(
                blocks()
                    .map(|block| block.stream.as_deref())
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
            Arc::new(body),
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
    protocol: StringArray,
    peer: StringArray,
    link: StringArray,
    stream: StringArray,
    first_sequence: Int64Array,
    layout: StringArray,
    codec: StringArray,
    checksum: UInt32Array,
    windows: Int32Array,
    inflated_bytes: Int64Array,
    repeats: BinaryArray,
    attributes: MapArray,
    body: BinaryArray,
}

impl Group {
    /// Reads a group into `buffer` and checks its CRC before Arrow sees a byte of it.
    pub(crate) fn read(
        file: &File,
        path: &Path,
        entry: &Entry,
        mut buffer: Vec<u8>,
    ) -> Result<Self, SpoolError> {
        buffer.resize(entry.length as usize, 0);
        file.read_exact_at(&mut buffer, entry.offset)
            .map_err(|error| {
                if error.kind() == std::io::ErrorKind::UnexpectedEof {
                    let (end, len) = (entry.byte_end(), file.metadata().map_or(0, |m| m.len()));
                    return SpoolError::corrupt(
                        path,
                        format!("a group ends at {end}, the file at {len}"),
                    );
                }
                SpoolError::io("read", path, error)
            })?;
        let crc = crc32c::crc32c(&buffer);
        if crc != entry.crc {
            let detail = format!(
                "the group at byte {} (positions {} to {}) has CRC {crc:08x}, not {:08x}",
                entry.offset,
                entry.first,
                entry.end(),
                entry.crc
            );
            return Err(SpoolError::corrupt(path, detail));
        }
        Self::of(buffer, path, entry)
    }

    /// The group that stands in these bytes.
    pub(crate) fn of(buffer: Vec<u8>, path: &Path, entry: &Entry) -> Result<Self, SpoolError> {
        let buffer = Buffer::from_vec(buffer);
        let columns = decode(&buffer).map_err(|error| {
            SpoolError::corrupt(path, format!("byte {}: {error}", entry.offset))
        })?;
        let group = Self { columns, buffer };
        if group.len() != entry.blocks as usize || group.first(0) != entry.first {
            return Err(SpoolError::corrupt(
                path,
                "a group is not the one its index names",
            ));
        }
        Ok(group)
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
        let of = &self.columns;
        StoredBlock {
            first_position: self.first(at),
            count: of.count.value(at).unsigned_abs(),
            received_at_us: of.received_at.value(at),
            protocol: of.protocol.value(at),
            peer: of.peer.value(at),
            link: of.link.value(at),
            stream: of.stream.is_valid(at).then(|| of.stream.value(at)),
            first_sequence: of.first_sequence.value(at),
            layout: of.layout.value(at),
            codec: of.codec.value(at),
            checksum: of.checksum.value(at),
            windows: of.windows.value(at).unsigned_abs(),
            inflated_bytes: unsigned(of.inflated_bytes.value(at)),
            repeats: of.repeats.is_valid(at).then(|| of.repeats.value(at)),
            body: of.body.value(at),
        }
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = StoredBlock<'_>> {
        (0..self.len()).map(|at| self.block(at))
    }

    /// Where the body of the block in row `at` lies among the bodies.
    pub(crate) fn body_range(&self, at: usize) -> std::ops::Range<u64> {
        let offsets = self.columns.body.value_offsets();
        let offset = |at: usize| {
            offsets
                .get(at)
                .map_or(0, |offset| u64::from(offset.unsigned_abs()))
        };
        offset(at)..offset(at + 1)
    }

    /// What the link of the block in row `at` knew.
    pub(crate) fn attributes(&self, at: usize) -> Arc<[(String, String)]> {
        let entries = self.columns.attributes.value(at);
        let keys = entries.column(0).as_string::<i32>().iter();
        let values = entries.column(1).as_string::<i32>().iter();
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        keys.zip(values)
            .map(|(key, value)| (text(key), text(value)))
            .collect()
    }

    /// The buffer it was read into, when nothing else holds it.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        drop(self.columns);
        self.buffer.into_vec().unwrap_or_default()
    }
}

fn decode(buffer: &Buffer) -> Result<Columns, ArrowError> {
    let broken = |what: &str| ArrowError::IpcError(what.to_owned());
    let field = |at: usize| -> Result<u32, ArrowError> {
        let bytes = buffer
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(u32::from_le_bytes)
            .ok_or_else(|| broken("too short"))
    };
    if field(0)? != u32::MAX {
        return Err(broken("no continuation marker"));
    }
    let head = 8 + field(4)? as usize;
    let message = buffer.get(8..head).ok_or_else(|| broken("too short"))?;
    let message = arrow_ipc::root_as_message(message).map_err(|e| broken(&e.to_string()))?;
    let header = message
        .header_as_record_batch()
        .ok_or_else(|| broken("no record batch"))?;
    let batch = arrow_ipc::reader::read_record_batch(
        &buffer.slice(head),
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
        protocol: text(3),
        peer: text(4),
        link: text(5),
        stream: text(6),
        first_sequence: of(7).as_primitive::<types::Int64Type>().clone(),
        layout: text(8),
        codec: text(9),
        checksum: of(10).as_primitive::<types::UInt32Type>().clone(),
        windows: of(11).as_primitive::<types::Int32Type>().clone(),
        inflated_bytes: of(12).as_primitive::<types::Int64Type>().clone(),
        repeats: of(13).as_binary::<i32>().clone(),
        attributes: of(14).as_map().clone(),
        body: of(15).as_binary::<i32>().clone(),
    })
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// What ends an Arrow IPC stream: a continuation marker and length 0.
pub(crate) const END_OF_STREAM: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
