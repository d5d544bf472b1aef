//! One connection's part: the windows that it lands are remembered, the windows that it sends are compared.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ackline_core::locked;
use ackline_link::Taking;
use tokio::time::Instant;

use super::base::Base;
use super::judge::{Course, Judge, Kept};
use super::sender::Sender;
use super::trail::Trail;
use super::{LOOK_EVERY, Repeats};

/// A connection of a sender.
pub(crate) struct Member {
    repeats: Arc<Repeats>,
    name: Arc<str>,
    link: Arc<str>,
    trail: Arc<Trail>,
    /// Known from its first window on; `None` if it is not followed.
    sender: OnceLock<Option<Arc<Sender>>>,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    is_comparing: bool,
    /// The sender's epoch when it was looked at.
    seen: u64,
    course: Course,
}

impl Member {
    /// Of the sender of this name, on this link.
    pub(crate) fn new(
        repeats: &Arc<Repeats>,
        (name, link): (&Arc<str>, &Arc<str>),
        trail: &Arc<Trail>,
    ) -> Self {
        Self {
            repeats: Arc::clone(repeats),
            name: Arc::clone(name),
            link: Arc::clone(link),
            trail: Arc::clone(trail),
            sender: OnceLock::new(),
            progress: Mutex::default(),
        }
    }

    /// Returns the judge that compares the windows to be landed now; `None`, without looking at anything,
    /// when there is nothing to compare them with. Until [`landed`](Self::landed) no other connection of the
    /// sender compares. `is_over` says that nobody waits any more.
    pub(crate) async fn judge(&self, is_over: impl Fn() -> bool) -> Option<Judge> {
        // Until it is known that they are compared.
        self.trail.set_handing(true);
        let sender = self.sender(&is_over).await?;
        if !self.is_comparing(sender) {
            return None;
        }
        self.trail.set_handing(false);
        self.look_at(sender, &is_over).await;
        if !sender.is_few() {
            if !sender.has_others(&self.trail) && self.goes_on() {
                self.trail.set_handing(true);
                return None;
            }
            sender.is_comparing(&self.trail);
        }
        self.wait_finished(sender, &is_over).await;
        self.wait_placed(sender, &is_over).await;
        let later = sender.later(&self.trail);
        let mut base = Arc::clone(&sender.base).lock_owned().await;
        if sender.is_few() {
            // The blocks that others compared meanwhile are on their way.
            self.wait_placed(sender, &is_over).await;
            for other in &later {
                self.wait_one_placed(other, &is_over).await;
            }
        }
        if !sender.has_others(&self.trail) && later.is_empty() {
            self.stop_comparing(sender, &mut base);
            self.trail.set_handing(true);
            return None;
        }
        let before = base.len();
        let wanted = sender.wanted(&mut base, &self.trail);
        self.repeats.count(before, base.len());
        if !wanted.is_empty() {
            base = self.repeats.read(base, wanted, &self.name).await?;
        }
        let later = self.repeats.read_later(later, &self.name).await;
        let digester = self.repeats.digester.clone();
        let course = std::mem::take(&mut locked(&self.progress).course);
        let judge = Judge::new((base, later), digester, course);
        if self.trail.is_over() {
            // The next one of the sender need not wait until these are durable.
            return Some(judge.keeping(self.trail.reached()));
        }
        Some(judge)
    }

    /// The windows, compared or not, were handed to the spool.
    pub(crate) fn landed(&self, judge: Option<Judge>) {
        self.trail.set_handing(false);
        let (Some(mut judge), Some(Some(sender))) = (judge, self.sender.get()) else {
            return;
        };
        if let Some(Kept { from, blocks, .. }) = judge.take_kept()
            && self.trail.reached() == from + blocks.len() as u64
        {
            self.trail.know(from, blocks);
        }
        let ((_, repeats), is_done) = (judge.counts(), judge.is_done());
        locked(&self.progress).course = judge.take_course();
        if is_done {
            self.stop_comparing(sender, judge.base());
        } else if repeats > 0 {
            // Where one repeat came, the next one may come by another of its connections.
            locked(&self.progress).seen = sender.found();
        }
    }

    /// The connection is over; in order, if its peer had taken all that was sent to it before it ended. Of
    /// several calls the first one counts.
    pub(crate) fn end(&self, in_order: bool) {
        if self.trail.end(in_order) && in_order && self.trail.reached() > 0 {
            self.repeats.ends.note(&self.link);
        }
        if let Some(Some(sender)) = self.sender.get() {
            sender.leave(&self.trail);
        }
    }

    /// Everything it handed on was handed to the spool.
    pub(crate) fn finish(&self) {
        self.end(false);
        self.trail.finish();
    }

    async fn sender(&self, is_over: impl Fn() -> bool) -> Option<&Arc<Sender>> {
        if let Some(known) = self.sender.get() {
            return known.as_ref();
        }
        let joined = self.repeats.join(&self.name, &self.trail).await;
        if let Some((sender, is_comparing)) = &joined {
            *locked(&self.progress) = Progress {
                is_comparing: *is_comparing,
                seen: sender.epoch(),
                course: Course {
                    enough: ENOUGH,
                    ..Course::default()
                },
            };
        }
        let sender = joined.map(|(sender, _)| sender);
        let sender = self.sender.get_or_init(|| sender).as_ref();
        if self.trail.is_ended() {
            // It ended before it was known here.
            self.end(false);
        }
        if let Some(sender) = sender
            && (!sender.is_few() || sender.has_open(&self.trail))
        {
            wait_seen(is_over).await;
        }
        sender
    }

    /// Whether, with nothing to compare with now, the end of another connection may still be seen: one
    /// that is compared with those that have ended goes on for as many windows as the others.
    fn goes_on(&self) -> bool {
        let mut progress = locked(&self.progress);
        progress.course.quiet += 1;
        progress.course.quiet < progress.course.enough
    }

    /// Whether it compares, again after a change.
    fn is_comparing(&self, sender: &Sender) -> bool {
        let mut progress = locked(&self.progress);
        let epoch = sender.epoch();
        if epoch != progress.seen && sender.is_few() {
            let enough = if progress.is_comparing {
                progress.course.enough
            } else {
                ENOUGH_OPEN
            };
            progress.is_comparing = true;
            progress.seen = epoch;
            progress.course.quiet = 0;
            progress.course.unmatched = 0;
            progress.course.enough = enough;
            sender.is_comparing(&self.trail);
        }
        progress.is_comparing
    }

    fn stop_comparing(&self, sender: &Sender, base: &mut Base) {
        {
            let mut progress = locked(&self.progress);
            progress.is_comparing = false;
            progress.course = Course::default();
        }
        let before = base.len();
        sender.is_quiet(&self.trail, base);
        self.repeats.count(before, base.len());
    }

    /// Finds the other open connections that are cut off although nobody knows: their peers take none of the
    /// bytes that are sent to them. One whose end has come is waited for.
    async fn look_at(&self, sender: &Sender, is_over: impl Fn() -> bool) {
        let begun = Instant::now();
        let is_few = sender.is_few();
        let mut open = sender.open(&self.trail);
        if !is_few {
            // Open ones are not compared with.
            open.retain(|other| other.taking() == Taking::Ended);
            open.shrink_to_fit();
        }
        let mut looks: Vec<_> = open.into_iter().map(|other| (other, None)).collect();
        // One whose own end has come is waited for by others.
        while !looks.is_empty() && !is_over() && !self.trail.is_over() {
            looks.retain_mut(|(other, before)| {
                let known = is_stalled(other, before, begun.elapsed());
                if let Some(known) = known {
                    other.set_stalled(known);
                }
                known.is_none() && other.taking() != Taking::Unknown
            });
            if !looks.is_empty() {
                let pause = if is_few { LOOK_EVERY } else { SEEN_TURN };
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Waits until the blocks that ended connections handed on have landed. Of two such connections the later
    /// one waits, so that no two wait for each other.
    async fn wait_finished(&self, sender: &Sender, is_over: impl Fn() -> bool) {
        let is_before = |other: &Trail| {
            let is_earlier = other.id < self.trail.id || !self.trail.is_ended();
            is_earlier && other.is_ended() && !other.is_finished()
        };
        let mut below = u64::MAX;
        // The last one has waited for most of the others.
        while let Some((number, other)) = sender.unsettled_below(below, &self.trail, is_before)
            && !is_over()
        {
            let is_so = || !is_before(&other);
            other.until(&self.trail, is_so, &is_over).await;
            below = number;
        }
    }

    /// Waits until the blocks that others have handed to the spool can be compared with.
    async fn wait_placed(&self, sender: &Sender, is_over: impl Fn() -> bool) {
        let is_behind = |other: &Trail| !other.is_comparable(other.reached());
        let mut below = u64::MAX;
        while let Some((number, other)) = sender.unsettled_below(below, &self.trail, is_behind)
            && !is_over()
        {
            let reached = other.reached();
            let is_so = || other.is_comparable(reached);
            other.until(&self.trail, is_so, &is_over).await;
            below = number;
        }
        for other in sender.stalled(&self.trail) {
            self.wait_one_placed(&other, &is_over).await;
        }
    }

    /// Waits until the blocks that another one has handed to the spool are durable. The spool keeps the order
    /// of one sender: blocks that wait here would not be durable earlier.
    async fn wait_one_placed(&self, other: &Trail, is_over: impl Fn() -> bool) {
        let reached = other.reached();
        let is_so = || other.has_placed(reached);
        other.until(&self.trail, is_so, is_over).await;
    }
}

/// Whether another open connection's peer takes nothing, once that is known. `before` is how much it had not
/// taken at the first look.
fn is_stalled(other: &Trail, before: &mut Option<u64>, waited: Duration) -> Option<bool> {
    match other.taking() {
        Taking::All => Some(false),
        Taking::Waits(left) if before.is_some_and(|before| left < before) => Some(false),
        Taking::Waits(left) => {
            before.get_or_insert(left);
            (waited >= TAKEN_WITHIN).then_some(true)
        }
        Taking::Ended => (waited >= ENDED_WITHIN).then_some(true),
        Taking::Unknown => None,
    }
}

/// Lets the ends be seen that came before this connection and still wait in their sockets. In several turns:
/// each of them lets the runtime look at all of its sockets, however busy it is.
async fn wait_seen(is_over: impl Fn() -> bool) {
    for _ in 0..SEEN_TURNS {
        if is_over() {
            return;
        }
        tokio::time::sleep(SEEN_TURN).await;
    }
}

/// 50 ms, once for each new connection of a sender with many.
const SEEN_TURNS: u32 = 5;
const SEEN_TURN: Duration = Duration::from_millis(10);
/// For how long bytes stay untaken until their peer is taken for one that is gone. Bytes that wait together
/// with the next bytes for an answer are taken within 40 ms and the way there and back.
const TAKEN_WITHIN: Duration = Duration::from_millis(250);
/// For how long the end of a connection, which has come, is waited for while the input before it is read.
const ENDED_WITHIN: Duration = Duration::from_secs(2);
/// Whole windows in a row that match nothing after which a new connection is taken to send new events.
const ENOUGH: u32 = 3;
/// The same for one that was open when another one began or ended: its windows in flight come first.
const ENOUGH_OPEN: u32 = 16;
