//! Log lines as text, for programs that hand them on to a logger of another language.

use std::fmt::{Debug, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A subscriber of `tracing` that gives the lines of all our crates to a function, as `message name=value …`.
#[derive(Debug)]
pub struct LogLines<F> {
    least: Level,
    take: F,
}

impl<F: Fn(Level, String)> LogLines<F> {
    /// Gives the lines of this level and of graver ones to `take`, on the thread that logs.
    pub fn new(least: Level, take: F) -> Self {
        Self { least, take }
    }
}

impl<F: Fn(Level, String) + Send + Sync + 'static> Subscriber for LogLines<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= self.least
            && metadata.target().starts_with("ackline")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        (self.take)(*event.metadata().level(), text.message + &text.fields);
    }

    // There are no spans: `enabled` refuses them.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            let _ = write!(self.fields, " {}={value}", field.name());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            let _ = write!(self.fields, " {}={value:?}", field.name());
        }
    }
}
