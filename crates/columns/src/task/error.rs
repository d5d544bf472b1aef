//! The errors of a task. Their texts carry code and place: Spark shows the text alone, far from the place.

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use crate::events::Failure;
use crate::refused::Refused;
use crate::task::Piece;

/// Why a task has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError {
    /// The stable name of the error, such as `spool.gap`.
    pub code: String,
    /// The whole text; for an error of reading, with the spool, the positions and the host.
    pub text: String,
}

impl TaskError {
    /// A failure of reading a piece. If the spool's directory is gone, the error is `spool.gone`.
    pub(super) fn placed(piece: &Piece, failure: &Failure) -> Self {
        let spool = piece.spool();
        let (code, message) = (failure.code(), failure.to_string());
        let is_gone = matches!(failure, Failure::Spool(_))
            && code != GONE
            && !spool.join("spool.json").exists();
        let (code, text) = if is_gone {
            (GONE, gone(spool))
        } else if message.starts_with(code) {
            (code, message)
        } else {
            (code, format!("{code}: {message}"))
        };
        let (spool, start, end) = (spool.display(), piece.start, piece.end);
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        Self {
            code: code.to_owned(),
            text: format!("{text} (spool {spool}, positions {start} to {end}, host {host})"),
        }
    }
}

impl Display for TaskError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TaskError {}

impl From<Refused> for TaskError {
    fn from(refused: Refused) -> Self {
        Self {
            code: refused.code.to_owned(),
            text: refused.text,
        }
    }
}

fn gone(spool: &Path) -> String {
    format!(
        "{GONE}: there is no spool in {}; mount or bring back the directory, or take it out of the option spool",
        spool.display()
    )
}

const GONE: &str = "spool.gone";
