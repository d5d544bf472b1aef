//! The interface of a protocol to the rest of the crate: one entry of the table.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ackline_core::described::Described;
use ackline_core::options::Options;
use ackline_link::{BoundListener, Endpoint};
use ackline_spool::Layout;

use crate::landing::{ReceiverError, ReceiverOptions, Shared};

/// A running acceptor of a receiver.
pub(crate) type Accepting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A listener of a receiver, and the URLs that name it, without the options of the protocol: several, where the
/// protocol has names for the services behind one address.
pub(crate) struct Site {
    pub(crate) listener: BoundListener,
    pub(crate) urls: Vec<String>,
}

/// The interface of a protocol to the rest of the crate.
pub(crate) struct Protocol {
    /// Its name in texts.
    pub(crate) title: &'static str,
    /// Its verbs, events and frames by name.
    pub(crate) description: &'static dyn Described,
    /// How its blocks become event rows again.
    pub(crate) layouts: fn() -> Vec<Arc<dyn Layout>>,
    /// Its own options of a receiver, which a URL may set too.
    pub(crate) options: fn(&mut ReceiverOptions) -> &mut dyn Options,
    /// The options of its `connect`, with their defaults.
    pub(crate) connect: fn() -> Box<dyn Options>,
    /// The options of its `listen`, with their defaults.
    pub(crate) listen: fn() -> Box<dyn Options>,
    /// The endpoint of a URL that is to be used so; an error is a sentence.
    pub(crate) endpoint: fn(&str, Way) -> Result<Endpoint, String>,
    /// Whether a peer may wait for us before it sends anything.
    pub(crate) waits: bool,
    /// Whether several URLs may point to one address.
    pub(crate) has_names: bool,
    /// A URL as given, with the port that was chosen.
    pub(crate) bound: fn(&str, &BoundListener) -> String,
    /// Accepts its connections and lands their input.
    pub(crate) accept: fn(Site, &Arc<Shared>, &ReceiverOptions) -> Result<Accepting, ReceiverError>,
    /// Connects to a URL, for ever, and lands the input from there; `None` where only listeners receive.
    pub(crate) subscribe: Option<Subscribe>,
}

/// The use of a URL by a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It listens there.
    Listen,
    /// It connects to it.
    Connect,
}

impl Protocol {
    /// The scheme of its URLs, also with `+unix`.
    pub(crate) fn scheme(&self) -> &'static str {
        self.description.name()
    }
}

/// Connects to a URL, for ever.
pub(crate) type Subscribe =
    fn(&str, &Arc<Shared>, &ReceiverOptions) -> Result<Accepting, ReceiverError>;
