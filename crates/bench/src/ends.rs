//! The parts that the figures of every protocol share: the two ends of a connection, the counters,
//! and the bare pair of sockets that each is compared with.

use std::error::Error;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

pub(crate) type Failed = Box<dyn Error + Send + Sync>;
pub(crate) type Result<T, E = Failed> = std::result::Result<T, E>;

/// Bytes of a large message, and of one write of the bare pair.
pub(crate) const LARGE: usize = 64 * 1024;
/// Bytes of a small message.
pub(crate) const SMALL: usize = 64;

/// A thread for each end of a connection or link, as if they were processes: all work of an end,
/// its application's too, happens there.
pub(crate) struct Ends {
    pub(crate) one: Handle,
    pub(crate) other: Handle,
}

impl Ends {
    /// Measures the parts in turn, or the requested one.
    pub(crate) fn measure<F: Future<Output = Result<()>>>(
        parts: &[&'static str],
        wanted: Option<&str>,
        measure: impl Fn(&'static str, &'static Self) -> F,
    ) -> std::result::Result<(), Box<dyn Error>> {
        // Until the process ends, like its threads.
        let ends: &'static Self = Box::leak(Box::new(Self {
            one: thread("one")?,
            other: thread("other")?,
        }));
        let waiting = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let is_wanted = |name: &&&'static str| wanted.is_none_or(|wanted| wanted == **name);
        for name in parts.iter().filter(is_wanted) {
            let measured = waiting.block_on(measure(name, ends));
            measured.map_err(|error| error as Box<dyn Error>)?;
        }
        Ok(())
    }
}

fn thread(name: &str) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let handle = runtime.handle().clone();
    // Until the process ends.
    let run = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)?;
    Ok(handle)
}

/// With the processor's seconds that it took, of both ends together: they say more than the rate where
/// other processes want the same cores.
pub(crate) async fn measured<R>(what: impl Future<Output = Result<R>>) -> Result<(R, f64)> {
    let before = processor()?;
    let result = what.await?;
    Ok((result, processor()? - before))
}

/// Seconds that this process's threads have run.
pub(crate) fn processor() -> Result<f64> {
    let mut nanos = 0.0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let times = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let run = times.split_whitespace().next().ok_or("no schedstat")?;
        nanos += run.parse::<f64>()?;
    }
    Ok(nanos / 1e9)
}

/// A count, and the seconds it took.
pub(crate) type Counted = (f64, f64);

pub(crate) fn rate((count, seconds): Counted) -> f64 {
    count / seconds
}

#[allow(clippy::cast_precision_loss)] // a figure
pub(crate) fn counted(count: u64, since: Instant) -> Counted {
    (count as f64, since.elapsed().as_secs_f64())
}

pub(crate) fn line(event: &str, figures: &[(&str, f64)]) -> Result<()> {
    let figures = figures
        .iter()
        .map(|(name, value)| format!(r#","{name}":{value:.3}"#));
    let figures: String = figures.collect();
    Ok(writeln!(io::stdout(), r#"{{"event":"{event}"{figures}}}"#)?)
}

/// Bare sockets: each registered at its own end.
pub(crate) async fn sockets(ends: &Ends) -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let one = ends.one.spawn(TcpStream::connect(address)).await??;
    let (other, _) = listener.accept().await?;
    let other = other.into_std()?;
    one.set_nodelay(true)?;
    other.set_nodelay(true)?;
    let other = ends.other.spawn(async { TcpStream::from_std(other) });
    Ok((one, other.await??))
}

/// Bytes through bare sockets, read into so many buffers in turn: into one that stays in the
/// caches, or as a reader must that hands on its bytes without a copy.
pub(crate) async fn raw_stream(time: Duration, buffers: usize, ends: &Ends) -> Result<Counted> {
    let (mut one, mut other) = sockets(ends).await?;
    let writing = ends.one.spawn(async move {
        let (begun, piece) = (Instant::now(), vec![7; LARGE]);
        while begun.elapsed() < time {
            one.write_all(&piece).await?;
        }
        one.shutdown().await
    });
    let reading = ends.other.spawn(async move {
        let (begun, mut bytes) = (Instant::now(), 0_u64);
        let mut pieces = vec![vec![0; 4 * LARGE]; buffers];
        loop {
            for piece in &mut pieces {
                match other.read(piece).await? {
                    0 => return Ok::<_, Failed>(counted(bytes, begun)),
                    count => bytes += u64::try_from(count)?,
                }
            }
        }
    });
    writing.await??;
    reading.await?
}

/// Seconds from a small message to its echo, over bare sockets.
pub(crate) async fn raw_round_trips(time: Duration, ends: &Ends) -> Result<f64> {
    let (mut one, mut other) = sockets(ends).await?;
    let echoing = ends.other.spawn(async move {
        let mut piece = [0; SMALL];
        while other.read_exact(&mut piece).await.is_ok() {
            other.write_all(&piece).await?;
        }
        Ok::<_, io::Error>(())
    });
    let asking = ends.one.spawn(async move {
        let (begun, mut count, mut piece) = (Instant::now(), 0_u64, [7; SMALL]);
        while begun.elapsed() < time {
            one.write_all(&piece).await?;
            one.read_exact(&mut piece).await?;
            count += 1;
        }
        Ok::<_, io::Error>(1.0 / rate(counted(count, begun)))
    });
    let seconds = asking.await??;
    echoing.await??;
    Ok(seconds)
}
