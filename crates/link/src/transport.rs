//! The transport of one drive: its output, its input, and the progress of its end.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use ackline_core::SendQueue;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_write_buf;

use crate::inline_write::InlineWrite;
use crate::input::{Input, PROBE_BYTES};
use crate::units::now;

pub(crate) struct Transport<IO> {
    pub(crate) io: IO,
    pub(crate) input: Input,
    pub(crate) out: SendQueue,
    pub(crate) eof: bool,
    /// The check, at the peer's end, whether the peer had taken everything is done.
    pub(crate) is_end_observed: bool,
    /// The last read filled all of the offered space.
    pub(crate) flowing: bool,
    /// Bytes read at once.
    pub(crate) bite: usize,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// When our end was sent.
    pub(crate) shut_at: Option<Instant>,
    side: WriteSide,
}

/// The state of our direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteSide {
    /// All written bytes are flushed.
    Flushed,
    Unflushed,
    /// Our end was sent.
    Shut,
}

/// The transport's operation until the next turn of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Io {
    /// Write the queued bytes.
    Write,
    /// Write, and read until that many bytes are held.
    Read(usize),
    /// Write all, end our direction, then read and drop until the peer's end.
    Drain,
}

impl<IO> Transport<IO> {
    pub(crate) fn new(io: IO, input: Input) -> Self {
        Self {
            io,
            input,
            out: SendQueue::new(),
            eof: false,
            is_end_observed: false,
            flowing: false,
            bite: usize::MAX,
            bytes_in: 0,
            bytes_out: 0,
            shut_at: None,
            side: WriteSide::Flushed,
        }
    }

    /// Whether more may be queued.
    pub(crate) fn can_write(&self) -> bool {
        self.side != WriteSide::Shut && self.out.room() > 0
    }

    /// Whether everything queued is flushed and, when draining, both directions have ended.
    pub(crate) fn has_ended(&self, io: Io) -> bool {
        self.is_flushed() && (io != Io::Drain || (self.side == WriteSide::Shut && self.eof))
    }

    /// Takes over the output that a caller encoded and wrote without the driver.
    pub(crate) fn take_inline(&mut self, inline: &mut InlineWrite) {
        if !inline.left.is_empty() {
            self.out.append(&mut inline.left);
        }
        let written = std::mem::take(&mut inline.written);
        self.bytes_out = self.bytes_out.saturating_add(written);
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.out.is_empty() && self.side != WriteSide::Unflushed
    }

    /// Bytes read and written.
    pub(crate) const fn moved(&self) -> u64 {
        self.bytes_in.saturating_add(self.bytes_out)
    }

    fn count_in(&mut self, count: usize) {
        self.bytes_in = self.bytes_in.saturating_add(crate::units::to_u64(count));
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Transport<IO> {
    /// Ready when bytes have moved.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, what: Io) -> Poll<io::Result<()>> {
        let wrote = self.poll_write(context)?.is_ready();
        let other = match what {
            Io::Read(capacity) => self.poll_read(context, capacity)?,
            // The write made space: the connection may have more output before the end.
            Io::Drain if !wrote => self.poll_drain(context)?,
            Io::Write | Io::Drain => Poll::Pending,
        };
        if wrote || other.is_ready() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Also pending when there is nothing to write.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.out.is_empty() {
            let count = ready!(poll_write_buf(
                Pin::new(&mut self.io),
                context,
                &mut self.out
            ))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.bytes_out = self.bytes_out.saturating_add(crate::units::to_u64(count));
            self.side = WriteSide::Unflushed;
            if self.out.is_empty() {
                // At once, because most transports have nothing to flush; if not, the next poll
                // continues.
                let _ = self.poll_flush(context)?;
            }
            return Poll::Ready(Ok(()));
        }
        if self.side != WriteSide::Unflushed {
            return Poll::Pending;
        }
        self.poll_flush(context)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        self.side = WriteSide::Flushed;
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, context: &mut Context<'_>, capacity: usize) -> Poll<io::Result<()>> {
        if self.eof {
            return Poll::Pending;
        }
        let filled = ready!(
            self.input
                .poll_fill(&mut self.io, context, capacity, self.bite)
        )?;
        self.eof = filled.count == 0;
        self.flowing = filled.whole && !self.eof;
        self.count_in(filled.count);
        Poll::Ready(Ok(()))
    }

    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_flushed() {
            return Poll::Pending;
        }
        if self.side != WriteSide::Shut {
            ready!(Pin::new(&mut self.io).poll_shutdown(context))?;
            self.side = WriteSide::Shut;
            self.shut_at = Some(now());
            // The wait for the peer's end begins here: its deadline must be set.
            return Poll::Ready(Ok(()));
        }
        if self.eof {
            return Poll::Ready(Ok(()));
        }
        let mut scratch = [MaybeUninit::<u8>::uninit(); PROBE_BYTES];
        let mut dropped = ReadBuf::uninit(&mut scratch);
        match ready!(Pin::new(&mut self.io).poll_read(context, &mut dropped)) {
            // Received bytes are dropped anyway: a TLS end without `close_notify` is an end here.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            other => other?,
        }
        let count = dropped.filled().len();
        self.eof = count == 0;
        self.count_in(count);
        Poll::Ready(Ok(()))
    }
}
