//! The state tables of docs/protocols/relink.md against the machine: for every cell, a machine is brought into the
//! state and given the stimulus.
//!
//! `ACKLINE_WRITE_TABLES=1 cargo test -p ackline-relink --test all states` writes them into the page.

#![allow(clippy::unwrap_used, clippy::panic)] // a failed unwrap is a failed test
#![allow(clippy::disallowed_methods)] // a test needs some instant

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use ackline_core::{Connection, ErrorKind, SendQueue, Sequence, UsageError};
use ackline_relink::frame::{
    Acknowledgement, Body, Context, Decoded, Operation, Packet, Parameters, Role, Targets, decode,
    encode,
};
use ackline_relink::{Attach, ChannelId, Event, Limits, Link, LinkConfig, LinkKey, Payload};
use bytes::{Buf, Bytes, BytesMut};

const KEY: LinkKey = LinkKey {
    epoch: 1,
    link_id: 1,
};
const PARAMETERS: Parameters = Parameters {
    connector_channel_id_size: 1,
    listener_channel_id_size: 1,
    connector_transactions: true,
    listener_transactions: true,
};
const FIRST: Sequence = Sequence(0);
const BEGIN: &str = "<!-- tables of crates/relink/tests/all/states.rs: begin -->";
const END: &str = "<!-- tables of crates/relink/tests/all/states.rs: end -->";

/// The connector's end of a link.
struct End {
    link: Link,
    now: Instant,
    /// The code of the error that ended the transport.
    error: Option<&'static str>,
}

type Stimulus = (&'static str, fn(&mut End) -> Result<(), UsageError>);
type State = (&'static str, fn(&mut End));

impl End {
    fn new() -> Self {
        let mut config = LinkConfig::new(Role::Connector, PARAMETERS);
        config.ack_delay = std::time::Duration::ZERO;
        config.ping_after = None;
        Self {
            link: Link::new(config, KEY),
            now: Instant::now(),
            error: None,
        }
    }

    fn attach(&mut self, attach: Attach) {
        self.link.attach(self.now, attach);
    }

    fn cut(&mut self) {
        self.link.detach(self.now);
    }

    fn send(&mut self) -> Result<(), UsageError> {
        let payload = Payload::from(Bytes::from_static(b"m"));
        self.link.send_to(self.now, &channel(), payload).map(drop)
    }

    /// Delivers a packet of the peer.
    fn takes(&mut self, packet: &Packet<'_>) {
        let mut input = BytesMut::new();
        let mut bytes = Vec::new();
        encode(packet, &mut bytes);
        input.extend_from_slice(&bytes);
        self.take(input);
    }

    /// Delivers bytes. An error ends the transport, and the link goes on.
    fn take(&mut self, mut input: BytesMut) {
        if let Err(error) = self.link.receive(self.now, &mut input) {
            self.error = Some(error.kind.code());
            self.cut();
        }
    }

    fn takes_about(&mut self, body: Body<'_>) {
        let targets = Targets::unicast(b"c");
        self.takes(&Packet::Channel { targets, body });
    }

    fn takes_message(&mut self) {
        // A message of one part with one byte on channel "c".
        let input: &[u8] = &[0x11, 1, b'c', 0, 1, 0, 0, 0, b'm', 0, 0, 0, 0, 0, 0, 0];
        self.take(BytesMut::from(input));
    }

    /// Returns all events and packets since the last call, in words.
    fn told(&mut self) -> (Vec<String>, Vec<String>) {
        let mut out = SendQueue::new();
        self.link.poll_transmit(self.now, &mut out);
        let events = std::iter::from_fn(|| self.link.poll_event());
        let events = events.map(|event| event_name(&event)).collect();
        let bytes = out.copy_to_bytes(out.remaining());
        (events, packets(&bytes))
    }
}

fn channel() -> ChannelId {
    ChannelId::from(&b"c"[..])
}

fn event_name(event: &Event) -> String {
    match event {
        Event::LinkLost => "link lost".into(),
        Event::LinkClosed => "link closed".into(),
        Event::Resumed => "resumed".into(),
        Event::Message { .. } => "message".into(),
        Event::Acknowledged {
            acknowledgement, ..
        } => format!("acknowledged: {}", acknowledgement.name()),
        Event::Decided { operation, .. } => format!("decided: {}", operation.name()),
        Event::Closing { .. } => "closing".into(),
        Event::Closed { unacknowledged, .. } => format!("closed, {unacknowledged} unacknowledged"),
        Event::PeerShutdown => "peer shutdown".into(),
        Event::Pong { .. } => "pong".into(),
        Event::Hint(_) => "hint".into(),
    }
}

fn packets(mut bytes: &[u8]) -> Vec<String> {
    let context = Context {
        from: Role::Connector,
        connector_channel_id_size: 1,
        listener_channel_id_size: 1,
    };
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let Ok(Decoded::Whole { packet, len }) = decode(&context, &Limits::default(), bytes) else {
            panic!("the output decodes");
        };
        names.push(packet_name(&packet));
        bytes = &bytes[len..];
    }
    names
}

fn packet_name(packet: &Packet<'_>) -> String {
    let Packet::Channel { body, .. } = packet else {
        return format!("{packet:?}").to_lowercase();
    };
    match body {
        Body::Operation(operation) => operation.name().into(),
        Body::SequenceOperation(operation, through) => {
            format!("{} {}", operation.name(), through.0)
        }
        Body::Acknowledgement(acknowledgement) => acknowledgement.name().into(),
        Body::SequenceAcknowledgement(acknowledgement, through) if through.0 == u32::MAX => {
            format!("{} none", acknowledgement.name())
        }
        Body::SequenceAcknowledgement(acknowledgement, through) => {
            format!("{} {}", acknowledgement.name(), through.0)
        }
        Body::Message(_) => "message".into(),
    }
}

/// Returns one line for each state and stimulus with an effect.
fn table(states: &[State], stimuli: &[Stimulus], after: fn(&End) -> String) -> String {
    let mut lines = String::from(
        "| state | stimulus | told | emitted | state after |\n|---|---|---|---|---|\n",
    );
    for (state, prepare) in states {
        for (stimulus, act) in stimuli {
            let mut end = End::new();
            prepare(&mut end);
            end.told();
            let before = after(&end);
            let refused = act(&mut end);
            let (events, packets) = end.told();
            let then = after(&end);
            let silent = events.is_empty() && packets.is_empty();
            if before == then && silent && refused.is_ok() && end.error.is_none() {
                continue;
            }
            let error = end.error.map(|code| format!("error `{code}`"));
            let refused = refused
                .err()
                .map(|error| format!("refused `{}`", error.code));
            let told = events.into_iter().chain(error).chain(refused);
            let told = told.collect::<Vec<_>>().join(", ");
            let emitted = packets.join(", ");
            writeln!(
                lines,
                "| {state} | {stimulus} | {told} | {emitted} | {then} |"
            )
            .unwrap();
        }
    }
    lines
}

const LINK_STATES: &[State] = &[
    ("connecting", |_| {}),
    ("resuming", |end| {
        end.attach(Attach::New(KEY));
        end.cut();
        end.attach(Attach::Resumed);
    }),
    ("up", |end| end.attach(Attach::New(KEY))),
    ("shutting down, own channel open", |end| {
        end.attach(Attach::New(KEY));
        end.send().unwrap();
        end.link.shutdown(end.now).unwrap();
    }),
    ("shutting down, said", |end| {
        end.attach(Attach::New(KEY));
        end.link.shutdown(end.now).unwrap();
    }),
    ("shutting down, the peer said it", |end| {
        end.attach(Attach::New(KEY));
        end.takes(&Packet::Shutdown);
    }),
    ("closed", |end| {
        end.attach(Attach::New(KEY));
        end.link.shutdown(end.now).unwrap();
        end.told();
        end.takes(&Packet::Shutdown);
    }),
    ("lost", |end| {
        end.attach(Attach::New(KEY));
        end.link.lose(end.now);
    }),
];

const LINK_STIMULI: &[Stimulus] = &[
    ("a transport, new link", |end| {
        end.attach(Attach::New(KEY));
        Ok(())
    }),
    ("a transport, old link agreed", |end| {
        end.attach(Attach::Resumed);
        Ok(())
    }),
    ("the transport ends", |end| {
        end.cut();
        Ok(())
    }),
    ("resume arrives", |end| {
        end.takes(&Packet::Resume);
        Ok(())
    }),
    ("`shutdown`", |end| end.link.shutdown(end.now)),
    ("shutdown arrives", |end| {
        end.takes(&Packet::Shutdown);
        Ok(())
    }),
    ("given up", |end| {
        end.link.lose(end.now);
        Ok(())
    }),
    ("`ping`", |end| end.link.ping(end.now)),
    ("ping arrives", |end| {
        end.takes(&Packet::Ping);
        Ok(())
    }),
    ("`send` on a new channel", |end| {
        let payload = Payload::from(Bytes::from_static(b"m"));
        let other = ChannelId::from(&b"d"[..]);
        end.link.send_to(end.now, &other, payload).map(drop)
    }),
];

const OUTGOING_STATES: &[State] = &[
    ("none", |end| end.attach(Attach::New(KEY))),
    ("open, 0 sent", |end| {
        end.attach(Attach::New(KEY));
        end.send().unwrap();
    }),
    ("open, 0 consumed", |end| {
        end.attach(Attach::New(KEY));
        end.send().unwrap();
        end.told();
        let consumed = Body::SequenceAcknowledgement(Acknowledgement::Consumed, FIRST);
        end.takes_about(consumed);
    }),
    ("open, 0 committed", |end| {
        end.attach(Attach::New(KEY));
        end.send().unwrap();
        end.link.commit(end.now, &channel(), None).unwrap();
    }),
    ("close emitted, 0 sent", |end| {
        end.attach(Attach::New(KEY));
        end.send().unwrap();
        end.link.close_channel(end.now, &channel()).unwrap();
    }),
];

const OUTGOING_STIMULI: &[Stimulus] = &[
    ("`send`", End::send),
    ("`commit`", |end| {
        end.link.commit(end.now, &channel(), None).map(drop)
    }),
    ("`rollback`", |end| {
        end.link.rollback(end.now, &channel(), None).map(drop)
    }),
    ("`close_channel`", |end| {
        end.link.close_channel(end.now, &channel())
    }),
    ("received 0 arrives", |end| {
        end.takes_about(Body::SequenceAcknowledgement(
            Acknowledgement::Received,
            FIRST,
        ));
        Ok(())
    }),
    ("consumed 0 arrives", |end| {
        end.takes_about(Body::SequenceAcknowledgement(
            Acknowledgement::Consumed,
            FIRST,
        ));
        Ok(())
    }),
    ("consumed 1 arrives", |end| {
        end.takes_about(Body::SequenceAcknowledgement(
            Acknowledgement::Consumed,
            FIRST.next(),
        ));
        Ok(())
    }),
    ("committed arrives", |end| {
        end.takes_about(Body::Acknowledgement(Acknowledgement::Committed));
        Ok(())
    }),
    ("uncommitted arrives", |end| {
        end.takes_about(Body::Acknowledgement(Acknowledgement::Uncommitted));
        Ok(())
    }),
    ("closed arrives", |end| {
        end.takes_about(Body::Acknowledgement(Acknowledgement::Closed));
        Ok(())
    }),
    ("cut; resumed, not announced", |end| {
        end.cut();
        end.attach(Attach::Resumed);
        end.takes(&Packet::Resume);
        Ok(())
    }),
    (
        "cut; resumed, received 0 and consumed none announced",
        |end| {
            end.cut();
            end.attach(Attach::Resumed);
            end.takes_about(Body::SequenceAcknowledgement(
                Acknowledgement::Received,
                FIRST,
            ));
            let none = Sequence(u32::MAX);
            end.takes_about(Body::SequenceAcknowledgement(
                Acknowledgement::Consumed,
                none,
            ));
            end.takes(&Packet::Resume);
            Ok(())
        },
    ),
];

const INCOMING_STATES: &[State] = &[
    ("none", |end| end.attach(Attach::New(KEY))),
    ("open, 0 delivered", |end| {
        end.attach(Attach::New(KEY));
        end.takes_message();
    }),
    ("open, 0 consumed", |end| {
        end.attach(Attach::New(KEY));
        end.takes_message();
        end.link.consume(end.now, &channel(), FIRST).unwrap();
    }),
    ("open, 0 consumed, commit came", |end| {
        end.attach(Attach::New(KEY));
        end.takes_message();
        end.link.consume(end.now, &channel(), FIRST).unwrap();
        end.takes_about(Body::Operation(Operation::Commit));
    }),
    ("closing, 0 consumed, rolled back", |end| {
        end.attach(Attach::New(KEY));
        end.takes_message();
        end.takes_about(Body::Operation(Operation::Rollback));
        end.takes_about(Body::Operation(Operation::Close));
    }),
];

const INCOMING_STIMULI: &[Stimulus] = &[
    ("message arrives", |end| {
        end.takes_message();
        Ok(())
    }),
    ("commit arrives", |end| {
        end.takes_about(Body::Operation(Operation::Commit));
        Ok(())
    }),
    ("rollback arrives", |end| {
        end.takes_about(Body::Operation(Operation::Rollback));
        Ok(())
    }),
    ("close arrives", |end| {
        end.takes_about(Body::Operation(Operation::Close));
        Ok(())
    }),
    ("`consume`", |end| {
        end.link.consume(end.now, &channel(), FIRST)
    }),
    ("`committed`", |end| {
        end.link.committed(end.now, &channel(), None).map(drop)
    }),
    ("`uncommitted`", |end| {
        end.link.uncommitted(end.now, &channel(), None).map(drop)
    }),
    ("cut; resumed", |end| {
        end.cut();
        end.attach(Attach::Resumed);
        Ok(())
    }),
];

fn links() -> String {
    table(LINK_STATES, LINK_STIMULI, |end| {
        format!("{:?}", end.link.state())
    })
}

fn outgoing() -> String {
    table(OUTGOING_STATES, OUTGOING_STIMULI, |end| {
        let open = end.link.channels().find(|(id, _)| **id == channel());
        let channel = open.map_or("no channel".into(), |(_, count)| {
            format!("open, {count} unacknowledged")
        });
        format!("{:?}, {channel}", end.link.state())
    })
}

fn incoming() -> String {
    table(INCOMING_STATES, INCOMING_STIMULI, |end| {
        let open = end.link.stats().channels_incoming;
        let channel = if open == 0 { "no channel" } else { "open" };
        format!("{:?}, {channel}", end.link.state())
    })
}

#[test]
fn the_tables_of_the_docs_match_the_machine() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols/relink.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (found, tail) = rest.split_once(END).unwrap();
    let tables = format!(
        "\n\n### A link\n\n{}\n### A channel, sending\n\n{}\n### A channel, receiving\n\n{}\n",
        links(),
        outgoing(),
        incoming()
    );
    if std::env::var_os("ACKLINE_WRITE_TABLES").is_some() {
        std::fs::write(&page, format!("{head}{BEGIN}{tables}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(found, tables, "ACKLINE_WRITE_TABLES=1 writes them anew");
}
