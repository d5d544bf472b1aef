//! The tests of this crate in one binary. The file beside this folder needs a process of its own.

#[path = "../pki/mod.rs"]
mod pki;
#[path = "../toy/mod.rs"]
mod toy;

mod beside;
mod corpus;
mod drive;
mod front;
mod memory;
mod patience;
mod progress;
mod sockets;
mod taken;
mod tls;
mod tls_hostile;
mod tls_identity;
mod tls_stream;
mod tls_token;
mod transports;
