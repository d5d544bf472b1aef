//! Receivers behind in-memory pipes: what they do with a connection is a script, and what they kept is known.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses some of it; a failed unwrap is a failed test

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ackline::lumberjack::{Batch, Dial, Sender, SenderOptions};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::Notify;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Option<Duration> = Some(Duration::from_secs(3600));
/// Bytes that a pipe holds.
const PIPE: usize = 16 * 1024;

/// Options of a sender whose waits are the same each time, with receipts and plain frames.
pub(crate) fn options() -> SenderOptions {
    let mut options = SenderOptions {
        seed: Some(1),
        receipts: 100_000,
        ..SenderOptions::default()
    };
    options.writer.compression = None;
    options
}

/// A sender to these receivers.
pub(crate) fn sender(hosts: &[&Arc<Host>], options: SenderOptions) -> Sender {
    let names: Vec<Arc<str>> = (0..hosts.len())
        .map(|at| format!("host{at}").into())
        .collect();
    let hosts = hosts.iter().map(|host| Arc::clone(host)).collect();
    Sender::over(Net { hosts }, &names, options).unwrap()
}

/// Events that are their own numbers.
pub(crate) fn events(range: std::ops::RangeInclusive<u64>) -> Batch {
    Batch::json(range.map(|n| Bytes::from(n.to_string())).collect()).unwrap()
}

/// A receiver's behaviour towards one connection.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Acknowledges each window when it is complete.
    Ack,
    /// After this time.
    Late(Duration),
    /// Acknowledges each by how many events it holds, whatever their numbers.
    Count,
    /// First a part of each window, then all of it.
    Parts,
    /// A part of the first window, then the end of the connection.
    PartThenEnd,
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
    /// Ends it after this many bytes of its answers.
    CutAnswersAfter(usize),
    /// Resets it after this many bytes.
    ResetAfter(usize),
    /// Acknowledges this many windows, then ends the connection.
    Windows(usize),
    /// Answers each window with these bytes.
    Answer(Vec<u8>),
}

/// The history of one receiver.
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

/// Every way in which a receiver can fail or dawdle, and the sound one.
pub(crate) fn ways() -> Vec<Act> {
    vec![
        Act::Ack,
        Act::Count,
        Act::Late(Duration::from_millis(500)),
        Act::Parts,
        Act::PartThenEnd,
        Act::Storm(20),
        Act::KeepaliveOnly,
        Act::BlackHole,
        Act::Deaf,
        Act::Slow,
        Act::CutAfter(700),
        Act::ResetAfter(900),
        Act::CutAnswersAfter(9),
        Act::Windows(2),
    ]
}

/// Receivers by their place.
pub(crate) struct Net {
    pub(crate) hosts: Vec<Arc<Host>>,
}

/// One receiver.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) kept: Mutex<Kept>,
    /// Its behaviour towards its next connections; `otherwise` is for those after them.
    script: Mutex<VecDeque<Act>>,
    otherwise: Mutex<Option<Act>>,
    /// It refuses connections.
    pub(crate) down: AtomicBool,
    any_sequence: AtomicBool,
    /// Ends what stands.
    open: Mutex<Vec<Arc<Cut>>>,
}

/// The end of one connection from the outside.
#[derive(Default)]
pub(crate) struct Cut {
    is_reset: AtomicBool,
    told: Notify,
}

impl Cut {
    fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
        self.told.notify_one();
    }
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

    /// Refuses from now on and resets what stands.
    pub(crate) fn go_down(&self) {
        self.down.store(true, Ordering::Relaxed);
        for cut in self.open.lock().unwrap().drain(..) {
            cut.reset();
        }
    }

    pub(crate) fn come_up(&self) {
        self.down.store(false, Ordering::Relaxed);
    }

    /// Windows need not be numbered from 1.
    pub(crate) fn expect_any_sequence(&self) {
        self.any_sequence.store(true, Ordering::Relaxed);
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
        let cut = self.attend(theirs);
        Pipe { io: ours, cut }
    }

    /// Plays its next act on a connection.
    pub(crate) fn attend<Io>(self: &Arc<Self>, io: Io) -> Arc<Cut>
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let cut = Arc::new(Cut::default());
        {
            let mut open = self.open.lock().unwrap();
            open.retain(|cut| Arc::strong_count(cut) > 1);
            open.push(Arc::clone(&cut));
        }
        let connection = {
            let mut kept = self.kept.lock().unwrap();
            kept.connections += 1;
            kept.connections
        };
        let peer = Peer {
            host: Arc::clone(self),
            io,
            connection,
            read: 0,
            written: 0,
        };
        tokio::spawn(peer.run(self.next_act(), Arc::clone(&cut)));
        cut
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
    cut: Arc<Cut>,
}

impl Pipe {
    fn check(&self) -> io::Result<()> {
        if self.cut.is_reset.load(Ordering::Relaxed) {
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
struct Peer<Io> {
    host: Arc<Host>,
    io: Io,
    connection: usize,
    read: usize,
    written: usize,
}

/// A window that has been read: how many events, and the number of the last one.
#[derive(Clone, Copy)]
struct Window {
    events: u32,
    last: u32,
}

/// The end of the connection.
struct Over;

impl<Io: AsyncRead + AsyncWrite + Unpin> Peer<Io> {
    async fn run(mut self, act: Act, cut: Arc<Cut>) {
        tokio::select! {
            _ = self.play(&act) => {}
            () = cut.told.notified() => {}
        }
        if matches!(act, Act::ResetAfter(_)) {
            cut.is_reset.store(true, Ordering::Relaxed);
        }
    }

    async fn play(&mut self, act: &Act) -> Result<(), Over> {
        if matches!(act, Act::Deaf) {
            std::future::pending::<()>().await;
        }
        let mut windows = 0;
        loop {
            let window = self.window(act).await?;
            windows += 1;
            self.answer(act, window, windows).await?;
        }
    }

    async fn answer(
        &mut self,
        act: &Act,
        Window { events, last }: Window,
        windows: usize,
    ) -> Result<(), Over> {
        let part = match events / 2 {
            0 => 0,
            half => last.wrapping_sub(events - half),
        };
        match act {
            Act::Count => return self.ack(events, act).await,
            Act::Late(time) => tokio::time::sleep(*time).await,
            Act::Parts => {
                self.ack(part, act).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Act::PartThenEnd => {
                self.ack(part, act).await?;
                return Err(Over);
            }
            Act::Storm(count) => {
                for _ in 0..*count {
                    self.ack(0, act).await?;
                }
            }
            Act::KeepaliveOnly => loop {
                self.ack(0, act).await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            },
            Act::BlackHole => return Ok(()),
            Act::Answer(bytes) => return self.write(bytes).await,
            _ => {}
        }
        self.ack(last, act).await?;
        match act {
            Act::Windows(most) if windows >= *most => Err(Over),
            _ => Ok(()),
        }
    }

    async fn ack(&mut self, number: u32, act: &Act) -> Result<(), Over> {
        let ack = [&b"2A"[..], &number.to_be_bytes()].concat();
        let Act::CutAnswersAfter(most) = act else {
            return self.write(&ack).await;
        };
        let left = most.saturating_sub(self.written).min(ack.len());
        self.written += left;
        self.write(&ack[..left]).await?;
        if self.written == *most {
            return Err(Over);
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Over> {
        self.io.write_all(bytes).await.map_err(|_| Over)
    }

    /// A whole window of plain JSON numbers.
    async fn window(&mut self, act: &Act) -> Result<Window, Over> {
        let head = self.take(6, act).await?;
        assert_eq!(head[..2], *b"2W", "a window frame comes first");
        let count = number(&head[2..6]);
        let mut events = Vec::new();
        let mut last: u32 = 0;
        for at in 0..count {
            let head = self.take(10, act).await?;
            assert_eq!(&head[..2], b"2J");
            let sequence = number(&head[2..6]);
            let is_free = at == 0 && self.host.any_sequence.load(Ordering::Relaxed);
            assert!(is_free || sequence == last.checked_add(1).unwrap_or(1));
            last = sequence;
            let payload = self.take(number(&head[6..10]) as usize, act).await?;
            let text = std::str::from_utf8(&payload).unwrap().trim();
            events.push((self.connection, text.parse().unwrap()));
        }
        let mut kept = self.host.kept.lock().unwrap();
        kept.windows.push(events.len());
        kept.events.extend(events);
        Ok(Window {
            events: count,
            last,
        })
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
            if step == 0 {
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
