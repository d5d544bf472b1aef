//! The layout of a record batch in memory: the addresses that Java needs to read it in place.
//!
//! The order of nodes and buffers is that of a record batch of Arrow's IPC format. Buffers need no offset: a slice is given
//! by the address of its first value, its offsets begin at 0, and bits that do not begin at a byte are copied.

use std::fmt::{self, Display, Formatter};

use arrow_array::cast::AsArray;
use arrow_array::types::ByteArrayType;
use arrow_array::{
    Array, GenericByteArray, GenericListArray, MapArray, OffsetSizeTrait, RecordBatch,
};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::DataType;

/// The layout of a batch. Its addresses are valid as long as it lives.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    rows: usize,
    /// Length and count of nulls of each array: a column, then its children.
    nodes: Vec<(usize, usize)>,
    /// The buffers of the nodes in turn; `None` for validity without nulls.
    buffers: Vec<Option<Buffer>>,
}

/// A type that the readers of spools do not make.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unsupported(DataType);

impl Layout {
    /// The layout of a batch, whose buffers it shares.
    ///
    /// # Errors
    /// A column has a type that the readers of spools do not make.
    pub(crate) fn of(batch: &RecordBatch) -> Result<Self, Unsupported> {
        let mut layout = Self {
            rows: batch.num_rows(),
            ..Self::default()
        };
        for column in batch.columns() {
            layout.push(column.as_ref())?;
        }
        Ok(layout)
    }

    /// The count of rows; the count of nodes, and length and count of nulls of each; the count of buffers, and address
    /// and bytes of each. An empty or absent buffer has the address 0.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        let mut numbers = vec![number(self.rows), number(self.nodes.len())];
        for (length, nulls) in &self.nodes {
            numbers.extend([number(*length), number(*nulls)]);
        }
        numbers.push(number(self.buffers.len()));
        for buffer in &self.buffers {
            let buffer = buffer.as_ref().filter(|buffer| !buffer.is_empty());
            numbers.extend(buffer.map_or([0, 0], |buffer| {
                let address = buffer.as_ptr().expose_provenance();
                [number(address), number(buffer.len())]
            }));
        }
        numbers
    }

    fn push(&mut self, array: &dyn Array) -> Result<(), Unsupported> {
        let data_type = array.data_type();
        if *data_type == DataType::Null {
            // Every value is null, and there are no bits.
            self.nodes.push((array.len(), array.len()));
            return Ok(());
        }
        let nulls = array.nulls().map_or(0, NullBuffer::null_count);
        self.nodes.push((array.len(), nulls));
        self.buffers.push(validity(array.nulls()));
        match data_type {
            DataType::Boolean => self
                .buffers
                .push(Some(array.as_boolean().values().sliced())),
            DataType::Utf8 => self.push_bytes(array.as_string::<i32>()),
            DataType::LargeUtf8 => self.push_bytes(array.as_string::<i64>()),
            DataType::Binary => self.push_bytes(array.as_binary::<i32>()),
            DataType::LargeBinary => self.push_bytes(array.as_binary::<i64>()),
            DataType::List(_) => self.push_list(array.as_list::<i32>())?,
            DataType::LargeList(_) => self.push_list(array.as_list::<i64>())?,
            DataType::Map(..) => self.push_map(array.as_map())?,
            DataType::Struct(_) => {
                for column in array.as_struct().columns() {
                    self.push(column.as_ref())?;
                }
            }
            _ if data_type.is_primitive() => {
                // Data of an array of numbers begins at its first value.
                let data = array.to_data();
                self.buffers.push(data.buffers().first().cloned());
            }
            other => return Err(Unsupported(other.clone())),
        }
        Ok(())
    }

    fn push_bytes<T: ByteArrayType>(&mut self, array: &GenericByteArray<T>) {
        let (offsets, first, length) = from_zero(array.offsets());
        let values = array.values().slice_with_length(first, length);
        self.buffers.extend([Some(offsets), Some(values)]);
    }

    fn push_list<O: OffsetSizeTrait>(
        &mut self,
        array: &GenericListArray<O>,
    ) -> Result<(), Unsupported> {
        let (offsets, first, length) = from_zero(array.offsets());
        self.buffers.push(Some(offsets));
        self.push(array.values().slice(first, length).as_ref())
    }

    fn push_map(&mut self, array: &MapArray) -> Result<(), Unsupported> {
        let (offsets, first, length) = from_zero(array.offsets());
        self.buffers.push(Some(offsets));
        self.push(&array.entries().slice(first, length))
    }
}

impl Display for Unsupported {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "columns of the type {} are not handed to Java", self.0)
    }
}

/// The bits of validity from the first value on; `None` if no value is null.
fn validity(nulls: Option<&NullBuffer>) -> Option<Buffer> {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0)?;
    Some(nulls.inner().sliced())
}

/// Offsets that begin at 0; the first value that they mean, and the number of values.
fn from_zero<O: ArrowNativeType + std::ops::Sub<Output = O>>(
    offsets: &OffsetBuffer<O>,
) -> (Buffer, usize, usize) {
    let base = offsets.first();
    let first = base.as_usize();
    let length = offsets.last().as_usize().saturating_sub(first);
    let offsets = if first == 0 {
        offsets.inner().inner().clone()
    } else {
        let moved = offsets.iter().map(|offset| *offset - base);
        Buffer::from_vec(moved.collect::<Vec<O>>())
    };
    (offsets, first, length)
}

/// A number of Java. Lengths and addresses of user space fit.
fn number(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
