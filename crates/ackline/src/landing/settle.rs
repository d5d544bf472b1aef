//! From a kept block back to its link: which windows may be acknowledged now.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ackline_core::locked;
use ackline_link::Link;
use ackline_spool::{Settle, SpoolError};

use super::report::{Acked, Report};
use super::shares::{Share, Turn};
use crate::ingest::{Ingest, Landable};
use crate::repeats::{Span, Trail};

/// Blocks of one link that the spool holds and has not settled, in the order they were appended.
pub(super) struct LinkSettle<I: Ingest> {
    link: Link<I::Machine>,
    pending: Mutex<VecDeque<Pending>>,
    next_token: AtomicU64,
    trail: Arc<Trail>,
    /// Nobody is left to be told. Set under the lock of `pending`.
    is_gone: AtomicBool,
    report: Arc<Report>,
    /// Its part of its sender's share of the spool; `None` where nothing is kept.
    share: Option<Share>,
}

struct Pending {
    token: u64,
    events: u64,
    /// On the disk, about; 0 once it is written.
    bytes: u64,
    /// Its place in the writer's queue, until it is written.
    turn: Option<Turn>,
    windows: Vec<u64>,
    has_landed: bool,
    /// Its link had ended when it landed: that is counted.
    is_missed: bool,
}

impl<I: Ingest> LinkSettle<I> {
    pub(super) fn new(
        link: Link<I::Machine>,
        trail: Arc<Trail>,
        report: Arc<Report>,
        share: Option<Share>,
    ) -> Self {
        Self {
            link,
            pending: Mutex::default(),
            next_token: AtomicU64::new(0),
            trail,
            is_gone: AtomicBool::new(false),
            report,
            share,
        }
    }

    pub(super) const fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    /// Registers the next block to be appended; returns the token that settles its windows.
    pub(super) fn expect(
        &self,
        (events, bytes): (u64, u64),
        turn: Option<Turn>,
        windows: Vec<u64>,
    ) -> u64 {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.trail.appended();
        locked(&self.pending).push_back(Pending {
            token,
            events,
            bytes,
            turn,
            windows,
            has_landed: false,
            is_missed: false,
        });
        token
    }

    /// The link has ended: durable blocks that wait for a commit will not be told.
    pub(super) fn gone(&self) {
        let mut pending = locked(&self.pending);
        self.is_gone.store(true, Ordering::Release);
        for one in pending.iter_mut().filter(|one| one.has_landed) {
            self.missed(one);
        }
    }

    /// Counts a block that is durable and that nobody can be told of, once.
    fn missed(&self, one: &mut Pending) {
        if !std::mem::replace(&mut one.is_missed, true) {
            self.report.landed_unacked(one.windows.len(), one.events);
        }
    }

    /// Windows that are not settled yet.
    #[cfg(test)]
    fn unsettled(&self) -> usize {
        locked(&self.pending)
            .iter()
            .map(|one| one.windows.len())
            .sum()
    }

    /// Windows that are durable and wait for a commit, and the events in them.
    pub(crate) fn uncommitted(&self) -> (u64, u64) {
        let pending = locked(&self.pending);
        let landed = pending.iter().filter(|one| one.has_landed);
        landed.fold((0, 0), |(windows, events), one| {
            (windows + one.windows.len() as u64, events + one.events)
        })
    }

    /// Removes and returns the blocks of these tokens. Blocks with earlier tokens may stay: they wait for a commit.
    fn take(&self, tokens: &[u64]) -> Vec<Pending> {
        let mut pending = locked(&self.pending);
        let mut taken = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while taken.len() < tokens.len() && at < pending.len() {
            let is_told = pending
                .get(at)
                .is_some_and(|one| tokens.contains(&one.token));
            if is_told {
                taken.extend(pending.remove(at));
            } else {
                at += 1;
            }
        }
        taken
    }
}

impl<I: Ingest> Settle for LinkSettle<I> {
    fn placed(&self, token: u64, first: u64) {
        let mut pending = locked(&self.pending);
        let mut block = pending.iter_mut().find(|one| one.token == token);
        let bytes = block.as_mut().map(|one| {
            one.turn = None;
            std::mem::take(&mut one.bytes)
        });
        let number = |of: u64| u32::try_from(of).unwrap_or(u32::MAX);
        let size = block.map(|one| (number(one.events), number(one.windows.len() as u64)));
        drop(pending);
        let (events, windows) = size.unwrap_or_default();
        if let (Some(share), Some(bytes)) = (&self.share, bytes) {
            share.stored(bytes, first.saturating_add(events.into()));
        }
        self.trail.placed(Span {
            first,
            events,
            windows,
        });
    }

    fn settle(&self, tokens: &[u64]) {
        let kept = self.take(tokens);
        let mut untold = if self.link.is_ended() {
            kept
        } else {
            self.link.call(|machine, now| {
                let mut untold = Vec::new();
                for one in kept {
                    // A connection that is over refuses all the windows of a block alike.
                    let settled = one
                        .windows
                        .iter()
                        .map(|window| machine.settle(now, *window));
                    if settled.fold(true, |all, is_told| all & is_told) {
                        // Counted before the sender can see it.
                        self.report
                            .acked(Acked::Landed, one.windows.len(), one.events);
                    } else {
                        untold.push(one);
                    }
                }
                untold
            })
        };
        for one in &mut untold {
            self.missed(one);
        }
    }

    fn landed(&self, tokens: &[u64]) {
        let mut windows = Vec::new();
        let mut pending = locked(&self.pending);
        let is_gone = self.is_gone.load(Ordering::Acquire);
        for one in pending.iter_mut() {
            if tokens.contains(&one.token) && !std::mem::replace(&mut one.has_landed, true) {
                windows.extend_from_slice(&one.windows);
                if is_gone {
                    self.missed(one);
                }
            }
        }
        drop(pending);
        if !self.link.is_ended() {
            self.link.call(|machine, now| {
                for window in &windows {
                    machine.landed(now, *window);
                }
            });
        }
    }

    fn failed(&self, error: &SpoolError) {
        let left = std::mem::take(&mut *locked(&self.pending));
        self.trail.failed();
        if let Some(share) = &self.share {
            share.give_back(left.iter().map(|one| one.bytes).sum());
        }
        for one in left.iter().filter(|one| !one.is_missed) {
            self.report.abandoned(one.windows.len(), one.events);
        }
        self.report.spool_failed(error);
        if !matches!(error, SpoolError::Closed) {
            tracing::error!(code = "receiver.spool_failed", %error, "connection ended without an ack");
        }
        self.link.abort();
    }
}

#[cfg(test)]
mod tests {
    use ackline_core::Connection as _;
    use ackline_lumberjack::{Event, Reader, ReaderConfig};
    use bytes::BytesMut;

    use super::*;
    use crate::lumberjack::WindowIngest;

    /// A link that has handed on `windows` windows of one event, each appended as a block.
    fn link_with(windows: u8) -> (Link<Reader>, LinkSettle<WindowIngest>, Arc<Report>) {
        let link = Link::new(Reader::new(ReaderConfig::bare()));
        let report = Arc::<Report>::default();
        let settle = LinkSettle::new(
            link.clone(),
            Arc::new(Trail::new(0, 0)),
            Arc::clone(&report),
            None,
        );
        for _ in 0..windows {
            let mut input = BytesMut::from(&b"2W\0\0\0\x012J\0\0\0\x01\0\0\0\x02{}"[..]);
            let event = link.call(|machine, now| {
                machine.receive(now, &mut input).unwrap();
                machine.poll_event()
            });
            if let Some(Event::Window(window)) = event {
                settle.expect((1, 12), None, vec![window.id]);
            }
        }
        (link, settle, report)
    }

    #[test]
    fn a_block_is_acknowledged_by_its_own_token_alone() {
        let (link, settle, report) = link_with(3);
        settle.settle(&[1]);
        assert_eq!(link.call(|machine, _| machine.unacknowledged()), 2);
        assert_eq!(settle.unsettled(), 2);
        settle.settle(&[0, 2]);
        assert_eq!(link.call(|machine, _| machine.unacknowledged()), 0);
        assert_eq!(report.counters().acked.acked_events, 3);
    }

    #[test]
    fn what_has_landed_is_let_go_and_counted_once() {
        let (link, settle, report) = link_with(2);
        settle.landed(&[0]);
        settle.landed(&[0]);
        assert_eq!(link.call(|machine, _| machine.held_bytes()), 12);
        assert_eq!((settle.uncommitted(), settle.unsettled()), ((1, 1), 2));
        assert_eq!(
            (
                report.counters().acked.landed,
                report.counters().acked.acked_events
            ),
            (0, 0)
        );
        settle.settle(&[0, 1]);
        assert_eq!(
            (
                report.counters().acked.landed,
                report.counters().acked.acked_events
            ),
            (2, 2)
        );
        assert_eq!(settle.uncommitted(), (0, 0));
    }

    #[tokio::test]
    async fn windows_that_are_settled_together_are_acknowledged_by_one_write() {
        use std::pin::Pin;
        use std::sync::mpsc;
        use std::task::{Context, Poll};
        use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

        /// A transport on which nothing comes and that tells of each write.
        struct Writes(mpsc::Sender<Vec<u8>>);

        impl AsyncRead for Writes {
            fn poll_read(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
                _: &mut ReadBuf<'_>,
            ) -> Poll<std::io::Result<()>> {
                Poll::Pending
            }
        }

        impl AsyncWrite for Writes {
            fn poll_write(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<std::io::Result<usize>> {
                let _ = self.0.send(bytes.to_vec());
                Poll::Ready(Ok(bytes.len()))
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<std::io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }

        let (link, settle, _) = link_with(5);
        let (told, writes) = mpsc::channel();
        let drive = tokio::spawn({
            let link = link.clone();
            async move { link.drive(Writes(told)).await.end }
        });
        settle.settle(&[0, 1, 2, 3, 4]);
        link.call(Reader::stop);
        while link.call(|machine, _| machine.stats().acked_windows) < 5 {
            tokio::task::yield_now().await;
        }
        link.abort();
        drive.await.unwrap();
        let all: Vec<_> = writes.iter().collect();
        assert_eq!(all, [b"2A\0\0\0\x01".repeat(5)]);
    }

    #[tokio::test]
    async fn a_disk_that_failed_ends_the_link_without_an_acknowledgement() {
        use tokio::io::AsyncReadExt as _;
        let (link, settle, report) = link_with(1);
        let (ours, mut peer) = tokio::io::duplex(64);
        let driving = tokio::spawn({
            let link = link.clone();
            async move { link.drive(ours).await.end }
        });
        settle.failed(&SpoolError::Closed);
        let deadline = std::time::Duration::from_secs(20);
        let driven = tokio::time::timeout(deadline, driving).await;
        let end = driven.expect("the link ends").unwrap();
        assert!(matches!(end, ackline_link::End::Aborted), "{end}");
        drop(link);
        let mut sent = Vec::new();
        peer.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent, b"");
        assert_eq!(
            (settle.unsettled(), report.counters().acked.acked_events),
            (0, 0)
        );
        assert_eq!(report.counters().received.unacked, 0);
    }
}
