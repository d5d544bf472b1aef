//! Both ends of a link in this process, over TCP on the loopback interface, beside a bare pair of sockets that
//! are written and read in pieces of the same size.

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ackline::core::Sequence;
use ackline::relink::{
    self, ChannelId, ConnectOptions, Link, LinkOptions, ListenOptions, Listener, Payload,
};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Bytes of a large message, and of what the bare pair writes and reads at once.
const LARGE: usize = 64 * 1024;
/// Bytes of a small message.
const SMALL: usize = 64;
/// Messages taken at once.
const BATCH: usize = 1024;
/// Messages that are not acknowledged when the link is cut.
const UNACKNOWLEDGED: u32 = 100_000;
const URL: &str = "relink://127.0.0.1:0/bench";

/// Measures for so many seconds each and prints JSON lines.
pub(crate) fn run(seconds: f64) -> std::result::Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let time = Duration::from_secs_f64(seconds);
    let measured: Result<()> = runtime.block_on(async {
        let raw = raw_stream(time).await?;
        let large = one_way(time, LARGE).await?;
        line(
            "large",
            &[
                ("raw_bytes_per_second", raw),
                ("bytes_per_second", large),
                ("ratio", large / raw),
            ],
        )?;
        let small = one_way(time, SMALL).await?;
        let messages = small / u32::try_from(SMALL).map_or(1.0, f64::from);
        line("small", &[("messages_per_second", messages)])?;
        let raw = raw_round_trips(time).await?;
        let ours = round_trips(time).await?;
        line(
            "round_trip",
            &[
                ("raw_us", raw * 1e6),
                ("us", ours * 1e6),
                ("ratio", ours / raw),
            ],
        )?;
        let (transfer, resume) = resume().await?;
        line(
            "resume",
            &[
                ("transfer_ms", transfer * 1e3),
                ("resume_ms", resume * 1e3),
                ("ratio", resume / transfer),
            ],
        )
    });
    measured.map_err(|error| error as Box<dyn Error>)
}

fn line(event: &str, figures: &[(&str, f64)]) -> Result<()> {
    let figures = figures
        .iter()
        .map(|(name, value)| format!(r#","{name}":{value:.3}"#));
    let figures: String = figures.collect();
    Ok(writeln!(io::stdout(), r#"{{"event":"{event}"{figures}}}"#)?)
}

async fn sockets() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    let (other, _) = listener.accept().await?;
    one.set_nodelay(true)?;
    other.set_nodelay(true)?;
    Ok((one, other))
}

/// Both ends of a link; the listener is to be kept.
async fn link() -> Result<(Link, Link, Listener)> {
    let listener = relink::listen(URL, ListenOptions::default()).await?;
    let one = relink::connect(listener.url(), ConnectOptions::default()).await?;
    let other = listener.accept().await?;
    Ok((one, other, listener))
}

fn channel() -> ChannelId {
    ChannelId::from(1_u32)
}

/// Bytes each second through bare sockets.
async fn raw_stream(time: Duration) -> Result<f64> {
    let (mut one, mut other) = sockets().await?;
    let writing = tokio::spawn(async move {
        let (begun, piece) = (Instant::now(), vec![7; LARGE]);
        while begun.elapsed() < time {
            one.write_all(&piece).await?;
        }
        one.shutdown().await
    });
    let (begun, mut bytes) = (Instant::now(), 0_u64);
    let mut piece = vec![0; 4 * LARGE];
    loop {
        match other.read(&mut piece).await? {
            0 => break,
            count => bytes += u64::try_from(count)?,
        }
    }
    writing.await??;
    Ok(rate(bytes, begun))
}

#[allow(clippy::cast_precision_loss)] // a figure
fn rate(count: u64, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

/// Payload bytes each second over a link, in messages of `size`, consumed in batches.
async fn one_way(time: Duration, size: usize) -> Result<f64> {
    let (one, other, _listener) = link().await?;
    let payload = Payload::from(Bytes::from(vec![7; size]));
    let batch = vec![payload; if size == LARGE { 16 } else { BATCH }];
    let sending = tokio::spawn(async move {
        let begun = Instant::now();
        while begun.elapsed() < time {
            send_all(&one, &batch).await?;
        }
        one.close_channel(&channel())?;
        one.shutdown(Some(Duration::from_secs(60))).await?;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    });
    let receiving = async {
        let (begun, mut messages) = (Instant::now(), 0_u64);
        while let Some(batch) = other.receive_many(BATCH).await? {
            if let Some(last) = batch.last() {
                other.consume(&last.channel, last.sequence)?;
            }
            messages += u64::try_from(batch.len())?;
        }
        let rate = rate(messages * u64::try_from(size)?, begun);
        other.begin_shutdown()?;
        Ok(rate)
    };
    let sending = async { sending.await? };
    Ok(tokio::try_join!(receiving, sending)?.0)
}

async fn send_all(link: &Link, mut batch: &[Payload]) -> Result<()> {
    while !batch.is_empty() {
        match link.try_send_many(&channel(), batch) {
            Ok(receipts) => batch = &batch[receipts.len()..],
            Err(relink::Error::Blocked) => {
                link.ready(relink::Interest::Room(channel())).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Seconds from a small message to its echo, over bare sockets.
async fn raw_round_trips(time: Duration) -> Result<f64> {
    let (mut one, mut other) = sockets().await?;
    let echoing = tokio::spawn(async move {
        let mut piece = [0; SMALL];
        while other.read_exact(&mut piece).await.is_ok() {
            other.write_all(&piece).await?;
        }
        Ok::<_, io::Error>(())
    });
    let (begun, mut count, mut piece) = (Instant::now(), 0_u64, [7; SMALL]);
    while begun.elapsed() < time {
        one.write_all(&piece).await?;
        one.read_exact(&mut piece).await?;
        count += 1;
    }
    let seconds = 1.0 / rate(count, begun);
    drop(one);
    echoing.await??;
    Ok(seconds)
}

/// The same over a link.
async fn round_trips(time: Duration) -> Result<f64> {
    let (one, other, _listener) = link().await?;
    let echoing = tokio::spawn(async move {
        while let Some(message) = other.receive().await? {
            other.consume(&message.channel, message.sequence)?;
            other.send(&channel(), message.payload, None).await?;
        }
        Ok::<_, relink::Error>(())
    });
    let payload = Payload::from(Bytes::from(vec![7; SMALL]));
    let (begun, mut count) = (Instant::now(), 0_u64);
    while begun.elapsed() < time {
        one.send(&channel(), payload.clone(), None).await?;
        let echo = one.receive().await?.ok_or("the link ended")?;
        one.consume(&echo.channel, echo.sequence)?;
        count += 1;
    }
    let seconds = 1.0 / rate(count, begun);
    echoing.abort();
    Ok(seconds)
}

/// Seconds that 100,000 small messages take on a new link, and those that as many take that had been sent
/// into nothing, from the new connection to the last of them: both through the same proxy.
async fn resume() -> Result<(f64, f64)> {
    let options = LinkOptions {
        send_window: 2 * UNACKNOWLEDGED,
        receive_window: 2 * UNACKNOWLEDGED,
        ..LinkOptions::default()
    };
    let listen = ListenOptions {
        link: options.clone(),
        ..ListenOptions::default()
    };
    let connect = ConnectOptions {
        link: options,
        ..ConnectOptions::default()
    };
    let listener = relink::listen(URL, listen).await?;
    let proxy = Proxy::new(listener.url()).await?;
    let one = relink::connect(&proxy.url, connect).await?;
    let other = listener.accept().await?;
    let payloads = vec![Payload::from(Bytes::from(vec![7; SMALL])); UNACKNOWLEDGED as usize];

    let begun = Instant::now();
    send_all(&one, &payloads).await?;
    let last = take(&other, Sequence(UNACKNOWLEDGED - 1)).await?;
    let transfer = begun.elapsed().as_secs_f64();
    other.consume(&channel(), last)?;
    while !one
        .driven()
        .call(|session, _| session.stats().unacknowledged_bytes == 0)
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    proxy.shared.swallows.store(true, Ordering::SeqCst);
    send_all(&one, &payloads).await?;
    // All of it is in the hole when nothing has come for a while.
    proxy.shared.quiet().await;
    proxy.shared.swallows.store(false, Ordering::SeqCst);
    proxy.shared.cut.notify_waiters();
    let accepted = proxy.shared.accepted.notified();
    accepted.await;
    let begun = Instant::now();
    take(&other, Sequence(2 * UNACKNOWLEDGED - 1)).await?;
    Ok((transfer, begun.elapsed().as_secs_f64()))
}

/// Receives up to a message.
async fn take(link: &Link, last: Sequence) -> Result<Sequence> {
    while let Some(batch) = link.receive_many(BATCH).await? {
        if batch.last().is_some_and(|message| message.sequence == last) {
            return Ok(last);
        }
    }
    Err("the link ended".into())
}

/// What goes to the listener goes through it, or into nothing.
struct Proxy {
    url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    swallows: AtomicBool,
    moved: AtomicBool,
    cut: Notify,
    accepted: Notify,
}

impl Shared {
    async fn quiet(&self) {
        while self.moved.swap(false, Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Proxy {
    async fn new(url: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let own = listener.local_addr()?.to_string();
        let target = url.split('/').nth(2).ok_or("no host")?.to_owned();
        let shared = Arc::new(Shared::default());
        let proxy = Self {
            url: url.replace(&target, &own),
            shared: Arc::clone(&shared),
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.accepted.notify_one();
                tokio::spawn(serve(stream, target.clone(), Arc::clone(&shared)));
            }
        });
        Ok(proxy)
    }
}

async fn serve(stream: TcpStream, target: String, shared: Arc<Shared>) -> io::Result<()> {
    let onward = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    onward.set_nodelay(true)?;
    let cut = shared.cut.notified();
    let ((from, to), (back, forth)) = (stream.into_split(), onward.into_split());
    let pumps = [
        tokio::spawn(pump(from, forth, Some(Arc::clone(&shared)))),
        tokio::spawn(pump(back, to, None)),
    ];
    cut.await;
    for pump in pumps {
        pump.abort();
    }
    Ok(())
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: Option<Arc<Shared>>) {
    let mut piece = vec![0; 4 * LARGE];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        if let Some(shared) = &shared {
            shared.moved.store(true, Ordering::SeqCst);
            if shared.swallows.load(Ordering::SeqCst) {
                continue;
            }
        }
        if to.write_all(&piece[..count]).await.is_err() {
            return;
        }
    }
}
