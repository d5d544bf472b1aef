//! Messages of one queue, read back from the spool as they came.

use std::ops::Range;
use std::sync::Arc;

use ackline_micromsg::broker::Routed;
use ackline_micromsg::stored::{StoredMessages, put_length};
use ackline_spool::{
    Layout, LayoutError, Layouts, OnLoss, ReadOptions, Rows, Spool, SpoolError, StoredBlock,
};
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, RecordBatch};
use bytes::Bytes;

use super::super::layout::NAME;
use super::blocks::{MOVED, Progress};

/// The messages of a range.
pub(super) struct Read {
    /// Each with its position.
    pub(super) messages: Vec<(u64, Routed)>,
    /// The end of the range that was read.
    pub(super) to: u64,
    /// Whether it is the end of everything that is durable.
    pub(super) is_all: bool,
    /// Whether no position was skipped because it could not be read.
    pub(super) is_whole: bool,
}

/// Reads messages of a queue from a position on, until they have so many bytes. Blocks.
pub(super) fn read(spool: &Spool, queue: &str, from: u64, room: usize) -> Result<Read, SpoolError> {
    let durable = spool.durable()?;
    let to = durable.min(from.saturating_add(MOST_POSITIONS));
    let layouts = Layouts::new(vec![Arc::new(OfQueue(queue.to_owned()))]);
    let columns = ["position", "sequence", "payload", "attributes"].map(str::to_owned);
    let options = ReadOptions {
        columns: Some(columns.into()),
        batch_rows: BATCH_ROWS,
        on_loss: OnLoss::Skip,
        ..ReadOptions::default()
    };
    let mut reader = spool.read(&layouts, from..to, &options)?;
    let mut read = Read {
        messages: Vec::new(),
        to: from,
        is_all: false,
        is_whole: true,
    };
    let mut bytes = 0;
    for batch in reader.by_ref() {
        let batch = batch?;
        let positions = batch
            .column(column(&batch, "position"))
            .as_primitive::<Int64Type>();
        if let Some(last) = positions.iter().flatten().last() {
            read.to = u64::try_from(last).unwrap_or(0).saturating_add(1);
        }
        bytes += take(&batch, queue, &mut read);
        if bytes >= room {
            break;
        }
    }
    if bytes < room {
        read.to = to;
    }
    for loss in reader.skipped() {
        read.is_whole = false;
        tracing::error!(
            code = "micromsg.queue_lost",
            queue,
            from = loss.from,
            to = loss.to,
            "positions of the spool cannot be read: messages of the queue may be lost"
        );
    }
    read.is_all = read.to >= durable;
    Ok(read)
}

/// The queue that the last message of a spool is a copy of, if it is one, and how far that queue was moved. Blocks.
pub(super) fn last_move(spool: &Spool) -> Result<Option<(String, Progress)>, SpoolError> {
    let durable = spool.durable()?;
    if durable <= spool.first_kept()? {
        return Ok(None);
    }
    // Its texts alone are asked for, so that its messages need not be read.
    let layouts = Layouts::new(vec![Arc::new(OfQueue(String::new()))]);
    let options = ReadOptions {
        columns: Some(["stream", "attributes"].map(str::to_owned).into()),
        on_loss: OnLoss::Skip,
        ..ReadOptions::default()
    };
    let mut reader = spool.read(&layouts, durable - 1..durable, &options)?;
    let Some(batch) = reader.next().transpose()? else {
        return Ok(None);
    };
    let streams = batch.column(column(&batch, "stream")).as_string::<i32>();
    let progress = (batch.num_rows() == 1)
        .then(|| attribute(&batch, 0, MOVED))
        .flatten()
        .and_then(|text| Progress::read(&text));
    Ok(progress.map(|progress| (streams.value(0).to_owned(), progress)))
}

/// Takes the messages of a batch; returns their bytes.
fn take(batch: &RecordBatch, queue: &str, read: &mut Read) -> usize {
    let positions = batch
        .column(column(batch, "position"))
        .as_primitive::<Int64Type>();
    let sequences = batch
        .column(column(batch, "sequence"))
        .as_primitive::<Int64Type>();
    let payloads = batch.column(column(batch, "payload")).as_binary::<i32>();
    let mut bytes = 0;
    for row in 0..batch.num_rows() {
        if sequences.value(row) == OTHER || payloads.is_null(row) {
            continue;
        }
        let position = u64::try_from(positions.value(row)).unwrap_or(0);
        let dotnet_type = attribute(batch, row, DOTNET_TYPE);
        let Some(message) = message(queue, payloads.value(row), dotnet_type) else {
            read.is_whole = false;
            tracing::error!(
                code = "micromsg.queue_lost",
                queue,
                from = position,
                to = position + 1,
                "a message of the queue in the spool cannot be a message of MicroMsg2"
            );
            continue;
        };
        bytes += message.bytes();
        read.messages.push((position, message));
    }
    bytes
}

/// A message as it was stored.
fn message(queue: &str, stored: &[u8], dotnet_type: Option<Arc<str>>) -> Option<Routed> {
    let stored = StoredMessages::new(stored, 1).read().ok()?;
    let properties = String::from_utf8_lossy(stored.properties);
    let payload = Bytes::copy_from_slice(stored.payload);
    Routed::new(queue, &properties, payload, dotnet_type).ok()
}

fn attribute(batch: &RecordBatch, row: usize, wanted: &str) -> Option<Arc<str>> {
    let attributes = batch.column(column(batch, "attributes")).as_map();
    let pairs = attributes.value(row);
    let (names, values) = (
        pairs.column(0).as_string::<i32>(),
        pairs.column(1).as_string::<i32>(),
    );
    let at = names.iter().position(|name| name == Some(wanted))?;
    Some(values.value(at).into())
}

fn column(batch: &RecordBatch, name: &str) -> usize {
    // The columns were asked for by name.
    batch.schema().index_of(name).unwrap_or(0)
}

/// The layout `micromsg/1` for one queue: the payload of a row is the whole stored message, and rows of other destinations
/// are empty.
struct OfQueue(String);

impl Layout for OfQueue {
    fn name(&self) -> &'static str {
        NAME
    }

    fn expand(
        &self,
        block: &StoredBlock<'_>,
        rows: Range<u32>,
        out: &mut Rows,
    ) -> Result<(), LayoutError> {
        if block.origin.stream != Some(&*self.0) {
            for _ in rows {
                out.push_payload(OTHER, &[]);
            }
            return Ok(());
        }
        let mut messages = StoredMessages::new(block.body, block.count);
        messages.skip(rows.start).map_err(LayoutError)?;
        let mut whole = Vec::new();
        for _ in rows {
            if out.is_full() {
                return Ok(());
            }
            let message = messages.read().map_err(LayoutError)?;
            whole.clear();
            for part in [message.properties, message.payload] {
                put_length(&mut whole, part.len());
                whole.extend_from_slice(part);
            }
            out.push_payload(0, &whole);
        }
        Ok(())
    }
}

/// The attribute that names the .NET type of a block's messages.
pub(super) const DOTNET_TYPE: &str = "micromsg.dotnet_type";
/// The sequence number of a row of another destination.
const OTHER: i64 = -1;
/// Positions that are read at once: of all queues.
const MOST_POSITIONS: u64 = 100_000;
/// Rows of a batch.
const BATCH_ROWS: usize = 256;
