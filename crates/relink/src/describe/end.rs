//! One end without I/O: the handshake of each transport, and the link that the transports carry one after the
//! other. A listener keeps one link: a new one takes the place of the old one, which is lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use ackline_core::described::{Args, Event as Told, Failure, Machine, Misuse};
use ackline_core::{
    Connection, Lifecycle, Need, Payload, ProtocolError, SendQueue, Sequence, UsageError, Value,
};
use bytes::{Bytes, BytesMut};

use super::{channel_of, ids_of};
use crate::frame::{EndpointBlock, Hint, Role};
use crate::{
    Attach, Binder, ChannelId, ConnectorConfig, Event, Handshake, HandshakeEvent, Kind, Link,
    LinkConfig, LinkKey, LinkState, ListenerConfig,
};

/// The configurations of the handshakes and of the link.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) connector: ConnectorConfig,
    pub(super) link: LinkConfig,
}

/// One end.
pub(super) struct End {
    settings: Settings,
    binder: Binder,
    link: Option<Link>,
    /// The transport of the link.
    attached: u64,
    /// The transport that the application means.
    selected: u64,
    transports: BTreeMap<u64, Transport>,
    /// Events that come before those of the link.
    events: VecDeque<Told>,
}

#[derive(Default)]
struct Transport {
    handshake: Option<Handshake>,
    asked: Option<EndpointBlock>,
    input: BytesMut,
    /// Output of a handshake that is done.
    out: SendQueue,
    over: Option<Lifecycle>,
    failure: Option<Failure>,
    /// The application has lost it: nothing arrives, and nothing is told.
    is_gone: bool,
}

impl Transport {
    fn fail(&mut self, error: &ProtocolError<Kind>) {
        self.failure.get_or_insert_with(|| error.into());
        self.over = Some(Lifecycle::Closed);
    }

    /// Whether bytes that come are of interest.
    const fn is_live(&self) -> bool {
        self.over.is_none() && !self.is_gone
    }
}

/// The next step of a transport.
enum Step {
    /// It may go on at once.
    On,
    /// It waits.
    Wait(Need),
}

impl End {
    pub(super) const fn new(settings: Settings, binder: Binder) -> Self {
        Self {
            settings,
            binder,
            link: None,
            attached: 1,
            selected: 1,
            transports: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Begins where a new link was just agreed on.
    pub(super) fn establish(&mut self, now: Instant) {
        let key = LinkKey {
            epoch: 1,
            link_id: 1,
        };
        let mut link = Link::new(self.settings.link.clone(), key);
        link.attach(now, Attach::New(key));
        self.link = Some(link);
        self.transports.insert(1, Transport::default());
    }

    fn connect(&mut self, now: Instant, transport: u64) {
        let config = self.settings.connector.clone();
        let handshake = match self.settings.link.role {
            Role::Connector => {
                let old = self.link.as_ref().filter(|link| !is_over(link));
                Handshake::connector(now, config, old.map(Link::key))
            }
            Role::Listener => {
                let handshake_timeout = config.handshake_timeout;
                Handshake::listener(now, ListenerConfig { handshake_timeout })
            }
        };
        self.selected = transport;
        self.transports.retain(|_, one| one.over.is_none());
        let made = Transport {
            handshake: Some(handshake),
            ..Transport::default()
        };
        self.transports.insert(transport, made);
    }

    fn transport(&mut self) -> &mut Transport {
        self.transports.entry(self.selected).or_default()
    }

    /// Lets the selected transport take its input.
    fn pump(&mut self, now: Instant) -> Need {
        while self.transport().is_live() {
            let step = if self.transport().handshake.is_some() {
                self.shake_hands(now)
            } else if self.attached == self.selected {
                self.take_packets(now)
            } else {
                break;
            };
            match step {
                Ok(Step::On) => {}
                Ok(Step::Wait(need)) => return need,
                Err(error) => self.transport().fail(&error),
            }
        }
        Need::Input { at_least: 1 }
    }

    fn shake_hands(&mut self, now: Instant) -> Result<Step, ProtocolError<Kind>> {
        let transport = self.transports.entry(self.selected).or_default();
        let Some(handshake) = &mut transport.handshake else {
            return Ok(Step::On);
        };
        let need = handshake.receive(now, &mut transport.input)?;
        match handshake.poll_event() {
            Some(HandshakeEvent::Requested(block)) => {
                let over = self.link.as_ref().filter(|link| is_over(link));
                if let Some(link) = over {
                    self.binder.forget(link.key().link_id);
                }
                let answered = match self.binder.decide(&block) {
                    Ok(decision) => handshake.accept(now, self.binder.ident(decision)),
                    Err(kind) => handshake.refuse(now, kind),
                };
                debug_assert!(answered.is_ok(), "it was requested");
                transport.asked = Some(block);
                return Ok(Step::On);
            }
            Some(HandshakeEvent::Established { key, resumed }) => {
                handshake.poll_transmit(now, &mut transport.out);
                transport.handshake = None;
                self.established(now, key, resumed);
                return Ok(Step::On);
            }
            Some(HandshakeEvent::LinkLost) => {
                if let Some(link) = &mut self.link {
                    link.lose(now);
                }
            }
            None => {}
        }
        if handshake.lifecycle() == Lifecycle::Draining {
            transport.over = Some(Lifecycle::Draining);
        }
        Ok(if need == Need::Room {
            Step::On
        } else {
            Step::Wait(need)
        })
    }

    /// The handshake of the selected transport has agreed on a link.
    fn established(&mut self, now: Instant, key: LinkKey, resumed: bool) {
        let is_there = self.link.as_ref().is_some_and(|link| link.key() == key);
        if resumed && !is_there {
            // It was replaced while this handshake was under way.
            self.transport().over = Some(Lifecycle::Closed);
            return;
        }
        if !resumed {
            self.replace_link(now, key);
        }
        if self.attached != self.selected
            && let Some(old) = self.transports.get_mut(&self.attached)
            && old.handshake.is_none()
        {
            old.over.get_or_insert(Lifecycle::Closed);
        }
        self.attached = self.selected;
        self.events.push_back(Told::new(
            "link_established",
            vec![
                ("epoch", key.epoch.into()),
                ("link_id", key.link_id.into()),
                ("resumed", resumed.into()),
            ],
        ));
        let Some(link) = &mut self.link else { return };
        if resumed {
            link.detach(now);
            link.attach(now, Attach::Resumed);
        } else {
            link.attach(now, Attach::New(key));
        }
    }

    fn replace_link(&mut self, now: Instant, key: LinkKey) {
        if let Some(old) = &mut self.link {
            if !is_over(old) {
                old.lose(now);
            }
            self.binder.forget(old.key().link_id);
            self.events
                .extend(std::iter::from_fn(|| old.poll_event().map(told)));
        }
        let mut config = self.settings.link.clone();
        if let Some(asked) = self.transport().asked.take() {
            config.parameters = asked.parameters;
        }
        self.link = Some(Link::new(config, key));
    }

    fn take_packets(&mut self, now: Instant) -> Result<Step, ProtocolError<Kind>> {
        let transport = self.transports.entry(self.selected).or_default();
        let Some(link) = &mut self.link else {
            return Ok(Step::Wait(Need::Input { at_least: 1 }));
        };
        let need = link.receive(now, &mut transport.input)?;
        Ok(Step::Wait(need))
    }

    /// Ends the transport of a link that has ended in order.
    fn settle(&mut self) {
        let is_ended = self
            .link
            .as_ref()
            .is_some_and(|link| is_over(link) && link.lifecycle() == Lifecycle::Draining);
        if is_ended
            && let Some(transport) = self.transports.get_mut(&self.attached)
            && transport.handshake.is_none()
            && !transport.is_gone
        {
            transport.over.get_or_insert(Lifecycle::Draining);
        }
    }

    fn lose_transport(&mut self, now: Instant) {
        if let Some(link) = &mut self.link {
            link.detach(now);
        }
        let lost = Transport {
            is_gone: true,
            ..Transport::default()
        };
        self.transports.insert(self.attached, lost);
    }

    fn call_link(&mut self, now: Instant, verb: &str, args: &Args) -> Result<Value, Misuse> {
        let link = self.link.as_mut().ok_or(NOT_CONNECTED)?;
        let channel = channel_of(args);
        let up_to = || Ok::<_, Misuse>(args.number("through")?.map(Sequence));
        let numbered = |sequence: Sequence| Value::from(sequence.0);
        Ok(match verb {
            "send" => {
                let channels = ids_of(args.items("channels"));
                let parts = args.items("payload").iter().map(Value::to_bytes);
                let sent = link.send(now, &channels, parts.collect::<Payload>())?;
                Value::List(sent.into_iter().map(numbered).collect())
            }
            "commit" => numbered(link.commit(now, &channel, up_to()?)?),
            "rollback" => numbered(link.rollback(now, &channel, up_to()?)?),
            "committed" => numbered(link.committed(now, &channel, up_to()?)?),
            "uncommitted" => numbered(link.uncommitted(now, &channel, up_to()?)?),
            "send_room" => link.send_room(&channel).into(),
            "unacknowledged" => Value::List(link.unacknowledged().map(unacknowledged).collect()),
            "link" => Value::Map(vec![
                ("epoch", link.key().epoch.into()),
                ("link_id", link.key().link_id.into()),
                ("state", Value::Name(link.state().name())),
            ]),
            _ => {
                done_by(link, now, verb, &channel, args)?;
                Value::Nothing
            }
        })
    }
}

/// The verbs that answer nothing.
fn done_by(
    link: &mut Link,
    now: Instant,
    verb: &str,
    channel: &ChannelId,
    args: &Args,
) -> Result<(), Misuse> {
    match verb {
        "consume" => link.consume(now, channel, Sequence(args.required("through")?))?,
        "notify_received" => link.notify_received(now, channel)?,
        "close_channel" => link.close_channel(now, channel)?,
        "ping" => link.ping(now)?,
        "shutdown" => link.shutdown(now)?,
        "lose" => link.lose(now),
        _ => return Err(Misuse::no_verb(verb)),
    }
    Ok(())
}

const NOT_CONNECTED: UsageError = UsageError::new("not_connected", "there is no link");

impl Machine for End {
    fn call(&mut self, now: Instant, verb: &str, args: &Args) -> Result<Value, Misuse> {
        let answer = match verb {
            "connect" => {
                let transport = args.number("connection")?;
                self.connect(now, transport.unwrap_or(1));
                Value::Nothing
            }
            "transport_lost" => {
                self.lose_transport(now);
                Value::Nothing
            }
            "transport_resumed" => {
                if self.link.is_none() {
                    return Err(NOT_CONNECTED.into());
                }
                self.lose_transport(now);
                self.transports.insert(self.attached, Transport::default());
                if let Some(link) = &mut self.link {
                    link.attach(now, Attach::Resumed);
                }
                Value::Nothing
            }
            _ => self.call_link(now, verb, args)?,
        };
        self.settle();
        Ok(answer)
    }

    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Need {
        if self.transport().is_live() {
            self.transport().input.extend_from_slice(bytes);
        }
        let need = self.pump(now);
        self.settle();
        need
    }

    fn receive_eof(&mut self, now: Instant) {
        let carries = self.attached == self.selected;
        if let Some(link) = self.link.as_mut().filter(|_| carries)
            && let Err(error) = link.receive_eof(now)
        {
            self.transport().fail(&error);
        }
        self.transport().over.get_or_insert(Lifecycle::Closed);
    }

    fn poll_event(&mut self) -> Option<Told> {
        let first = self.events.pop_front();
        first.or_else(|| self.link.as_mut()?.poll_event().map(told))
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut SendQueue) {
        let transport = self.transports.entry(self.selected).or_default();
        out.append(&mut transport.out);
        if let Some(handshake) = &mut transport.handshake {
            handshake.poll_transmit(now, out);
        } else if self.selected == self.attached
            && let Some(link) = &mut self.link
        {
            link.poll_transmit(now, out);
        }
        self.settle();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let live = self.transports.values().filter(|one| one.over.is_none());
        let handshakes = live.filter_map(|one| one.handshake.as_ref()?.poll_timeout());
        let link = self.link.as_ref().and_then(Connection::poll_timeout);
        handshakes.chain(link).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        for transport in self.transports.values_mut() {
            if let Some(handshake) = &mut transport.handshake
                && let Err(error) = handshake.handle_timeout(now)
            {
                transport.fail(&error);
            }
        }
        if let Some(link) = &mut self.link
            && let Err(error) = link.handle_timeout(now)
        {
            self.transports
                .entry(self.attached)
                .or_default()
                .fail(&error);
        }
        self.settle();
    }

    fn reading(&mut self, now: Instant, on: bool) {
        if let Some(handshake) = &mut self.transport().handshake {
            handshake.reading(now, on);
        } else if let Some(link) = &mut self.link {
            link.reading(now, on);
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        let transport = self.transports.get(&self.selected);
        transport
            .and_then(|one| one.over)
            .unwrap_or(Lifecycle::Open)
    }

    fn failure(&self) -> Option<&Failure> {
        self.transports.get(&self.selected)?.failure.as_ref()
    }

    fn transports(&self) -> u64 {
        self.transports.keys().max().copied().unwrap_or(1)
    }

    fn select(&mut self, transport: u64) -> bool {
        self.selected = transport;
        true
    }
}

fn is_over(link: &Link) -> bool {
    matches!(link.state(), LinkState::Closed | LinkState::Lost)
}

fn id(channel: &ChannelId) -> (&'static str, Value) {
    let bytes = Bytes::copy_from_slice(channel.as_bytes());
    ("channel", bytes.into())
}

fn unacknowledged((channel, sequence, payload): (&ChannelId, Sequence, &Payload)) -> Value {
    Value::Map(vec![
        id(channel),
        ("sequence_number", sequence.0.into()),
        ("payload", payload.into()),
    ])
}

fn told(event: Event) -> Told {
    let bare = |name| Told::new(name, Vec::new());
    match event {
        Event::LinkLost => bare("link_lost"),
        Event::LinkClosed => bare("link_closed"),
        Event::Resumed => bare("resumed"),
        Event::PeerShutdown => bare("peer_shutdown"),
        Event::Message {
            channel,
            sequence,
            payload,
        } => Told::new(
            "message",
            vec![
                id(&channel),
                ("sequence_number", sequence.0.into()),
                ("payload", (&payload).into()),
            ],
        ),
        Event::Acknowledged {
            channel,
            acknowledgement,
            through,
        } => Told::new(
            "acknowledged",
            vec![
                id(&channel),
                ("acknowledgement", Value::Name(acknowledgement.name())),
                ("through", through.0.into()),
            ],
        ),
        Event::Decided {
            channel,
            operation,
            through,
        } => Told::new(
            "decided",
            vec![
                id(&channel),
                ("operation", Value::Name(operation.name())),
                ("through", through.0.into()),
            ],
        ),
        Event::Closing { channel } => Told::new("closing", vec![id(&channel)]),
        Event::Closed {
            channel,
            unacknowledged,
        } => Told::new(
            "closed",
            vec![id(&channel), ("unacknowledged", unacknowledged.into())],
        ),
        Event::Pong { round_trip } => {
            let millis = u64::try_from(round_trip.as_millis()).unwrap_or(u64::MAX);
            Told::new("pong", vec![("round_trip_ms", millis.into())])
        }
        Event::Hint(hint) => hinted(hint),
    }
}

fn hinted(hint: Hint) -> Told {
    let name = Value::Name(hint.name());
    Told::new(
        "hint",
        vec![("name", name), ("number", hint.number().into())],
    )
}
