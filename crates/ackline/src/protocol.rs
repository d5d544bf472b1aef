//! What the rest of the crate knows of a protocol: one entry of the table.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ackline_core::described::Described;
use ackline_link::{BoundListener, Endpoint};
use ackline_spool::Layout;

use crate::landing::{ReceiverError, ReceiverOptions, Shared};

/// A running acceptor of a receiver.
pub(crate) type Accepting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A listener of a receiver, and the URLs that name it: several, where the protocol has names for what stands
/// behind one address.
pub(crate) struct Site {
    pub(crate) listener: BoundListener,
    pub(crate) urls: Vec<String>,
}

/// What the rest of the crate knows of a protocol.
pub(crate) struct Protocol {
    /// The scheme of its URLs, also with `+unix`.
    pub(crate) scheme: &'static str,
    /// Its verbs, events and frames by name.
    pub(crate) description: &'static dyn Described,
    /// How its blocks become event rows again.
    pub(crate) layouts: fn() -> Vec<Arc<dyn Layout>>,
    /// Where a URL of it points to; what is wrong with it as a sentence.
    pub(crate) endpoint: fn(&str) -> Result<Endpoint, String>,
    /// Whether a peer may wait for us before it sends anything.
    pub(crate) waits: bool,
    /// Whether several URLs may point to one address.
    pub(crate) has_names: bool,
    /// A URL as given, with the port that was chosen.
    pub(crate) bound: fn(&str, &BoundListener) -> String,
    /// Accepts its connections and lands what they send.
    pub(crate) accept: fn(Site, &Arc<Shared>, &ReceiverOptions) -> Result<Accepting, ReceiverError>,
    /// Connects to a URL, for ever, and lands what is sent there; `None` where only listeners receive.
    pub(crate) subscribe: Option<Subscribe>,
}

/// Connects to a URL, for ever.
pub(crate) type Subscribe =
    fn(&str, &Arc<Shared>, &ReceiverOptions) -> Result<Accepting, ReceiverError>;
