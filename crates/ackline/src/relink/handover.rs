//! A link that goes on in another process, without its messages: its state as bytes, and the link again.
//!
//! ```text
//! this process: send ─► all emitted ─► ping, pong: all received ─► state ─► let go
//! another one:                                                      └─► dial, resume ─► decide on them
//! ```
//!
//! The state names the link and how far each channel is. It is small, and holds no message: the peer has
//! them. A peer that has lost them says so at the resume, and the link is lost.

use std::task::Poll;
use std::time::Duration;

use ackline_core::UsageError;
use ackline_link::{Budget, Link as Driven};
use ackline_relink::frame::Role;
use ackline_relink::{self as machine, ChannelId, Error, LinkKey};
use tokio::time::Instant;

use super::connector::{Connected, Connector, Failed};
use super::interest::Wait;
use super::link::{Link, Side, within};
use super::link_host::LinkHost as _;
use super::options::ConnectOptions;
use super::receipt::Receipt;
use super::session::Session;
use ackline_relink::record::{self, Origin, Record};

impl Link {
    /// Lets the link go so that another process can go on with it: its state, a few dozen bytes for each open
    /// channel, for [`adopt`](super::adopt). Waits until the peer has everything that was sent; in a
    /// direction without transactions, until it has consumed it. The link is over here then, and its peer
    /// keeps it as one whose connector is away, as long as it keeps such links.
    ///
    /// # Errors
    /// [`Error::Timeout`]: the link goes on here. [`Error::Usage`]: it is the listener's end
    /// (`not_connector`), it is kept on disk (`journaled`), it or a channel is being shut down
    /// (`shutting_down`, `channel_closing`), or a message that came in was not consumed (`unconsumed`). The
    /// link is over.
    pub async fn hand_over(&self, timeout: Option<Duration>) -> Result<Vec<u8>, Error> {
        let Side::Connector {
            running, origin, ..
        } = &self.inner.end
        else {
            return Err(NOT_CONNECTOR.into());
        };
        let handing = async {
            loop {
                if let Some(changes) = self.handed_over().await? {
                    return Ok(changes);
                }
            }
        };
        let changes = within(timeout, handing).await?;
        running.abort();
        self.driven().abort();
        Ok(encode(origin, &changes))
    }

    /// Waits until the peer has everything, on one transport; `None` if that went meanwhile.
    async fn handed_over(&self) -> Result<Option<Vec<machine::Change>>, Error> {
        let (transports, wanted) = self
            .wait(Wait::Change, None, |session, now| {
                let is_plain = !session.machine().config().parameters.connector_transactions;
                let waits = is_plain && session.machine().unacknowledged().next().is_some();
                if !session.machine().is_emitted() || waits {
                    return Poll::Pending;
                }
                if let Err(refused) = session.machine().hand_over() {
                    return Poll::Ready(Err(refused.into()));
                }
                let pongs = session.pongs() + session.machine().pings_unanswered() + 1;
                match session.verb(|machine| machine.ping(now)) {
                    Ok(()) => Poll::Ready(Ok((session.stats().link.transports, pongs))),
                    Err(error) => Poll::Ready(Err(error)),
                }
            })
            .await?;
        self.wait(Wait::Change, None, |session, _| {
            let is_same = session.stats().link.transports == transports;
            // Messages that were sent meanwhile have to arrive as well.
            let is_whole = session.machine().is_emitted();
            if !is_same || !session.machine().is_attached() || !is_whole {
                return Poll::Ready(Ok(None));
            }
            if session.pongs() < wanted {
                return Poll::Pending;
            }
            let state = session.machine().hand_over();
            if state.is_ok() {
                session.fail(Error::HandedOver);
            }
            Poll::Ready(state.map(Some).map_err(Error::from))
        })
        .await
    }

    /// The receipt of the last message of an own channel that is open; `None` where it has none. In a link that
    /// is kept on disk also of one that an earlier process sent, and that is consumed: its number is the last
    /// one that was kept, so that an application can go on with the next. A channel that is closed begins
    /// again at 0, and so does a new link, which has another [key](Self::key).
    pub fn last_receipt(&self, channel: &ChannelId) -> Option<Receipt> {
        self.call(|session, _| session.last_receipt(channel))
    }

    /// Goes on with a link that another process has handed over.
    pub(super) async fn adopt(
        url: &str,
        mut options: ConnectOptions,
        state: &[u8],
    ) -> Result<Self, Error> {
        if options.state.is_some() {
            return Err(ON_DISK.into());
        }
        let (origin, changes) = decode(state)?;
        options.parameters = origin.parameters;
        let connector = Connector::new(url, options)?;
        if connector.origin() != origin {
            return Err(OTHER_ENDPOINT.into());
        }
        let options = connector.options();
        let config = options
            .link
            .machine(Role::Connector, origin.parameters, false);
        let machine = machine::Link::restore(config, changes).map_err(|_| WRONG_STATE)?;
        let machine = connector.asking(machine);
        let key = machine.key();
        let session = Session::new(machine, options.link.send_bytes);
        let (started, timeout) = (Instant::now(), options.timeout);
        let first = match connector.first(Some(key)).await {
            Ok(dialled) => dialled,
            Err(Failed::Lost(reason)) => return Err(lost(session, reason)),
            Err(Failed::Passing(error)) => return Err(error),
        };
        let link = Driven::with_budget(session, Budget::new(options.memory));
        let link = Self::connected(Connected {
            link,
            state: None,
            connector,
            first: Some(first),
        });
        // Until then it is not known whether the peer still has the messages.
        let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        link.wait(Wait::Change, left, |session, _| {
            match session.stats().link.resumes {
                0 => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        })
        .await?;
        Ok(link)
    }
}

/// Why a link could not be gone on with.
fn lost(mut session: Session, reason: &'static str) -> Error {
    session.lose(std::time::Instant::now(), reason);
    session.over().cloned().unwrap_or(Error::Closed)
}

/// The key of the link that a state belongs to, for messages.
///
/// # Errors
/// `wrong_state`: the bytes are no such state.
pub fn state_key(state: &[u8]) -> Result<LinkKey, Error> {
    let (_, changes) = decode(state)?;
    match changes.first() {
        Some(machine::Change::Established(key)) => Ok(*key),
        _ => Err(WRONG_STATE.into()),
    }
}

fn encode(origin: &Origin, changes: &[machine::Change]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    origin.encode(&mut out);
    for change in changes {
        record::encode(change, &mut out);
    }
    let check = crc32c::crc32c(&out);
    out.extend_from_slice(&check.to_le_bytes());
    out
}

fn decode(state: &[u8]) -> Result<(Origin, Vec<machine::Change>), Error> {
    let whole = state.split_last_chunk::<4>().filter(|(front, check)| {
        front.starts_with(MAGIC) && crc32c::crc32c(front) == u32::from_le_bytes(**check)
    });
    let (front, _) = whole.ok_or(WRONG_STATE)?;
    let mut input = front.get(MAGIC.len()..).unwrap_or_default();
    let origin = Origin::decode(&mut input).ok_or(WRONG_STATE)?;
    let records = record::decode_all(input).ok_or(WRONG_STATE)?.into_iter();
    let changes = records.map(|record| match record {
        Record::Change(change) => Ok(change),
        _ => Err(WRONG_STATE.into()),
    });
    Ok((origin, changes.collect::<Result<_, Error>>()?))
}

/// The head of a state, with the version of the bytes behind it.
const MAGIC: &[u8] = b"ackline relink state 1\n";
const WRONG_STATE: UsageError = UsageError::new(
    "wrong_state",
    "this is no state of a link that was handed over, or not one of this version",
);
const OTHER_ENDPOINT: UsageError = UsageError::new(
    "other_endpoint",
    "the state is of a link with another endpoint, channel id sizes or transactions",
);
const NOT_CONNECTOR: UsageError = UsageError::new(
    "not_connector",
    "only the connector's end of a link can be handed over",
);
const ON_DISK: UsageError = UsageError::new(
    "journaled",
    "a link that is handed over cannot be kept on disk: leave state away",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relink::options::{PARAMETERS, endpoint_name};

    #[test]
    fn a_state_that_was_changed_anywhere_is_refused() {
        let origin = Origin {
            endpoint_name: endpoint_name("orders").unwrap(),
            parameters: PARAMETERS,
            owner: None,
        };
        let key = LinkKey {
            epoch: 7,
            link_id: 9,
        };
        let state = encode(&origin, &[machine::Change::Established(key)]);
        assert_eq!(state_key(&state).unwrap(), key);
        for at in 0..state.len() {
            let mut other = state.clone();
            other[at] ^= 1;
            assert_eq!(state_key(&other).unwrap_err().code(), "wrong_state");
            assert_eq!(state_key(&state[..at]).unwrap_err().code(), "wrong_state");
        }
        assert_eq!(state_key(&[]).unwrap_err().code(), "wrong_state");
    }
}
