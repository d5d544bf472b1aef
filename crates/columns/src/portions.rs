//! The number of events of a batch that are projected at once, so that their columns stay within a memory limit.
//!
//! A payload becomes at most so many values as it has commas, and one more. Outside of lists the schema says how many
//! there are; in a list each element takes the columns of all its members, however short its text is.

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, ListArray};
use arrow_schema::{DataType, SchemaRef};

/// The bytes that projected columns take, as an upper bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portions {
    /// Bytes of the columns of one batch.
    most: u64,
    /// Bytes of a row beside its texts.
    row: u64,
    /// Bytes of an element of any list beside its texts; 0 without lists.
    element: u64,
}

impl Portions {
    pub(crate) fn new(schema: &SchemaRef, memory: u64) -> Self {
        let fields = || schema.fields().iter().map(|field| field.data_type());
        Self {
            most: memory,
            row: fields().map(leaves).fold(0, u64::saturating_add) * VALUE_BYTES,
            element: fields().map(listed).fold(0, u64::saturating_add) * VALUE_BYTES,
        }
    }

    /// The number of rows from the first one on that fit, at least one.
    ///
    /// # Errors
    /// The bytes of the first row, and those that it may have: it does not fit by itself.
    pub(crate) fn rows(
        &self,
        parts: &ListArray,
        payloads: &BinaryArray,
    ) -> Result<usize, (u64, u64)> {
        let mut held = 0_u64;
        for row in 0..payloads.len() {
            let bytes = if parts.is_valid(row) {
                let parts = parts.value(row);
                let offsets = parts.as_binary::<i32>().value_offsets();
                let end =
                    |offset: Option<&i32>| offset.map_or(0, |at| u64::from(at.unsigned_abs()));
                let text = end(offsets.last()).saturating_sub(end(offsets.first()));
                // A pair of empty texts is a member too.
                let count = parts.len() as u64;
                let bytes = self.of_row(text.saturating_add(count.saturating_mul(6)));
                bytes.saturating_add(self.element.saturating_mul(count))
            } else {
                let payload = payloads.value(row);
                self.of_row(payload.len() as u64)
                    .saturating_add(self.of_lists(payload))
            };
            if bytes > self.most {
                return if row == 0 {
                    Err((bytes, self.most))
                } else {
                    Ok(row)
                };
            }
            held = held.saturating_add(bytes);
            if held > self.most {
                return Ok(row);
            }
        }
        Ok(payloads.len())
    }

    /// The text itself, and as it is rescued.
    fn of_row(&self, payload: u64) -> u64 {
        payload.saturating_mul(2).saturating_add(self.row)
    }

    fn of_lists(&self, payload: &[u8]) -> u64 {
        if self.element == 0 {
            return 0;
        }
        let values = payload.split(|byte| *byte == b',').count() as u64;
        self.element.saturating_mul(values)
    }
}

/// The columns that a value of this type takes.
fn leaves(data_type: &DataType) -> u64 {
    match data_type {
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| leaves(field.data_type()));
            fields.fold(1, u64::saturating_add)
        }
        DataType::List(element) | DataType::LargeList(element) | DataType::Map(element, _) => {
            leaves(element.data_type()).saturating_add(1)
        }
        _ => 1,
    }
}

/// The columns that an element takes of the lists in this type.
fn listed(data_type: &DataType) -> u64 {
    match data_type {
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| listed(field.data_type()));
            fields.fold(0, u64::saturating_add)
        }
        DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) => leaves(data_type),
        _ => 0,
    }
}

/// Bytes of one value beside its text: the widest number there is, and whether it is there.
const VALUE_BYTES: u64 = 17;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may panic

    use std::sync::Arc;

    use arrow_schema::{Field, Schema};

    use super::*;

    fn portions(memory: u64) -> Portions {
        let members = ["a", "b", "c"].map(|name| Field::new(name, DataType::Int64, true));
        let element = Field::new("element", DataType::Struct(members.to_vec().into()), true);
        let list = Field::new("list", DataType::List(Arc::new(element)), true);
        Portions::new(&Arc::new(Schema::new(vec![list])), memory)
    }

    fn rows(memory: u64, payloads: &[&[u8]]) -> Result<usize, (u64, u64)> {
        let field = Arc::new(Field::new("element", DataType::Binary, true));
        let parts = ListArray::new_null(field, payloads.len());
        portions(memory).rows(&parts, &BinaryArray::from(payloads.to_vec()))
    }

    #[test]
    fn elements_of_lists_count_with_all_their_columns() {
        let payload: &[u8] = b"{\"list\":[{},{},{}]}";
        // The text twice; list, element and three members for the row, and for each of three elements.
        let bytes = 2 * 19 + 5 * 17 + 3 * 5 * 17;
        assert_eq!(rows(bytes, &[payload]), Ok(1));
        assert_eq!(rows(bytes - 1, &[payload]), Err((bytes, bytes - 1)));
        assert_eq!(rows(2 * bytes, &[payload; 5]), Ok(2));
        assert_eq!(rows(2 * bytes - 1, &[payload; 5]), Ok(1));
        assert_eq!(rows(5 * bytes, &[payload; 5]), Ok(5));
        assert_eq!(rows(bytes, &[b"{}", &[b','; 10_000]]), Ok(1));
    }
}
