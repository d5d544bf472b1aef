//! The faults of an event.

/// The reason an event is not one JSON object that fits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It has no bytes, or white space alone.
    #[error("the payload is empty")]
    Empty,
    /// It is not text.
    #[error("the payload is not UTF-8 from byte {at} on")]
    Utf8 {
        /// The first invalid byte.
        at: usize,
    },
    /// It nests too deep.
    #[error("the payload nests deeper than 128 objects and arrays")]
    Depth,
    /// It is not JSON, or more bytes follow it.
    #[error("the payload is not JSON: {detail}")]
    Syntax {
        /// The parser's message, with line and column; nothing of the payload.
        detail: String,
    },
    /// It is JSON, and an array or a scalar.
    #[error("the payload is JSON and not an object")]
    NotObject,
    /// A value does not fit its column, and no column keeps such values.
    #[error(
        "the member {member} does not fit its column, and the schema has no column for rescued members"
    )]
    Misfit {
        /// The member's name as written by the peer; cut off after 100 characters.
        member: String,
    },
}

impl Malformed {
    /// The stable code of the reason.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Empty => "json.empty",
            Self::Utf8 { .. } => "json.utf8",
            Self::Depth => "json.depth",
            Self::Syntax { .. } => "json.syntax",
            Self::NotObject => "json.not_object",
            Self::Misfit { .. } => "json.misfit",
        }
    }

    pub(crate) fn misfit(name: &str) -> Self {
        let mut member: String = name.chars().take(SHOWN).collect();
        if member.len() < name.len() {
            member.push('…');
        }
        Self::Misfit { member }
    }

    pub(crate) fn syntax(error: &serde_json::Error) -> Self {
        let detail = error.to_string();
        Self::Syntax { detail }
    }
}

/// Characters of a member's name in an error.
const SHOWN: usize = 100;
