//! A TLS stream: rustls' records over a socket, with errors that name the side at fault.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::TlsStream;

use super::error::named;
use super::token::{self, Token};
use crate::stream::Raw;

/// An established session.
#[derive(Debug)]
pub(crate) struct Tls {
    stream: TlsStream<Raw>,
    peer: Arc<str>,
    /// The first bytes may refuse our token.
    may_be_refusal: bool,
}

impl Tls {
    pub(super) fn new(stream: TlsStream<Raw>, peer: String) -> Self {
        Self {
            stream,
            peer: peer.into(),
            may_be_refusal: false,
        }
    }

    /// Sends our token.
    pub(super) async fn begin(&mut self, token: &Token) -> io::Result<()> {
        self.may_be_refusal = true;
        self.write_all(token.header()).await?;
        self.flush().await
    }

    pub(crate) fn raw(&self) -> &Raw {
        self.stream.get_ref().0
    }

    /// An error as one of ours, logged if it is a TLS error.
    fn explained(&self, error: io::Error) -> io::Error {
        if let Some(error) = named(&error) {
            let (code, peer) = (error.code(), &*self.peer);
            tracing::warn!(code, peer, why = %error, "a TLS session failed");
            return error.into_io();
        }
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let message = "the connection was cut: it ended without the close_notify of TLS";
            return io::Error::new(error.kind(), message);
        }
        error
    }

    /// The reason that writing failed: a peer that refused us said so before it closed.
    fn explained_write(&mut self, context: &mut Context<'_>, error: io::Error) -> io::Error {
        let mut scratch = [0; 1_024];
        for _ in 0..MAX_UNREAD {
            let mut dropped = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(context, &mut dropped) {
                Poll::Ready(Ok(())) if !dropped.filled().is_empty() => {}
                Poll::Ready(Err(other)) if named(&other).is_some() => return self.explained(other),
                _ => break,
            }
        }
        self.explained(error)
    }
}

/// Reads of 1 KiB that look for the alert behind a failed write.
const MAX_UNREAD: usize = 64;

impl AsyncRead for Tls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buf);
        if polled.is_ready() && std::mem::take(&mut self.may_be_refusal) {
            let came = buf.filled().get(before..).unwrap_or_default();
            if let Some(refused) = token::refused(came) {
                return Poll::Ready(Err(self.explained(refused.into_io())));
            }
        }
        polled.map_err(|error| self.explained(error))
    }
}

impl AsyncWrite for Tls {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, buf);
        polled.map_err(|error| self.explained_write(context, error))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, bufs);
        polled.map_err(|error| self.explained_write(context, error))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        polled.map_err(|error| self.explained_write(context, error))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        polled.map_err(|error| self.explained_write(context, error))
    }
}
