//! Which events were probably sent before, because their acknowledgement may have been cut off.
//!
//! A protocol without resume cannot say that it sends again. What is known is which events stand in the
//! spool although their sender may not know it: those of a connection that broke, also what it lands after
//! its end, and, after a start, those of the last moments before. Their fingerprints are read back from the spool
//! when a new connection of the same host sends, each is used once, and all of them expire. A connection
//! that ended in order costs nothing.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ackline_spool::{ReadOptions, Spool, SpoolError};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, RecordBatch};

/// After this a sender that comes back is taken to send new events.
const EXPIRY: Duration = Duration::from_secs(600);
/// Events looked at per suspicion at the most: a few windows of every sender.
const MAX_EVENTS: u64 = 262_144;
/// Events looked at, once for all hosts, after a start that left acknowledgements waiting for commits:
/// every window in flight of every sender stands above the mark.
const MAX_UNCOMMITTED: u64 = 1_048_576;
/// Broken connections remembered per host; the oldest goes first.
const MAX_SUSPICIONS: usize = 64;
/// Hosts remembered: one more is not judged.
const MAX_HOSTS: usize = 10_000;
/// How far back from the last event a killed receiver may have left acknowledgements unsent.
const TAIL_MICROS: i64 = 10_000_000;
/// The column of the time an event was received.
const TIME: &str = "received_at";

/// A connection on its way into the spool.
pub(crate) trait Landing: Send + Sync {
    /// Whether something it received is not durable yet.
    fn is_behind(&self) -> bool;
}

/// A connection that broke.
struct Suspicion {
    /// Its number: later connections have a higher one.
    id: u64,
    link: Arc<str>,
    from: u64,
    /// `None` while it may still land something.
    end: Option<u64>,
    /// Gone when all of it was settled.
    landing: Weak<dyn Landing>,
    since: Instant,
}

impl Suspicion {
    fn behind(&self) -> Option<Arc<dyn Landing>> {
        let landing = self.landing.upgrade();
        landing.filter(|landing| self.end.is_none() && landing.is_behind())
    }

    fn is_wanted(&self) -> bool {
        self.since.elapsed() < EXPIRY || self.behind().is_some()
    }
}

/// Fingerprints, and how often each stands in the spool.
type Prints = HashMap<u64, u32>;

/// The suspicions of one spool. Shared by all its connections.
pub(crate) struct Repeats {
    spool: Spool,
    /// By host. Never locked for long.
    suspicions: Mutex<HashMap<String, Vec<Suspicion>>>,
    /// Locked while the spool is read.
    hosts: Mutex<Hosts>,
}

struct Hosts {
    known: HashMap<String, Arc<Judge>>,
    start: Start,
}

/// What landed before this start and whose acknowledgement may not have left.
struct Start {
    range: Range<u64>,
    /// Only what was received so shortly before the last event; all of it where acknowledgements waited
    /// for commits.
    tail_us: Option<i64>,
    since: Instant,
    /// Read once, when the first connection sends; each host takes its own.
    prints: Option<HashMap<String, Prints>>,
}

/// The fingerprints that one host's events are held against, over all its connections.
#[derive(Debug, Default)]
pub struct Judge {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    prints: Prints,
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

impl Repeats {
    /// Everything that landed in the last moments before this start is suspected; where acknowledgements
    /// waited for commits, everything from the consumer's `mark` on.
    pub(crate) fn new(spool: Spool, mark: Option<u64>) -> Self {
        let end = spool.durable().unwrap_or(0);
        let (from, tail_us) = match mark {
            None => (end.saturating_sub(MAX_EVENTS), Some(TAIL_MICROS)),
            Some(mark) => (mark.max(end.saturating_sub(MAX_UNCOMMITTED)), None),
        };
        let start = Start {
            range: from..end,
            tail_us,
            since: Instant::now(),
            prints: None,
        };
        let known = HashMap::new();
        Self {
            spool,
            suspicions: Mutex::default(),
            hosts: Mutex::new(Hosts { known, start }),
        }
    }

    /// The connection `link` of `host` broke; what it landed from position `from` on, and what it still
    /// lands, may come again. Never waits for the spool.
    pub(crate) fn suspect(
        &self,
        host: &str,
        (id, link): (u64, Arc<str>),
        from: u64,
        landing: Weak<dyn Landing>,
    ) {
        let one = Suspicion {
            id,
            link,
            from,
            end: None,
            landing,
            since: Instant::now(),
        };
        let mut hosts = self.suspicions();
        hosts.retain(|_, list| list.iter().any(Suspicion::is_wanted));
        if hosts.len() < MAX_HOSTS || hosts.contains_key(host) {
            let list = hosts.entry(host.to_owned()).or_default();
            if list.len() == MAX_SUSPICIONS {
                list.remove(0);
            }
            list.push(one);
        }
    }

    /// Connection `id` of `host` is over: what is suspected of it ends where the spool ends now, unless it
    /// is still behind.
    pub(crate) fn bound(&self, host: &str, id: u64) {
        let Ok(durable) = self.spool.durable() else {
            return;
        };
        let mut hosts = self.suspicions();
        let Some(list) = hosts.get_mut(host) else {
            return;
        };
        for one in list.iter_mut().filter(|one| one.id == id) {
            if one.behind().is_none() {
                one.end = Some(durable);
            }
        }
    }

    /// The broken connections of `host` before connection `id` that still land something.
    pub(crate) fn behind(&self, host: &str, id: u64) -> Vec<Arc<dyn Landing>> {
        let hosts = self.suspicions();
        let earlier = hosts.get(host).into_iter().flatten();
        earlier
            .filter(|one| one.id < id)
            .filter_map(Suspicion::behind)
            .collect()
    }

    /// What the new connection `id` of `host` is to be held against. Reads the spool: call it off the
    /// runtime.
    pub(crate) fn judge(&self, host: &str, id: u64) -> Option<Arc<Judge>> {
        // Held while the spool is read: a second connection of this host waits for the same answer.
        let mut hosts = self.lock();
        let mut prints = self.of_start(&mut hosts.start, host);
        for one in self.take_suspicions(host, id) {
            let Ok(durable) = self.spool.durable() else {
                continue;
            };
            let end = one.end.unwrap_or(durable);
            let range = one.from.max(end.saturating_sub(MAX_EVENTS))..end;
            let wanted = |row: &Row<'_>| (row.link == &*one.link).then_some(());
            let mut add = |(), print| *prints.entry(print).or_insert(0) += 1;
            if let Err(error) = self.collect(&range, wanted, &mut add) {
                say_unread(host, &error);
            }
        }
        if prints.is_empty() {
            let judge = hosts.known.get(host).cloned();
            return judge.filter(|judge| !judge.is_spent());
        }
        hosts.known.retain(|_, judge| !judge.is_spent());
        if hosts.known.len() >= MAX_HOSTS && !hosts.known.contains_key(host) {
            return None;
        }
        let judge = Arc::clone(hosts.known.entry(host.to_owned()).or_default());
        let mut known = judge.lock();
        known.until = Some(Instant::now() + EXPIRY);
        for (print, count) in prints {
            *known.prints.entry(print).or_insert(0) += count;
        }
        drop(known);
        Some(judge)
    }

    /// What is suspected of connections before `id`; what still lands something stays for a later one.
    fn take_suspicions(&self, host: &str, id: u64) -> Vec<Suspicion> {
        let mut hosts = self.suspicions();
        let Some(list) = hosts.get_mut(host) else {
            return Vec::new();
        };
        let is_ready = |one: &mut Suspicion| one.id < id && one.behind().is_none();
        let ready = list.extract_if(.., is_ready);
        let ready = ready.filter(Suspicion::is_wanted).collect();
        if list.is_empty() {
            hosts.remove(host);
        }
        ready
    }

    fn suspicions(&self) -> MutexGuard<'_, HashMap<String, Vec<Suspicion>>> {
        self.suspicions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What `host` had landed shortly before the start, once.
    fn of_start(&self, start: &mut Start, host: &str) -> Prints {
        if start.range.is_empty() {
            return Prints::new();
        }
        if start.since.elapsed() >= EXPIRY {
            start.range = 0..0;
            start.prints = None;
            return Prints::new();
        }
        if start.prints.is_none() {
            start.prints = Some(self.read_start(start));
        }
        let all = start.prints.as_mut();
        all.and_then(|all| all.remove(host)).unwrap_or_default()
    }

    fn read_start(&self, start: &Start) -> HashMap<String, Prints> {
        let mut all: HashMap<String, Prints> = HashMap::new();
        let wanted = |row: &Row<'_>| {
            let is_late = |tail| row.received_us.saturating_add(tail) >= row.newest_us;
            start
                .tail_us
                .is_none_or(is_late)
                .then(|| host_of(row.peer).to_owned())
        };
        let mut add = |host, print| {
            *all.entry(host).or_default().entry(print).or_insert(0) += 1;
        };
        if let Err(error) = self.collect(&start.range, wanted, &mut add) {
            say_unread("all hosts", &error);
        }
        all
    }

    /// Hands the fingerprints of wanted rows in `range` to `add`, with what `wanted` says of them.
    fn collect<T>(
        &self,
        range: &Range<u64>,
        wanted: impl Fn(&Row<'_>) -> Option<T>,
        add: &mut dyn FnMut(T, u64),
    ) -> Result<(), SpoolError> {
        let first = self.spool.first_kept()?;
        let range = range.start.max(first)..range.end;
        if range.is_empty() {
            return Ok(());
        }
        let newest_us = self.newest(range.end)?;
        let columns = [TIME, "peer", "link", "parts", "payload"];
        for batch in self.read(range, &columns)? {
            collect_batch(&batch?, newest_us, &wanted, add);
        }
        Ok(())
    }

    /// When the last event before `end` was received.
    fn newest(&self, end: u64) -> Result<i64, SpoolError> {
        let mut newest = 0;
        for batch in self.read(end.saturating_sub(1)..end, &[TIME])? {
            newest = last_received(&batch?);
        }
        Ok(newest)
    }

    fn read(
        &self,
        range: Range<u64>,
        columns: &[&str],
    ) -> Result<impl Iterator<Item = Result<RecordBatch, SpoolError>>, SpoolError> {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        let options = ReadOptions {
            columns: Some(columns),
            ..ReadOptions::default()
        };
        self.spool.read(&crate::layouts(), range, &options)
    }

    fn lock(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn say_unread(host: &str, error: &SpoolError) {
    tracing::warn!(code = "receiver.repeats", host, %error, "repeats are not judged");
}

/// What of an event decides whether it is suspected.
struct Row<'a> {
    peer: &'a str,
    link: &'a str,
    received_us: i64,
    /// When the last event of the range was received.
    newest_us: i64,
}

fn last_received(batch: &RecordBatch) -> i64 {
    let times = batch[TIME].as_primitive::<TimestampMicrosecondType>();
    if times.is_empty() {
        0
    } else {
        times.value(times.len() - 1)
    }
}

fn collect_batch<T>(
    batch: &RecordBatch,
    newest_us: i64,
    wanted: &impl Fn(&Row<'_>) -> Option<T>,
    add: &mut dyn FnMut(T, u64),
) {
    let times = batch[TIME].as_primitive::<TimestampMicrosecondType>();
    let peers = batch["peer"].as_string::<i32>();
    let links = batch["link"].as_string::<i32>();
    let parts = batch["parts"].as_list::<i32>();
    let payloads = batch["payload"].as_binary::<i32>();
    for row in 0..batch.num_rows() {
        let one = Row {
            peer: peers.value(row),
            link: links.value(row),
            received_us: times.value(row),
            newest_us,
        };
        let Some(of) = wanted(&one) else {
            continue;
        };
        let print = if payloads.is_null(row) {
            let row_parts = parts.value(row);
            let row_parts = row_parts.as_binary::<i32>();
            fingerprint((0..row_parts.len()).map(|part| row_parts.value(part)))
        } else {
            fingerprint(std::iter::once(payloads.value(row)))
        };
        add(of, print);
    }
}

/// The host of a peer's name such as `127.0.0.1:50312` or `unix`.
pub(crate) fn host_of(peer: &str) -> &str {
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    host.trim_matches(['[', ']'])
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
