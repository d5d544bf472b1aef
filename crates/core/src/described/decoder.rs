//! The frames of any protocol, one after the other.

use bytes::BytesMut;

use super::args::Misuse;
use super::machine::Failure;
use super::shape::quoted;
use crate::{Inspect, Inspected, ProtocolError};

/// A reader of the frames of one direction, or of one text.
pub trait Decoder: Send {
    /// Takes the frame at the front of `input`, which stands at `offset` of the direction; `None` where bytes are
    /// missing.
    ///
    /// # Errors
    /// No continuation of these bytes is sound.
    fn next(&mut self, input: &mut BytesMut, offset: u64) -> Result<Option<Inspected>, Failure>;

    /// Whether the whole input, which may be empty, is one text: [`next`](Self::next) is called once, at its end.
    fn is_whole(&self) -> bool {
        false
    }
}

/// The decoder that an [`Inspect`] is.
pub struct Inspecting<I: Inspect> {
    /// The reader of the frames.
    pub inspector: I,
    /// Changes an error before it is told: captures have one limit, which is named in place of the protocol's.
    pub told: fn(I::Kind) -> I::Kind,
}

impl<I: Inspect> Inspecting<I> {
    /// A decoder whose errors are told as they are.
    pub fn new(inspector: I) -> Self {
        Self {
            inspector,
            told: |kind| kind,
        }
    }
}

impl<I: Inspect + Send> Decoder for Inspecting<I> {
    fn next(&mut self, input: &mut BytesMut, offset: u64) -> Result<Option<Inspected>, Failure> {
        let inspected = self.inspector.inspect(input);
        inspected.map_err(|kind| {
            let kind = (self.told)(kind);
            Failure::from(&ProtocolError { kind, offset })
        })
    }

    fn is_whole(&self) -> bool {
        self.inspector.is_whole()
    }
}

/// The side that a sender's name stands for; the first one if it has none.
///
/// # Errors
/// No side has that name.
pub fn side<T>(sender: Option<&str>, sides: [(&str, T); 2]) -> Result<T, Misuse> {
    let [(first, one), (second, other)] = sides;
    match sender {
        None => Ok(one),
        Some(name) if name == first => Ok(one),
        Some(name) if name == second => Ok(other),
        Some(name) => {
            let message = format!("sender is {}, not {name:?}", quoted(&[first, second]));
            Err(Misuse::of("sender", message))
        }
    }
}
