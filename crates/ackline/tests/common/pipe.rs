//! Receivers behind in-memory pipes: what they do with a connection is a script, and what they kept is known.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses some of it; a failed unwrap is a failed test

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ackline::lumberjack::Dial;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

/// Bytes that a pipe holds.
const PIPE: usize = 16 * 1024;

/// What a receiver does with one connection.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Acknowledges each window when it is complete.
    Ack,
    /// After this time.
    Late(Duration),
    /// First a part of each window, then all of it.
    Parts,
    /// A part of the first window, then the end of the connection.
    PartThenEnd,
    /// The number of events instead of the last sequence number.
    Count,
    /// This many keepalives before each acknowledgement.
    Storm(usize),
    /// Keepalives each second and never an acknowledgement.
    KeepaliveOnly,
    /// Reads and answers nothing.
    BlackHole,
    /// Reads nothing.
    Deaf,
    /// Reads a few bytes at a time, with pauses.
    Slow,
    /// Ends the connection after this many bytes.
    CutAfter(usize),
    /// Resets it after this many bytes.
    ResetAfter(usize),
    /// Acknowledges this many windows, then ends the connection.
    Windows(usize),
    /// Answers each window with these bytes.
    Answer(Vec<u8>),
}

/// What has happened at one receiver.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The events of whole windows, in order, with their connection.
    pub(crate) events: Vec<(usize, u64)>,
    /// Events in each window.
    pub(crate) windows: Vec<usize>,
    pub(crate) connections: usize,
    pub(crate) attempts: usize,
}

impl Kept {
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.events.iter().map(|(_, number)| *number).collect()
    }
}

/// Receivers by their place.
pub(crate) struct Net {
    pub(crate) hosts: Vec<Arc<Host>>,
}

/// One receiver.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) kept: Mutex<Kept>,
    /// What it does with its next connections; `otherwise` comes after them.
    script: Mutex<VecDeque<Act>>,
    otherwise: Mutex<Option<Act>>,
    /// It refuses connections.
    pub(crate) down: AtomicBool,
    /// Ends what stands; a new one for each time it went down.
    open: Mutex<Vec<Arc<AtomicBool>>>,
}

impl Host {
    pub(crate) fn new(script: impl IntoIterator<Item = Act>, otherwise: Act) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.into_iter().collect()),
            otherwise: Mutex::new(Some(otherwise)),
            ..Self::default()
        })
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Refuses from now on and cuts what stands.
    pub(crate) fn go_down(&self) {
        self.down.store(true, Ordering::Relaxed);
        for cut in self.open.lock().unwrap().drain(..) {
            cut.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn come_up(&self) {
        self.down.store(false, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, act: Act) {
        *self.otherwise.lock().unwrap() = Some(act);
    }

    fn next_act(&self) -> Act {
        let scripted = self.script.lock().unwrap().pop_front();
        scripted.unwrap_or_else(|| self.otherwise.lock().unwrap().clone().unwrap())
    }

    fn serve(self: &Arc<Self>) -> Pipe {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let reset = Arc::new(AtomicBool::new(false));
        self.open.lock().unwrap().push(Arc::clone(&reset));
        let connection = {
            let mut kept = self.kept.lock().unwrap();
            kept.connections += 1;
            kept.connections
        };
        let peer = Peer {
            host: Arc::clone(self),
            io: theirs,
            connection,
            reset: Arc::clone(&reset),
            read: 0,
        };
        let act = self.next_act();
        tokio::spawn(peer.run(act));
        Pipe { io: ours, reset }
    }
}

impl Dial for Net {
    type Io = Pipe;

    async fn dial(&self, host: usize) -> io::Result<Pipe> {
        let host = &self.hosts[host];
        host.kept.lock().unwrap().attempts += 1;
        if host.is_down() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(host.serve())
    }
}

/// A pipe that can be reset.
pub(crate) struct Pipe {
    io: DuplexStream,
    reset: Arc<AtomicBool>,
}

impl Pipe {
    fn check(&self) -> io::Result<()> {
        if self.reset.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let read = Pin::new(&mut self.io).poll_read(context, buf);
        self.check()?;
        read
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.io).poll_write(context, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// The receiver's end of one connection.
struct Peer {
    host: Arc<Host>,
    io: DuplexStream,
    connection: usize,
    reset: Arc<AtomicBool>,
    read: usize,
}

/// The end of the connection.
struct Over;

impl Peer {
    async fn run(mut self, act: Act) {
        let _ = self.play(&act).await;
        if matches!(act, Act::ResetAfter(_)) {
            self.reset.store(true, Ordering::Relaxed);
        }
    }

    async fn play(&mut self, act: &Act) -> Result<(), Over> {
        if matches!(act, Act::Deaf) {
            self.until_cut().await;
            return Err(Over);
        }
        let mut windows = 0;
        loop {
            let events = self.window(act).await?;
            windows += 1;
            self.answer(act, events, windows).await?;
        }
    }

    async fn answer(&mut self, act: &Act, events: u32, windows: usize) -> Result<(), Over> {
        match act {
            Act::Late(time) => tokio::time::sleep(*time).await,
            Act::Parts => {
                self.ack(events / 2).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Act::PartThenEnd => {
                self.ack(events / 2).await?;
                return Err(Over);
            }
            Act::Storm(count) => {
                for _ in 0..*count {
                    self.ack(0).await?;
                }
            }
            Act::KeepaliveOnly => loop {
                self.ack(0).await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            },
            Act::BlackHole => return Ok(()),
            Act::Answer(bytes) => return self.write(bytes).await,
            _ => {}
        }
        self.ack(events).await?;
        match act {
            Act::Windows(most) if windows >= *most => Err(Over),
            _ => Ok(()),
        }
    }

    async fn until_cut(&self) {
        while !self.reset.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn ack(&mut self, number: u32) -> Result<(), Over> {
        self.write(&[&b"2A"[..], &number.to_be_bytes()].concat())
            .await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Over> {
        if self.reset.load(Ordering::Relaxed) {
            return Err(Over);
        }
        self.io.write_all(bytes).await.map_err(|_| Over)
    }

    /// A whole window of plain JSON numbers; answers how many.
    async fn window(&mut self, act: &Act) -> Result<u32, Over> {
        let head = self.take(6, act).await?;
        assert_eq!(head[..2], *b"2W", "a window frame comes first");
        let count = number(&head[2..6]);
        let mut events = Vec::new();
        for sequence in 1..=count {
            let head = self.take(10, act).await?;
            assert_eq!((&head[..2], number(&head[2..6])), (&b"2J"[..], sequence));
            let payload = self.take(number(&head[6..10]) as usize, act).await?;
            let text = std::str::from_utf8(&payload).unwrap().trim();
            events.push((self.connection, text.parse().unwrap()));
        }
        let mut kept = self.host.kept.lock().unwrap();
        kept.windows.push(events.len());
        kept.events.extend(events);
        Ok(count)
    }

    async fn take(&mut self, count: usize, act: &Act) -> Result<Vec<u8>, Over> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            let step = match act {
                Act::CutAfter(most) | Act::ResetAfter(most) => most.saturating_sub(self.read),
                Act::Slow => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    512
                }
                _ => usize::MAX,
            };
            if step == 0 || self.reset.load(Ordering::Relaxed) {
                return Err(Over);
            }
            let to = filled + step.min(count - filled);
            let read = self
                .io
                .read(&mut bytes[filled..to])
                .await
                .map_err(|_| Over)?;
            if read == 0 {
                return Err(Over);
            }
            filled += read;
            self.read += read;
        }
        Ok(bytes)
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}
