//! The tests of this crate in one binary. The file next to this folder needs a process of its own.

#[cfg(feature = "tls")]
#[path = "../pki/mod.rs"]
mod pki;
#[path = "../toy/mod.rs"]
mod toy;

mod acceptor;
mod corpus;
mod drive;
mod inline_write;
mod memory;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod progress;
mod sockets;
mod stall;
mod taken;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_hostile;
#[cfg(feature = "tls")]
mod tls_identity;
#[cfg(feature = "tls")]
mod tls_stream;
#[cfg(feature = "tls")]
mod tls_token;
mod transports;
