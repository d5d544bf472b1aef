//! The tests of this crate in one binary. The file beside this folder needs a process of its own.

#[path = "../pki/mod.rs"]
mod pki;
#[path = "../toy/mod.rs"]
mod toy;

mod acceptor;
mod corpus;
mod drive;
mod inline_write;
mod memory;
mod progress;
mod sockets;
mod stall;
mod taken;
mod tls;
mod tls_hostile;
mod tls_identity;
mod tls_stream;
mod tls_token;
mod transports;
