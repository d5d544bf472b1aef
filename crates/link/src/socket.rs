//! A socket whose writing side can be shared with the owner of its reading side.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// Pieces of one write: a small message is one or two.
const PIECES: usize = 16;

/// How much of the sent bytes the peer has taken, as far as the system knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// There is no transport, or one that cannot be asked.
    Unknown,
    /// The peer's system has taken every byte that was written.
    All,
    /// So many bytes are not taken yet.
    Waits(u64),
    /// The peer's end has come, or a reset; it may not have been read yet.
    Ended,
}

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

/// Writes to a socket; clones share it. Dropping the last one ends its direction.
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

    /// The id of the user who connected a Unix socket, if the system says it.
    pub(crate) fn user(&self) -> Option<u32> {
        match &self.reader {
            Reader::Tcp(_) => None,
            Reader::Unix(reader) => {
                let stream: &UnixStream = reader.as_ref();
                stream.peer_cred().ok().map(|peer| peer.uid())
            }
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
                // No longer ready: the next check waits.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// Writes as much as the system takes at once. An error is left for
    /// [`poll_write`](Self::poll_write) to find again.
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

    /// How much of the written bytes the peer has taken.
    pub(crate) fn taking(&self) -> Taking {
        let come = with_half!(self, stream => come(stream));
        let left = with_half!(self, stream => untaken(stream));
        match (come, left) {
            (Ok(come), _) if !come.is_empty() => Taking::Ended,
            (Ok(_), Ok(0)) => Taking::All,
            (Ok(_), Ok(left)) => Taking::Waits(left),
            _ => Taking::Unknown,
        }
    }

    /// Bytes that have come and are not read.
    pub(crate) fn unread(&self) -> Option<u64> {
        with_half!(self, stream => rustix::io::ioctl_fionread(stream)).ok()
    }

    /// Whether the peer, whose end has come, had taken every byte that was written: none of them
    /// was answered with a reset.
    pub(crate) fn is_taken(&self) -> bool {
        // In this order: a reset in between is seen.
        let left = with_half!(self, stream => untaken(stream));
        let come = with_half!(self, stream => come(stream));
        let mut reset = PollFlags::ERR;
        if matches!(*self.half, Half::Tcp(_)) {
            // TCP reports a hangup when both directions have ended, or after a reset.
            reset |= PollFlags::HUP;
        }
        left.is_ok_and(|left| left == 0) && come.is_ok_and(|come| !come.intersects(reset))
    }

    /// Ends this direction.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        let ended = with_half!(self, stream => SockRef::from(stream).shutdown(Shutdown::Write));
        match ended {
            // The peer closed first.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        }
    }
}

/// Returns whether the peer's end or an error has come.
fn come(socket: &impl AsFd) -> io::Result<PollFlags> {
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut looked = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut looked, Some(&Timespec::default()))?;
    let [looked] = looked;
    Ok(looked.revents() & ends)
}

/// The request for the number of bytes written and not taken, `SIOCOUTQ`.
#[expect(clippy::cast_possible_truncation, reason = "requests have 32 bits")]
const OUTPUT_LEFT: rustix::ioctl::Opcode = libc::TIOCOUTQ as rustix::ioctl::Opcode;

/// Bytes written that the peer's system has not taken.
#[expect(unsafe_code, reason = "no library asks for this number without it")]
fn untaken(socket: &impl AsFd) -> io::Result<u64> {
    use rustix::ioctl::{Getter, ioctl};
    // SAFETY: the request writes one integer, which `Getter` holds, and nothing else.
    let asked = unsafe { Getter::<OUTPUT_LEFT, libc::c_int>::new() };
    // SAFETY: the same.
    let left = unsafe { ioctl(socket, asked) }?;
    Ok(u64::try_from(left).unwrap_or_default())
}
