//! Log lines, kept for tests: the lines of all threads, selected by their subject.

use std::ffi::OsStr;
use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, Once, PoisonError};

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
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Keeps the process's log lines from now on; a process that has another logger already keeps
/// nothing.
pub fn keep() {
    INSTALLED.call_once(|| {
        let _ = tracing::subscriber::set_global_default(Keep);
        // A caller that logged meanwhile may have cached that there is no subscriber.
        tracing::callsite::rebuild_interest_cache();
    });
}

/// The lines with a code that contain `about`, such as a directory or `field=value `, in order.
pub fn lines(code: &str, about: impl AsRef<OsStr>) -> Vec<String> {
    let (code, about) = (
        format!("code=\"{code}\" "),
        about.as_ref().to_string_lossy(),
    );
    let all = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = |line: &&String| line.contains(&code) && line.contains(&*about);
    all.iter().filter(wanted).cloned().collect()
}
