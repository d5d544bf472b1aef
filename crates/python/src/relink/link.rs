//! A link that survives its connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackline::core::Sequence;
use ackline::relink::{ChannelId, Error, Event, Interest, Link, Mark, Marks, Ping, Session, Stats};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::payload::{channel_of, messages, parts_of, sequence_of};
use super::raised::{raised, unless_blocked};
use super::{RelinkMessage, RelinkReceipt};
use crate::dicts::{attributes, set_fields};
use crate::loop_waker::{LoopWaker, Standing};
use crate::payloads::PayloadBatch;
use crate::runtime::Owned;
use crate::waits::waits;
use crate::{errors, runtime};

/// See `_relink_core.pyi`.
#[pyclass(frozen, module = "ackline._core")]
pub(crate) struct RelinkLink {
    /// `None` once the link was let go.
    link: Owned<Mutex<Option<Link>>>,
    /// Whether the link is kept on disk.
    keeps: bool,
    /// Bytes of the ids of this end's channels, and of the peer's.
    own_id_size: u8,
    peer_id_size: u8,
    handed: Arc<Mutex<Option<Handed>>>,
    /// The reason why the link was over when it was let go.
    over: Mutex<Option<Error>>,
    /// The number that tells its messages from those of the process's other links.
    number: u64,
}

/// Links that were made in this process.
static LINKS: AtomicU64 = AtomicU64::new(0);

/// The result of a hand-over: once it is a state, it stays.
type Handed = Result<Vec<u8>, Error>;
type Settle = fn(&Link, &ChannelId, Option<Sequence>) -> Result<Sequence, Error>;
/// An event's name, its channel, and its number.
type Told<'py> = (&'static str, Option<Bound<'py, PyBytes>>, Option<u32>);
/// A name, an identity, attributes, and the endpoint that was asked for.
type Peer<'py> = (String, String, Bound<'py, PyDict>, String);
/// A decision's channel, `commit` or `rollback`, and the last message that it covers.
type Decision<'py> = (Bound<'py, PyBytes>, &'static str, u32);

#[pymethods]
impl RelinkLink {
    /// Sends the one message now, once on each channel; `None` without room.
    fn try_send(
        &self,
        py: Python<'_>,
        channels: &Bound<'_, PyList>,
        message: &PayloadBatch,
    ) -> PyResult<Option<Vec<RelinkReceipt>>> {
        let link = self.sending()?;
        let [payload] = message.payloads() else {
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
        let receipts = unless_blocked(sent)?;
        Ok(receipts.map(|receipts| receipts.into_iter().map(RelinkReceipt::new).collect()))
    }

    /// Sends the messages of a batch from `start` on, as many as there is room for: returns how many, and the last
    /// one's receipt.
    fn try_send_many(
        &self,
        py: Python<'_>,
        channel: &Bound<'_, PyAny>,
        batch: &PayloadBatch,
        start: usize,
    ) -> PyResult<(usize, Option<RelinkReceipt>)> {
        let link = self.sending()?;
        let channel = channel_of(channel, self.own_id_size)?;
        let payloads = batch.payloads().get(start..).unwrap_or_default();
        let sent = py.detach(|| {
            link.driven()
                .call(|session, now| session.send_run(now, &channel, payloads))
        });
        let (taken, last) = unless_blocked(sent)?.unwrap_or_default();
        Ok((taken, last.map(RelinkReceipt::new)))
    }

    /// The messages that are there, up to `max`; `None` when no more can come.
    fn try_receive<'py>(
        &self,
        py: Python<'py>,
        max: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let link = self.get()?;
        let received = py.detach(|| link.try_receive_many(max));
        // An iteration ends if the link is closed here meanwhile, even if messages are lost by that.
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
        let sizes = [self.peer_id_size, self.own_id_size];
        let channel = channel_of(channel, sizes[usize::from(is_own)])?;
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
            let verb = ["rollback", "commit"][usize::from(decided.is_commit)];
            let channel = PyBytes::new(py, decided.channel.as_bytes());
            (channel, verb, decided.through.0)
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

    /// Sends a ping; pass the returned pair to `pong` and `wait`.
    fn ping(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let link = self.get()?;
        let ping = py.detach(|| link.driven().call(Session::ping));
        let ping = ping.map_err(raised)?;
        Ok((ping.pongs, ping.transports))
    }

    /// Seconds from a ping to its pong, once that is there; raises if it cannot come any more.
    fn pong(&self, py: Python<'_>, ping: (u64, u64)) -> PyResult<Option<f64>> {
        let (link, ping) = (self.get()?, ping_of(ping));
        let answer = py.detach(|| link.driven().call(|session, _| session.pong(ping)));
        let answer = answer.map_err(raised)?;
        Ok(answer.map(|time| time.as_secs_f64()))
    }

    /// Opens no more channels and closes the open ones.
    fn begin_shutdown(&self, py: Python<'_>) -> PyResult<()> {
        let link = self.sending()?;
        py.detach(|| link.begin_shutdown()).map_err(raised)
    }

    /// Raises the reason why the link is over, if it is.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let link = self.sending()?;
        let over = py.detach(|| link.driven().call(|session, _| session.over().cloned()));
        over.map_or(Ok(()), |over| Err(raised(over)))
    }

    /// Lets the link go: it ends in this process.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        let handle = runtime::handle(py)?;
        py.detach(|| {
            let _inside = handle.enter();
            // This is done under the lock: a thread that finds the link gone then also finds the reason.
            let mut link = self.link.lock()?;
            if let Some(link) = link.take() {
                // This also ends the waits of other threads on the link.
                link.let_go();
                *slot(&self.over) = link.driven().call(|session, _| session.over().cloned());
            }
            Ok(())
        })
    }

    /// Lets the link go when its peer has everything; returns its state, for another process.
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

    /// Does the same without waiting; `handed_over` returns the result.
    fn hand_over_async(&self, py: Python<'_>, waker: &LoopWaker) -> PyResult<Option<Standing>> {
        waker.wait(py, self.handing()?)
    }

    /// Returns the state of a link that was handed over; `None` if it was not.
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
        Ok(self.link.lock()?.is_none())
    }

    /// Whether it is kept on disk.
    #[getter]
    fn keeps(&self) -> bool {
        self.keeps
    }

    /// Messages sent and not acknowledged as consumed: channel, number, parts.
    fn unacknowledged<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let link = self.sending()?;
        let left = py.detach(|| link.driven().call(|session, _| session.unacknowledged()));
        let left = left.iter().map(|one| {
            let channel = PyBytes::new(py, one.channel.as_bytes());
            (channel, one.sequence.0, parts_of(py, &one.payload))
        });
        PyList::new(py, left)
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
        let Some(link) = self.link.lock()?.clone() else {
            return Ok("closed");
        };
        let state = py.detach(|| link.driven().call(|session, _| session.state()));
        Ok(state.name())
    }

    #[getter]
    fn is_connected(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(link) = self.link.lock()?.clone() else {
            return Ok(false);
        };
        Ok(py.detach(|| link.is_connected()))
    }

    /// Name, identity and attributes of the connecting peer, and the endpoint; only at the listener's end.
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Option<Peer<'py>>> {
        let link = self.get()?;
        let Some(peer) = link.peer() else {
            return Ok(None);
        };
        let endpoint = link.endpoint_name().unwrap_or_default().to_owned();
        Ok(Some((
            peer.name.to_string(),
            peer.sender.to_string(),
            attributes(py, peer)?,
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
    pub(super) fn new(link: Link, keeps: bool) -> Self {
        let (own_id_size, peer_id_size) = link.driven().call(|session, _| {
            let config = session.machine().config();
            (config.own_channel_id_size(), config.peer_channel_id_size())
        });
        Self {
            link: Owned::new(Mutex::new(Some(link))),
            keeps,
            own_id_size,
            peer_id_size,
            handed: Arc::default(),
            over: Mutex::default(),
            number: LINKS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Hands the link over, unless that was done: a wait that is cancelled just as it ends loses nothing.
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

    /// Like `get`, for callers that need the outcome of messages they sent: if the link was lost when it was let go,
    /// the error has the unacknowledged messages.
    fn sending(&self) -> PyResult<Link> {
        self.get().map_err(|gone| match &*slot(&self.over) {
            Some(lost @ Error::Lost(_)) => raised(lost.clone()),
            _ => gone,
        })
    }

    fn get(&self) -> PyResult<Link> {
        let link = self.link.lock()?.clone();
        link.ok_or_else(|| {
            if matches!(*slot(&self.handed), Some(Ok(_))) {
                return raised(Error::HandedOver);
            }
            errors::closed("the link was closed here")
        })
    }

    /// How often each channel is named: one alone, or a list.
    fn counted(&self, channels: &Bound<'_, PyAny>) -> PyResult<HashMap<ChannelId, u32>> {
        let mut counts: HashMap<_, u32> = HashMap::new();
        let channels = match channels.cast::<PyList>() {
            Ok(list) => list.iter().collect(),
            Err(_) => vec![channels.clone()],
        };
        for channel in channels {
            let channel = channel_of(&channel, self.own_id_size)?;
            let count = counts.entry(channel).or_default();
            *count = count.saturating_add(1);
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
        let interest = match interest {
            "kept" => None,
            "message" => Some(Interest::Message),
            "decision" => Some(Interest::Decision),
            "event" => Some(Interest::Event),
            "connected" => Some(Interest::Connected),
            "end" => Some(Interest::End),
            "pong" => Some(Interest::Pong(ping_of(ping))),
            "acknowledged" => Some(Interest::Acknowledged),
            "room" => {
                let channel = channel
                    .ok_or_else(|| errors::usage("channel", "room is waited for on a channel"))?;
                Some(Interest::RoomFor {
                    counts: self.counted(channel)?,
                    bytes: size,
                })
            }
            _ => return Err(errors::usage("interest", "there is no such interest")),
        };
        Ok(async move {
            // Letting the link go ends this too.
            match interest {
                Some(interest) => link.ready(interest).await,
                None => drop(link.kept(None).await),
            }
        })
    }
}

waits!(
    RelinkLink(interest: &str)
    [channel: Option<&Bound<'_, PyAny>> = None, size: usize = 0, ping: (u64, u64) = (0, 0)],
    |it, py| it.ready(interest, channel, size, ping)
);

fn ping_of((pongs, transports): (u64, u64)) -> Ping {
    Ping { pongs, transports }
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
