//! A described machine as an endpoint of a conversation.

use std::time::Instant;

use ackline_core::described::{Described, Misuse, Opened};
use ackline_core::{Lifecycle, Need, SendQueue};
use bytes::Buf;
use serde_json::{Map, Value};

use super::held::hold;
use super::json::{options, sources, to_json};
use super::{CallError, End, short};

/// A machine driven by the runner.
pub(super) struct Endpoint {
    opened: Opened,
    events: Vec<Value>,
}

impl Endpoint {
    /// The machine of a role, with `config` on top of the vectors' defaults.
    pub(super) fn open(
        protocol: &dyn Described,
        role: &str,
        config: &Map<String, Value>,
        now: Instant,
    ) -> Result<Self, String> {
        let wrong = |error: Misuse| error.to_string();
        let described = protocol.role(role).map_err(wrong)?;
        let given = options(&described.options.fields(), config)?;
        let opened = protocol.opened(role, now, given).map_err(wrong)?;
        Ok(Self {
            opened,
            events: Vec::new(),
        })
    }

    pub(super) fn call(
        &mut self,
        now: Instant,
        verb: &str,
        args: &Map<String, Value>,
    ) -> Result<Value, CallError> {
        let result = self.opened.call(now, verb, sources(args));
        self.pump(now, &[]);
        match result {
            Ok(value) => Ok(to_json(&value)),
            Err(Misuse::Refused(error)) => Err(CallError::Refused(error.code.to_owned())),
            Err(wrong) => Err(CallError::NotUnderstood(wrong.to_string())),
        }
    }

    pub(super) fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.pump(now, bytes);
    }

    pub(super) fn eof(&mut self, now: Instant) {
        self.opened.machine.receive_eof(now);
        self.collect();
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.opened.machine.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.opened.machine.handle_timeout(now);
        self.collect();
    }

    pub(super) fn take_output(&mut self, now: Instant, into: &mut Vec<u8>) {
        loop {
            let mut queue = SendQueue::new();
            self.opened.machine.poll_transmit(now, &mut queue);
            if !queue.has_remaining() {
                break;
            }
            into.extend_from_slice(&queue.copy_to_bytes(queue.remaining()));
        }
        self.collect();
    }

    pub(super) fn take_events(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.events)
    }

    /// How the selected transport has ended, if it has; a new one begins without an end.
    pub(super) fn end(&self) -> Option<End> {
        let machine = &self.opened.machine;
        if let Some(failure) = machine.failure() {
            return Some(End::Error(short(failure.code)));
        }
        (machine.lifecycle() != Lifecycle::Open).then_some(End::Closed)
    }

    pub(super) fn connections(&self) -> u64 {
        self.opened.machine.transports()
    }

    pub(super) fn select(&mut self, connection: u64) {
        let has_it = self.opened.machine.select(connection);
        assert!(
            has_it,
            "no machine of this protocol has connection {connection}"
        );
    }

    fn pump(&mut self, now: Instant, mut bytes: &[u8]) {
        while self.end().is_none() {
            match self.opened.machine.receive(now, bytes) {
                Need::Again => {
                    self.collect();
                }
                Need::Room if self.collect() => {}
                _ => break,
            }
            bytes = &[];
        }
        self.collect();
    }

    fn collect(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.opened.machine.poll_event() {
            any = true;
            let known = self.opened.role.events.iter();
            let schema = known.clone().find(|one| one.name == event.name);
            let schema = schema.expect("every event is described");
            assert!(
                hold(schema.fields, &event.members),
                "an event is not as it is described: {event:?}"
            );
            if schema.is_beside_the_vectors {
                continue;
            }
            let mut told = Map::new();
            told.insert("event".to_owned(), event.name.into());
            let members = event.members.iter();
            told.extend(members.map(|(name, value)| ((*name).to_owned(), to_json(value))));
            self.events.push(told.into());
        }
        any
    }
}
