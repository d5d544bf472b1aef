//! One end of a link. The test plays its peer.
#![allow(clippy::disallowed_methods)] // a test needs an instant

use std::time::{Duration, Instant};

use ackline_core::{Connection, Need, ProtocolError, SendQueue, Sequence};
use ackline_relink::frame::{
    Acknowledgement, Body, Operation, Packet, Parameters, Role, Targets, encode, encode_message,
};
use ackline_relink::{Attach, ChannelId, Event, Kind, Link, LinkConfig, LinkKey, Payload};
use bytes::{Buf, Bytes, BytesMut};

pub(crate) const KEY: LinkKey = LinkKey {
    epoch: 1,
    link_id: 1,
};

/// A listener with a transport, and its clock and input.
pub(crate) struct OneEnd {
    pub(crate) link: Link,
    pub(crate) now: Instant,
    pub(crate) input: BytesMut,
}

pub(crate) fn bare(id_size: u8, transactions: bool) -> LinkConfig {
    let parameters = Parameters {
        connector_channel_id_size: id_size,
        listener_channel_id_size: id_size,
        connector_transactions: transactions,
        listener_transactions: transactions,
    };
    let mut config = LinkConfig::new(Role::Listener, parameters);
    config.ack_delay = Duration::ZERO;
    config.ping_after = None;
    config.pong_timeout = None;
    config.packet_receive_timeout = None;
    config
}

impl OneEnd {
    pub(crate) fn new(config: LinkConfig) -> Self {
        let now = Instant::now();
        let mut link = Link::new(config, KEY);
        link.attach(now, Attach::New(KEY));
        Self {
            link,
            now,
            input: BytesMut::new(),
        }
    }

    /// Cuts the transport and attaches a new one.
    pub(crate) fn resume(&mut self) {
        assert!(self.link.detached(self.now));
        self.input.clear();
        self.link.attach(self.now, Attach::Resumed);
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<Need, ProtocolError<Kind>> {
        self.input.extend_from_slice(bytes);
        self.link.receive(self.now, &mut self.input)
    }

    /// Delivers bytes and lets them take effect.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Kind> {
        self.input.extend_from_slice(bytes);
        let mut events = Vec::new();
        loop {
            let need = self.link.receive(self.now, &mut self.input);
            events.extend(std::iter::from_fn(|| self.link.poll_event()));
            match need {
                Ok(Need::Input { .. }) => return Ok(events),
                Ok(_) => {}
                Err(error) => return Err(error.kind),
            }
        }
    }

    /// Returns all output.
    pub(crate) fn sent(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let some = self.some_sent();
            if some.is_empty() {
                return all;
            }
            all.extend_from_slice(&some);
        }
    }

    /// Returns the output of one call.
    pub(crate) fn some_sent(&mut self) -> Vec<u8> {
        let mut out = SendQueue::new();
        self.link.poll_transmit(self.now, &mut out);
        out.copy_to_bytes(out.remaining()).to_vec()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.link.poll_event()).collect()
    }

    pub(crate) fn advance(&mut self, by: Duration) -> Result<(), Kind> {
        self.now += by;
        self.link
            .handle_timeout(self.now)
            .map_err(|error| error.kind)
    }
}

pub(crate) fn id(channel: u8) -> ChannelId {
    ChannelId::from(channel)
}

pub(crate) fn text(text: &'static str) -> Payload {
    Payload::from(Bytes::from_static(text.as_bytes()))
}

pub(crate) fn general(packet: Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&packet, &mut out);
    out
}

pub(crate) fn message(ids: &[ChannelId], payload: &Payload) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(ids, payload, &mut out);
    out
}

pub(crate) fn about(channel: &[u8], body: Body<'_>) -> Vec<u8> {
    general(Packet::Channel {
        targets: Targets::unicast(channel),
        body,
    })
}

pub(crate) fn operation(channel: u8, operation: Operation, through: Option<u32>) -> Vec<u8> {
    let body = match through {
        Some(through) => Body::SequenceOperation(operation, Sequence(through)),
        None => Body::Operation(operation),
    };
    about(&[channel], body)
}

pub(crate) fn acknowledgement(channel: u8, what: Acknowledgement, through: u32) -> Vec<u8> {
    about(
        &[channel],
        Body::SequenceAcknowledgement(what, Sequence(through)),
    )
}
