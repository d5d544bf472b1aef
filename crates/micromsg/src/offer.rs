//! The part of an end in the negotiation, as an application sets it.

use ackline_core::options::{OptionError, count, text};

use crate::text::{Extension, read_extensions, write_extensions};
use crate::{Config, Kind};

/// The extensions that this project has (REQ-MM-7); of `json`, `xml` and `protobuf` it has the names: the payload is the
/// application's.
pub const BUILT_IN: [&str; 7] = [
    "ack",
    "batch-ack",
    "pub-sub",
    "json",
    "xml",
    "protobuf",
    "dotnet",
];

ackline_core::options! {
    /// The name and the extensions of an end in the handshake.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Offer {
        options {
            /// The name that this end gives itself in the handshake.
            name: Option<String> = None, text("at most 255 characters of ASCII"), CONNECT | LISTEN;
            /// Extensions without which this end does not work, such as `batch-ack;json`: a peer that lacks one is refused.
            required_extensions: Option<String> = None, text("a text with a list of extensions, such as batch-ack;json"), CONNECT | LISTEN;
            /// Extensions that this end suggests, such as `json;x-trace:level=2`, in place of `batch-ack` with the window and
            /// `pub-sub`. Whatever a peer suggests of ack, batch-ack, pub-sub, json, xml, protobuf and dotnet is accepted.
            optional_extensions: Option<String> = None, text("a text with a list of extensions, such as batch-ack;json"), CONNECT | LISTEN;
            /// Messages that a sender may have unacknowledged, where this end suggests `batch-ack` by default; the smaller
            /// number of both ends holds.
            window: u64 = 1_000, count(1..=65_534), CONNECT | LISTEN;
        }
    }
}

impl Offer {
    /// Sets the parts of the handshake in a connection's configuration.
    ///
    /// # Errors
    /// A list cannot be read or is too long, or the name is not ASCII or too long.
    pub fn apply(&self, config: &mut Config) -> Result<(), OptionError> {
        let identity = self.name.clone().unwrap_or_default();
        if !identity.is_ascii() || identity.len() > 255 {
            return Err(OptionError::new(
                "name",
                "is at most 255 characters of ASCII",
            ));
        }
        config.terms.identity = identity;
        config.terms.required = list("required_extensions", self.required_extensions.as_deref())?;
        config.terms.optional = match &self.optional_extensions {
            Some(text) => list("optional_extensions", Some(text))?,
            None => self.suggested(),
        };
        let is_required = |one: &Extension| {
            config
                .terms
                .required
                .iter()
                .any(|other| other.name == one.name)
        };
        config.terms.optional.retain(|one| !is_required(one));
        config.terms.supported = BUILT_IN.map(str::to_owned).to_vec();
        Ok(())
    }

    fn suggested(&self) -> Vec<Extension> {
        let window = ("max-count".to_owned(), self.window.to_string());
        let named = |name: &str, properties| Extension {
            name: name.to_owned(),
            properties,
        };
        vec![
            named("batch-ack", vec![window]),
            named("pub-sub", Vec::new()),
        ]
    }
}

fn list(option: &str, text: Option<&str>) -> Result<Vec<Extension>, OptionError> {
    let wrong = |kind: &Kind| OptionError::new(option, kind.to_string());
    let read = read_extensions(text.unwrap_or_default().as_bytes()).map_err(|kind| wrong(&kind))?;
    if write_extensions(&read).len() > 65_535 {
        return Err(OptionError::new(option, "is longer than 65,535 bytes"));
    }
    crate::negotiation::check_own(&read.iter().collect::<Vec<_>>()).map_err(|kind| wrong(&kind))?;
    Ok(read)
}
