//! A socket whose writing side others may hold beside who reads it.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use socket2::SockRef;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// Pieces of one write: a small message is one or two.
const PIECES: usize = 16;

#[derive(Debug)]
pub(crate) struct Socket {
    reader: Reader,
    writer: Writer,
}

#[derive(Debug)]
enum Reader {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

/// Writes to a socket; clones to the same one. Its direction ends with the last of them.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    half: Arc<Half>,
}

#[derive(Debug)]
enum Half {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

macro_rules! with_half {
    ($self:expr, $stream:ident => $body:expr) => {
        match &*$self.half {
            Half::Tcp(half) => {
                let $stream: &TcpStream = half.as_ref();
                $body
            }
            Half::Unix(half) => {
                let $stream: &UnixStream = half.as_ref();
                $body
            }
        }
    };
}

impl Socket {
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            reader: Reader::Tcp(reader),
            writer: Writer::new(Half::Tcp(writer)),
        }
    }

    pub(crate) fn unix(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            reader: Reader::Unix(reader),
            writer: Writer::new(Half::Unix(writer)),
        }
    }

    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        match &self.reader {
            Reader::Tcp(reader) => Some(reader.as_ref()),
            Reader::Unix(_) => None,
        }
    }

    pub(crate) const fn writer(&self) -> &Writer {
        &self.writer
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().reader {
            Reader::Tcp(reader) => Pin::new(reader).poll_read(context, buf),
            Reader::Unix(reader) => Pin::new(reader).poll_read(context, buf),
        }
    }
}

impl Writer {
    fn new(half: Half) -> Self {
        Self {
            half: Arc::new(half),
        }
    }

    pub(crate) fn poll_write(
        &self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            with_half!(self, stream => ready!(stream.poll_write_ready(context)))?;
            let written = with_half!(self, stream => stream.try_write_vectored(pieces));
            match written {
                // Ready no more: the next look waits.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// Writes what the system takes at once. An error is left for [`poll_write`](Self::poll_write) to find again.
    pub(crate) fn write_now(&self, bytes: &mut impl Buf) {
        while bytes.has_remaining() {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let filled = bytes.chunks_vectored(&mut pieces);
            let pieces = pieces.get(..filled).unwrap_or_default();
            let written = with_half!(self, stream => stream.try_write_vectored(pieces));
            match written {
                Ok(count) if count > 0 => bytes.advance(count),
                _ => return,
            }
        }
    }

    /// Ends this direction.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        let ended = with_half!(self, stream => SockRef::from(stream).shutdown(Shutdown::Write));
        match ended {
            // The peer was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        }
    }
}
