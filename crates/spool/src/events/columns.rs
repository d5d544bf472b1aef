//! The columns of a batch, from the values of its events and from the runs of its blocks.

use arrow_array::{
    BinaryArray, BooleanArray, MapArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use std::sync::Arc;

use super::own::OwnAttributes;
use super::{Run, map_entries, map_fields};

/// Binary values one after another.
#[derive(Debug)]
pub(super) struct Values {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            bytes: Vec::new(),
        }
    }
}

impl Values {
    pub(super) fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.offsets.push(offset(self.bytes.len()));
    }

    pub(super) fn len(&self) -> i32 {
        offset(self.offsets.len() - 1)
    }

    pub(super) fn finish(
        &mut self,
        nulls: Option<NullBuffer>,
    ) -> Result<BinaryArray, arrow_schema::ArrowError> {
        // The next batch is probably as large as this one.
        let next = Self {
            offsets: Vec::with_capacity(self.offsets.len()),
            bytes: Vec::with_capacity(self.bytes.len() + self.bytes.len() / 8),
        };
        let full = std::mem::replace(self, next);
        self.offsets.push(0);
        BinaryArray::try_new(
            OffsetBuffer::new(ScalarBuffer::from(full.offsets)),
            Buffer::from_vec(full.bytes),
            nulls,
        )
    }
}

/// The validity of rows, stored only from the first null on.
#[derive(Debug, Default)]
pub(super) struct Validity {
    rows: usize,
    bits: Option<BooleanBufferBuilder>,
}

impl Validity {
    pub(super) fn push(&mut self, valid: bool) {
        self.push_n(1, valid);
    }

    pub(super) fn push_n(&mut self, rows: usize, valid: bool) {
        if !valid && self.bits.is_none() && rows > 0 {
            let mut bits = BooleanBufferBuilder::new(self.rows + rows);
            bits.append_n(self.rows, true);
            self.bits = Some(bits);
        }
        if let Some(bits) = &mut self.bits {
            bits.append_n(rows, valid);
        }
        self.rows += rows;
    }

    pub(super) fn finish(&mut self) -> Option<NullBuffer> {
        self.rows = 0;
        self.bits
            .take()
            .map(|mut bits| NullBuffer::new(bits.finish()))
    }
}

/// The texts of each run, repeated for its rows. Copied by doubling: text by text they would cost a
/// fifth of reading everything.
pub(super) fn texts<'a>(
    items: usize,
    runs: impl Iterator<Item = (usize, Vec<&'a str>)>,
    nulls: Option<NullBuffer>,
) -> Result<StringArray, arrow_schema::ArrowError> {
    let mut values = Vec::new();
    let mut offsets = Vec::with_capacity(items + 1);
    offsets.push(0);
    for (times, texts) in runs {
        repeat(&mut values, texts.concat().as_bytes(), times);
        let mut end = offsets
            .last()
            .map_or(0, |end: &i32| end.unsigned_abs() as usize);
        for text in std::iter::repeat_n(&texts, times).flatten() {
            end += text.len();
            offsets.push(offset(end));
        }
    }
    StringArray::try_new(
        OffsetBuffer::new(ScalarBuffer::from(offsets)),
        Buffer::from_vec(values),
        nulls,
    )
}

/// Appends a text so many times.
fn repeat(values: &mut Vec<u8>, text: &[u8], times: usize) {
    values.reserve(text.len().saturating_mul(times));
    let begin = values.len();
    let mut have = 0;
    while have < times {
        let more = have.clamp(1, times - have);
        if have == 0 {
            values.extend_from_slice(text);
        } else {
            values.extend_from_within(begin..begin + more * text.len());
        }
        have += more;
    }
}

pub(super) fn received_at(rows: usize, runs: &[Run]) -> TimestampMicrosecondArray {
    let mut values = Vec::with_capacity(rows);
    for run in runs {
        values.extend(std::iter::repeat_n(run.received_at, run.rows));
    }
    TimestampMicrosecondArray::from(values).with_timezone("UTC")
}

/// Never null: an event that was not judged is no duplicate, so that `where not repeat` keeps it.
pub(super) fn repeats(rows: usize, runs: &[Run]) -> BooleanArray {
    let mut bits = BooleanBufferBuilder::new(rows);
    for run in runs {
        let judged = run.repeats.as_deref().unwrap_or_default();
        if judged.is_empty() {
            bits.append_n(run.rows, false);
            continue;
        }
        for row in run.first_row..run.first_row + run.rows {
            bits.append(is_marked(Some(judged), row));
        }
    }
    BooleanArray::new(bits.finish(), None)
}

/// Whether the bitmap of a block marks this row of it.
pub(super) fn is_marked(repeats: Option<&[u8]>, row: usize) -> bool {
    let byte = repeats.and_then(|bits| bits.get(row / 8));
    byte.is_some_and(|byte| byte & (1 << (row % 8)) != 0)
}

pub(super) fn attributes(
    rows: usize,
    runs: &[Run],
    own: &OwnAttributes,
) -> Result<MapArray, arrow_schema::ArrowError> {
    let stretches = own.stretches(runs);
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0);
    let mut held = 0_usize;
    for stretch in &stretches {
        for _ in 0..stretch.rows {
            held += OwnAttributes::count(stretch);
            offsets.push(offset(held));
        }
    }
    let column = |is_value| {
        let stretches = stretches.iter();
        let stretches = stretches.map(|one| (one.rows, own.column(one, is_value)));
        texts(held, stretches, None)
    };
    let keys = column(false)?;
    let values = column(true)?;
    let entries = StructArray::try_new(map_fields(), vec![Arc::new(keys), Arc::new(values)], None)?;
    MapArray::try_new(
        map_entries(),
        OffsetBuffer::new(ScalarBuffer::from(offsets)),
        entries,
        None,
        false,
    )
}

/// An offset within a batch; the limits of a batch keep it below 2^30.
pub(super) fn offset(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
