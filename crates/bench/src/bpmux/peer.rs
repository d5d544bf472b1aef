//! The same with yamux: its connection over the same sockets, driven by a task at each end. It has
//! bytes and no messages: the reader takes as many as were written at once.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};
use yamux::{Config, Connection, Mode, Stream};

use crate::ends::{Counted, Ends, Failed, Result, SMALL, counted, rate, sockets};

/// Streams that may be open at once.
const MOST_STREAMS: usize = 2_000;

type Streams = UnboundedReceiver<Compat<Stream>>;

/// The streams of both ends: those that one opens, and those that the other accepts.
async fn connection(opened: usize, ends: &Ends) -> Result<(Streams, Streams)> {
    let (one, other) = sockets(ends).await?;
    let (to_one, from_one) = unbounded_channel();
    let (to_other, from_other) = unbounded_channel();
    ends.one.spawn(drive(one, Mode::Client, opened, to_one));
    ends.other.spawn(drive(other, Mode::Server, 0, to_other));
    Ok((from_one, from_other))
}

async fn drive(
    socket: TcpStream,
    mode: Mode,
    mut opened: usize,
    streams: UnboundedSender<Compat<Stream>>,
) -> Result<()> {
    let mut config = Config::default();
    config.set_max_num_streams(MOST_STREAMS);
    let mut connection = Connection::new(socket.compat(), config, mode);
    let mut streams = Some(streams);
    loop {
        let wants = opened > 0;
        let next = poll_fn(|context| {
            if wants && let std::task::Poll::Ready(stream) = connection.poll_new_outbound(context) {
                return std::task::Poll::Ready(Some((stream, true)));
            }
            let next = connection.poll_next_inbound(context);
            next.map(|stream| stream.map(|stream| (stream, false)))
        });
        let Some((stream, own)) = next.await else {
            return Ok(());
        };
        if let Some(streams) = &streams {
            streams.send(stream?.compat())?;
        }
        opened -= usize::from(own);
        if own && opened == 0 {
            streams = None;
        }
    }
}

/// Payload bytes over so many streams at once, written and read in pieces of `size`.
pub(super) async fn one_way(
    time: Duration,
    count: usize,
    size: usize,
    ends: &Ends,
) -> Result<Counted> {
    let (mut opened, mut accepted) = connection(count, ends).await?;
    let sending = ends.one.spawn(async move {
        let (begun, mut writers) = (Instant::now(), Vec::new());
        while let Some(stream) = opened.recv().await {
            writers.push(tokio::spawn(write(stream, vec![7; size], begun + time)));
        }
        for writer in writers {
            writer.await??;
        }
        Ok::<_, Failed>(())
    });
    let receiving = ends.other.spawn(async move {
        let (begun, mut bytes, mut readers) = (Instant::now(), 0, Vec::new());
        for _ in 0..count {
            let stream = accepted.recv().await.ok_or("the connection ended")?;
            readers.push(tokio::spawn(read(stream, vec![0; size])));
        }
        for reader in readers {
            bytes += reader.await??;
        }
        Ok::<_, Failed>(counted(bytes, begun))
    });
    let counted = receiving.await??;
    sending.await??;
    Ok(counted)
}

async fn write(mut stream: Compat<Stream>, message: Vec<u8>, until: Instant) -> Result<()> {
    // Once at least: a stream that was never written never reaches the other end.
    stream.write_all(&message).await?;
    while Instant::now() < until {
        stream.write_all(&message).await?;
    }
    Ok(stream.shutdown().await?)
}

async fn read(mut stream: Compat<Stream>, mut message: Vec<u8>) -> Result<u64> {
    let mut bytes = 0;
    while stream.read_exact(&mut message).await.is_ok() {
        bytes += u64::try_from(message.len())?;
    }
    Ok(bytes)
}

/// Seconds from a small piece to its echo, on one stream.
pub(super) async fn round_trips(time: Duration, ends: &Ends) -> Result<f64> {
    let (mut opened, mut accepted) = connection(1, ends).await?;
    let echoing = ends.other.spawn(async move {
        let mut stream = accepted.recv().await.ok_or("the connection ended")?;
        let mut piece = [0; SMALL];
        while stream.read_exact(&mut piece).await.is_ok() {
            stream.write_all(&piece).await?;
            stream.flush().await?;
        }
        Ok::<_, Failed>(())
    });
    let asking = ends.one.spawn(async move {
        let mut stream = opened.recv().await.ok_or("the connection ended")?;
        let (begun, mut count, mut piece) = (Instant::now(), 0_u64, [7; SMALL]);
        while begun.elapsed() < time {
            stream.write_all(&piece).await?;
            stream.flush().await?;
            stream.read_exact(&mut piece).await?;
            count += 1;
        }
        stream.shutdown().await?;
        Ok::<_, Failed>(1.0 / rate(counted(count, begun)))
    });
    let seconds = asking.await??;
    echoing.await??;
    Ok(seconds)
}
