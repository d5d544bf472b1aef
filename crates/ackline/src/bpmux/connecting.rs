//! Connecting for a caller that would rather wait than fail: again and again, for a time.

use std::time::Duration;

use ackline_bpmux::Error;
use ackline_link::{Backoff, Jitter};
use tokio::time::{Instant, sleep};

use super::connection::Connection;
use super::options::ConnectOptions;
use crate::dialing;

/// How long and how often it is tried.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// When to give up.
    pub timeout: Duration,
    /// The longest wait between two attempts: waits are random, and their ceiling doubles from 200 ms.
    pub wait_max: Duration,
    /// Connections before this one that came to nothing: the first attempt waits as after so many.
    pub failures: u32,
}

/// Connects as [`connect`](super::connect), and tries again while no peer is there.
///
/// # Errors
/// As [`connect`](super::connect): the last error comes once the time is over; at once where it is no use to
/// try again.
pub async fn connect_within(
    url: &str,
    mut options: ConnectOptions,
    retry: Retry,
) -> Result<Connection, Error> {
    check(url, &options)?;
    let until = Instant::now().checked_add(retry.timeout);
    let left = || {
        until.map_or(Duration::MAX, |until| {
            until.saturating_duration_since(Instant::now())
        })
    };
    let first = FIRST_WAIT.min(retry.wait_max);
    let mut backoff = Backoff::new(first, retry.wait_max, Jitter::new(None));
    if let Some(before) = retry.failures.checked_sub(1) {
        for _ in 0..before.min(MOST_DOUBLINGS) {
            backoff.next_wait();
        }
        sleep(backoff.next_wait().min(left())).await;
    }
    let attempt = options.connect_timeout;
    loop {
        options.connect_timeout = attempt.min(left()).max(LEAST_ATTEMPT);
        match Connection::connect(url, options.clone()).await {
            Err(Error::Open(error)) if error.is_passing() && !left().is_zero() => {
                sleep(backoff.next_wait().min(left())).await;
            }
            done => return done,
        }
    }
}

/// Refuses the URLs and options that [`connect`](super::connect) would refuse, without connecting.
///
/// # Errors
/// [`Error::Open`]: a wrong URL, or TLS that cannot be used.
pub fn check(url: &str, options: &ConnectOptions) -> Result<(), Error> {
    let endpoint = options.clone().endpoint(url)?;
    Ok(dialing::has_port(&endpoint)?)
}

const FIRST_WAIT: Duration = Duration::from_millis(200);
/// For a listener that is there, however little time is left.
const LEAST_ATTEMPT: Duration = Duration::from_millis(100);
/// After so many the wait is as long as it gets.
const MOST_DOUBLINGS: u32 = 32;
