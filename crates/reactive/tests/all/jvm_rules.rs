//! The rules of the Reactive Streams specification for the JVM that have a meaning on the wire, as conversations: a
//! scripted peer says bytes to a session, and hears exactly the bytes that the rule allows. The number of each rule stands
//! above its tests; docs/protocols/jvm-rules.md has all rules, and a test compares both.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::collections::VecDeque;
use std::time::Instant;

use ackline_core::{Connection as _, ErrorKind as _, Need, SendQueue};
use ackline_reactive::session::{Demand, Serial, Session};
use ackline_reactive::{Config, Error, Role};
use bytes::{Buf as _, Bytes, BytesMut};

mod processor;
mod publisher;
mod signals;
mod subscriber;
mod subscription;
mod wire;

/// Bytes of elements that may wait to be sent for one subscription.
const SEND_BYTES: usize = 1 << 20;

/// A session whose peer is the script of a test.
struct Talk {
    now: Instant,
    session: Session,
}

impl Talk {
    /// A server whose client has said hello.
    fn server() -> Self {
        Self::with(Role::Server, |_| ())
    }

    /// A client whose server has said hello.
    fn client() -> Self {
        Self::with(Role::Client, |_| ())
    }

    fn with(role: Role, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let now = Instant::now();
        let session = Session::new(now, role, config, SEND_BYTES);
        let mut talk = Self { now, session };
        let (own, peers) = match role {
            Role::Client => ([1, 0, 0], [2, 0, 0]),
            Role::Server => ([2, 0, 0], [1, 0, 0]),
        };
        talk.hears(&[&peers]);
        assert_eq!(talk.says(), own);
        talk
    }

    /// The session takes messages of the peer, one byte after the other; each is whole and breaks no rule.
    fn hears(&mut self, messages: &[&[u8]]) {
        assert_eq!(self.judges(messages), None);
    }

    /// The code of the rule that messages of the peer break.
    fn judges(&mut self, messages: &[&[u8]]) -> Option<&'static str> {
        let mut input = BytesMut::new();
        for byte in messages.concat() {
            input.extend_from_slice(&[byte]);
            while match self.session.receive(self.now, &mut input) {
                Ok(need) => need == Need::Again,
                Err(error) => return Some(error.kind.code()),
            } {}
        }
        assert!(input.is_empty(), "a message is not whole: {input:?}");
        None
    }

    /// The bytes that the session sends.
    fn says(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let some = self.says_some();
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }

    /// The bytes that the session sends in one go: a large element is not sent whole.
    fn says_some(&mut self) -> Vec<u8> {
        let mut out = SendQueue::new();
        self.session.poll_transmit(self.now, &mut out);
        out.copy_to_bytes(out.remaining()).to_vec()
    }

    /// The peer subscribes; nobody has answered yet.
    fn arrival(&mut self, id: u64, demand: u64) -> Serial {
        self.hears(&[&wire::subscribe("p", id, demand)]);
        self.session.accept().unwrap().unwrap().serial
    }

    /// The peer subscribes and is accepted; elements have this size, or any if it is 0.
    fn publication(&mut self, id: u64, demand: u64, size: u64) -> Serial {
        let serial = self.arrival(id, demand);
        self.session.admit(serial, size).unwrap();
        assert_eq!(self.says(), wire::subscribed(id, size));
        serial
    }

    /// The session subscribes under the id that the test expects, and the peer accepts it.
    fn subscription(&mut self, id: u64, demand: Demand, size: u64) -> Serial {
        let serial = self.session.subscribe("p", demand).unwrap();
        let said = self.says();
        assert_eq!(said[..4], [3, 1, b'p', u8::try_from(id).unwrap()]);
        self.hears(&[&wire::subscribed(id, size)]);
        serial
    }

    /// Publishes as many of these elements as are taken at once. Returns how many they are.
    fn publish(
        &mut self,
        serial: Serial,
        elements: &[&'static str],
    ) -> Result<usize, &'static str> {
        let elements = elements.iter().map(|it| Bytes::from_static(it.as_bytes()));
        let mut elements: VecDeque<Bytes> = elements.collect();
        let before = elements.len();
        let published = self.session.publish(serial, &mut elements);
        published.map_err(|error| error.code())?;
        Ok(before - elements.len())
    }

    /// Everything that can be taken of a subscription, and the end behind it: `complete` or a code.
    fn takes(&mut self, serial: Serial) -> (Vec<String>, &'static str) {
        let mut texts = Vec::new();
        loop {
            match self.session.take_element(serial) {
                Ok(Some(element)) => {
                    texts.push(String::from_utf8(element.to_bytes().to_vec()).unwrap());
                }
                Ok(None) => return (texts, "complete"),
                Err(error) => return (texts, error.code()),
            }
        }
    }

    /// Open subscriptions of this end's and of the peer's.
    fn open(&self) -> (usize, usize) {
        let (own, theirs, _) = self.session.open();
        (own, theirs)
    }
}

/// The code of a call that was refused.
fn code<T>(result: Result<T, Error>) -> Option<&'static str> {
    result.err().map(|error| error.code())
}
