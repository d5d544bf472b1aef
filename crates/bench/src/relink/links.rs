//! Both ends of a link in this process, over TCP on the loopback interface, beside a bare pair of sockets that
//! are written and read in pieces of the same size.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ackline::core::Sequence;
use ackline::relink::{
    self, ChannelId, ConnectOptions, Link, LinkConfig, LinkOptions, ListenOptions, Listener,
    Payload,
};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::ends::{
    Counted, Ends, Failed, LARGE, Result, SMALL, counted, line, measured, rate, raw_round_trips,
    raw_stream,
};

/// Messages taken at once.
const BATCH: usize = 1024;
/// Messages that are not acknowledged when the link is cut.
const UNACKNOWLEDGED: u32 = 100_000;
/// Buffers that a link's driver may have in use at once.
const KEPT: usize = 32;
const URL: &str = "relink://127.0.0.1:0/bench";

/// Measures for so many seconds each and prints JSON lines; only the requested part, if there is
/// one.
pub(crate) fn run(seconds: f64, part: Option<&str>) -> std::result::Result<(), Box<dyn Error>> {
    let time = Duration::from_secs_f64(seconds);
    Ends::measure(&PARTS, part, |name, ends| measure(name, time, ends))
}

const PARTS: [&str; 4] = ["large", "small", "round_trip", "resume"];

async fn measure(name: &str, time: Duration, ends: &Ends) -> Result<()> {
    match name {
        "large" => {
            let (raw, raw_cpu) = measured(raw_stream(time, 1, ends)).await?;
            let (kept, kept_cpu) = measured(raw_stream(time, KEPT, ends)).await?;
            let (large, cpu) = measured(one_way(time, LARGE, ends)).await?;
            let figures = [
                ("raw_bytes_per_second", rate(raw)),
                ("bytes_per_second", rate(large)),
                ("ratio", rate(large) / rate(raw)),
                ("raw_cpu_us_per_mb", raw_cpu / raw.0 * 1e12),
                ("kept_cpu_us_per_mb", kept_cpu / kept.0 * 1e12),
                ("cpu_us_per_mb", cpu / large.0 * 1e12),
            ];
            line(name, &figures)
        }
        "small" => {
            let (small, cpu) = measured(one_way(time, SMALL, ends)).await?;
            let bytes = u32::try_from(SMALL).map_or(1.0, f64::from);
            let figures = [
                ("messages_per_second", rate(small) / bytes),
                ("cpu_ns_per_message", cpu / small.0 * bytes * 1e9),
            ];
            line(name, &figures)
        }
        "round_trip" => {
            let raw = raw_round_trips(time, ends).await?;
            let ours = round_trips(time, ends).await?;
            let figures = [
                ("raw_us", raw * 1e6),
                ("us", ours * 1e6),
                ("ratio", ours / raw),
            ];
            line(name, &figures)
        }
        _ => {
            let (transfer, resume) = resume().await?;
            let figures = [
                ("transfer_ms", transfer * 1e3),
                ("resume_ms", resume * 1e3),
                ("ratio", resume / transfer),
            ];
            line(name, &figures)
        }
    }
}

/// Both ends of a link; keep the listener.
async fn link(ends: &Ends) -> Result<(Link, Link, Listener)> {
    let listening = ends
        .other
        .spawn(relink::listen(URL, ListenOptions::default()));
    let listener = listening.await??;
    let url = listener.url().to_owned();
    let connecting = async move { relink::connect(&url, ConnectOptions::default()).await };
    let one = ends.one.spawn(connecting).await??;
    let other = listener.accept().await?;
    Ok((one, other, listener))
}

fn channel() -> ChannelId {
    ChannelId::from(1_u32)
}

/// Payload bytes over a link, in messages of `size`, consumed in batches.
async fn one_way(time: Duration, size: usize, ends: &Ends) -> Result<Counted> {
    let (one, other, _listener) = link(ends).await?;
    let payload = Payload::from(Bytes::from(vec![7; size]));
    let batch = vec![payload; if size == LARGE { 16 } else { BATCH }];
    let sending = ends.one.spawn(async move {
        let begun = Instant::now();
        while begun.elapsed() < time {
            send_all(&one, &batch).await?;
        }
        one.close_channel(&channel())?;
        one.shutdown(Some(Duration::from_secs(60))).await?;
        Ok::<_, Failed>(())
    });
    let receiving = ends.other.spawn(async move {
        let (begun, mut messages) = (Instant::now(), 0_u64);
        while let Some(batch) = other.receive_many(BATCH).await? {
            if let Some(last) = batch.last() {
                other.consume(&last.channel, last.sequence)?;
            }
            messages += u64::try_from(batch.len())?;
        }
        let counted = counted(messages * u64::try_from(size)?, begun);
        other.shutdown(Some(Duration::from_secs(60))).await?;
        Ok::<_, Failed>(counted)
    });
    sending.await??;
    receiving.await?
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

/// The same over a link.
async fn round_trips(time: Duration, ends: &Ends) -> Result<f64> {
    let (one, other, _listener) = link(ends).await?;
    let echoing = ends.other.spawn(async move {
        while let Some(message) = other.receive().await? {
            other.consume(&message.channel, message.sequence)?;
            other.send(&channel(), message.payload, None).await?;
        }
        Ok::<_, relink::Error>(())
    });
    let asking = ends.one.spawn(async move {
        let payload = Payload::from(Bytes::from(vec![7; SMALL]));
        let (begun, mut count) = (Instant::now(), 0_u64);
        while begun.elapsed() < time {
            one.send(&channel(), payload.clone(), None).await?;
            let echo = one.receive().await?.ok_or("the link ended")?;
            one.consume(&echo.channel, echo.sequence)?;
            count += 1;
        }
        Ok::<_, Failed>(1.0 / rate(counted(count, begun)))
    });
    let seconds = asking.await??;
    echoing.abort();
    Ok(seconds)
}

/// Seconds that 100,000 small messages take on a new link, and those that as many take that had been sent
/// into nothing, from the new connection to the last of them: both through the same proxy.
async fn resume() -> Result<(f64, f64)> {
    let options = LinkOptions {
        machine: LinkConfig {
            send_window: 2 * UNACKNOWLEDGED,
            receive_window: 2 * UNACKNOWLEDGED,
            ..LinkOptions::default().machine
        },
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
    // All of it is lost when nothing has come for a while.
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

/// Passes the bytes to the listener, or drops them.
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
