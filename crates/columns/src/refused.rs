//! The error of a caller's request that is not carried out.

use std::fmt::{self, Display, Formatter};

/// A request that is refused: nothing was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The stable name of the refusal, such as `json.schema`.
    pub code: &'static str,
    /// A sentence with the fault and its cure.
    pub text: String,
}

impl Refused {
    pub(crate) fn new(code: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refused {}
