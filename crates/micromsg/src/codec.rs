//! The formats of payloads that extensions such as `json` stand for.
//!
//! The crate does not look into payloads: an application gives a codec for each extension that it knows, and those of a
//! connection follow from what both ends agreed on.

use crate::text::Extension;

/// The format of payloads that an extension stands for. `V` is the type of values, `E` that of errors.
#[derive(Debug)]
pub struct Codec<V, E> {
    /// Makes a payload of a value.
    pub encode: fn(&V) -> Result<Vec<u8>, E>,
    /// Makes a value of a payload.
    pub decode: fn(&[u8]) -> Result<V, E>,
}

impl<V, E> Clone for Codec<V, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V, E> Copy for Codec<V, E> {}

/// The codecs of an application, by the extensions that stand for them.
#[derive(Debug)]
pub struct Codecs<V, E> {
    known: Vec<(String, Codec<V, E>)>,
}

impl<V, E> Default for Codecs<V, E> {
    fn default() -> Self {
        Self { known: Vec::new() }
    }
}

impl<V, E> Codecs<V, E> {
    /// The same with one more codec. A second one for an extension replaces the first.
    #[must_use]
    pub fn with(mut self, extension: impl Into<String>, codec: Codec<V, E>) -> Self {
        let extension = extension.into();
        self.known.retain(|(known, _)| *known != extension);
        self.known.push((extension, codec));
        self
    }

    /// The codec of a connection with these extensions, of which the first one with a codec counts; `None`: none has one.
    pub fn agreed(&self, extensions: &[Extension]) -> Option<&Codec<V, E>> {
        let of = |one: &Extension| {
            let mut known = self.known.iter();
            known.find(|(known, _)| *known == one.name)
        };
        extensions.iter().find_map(of).map(|(_, codec)| codec)
    }
}
