//! Which events were probably sent before, because their acknowledgement may have been cut off.
//!
//! A protocol without resume cannot say that it sends again. What is known is which events stand in the
//! spool although their sender may not know it: those of a connection that broke with windows unsettled,
//! and, after a start, those of the last moments before. Their fingerprints are read back from the spool
//! when a new connection of the same host sends, each is used once, and all of them expire. A connection
//! that ended in order costs nothing.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ackline_spool::{ReadOptions, Spool};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, RecordBatch};

/// After this a sender that comes back is taken to send new events.
const EXPIRY: Duration = Duration::from_secs(600);
/// Events looked at per suspicion at the most: a few windows of every sender.
const MAX_EVENTS: u64 = 262_144;
/// Broken connections remembered per host; the oldest goes first.
const MAX_SUSPICIONS: usize = 64;
/// Hosts remembered: one more is not judged.
const MAX_HOSTS: usize = 10_000;
/// How far back from the last event a killed receiver may have left acknowledgements unsent.
const TAIL_MICROS: i64 = 10_000_000;
/// The column of the time an event was received.
const TIME: &str = "received_at";

#[derive(Clone)]
struct Suspicion {
    link: Option<Arc<str>>,
    range: Range<u64>,
    since: Instant,
}

/// The suspicions of one spool. Shared by all its connections.
pub(crate) struct Repeats {
    spool: Spool,
    start: Suspicion,
    hosts: Mutex<HashMap<String, Host>>,
}

/// What is known of one host.
#[derive(Default)]
struct Host {
    suspicions: Vec<Suspicion>,
    judge: Arc<Judge>,
}

/// The fingerprints that one host's events are held against, over all its connections.
#[derive(Debug, Default)]
pub struct Judge {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    prints: HashMap<u64, u32>,
    until: Option<Instant>,
}

impl Judge {
    /// Whether an event with these parts was probably sent before. Each known event answers once.
    pub fn is_repeat<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> bool {
        let print = fingerprint(parts);
        let prints = &mut self.lock().prints;
        let Some(left) = prints.get_mut(&print) else {
            return false;
        };
        *left -= 1;
        if *left == 0 {
            prints.remove(&print);
        }
        true
    }

    /// Whether nothing is left to be held against.
    pub(crate) fn is_spent(&self) -> bool {
        let mut known = self.lock();
        if known.until.is_some_and(|until| until <= Instant::now()) {
            *known = Known::default();
        }
        known.prints.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    fn is_wanted(&self) -> bool {
        !self.judge.is_spent()
            || self
                .suspicions
                .iter()
                .any(|one| one.since.elapsed() < EXPIRY)
    }
}

impl Repeats {
    /// Everything that landed in the last moments before this start is suspected.
    pub(crate) fn new(spool: Spool) -> Self {
        let end = spool.durable().unwrap_or(0);
        let range = end.saturating_sub(MAX_EVENTS)..end;
        let start = Suspicion {
            link: None,
            range,
            since: Instant::now(),
        };
        Self {
            spool,
            start,
            hosts: Mutex::default(),
        }
    }

    /// The connection `link` of `host` broke; what it landed from position `from` on may come again.
    pub(crate) fn suspect(&self, host: &str, link: Arc<str>, from: u64) {
        let Ok(end) = self.spool.durable() else {
            return;
        };
        let range = from.max(end.saturating_sub(MAX_EVENTS))..end;
        let one = Suspicion {
            link: Some(link),
            range,
            since: Instant::now(),
        };
        let mut hosts = self.lock();
        if self.start.since.elapsed() >= EXPIRY {
            // Earlier, an entry also says that the start's suspicion was read for this host.
            hosts.retain(|_, host| host.is_wanted());
        }
        if hosts.len() < MAX_HOSTS || hosts.contains_key(host) {
            let list = &mut hosts.entry(host.to_owned()).or_default().suspicions;
            if list.len() == MAX_SUSPICIONS {
                list.remove(0);
            }
            list.push(one);
        }
    }

    /// What a new connection of `host` is to be held against. Reads the spool: call it off the runtime.
    pub(crate) fn judge(&self, host: &str) -> Option<Arc<Judge>> {
        // Held while the spool is read: a second connection of this host waits for the same answer.
        let mut hosts = self.lock();
        let known = hosts.contains_key(host);
        let fresh = !self.start.range.is_empty() && self.start.since.elapsed() < EXPIRY;
        let start = (!known && fresh).then(|| self.start.clone());
        if !known && start.is_none() {
            return None;
        }
        let entry = hosts.entry(host.to_owned()).or_default();
        let mut prints = HashMap::new();
        let list = std::mem::take(&mut entry.suspicions);
        for one in list
            .iter()
            .chain(&start)
            .filter(|one| one.since.elapsed() < EXPIRY)
        {
            if let Err(error) = self.collect(host, one, &mut prints) {
                tracing::warn!(code = "receiver.repeats", %error, "repeats of {host} are not judged");
            }
        }
        if !prints.is_empty() {
            let mut judge = entry.judge.lock();
            judge.until = Some(Instant::now() + EXPIRY);
            for (print, count) in prints {
                *judge.prints.entry(print).or_insert(0) += count;
            }
        }
        (!entry.judge.is_spent()).then(|| Arc::clone(&entry.judge))
    }

    fn collect(
        &self,
        host: &str,
        suspicion: &Suspicion,
        prints: &mut HashMap<u64, u32>,
    ) -> Result<(), ackline_spool::SpoolError> {
        let first = self.spool.first_kept()?;
        let range = suspicion.range.start.max(first)..suspicion.range.end;
        if range.is_empty() {
            return Ok(());
        }
        let columns = [TIME, "peer", "link", "parts", "payload"];
        let options = ReadOptions {
            columns: Some(columns.map(str::to_owned).to_vec()),
            ..ReadOptions::default()
        };
        let batches: Vec<RecordBatch> = self
            .spool
            .read(&crate::layouts(), range, &options)?
            .collect::<Result<_, _>>()?;
        let newest = batches.last().map_or(0, last_received);
        for batch in &batches {
            collect_batch(batch, host, suspicion, newest, prints);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn last_received(batch: &RecordBatch) -> i64 {
    let times = batch[TIME].as_primitive::<TimestampMicrosecondType>();
    if times.is_empty() {
        0
    } else {
        times.value(times.len() - 1)
    }
}

fn collect_batch(
    batch: &RecordBatch,
    host: &str,
    suspicion: &Suspicion,
    newest: i64,
    prints: &mut HashMap<u64, u32>,
) {
    let times = batch[TIME].as_primitive::<TimestampMicrosecondType>();
    let peers = batch["peer"].as_string::<i32>();
    let links = batch["link"].as_string::<i32>();
    let parts = batch["parts"].as_list::<i32>();
    let payloads = batch["payload"].as_binary::<i32>();
    for row in 0..batch.num_rows() {
        let wanted = match &suspicion.link {
            Some(link) => links.value(row) == &**link,
            None => host_of(peers.value(row)) == host && times.value(row) + TAIL_MICROS >= newest,
        };
        if !wanted {
            continue;
        }
        let print = if payloads.is_null(row) {
            let row_parts = parts.value(row);
            let row_parts = row_parts.as_binary::<i32>();
            fingerprint((0..row_parts.len()).map(|part| row_parts.value(part)))
        } else {
            fingerprint(std::iter::once(payloads.value(row)))
        };
        *prints.entry(print).or_insert(0) += 1;
    }
}

/// The host of a peer's name such as `127.0.0.1:50312` or `unix`.
pub(crate) fn host_of(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(host, _)| host)
}

/// Two checksums of different halves of the work: a collision would mark a new event as a repeat.
fn fingerprint<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u64 {
    let (mut low, mut high, mut len) = (0, 0x9e37_79b9, 0_u64);
    for part in parts {
        low = crc32c::crc32c_append(low, part);
        high = crc32c::crc32c_append(high ^ low, part.get(part.len() / 2..).unwrap_or_default());
        len = len.wrapping_mul(31).wrapping_add(part.len() as u64);
    }
    (u64::from(high) << 32 | u64::from(low)) ^ len.rotate_left(17)
}
