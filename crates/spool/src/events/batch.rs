//! Building a batch from the collected values.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef};

use super::columns::{Validity, attributes, received_at, repeats, texts};
use super::{DIGEST, ENDPOINT, LISTENER, Rows, Run};

impl Rows {
    pub(super) fn build(&mut self) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let schema = self.schema.clone();
        let columns = schema
            .fields()
            .iter()
            .map(|field| self.column(field))
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.filled));
        RecordBatch::try_new_with_options(schema, columns, &options)
    }

    fn column(&mut self, field: &FieldRef) -> Result<ArrayRef, arrow_schema::ArrowError> {
        let rows = self.filled;
        Ok(match field.name().as_str() {
            "spool" => {
                let spool = self.spool.clone();
                Arc::new(texts(rows, std::iter::once((rows, vec![&*spool])), None)?)
            }
            "position" => {
                let mut values = Vec::with_capacity(rows);
                for run in &self.runs {
                    values.extend((0..).map(|row| run.first_position + row).take(run.rows));
                }
                Arc::new(Int64Array::from(values))
            }
            "received_at" => Arc::new(received_at(rows, &self.runs)),
            "protocol" => Arc::new(self.text(|run| Some(&run.protocol))?),
            "peer" => Arc::new(self.text(|run| Some(&run.peer))?),
            "link" => Arc::new(self.text(|run| Some(&run.link))?),
            "stream" => Arc::new(self.text(|run| run.stream.as_deref())?),
            "sequence" => Arc::new(Int64Array::from(take_full(
                &mut self.values.sequences,
                rows,
            ))),
            "repeat" => Arc::new(repeats(rows, &self.runs)),
            LISTENER => Arc::new(self.text(Run::listener)?),
            ENDPOINT => Arc::new(self.text(Run::endpoint)?),
            DIGEST => Arc::new(self.values.digests.finish(None)?),
            "attributes" => {
                let own = self.values.attributes.take();
                Arc::new(attributes(rows, &self.runs, &own)?)
            }
            "parts" => {
                let offsets = take_full(&mut self.values.part_lists, rows + 1);
                self.values.part_lists.push(0);
                Arc::new(ListArray::try_new(
                    Arc::new(Field::new("element", DataType::Binary, true)),
                    OffsetBuffer::new(ScalarBuffer::from(offsets)),
                    Arc::new(self.values.parts.finish(None)?),
                    self.values.has_parts.finish(),
                )?)
            }
            _ => {
                let nulls = self.values.has_payload.finish();
                Arc::new(self.values.payloads.finish(nulls)?)
            }
        })
    }

    fn text<'a>(
        &'a self,
        of: impl Fn(&'a Run) -> Option<&'a str>,
    ) -> Result<StringArray, arrow_schema::ArrowError> {
        let mut nulls = Validity::default();
        for run in &self.runs {
            nulls.push_n(run.rows, of(run).is_some());
        }
        let runs = self.runs.iter();
        let runs = runs.map(|run| (run.rows, vec![of(run).unwrap_or_default()]));
        texts(self.filled, runs, nulls.finish())
    }
}

fn take_full<T>(values: &mut Vec<T>, capacity: usize) -> Vec<T> {
    std::mem::replace(values, Vec::with_capacity(capacity))
}
