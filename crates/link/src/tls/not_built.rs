//! TLS in a build without it: the same names, of which there is no value.

use std::convert::Infallible;
use std::future::Ready;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{TlsError, TlsOptions};
use crate::stream::Raw;
use crate::{PeerInfo, Stream};

/// A client of TLS: none can be made, because the feature `tls` is off.
#[derive(Debug)]
pub struct Client(Infallible);

impl Client {
    /// Refuses.
    ///
    /// # Errors
    /// Always [`TlsError::NotBuilt`].
    pub const fn new(_options: &TlsOptions) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// There is no client that could connect.
    pub fn connect(
        &self,
        _stream: Stream,
        _host: &str,
    ) -> Ready<Result<(Stream, Session), TlsError>> {
        match self.0 {}
    }
}

/// A server of TLS: none can be made, because the feature `tls` is off.
#[derive(Debug)]
pub struct Server(Infallible);

impl Server {
    /// Refuses.
    ///
    /// # Errors
    /// Always [`TlsError::NotBuilt`].
    pub const fn new(_options: &TlsOptions) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// There is no server that could ask for a proof.
    pub(crate) const fn needs_proof(&self) -> bool {
        match self.0 {}
    }

    /// There is no server that has a deadline.
    #[must_use]
    pub const fn within(self, _timeout: Duration) -> Self {
        match self.0 {}
    }

    /// There is no server that could accept.
    pub fn accept(&self, _stream: Stream) -> Ready<Result<(Stream, Session), TlsError>> {
        match self.0 {}
    }
}

/// A session of TLS: there is none, because the feature `tls` is off.
#[derive(Debug)]
pub struct Session(Infallible);

impl PeerInfo {
    /// There is no session that could say anything of its peer.
    #[must_use]
    pub fn with_session(self, session: &Session) -> Self {
        match session.0 {}
    }
}

/// A stream of TLS: there is none.
#[derive(Debug)]
pub(crate) struct Tls(Infallible);

impl Tls {
    pub(crate) fn raw(&self) -> &Raw {
        match self.0 {}
    }
}

impl AsyncRead for Tls {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        _buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}

impl AsyncWrite for Tls {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        _buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }
}
