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
    /// The endpoint of a URL; an error is a sentence.
    pub(crate) endpoint: fn(&str) -> Result<Endpoint, String>,
    /// Refuses a URL that cannot be connected to, where that is wanted, or be listened on; an error is a sentence.
    pub(crate) check: fn(&str, wants_connection: bool) -> Result<(), String>,
    /// What its peers and its URLs may do.
    pub(crate) habits: Habits,
    /// A URL as given, with the port that was chosen.
    pub(crate) bound: fn(&str, &BoundListener) -> String,
    /// Accepts its connections and lands their input.
    pub(crate) accept: fn(Site, &Arc<Shared>, &ReceiverOptions) -> Result<Accepting, ReceiverError>,
    /// Connects to a URL, for ever, and lands the input from there; `None` where only listeners receive.
    pub(crate) subscribe: Option<Subscribe>,
}

/// What the peers and the URLs of a protocol may do.
pub(crate) struct Habits {
    /// Whether a peer may wait for us before it sends anything.
    pub(crate) waits: bool,
    /// Whether several URLs may point to one address.
    pub(crate) has_names: bool,
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
