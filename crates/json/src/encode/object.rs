//! Members of an object: columns by their names.

use std::fmt;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::Fields;

use super::column::{Write, writer};
use super::{EncodeError, Nulls};
use crate::escape::push_string;

/// The columns of a batch, or the parts of a struct.
pub(super) struct Object {
    members: Vec<Member>,
    nulls: Nulls,
}

struct Member {
    /// The name as JSON, and the colon.
    name: Vec<u8>,
    nulls: Option<NullBuffer>,
    write: Write,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").finish_non_exhaustive()
    }
}

impl Object {
    pub(super) fn of_columns(
        fields: &Fields,
        columns: &[ArrayRef],
        nulls: Nulls,
    ) -> Result<Self, EncodeError> {
        let members = fields
            .iter()
            .zip(columns)
            .map(|(field, column)| {
                let mut name = Vec::new();
                push_string(field.name().as_bytes(), &mut name);
                name.push(b':');
                Ok(Member {
                    name,
                    nulls: column.logical_nulls(),
                    write: writer(column, nulls)?,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { members, nulls })
    }

    /// Appends `{` and each member with a comma after it.
    pub(super) fn open(&self, row: usize, out: &mut Vec<u8>) {
        out.push(b'{');
        for member in &self.members {
            let is_null = member
                .nulls
                .as_ref()
                .is_some_and(|nulls| nulls.is_null(row));
            if is_null && self.nulls == Nulls::Omit {
                continue;
            }
            out.extend_from_slice(&member.name);
            if is_null {
                out.extend_from_slice(b"null");
            } else {
                (member.write)(row, out);
            }
            out.push(b',');
        }
    }

    /// Ends the object: the last comma becomes the bracket.
    pub(super) fn close(out: &mut Vec<u8>) {
        if out.last() == Some(&b',') {
            out.pop();
        }
        out.push(b'}');
    }
}
