//! The columns that payloads are projected to: which schemas are sound, and which columns of an event are read for them.

use std::sync::Arc;

use ackline_json::{Mode, Options, ProjectError, Projector, is_variant, with_rescued};
use ackline_spool::{COLUMNS, DIGEST, ON_REQUEST, Reader};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::{Field, Schema, SchemaRef};
use serde::Deserialize;

use crate::element::Element;
use crate::element_columns::Elements;
use crate::element_schema::{Plan, Source, spark_name};
use crate::events::{Events, Filler};
use crate::portions::Portions;
use crate::refused::Refused;

/// The columns of an event that every projection reads.
const NEEDED: [&str; 3] = ["position", "parts", "payload"];

/// Columns that payloads are projected to, beside those that every event has.
#[derive(Debug, Clone)]
pub struct Projection {
    schema: SchemaRef,
    filling: Filling,
    own: Own,
}

/// The handling of payloads that are JSON.
#[derive(Debug, Clone, Deserialize)]
pub struct JsonColumns {
    /// `PERMISSIVE`, `DROPMALFORMED` or `FAILFAST`, in any case.
    pub mode: String,
    /// The column for members without a column; `None` for none.
    pub rescued: Option<String>,
    /// The column for malformed payloads.
    pub corrupt_record: String,
    /// Whether names that differ only in case are different.
    pub case_sensitive: bool,
    /// The columns of the schema that are those of every event: their names there, and in an event. `None` for all, by
    /// their own names.
    #[serde(default)]
    pub event_columns: Option<Vec<(String, String)>>,
}

/// The columns of a schema that are those of every event: their names there, and in an event.
#[derive(Debug, Clone)]
pub(crate) struct Own(Vec<(String, String)>);

/// The content of payloads.
#[derive(Debug, Clone)]
enum Filling {
    /// JSON objects.
    Json(Options),
    /// Elements of a fixed size.
    Elements(Arc<Elements>),
}

impl Projection {
    /// The columns of JSON. `schema` is a message of Arrow's IPC format, as `pyarrow.Schema.serialize` writes it.
    ///
    /// # Errors
    /// `json.schema`: the mode is unknown, or a column cannot be filled.
    pub fn json(schema: &[u8], columns: JsonColumns) -> Result<Self, Refused> {
        let own = columns.event_columns.map_or_else(Own::all, Own);
        let options = Options {
            mode: mode(&columns.mode).map_err(refused)?,
            rescued: columns.rescued,
            corrupt: columns.corrupt_record,
            whole: own.whole(),
            case_sensitive: columns.case_sensitive,
        };
        let made = Self {
            schema: beside(&read_schema(schema).map_err(refused)?, &own)?,
            filling: Filling::Json(options),
            own,
        };
        made.filler()?;
        Ok(made)
    }

    /// The columns of elements of a fixed size; `schema` chooses among them and those of every event.
    ///
    /// # Errors
    /// `element.schema`: the description or the mode is wrong, or a column cannot be filled.
    pub fn elements(
        element: &str,
        schema: Option<&[u8]>,
        mode: &str,
        corrupt_record: &str,
    ) -> Result<Self, Refused> {
        let made = || {
            let element = Element::parse(element)?;
            let plan = match schema {
                None => Plan::new(element, corrupt_record)?,
                Some(schema) => Plan::with_schema(element, &read_schema(schema)?, corrupt_record)?,
            };
            Ok::<_, String>(Elements::new(plan, self::mode(mode)?))
        };
        let elements = made().map_err(|text| Refused::new("element.schema", text))?;
        Ok(Self {
            schema: elements.plan().schema(),
            filling: Filling::Elements(Arc::new(elements)),
            own: Own::all(),
        })
    }

    /// The columns of a description of elements: their names, and the names of their types in Spark.
    ///
    /// # Errors
    /// `element.schema`: the description is wrong.
    pub fn element_fields(element: &str) -> Result<Vec<(String, &'static str)>, Refused> {
        let element =
            Element::parse(element).map_err(|text| Refused::new("element.schema", text))?;
        let fields = element.fields().iter();
        Ok(fields
            .map(|field| (field.name.clone(), spark_name(field.kind)))
            .collect())
    }

    /// The columns of an event that are read for it.
    pub fn columns(&self) -> Vec<String> {
        let of_schema = self.schema.fields().iter();
        let owned: Vec<&str> = of_schema
            .filter_map(|field| self.own.of(field.name()))
            .collect();
        let named = |name: &str| owned.contains(&name);
        let all = COLUMNS.iter().chain(&ON_REQUEST);
        let wanted = all.filter(|name| NEEDED.contains(name) || named(name));
        wanted.map(|name| (*name).to_owned()).collect()
    }

    /// The same with the column of the rescued behind all others, unless it is there or turned off.
    #[must_use]
    pub fn with_rescued(&self) -> Self {
        let schema = match &self.filling {
            Filling::Json(options) => with_rescued(&self.schema, options),
            Filling::Elements(_) => SchemaRef::clone(&self.schema),
        };
        Self {
            schema,
            filling: self.filling.clone(),
            own: self.own.clone(),
        }
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// Projects the events of a reader, which reads [`columns`](Self::columns); the columns of a batch take at most
    /// `memory` bytes.
    ///
    /// # Errors
    /// None for a projection that was made without one.
    pub fn events(&self, reader: Reader, memory: u64) -> Result<Events, Refused> {
        let portions = match &self.filling {
            Filling::Json(_) => Portions::new(&self.schema, memory),
            // The columns of every event have no part in payloads.
            Filling::Elements(elements) => Portions::new(&elements.plan().filled(), memory),
        };
        Ok(Events::projected(reader, self.filler()?, portions))
    }

    /// Whether a malformed event is a row too, so that the columns of every event do not depend on payloads.
    pub(crate) fn keeps_malformed(&self) -> bool {
        let mode = match &self.filling {
            Filling::Json(options) => options.mode,
            Filling::Elements(elements) => elements.mode(),
        };
        mode == Mode::Permissive
    }

    /// The name in an event of a column that is the event's unchanged; `None` if payloads fill it.
    pub(crate) fn of_event(&self, name: &str) -> Option<&str> {
        match &self.filling {
            Filling::Json(_) => {
                let field = self.schema.field_with_name(name).ok()?;
                // A payload that becomes a VARIANT is converted.
                self.own.of(name).filter(|_| !is_variant(field.data_type()))
            }
            Filling::Elements(elements) => {
                let mut columns = elements.plan().columns();
                let (_, source) = columns.find(|(field, _)| field.name() == name)?;
                (*source == Source::Event).then(|| self.own.of(name))?
            }
        }
    }

    /// The same with the wanted columns alone, where no other column decides their values: every event is a row
    /// ([`keeps_malformed`](Self::keeps_malformed)), and neither the rescued nor the malformed payloads are wanted.
    ///
    /// The columns of one member of the event, such as `log` and `log.level`, decide each other's values.
    pub(crate) fn pruned(self, wanted: &[String]) -> Self {
        let Filling::Json(options) = &self.filling else {
            return self;
        };
        let is_wanted = |name: &str| wanted.iter().any(|one| one == name);
        let rescued = options.rescued.as_deref();
        if !self.keeps_malformed() || is_wanted(&options.corrupt) || rescued.is_some_and(is_wanted)
        {
            return self;
        }
        let member = |name: &str| name.split('.').next().map(str::to_lowercase);
        let of_payload = |name: &str| self.own.of(name).is_none();
        let members = wanted.iter().filter(|name| of_payload(name));
        let members: Vec<_> = members.map(|name| member(name)).collect();
        let fields = self.schema.fields().iter().filter(|field| {
            let name = field.name();
            is_wanted(name) || (of_payload(name) && members.contains(&member(name)))
        });
        let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        Self { schema, ..self }
    }

    fn filler(&self) -> Result<Filler, Refused> {
        let options = match &self.filling {
            Filling::Json(options) => options,
            Filling::Elements(elements) => return Ok(Filler::Elements(Arc::clone(elements))),
        };
        let own: Vec<&str> = self.own.0.iter().map(|(name, _)| name.as_str()).collect();
        let projector = Projector::new(SchemaRef::clone(&self.schema), &own, options);
        let projector = projector.map_err(|error| refused(error.to_string()))?;
        Ok(Filler::Json(Box::new((projector, self.own.clone()))))
    }
}

impl Own {
    /// All of them, by their own names; but not those that would take common names away from members.
    fn all() -> Self {
        let all = COLUMNS.iter().chain([&DIGEST]);
        Self(
            all.map(|name| (String::from(*name), String::from(*name)))
                .collect(),
        )
    }

    fn of(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        let found = pairs.find(|(named, _)| named == name);
        found.map(|(_, own)| own.as_str())
    }

    /// The name in the schema of the whole payload.
    fn whole(&self) -> Option<String> {
        let mut pairs = self.0.iter();
        let found = pairs.find(|(_, own)| own == "payload");
        found.map(|(name, _)| name.clone())
    }

    /// These columns of a batch of events, by their names in the schema.
    pub(crate) fn chosen(
        &self,
        schema: &Schema,
        batch: &RecordBatch,
    ) -> Result<RecordBatch, ProjectError> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (name, own) in &self.0 {
            // A payload that becomes a VARIANT is not copied.
            if schema.column_with_name(name).is_some()
                && let Some(column) = batch.column_by_name(own)
            {
                fields.push(Field::new(name, column.data_type().clone(), true));
                columns.push(Arc::clone(column));
            }
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        RecordBatch::try_new_with_options(schema, columns, &rows)
            .map_err(|error| ProjectError::Batch(error.to_string()))
    }
}

fn read_schema(schema: &[u8]) -> Result<Schema, String> {
    try_schema_from_ipc_buffer(schema).map_err(|error| format!("schema is not read: {error}"))
}

/// The schema, with columns that every event has as the spool yields them.
fn beside(schema: &Schema, own: &Own) -> Result<SchemaRef, Refused> {
    let fields = schema.fields().iter().map(|field| {
        let Some(of_event) = own.of(field.name()) else {
            return Ok(Arc::clone(field));
        };
        let own = ackline_spool::column(of_event)
            .ok_or_else(|| refused(format!("an event has no column {of_event:?}")))?;
        if own.data_type().equals_datatype(field.data_type()) && field.is_nullable() {
            return Ok(Arc::new(own.with_name(field.name())));
        }
        if of_event == "payload" && is_variant(field.data_type()) && field.is_nullable() {
            return Ok(Arc::clone(field));
        }
        let (name, own) = (field.name(), own.data_type());
        let message = format!(
            "column {name} is one that every event has, a nullable {own}: give it that type, or \
             take it out and find a member of this name in the column of the rescued, or say with \
             eventColumns (event_columns in Python) which columns are the event's"
        );
        Err(refused(message))
    });
    Ok(Arc::new(Schema::new(
        fields.collect::<Result<Vec<_>, _>>()?,
    )))
}

fn mode(text: &str) -> Result<Mode, String> {
    match text.to_ascii_uppercase().as_str() {
        "PERMISSIVE" => Ok(Mode::Permissive),
        "DROPMALFORMED" => Ok(Mode::DropMalformed),
        "FAILFAST" => Ok(Mode::FailFast),
        _ => Err(format!(
            "mode must be PERMISSIVE, DROPMALFORMED or FAILFAST, not {text:?}"
        )),
    }
}

fn refused(text: String) -> Refused {
    Refused::new("json.schema", text)
}
