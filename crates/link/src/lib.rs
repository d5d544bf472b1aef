//! The one driver between a protocol and a transport.
//!
//! A [`Link`] owns a [`Connection`](ackline_core::Connection) behind a short lock: the application
//! calls into it, waits on it, and [`Link::drive`] moves bytes between it and any `AsyncRead +
//! AsyncWrite`. This crate decides when bytes are read and written, how much memory all links of a
//! process may hold ([`Budget`]), how TCP and Unix sockets are opened and TLS on them ([`tls`]),
//! and which clients may connect ([`Acceptor`]). It knows no protocol.

#![deny(unsafe_code)]

mod acceptor;
mod address;
mod answers;
mod budget;
mod buffer_pool;
mod connect;
mod descriptors;
mod drive;
mod escape;
#[doc(hidden)]
pub mod fuzzing;
mod inherited;
mod inline_write;
mod input;
mod ledger;
mod link;
mod listen;
mod listen_spec;
mod peer;
mod progress;
mod proxy;
mod rate;
mod reconnect;
mod socket;
mod stall;
mod stream;
mod time_slice;
pub mod tls;
mod transport;
mod units;
mod watched;

pub use ackline_core::{AnswerUsage, End, SlowAnswers};

pub use acceptor::{
    Acceptor, AcceptorOptions, AcceptorStats, Admitted, Arrived, Networks, PerAddress, Refused,
    Slot, TurnedAway,
};
pub use address::{Address, AddressError, Endpoint, percent_decoded};
pub use answers::{AnswerBudget, AnswerShare};
pub use budget::{Budget, FREE_BYTES, Undecided};
pub use connect::connect;
pub use descriptors::reserve as reserved_descriptors;
pub use drive::{CLOSE_DEADLINE, Driven, ERROR_FLUSH_DEADLINE};
pub use inherited::unused_sockets;
pub use link::{Link, LinkStats, WeakLink};
pub use listen::{Listener, Peer};
pub use listen_spec::{BoundListener, ListenSpec, ListenSpecError};
pub use peer::PeerInfo;
pub use progress::Fairness;
pub use rate::RateLimit;
pub use reconnect::{Backoff, Jitter};
pub use socket::Taking;
pub use stream::Stream;
pub use watched::Watched;
