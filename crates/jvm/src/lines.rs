//! Log lines of the reading, which Java takes and gives to Spark's logger.

use std::sync::{LazyLock, Mutex, Once, PoisonError};

use ackline::LogLines;
use tracing::Level;

/// Lines that wait for Java, which takes them after each batch.
const MAX_LINES: usize = 100;

#[derive(Default)]
struct Lines {
    waiting: Vec<String>,
    lost: u64,
}

static LINES: LazyLock<Mutex<Lines>> = LazyLock::new(Mutex::default);

/// Collects the warnings and errors of this process from now on.
pub(crate) fn collect() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // This fails only if another subscriber of this library is there.
        let lines = LogLines::new(Level::WARN, |_, text| {
            // A path in a line may hold an end of a line.
            let line = text.replace('\n', "\\n");
            let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.waiting.len() < MAX_LINES {
                lines.waiting.push(line);
            } else {
                lines.lost += 1;
            }
        });
        let _ = tracing::subscriber::set_global_default(lines);
    });
}

/// The lines since the last call, one below the other; `None` if there are none.
pub(crate) fn take() -> Option<String> {
    let taken = {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *lines)
    };
    let mut all = taken.waiting;
    if taken.lost > 0 {
        let lost = taken.lost;
        all.push(format!("{lost} more log lines were lost code=log.lost"));
    }
    (!all.is_empty()).then(|| all.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_once_and_those_too_many_are_counted() {
        collect();
        tracing::warn!(target: "ackline_spool", code = "spool.test", "one\ntwo");
        tracing::info!(target: "ackline_spool", "no warning");
        tracing::warn!(target: "hyper", "of another crate");
        assert_eq!(take().as_deref(), Some("one\\ntwo code=spool.test"));
        assert_eq!(take(), None);
        for _ in 0..=MAX_LINES {
            tracing::error!(target: "ackline_spool", "x");
        }
        let lines = take().unwrap();
        assert_eq!(lines.lines().count(), MAX_LINES + 1);
        assert!(lines.ends_with("1 more log lines were lost code=log.lost"));
    }
}
