//! The connector's side: makes a link, and a transport for it whenever it has none.
//!
//! ```text
//! dial ─► handshake ─► attached ─► transport gone ─► wait ─► dial …
//!                └── the listener does not know the link ─► lost
//! ```

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ackline_core::Connection as _;
use ackline_link::{Address, Backoff, Budget, Driven, End, Endpoint, Jitter, Link, Stream};
use ackline_relink::frame::Role;
use ackline_relink::{
    self as machine, Attach, ConnectorConfig, Error, Failures, Handshake, HandshakeEvent, Kind,
    LinkKey,
};
use tokio::time::{Instant, sleep, timeout};

use super::link_host::{LinkHost, counted_from, resumes, violation};
use super::options::{ConnectOptions, endpoint_name};
use super::session::Session;
use super::state::{ConnectorState, Origin, Restored};
use super::url::Target;

/// The maker of a link's transports.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) endpoint: Endpoint,
    config: ConnectorConfig,
    options: ConnectOptions,
}

/// A connector's link, and the parts that keep it connected.
pub(super) struct Connected {
    pub(super) link: Link<Session>,
    pub(super) state: Option<Arc<ConnectorState>>,
    pub(super) connector: Connector,
    /// The first transport; a link of an earlier process has none yet.
    pub(super) first: Option<Dialled>,
}

/// A transport whose handshake is done.
pub(super) struct Dialled {
    driven: Driven<Stream, Kind>,
    key: LinkKey,
    resumed: bool,
    /// Bytes that the handshake took.
    bytes: u64,
}

pub(super) enum Failed {
    Lost(&'static str),
    Passing(Error),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Lost(reason) => Self::Connect(reason.into()),
            Failed::Passing(error) => error,
        }
    }
}

impl Connector {
    /// Reads URL and options, and the files of TLS.
    pub(super) fn new(url: &str, mut options: ConnectOptions) -> Result<Self, Error> {
        let url = options.with_url(url)?;
        let mut target = Target::parse(&url).map_err(Error::url)?;
        let endpoint = &mut target.endpoint;
        Endpoint::fill(std::slice::from_mut(endpoint), &options.tls).map_err(Error::url)?;
        endpoint.client().map_err(|error| Error::Tls {
            code: error.code(),
            message: error.to_string().into(),
        })?;
        let is_chosen = |address: &Address| !matches!(address, Address::Tcp(_, 0));
        if !endpoint.addresses.iter().all(is_chosen) {
            return Err(Error::url(format!(
                "{endpoint} has port 0, on which nobody listens: give the listener's port"
            )));
        }
        options.parameters = target.wanted.with(options.parameters).map_err(Error::url)?;
        let name = endpoint_name(&target.name).map_err(Error::url)?;
        Ok(Self {
            endpoint: target.endpoint,
            config: ConnectorConfig {
                require_old_link_id: true,
                handshake_timeout: Some(options.handshake_timeout),
                wants_hints: options.wants_hints,
                ..ConnectorConfig::new(name, options.parameters)
            },
            options,
        })
    }

    pub(super) const fn options(&self) -> &ConnectOptions {
        &self.options
    }

    pub(super) fn origin(&self) -> Origin {
        Origin {
            endpoint_name: self.config.endpoint_name.clone(),
            parameters: self.config.parameters,
            owner: None,
        }
    }

    /// The machine of the new link that this transport begins.
    pub(super) fn machine(&self, dialled: &Dialled, journal: bool) -> machine::Link {
        let options = &self.options;
        let config = options
            .link
            .machine(Role::Connector, options.parameters, journal);
        self.asking(machine::Link::new(config, dialled.key))
    }

    /// The machine, which hears hints if the handshake asks for them.
    pub(super) const fn asking(&self, mut machine: machine::Link) -> machine::Link {
        if self.options.wants_hints {
            machine.hear_hints();
        }
        machine
    }

    /// A transport for the link, or for a new one.
    pub(super) async fn dial(&self, old: Option<LinkKey>) -> Result<Dialled, Failed> {
        let failed = |why: String| Failed::Passing(Error::Connect(why.into()));
        let stream =
            ackline_link::connect(&self.endpoint, self.options.reconnect.connect_timeout).await;
        let endpoint = &self.endpoint;
        let stream = stream.map_err(|error| failed(format!("{endpoint}: {error}")))?;
        let now = Instant::now().into_std();
        let handshake = Link::new(Handshake::connector(now, self.config.clone(), old));
        let answered = handshake.when(0, |handshake, _| {
            handshake.poll_event().map_or(Poll::Pending, Poll::Ready)
        });
        let (driven, answer) = tokio::join!(handshake.drive(stream), answered);
        match (answer, driven.end.clone()) {
            (Ok(HandshakeEvent::LinkLost), _) => Err(Failed::Lost(UNKNOWN)),
            (Ok(HandshakeEvent::Established { resumed: false, .. }), End::Handover)
                if old.is_some() =>
            {
                Err(Failed::Lost(REPLACED))
            }
            (Ok(HandshakeEvent::Established { key, resumed }), End::Handover) => Ok(Dialled {
                driven,
                key,
                resumed,
                bytes: handshake.call(|handshake, _| handshake.taken()),
            }),
            (_, End::Eof | End::Closed) => {
                let name = &self.config.endpoint_name;
                let named = self.config.parameters.named().into_iter();
                let named = named.map(|(name, value)| format!("{name}={value}"));
                let named: Vec<_> = named.collect();
                Err(failed(format!(
                    "{endpoint} ended the handshake: it has no endpoint {:?}, or other channel id sizes or \
                     transactions there than {}",
                    name.as_str(),
                    named.join(", ")
                )))
            }
            (_, end) => Err(failed(format!("{endpoint}: {end}"))),
        }
    }

    /// The first transport of a new link, or of the `old` one: one attempt, or attempts until `timeout`.
    pub(super) async fn first(&self, old: Option<LinkKey>) -> Result<Dialled, Failed> {
        let Some(limit) = self.options.timeout else {
            return self.dial(old).await;
        };
        let mut why = None;
        let trying = async {
            let mut backoff = Backoff::new(FIRST_WAIT, RETRY_MAX, Jitter::new(self.options.seed));
            loop {
                match self.dial(old).await {
                    Err(Failed::Passing(error)) => why = Some(error),
                    dialled => return dialled,
                }
                sleep(backoff.next_wait()).await;
            }
        };
        let tried = timeout(limit, trying).await;
        tried.unwrap_or_else(|_| {
            let endpoint = &self.endpoint;
            let why = why.map_or_else(
                || format!("{endpoint} did not answer"),
                |why| why.to_string(),
            );
            let text = format!("not connected within {limit:?} (timeout): {why}");
            Err(Failed::Passing(Error::Connect(text.into())))
        })
    }

    /// Keeps the link connected until it is over.
    /// `ended` is told of each transport's end.
    pub(super) async fn run<M: LinkHost>(
        self,
        link: Link<M>,
        first: Option<Dialled>,
        ended: impl Fn(&End<Kind>),
    ) {
        let jitter = Jitter::new(self.options.seed);
        let mut backoff = Backoff::new(FIRST_WAIT, self.options.reconnect.reconnect_max, jitter);
        let (mut failures, mut idle) = (Failures::default(), 0_u32);
        let (mut next, mut wait) = (first, Duration::ZERO);
        loop {
            let dialled = match next.take() {
                Some(dialled) => dialled,
                None => match self.again(&link, wait, &mut backoff).await {
                    Ok(Some(dialled)) => dialled,
                    Ok(None) => return,
                    Err(reason) => return lose(&link, reason),
                },
            };
            let (begin, before) = (Instant::now(), (resumes(&link), progress(&link)));
            let is_new = !dialled.resumed;
            let end = carry(&link, dialled).await;
            ended(&end);
            if link.is_ended() {
                return;
            }
            let endpoint = &self.endpoint;
            tracing::debug!(code = "relink.disconnected", %endpoint, why = %end, "the transport is gone");
            let has_worked = is_new || resumes(&link) > before.0;
            if failures.count(violation(&end), has_worked) {
                return lose(&link, "it failed in the same way at three resumes in a row");
            }
            // After a short transport without progress the next attempt waits: the listener may refuse the messages
            // that are sent again.
            if progress(&link) != before.1 || begin.elapsed() >= LASTING {
                backoff.reset();
                (idle, wait) = (0, Duration::ZERO);
                continue;
            }
            wait = backoff.next_wait();
            idle = idle.saturating_add(1);
            if idle == STUCK_AFTER {
                tracing::warn!(code = "relink.stuck", %endpoint, why = %end, "connections end with nothing done");
            }
            if self.options.stuck_after.is_some_and(|most| idle >= most) {
                return lose(&link, &stuck(&link, idle, &end));
            }
        }
    }

    /// Dials until it works, first after `wait`; `None` when the link is over, an error when it is lost.
    async fn again<M: LinkHost>(
        &self,
        link: &Link<M>,
        mut wait: Duration,
        backoff: &mut Backoff,
    ) -> Result<Option<Dialled>, &'static str> {
        let key = link.call(|session, _| session.machine().key());
        let dialling = async {
            loop {
                sleep(wait).await;
                if link.is_ended() {
                    return Ok(None);
                }
                match self.dial(Some(key)).await {
                    Ok(dialled) => return Ok(Some(dialled)),
                    Err(Failed::Lost(reason)) => return Err(reason),
                    Err(Failed::Passing(error)) => {
                        let endpoint = &self.endpoint;
                        tracing::debug!(code = "relink.unreachable", %endpoint, why = %error, "not connected");
                    }
                }
                wait = backoff.next_wait();
            }
        };
        match self.options.reconnect.lost_after {
            None => dialling.await,
            Some(after) => timeout(after, dialling)
                .await
                .unwrap_or(Err("no transport could be made in time (lost_after)")),
        }
    }
}

/// Makes a link, or goes on with the one that is kept in the state directory: then it answers at once.
pub(super) async fn connect(
    url: &str,
    options: ConnectOptions,
    budget: Budget,
) -> Result<Connected, Error> {
    let connector = Connector::new(url, options)?;
    let options = &connector.options;
    let (mut state, mut restored) = (None, None);
    if let Some(dir) = &options.state {
        let (held, found) = ConnectorState::open(dir, &connector.origin(), &options.link)?;
        (state, restored) = (Some(Arc::new(held)), found);
    }
    let (mut machine, journal, first) = if let Some(Restored { machine, journal }) = restored {
        (connector.asking(machine), Some(journal), None)
    } else {
        let first = connector.first(None).await?;
        let journal = state
            .as_ref()
            .map(|state| state.journal(first.key, connector.origin()));
        let machine = connector.machine(&first, state.is_some());
        (machine, journal, Some(first))
    };
    machine.share(budget.quota());
    let link = Link::with_budget(Session::new(machine, options.link.send_bytes), budget);
    if let Some(journal) = journal {
        journal.keep(link.clone());
    }
    Ok(Connected {
        link,
        state,
        connector,
        first,
    })
}

/// Drives the link over a transport until that ends.
async fn carry<M: LinkHost>(link: &Link<M>, dialled: Dialled) -> End<Kind> {
    let how = if dialled.resumed {
        Attach::Resumed
    } else {
        Attach::New(dialled.key)
    };
    let (io, leftover) = (dialled.driven.io, dialled.driven.leftover);
    let driving = link.attach(io, leftover, move |session, now| session.attach(now, how));
    counted_from(dialled.bytes, driving.await.end)
}

/// Messages received, and messages acknowledged as consumed.
fn progress<M: LinkHost>(link: &Link<M>) -> (u64, u64) {
    link.call(|session, _| {
        let machine = session.machine();
        let stats = machine.stats();
        let waiting: u64 = machine.channels().map(|(_, count)| u64::from(count)).sum();
        (
            stats.messages_received,
            stats.messages_sent.saturating_sub(waiting),
        )
    })
}

/// Why a link is given up whose transports end with nothing done, as far as this end knows.
fn stuck<M: LinkHost>(link: &Link<M>, ends: u32, end: &End<Kind>) -> String {
    let known = link.call(|session, _| {
        let waiting = session.machine().unacknowledged();
        let sizes = waiting.map(|(channel, sequence, payload)| (payload.bytes(), channel, sequence));
        // The first of several that are as large: it is the one that comes first.
        let largest = sizes.reduce(|most, one| if one.0 > most.0 { one } else { most });
        largest.map(|(bytes, channel, sequence)| {
            let channel = channel.to_string();
            let of = if channel.is_empty() { String::new() } else { format!(" of channel {channel}") };
            format!(
                "; the largest message that is not acknowledged is number {}{of} with {bytes} bytes, and a \
                 receiver takes none above its --max-part-bytes, its --max-message-bytes or a quarter of its \
                 --memory: its log names the messages that it refuses",
                sequence.0
            )
        })
    });
    format!(
        "{ends} connections in a row have ended with nothing done, the last one so: {end}{}",
        known.unwrap_or_default()
    )
}

fn lose<M: LinkHost>(link: &Link<M>, reason: &str) {
    link.call(|session, now| session.lose(now, reason));
    link.abort();
}

const UNKNOWN: &str = "the listener does not know it any more";
const REPLACED: &str = "the listener gave another one";
/// The ceiling of the first wait, after an attempt at once has failed.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest of the waits before the first transport: the caller that waits for it wants to know soon.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// A transport that held this long is replaced at once, even if it carried nothing.
const LASTING: Duration = Duration::from_secs(1);
/// Transports in a row with nothing done, after which a line says so, once.
const STUCK_AFTER: u32 = 3;
