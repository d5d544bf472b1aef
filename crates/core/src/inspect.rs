//! Frames as tools show them: what each says, and what every one of its bytes is for.

use bytes::{Bytes, BytesMut};

use crate::{ErrorKind, Value};

/// One direction of a recorded connection, read frame by frame. It has no state but what is needed to tell
/// where a frame ends.
pub trait Inspect {
    /// The protocol's own error kinds.
    type Kind: ErrorKind;

    /// Takes the frame at the front of `input`; `None` where bytes are missing, and then takes nothing.
    ///
    /// # Errors
    /// No continuation of these bytes is a sound frame. Nothing behind them can be read.
    fn inspect(&mut self, input: &mut BytesMut) -> Result<Option<Inspected>, Self::Kind>;
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// What it is, in the protocol's words.
    pub name: &'static str,
    /// All of it, as it came.
    pub bytes: Bytes,
    /// What it says, by name.
    pub members: Vec<(&'static str, Value)>,
    /// What its bytes are for, from the first one on and without a gap.
    pub spans: Vec<Span>,
}

/// Some bytes of a frame with one purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// How many, at least one.
    pub len: usize,
    /// What they are.
    pub label: String,
}

/// The spans of a frame, as they are walked.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    at: usize,
    spans: Vec<Span>,
}

impl Spans {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes walked.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// The next `len` bytes; nothing if that is 0.
    pub fn push(&mut self, len: usize, label: impl Into<String>) {
        if len > 0 {
            self.at = self.at.saturating_add(len);
            let label = label.into();
            self.spans.push(Span { len, label });
        }
    }

    /// Padding up to a multiple of `to`.
    pub fn pad(&mut self, to: usize) {
        let end = self.at.checked_next_multiple_of(to).unwrap_or(self.at);
        self.push(end.saturating_sub(self.at), "padding");
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Span> {
        self.spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_each_other_and_none_is_empty() {
        let mut spans = Spans::new();
        spans.pad(8);
        spans.push(3, "header");
        spans.push(0, "nothing");
        spans.pad(4);
        spans.pad(4);
        spans.push(4, "number");
        assert_eq!(spans.at(), 8);
        let spans = spans.into_vec();
        let labels: Vec<_> = spans.iter().map(|span| span.label.as_str()).collect();
        assert_eq!(labels, ["header", "padding", "number"]);
        assert_eq!(spans.iter().map(|span| span.len).sum::<usize>(), 8);
    }
}
