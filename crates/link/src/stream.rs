//! One transport: TCP or a Unix socket, plain or under TLS.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::io::poll_read_buf;

use crate::socket::{Socket, Writer};
use crate::tls::{ALERT_BYTES, Tls, TlsError, is_alert};
use crate::units::to_u64;

/// A connected byte stream: TCP, with `TCP_NODELAY` and keepalive probes after 60 s of silence, or a Unix
/// socket; plain or over TLS.
#[derive(Debug)]
pub struct Stream {
    layer: Layer,
}

#[derive(Debug)]
enum Layer {
    Plain(Raw),
    /// Boxed: a session is large, and most streams are moved before they have one.
    Tls(Box<Tls>),
}

impl Stream {
    pub(crate) fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        // 20,000 windowed messages took 0.29 s with it and over 60 s without.
        stream.set_nodelay(true)?;
        // A peer that lost power is found out although nothing is sent to it.
        let probes = TcpKeepalive::new().with_time(KEEPALIVE);
        SockRef::from(&stream).set_tcp_keepalive(&probes)?;
        Ok(Self::from_raw(Raw::new(Socket::tcp(stream))))
    }

    pub(crate) fn from_unix(stream: UnixStream) -> Self {
        Self::from_raw(Raw::new(Socket::unix(stream)))
    }

    pub(crate) const fn from_raw(raw: Raw) -> Self {
        Self {
            layer: Layer::Plain(raw),
        }
    }

    /// Looks, in the first bytes that come, for the alert with which a server of TLS answers plain bytes:
    /// it becomes the error [`TlsError::Plaintext`].
    pub(crate) fn expecting_plain(mut self) -> Self {
        if let Layer::Plain(raw) = &mut self.layer {
            raw.may_be_alert = true;
        }
        self
    }

    /// Whether it carries TLS.
    pub const fn is_tls(&self) -> bool {
        matches!(self.layer, Layer::Tls(_))
    }

    /// The TCP socket beneath, if it is one.
    pub fn tcp(&self) -> Option<&TcpStream> {
        let raw = match &self.layer {
            Layer::Plain(raw) => raw,
            Layer::Tls(tls) => tls.raw(),
        };
        raw.socket.as_tcp()
    }

    /// The id of the user at the other end of a Unix socket, where the system says it.
    pub(crate) fn user(&self) -> Option<u32> {
        let raw = match &self.layer {
            Layer::Plain(raw) => raw,
            Layer::Tls(tls) => tls.raw(),
        };
        raw.socket.user()
    }

    /// A writer to a plain stream beside its driver; none under TLS, where bytes depend on those
    /// written before.
    pub(crate) fn writer(&self) -> Option<Writer> {
        match &self.layer {
            Layer::Plain(raw) => Some(raw.socket.writer().clone()),
            Layer::Tls(_) => None,
        }
    }

    /// The socket below TLS, to ask how many bytes the peer has taken.
    pub(crate) fn socket(&self) -> Writer {
        let raw = match &self.layer {
            Layer::Plain(raw) => raw,
            Layer::Tls(tls) => tls.raw(),
        };
        raw.socket.writer().clone()
    }

    /// Puts bytes back that were read from this stream: they are read again, before all others.
    /// For plain streams: a stream of TLS drops them and answers `false`.
    pub fn unread(&mut self, bytes: Bytes) -> bool {
        let Layer::Plain(raw) = &mut self.layer else {
            return false;
        };
        raw.ahead = if raw.ahead.is_empty() {
            bytes
        } else {
            [&bytes[..], &raw.ahead].concat().into()
        };
        true
    }

    /// The first byte that comes, which is read again; `None` at the peer's end. Cancel-safe.
    ///
    /// # Errors
    /// The transport failed.
    pub async fn first_byte(&mut self) -> io::Result<Option<u8>> {
        let mut first = [0];
        if self.read(&mut first).await? == 0 {
            return Ok(None);
        }
        self.unread(Bytes::copy_from_slice(&first));
        Ok(Some(first[0]))
    }
}

const KEEPALIVE: Duration = Duration::from_secs(60);

/// Bytes read at once beneath TLS, which asks for 4 KiB at a time; through the stack, so that nothing is
/// allocated until bytes are there.
const AHEAD_BYTES: usize = 16 * 1024;

/// The bytes that are read at once while data flows: two records. A session keeps the bytes that are not taken at
/// once, so it may hold as many again besides its own buffers.
const FLOWING_BYTES: usize = 32 * 1024;

/// A socket, and the bytes that were read from it ahead.
#[derive(Debug)]
pub(crate) struct Raw {
    socket: Socket,
    ahead: Bytes,
    is_buffered: bool,
    /// The last read filled all it was offered.
    is_flowing: bool,
    may_be_alert: bool,
    /// Bytes that came from the peer.
    pub(crate) bytes_in: u64,
}

impl Raw {
    const fn new(socket: Socket) -> Self {
        Self {
            socket,
            ahead: Bytes::new(),
            is_buffered: false,
            is_flowing: false,
            may_be_alert: false,
            bytes_in: 0,
        }
    }

    /// The address at the other end, as the socket knows it.
    pub(crate) fn peer(&self) -> String {
        let Some(stream) = self.socket.as_tcp() else {
            return "unix".to_owned();
        };
        stream
            .peer_addr()
            .map_or_else(|_| "gone".to_owned(), |address| address.to_string())
    }

    fn poll_socket(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buf))?;
        let came = &buf.filled()[before..];
        self.bytes_in = self.bytes_in.saturating_add(to_u64(came.len()));
        if std::mem::take(&mut self.may_be_alert) && is_alert(came) {
            let why = "the peer takes TLS: write the URL as protocol+tls://";
            let error = TlsError::Plaintext(why.to_owned());
            let (code, peer) = (error.code(), self.peer());
            tracing::warn!(code, peer, why, "connection refused");
            return Poll::Ready(Err(error.into_io()));
        }
        Poll::Ready(Ok(()))
    }
}

impl Raw {
    fn poll_flowing(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut space = BytesMut::with_capacity(FLOWING_BYTES).limit(FLOWING_BYTES);
        self.is_flowing = false;
        let count = ready!(poll_read_buf(
            Pin::new(&mut self.socket),
            context,
            &mut space
        ))?;
        self.bytes_in = self.bytes_in.saturating_add(to_u64(count));
        self.is_flowing = count == FLOWING_BYTES;
        let mut came = space.into_inner().freeze();
        let count = came.len().min(buf.remaining());
        buf.put_slice(&came[..count]);
        came.advance(count);
        self.ahead = came;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Raw {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let count = this.ahead.len().min(buf.remaining());
            buf.put_slice(&this.ahead[..count]);
            this.ahead.advance(count);
            if this.ahead.is_empty() {
                // An idle connection holds no buffer.
                this.ahead = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        let is_small = this.may_be_alert && buf.remaining() < ALERT_BYTES;
        if !(this.is_buffered || is_small) || buf.remaining() >= AHEAD_BYTES {
            return this.poll_socket(context, buf);
        }
        if this.is_flowing {
            return this.poll_flowing(context, buf);
        }
        let mut scratch = [MaybeUninit::<u8>::uninit(); AHEAD_BYTES];
        let mut whole = ReadBuf::uninit(&mut scratch);
        ready!(this.poll_socket(context, &mut whole))?;
        this.is_flowing = whole.remaining() == 0;
        let count = whole.filled().len().min(buf.remaining());
        let (now, later) = whole.filled().split_at(count);
        buf.put_slice(now);
        this.ahead = Bytes::copy_from_slice(later);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Raw {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.socket
            .writer()
            .poll_write(context, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.writer().poll_write(context, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.writer().shutdown())
    }
}

impl From<Tls> for Stream {
    fn from(tls: Tls) -> Self {
        Self {
            layer: Layer::Tls(Box::new(tls)),
        }
    }
}

/// The socket of a plain stream, to put TLS on; reading is buffered from here on.
impl TryFrom<Stream> for Raw {
    type Error = TlsError;

    fn try_from(stream: Stream) -> Result<Self, TlsError> {
        match stream.layer {
            Layer::Plain(raw) => Ok(Self {
                is_buffered: true,
                ..raw
            }),
            Layer::Tls(_) => Err(TlsError::Options(
                "a stream of TLS cannot carry another one".to_owned(),
            )),
        }
    }
}

macro_rules! with_carrier {
    ($self:ident, $stream:ident => $body:expr) => {
        match &mut $self.get_mut().layer {
            Layer::Plain($stream) => $body,
            Layer::Tls($stream) => $body,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        with_carrier!(self, stream => Pin::new(stream).poll_read(context, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        with_carrier!(self, stream => Pin::new(stream).poll_write(context, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with_carrier!(self, stream => Pin::new(stream).poll_write_vectored(context, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_carrier!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_carrier!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
