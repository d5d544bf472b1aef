//! A link that survives its connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use ackline::core::{Sequence, UsageError};
use ackline::relink::{ChannelId, Error, Event, Interest, Link, Mark, Marks, Session, Stats};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::payload::{channel_of, messages, sequence_of};
use super::raised::raised;
use super::{RelinkBatch, RelinkMessage, RelinkReceipt};
use crate::dicts::set_fields;
use crate::loop_waker::{LoopWaker, Standing};
use crate::runtime::Owned;
use crate::{errors, runtime};

/// See `_relink_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkLink {
    /// `None` once it was let go.
    link: Owned<Mutex<Option<Link>>>,
    /// Whether it is kept on disk.
    keeps: bool,
    /// Bytes of the ids of this end's channels, and of the peer's.
    own_id_size: u8,
    peer_id_size: u8,
    /// Payload bytes that may wait for their acknowledgement.
    send_bytes: usize,
    handed: Arc<Mutex<Option<Handed>>>,
    /// Why it was over when it was let go.
    over: Mutex<Option<Error>>,
    /// What tells its messages from those of the process's other links.
    number: u64,
}

/// Links that were made in this process.
static LINKS: AtomicU64 = AtomicU64::new(0);

/// What a hand-over has come to: once it has a state, for ever.
type Handed = Result<Vec<u8>, Error>;
type Settle = fn(&Link, &ChannelId, Option<Sequence>) -> Result<Sequence, Error>;
/// What happened, on which channel, and its number.
type Told<'py> = (&'static str, Option<Bound<'py, PyBytes>>, Option<u32>);
/// A name, an identity, attributes, and the endpoint that was asked for.
type Peer<'py> = (String, String, Bound<'py, PyDict>, String);
/// On which channel, what, and through which message.
type Decision<'py> = (Bound<'py, PyBytes>, &'static str, u32);

#[pymethods]
impl RelinkLink {
    /// Sends the one message now, once on each channel; `None` without room.
    fn try_send(
        &self,
        py: Python<'_>,
        channels: &Bound<'_, PyList>,
        message: &RelinkBatch,
    ) -> PyResult<Option<Vec<RelinkReceipt>>> {
        let link = self.sending()?;
        let [payload] = message.payloads.as_slice() else {
            return Err(errors::usage("payload", "this takes one message"));
        };
        let channels = channels
            .iter()
            .map(|one| channel_of(&one, self.own_id_size));
        let channels = channels.collect::<PyResult<Vec<_>>>()?;
        let sent = py.detach(|| {
            link.driven()
                .call(|session, now| session.send(now, &channels, payload))
        });
        match sent {
            Ok(receipts) => Ok(Some(receipts.into_iter().map(RelinkReceipt::new).collect())),
            Err(Error::Blocked) => Ok(None),
            Err(error) => Err(raised(error)),
        }
    }

    /// Sends the messages of a batch from `start` on for which there is room: how many, and the last one's
    /// receipt.
    fn try_send_many(
        &self,
        py: Python<'_>,
        channel: &Bound<'_, PyAny>,
        batch: &RelinkBatch,
        start: usize,
    ) -> PyResult<(usize, Option<RelinkReceipt>)> {
        let link = self.sending()?;
        let channel = channel_of(channel, self.own_id_size)?;
        let payloads = batch.payloads.get(start..).unwrap_or_default();
        let sent = py.detach(|| {
            link.driven()
                .call(|session, now| session.send_run(now, &channel, payloads))
        });
        match sent {
            Ok((taken, last)) => Ok((taken, last.map(RelinkReceipt::new))),
            Err(Error::Blocked) => Ok((0, None)),
            Err(error) => Err(raised(error)),
        }
    }

    /// The messages that are there, up to `max`; `None` when no more can come.
    fn try_receive<'py>(
        &self,
        py: Python<'py>,
        max: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let link = self.get()?;
        let received = py.detach(|| link.try_receive_many(max));
        // An iteration ends where the link is closed here meanwhile, whatever is lost by that.
        let received =
            received.map_err(|error| self.get().err().unwrap_or_else(|| raised(error)))?;
        let made = |received| messages(py, received, self.number);
        received.map(made).transpose()
    }

    fn consume(
        &self,
        py: Python<'_>,
        channel: &Bound<'_, PyAny>,
        through: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let link = self.get()?;
        let channel = channel_of(channel, self.peer_id_size)?;
        let through = sequence_of(through)?;
        py.detach(|| link.consume(&channel, through))
            .map_err(raised)
    }

    /// Consumes each of these messages, and those before them on their channels.
    fn consume_many(&self, py: Python<'_>, messages: &Bound<'_, PyList>) -> PyResult<()> {
        let link = self.get()?;
        let mut marks = Marks::default();
        let mut run: Option<(Bound<'_, RelinkMessage>, Mark, Mark)> = None;
        for message in messages {
            let message = message.cast_into::<RelinkMessage>()?;
            message.get().check_link(py, self.number)?;
            let mark = message.get().mark();
            match &mut run {
                Some((before, _, newest))
                    if before.get().is_beside(message.get()) && newest.place < mark.place =>
                {
                    *newest = mark;
                }
                _ => {
                    if let Some((before, oldest, newest)) = run.replace((message, mark, mark)) {
                        marks.add(before.get().id(py), oldest, newest);
                    }
                }
            }
        }
        if let Some((last, oldest, newest)) = run {
            marks.add(last.get().id(py), oldest, newest);
        }
        let consumed = py.detach(|| {
            link.driven()
                .call(|session, now| session.consume_all(now, &marks))
        });
        consumed.map_err(raised)
    }

    /// Decides on own messages (`is_own`), or answers the peer's decisions.
    fn settle(
        &self,
        py: Python<'_>,
        verb: &str,
        is_own: bool,
        channel: &Bound<'_, PyAny>,
        through: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u32> {
        let (link, through) = (self.get()?, through.map(sequence_of).transpose()?);
        let verb: Settle = match verb {
            "commit" => Link::commit,
            "rollback" => Link::rollback,
            "committed" => Link::committed,
            "uncommitted" => Link::uncommitted,
            _ => return Err(errors::usage("verb", "there is no such verb")),
        };
        let size = if is_own {
            self.own_id_size
        } else {
            self.peer_id_size
        };
        let channel = channel_of(channel, size)?;
        let last = py.detach(|| verb(&link, &channel, through));
        last.map(|last| last.0).map_err(raised)
    }

    fn notify_received(&self, py: Python<'_>, channel: &Bound<'_, PyAny>) -> PyResult<()> {
        let link = self.get()?;
        let channel = channel_of(channel, self.peer_id_size)?;
        py.detach(|| link.notify_received(&channel)).map_err(raised)
    }

    fn close_channel(&self, py: Python<'_>, channel: &Bound<'_, PyAny>) -> PyResult<()> {
        let link = self.get()?;
        let channel = channel_of(channel, self.own_id_size)?;
        py.detach(|| link.close_channel(&channel)).map_err(raised)
    }

    /// The next decision of the peer's.
    fn try_decided<'py>(&self, py: Python<'py>) -> PyResult<Option<Decision<'py>>> {
        let link = self.get()?;
        let decided = py.detach(|| link.driven().call(|session, _| session.decided()));
        let decided = decided.map_err(raised)?;
        Ok(decided.map(|decided| {
            let what = if decided.is_commit {
                "commit"
            } else {
                "rollback"
            };
            let channel = PyBytes::new(py, decided.channel.as_bytes());
            (channel, what, decided.through.0)
        }))
    }

    /// The next event.
    fn try_event<'py>(&self, py: Python<'py>) -> PyResult<Option<Told<'py>>> {
        let link = self.get()?;
        let event = py.detach(|| link.driven().call(|session, _| session.event()));
        let id = |channel: &ChannelId| Some(PyBytes::new(py, channel.as_bytes()));
        Ok(event.map_err(raised)?.and_then(|event| {
            Some(match event {
                Event::Connected { resumed: false } => ("connected", None, None),
                Event::Connected { resumed: true } => ("reconnected", None, None),
                Event::Disconnected => ("disconnected", None, None),
                Event::Resumed => ("resumed", None, None),
                Event::Closing { channel } => ("closing", id(&channel), None),
                Event::Closed {
                    channel,
                    unacknowledged,
                } => ("closed", id(&channel), Some(unacknowledged)),
                Event::PeerShutdown => ("peer_shutdown", None, None),
                _ => return None,
            })
        }))
    }

    /// Sends a ping; what `pong` and `wait` want to know of it.
    fn ping(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let link = self.get()?;
        let pinged = py.detach(|| {
            link.driven().call(|session, now| {
                session.verb(|machine| machine.ping(now))?;
                Ok((session.pongs().0, session.stats().link.transports))
            })
        });
        pinged.map_err(raised)
    }

    /// Seconds from a ping to its pong, once that is there; raises if it cannot come any more.
    fn pong(&self, py: Python<'_>, ping: (u64, u64)) -> PyResult<Option<f64>> {
        let link = self.get()?;
        let answer = py.detach(|| link.driven().call(|session, _| pong(session, ping)));
        let answer = answer.map_err(raised)?;
        Ok(answer.map(|time| time.as_secs_f64()))
    }

    /// Opens no more channels and closes the open ones.
    fn begin_shutdown(&self, py: Python<'_>) -> PyResult<()> {
        let link = self.sending()?;
        py.detach(|| link.begin_shutdown()).map_err(raised)
    }

    /// Raises why the link is over, if it is.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let link = self.sending()?;
        let over = py.detach(|| link.driven().call(|session, _| session.over().cloned()));
        over.map_or(Ok(()), |over| Err(raised(over)))
    }

    /// Waits for `interest`; takes nothing.
    #[pyo3(signature = (interest, timeout, channel = None, size = 0, ping = (0, 0)))]
    fn wait(
        &self,
        py: Python<'_>,
        interest: &str,
        timeout: Option<f64>,
        channel: Option<&Bound<'_, PyAny>>,
        size: usize,
        ping: (u64, u64),
    ) -> PyResult<bool> {
        let timeout = runtime::seconds("timeout", timeout)?;
        let ready = self.ready(interest, channel, size, ping)?;
        Ok(runtime::block_on(py, timeout, ready)?.is_some())
    }

    /// The same in the event loop of `waker`; `None` if it is there.
    #[pyo3(signature = (interest, waker, channel = None, size = 0, ping = (0, 0)))]
    fn wait_async(
        &self,
        py: Python<'_>,
        interest: &str,
        waker: &LoopWaker,
        channel: Option<&Bound<'_, PyAny>>,
        size: usize,
        ping: (u64, u64),
    ) -> PyResult<Option<Standing>> {
        waker.wait(py, self.ready(interest, channel, size, ping)?)
    }

    /// Lets the link go: it ends in this process.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        let handle = runtime::handle(py)?;
        py.detach(|| {
            let _inside = handle.enter();
            // Under the lock: who finds it gone finds why.
            let mut link = self.lock()?;
            if let Some(link) = link.take() {
                // Also for who waits on it in another thread.
                link.let_go();
                *slot(&self.over) = link.driven().call(|session, _| session.over().cloned());
            }
            Ok(())
        })
    }

    /// Lets the link go when its peer has everything: its state, for another process.
    fn hand_over<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let timeout = runtime::seconds("timeout", timeout)?;
        runtime::block_on(py, timeout, self.handing()?)?;
        let state = self.handed_over(py)?;
        state.ok_or_else(|| raised(Error::Timeout))
    }

    /// The same without waiting; what came of it is for `handed_over`.
    fn hand_over_async(&self, py: Python<'_>, waker: &LoopWaker) -> PyResult<Option<Standing>> {
        waker.wait(py, self.handing()?)
    }

    /// The state of a link that was handed over; `None` if it was not.
    fn handed_over<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut handed = slot(&self.handed);
        if let Some(Ok(state)) = &*handed {
            return Ok(Some(PyBytes::new(py, state)));
        }
        let failed = handed.take().and_then(Result::err);
        failed.map_or(Ok(None), |error| Err(raised(error)))
    }

    /// The receipt of the last message on an own channel that is not over.
    fn last_receipt(
        &self,
        py: Python<'_>,
        channel: &Bound<'_, PyAny>,
    ) -> PyResult<Option<RelinkReceipt>> {
        let link = self.get()?;
        let channel = channel_of(channel, self.own_id_size)?;
        let receipt = py.detach(|| link.last_receipt(&channel));
        Ok(receipt.map(RelinkReceipt::new))
    }

    /// How many changes of the link there were.
    fn noted(&self, py: Python<'_>) -> PyResult<u64> {
        let link = self.sending()?;
        link.check_durable().map_err(raised)?;
        let noted = |session: &mut Session| session.machine().changes_noted();
        Ok(py.detach(|| link.driven().call(|session, _| noted(session))))
    }

    /// Whether so many of them are on disk; raises if they cannot be any more.
    fn is_kept(&self, py: Python<'_>, noted: u64) -> PyResult<bool> {
        let link = self.sending()?;
        let (kept, over) = py.detach(|| {
            link.driven().call(|session, _| {
                let kept = session.machine().changes_kept() >= noted;
                (kept, session.over().cloned())
            })
        });
        match over {
            Some(over) if !kept => Err(raised(over)),
            _ => Ok(kept),
        }
    }

    /// Gives the link up, also on disk.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        let link = self.get()?;
        py.detach(|| link.discard()).map_err(raised)
    }

    /// Whether it was let go.
    #[getter]
    fn is_gone(&self) -> PyResult<bool> {
        Ok(self.lock()?.is_none())
    }

    /// Whether it is kept on disk.
    #[getter]
    fn keeps(&self) -> bool {
        self.keeps
    }

    /// Messages sent and not acknowledged as consumed: channel, number, parts.
    fn unacknowledged<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let link = self.sending()?;
        let left: Vec<_> = py.detach(|| {
            link.driven().call(|session, _| {
                let left = session.machine().unacknowledged();
                left.map(|(channel, sequence, payload)| {
                    (channel.clone(), sequence, payload.clone())
                })
                .collect()
            })
        });
        let list = PyList::empty(py);
        for (channel, sequence, payload) in left {
            let parts = payload.as_slice().iter().map(|part| PyBytes::new(py, part));
            let parts: Vec<_> = parts.collect();
            list.append((PyBytes::new(py, channel.as_bytes()), sequence.0, parts))?;
        }
        Ok(list)
    }

    /// Epoch and link id.
    #[getter]
    fn key(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let link = self.get()?;
        let key = py.detach(|| link.key());
        Ok((key.epoch, key.link_id))
    }

    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<&'static str> {
        let Some(link) = self.lock()?.clone() else {
            return Ok("closed");
        };
        let state = py.detach(|| link.driven().call(|session, _| session.state()));
        Ok(state.name())
    }

    #[getter]
    fn is_connected(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(link) = self.lock()?.clone() else {
            return Ok(false);
        };
        Ok(py.detach(|| link.is_connected()))
    }

    /// Name, identity and attributes of who made it, and the endpoint; at the listener's end.
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Option<Peer<'py>>> {
        let link = self.get()?;
        let Some(peer) = link.peer() else {
            return Ok(None);
        };
        let attributes = PyDict::new(py);
        for (name, value) in &peer.attributes {
            attributes.set_item(&**name, &**value)?;
        }
        let endpoint = link.endpoint_name().unwrap_or_default().to_owned();
        Ok(Some((
            peer.name.to_string(),
            peer.sender.to_string(),
            attributes,
            endpoint,
        )))
    }

    /// The listener's limits as it has told them, and why it refuses a transaction.
    #[getter]
    fn told(&self, py: Python<'_>) -> PyResult<Limits> {
        let link = self.get()?;
        let told = py.detach(|| link.told());
        let refused = told.refused.map(|reason| reason.to_string());
        let (bytes, window) = (told.transaction_bytes, told.receive_window);
        Ok((bytes, window, told.message_bytes, refused))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let link = self.get()?;
        let stats = py.detach(|| link.stats());
        stats_dict(py, &stats)
    }
}

impl RelinkLink {
    pub(super) fn new(link: Link, keeps: bool, send_bytes: usize) -> Self {
        let (own_id_size, peer_id_size) = link.driven().call(|session, _| {
            let config = session.machine().config();
            (config.own_channel_id_size(), config.peer_channel_id_size())
        });
        Self {
            link: Owned::new(Mutex::new(Some(link))),
            keeps,
            own_id_size,
            peer_id_size,
            send_bytes,
            handed: Arc::default(),
            over: Mutex::default(),
            number: LINKS.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, Option<Link>>> {
        let link = self.link.get()?;
        Ok(link.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hands the link over, unless that was done: a wait that was cut short at the end has lost nothing.
    fn handing(&self) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let handed = Arc::clone(&self.handed);
        let is_done = matches!(*slot(&handed), Some(Ok(_)));
        let link = if is_done { None } else { Some(self.get()?) };
        Ok(async move {
            if let Some(link) = link {
                let state = link.hand_over(None).await;
                *slot(&handed) = Some(state);
            }
        })
    }

    /// As `get`, for who is owed an answer of what was sent: one that was lost when it was let go says what
    /// was not acknowledged.
    fn sending(&self) -> PyResult<Link> {
        self.get().map_err(|gone| match &*slot(&self.over) {
            Some(lost @ Error::Lost(_)) => raised(lost.clone()),
            _ => gone,
        })
    }

    fn get(&self) -> PyResult<Link> {
        let link = self.lock()?.clone();
        link.ok_or_else(|| {
            if matches!(*slot(&self.handed), Some(Ok(_))) {
                return raised(Error::HandedOver);
            }
            errors::closed("the link was closed here")
        })
    }

    /// How often each channel is named: one alone, or a list.
    fn counted(&self, channels: &Bound<'_, PyAny>) -> PyResult<HashMap<ChannelId, u32>> {
        let mut counts = HashMap::new();
        let mut count = |channel: &Bound<'_, PyAny>| -> PyResult<()> {
            let count: &mut u32 = counts
                .entry(channel_of(channel, self.own_id_size)?)
                .or_default();
            *count = count.saturating_add(1);
            Ok(())
        };
        match channels.cast::<PyList>() {
            Ok(list) => list.iter().try_for_each(|channel| count(&channel))?,
            Err(_) => count(channels)?,
        }
        Ok(counts)
    }

    fn ready(
        &self,
        interest: &str,
        channel: Option<&Bound<'_, PyAny>>,
        size: usize,
        ping: (u64, u64),
    ) -> PyResult<impl Future<Output = ()> + Send + use<>> {
        let link = match interest {
            "acknowledged" | "room" | "end" => self.sending()?,
            _ => self.get()?,
        };
        let kind = match interest {
            "message" => Wait::Ready(Interest::Message),
            "decision" => Wait::Ready(Interest::Decision),
            "event" => Wait::Ready(Interest::Event),
            "connected" => Wait::Ready(Interest::Connected),
            "end" => Wait::Ready(Interest::End),
            "pong" => Wait::Pong(ping),
            "kept" => Wait::Kept,
            "acknowledged" => Wait::Acknowledged,
            "room" => {
                let channel = channel
                    .ok_or_else(|| errors::usage("channel", "room is waited for on a channel"))?;
                Wait::Room(self.counted(channel)?, size, self.send_bytes)
            }
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        Ok(async move {
            // Who lets the link go ends this too.
            match kind {
                Wait::Ready(what) => link.ready(what).await,
                Wait::Kept => drop(link.kept(None).await),
                Wait::Room(channels, bytes, most) => {
                    until(&link, |session| has_room(session, &channels, bytes, most)).await;
                }
                Wait::Pong(ping) => {
                    let answered = |session: &mut Session| !matches!(pong(session, ping), Ok(None));
                    until(&link, answered).await;
                }
                Wait::Acknowledged => {
                    let is_done = |session: &mut Session| {
                        session.over().is_some()
                            || session.machine().unacknowledged().next().is_none()
                    };
                    until(&link, is_done).await;
                }
            }
        })
    }
}

/// What a wait waits for.
enum Wait {
    Ready(Interest),
    /// For so many messages on each of these channels, for so many bytes, of so many at the most.
    Room(HashMap<ChannelId, u32>, usize, usize),
    Pong((u64, u64)),
    Kept,
    /// That everything sent is acknowledged as consumed.
    Acknowledged,
}

/// Waits until it is so, or the link has ended.
async fn until(link: &Link, is_so: impl Fn(&mut Session) -> bool) {
    let waited = link.driven().when(0, |session, _| {
        if is_so(session) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    let _ = waited.await;
}

/// Whether a message would be taken, or refused for good.
fn has_room(
    session: &Session,
    channels: &HashMap<ChannelId, u32>,
    bytes: usize,
    most: usize,
) -> bool {
    let waiting = session.stats().unacknowledged_bytes;
    let fits = waiting == 0 || waiting.saturating_add(bytes) <= most;
    let machine = session.machine();
    let mut wanted = channels.iter();
    session.over().is_some()
        || (fits && wanted.all(|(channel, count)| machine.send_room(channel) >= *count))
}

/// How long the pong took, once it is there.
fn pong(session: &Session, (before, transports): (u64, u64)) -> Result<Option<Duration>, Error> {
    let (pongs, round_trip) = session.pongs();
    if pongs > before {
        return Ok(Some(round_trip));
    }
    if let Some(over) = session.over() {
        return Err(over.clone());
    }
    let is_same = session.stats().link.transports == transports;
    if is_same && session.machine().is_attached() {
        return Ok(None);
    }
    Err(UsageError::new("not_connected", "the transport went before the pong came").into())
}

/// Bytes of a transaction, messages of a window, bytes of a message, and why a transaction is refused.
type Limits = (Option<u64>, Option<u64>, Option<u64>, Option<String>);

fn stats_dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let link = &stats.link;
    set_fields!(
        dict,
        link,
        messages_sent,
        bytes_sent,
        messages_sent_again,
        messages_received,
        bytes_received,
        messages_skipped,
        transports,
        resumes,
        channels_outgoing,
        channels_incoming
    );
    set_fields!(dict, stats, unacknowledged_bytes, waiting, missed_events);
    Ok(dict)
}

fn slot<T>(slot: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
