//! Two ends, joined by wires that deliver any part of what is on them, and a model of both directions.

use std::time::{Duration, Instant};

use ackline_core::{Connection as _, Lifecycle, Need, SendQueue, UsageError};
use bytes::{Buf as _, Bytes, BytesMut};

use super::model::{ACK_TIMER, Coming, Direction, Sent, Topics};
use crate::frame::Head;
use crate::subscriptions::Subscriptions;
use crate::text::read_extensions;
use crate::{AckPolicy, Config, Connection, Event, Outbound, Role, Terms};

mod publish;

/// The first bytes choose the extensions and the options, each further one a call.
pub(super) fn ops(start: Instant, data: &[u8]) {
    let mut script = data.iter().copied();
    let [setup, numbers] = [(); 2].map(|()| script.next().unwrap_or(0));
    let mut world = World::new(start, setup, numbers);
    while let Some(byte) = script.next() {
        world.step(byte, &mut script);
        world.check();
    }
    world.settle();
    world.check_end();
}

/// The extensions of a connection, and the window to which they lead.
const TABLES: [(&str, Option<usize>); 4] = [
    ("json;x-note", None),
    ("ack;dotnet;pub-sub;x-note", Some(1)),
    ("batch-ack:max-count=3;x-note;pub-sub", Some(3)),
    ("pub-sub;dotnet;batch-ack;ack", Some(10)),
];
const SIZES: [usize; 8] = [0, 1, 3, 4, 20, 260, 2_049, 5_000];
const FRAGMENTS: [u64; 4] = [1 << 20, 3, 100, 4_096];
const FIRST: [u16; 4] = [1, 65_535, 65_530, 30_000];

struct World {
    now: Instant,
    ends: [End; 2],
    table: &'static str,
    policy: AckPolicy,
    number: u8,
}

/// An end, the bytes on their way to it, the direction of the messages that it sends, and the subscriptions of its peer.
struct End {
    connection: Connection,
    wire: BytesMut,
    sends: Direction,
    /// The subscriptions of the peer, and their model.
    subscriptions: Subscriptions<()>,
    topics: Topics,
    life: Life,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Shaking,
    Running,
    /// It has ended the connection, or was told so by an ERROR frame.
    Ended,
    /// The transport's end has come.
    HalfOpen,
}

fn config(setup: u8, numbers: u8, policy: AckPolicy) -> Config {
    let fragment_size = FRAGMENTS.get(usize::from(setup >> 4 & 3)).copied();
    Config {
        ack_policy: policy,
        ack_timer: Some(ACK_TIMER),
        fragment_size: fragment_size.unwrap_or(1),
        terms: Terms {
            supported: ["json", "x-note", "ack", "dotnet", "pub-sub", "batch-ack"]
                .map(str::to_owned)
                .to_vec(),
            ..Terms::default()
        },
        next_send: first(numbers),
        next_receive: first(numbers >> 2),
        ..Config::default()
    }
}

fn first(choice: u8) -> u16 {
    FIRST.get(usize::from(choice & 3)).copied().unwrap_or(1)
}

impl World {
    fn new(now: Instant, setup: u8, numbers: u8) -> Self {
        let (table, window) = TABLES
            .get(usize::from(setup & 3))
            .copied()
            .unwrap_or_default();
        let is_established = setup & 4 != 0;
        let policy = if setup & 8 == 0 {
            AckPolicy::Manual
        } else {
            AckPolicy::Automatic
        };
        let list = read_extensions(table.as_bytes()).expect("it can be read");
        let swapped = numbers >> 2 & 3 | (numbers & 3) << 2;
        let sides = [(Role::Client, numbers), (Role::Server, swapped)];
        let ends = sides.map(|(role, numbers)| {
            let mut config = config(setup, numbers, policy);
            let sends = Direction::new(window, config.next_send);
            if role == Role::Client && setup & 64 == 0 {
                config.terms.optional.clone_from(&list);
            } else if role == Role::Client {
                config.terms.required.clone_from(&list);
            }
            let connection = if is_established {
                Connection::established(now, role, config, list.clone()).expect("it is sound")
            } else {
                let mut made = Connection::new(now, role, config);
                made.connect(now).expect("it was not connected");
                made
            };
            End {
                connection,
                wire: BytesMut::new(),
                sends,
                subscriptions: Subscriptions::default(),
                topics: Topics::default(),
                life: if is_established {
                    Life::Running
                } else {
                    Life::Shaking
                },
            }
        });
        Self {
            now,
            ends,
            table,
            policy,
            number: 0,
        }
    }

    fn end(&mut self, at: usize) -> &mut End {
        self.ends.get_mut(at).expect("there are two ends")
    }

    fn step(&mut self, byte: u8, script: &mut impl Iterator<Item = u8>) {
        let mut next = || script.next().unwrap_or(0);
        let at = usize::from(byte & 1);
        match byte >> 1 & 15 {
            0..=2 => self.send(at, next()),
            3..=4 => self.publish(at, next),
            5 => self.ack(at, next()),
            6 => self.processed(at, next()),
            7 => self.command(at, next()),
            8 => self.extension(at, next()),
            9 => self.subscribe(at, next),
            10..=12 => {
                self.deliver(at, usize::from(next()));
            }
            13 => self.transmit(at),
            14 => self.pass(next()),
            _ => match next() {
                choice @ 0..=199 => self.repeat(at, choice),
                200..=219 => self.fail(at),
                220..=239 => self.close(at),
                _ => {
                    self.drain(at);
                }
            },
        }
    }

    /// Checks the result of a call against the model, in which `sound` says whether a running end allows it.
    fn allowed<T>(
        &mut self,
        at: usize,
        result: &Result<T, UsageError>,
        sound: Result<(), &str>,
    ) -> bool {
        let wanted = match self.end(at).life {
            Life::Running => sound,
            Life::Shaking => Err("handshake_incomplete"),
            Life::Ended | Life::HalfOpen => Err("closed"),
        };
        let found = result.as_ref().map(|_| ()).map_err(|error| error.code);
        assert_eq!(found, wanted);
        wanted.is_ok()
    }

    fn has(&self, extension: &str) -> Result<(), &'static str> {
        let is_there = self
            .table
            .split(';')
            .any(|one| one.split(':').next() == Some(extension));
        is_there.then_some(()).ok_or("extension_not_negotiated")
    }

    fn send(&mut self, at: usize, choice: u8) {
        self.number = self.number.wrapping_add(1);
        let (number, size) = (self.number, SIZES.get(usize::from(choice & 7)).copied());
        let payload = Bytes::from(vec![number; size.unwrap_or(0)]);
        let dotnet_type = [None, None, Some("A, B"), Some("C")]
            .get(usize::from(choice >> 3 & 3))
            .copied()
            .flatten();
        let destination = ["", "q", "topic/domain-events"]
            .get(usize::from(choice >> 5))
            .copied()
            .unwrap_or("r");
        let properties = if choice & 128 == 0 {
            String::new()
        } else {
            format!("n:N{number};")
        };
        let message = Sent {
            number: self.end(at).sends.next_number(),
            destination,
            properties,
            payload,
            dotnet_type,
        };
        self.send_one(at, message);
    }

    /// Sends a message, if that is allowed.
    fn send_one(&mut self, at: usize, wanted: Sent) {
        let has_type = wanted.dotnet_type.map_or(Ok(()), |_| self.has("dotnet"));
        let is_ascii = if wanted.destination.is_ascii() {
            Ok(())
        } else {
            Err("not_ascii")
        };
        let end = self.end(at);
        let has_room = if end.sends.has_room() {
            Ok(())
        } else {
            Err("window_full")
        };
        let message = Outbound {
            destination: wanted.destination,
            properties: &wanted.properties,
            dotnet_type: wanted.dotnet_type,
        };
        let before = end.connection.check_send(message);
        let result = end.connection.send(message, &wanted.payload);
        assert_eq!(before, result.map(|_| ()));
        if !self.allowed(at, &result, is_ascii.and(has_type).and(has_room)) {
            return;
        }
        assert_eq!(result, Ok(wanted.number));
        let sends = &mut self.end(at).sends;
        sends.dotnet_type = wanted.dotnet_type.or(sends.dotnet_type);
        sends.send(Sent {
            dotnet_type: sends.dotnet_type,
            ..wanted
        });
    }

    /// The direction in which an end receives.
    fn receives(&mut self, at: usize) -> &mut Direction {
        &mut self.end(1_usize.saturating_sub(at)).sends
    }

    fn has_acks(&mut self, at: usize) -> Result<(), &'static str> {
        self.receives(at)
            .window
            .map(|_| ())
            .ok_or("extension_not_negotiated")
    }

    fn ack(&mut self, at: usize, choice: u8) {
        let through = self.receives(at).some_number(choice);
        let has_acks = self.has_acks(at);
        let may = match self.end(at).life {
            Life::Running => has_acks,
            Life::HalfOpen => has_acks.and(Err("closed")),
            life => {
                let connection = &mut self.end(at).connection;
                let code = if life == Life::Shaking {
                    "handshake_incomplete"
                } else {
                    "closed"
                };
                assert_eq!(
                    connection.ack_late(through).map_err(|error| error.code),
                    Err(code)
                );
                Err(code)
            }
        };
        let result = self.end(at).connection.ack(through);
        let is_known = may.is_ok() && self.receives(at).ack(through);
        let known = if is_known {
            Ok(())
        } else {
            Err("out_of_range")
        };
        self.allowed(at, &result, may.and(known));
        if self.end(at).life == Life::HalfOpen && has_acks.is_ok() {
            let late = self.end(at).connection.ack_late(through);
            assert_eq!(late.is_ok(), self.receives(at).ack(through));
        }
    }

    fn processed(&mut self, at: usize, choice: u8) {
        let (now, is_manual) = (self.now, self.policy == AckPolicy::Manual);
        let through = self.receives(at).some_number(choice);
        let result = self.end(at).connection.processed(now, through);
        let is_running = self.end(at).life == Life::Running;
        let has_acks = self.has_acks(at);
        let is_known =
            is_running && !is_manual && has_acks.is_ok() && self.receives(at).process(now, through);
        let known = if is_known {
            Ok(())
        } else {
            Err("out_of_range")
        };
        self.allowed(at, &result, has_acks.and(known));
    }

    fn command(&mut self, at: usize, choice: u8) {
        let name = ["go", "Not a name", "stop"]
            .get(usize::from(choice & 3))
            .copied()
            .unwrap_or("x-1");
        let pair = ("key".to_owned(), format!("{choice} ;,=å"));
        let properties = vec![pair; usize::from(choice >> 6)];
        let result = self.end(at).connection.command(name, &properties);
        let is_field = if name.contains(' ') {
            Err("invalid_name")
        } else {
            Ok(())
        };
        if self.allowed(at, &result, is_field) {
            self.end(at).sends.put(Coming::Command(name, properties));
        }
    }

    fn extension(&mut self, at: usize, choice: u8) {
        let bytes = Bytes::from(vec![choice; usize::from(choice).saturating_mul(2)]);
        let result = self.end(at).connection.send_extension("x-note", &bytes);
        let has = self.has("x-note");
        if self.allowed(at, &result, has) {
            self.end(at).sends.put(Coming::Extension(bytes));
        }
    }

    fn fail(&mut self, at: usize) {
        let is_over = matches!(self.end(at).life, Life::Ended | Life::HalfOpen);
        let end = self.end(at);
        assert_eq!(end.connection.fail("enough").is_err(), is_over);
        if !is_over {
            end.life = Life::Ended;
            end.sends.put(Coming::Error("enough"));
        }
    }

    fn close(&mut self, at: usize) {
        let is_over = matches!(self.end(at).life, Life::Ended | Life::HalfOpen);
        assert_eq!(self.end(at).connection.close().is_err(), is_over);
        if !is_over {
            self.receives(at).ack_processed();
            self.end(at).life = Life::Ended;
        }
    }

    /// A message comes again.
    fn repeat(&mut self, at: usize, choice: u8) {
        let is_running = self.end(at).life == Life::Running;
        let Some(sent) = self
            .end(at)
            .sends
            .repeated(choice.into())
            .filter(|_| is_running)
            .cloned()
        else {
            return;
        };
        self.transmit(at);
        let head = Head {
            sequence_number: sent.number,
            destination: sent.destination,
            properties: &*sent.properties,
        };
        let mut frames = Vec::new();
        let cut = sent.payload.len().min(usize::from(choice));
        let (first, last) = sent.payload.split_at_checked(cut).unwrap_or_default();
        if choice & 1 == 1 {
            head.put_frame(&mut frames, first, true);
            head.put_frame(&mut frames, last, false);
        } else {
            head.put_frame(&mut frames, &sent.payload, false);
        }
        self.end(1_usize.saturating_sub(at))
            .wire
            .extend_from_slice(&frames);
    }

    /// Time passes.
    fn pass(&mut self, choice: u8) {
        let step = Duration::from_millis(u64::from(choice).saturating_mul(10));
        self.now = self.now.checked_add(step).expect("it is soon");
        let now = self.now;
        for at in 0..2 {
            let is_running = self.end(at).life == Life::Running;
            let deadline = self.receives(at).deadline().filter(|_| is_running);
            let connection = &mut self.end(at).connection;
            assert_eq!(connection.poll_timeout(), deadline);
            assert_eq!(connection.handle_timeout(now), Ok(()));
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.receives(at).ack_processed();
            }
        }
    }

    fn transmit(&mut self, at: usize) {
        let now = self.now;
        loop {
            let mut out = SendQueue::new();
            self.end(at).connection.poll_transmit(now, &mut out);
            if out.is_empty() {
                assert_eq!(self.end(at).connection.waiting_bytes(), 0);
                return;
            }
            let bytes = out.copy_to_bytes(out.remaining());
            self.end(1_usize.saturating_sub(at))
                .wire
                .extend_from_slice(&bytes);
        }
    }

    /// Delivers so many bytes to an end, and tells its application everything.
    fn deliver(&mut self, at: usize, most: usize) -> bool {
        let now = self.now;
        let wire = &mut self.end(at).wire;
        let mut input = wire.split_to(most.saturating_mul(16).min(wire.len()));
        let had = input.len();
        loop {
            let need = self.end(at).connection.receive(now, &mut input);
            let need = need.expect("neither end finds fault with the other");
            while let Some(event) = self.end(at).connection.poll_event() {
                self.told(at, &event);
            }
            if matches!(need, Need::Input { .. }) {
                break;
            }
            self.transmit(at);
        }
        // A frame that is not whole waits for the rest.
        let left = input.len();
        let wire = &mut self.end(at).wire;
        input.unsplit(std::mem::take(wire));
        *wire = input;
        had > left
    }

    fn told(&mut self, at: usize, event: &Event) {
        match event {
            Event::Connected(connected) => {
                let names = self
                    .table
                    .split(';')
                    .filter_map(|one| one.split(':').next());
                assert!(names.eq(connected.extensions.iter()), "{connected:?}");
                assert_eq!(self.end(at).life, Life::Shaking);
                self.end(at).life = Life::Running;
            }
            Event::Acknowledged { through } => self.end(at).sends.acknowledged(*through),
            _ => {
                let sent = self.receives(at).told(event);
                self.end(at).subscribed(event, sent);
            }
        }
        if matches!(event, Event::Error { .. }) {
            self.end(at).life = Life::Ended;
        }
    }

    /// Everything arrives that one end has sent, and if it has ended, the end of the transport.
    fn drain(&mut self, at: usize) -> bool {
        let (now, other) = (self.now, 1_usize.saturating_sub(at));
        self.transmit(at);
        let mut is_moved = self.deliver(other, usize::MAX);
        if self.end(at).life == Life::Ended && !is_moved {
            let end = self.end(other);
            if matches!(end.life, Life::Running | Life::Shaking) {
                is_moved = true;
                let was_running = end.life == Life::Running;
                end.life = if was_running {
                    Life::HalfOpen
                } else {
                    Life::Ended
                };
            }
            assert_eq!(end.connection.receive_eof(now), Ok(()));
        }
        is_moved
    }

    /// Lets everything that is on its way arrive.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let moved = [self.drain(0), self.drain(1)];
            if moved == [false; 2] {
                return;
            }
        }
        unreachable!("the ends never rest");
    }

    fn check(&mut self) {
        for at in 0..2 {
            let unacknowledged = self.receives(at).unacknowledged();
            let end = self.end(at);
            assert_eq!(usize::from(end.connection.pending()), end.sends.pending());
            assert_eq!(usize::from(end.connection.unacknowledged()), unacknowledged);
            assert_eq!(end.connection.is_running(), end.life == Life::Running);
            let window = end.connection.window().ok().map(usize::from);
            let wanted = end.sends.window.unwrap_or(0);
            assert_eq!(window, (end.life == Life::Running).then_some(wanted));
        }
    }

    fn check_end(&mut self) {
        self.check();
        let is_open = self.ends.iter().all(|end| end.life == Life::Running);
        for end in &self.ends {
            let lifecycle = end.connection.lifecycle();
            assert_eq!(lifecycle == Lifecycle::Open, end.life == Life::Running);
            let named = end.connection.held_bytes();
            assert!(
                named <= 4,
                "nothing but the name of a type is held: {named}"
            );
            if is_open {
                end.sends.check_rest();
            }
        }
    }
}
