//! A proxy that cuts connections: on demand, or after so many bytes of both directions together.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses some of it; a failed unwrap is a failed test

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ackline_testkit::netem::XorShift;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Awaits a future that should end soon.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("in time")
}

/// Waits until it is so.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    soon(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[derive(Clone)]
pub(crate) struct Cutter {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// `None`: connections are ended at once.
    target: Mutex<Option<SocketAddr>>,
    /// Bytes after which a connection is cut.
    after: Mutex<Option<(XorShift, Range<usize>)>>,
    /// Cancelled and replaced at each cut on demand.
    running: Mutex<CancellationToken>,
    cuts: AtomicU64,
    is_frozen: AtomicBool,
}

impl Cutter {
    /// A proxy before the host and port of `url`.
    pub(crate) async fn new(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cutter = Self {
            address: listener.local_addr().unwrap(),
            shared: Arc::new(Shared {
                target: Mutex::new(Some(target_of(url))),
                after: Mutex::new(None),
                running: Mutex::default(),
                cuts: AtomicU64::new(0),
                is_frozen: AtomicBool::new(false),
            }),
        };
        let accepting = cutter.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(accepting.clone().serve(stream));
            }
        });
        cutter
    }

    /// `url` by way of the proxy.
    pub(crate) fn url(&self, url: &str) -> String {
        url.replace(&target_of(url).to_string(), &self.address.to_string())
    }

    /// Cuts each connection after a random number of bytes in this range.
    pub(crate) fn cut_after(&self, seed: u64, bytes: Range<usize>) {
        *self.shared.after.lock().unwrap() = Some((XorShift::new(seed), bytes));
    }

    /// Cuts no more.
    pub(crate) fn cut_no_more(&self) {
        *self.shared.after.lock().unwrap() = None;
    }

    /// Cuts all connections now.
    pub(crate) fn cut(&self) {
        std::mem::take(&mut *self.shared.running.lock().unwrap()).cancel();
    }

    /// Moves nothing any more, not even an end: as a process that is stopped.
    pub(crate) fn freeze(&self) {
        self.shared.is_frozen.store(true, Ordering::Relaxed);
    }

    /// Leads to another URL, or nowhere.
    pub(crate) fn lead_to(&self, url: Option<&str>) {
        *self.shared.target.lock().unwrap() = url.map(target_of);
    }

    /// Connections that were cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }

    async fn serve(self, stream: TcpStream) {
        let target = *self.shared.target.lock().unwrap();
        let Some(target) = target else { return };
        let Ok(onward) = TcpStream::connect(target).await else {
            return;
        };
        onward.set_nodelay(true).unwrap();
        stream.set_nodelay(true).unwrap();
        let left = match &mut *self.shared.after.lock().unwrap() {
            Some((random, bytes)) => bytes.start + random.below(bytes.len()),
            None => usize::MAX >> 1,
        };
        let left = Arc::new(AtomicI64::new(i64::try_from(left).unwrap()));
        let token = self.shared.running.lock().unwrap().child_token();
        let ((from, to), (back, forth)) = (stream.into_split(), onward.into_split());
        let pumps = [
            tokio::spawn(pump(
                (from, forth),
                Arc::clone(&left),
                token.clone(),
                Arc::clone(&self.shared),
            )),
            tokio::spawn(pump((back, to), left, token, Arc::clone(&self.shared))),
        ];
        for pump in pumps {
            pump.await.unwrap();
        }
        self.shared.cuts.fetch_add(1, Ordering::Relaxed);
    }
}

async fn pump(
    (mut from, mut to): (OwnedReadHalf, OwnedWriteHalf),
    left: Arc<AtomicI64>,
    token: CancellationToken,
    shared: Arc<Shared>,
) {
    let mut buffer = vec![0; 16 * 1024];
    let pumping = async {
        loop {
            let read = from.read(&mut buffer).await;
            while shared.is_frozen.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let Ok(count @ 1..) = read else { return };
            let before = left.fetch_sub(i64::try_from(count).unwrap(), Ordering::Relaxed);
            let allowed = usize::try_from(before.max(0)).unwrap().min(count);
            if to.write_all(&buffer[..allowed]).await.is_err() || allowed < count {
                return;
            }
        }
    };
    token.run_until_cancelled(pumping).await;
    token.cancel();
}

fn target_of(url: &str) -> SocketAddr {
    let (_, rest) = url.split_once("://").unwrap();
    rest.split(['/', '?']).next().unwrap().parse().unwrap()
}
