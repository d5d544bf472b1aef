//! The behaviour of a handshake that the conversations do not cover.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests may panic, and need an instant

use std::time::{Duration, Instant};

use ackline_core::{Connection, Lifecycle, LimitHit, Need, SendQueue};
use ackline_relink::frame::{EndpointName, Ident, Parameters};
use ackline_relink::{ConnectorConfig, Handshake, HandshakeEvent, Kind, LinkKey, ListenerConfig};
use bytes::{Buf, BytesMut};

fn connector(now: Instant, old: Option<LinkKey>) -> Handshake {
    let name = EndpointName::try_from("depot").unwrap();
    let mut config = ConnectorConfig::new(name, Parameters::default());
    config.require_old_link_id = old.is_some();
    Handshake::connector(now, config, old)
}

fn flow(from: &mut Handshake, to: &mut Handshake, now: Instant, input: &mut BytesMut) -> Need {
    let mut out = SendQueue::new();
    from.poll_transmit(now, &mut out);
    input.extend_from_slice(&out.copy_to_bytes(out.remaining()));
    to.receive(now, input).unwrap()
}

#[test]
fn both_sides_leave_the_bytes_after_the_handshake() {
    let now = Instant::now();
    let old = LinkKey {
        epoch: 5,
        link_id: 6,
    };
    let mut connector = connector(now, Some(old));
    let mut listener = Handshake::listener(now, ListenerConfig::default());
    let (mut there, mut back) = (BytesMut::new(), BytesMut::new());
    flow(&mut connector, &mut listener, now, &mut there);
    flow(&mut listener, &mut connector, now, &mut back);
    assert_eq!(
        flow(&mut connector, &mut listener, now, &mut there),
        Need::Room
    );
    let Some(HandshakeEvent::Requested(asked)) = listener.poll_event() else {
        unreachable!("it has the block");
    };
    assert!(asked.require_old_link_id);
    assert_eq!((asked.old_epoch, asked.old_link_id), (5, 6));
    let ident = Ident {
        epoch: 5,
        link_id: 6,
    };
    listener.accept(now, ident).unwrap();
    assert_eq!(
        listener.accept(now, ident).unwrap_err().code,
        "not_requested"
    );
    let mut out = SendQueue::new();
    listener.poll_transmit(now, &mut out);
    back.extend_from_slice(&out.copy_to_bytes(out.remaining()));
    back.extend_from_slice(b"packets");
    connector.receive(now, &mut back).unwrap();
    assert_eq!(back, &b"packets"[..]);
    for end in [&mut connector, &mut listener] {
        let established = HandshakeEvent::Established {
            key: old,
            resumed: true,
        };
        assert_eq!(end.poll_event(), Some(established));
        assert_eq!(
            (end.lifecycle(), end.poll_timeout()),
            (Lifecycle::Handover, None)
        );
    }
}

#[test]
fn a_refusal_is_an_error_of_the_next_call_and_kept() {
    let now = Instant::now();
    let mut connector = connector(now, None);
    let mut listener = Handshake::listener(now, ListenerConfig::default());
    let (mut there, mut back) = (BytesMut::new(), BytesMut::new());
    flow(&mut connector, &mut listener, now, &mut there);
    flow(&mut listener, &mut connector, now, &mut back);
    flow(&mut connector, &mut listener, now, &mut there);
    let unknown = || Kind::UnknownEndpoint {
        asked: EndpointName::default(),
        served: [].into(),
    };
    listener.refuse(now, unknown()).unwrap();
    for _ in 0..2 {
        let error = listener.receive(now, &mut there).unwrap_err();
        assert_eq!((error.kind, error.offset), (unknown(), 40));
    }
    assert_eq!(listener.lifecycle(), Lifecycle::Closed);
    connector.receive_eof(now).unwrap();
    assert_eq!(connector.lifecycle(), Lifecycle::Closed);
}

#[test]
fn one_deadline_for_all_of_it_that_stands_still_while_we_do_not_read() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let mut connector = connector(start, None);
    assert_eq!(connector.poll_timeout(), Some(start + 10 * second));
    connector.reading(start + second, false);
    assert_eq!(connector.poll_timeout(), None);
    connector.reading(start + 4 * second, true);
    connector.handle_timeout(start + 12 * second).unwrap();
    let error = connector.handle_timeout(start + 13 * second).unwrap_err();
    let hit = LimitHit {
        value: 10_000,
        limit: 10_000,
        option: "--handshake-timeout",
    };
    assert_eq!(error.kind, Kind::Timeout(hit));
}
