//! The tables of docs/protocols/bpmux.md describe the machine: for every cell an end was brought into the state and
//! given the stimulus.
//!
//! `ACKLINE_WRITE_TABLES=1 cargo test -p ackline-bpmux --test all states` writes them into the page.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a failed unwrap is a failed test, which needs some instant

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use ackline_bpmux::chunk::{Decoded, Head, Inspector, PayloadRole as Role, decode, encode};
use ackline_bpmux::{Config, Connection, EntityKind, Event, Limits, Target};
use ackline_core::{Connection as _, ErrorKind, Inspect as _, SendQueue, UsageError};
use bytes::{Buf, Bytes, BytesMut};

const BEGIN: &str = "<!-- tables of crates/bpmux/tests/all/states.rs: begin -->";
const END: &str = "<!-- tables of crates/bpmux/tests/all/states.rs: end -->";
const OWN: Target = Target::Own(1);

struct End {
    connection: Connection,
    error: Option<&'static str>,
}

type Act = fn(&mut End) -> Result<(), UsageError>;
type Stimulus = (&'static str, Act);
type State = (&'static str, fn(&mut End));

/// A payload that has to wait for credit.
fn long() -> Bytes {
    Bytes::from_static(b"why")
}

impl End {
    fn new() -> Self {
        Self {
            connection: Connection::new(Instant::now(), Config::default()),
            error: None,
        }
    }

    fn with(kind: EntityKind) -> Self {
        Self::new().opening(kind)
    }

    /// Returns an end with an entity, whose closes are acknowledged by call.
    fn holding(kind: EntityKind) -> Self {
        let mut end = Self::new();
        let config = Config {
            holds_close_acks: true,
            ..Config::default()
        };
        end.connection = Connection::new(Instant::now(), config);
        end.opening(kind)
    }

    fn opening(mut self, kind: EntityKind) -> Self {
        let end = &mut self;
        end.connection.open(kind, 1, Bytes::new()).unwrap();
        end.told();
        self
    }

    /// The peer sends a chunk.
    fn takes(&mut self, head: Head) {
        let mut input = BytesMut::from(encode(head).as_ref());
        if let Err(error) = self.connection.receive(Instant::now(), &mut input) {
            self.error = Some(error.kind.code());
        }
    }

    /// The peer sends a chunk with an empty payload. The result is that of a stimulus, which might be refused.
    #[allow(clippy::unnecessary_wraps)] // calls are
    fn takes_empty(&mut self, role: Role) -> Result<(), UsageError> {
        self.takes(Head::Payload { role, length: 0 });
        Ok(())
    }

    /// The peer gives the top-level credit.
    #[allow(clippy::unnecessary_wraps)] // calls are
    fn paid(&mut self, amount: u64) -> Result<(), UsageError> {
        let target = Target::Top;
        self.takes(Head::Credit { target, amount });
        Ok(())
    }

    /// Returns everything told and sent until now, in words.
    fn told(&mut self) -> (Vec<String>, Vec<String>) {
        let mut out = SendQueue::new();
        self.connection.poll_transmit(Instant::now(), &mut out);
        let events = std::iter::from_fn(|| self.connection.poll_event());
        let events = events.map(|event| name(&event)).collect();
        (events, chunks(&out.copy_to_bytes(out.remaining())))
    }
}

fn name(event: &Event) -> String {
    let shown = format!("{event:?}");
    let name = shown.split([' ', '{']).next().unwrap_or_default();
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

fn chunks(bytes: &[u8]) -> Vec<String> {
    let mut inspector = Inspector::new(Limits::default());
    let mut input = BytesMut::from(bytes);
    std::iter::from_fn(|| inspector.inspect(&mut input).unwrap())
        .map(|chunk| format!("`{}`", chunk.name))
        .collect()
}

/// The effect of a stimulus on an end in a state.
#[derive(PartialEq, Eq)]
struct Seen {
    told: String,
    sent: String,
    is_over: bool,
    is_broken: bool,
}

/// A table in the making: the constructor of an end, its states and stimuli, and whether its subject still exists.
struct Table<'a> {
    new: fn() -> End,
    states: &'a [State],
    stimuli: &'a [Stimulus],
    exists: fn(&End) -> bool,
}

impl Table<'_> {
    fn seen(&self, reach: &dyn Fn(&mut End), act: Act) -> Seen {
        let mut end = (self.new)();
        reach(&mut end);
        end.told();
        let refused = act(&mut end).err();
        let (told, sent) = end.told();
        let is_broken = end.error.is_some();
        let error = end.error.map(|code| format!("error `{code}`"));
        let refused = refused.map(|error| format!("refused `{}`", error.code));
        let told: Vec<_> = told.into_iter().chain(error).chain(refused).collect();
        Seen {
            told: told.join(", "),
            sent: sent.join(", "),
            is_over: !(self.exists)(&end),
            is_broken,
        }
    }

    /// Returns all that can be seen of an end: the effects of every stimulus, and of credit of one byte and of more.
    fn looks(&self, reach: &dyn Fn(&mut End)) -> Vec<Seen> {
        let credit: [Act; 2] = [|end| end.paid(1), |end| end.paid(100)];
        let acts = self.stimuli.iter().map(|(_, act)| *act).chain(credit);
        acts.map(|act| self.seen(reach, act)).collect()
    }

    /// Returns the name of the state in which an end looks like this one.
    fn name(&self, reach: &dyn Fn(&mut End), stays: State) -> &'static str {
        let looks = self.looks(reach);
        let states = std::iter::once(&stays).chain(self.states);
        let mut alike = states.filter(|(_, prepare)| self.looks(prepare) == looks);
        alike
            .next()
            .expect("every state that is reached has lines")
            .0
    }

    /// Returns one line for each state and stimulus.
    fn lines(&self) -> String {
        let mut lines =
            String::from("| state | stimulus | told | sent | then |\n|---|---|---|---|---|\n");
        for state in self.states {
            let (name, prepare) = *state;
            for (stimulus, act) in self.stimuli {
                let seen = self.seen(&prepare, *act);
                let reach = |end: &mut End| {
                    prepare(end);
                    end.told();
                    let _ = act(end);
                };
                let then = match &seen {
                    Seen {
                        is_broken: true, ..
                    } => "the connection is over",
                    Seen { is_over: true, .. } => "over",
                    _ => self.name(&reach, *state),
                };
                let Seen { told, sent, .. } = &seen;
                writeln!(lines, "| {name} | {stimulus} | {told} | {sent} | {then} |").unwrap();
            }
        }
        lines
    }
}

/// Returns one line for each state and stimulus.
fn table(
    new: fn() -> End,
    states: &[State],
    stimuli: &[Stimulus],
    exists: fn(&End) -> bool,
) -> String {
    let table = Table {
        new,
        states,
        stimuli,
        exists,
    };
    table.lines()
}

fn close(end: &mut End, payload: Bytes) {
    end.connection.close(OWN, payload).unwrap();
}

fn cancel(end: &mut End, payload: Bytes) {
    end.connection.cancel(OWN, payload).unwrap();
}

/// Gives credit of one byte: a payload begins.
fn begin(end: &mut End) {
    end.paid(1).unwrap();
}

fn writer() -> String {
    let states: &[State] = &[
        ("open", |_| {}),
        ("close waits for credit", |end| close(end, long())),
        ("close sent in part", |end| {
            close(end, long());
            begin(end);
        }),
        ("close sent", |end| close(end, Bytes::new())),
        ("close sent, cancel came", |end| {
            close(end, Bytes::new());
            end.takes_empty(Role::Cancel(Target::Peer(1))).unwrap();
        }),
    ];
    let stimuli: &[Stimulus] = &[
        ("`send`", |end| end.connection.send(OWN, Bytes::new())),
        ("`close`", |end| end.connection.close(OWN, Bytes::new())),
        ("cancel arrives", |end| {
            end.takes_empty(Role::Cancel(Target::Peer(1)))
        }),
        ("acknowledgement of the close arrives", |end| {
            end.takes(Head::AckClose(Target::Peer(1)));
            Ok(())
        }),
        ("credit arrives", |end| {
            let (target, amount) = (Target::Peer(1), 1);
            end.takes(Head::Credit { target, amount });
            Ok(())
        }),
        ("ping arrives", |end| {
            let (pong, target) = (false, Target::Peer(1));
            end.takes(Head::Heartbeat { pong, target });
            Ok(())
        }),
    ];
    table(
        || End::with(EntityKind::Sink),
        states,
        stimuli,
        |end| end.connection.counts().tables.own_entities > 0,
    )
}

fn reader() -> String {
    let states: &[State] = &[
        ("open", |_| {}),
        ("cancel waits for credit", |end| cancel(end, long())),
        ("cancel sent in part", |end| {
            cancel(end, long());
            begin(end);
        }),
        ("cancel sent", |end| cancel(end, Bytes::new())),
        ("cancel sent, close came", |end| {
            cancel(end, Bytes::new());
            end.takes_empty(Role::Close(Target::Peer(1))).unwrap();
        }),
    ];
    let stimuli: &[Stimulus] = &[
        ("`cancel`", |end| end.connection.cancel(OWN, Bytes::new())),
        ("`grant_credit`", |end| end.connection.grant_credit(OWN, 1)),
        ("`ping`", |end| end.connection.ping(OWN)),
        ("message arrives", |end| {
            end.takes_empty(Role::Message(Target::Peer(1)))
        }),
        ("close arrives", |end| {
            end.takes_empty(Role::Close(Target::Peer(1)))
        }),
        ("acknowledgement of the cancel arrives", |end| {
            end.takes(Head::AckCancel(Target::Peer(1)));
            Ok(())
        }),
    ];
    table(
        || End::with(EntityKind::Stream),
        states,
        stimuli,
        |end| end.connection.counts().tables.own_entities > 0,
    )
}

/// The states of a half whose closes are acknowledged by call.
const fn holder_states() -> &'static [State] {
    fn closed(end: &mut End) {
        end.takes_empty(Role::Close(Target::Peer(1))).unwrap();
    }
    &[
        ("open", |_| {}),
        ("close came", closed),
        ("cancel waits for credit", |end| cancel(end, long())),
        ("cancel waits for credit, close came", |end| {
            cancel(end, long());
            closed(end);
        }),
        ("cancel sent in part, close came", |end| {
            cancel(end, long());
            begin(end);
            closed(end);
        }),
        ("cancel waits for credit, close acknowledged", |end| {
            cancel(end, long());
            closed(end);
            end.connection.acknowledge_close(OWN).unwrap();
        }),
        ("cancel sent in part, close acknowledged", |end| {
            closed(end);
            cancel(end, long());
            begin(end);
            end.connection.acknowledge_close(OWN).unwrap();
        }),
        ("cancel sent in part", |end| {
            cancel(end, long());
            begin(end);
        }),
        ("cancel sent", |end| cancel(end, Bytes::new())),
        ("cancel sent, close came", |end| {
            cancel(end, Bytes::new());
            end.takes_empty(Role::Close(Target::Peer(1))).unwrap();
        }),
        ("cancel acknowledged, close came", |end| {
            cancel(end, Bytes::new());
            closed(end);
            end.takes(Head::AckCancel(Target::Peer(1)));
        }),
        ("cancel sent, close acknowledged", |end| {
            cancel(end, Bytes::new());
            closed(end);
            end.connection.acknowledge_close(OWN).unwrap();
        }),
    ]
}

fn holder() -> String {
    let stimuli: &[Stimulus] = &[
        ("`acknowledge_close`", |end| {
            end.connection.acknowledge_close(OWN)
        }),
        ("`cancel`", |end| end.connection.cancel(OWN, Bytes::new())),
        ("message arrives", |end| {
            end.takes_empty(Role::Message(Target::Peer(1)))
        }),
        ("close arrives", |end| {
            end.takes_empty(Role::Close(Target::Peer(1)))
        }),
        ("acknowledgement of the cancel arrives", |end| {
            end.takes(Head::AckCancel(Target::Peer(1)));
            Ok(())
        }),
        ("top-level credit arrives", |end| end.paid(100)),
    ];
    table(
        || End::holding(EntityKind::Stream),
        holder_states(),
        stimuli,
        |end| end.connection.counts().tables.own_entities > 0,
    )
}

fn requester() -> String {
    let states: &[State] = &[
        ("sent", |end| {
            end.connection.request(1, Bytes::new()).unwrap();
        }),
        ("sent in part", |end| {
            end.connection.request(1, long()).unwrap();
            begin(end);
        }),
        ("sent in part, cancel sent", |end| {
            end.connection.request(1, long()).unwrap();
            begin(end);
            end.connection.cancel_request(1, Bytes::new()).unwrap();
        }),
        ("cancel waits for credit", |end| {
            end.connection.request(1, Bytes::new()).unwrap();
            end.connection.cancel_request(1, long()).unwrap();
        }),
        ("cancel sent", |end| {
            end.connection.request(1, Bytes::new()).unwrap();
            end.connection.cancel_request(1, Bytes::new()).unwrap();
        }),
        ("cancel sent, response came", |end| {
            end.connection.request(1, Bytes::new()).unwrap();
            end.connection.cancel_request(1, Bytes::new()).unwrap();
            end.takes_empty(Role::Response(1)).unwrap();
        }),
    ];
    let stimuli: &[Stimulus] = &[
        ("`cancel_request`", |end| {
            end.connection.cancel_request(1, Bytes::new())
        }),
        ("response arrives", |end| end.takes_empty(Role::Response(1))),
        ("close of the response arrives", |end| {
            end.takes_empty(Role::CloseResponse(1))
        }),
        ("acknowledgement of the cancel arrives", |end| {
            end.takes(Head::AckCancelRequest(1));
            Ok(())
        }),
    ];
    table(End::new, states, stimuli, |end| {
        end.connection.counts().tables.own_requests > 0
    })
}

fn responder() -> String {
    fn asked(end: &mut End) {
        end.takes_empty(Role::Request(1)).unwrap();
        end.told();
    }
    let states: &[State] = &[
        ("asked", asked),
        ("response sent in part", |end| {
            asked(end);
            end.connection.respond(1, long()).unwrap();
            begin(end);
        }),
        ("answered", |end| {
            asked(end);
            end.connection.respond(1, Bytes::new()).unwrap();
        }),
        ("close of the response sent", |end| {
            asked(end);
            end.connection.close_response(1, Bytes::new()).unwrap();
        }),
        ("close of the response waits for credit", |end| {
            asked(end);
            end.connection.close_response(1, long()).unwrap();
        }),
        ("close of the response sent in part", |end| {
            asked(end);
            end.connection.close_response(1, long()).unwrap();
            begin(end);
        }),
        ("close of the response sent, cancel came", |end| {
            asked(end);
            end.connection.close_response(1, Bytes::new()).unwrap();
            end.takes_empty(Role::CancelRequest(1)).unwrap();
        }),
    ];
    let stimuli: &[Stimulus] = &[
        ("`respond`", |end| end.connection.respond(1, Bytes::new())),
        ("`close_response`", |end| {
            end.connection.close_response(1, Bytes::new())
        }),
        ("cancel arrives", |end| {
            end.takes_empty(Role::CancelRequest(1))
        }),
        ("acknowledgement of the close arrives", |end| {
            end.takes(Head::AckCloseResponse(1));
            Ok(())
        }),
        ("ping arrives", |end| {
            end.takes(Head::PingRequest(1));
            Ok(())
        }),
    ];
    table(End::new, states, stimuli, |end| {
        end.connection.counts().tables.peer_requests > 0
    })
}

/// Returns the first byte of a head, and its name as the inspector has it.
fn tag(head: Head) -> String {
    let mut bytes = BytesMut::from(encode(head).as_ref());
    let first = bytes[0];
    let decoded = decode(&bytes).unwrap();
    assert!(matches!(decoded, Decoded::Whole { head: same, .. } if same == head));
    let chunk = Inspector::new(Limits::default()).inspect(&mut bytes);
    let name = chunk.unwrap().unwrap().name;
    format!("`{name}` (type {}, 0x{first:02x})", first >> 4)
}

/// Returns the answer that an end gives by itself to a close or cancel.
fn answer(kind: EntityKind, by_opener: bool, role: Role) -> Head {
    let mut end = if by_opener {
        let mut end = End::new();
        end.takes_empty(Role::Open(kind, 1)).unwrap();
        end
    } else {
        End::with(kind)
    };
    end.told();
    end.takes_empty(role).unwrap();
    let mut out = SendQueue::new();
    end.connection.poll_transmit(Instant::now(), &mut out);
    let Ok(Decoded::Whole { head, .. }) = decode(out.chunk()) else {
        unreachable!("it is acknowledged");
    };
    head
}

/// Returns the table of chunks and their acknowledgements.
fn acknowledgements() -> String {
    let mut lines =
        String::from("| end | sent by | chunk | acknowledged by |\n|---|---|---|---|\n");
    let mut line = |what: &str, by: &str, role, answer: &str| {
        let chunk = tag(Head::Payload { role, length: 0 });
        writeln!(lines, "| {what} | {by} | {chunk} | {answer} |").unwrap();
    };
    for kind in [EntityKind::Sink, EntityKind::Stream, EntityKind::Duplex] {
        for by_opener in [true, false] {
            let target = if by_opener { OWN } else { Target::Peer(1) };
            let by = if by_opener {
                "its opener"
            } else {
                "the other end"
            };
            let halves = [
                (kind.is_written(by_opener), "close", Role::Close(target)),
                (kind.is_read(by_opener), "cancel", Role::Cancel(target)),
            ];
            for (_, what, role) in halves.into_iter().filter(|half| half.0) {
                let what = format!("{what} of a {}", kind.name());
                line(&what, by, role, &tag(answer(kind, by_opener, role)));
            }
        }
    }
    let (cancel, close) = (Role::CancelRequest(1), Role::CloseResponse(1));
    line(
        "cancel of a request",
        "its requester",
        cancel,
        &tag(Head::AckCancelRequest(1)),
    );
    line(
        "close of a response",
        "its responder",
        close,
        &tag(Head::AckCloseResponse(1)),
    );
    line(
        "close of the top-level",
        "either",
        Role::Close(Target::Top),
        "nothing",
    );
    line(
        "cancel of the top-level",
        "either",
        Role::Cancel(Target::Top),
        "nothing",
    );
    lines
}

#[test]
fn the_tables_of_the_docs_describe_the_machine() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols/bpmux.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (found, tail) = rest.split_once(END).unwrap();
    let tables = format!(
        "\n\n### Acknowledgements\n\n{}\n### A half, written here\n\n{}\n### A half, read here\n\n{}\n### A half, read here, \
         whose close is acknowledged by call\n\n{}\n### A request, at its \
         requester\n\n{}\n### A request, at its responder\n\n{}\n",
        acknowledgements(),
        writer(),
        reader(),
        holder(),
        requester(),
        responder()
    );
    if std::env::var_os("ACKLINE_WRITE_TABLES").is_some() {
        std::fs::write(&page, format!("{head}{BEGIN}{tables}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(found, tables, "ACKLINE_WRITE_TABLES=1 writes them anew");
}
