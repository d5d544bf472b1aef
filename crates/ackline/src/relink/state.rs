//! Links that survive their process: a journal for each in a directory that one process holds.
//!
//! ```text
//! DIR/lock              as a spool's
//! DIR/listener.journal  epoch u64, and a u64 that nothing reads: the last group counts
//! DIR/link-ID.journal   a listener's link: its origin, then its changes
//! DIR/link.journal      a connector's link
//! ```
//!
//! Frames that a change allows to be sent leave when the change is on the disk; changes that come while the
//! disk is busy go there together. A journal is rewritten when it is twice as long as it was after the last
//! time, or when nothing in it is needed any more.

mod carried;
#[cfg(feature = "spool")]
mod landing;
mod log;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ackline_link::Link;
use ackline_relink::frame::Role;
use ackline_relink::{
    self as machine, Change, ChannelId, EndpointConfig, Error, LinkKey, LinkOptions, LinkState,
    Side,
};
use ackline_spool::{SpoolError, StateDir};
use tokio::task::{JoinHandle, spawn_blocking};

use super::link_host::LinkHost;
pub(crate) use ackline_relink::record::Origin;
use ackline_relink::record::{self, Record};
pub(crate) use carried::Carried;
#[cfg(feature = "spool")]
pub(crate) use landing::endpoints_in;
use log::{Kept, Log};

/// The journal of one link.
pub(crate) struct Journal {
    /// Held as long as something may be written.
    _dir: Arc<StateDir>,
    file: PathBuf,
    key: LinkKey,
    origin: Origin,
    /// `None` before the first change.
    log: Option<Log>,
    /// Bytes after the last rewriting, and after the last one with no message of this side in it.
    compact_bytes: u64,
    idle_bytes: u64,
    /// Whether a link that is lost stays in it.
    keeps_lost: bool,
    /// The application has seen the lost messages.
    is_discarded: Arc<AtomicBool>,
    /// The peer that carried the link last.
    carried: Carried,
    /// The spool that its messages are landed in.
    landing: Option<Arc<dyn Landing>>,
    /// End positions in the spool, by the peer's channel: messages below belong to an ended life.
    ends: BTreeMap<ChannelId, u64>,
}

/// The positions of the spool that a receiver lands messages in.
pub(crate) trait Landing: Send + Sync {
    /// Every event below is durable.
    fn durable(&self) -> u64;

    /// Everything below is in the journals of the links.
    fn settled(&self) -> u64;
}

/// All of a link, and before it the ends of channels that were not written.
type Whole = (Vec<Change>, Vec<Change>);

/// A link of an earlier process.
pub(crate) struct Restored {
    pub(crate) machine: machine::Link,
    pub(crate) journal: Journal,
}

impl Journal {
    /// An empty one; a file that is there is replaced.
    fn new(dir: &Arc<StateDir>, file: PathBuf, key: LinkKey, origin: Origin) -> Self {
        Self {
            _dir: Arc::clone(dir),
            file,
            key,
            origin,
            log: None,
            compact_bytes: 0,
            idle_bytes: 0,
            keeps_lost: false,
            is_discarded: Arc::default(),
            carried: Carried::default(),
            landing: None,
            ends: BTreeMap::new(),
        }
    }

    /// The link that `file` holds; `None` if it holds none.
    fn restore(
        dir: &Arc<StateDir>,
        file: &Path,
        role: Role,
        options: &LinkOptions,
    ) -> Result<Option<Restored>, Error> {
        let (log, Kept { groups, cut }) = Log::open(file).map_err(Error::state)?;
        if cut > 0 {
            let shown = file.display();
            let bytes = cut;
            tracing::warn!(code = "relink.state_cut", file = %shown, bytes, "a torn end was cut");
        }
        let Some((first, others)) = groups.split_first() else {
            return Ok(None);
        };
        let damaged = || Error::state(format!("{}: a record cannot be read", file.display()));
        let mut first = first.as_slice();
        let origin = Origin::decode(&mut first).ok_or_else(damaged)?;
        let (mut changes, mut ends) = (Vec::new(), BTreeMap::new());
        let carried = Carried::default();
        for group in std::iter::once(first).chain(others.iter().map(Vec::as_slice)) {
            for one in record::decode_all(group).ok_or_else(damaged)? {
                match one {
                    Record::Change(change) => changes.push(change),
                    Record::Ended(channel, position) => {
                        ends.insert(channel, position);
                    }
                    Record::Carried(peer) => carried.read(peer),
                }
            }
        }
        let config = options.machine(role, origin.parameters, true);
        let machine = machine::Link::restore(config, changes)
            .map_err(|error| Error::state(format!("{}: {error}", file.display())))?;
        let compact_bytes = log.len();
        let mut journal = Self::new(dir, file.to_owned(), machine.key(), origin);
        journal.log = Some(log);
        journal.compact_bytes = compact_bytes;
        journal.ends = ends;
        journal.carried = carried;
        Ok(Some(Restored { machine, journal }))
    }

    /// Where the link comes from.
    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The peer that carried the link last: to be told of each transport.
    pub(crate) fn carried(&self) -> Carried {
        self.carried.clone()
    }

    /// Keeps the link's changes until it is over.
    pub(crate) fn keep<M: LinkHost>(self, link: Link<M>) -> JoinHandle<()> {
        tokio::spawn(async move {
            match self.follow(&link).await {
                Ok(journal) if journal.is_done(link.call(|host, _| host.machine().state())) => {
                    journal.remove().await;
                }
                Ok(_) => {}
                // A change that cannot be kept is not promised: the link ends in this process.
                Err(error) => {
                    tracing::error!(code = "relink.state_failed", %error, "the journal of a link cannot be written");
                    link.call(|host, _| host.fail(error));
                    link.abort();
                }
            }
        })
    }

    /// Writes the link's changes until it is over.
    async fn follow<M: LinkHost>(mut self, link: &Link<M>) -> Result<Self, Error> {
        loop {
            let mut waiting = pin!(link.when(0, |host, _| take(host)));
            let in_time = tokio::time::timeout(REST_AFTER, &mut waiting).await;
            let changes = if let Ok(changes) = in_time {
                changes
            } else {
                self.rest();
                waiting.await
            };
            let Ok(changes) = changes else {
                return Ok(self);
            };
            self = self.write(changes).await?;
            link.call(LinkHost::journaled);
            let idle = self.is_over(COMPACT_FROM) && link.call(|host, _| is_idle(host));
            if self.is_long(idle) {
                let changes = link.call(|host, _| whole(host));
                self = self.rewrite(changes, idle).await?;
                link.call(LinkHost::journaled);
            }
        }
    }

    /// Whether nothing of a link in this state is needed any more.
    fn is_done(&self, state: LinkState) -> bool {
        match state {
            LinkState::Closed => true,
            LinkState::Lost => !self.keeps_lost || self.is_discarded.load(Ordering::Acquire),
            _ => false,
        }
    }

    /// The same with its file on the disk, in which there is nothing but the link's origin.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) async fn begun(mut self) -> Result<Self, Error> {
        apart(move || self.replace(&[]).map(|()| self)).await
    }

    /// Nothing was written for a while: until the next change its file need not be open.
    fn rest(&self) {
        if let Some(log) = &self.log {
            log.rest();
        }
    }

    /// Removes the file.
    pub(crate) async fn remove(self) {
        let removed = spawn_blocking(move || self.log.map_or(Ok(()), Log::remove)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(code = "relink.state_left", %error, "a journal could not be removed");
        }
    }

    async fn write(mut self, changes: Vec<Change>) -> Result<Self, Error> {
        apart(move || {
            let ends = self.note_ends(&changes);
            match &mut self.log {
                Some(log) => {
                    let mut group = [encoded(&changes), ends].concat();
                    self.carried.write_news(&mut group);
                    log.append(&group)
                }
                None => self.replace(&changes),
            }
            .map(|()| self)
        })
        .await
    }

    async fn rewrite(mut self, (ended, changes): Whole, idle: bool) -> Result<Self, Error> {
        apart(move || {
            self.note_ends(&ended);
            self.replace(&changes)?;
            if idle {
                self.idle_bytes = self.compact_bytes;
            }
            Ok(self)
        })
        .await
    }

    /// The peer's channels that end with these changes: every message of their lives is durable, and none of
    /// a later life can be. Answers the records of it.
    fn note_ends(&mut self, changes: &[Change]) -> Vec<u8> {
        let mut records = Vec::new();
        let Some(landing) = &self.landing else {
            return records;
        };
        for change in changes {
            if let Change::Closed {
                side: Side::Incoming,
                channel,
            } = change
            {
                let position = landing.durable();
                record::encode_end(channel, position, &mut records);
                self.ends.insert(channel.clone(), position);
            }
        }
        records
    }

    /// Puts these changes in the place of all that were written.
    fn replace(&mut self, changes: &[Change]) -> std::io::Result<()> {
        let mut head = Vec::new();
        self.origin.encode(&mut head);
        record::encode(&Change::Established(self.key), &mut head);
        self.carried.write(&mut head);
        let mut groups = vec![head];
        groups.extend(changes.chunks(GROUP_CHANGES).map(encoded));
        if let Some(landing) = &self.landing {
            let settled = landing.settled();
            self.ends.retain(|_, end| *end > settled);
        }
        let mut ends = Vec::new();
        for (channel, position) in &self.ends {
            record::encode_end(channel, *position, &mut ends);
        }
        groups.push(ends);
        let log = Log::replace(&self.file, &groups)?;
        self.compact_bytes = log.len();
        self.log = Some(log);
        Ok(())
    }

    /// Whether the file is twice as long as after the last rewriting or, if `idle`, the last idle one.
    fn is_long(&self, idle: bool) -> bool {
        let before = if idle {
            self.idle_bytes
        } else {
            self.compact_bytes
        };
        self.is_over(COMPACT_FROM.max(before.saturating_mul(2)))
    }

    fn is_over(&self, bytes: u64) -> bool {
        self.log.as_ref().is_some_and(|log| log.len() > bytes)
    }
}

/// The changes that wait, as many as one write takes.
fn take(host: &mut impl LinkHost) -> Poll<Vec<Change>> {
    let machine = host.machine_mut();
    let (mut changes, mut bytes) = (Vec::new(), 0_usize);
    while bytes < WRITE_BYTES {
        let Some(change) = machine.poll_journal() else {
            break;
        };
        if let Change::Sent { payload, .. } = &change {
            bytes = bytes.saturating_add(payload.bytes());
        }
        bytes = bytes.saturating_add(RECORD_BYTES);
        changes.push(change);
    }
    if changes.is_empty() {
        return Poll::Pending;
    }
    Poll::Ready(changes)
}

/// Whether every message of this side is consumed.
fn is_idle(host: &impl LinkHost) -> bool {
    host.machine().channels().all(|(_, waiting)| waiting == 0)
}

/// All of the link; the changes that wait are in it.
fn whole(host: &mut impl LinkHost) -> Whole {
    let machine = host.machine_mut();
    let waiting = std::iter::from_fn(|| machine.poll_journal());
    let ended = waiting.filter(|change| matches!(change, Change::Closed { .. }));
    (ended.collect(), machine.snapshot())
}

fn encoded(changes: &[Change]) -> Vec<u8> {
    let mut group = Vec::new();
    for change in changes {
        record::encode(change, &mut group);
    }
    group
}

/// Writes beside the runtime's workers.
async fn apart(
    write: impl FnOnce() -> std::io::Result<Journal> + Send + 'static,
) -> Result<Journal, Error> {
    match spawn_blocking(write).await {
        Ok(written) => written.map_err(Error::unkept),
        Err(error) => Err(Error::unkept(error)),
    }
}

/// The directory of a listener.
pub(crate) struct ListenerState {
    dir: Arc<StateDir>,
    epoch: u64,
    landing: Option<Arc<dyn Landing>>,
}

impl ListenerState {
    /// Holds the directory; answers the links in it.
    ///
    /// # Errors
    /// It is held by another process, or its contents cannot be read.
    pub(crate) fn open(
        dir: &Path,
        endpoints: &[EndpointConfig],
        options: &LinkOptions,
    ) -> Result<(Self, Vec<Restored>), Error> {
        let dir = Arc::new(hold(dir)?);
        let path = dir.path().join("listener.journal");
        let (mut log, kept) = Log::open(&path).map_err(Error::state)?;
        let epoch = if let Some(group) = kept.groups.last() {
            epoch_in(group)
                .ok_or_else(|| Error::state(format!("{}: it cannot be read", path.display())))?
        } else {
            let epoch = epoch_now();
            // Versions that counted their link ids read the next one behind the epoch.
            let group = [epoch.to_le_bytes(), 1_u64.to_le_bytes()].concat();
            log.append(&group).map_err(Error::state)?;
            epoch
        };
        let mut links = Vec::new();
        for file in files(dir.path())? {
            if let Some(restored) = Journal::restore(&dir, &file, Role::Listener, options)? {
                serves(endpoints, restored.journal.origin(), &file)?;
                links.push(restored);
            }
        }
        let state = Self {
            dir,
            epoch,
            landing: None,
        };
        Ok((state, links))
    }

    /// The epoch of all processes that use this directory.
    pub(crate) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The journal of a new link.
    pub(crate) fn journal(&self, key: LinkKey, origin: Origin) -> Journal {
        let name = format!("link-{}.journal", key.link_id);
        let mut journal = Journal::new(&self.dir, self.dir.path().join(name), key, origin);
        journal.landing.clone_from(&self.landing);
        journal
    }
}

/// A link whose endpoint is gone would stay for ever, and nobody could have it.
fn serves(endpoints: &[EndpointConfig], origin: &Origin, file: &Path) -> Result<(), Error> {
    let is_its = |one: &EndpointConfig| {
        one.endpoint_name == origin.endpoint_name && one.parameters == origin.parameters
    };
    if endpoints.iter().any(is_its) {
        return Ok(());
    }
    Err(Error::state(format!(
        "{}: it holds a link of endpoint {:?}, which is not served with the same channel id sizes and \
         transactions: serve it, or remove the file",
        file.display(),
        origin.endpoint_name.as_str()
    )))
}

/// The directory of a connector.
pub(crate) struct ConnectorState {
    dir: Arc<StateDir>,
    is_discarded: Arc<AtomicBool>,
}

impl ConnectorState {
    /// Holds the directory; answers the link in it, which must be one to this endpoint.
    ///
    /// # Errors
    /// It is held by another process, or its contents are another link's or cannot be read.
    pub(crate) fn open(
        dir: &Path,
        origin: &Origin,
        options: &LinkOptions,
    ) -> Result<(Self, Option<Restored>), Error> {
        let dir = Arc::new(hold(dir)?);
        let file = dir.path().join(CONNECTOR);
        let is_discarded = Arc::default();
        let mut restored = None;
        if file.exists() {
            restored = Journal::restore(&dir, &file, Role::Connector, options)?;
        }
        if let Some(restored) = &mut restored {
            if restored.journal.origin() != origin {
                let name = &restored.journal.origin().endpoint_name;
                return Err(Error::state(format!(
                    "{}: it holds a link to endpoint {name} with its own channel id sizes and transactions",
                    file.display()
                )));
            }
            restored.journal.keeps_lost = true;
            restored.journal.is_discarded = Arc::clone(&is_discarded);
        }
        let state = Self { dir, is_discarded };
        Ok((state, restored))
    }

    /// The journal of a new link.
    pub(crate) fn journal(&self, key: LinkKey, origin: Origin) -> Journal {
        let mut journal = Journal::new(&self.dir, self.dir.path().join(CONNECTOR), key, origin);
        journal.keeps_lost = true;
        journal.is_discarded = Arc::clone(&self.is_discarded);
        journal
    }

    /// Removes everything that is kept of a link that is over.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn discard(&self) -> Result<(), Error> {
        // A write that is under way may make the file anew: the writer removes it then.
        self.is_discarded.store(true, Ordering::Release);
        match fs::remove_file(self.dir.path().join(CONNECTOR)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::state(error)),
            _ => Ok(()),
        }
    }
}

const CONNECTOR: &str = "link.journal";

/// The directory, for this process alone.
fn hold(dir: &Path) -> Result<StateDir, Error> {
    StateDir::hold(dir).map_err(|error| match error {
        SpoolError::Locked { dir, pid } => Error::state(format!(
            "state directory {} is in use by process {pid}: links have one user at a time",
            dir.display()
        )),
        other => Error::state(other),
    })
}

/// The journals of links.
fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::state)? {
        let path = entry.map_err(Error::state)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with("link-") && name.ends_with(".journal")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn epoch_in(group: &[u8]) -> Option<u64> {
    let (epoch, rest) = group.split_first_chunk()?;
    (rest.len() == 8).then(|| u64::from_le_bytes(*epoch))
}

/// A new epoch: microseconds since 1970, which no two starts of a listener share.
pub(crate) fn epoch_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(1, |since| since.as_micros());
    u64::try_from(micros).unwrap_or(1).max(1)
}

/// Bytes of changes that are written at once.
const WRITE_BYTES: usize = 16 << 20;
/// Bytes that a change takes beside its payload, about.
const RECORD_BYTES: usize = 32;
/// Changes of one group of a rewritten journal.
const GROUP_CHANGES: usize = 1_024;
/// After so long without a change a journal's file is closed.
const REST_AFTER: Duration = Duration::from_secs(10);
/// A journal shorter than this is not rewritten.
const COMPACT_FROM: u64 = 1 << 20;

#[cfg(test)]
mod tests;
