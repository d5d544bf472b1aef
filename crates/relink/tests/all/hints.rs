//! Hints, an extension of the specification: only an end that has asked for them gets any.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests may panic, and need an instant

use std::time::Instant;

use crate::one_end::{OneEnd, bare, general};
use ackline_core::{Connection, SendQueue};
use ackline_relink::frame::{EndpointName, Hint, Ident, Packet, Parameters, Role};
use ackline_relink::{
    ConnectorConfig, Event, Handshake, HandshakeEvent, LinkConfig, ListenerConfig,
};
use bytes::{BufMut as _, BytesMut};

const LIMITS: [Hint; 2] = [Hint::ReceiveWindow(7), Hint::MessageBytes(1_000)];

fn hint(which: u8, number: u8) -> Vec<u8> {
    vec![0, which, number, 0, 0, 0, 0, 0]
}

#[test]
fn a_handshake_carries_the_wish_and_nothing_else_changes() {
    let now = Instant::now();
    for wanted in [false, true] {
        let name = EndpointName::try_from("n").unwrap();
        let config = ConnectorConfig {
            wants_hints: wanted,
            ..ConnectorConfig::new(name, Parameters::default())
        };
        let mut connector = Handshake::connector(now, config, None);
        let mut listener = Handshake::listener(now, ListenerConfig::default());
        let mut asked = None;
        for _ in 0..3 {
            flow(&mut connector, &mut listener, now);
            if let Some(HandshakeEvent::Requested(block)) = listener.poll_event() {
                asked = Some(block.wants_hints);
                let ident = Ident {
                    epoch: 1,
                    link_id: 1,
                };
                listener.accept(now, ident).unwrap();
            }
            flow(&mut listener, &mut connector, now);
        }
        assert_eq!(asked, Some(wanted));
        assert_eq!((listener.taken(), connector.taken()), (32, 24));
    }
}

fn flow(from: &mut Handshake, to: &mut Handshake, now: Instant) {
    let mut out = SendQueue::new();
    from.poll_transmit(now, &mut out);
    let mut input = BytesMut::new();
    input.put(out);
    to.receive(now, &mut input).unwrap();
}

#[test]
fn hints_go_out_before_a_pong_and_the_last_of_a_kind_counts() {
    let mut end = OneEnd::new(bare(1, true));
    end.sent();
    end.link.tell_hints(&LIMITS);
    end.link.hint(Hint::OverLink(1));
    end.link.hint(Hint::OverLink(2));
    end.receive(&general(Packet::Ping)).unwrap();
    let expected = [hint(2, 7), vec![0, 3, 0xe8, 3, 0, 0, 0, 0], hint(4, 2)];
    assert_eq!(
        end.sent(),
        [expected.concat(), general(Packet::Pong)].concat()
    );
    assert!(end.sent().is_empty());
}

#[test]
fn a_peer_that_did_not_ask_on_this_transport_is_told_nothing() {
    let mut end = OneEnd::new(bare(1, true));
    end.sent();
    end.link.hint(Hint::OverAll(1));
    assert!(end.sent().is_empty());
    end.link.tell_hints(&LIMITS);
    end.resume();
    end.link.hint(Hint::OverAll(1));
    assert_eq!(
        end.sent(),
        general(Packet::Resume),
        "the wish is a transport's"
    );
}

#[test]
fn only_an_end_that_asked_hears_hints_and_other_nops_are_nothing() {
    let input = [hint(1, 9), hint(0, 9), hint(200, 9), hint(4, 3)].concat();
    for wanted in [false, true] {
        let mut end = OneEnd::new(LinkConfig {
            role: Role::Connector,
            ..bare(1, true)
        });
        if wanted {
            end.link.hear_hints();
        }
        let told = end.take(&input).unwrap();
        let all = [Hint::TransactionBytes(9), Hint::OverLink(3)].map(Event::Hint);
        let expected: &[Event] = if wanted { &all } else { &[] };
        assert_eq!(told, expected);
    }
}
