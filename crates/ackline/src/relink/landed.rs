//! The agreement of a receiver's links with its spool after a crash: a message is consumed because it is
//! durable, and the spool says whether it is durable.
//!
//! ```text
//! message ─► spool, fsync ─► consumed ─► link's journal, fsync ─► the sender is told
//!                        └── a crash here: the journal is behind, the spool is not
//! ```
//!
//! At a start each link's journal is brought up to the messages of it that the spool holds
//! ([`found`](super::found)), so that a message that was kept and not acknowledged is not asked for again. It
//! reads the blocks from the *settled* position on, which the file `settled` holds: everything below is in
//! the journals. A channel that is closed and used again counts from 0 anew; the journal holds the position
//! where its last life ends in the spool.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use ackline_link::Link;
use ackline_relink::LinkKey;
use ackline_spool::Writer;

use super::link_host::LinkHost;
use super::state::Landing;

/// The spool that the messages of a receiver's links are landed in.
pub(crate) struct Landed {
    writer: Writer,
    /// Everything below is in the journals of its links.
    settled: AtomicU64,
    file: PathBuf,
}

impl Landed {
    /// With the settled position that an earlier process left in `dir`.
    pub(super) fn open(dir: &Path, writer: Writer) -> Self {
        let file = dir.join("settled");
        let found = fs::read_to_string(&file).ok();
        // Without it all that is kept is looked at.
        let settled = found.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        Self {
            writer,
            settled: AtomicU64::new(settled),
            file,
        }
    }

    /// Moves the settled position on as far as is known, once.
    pub(super) async fn settle(self: &Arc<Self>, links: &[Link<impl LinkHost>]) {
        let durable = self.durable();
        if durable <= self.settled() {
            return;
        }
        let writer = self.writer.clone();
        let flushed = tokio::task::spawn_blocking(move || writer.flush(PATIENCE)).await;
        if !flushed.unwrap_or(false) {
            return;
        }
        // Every message that was settled by now has been noted for the journal.
        for link in links {
            let written = link.when(0, |host, _| {
                if host.machine().is_journaling() {
                    return Poll::Pending;
                }
                Poll::Ready(())
            });
            let written = tokio::time::timeout(PATIENCE, written).await;
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
        }
        let temporary = self.file.with_extension("new");
        let written = fs::write(&temporary, durable.to_string())
            .and_then(|()| fs::rename(&temporary, &self.file));
        match written {
            Ok(()) => self.settled.store(durable, Ordering::Release),
            Err(error) => {
                tracing::debug!(code = "relink.unsettled", %error, "the next start looks at more blocks");
            }
        }
    }
}

impl Landing for Landed {
    fn durable(&self) -> u64 {
        self.writer.stats().durable
    }

    fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }
}

/// The name of a link, as blocks have it.
pub(super) fn link_name(endpoint: &str, key: LinkKey) -> String {
    format!("{endpoint}/{}/{}", key.epoch, key.link_id)
}

/// How long the disk may take before the settled position stays where it is.
const PATIENCE: Duration = Duration::from_secs(2);
