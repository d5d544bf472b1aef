//! The columns of elements: their types in Arrow and in Spark, and the columns that a schema may have beside them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::element::{Element, Kind};

/// Digits of the largest u64.
const U64_DIGITS: u8 = 20;

/// The source of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A column that every event has.
    Event,
    /// A field of the element, by its number.
    Field(usize),
    /// The payload of a malformed event.
    Corrupt,
}

/// The columns of a schema and their sources.
#[derive(Debug)]
pub(crate) struct Plan {
    element: Element,
    schema: SchemaRef,
    sources: Vec<Source>,
}

impl Plan {
    /// The columns of every event but `payload`, those of the description, and `corrupt`: that of malformed payloads.
    ///
    /// # Errors
    /// A sentence that says why these columns cannot be.
    pub(crate) fn new(element: Element, corrupt: &str) -> Result<Self, String> {
        let of_events = ackline_spool::COLUMNS.iter();
        let of_events = of_events.filter(|name| **name != "payload");
        let of_events = of_events.filter_map(|name| ackline_spool::column(name));
        let of_fields = element.fields().iter();
        let of_fields = of_fields.map(|part| Field::new(&part.name, natural(part.kind), true));
        let corrupted = Field::new(corrupt, DataType::Binary, true);
        let fields: Vec<Field> = of_events.chain(of_fields).chain([corrupted]).collect();
        Self::with_schema(element, &Schema::new(fields), corrupt)
    }

    /// Only the columns of a schema.
    ///
    /// # Errors
    /// A sentence that says which column cannot be filled.
    pub(crate) fn with_schema(
        element: Element,
        schema: &Schema,
        corrupt: &str,
    ) -> Result<Self, String> {
        check_names(&element, corrupt)?;
        let mut fields = Vec::with_capacity(schema.fields().len());
        let mut sources = Vec::with_capacity(schema.fields().len());
        for (at, field) in schema.fields().iter().enumerate() {
            let name = field.name();
            if schema.index_of(name).is_ok_and(|first| first < at) {
                return Err(format!(
                    "two columns are named {name}: take one of them out"
                ));
            }
            let (field, source) = sourced(&element, field, corrupt)?;
            fields.push(field);
            sources.push(source);
        }
        Ok(Self {
            element,
            schema: Arc::new(Schema::new(fields)),
            sources,
        })
    }

    /// The description.
    pub(crate) fn element(&self) -> &Element {
        &self.element
    }

    /// The schema of every batch.
    pub(crate) fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// Each column with its source.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&FieldRef, &Source)> {
        self.schema.fields().iter().zip(&self.sources)
    }

    /// The schema of the columns that are filled from payloads.
    pub(crate) fn filled(&self) -> SchemaRef {
        let filled = self.columns();
        let filled = filled.filter(|(_, source)| **source != Source::Event);
        let filled: Vec<_> = filled.map(|(field, _)| Arc::clone(field)).collect();
        Arc::new(Schema::new(filled))
    }
}

/// The name in Spark of a field's type.
pub(crate) fn spark_name(kind: Kind) -> &'static str {
    in_spark(kind).1
}

/// The type of Arrow that has exactly the values of a field.
fn natural(kind: Kind) -> DataType {
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::I8 => DataType::Int8,
        Kind::I16 => DataType::Int16,
        Kind::I32 => DataType::Int32,
        Kind::I64 => DataType::Int64,
        Kind::U8 => DataType::UInt8,
        Kind::U16 => DataType::UInt16,
        Kind::U32 => DataType::UInt32,
        Kind::U64 => DataType::UInt64,
        Kind::F32 => DataType::Float32,
        Kind::F64 => DataType::Float64,
        Kind::Bytes(_) => DataType::Binary,
    }
}

/// The type of Arrow that a field has in Spark, which has no unsigned numbers; and its name there.
fn in_spark(kind: Kind) -> (DataType, &'static str) {
    match kind {
        Kind::Bool => (DataType::Boolean, "BOOLEAN"),
        Kind::I8 => (DataType::Int8, "TINYINT"),
        Kind::I16 | Kind::U8 => (DataType::Int16, "SMALLINT"),
        Kind::I32 | Kind::U16 => (DataType::Int32, "INT"),
        Kind::I64 | Kind::U32 => (DataType::Int64, "BIGINT"),
        Kind::U64 => (DataType::Decimal128(U64_DIGITS, 0), "DECIMAL(20,0)"),
        Kind::F32 => (DataType::Float32, "FLOAT"),
        Kind::F64 => (DataType::Float64, "DOUBLE"),
        Kind::Bytes(_) => (DataType::Binary, "BINARY"),
    }
}

/// Refuses fields with the name of another column.
fn check_names(element: &Element, corrupt: &str) -> Result<(), String> {
    let is_of_events = |name: &str| ackline_spool::column(name).is_some();
    let shown = element.shown();
    let mut names = element.fields().iter().map(|field| field.name.as_str());
    if let Some(name) = names.clone().find(|name| is_of_events(name)) {
        return Err(format!(
            "element is {shown:?}: a field is named {name}, as a column that every event has; give it another name, or \
             _ to skip it"
        ));
    }
    if names.any(|name| name == corrupt) {
        return Err(format!(
            "element is {shown:?}: a field is named {corrupt}, as the column for payloads that do not fit; give one \
             of them another name"
        ));
    }
    if is_of_events(corrupt) {
        return Err(format!(
            "column {corrupt} is one that every event has: give the column for payloads that do not fit another name"
        ));
    }
    Ok(())
}

/// A column of the schema, and its source.
fn sourced(
    element: &Element,
    field: &FieldRef,
    corrupt: &str,
) -> Result<(FieldRef, Source), String> {
    let (name, given) = (field.name(), field.data_type());
    if !field.is_nullable() {
        return Err(format!(
            "column {name} may not be null, and an event may be malformed: make it nullable"
        ));
    }
    if let Some(own) = ackline_spool::column(name) {
        if own.data_type().equals_datatype(given) {
            return Ok((Arc::new(own), Source::Event));
        }
        let own = own.data_type();
        return Err(format!(
            "column {name} is one that every event has, a nullable {own}, not {given}: give it that type, or take it \
             out"
        ));
    }
    if name == corrupt {
        if *given == DataType::Binary {
            return Ok((Arc::clone(field), Source::Corrupt));
        }
        return Err(format!(
            "column {name} takes payloads that do not fit and is BINARY (Binary), not {given}"
        ));
    }
    let parts = || element.fields().iter();
    let Some(at) = parts().position(|part| part.name == *name) else {
        let names: Vec<&str> = parts().map(|part| part.name.as_str()).collect();
        return Err(format!(
            "column {name} is none of every event, and no field of the element {:?}, which has {}",
            element.shown(),
            names.join(", ")
        ));
    };
    let kind = parts().nth(at).map_or(Kind::Bool, |part| part.kind);
    let (natural, (wide, in_spark)) = (natural(kind), in_spark(kind));
    if *given == natural || *given == wide {
        return Ok((Arc::clone(field), Source::Field(at)));
    }
    let also = if natural == wide {
        String::new()
    } else {
        format!(", or {natural} outside of Spark")
    };
    Err(format!(
        "column {name} has the type {given}, and {kind} is {in_spark} ({wide}){also}"
    ))
}
