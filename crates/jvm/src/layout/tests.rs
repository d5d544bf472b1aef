//! Layouts are read back from their addresses, as Java does, and compared with the arrays.

#![allow(clippy::unwrap_used)] // a test may panic

use std::ptr::with_exposed_provenance;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float64Array, Int64Array, LargeBinaryArray, LargeStringArray, NullArray, RecordBatchOptions,
    StringArray, StructArray, TimestampMicrosecondArray, make_array,
};
use arrow_data::ArrayData;
use arrow_ipc::root_as_message;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_schema::{Field, Schema};

use super::*;

/// Rows of each array: more than two bytes of bits.
const ROWS: usize = 21;

/// The numbers of a layout, read from the front.
struct Numbers(std::vec::IntoIter<i64>);

impl Numbers {
    fn next(&mut self) -> usize {
        usize::try_from(self.0.next().unwrap()).unwrap()
    }

    fn pairs(&mut self) -> std::vec::IntoIter<(usize, usize)> {
        let count = self.next();
        let pairs = (0..count).map(|_| (self.next(), self.next()));
        pairs.collect::<Vec<_>>().into_iter()
    }
}

/// The arrays of a layout.
struct Arrays {
    nodes: std::vec::IntoIter<(usize, usize)>,
    buffers: std::vec::IntoIter<(usize, usize)>,
}

impl Arrays {
    fn buffer(&mut self) -> Buffer {
        let (address, bytes) = self.buffers.next().unwrap();
        assert_eq!(address == 0, bytes == 0);
        if bytes == 0 {
            return Buffer::from_vec(Vec::<u64>::new());
        }
        // SAFETY: the layout lives as long as its test, and so do the buffers at its addresses.
        let bytes = unsafe { std::slice::from_raw_parts(with_exposed_provenance(address), bytes) };
        Buffer::from(bytes)
    }

    fn array(&mut self, data_type: &DataType) -> ArrayData {
        let (length, nulls) = self.nodes.next().unwrap();
        let mut array = ArrayData::builder(data_type.clone()).len(length);
        if *data_type != DataType::Null {
            let validity = self.buffer();
            assert_eq!(validity.is_empty(), nulls == 0);
            array = array.null_bit_buffer((nulls > 0).then_some(validity));
        }
        let array = match data_type {
            DataType::Null => array,
            DataType::Struct(fields) => {
                let children = fields.iter().map(|field| self.array(field.data_type()));
                array.child_data(children.collect())
            }
            DataType::List(field) | DataType::LargeList(field) | DataType::Map(field, _) => {
                let offsets = self.buffer();
                array
                    .add_buffer(offsets)
                    .add_child_data(self.array(field.data_type()))
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                let offsets = self.buffer();
                array.add_buffer(offsets).add_buffer(self.buffer())
            }
            _ => array.add_buffer(self.buffer()),
        };
        // Copies of bytes have the alignment of bytes.
        let array = array.align_buffers(true).build().unwrap();
        let is_null = *data_type == DataType::Null;
        assert_eq!(if is_null { length } else { array.null_count() }, nulls);
        array
    }
}

/// The batch that Java reads of a layout.
fn read_back(schema: &Arc<Schema>, layout: &Layout) -> RecordBatch {
    let mut numbers = Numbers(layout.numbers().into_iter());
    let rows = numbers.next();
    let mut arrays = Arrays {
        nodes: numbers.pairs(),
        buffers: numbers.pairs(),
    };
    assert_eq!(numbers.0.next(), None);
    let fields = schema.fields().iter();
    let columns = fields.map(|field| make_array(arrays.array(field.data_type())));
    let columns = columns.collect();
    assert_eq!((arrays.nodes.next(), arrays.buffers.next()), (None, None));
    let rows = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows).unwrap()
}

/// A value for each row; every fifth is null.
fn values<T>(value: impl Fn(usize) -> T) -> Vec<Option<T>> {
    let rows = 0..ROWS;
    rows.map(|row| (row % 5 != 3).then(|| value(row))).collect()
}

fn lists() -> ArrayRef {
    let mut lists = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
    for row in 0..ROWS {
        for inner in 0..row % 4 {
            let mut number = 0..i32::try_from(inner).unwrap();
            number.by_ref().for_each(|n| {
                lists.values().values().append_option((n != 1).then_some(n));
            });
            lists.values().append(inner != 2);
        }
        lists.append(row % 6 != 5);
    }
    Arc::new(lists.finish())
}

fn maps() -> ArrayRef {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for row in 0..ROWS {
        for entry in 0..row % 3 {
            maps.keys().append_value(format!("key {entry}"));
            let value = format!("value {row}");
            maps.values()
                .append_option((entry == 0).then_some(value.as_str()));
        }
        maps.append(row % 7 != 6).unwrap();
    }
    Arc::new(maps.finish())
}

/// A column of each type that readers make.
fn columns() -> Vec<(&'static str, ArrayRef)> {
    let text = |row| format!("text {row}");
    let texts = values(text);
    let bytes: Vec<Option<&[u8]>> = texts
        .iter()
        .map(|text| text.as_deref().map(str::as_bytes))
        .collect();
    let number = |row| i64::try_from(row).unwrap() * 1_000_003;
    let times = TimestampMicrosecondArray::from(values(number)).with_timezone("UTC");
    let all = Int64Array::from_iter_values((0..ROWS).map(number));
    let inner: ArrayRef = Arc::new(BooleanArray::from(values(|row| row % 2 == 0)));
    let fields = vec![
        Field::new("all", DataType::Int64, true),
        Field::new("inner", DataType::Boolean, true),
        Field::new("lists", lists().data_type().clone(), true),
    ];
    let present = (0..ROWS).map(|row| row % 4 != 1).collect::<Vec<_>>();
    let pairs = StructArray::new(
        fields.into(),
        vec![Arc::new(all.clone()), inner.clone(), lists()],
        Some(present.into()),
    );
    let decimals = Decimal128Array::from(values(|row| i128::from(number(row)) << 40));
    let floats = values(|row| f64::from(u32::try_from(row).unwrap()) / 3.0);
    let days = values(|row| i32::try_from(row).unwrap());
    vec![
        ("all", Arc::new(all)),
        ("numbers", Arc::new(Int64Array::from(values(number)))),
        ("times", Arc::new(times)),
        ("decimals", Arc::new(decimals)),
        ("floats", Arc::new(Float64Array::from(floats))),
        ("days", Arc::new(Date32Array::from(days))),
        ("truths", inner),
        ("texts", Arc::new(StringArray::from(texts.clone()))),
        (
            "large_texts",
            Arc::new(LargeStringArray::from(texts.clone())),
        ),
        ("bytes", Arc::new(BinaryArray::from(bytes.clone()))),
        ("large_bytes", Arc::new(LargeBinaryArray::from(bytes))),
        ("lists", lists()),
        ("maps", maps()),
        ("pairs", Arc::new(pairs)),
        ("nothing", Arc::new(NullArray::new(ROWS))),
    ]
}

fn batch() -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns()
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}

#[test]
fn every_slice_of_every_type_is_read_back() {
    let batch = batch();
    for first in 0..=ROWS {
        for length in 0..=ROWS - first {
            let slice = batch.slice(first, length);
            let layout = Layout::of(&slice).unwrap();
            assert_eq!(
                read_back(&batch.schema(), &layout),
                slice,
                "{first}+{length}"
            );
        }
    }
}

#[test]
fn nodes_and_buffers_have_the_order_of_a_message_of_ipc() {
    let batch = batch().slice(3, 13);
    let layout = Layout::of(&batch).unwrap();
    let (_, encoded) = IpcDataGenerator::default()
        .encode(
            &batch,
            &mut DictionaryTracker::new(false),
            &IpcWriteOptions::default(),
            &mut IpcWriteContext::default(),
        )
        .unwrap();
    let message = root_as_message(&encoded.ipc_message).unwrap();
    let message = message.header_as_record_batch().unwrap();
    let nodes = message.nodes().unwrap().iter();
    let nodes = nodes.map(|node| {
        let number = |value: i64| usize::try_from(value).unwrap();
        (number(node.length()), number(node.null_count()))
    });
    assert_eq!(layout.nodes, nodes.collect::<Vec<_>>());
    let buffers = message.buffers().unwrap();
    assert_eq!(layout.buffers.len(), buffers.len());
    for (ours, theirs) in layout.buffers.iter().zip(buffers) {
        // A message may have bits for validity without nulls.
        if let Some(ours) = ours {
            assert_eq!(ours.len(), usize::try_from(theirs.length()).unwrap());
        }
    }
}

#[test]
fn rows_without_columns_are_counted() {
    let rows = RecordBatchOptions::new().with_row_count(Some(7));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &rows);
    let layout = Layout::of(&batch.unwrap()).unwrap();
    assert_eq!(layout.numbers(), [7, 0, 0]);
}

#[test]
fn bits_at_a_byte_are_shared_and_values_are_never_copied() {
    let batch = batch();
    let whole = Layout::of(&batch).unwrap();
    let slice = Layout::of(&batch.slice(8, 5)).unwrap();
    let address = |layout: &Layout, at: usize| layout.buffers[at].as_ref().unwrap().as_ptr();
    // The columns `all` and `numbers`: validity and values of each.
    let value = |at| address(&whole, at).wrapping_add(8 * 8);
    assert_eq!(address(&slice, 1), value(1));
    assert_eq!(address(&slice, 3), value(3));
    assert_eq!(address(&slice, 2), address(&whole, 2).wrapping_add(1));
}

#[test]
fn a_type_that_no_reader_makes_is_refused() {
    let column: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from(vec![&[1_u8, 2]]).unwrap());
    let batch = RecordBatch::try_from_iter([("fixed", column)]).unwrap();
    let error = Layout::of(&batch).unwrap_err();
    assert!(error.to_string().contains("FixedSizeBinary"), "{error}");
}
