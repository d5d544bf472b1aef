//! The adapter's endpoint for conversations: a connector or a listener, its transports and its link.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, Need, ProtocolError, SendQueue, Sequence, UsageError};
use ackline_relink::frame::{EndpointBlock, EndpointName, Parameters, Role};
use ackline_relink::{
    Attach, Binder, ChannelId, ConnectorConfig, Decision, EndpointConfig, Event, Handshake,
    HandshakeEvent, Kind, Limits, Link, LinkConfig, LinkKey, ListenerConfig, Side, StartChannel,
};
use ackline_testkit::vectors::{CallError, End, Endpoint, to_hex};
use bytes::{Buf, BytesMut};
use serde_json::{Map, Value, json};

use super::{channel_of, name, number, payload_of, read_config};

/// Makes an endpoint for `role`.
pub(crate) fn endpoint(
    role: &str,
    members: &Map<String, Value>,
) -> Result<Box<dyn Endpoint>, String> {
    let role = match role {
        "connector" => Role::Connector,
        "listener" => Role::Listener,
        _ => return Err(format!("role {role}")),
    };
    let mut made = Relink::new(role);
    let mut start = None;
    let (parameters, limits) = read_config(members, |key, value| match key {
        "start" => {
            start = value.as_str().map(str::to_owned);
            Ok(())
        }
        _ => made.option(key, value),
    })?;
    made.options.parameters = parameters;
    made.link_config.parameters = parameters;
    made.link_config.limits = limits;
    match start.as_deref() {
        Some("handshake") => {}
        Some("established") => made.start_established(),
        _ => return Err(format!("start {start:?}")),
    }
    Ok(Box::new(made))
}

struct Relink {
    role: Role,
    options: Options,
    link_config: LinkConfig,
    binder: Option<Binder>,
    link: Option<Link>,
    /// The transport of the link.
    on: u64,
    /// The transport that the runner has selected.
    selected: u64,
    transports: BTreeMap<u64, Transport>,
    events: Vec<Value>,
    /// Whether the link of `established` is still to be attached, at the first call with a time.
    starts: bool,
}

/// The options of the handshake.
#[derive(Default)]
struct Options {
    parameters: Parameters,
    endpoint_name: EndpointName,
    require_old_link_id: bool,
    handshake_timeout: Option<Duration>,
    epoch: u64,
    next_link_id: u64,
    endpoints: Vec<EndpointConfig>,
}

#[derive(Default)]
struct Transport {
    handshake: Option<Handshake>,
    asked: Option<EndpointBlock>,
    input: BytesMut,
    out: Vec<u8>,
    end: Option<End>,
    /// Whether the vectors' `transport_lost` has removed it: nothing arrives, and no error is reported.
    is_gone: bool,
}

impl Relink {
    fn new(role: Role) -> Self {
        let mut link_config = LinkConfig::new(role, Parameters::default());
        link_config.ack_delay = Duration::ZERO;
        link_config.ping_after = None;
        link_config.pong_timeout = None;
        link_config.packet_receive_timeout = None;
        Self {
            role,
            options: Options {
                next_link_id: 1,
                ..Options::default()
            },
            link_config,
            binder: None,
            link: None,
            on: 1,
            selected: 1,
            transports: BTreeMap::new(),
            events: Vec::new(),
            starts: false,
        }
    }

    fn option(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let millis = || number(value).map(Duration::from_millis);
        match (key, value) {
            ("endpoint_name", Value::String(text)) => self.options.endpoint_name = name_of(text)?,
            ("require_old_link_id", Value::Bool(on)) => self.options.require_old_link_id = *on,
            ("handshake_timeout_ms", _) => self.options.handshake_timeout = Some(millis()?),
            ("epoch", _) => self.options.epoch = number(value)?,
            ("next_link_id", _) => self.options.next_link_id = number(value)?,
            ("endpoints", Value::Array(list)) => {
                let endpoints: Result<_, _> = list.iter().map(endpoint_of).collect();
                self.options.endpoints = endpoints?;
            }
            ("send_window", _) => self.link_config.send_window = number(value)?,
            ("receive_window", _) => self.link_config.receive_window = number(value)?,
            ("ack_window", _) => self.link_config.ack_window = number(value)?,
            ("ack_delay_ms", _) => self.link_config.ack_delay = millis()?,
            ("ping_after_ms", _) => self.link_config.ping_after = Some(millis()?),
            ("pong_timeout_ms", _) => self.link_config.pong_timeout = Some(millis()?),
            ("channels", Value::Array(list)) => {
                let channels: Result<_, _> = list.iter().map(start_channel).collect();
                self.link_config.channels = channels?;
            }
            _ => return Err(format!("config {key}: {value}")),
        }
        Ok(())
    }

    fn start_established(&mut self) {
        self.starts = true;
        self.transports.insert(1, Transport::default());
    }

    /// Attaches the link of `established` at the first call with a time.
    fn begin(&mut self, now: Instant) {
        if std::mem::take(&mut self.starts) {
            let key = LinkKey {
                epoch: 1,
                link_id: 1,
            };
            let mut link = Link::new(self.link_config.clone(), key);
            link.attach(now, Attach::New(key));
            self.link = Some(link);
        }
        if self.binder.is_none() {
            let endpoints = self.options.endpoints.clone();
            self.binder = Some(Binder::new(
                self.options.epoch,
                self.options.next_link_id,
                endpoints,
            ));
        }
    }

    fn connect(&mut self, now: Instant, connection: u64) {
        let handshake = match self.role {
            Role::Connector => {
                let mut config = ConnectorConfig::new(
                    self.options.endpoint_name.clone(),
                    self.options.parameters,
                );
                config.require_old_link_id = self.options.require_old_link_id;
                config.handshake_timeout = self.options.handshake_timeout;
                let alive = |link: &&Link| !is_over(link);
                let old = self.link.as_ref().filter(alive).map(Link::key);
                Handshake::connector(now, config, old)
            }
            Role::Listener => {
                let handshake_timeout = self.options.handshake_timeout;
                Handshake::listener(now, ListenerConfig { handshake_timeout })
            }
        };
        self.selected = connection;
        let transport = Transport {
            handshake: Some(handshake),
            ..Transport::default()
        };
        self.transports.insert(connection, transport);
    }

    fn transport(&mut self) -> &mut Transport {
        self.transports.entry(self.selected).or_default()
    }

    fn fail(&mut self, error: &ProtocolError<Kind>) {
        self.transport().end = Some(End::Error(name(&error.kind)));
    }

    /// Lets the selected transport take its input.
    fn pump(&mut self, now: Instant) {
        loop {
            if self.transport().end.is_some() || self.transport().is_gone {
                return self.collect();
            }
            let result = if self.transport().handshake.is_some() {
                self.shake_hands(now)
            } else if self.on == self.selected {
                self.take_packets(now)
            } else {
                return;
            };
            match result {
                Ok(true) => {}
                Ok(false) => return self.collect(),
                Err(error) => self.fail(&error),
            }
        }
    }

    /// Does one step of the handshake. Returns whether there is another.
    fn shake_hands(&mut self, now: Instant) -> Result<bool, ProtocolError<Kind>> {
        let transport = self.transports.entry(self.selected).or_default();
        let Some(handshake) = &mut transport.handshake else {
            return Ok(true);
        };
        let need = handshake.receive(now, &mut transport.input)?;
        while let Some(event) = handshake.poll_event() {
            match event {
                HandshakeEvent::Requested(block) => {
                    let binder = self.binder.as_mut().expect("made with the first call");
                    match binder.decide(&block) {
                        Ok(decision) => {
                            if let Decision::Old(_) = decision {
                                assert!(self.link.is_some());
                            }
                            let ident = binder.ident(decision);
                            handshake.accept(now, ident).expect("was requested");
                        }
                        Err(kind) => handshake.refuse(now, kind).expect("was requested"),
                    }
                    transport.asked = Some(block);
                }
                HandshakeEvent::Established { key, resumed } => {
                    drain(handshake, now, &mut transport.out);
                    assert_eq!(handshake.lifecycle(), Lifecycle::Handover);
                    transport.handshake = None;
                    self.established(now, key, resumed);
                    return Ok(true);
                }
                HandshakeEvent::LinkLost => {
                    if let Some(link) = &mut self.link {
                        link.lose(now);
                    }
                }
            }
        }
        if handshake.lifecycle() == Lifecycle::Draining {
            drain(handshake, now, &mut transport.out);
            transport.end = Some(End::Closed);
        }
        Ok(need == Need::Room)
    }

    fn established(&mut self, now: Instant, key: LinkKey, resumed: bool) {
        let asked = self.transport().asked.take();
        let parameters = asked.map_or(self.options.parameters, |block| block.parameters);
        if !resumed {
            if let Some(old) = self.link.as_mut().filter(|link| !is_over(link)) {
                old.lose(now);
                self.collect();
            }
            let mut config = self.link_config.clone();
            config.parameters = parameters;
            self.link = Some(Link::new(config, key));
        } else if self.on != self.selected
            && let Some(old) = self.transports.get_mut(&self.on)
        {
            old.end = Some(End::Closed);
        }
        self.on = self.selected;
        self.events.push(json!({
            "event": "link_established",
            "epoch": key.epoch,
            "link_id": key.link_id,
            "resumed": resumed,
        }));
        let link = self.link.as_mut().expect("a new one, or the old one");
        let attach = if resumed {
            link.detach(now);
            Attach::Resumed
        } else {
            Attach::New(key)
        };
        link.attach(now, attach);
    }

    fn take_packets(&mut self, now: Instant) -> Result<bool, ProtocolError<Kind>> {
        let (Some(link), Some(transport)) =
            (&mut self.link, self.transports.get_mut(&self.selected))
        else {
            return Ok(false);
        };
        let need = link.receive(now, &mut transport.input)?;
        self.collect();
        Ok(matches!(need, Need::Again | Need::Room))
    }

    fn collect(&mut self) {
        let Some(link) = &mut self.link else {
            return;
        };
        while let Some(event) = link.poll_event() {
            if event == Event::LinkClosed
                && let Some(binder) = &mut self.binder
            {
                binder.forget(link.key().link_id);
            }
            self.events.push(event_value(&event));
        }
        if is_over(link)
            && let Some(transport) = self.transports.get_mut(&self.on)
            && transport.handshake.is_none()
            && !transport.is_gone
            && link.lifecycle() == Lifecycle::Draining
        {
            transport.end.get_or_insert(End::Closed);
        }
    }

    fn verb(
        &mut self,
        now: Instant,
        verb: &str,
        args: &Map<String, Value>,
    ) -> Result<Result<(), UsageError>, String> {
        let Some(link) = &mut self.link else {
            return Ok(Err(UsageError::new("not_connected", "no link")));
        };
        let channel = || args.get("channel").ok_or("no channel").map(channel_of)?;
        let through = || match args.get("through") {
            Some(through) => number(through).map(|through| Some(Sequence(through))),
            None => Ok(None),
        };
        Ok(match verb {
            "send" => {
                let channels = args.get("channels").and_then(Value::as_array);
                let channels: Result<Vec<ChannelId>, String> = channels
                    .ok_or("no channels")?
                    .iter()
                    .map(channel_of)
                    .collect();
                let payload = payload_of(args.get("payload").ok_or("no payload")?)?;
                link.send(now, &channels?, payload).map(drop)
            }
            "consume" => link.consume(now, &channel()?, through()?.ok_or("no through")?),
            "notify_received" => link.notify_received(now, &channel()?),
            "commit" => link.commit(now, &channel()?, through()?).map(drop),
            "rollback" => link.rollback(now, &channel()?, through()?).map(drop),
            "committed" => link.committed(now, &channel()?, through()?).map(drop),
            "uncommitted" => link.uncommitted(now, &channel()?, through()?).map(drop),
            "close_channel" => link.close_channel(now, &channel()?),
            "ping" => link.ping(now),
            "shutdown" => link.shutdown(now),
            _ => return Err(format!("{verb} {args:?}")),
        })
    }

    fn lose_transport(&mut self, now: Instant) {
        if let Some(link) = &mut self.link {
            link.detached(now);
        }
        let transport = self.transports.entry(self.on).or_default();
        *transport = Transport {
            is_gone: true,
            ..Transport::default()
        };
    }
}

impl Endpoint for Relink {
    fn call(
        &mut self,
        now: Instant,
        verb: &str,
        args: &Map<String, Value>,
    ) -> Result<Value, CallError> {
        self.begin(now);
        match verb {
            "connect" => {
                let connection = args.get("connection").and_then(Value::as_u64);
                self.connect(now, connection.unwrap_or(1));
            }
            "transport_lost" => self.lose_transport(now),
            "transport_resumed" => {
                self.lose_transport(now);
                self.transports.insert(self.on, Transport::default());
                let link = self.link.as_mut().expect("a link to resume");
                link.attach(now, Attach::Resumed);
            }
            _ => match self.verb(now, verb, args) {
                Ok(Ok(())) => {}
                Ok(Err(refused)) => return Err(CallError::Refused(refused.code.to_owned())),
                Err(wrong) => return Err(CallError::NotUnderstood(wrong)),
            },
        }
        self.pump(now);
        Ok(Value::Null)
    }

    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.begin(now);
        self.transport().input.extend_from_slice(bytes);
        self.pump(now);
    }

    fn eof(&mut self, now: Instant) {
        self.begin(now);
        if let Some(link) = self.link.as_mut().filter(|_| self.on == self.selected) {
            link.receive_eof(now).expect("an end is allowed");
            assert_eq!(link.lifecycle(), Lifecycle::Closed);
        }
        self.transport().end = Some(End::Closed);
        self.collect();
    }

    fn next_timeout(&self) -> Option<Instant> {
        let handshakes = self.transports.values().filter(|it| it.end.is_none());
        let handshakes = handshakes.filter_map(|it| it.handshake.as_ref()?.poll_timeout());
        let link = self.link.as_ref().and_then(Connection::poll_timeout);
        handshakes.chain(link).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.begin(now);
        let mut failed = Vec::new();
        for (connection, transport) in &mut self.transports {
            if let Some(handshake) = &mut transport.handshake
                && let Err(error) = handshake.handle_timeout(now)
            {
                failed.push((*connection, error));
            }
        }
        if let Some(link) = &mut self.link
            && let Err(error) = link.handle_timeout(now)
        {
            failed.push((self.on, error));
        }
        for (connection, error) in failed {
            self.selected = connection;
            self.fail(&error);
        }
        self.collect();
    }

    fn take_output(&mut self, now: Instant, into: &mut Vec<u8>) {
        self.begin(now);
        let selected = self.selected;
        let transport = self.transports.entry(selected).or_default();
        into.append(&mut transport.out);
        if let Some(handshake) = &mut transport.handshake {
            drain(handshake, now, into);
        } else if selected == self.on
            && let Some(link) = &mut self.link
        {
            drain(link, now, into);
        }
        self.collect();
    }

    fn take_events(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.events)
    }

    fn end(&self) -> Option<End> {
        self.transports.get(&self.selected)?.end.clone()
    }

    fn connections(&self) -> u64 {
        self.transports.keys().max().copied().unwrap_or(1)
    }

    fn select(&mut self, connection: u64) {
        self.selected = connection;
    }
}

fn is_over(link: &Link) -> bool {
    use ackline_relink::LinkState::{Closed, Lost};
    matches!(link.state(), Closed | Lost)
}

fn drain<C: Connection>(connection: &mut C, now: Instant, into: &mut Vec<u8>) {
    loop {
        let mut queue = SendQueue::new();
        connection.poll_transmit(now, &mut queue);
        if !queue.has_remaining() {
            return;
        }
        into.extend_from_slice(&queue.copy_to_bytes(queue.remaining()));
    }
}

fn name_of(text: &str) -> Result<EndpointName, String> {
    EndpointName::try_from(text).map_err(|error| error.to_string())
}

fn endpoint_of(value: &Value) -> Result<EndpointConfig, String> {
    let mut endpoint_name = None;
    let members = value.as_object().ok_or("an endpoint")?;
    let (parameters, limits) = read_config(members, |key, value| match (key, value.as_str()) {
        ("endpoint_name", Some(text)) => {
            endpoint_name = Some(name_of(text)?);
            Ok(())
        }
        _ => Err(format!("endpoint {key}: {value}")),
    })?;
    assert_eq!(limits, Limits::default());
    Ok(EndpointConfig {
        endpoint_name: endpoint_name.ok_or("no endpoint_name")?,
        parameters,
    })
}

fn start_channel(value: &Value) -> Result<StartChannel, String> {
    let member = |key: &str| value.get(key).ok_or_else(|| format!("no {key}"));
    Ok(StartChannel {
        side: match member("side")?.as_str() {
            Some("outgoing") => Side::Outgoing,
            Some("incoming") => Side::Incoming,
            _ => return Err(format!("side of {value}")),
        },
        channel: channel_of(member("channel")?)?,
        next: Sequence(number(member("next_sequence_number")?)?),
    })
}

fn event_value(event: &Event) -> Value {
    let id = |channel: &ChannelId| to_hex(channel.as_bytes());
    match event {
        Event::LinkLost => json!({"event": "link_lost"}),
        Event::LinkClosed => json!({"event": "link_closed"}),
        Event::Resumed => json!({"event": "resumed"}),
        Event::Message {
            channel,
            sequence,
            payload,
        } => {
            let payload: Vec<String> = payload.parts().map(|part| to_hex(&part)).collect();
            json!({"event": "message", "channel": id(channel), "sequence_number": sequence.0,
                "payload": payload})
        }
        Event::Acknowledged {
            channel,
            acknowledgement,
            through,
        } => json!({"event": "acknowledged", "channel": id(channel),
            "acknowledgement": acknowledgement.name(), "through": through.0}),
        Event::Decided {
            channel,
            operation,
            through,
        } => json!({"event": "decided", "channel": id(channel),
            "operation": operation.name(), "through": through.0}),
        Event::Closing { channel } => json!({"event": "closing", "channel": id(channel)}),
        Event::Closed {
            channel,
            unacknowledged,
        } => json!({"event": "closed", "channel": id(channel), "unacknowledged": unacknowledged}),
        Event::PeerShutdown => json!({"event": "peer_shutdown"}),
        Event::Pong { .. } => json!({"event": "pong"}),
        Event::Hint(hint) => json!({"event": "hint", "name": hint.name(), "number": hint.number()}),
    }
}
