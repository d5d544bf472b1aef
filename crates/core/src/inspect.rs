//! Frames as tools show them: their members by name, and the purpose of every byte.

use bytes::{Bytes, BytesMut};

use crate::{ErrorKind, Value};

/// One direction of a recorded connection, read frame by frame. Its only state is for finding the ends of frames.
pub trait Inspect {
    /// The protocol's own error kinds.
    type Kind: ErrorKind;

    /// Takes the frame at the front of `input`; `None` where bytes are missing, and then takes nothing.
    ///
    /// # Errors
    /// No continuation of these bytes is a sound frame. Nothing behind them can be read.
    fn inspect(&mut self, input: &mut BytesMut) -> Result<Option<Inspected>, Self::Kind>;

    /// Whether the whole input, which may be empty, is one text: [`inspect`](Self::inspect) is called once, at its end,
    /// and takes all of it.
    fn is_whole(&self) -> bool {
        false
    }
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Its name, in the protocol's words.
    pub name: &'static str,
    /// All of its bytes, as they came.
    pub bytes: Bytes,
    /// Its members by name.
    pub members: Vec<(&'static str, Value)>,
    /// The purposes of its bytes, from the first one on and without a gap.
    pub spans: Vec<Span>,
}

/// Some bytes of a frame with one purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The number of bytes, at least one.
    pub len: usize,
    /// Their purpose.
    pub label: String,
}

/// The spans of a frame, as they are walked.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    at: usize,
    spans: Vec<Span>,
}

impl Spans {
    /// Begins without spans.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of bytes walked.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Adds a span of the next `len` bytes, unless that is 0.
    pub fn push(&mut self, len: usize, label: impl Into<String>) {
        if len > 0 {
            self.at = self.at.saturating_add(len);
            let label = label.into();
            self.spans.push(Span { len, label });
        }
    }

    /// Adds padding up to a multiple of `to`.
    pub fn pad(&mut self, to: usize) {
        let end = self.at.checked_next_multiple_of(to).unwrap_or(self.at);
        self.push(end.saturating_sub(self.at), "padding");
    }

    /// Returns all spans.
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
