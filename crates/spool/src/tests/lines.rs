//! What the crate logs, kept for tests: the lines of all threads, told apart by the spool's directory.

use std::{
    fmt::{Debug, Write},
    path::Path,
    sync::{Mutex, Once},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static INSTALLED: Once = Once::new();

struct Keep;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Keep {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Keeps what is logged from now on.
pub(super) fn keep() {
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Keep).unwrap());
}

/// The lines with a code about a spool, in order.
pub(super) fn lines(code: &str, dir: &Path) -> Vec<String> {
    let (code, dir) = (format!("code=\"{code}\" "), dir.display().to_string());
    let all = LINES.lock().unwrap();
    let wanted = |line: &&String| line.contains(&code) && line.contains(&dir);
    all.iter().filter(wanted).cloned().collect()
}
