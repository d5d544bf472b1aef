//! Peers that flood one end of a link and read no answers: the memory of that end stays below a ceiling, and each
//! violation is named.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)] // tests may panic, and need an instant

use std::time::Instant;

use ackline_core::{Connection, ErrorKind, Need, SendQueue};
use ackline_relink::frame::{Parameters, Role};
use ackline_relink::{Attach, ChannelId, Event, Link, LinkConfig, LinkKey, Payload};
use bytes::BytesMut;

use crate::counting::peak;

/// The most memory of a link in any flood, with the default limits.
const CEILING: isize = 48 << 20;
/// Bytes of a flood: enough for every limit that ends one.
const FLOOD: usize = 9 << 18;

const KEY: LinkKey = LinkKey {
    epoch: 1,
    link_id: 1,
};

fn link(id_size: u8, attach: Attach) -> Link {
    let parameters = Parameters {
        connector_channel_id_size: id_size,
        listener_channel_id_size: id_size,
        connector_transactions: true,
        listener_transactions: true,
    };
    let mut link = Link::new(LinkConfig::new(Role::Listener, parameters), KEY);
    link.attach(Instant::now(), attach);
    link
}

/// The application's treatment of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum App {
    Consumes,
    Keeps,
}

/// The result of a flood.
struct Flood {
    /// The peak of memory in bytes.
    peak: isize,
    /// The code of the refusal.
    code: Option<&'static str>,
}

/// Sends the packets that `packet` makes, until their sum is [`FLOOD`] or the link refuses one. It reads no output.
fn flood(link: &mut Link, app: App, mut packet: impl FnMut(u32) -> Vec<u8>) -> Flood {
    let now = Instant::now();
    let mut code = None;
    let peak = peak(|| {
        let (mut input, mut sent) = (BytesMut::new(), 0);
        for number in 0_u32.. {
            let bytes = packet(number);
            sent += bytes.len();
            input.extend_from_slice(&bytes);
            code = take(link, now, app, &mut input);
            if sent >= FLOOD || code.is_some() {
                break;
            }
        }
    });
    Flood { peak, code }
}

fn take(link: &mut Link, now: Instant, app: App, input: &mut BytesMut) -> Option<&'static str> {
    loop {
        let need = link.receive(now, input);
        while let Some(event) = link.poll_event() {
            if let (
                App::Consumes,
                Event::Message {
                    channel, sequence, ..
                },
            ) = (app, event)
            {
                link.consume(now, &channel, sequence).unwrap();
            }
        }
        match need {
            Ok(Need::Input { .. }) => return None,
            Ok(_) => {}
            Err(error) => return Some(error.kind.code()),
        }
    }
}

#[track_caller]
fn stays_below_the_ceiling(came: &Flood, code: Option<&'static str>) {
    assert_eq!(came.code, code);
    assert!(came.peak < CEILING, "{} bytes at once", came.peak);
}

fn id(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

/// A message of one byte on a channel with an id of 4 bytes.
fn message(number: u32) -> Vec<u8> {
    [&[0x11, 1][..], &id(number), &[1, 0, 7, 0, 0, 0, 0, 0, 0, 0]].concat()
}

/// A packet about a channel with an id of 4 bytes.
fn about(first: u8, number: u32) -> Vec<u8> {
    [&[first, 0][..], &id(number), &[0, 0]].concat()
}

#[test]
fn a_flood_of_nops_and_pings_leaves_nothing_but_a_count() {
    let Flood { peak, code } = flood(&mut link(4, Attach::New(KEY)), App::Keeps, |number| {
        vec![if number % 2 == 0 { 0x20 } else { 0 }, 0, 0, 0, 0, 0, 0, 0]
    });
    assert_eq!(code, None);
    assert!(
        peak < 1 << 16,
        "{peak} bytes for pings that are answered by a count"
    );
}

#[test]
fn pongs_that_were_not_asked_for_are_ignored() {
    let came = flood(&mut link(4, Attach::New(KEY)), App::Keeps, |_| {
        vec![0x40, 0, 0, 0, 0, 0, 0, 0]
    });
    assert!(came.peak < 1 << 16);
    assert_eq!(came.code, None);
}

#[test]
fn eight_bytes_for_four_billion_channels_are_refused() {
    for first in [0x03, 0x13, 0x43, 0x0b, 0x27] {
        let mut link = link(0, Attach::New(KEY));
        let came = flood(&mut link, App::Keeps, |_| {
            vec![first, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]
        });
        assert_eq!(came.code, Some("relink.limit_exceeded"));
        assert!(came.peak < 1 << 16, "{} bytes for {first:02x}", came.peak);
    }
}

#[test]
fn eight_bytes_for_a_million_messages_end_at_the_window() {
    let multicast = |_| vec![0x13, 0, 0, 0, 0, 0, 0x10, 0];
    let came = flood(&mut link(0, Attach::New(KEY)), App::Keeps, multicast);
    stays_below_the_ceiling(&came, Some("relink.limit_exceeded"));
}

#[test]
fn channels_are_opened_up_to_their_limit() {
    let came = flood(&mut link(4, Attach::New(KEY)), App::Keeps, message);
    stays_below_the_ceiling(&came, Some("relink.limit_exceeded"));
}

#[test]
fn channels_opened_and_closed_at_line_rate_end_at_the_limit_of_answers_owed() {
    let open_and_close = |number| [message(number), about(0x41, number)].concat();
    // Messages of a transactional channel are decided before it may end.
    let decided =
        move |number| [message(number), about(0x21, number), about(0x41, number)].concat();
    for came in [
        flood(
            &mut link(4, Attach::New(KEY)),
            App::Consumes,
            open_and_close,
        ),
        flood(&mut link(4, Attach::New(KEY)), App::Consumes, decided),
    ] {
        stays_below_the_ceiling(&came, Some("relink.limit_exceeded"));
    }
}

#[test]
fn closes_of_unknown_channels_end_at_the_limit_of_answers_owed() {
    let close = |number| about(0x41, number);
    let came = flood(&mut link(4, Attach::New(KEY)), App::Keeps, close);
    stays_below_the_ceiling(&came, Some("relink.limit_exceeded"));
}

#[test]
fn acknowledgements_for_unknown_channels_leave_nothing() {
    for first in [0x05, 0x25, 0x45, 0x65, 0x85] {
        let ack = |number| about(first, number);
        let came = flood(&mut link(4, Attach::New(KEY)), App::Keeps, ack);
        assert!(came.peak < 1 << 16, "{} bytes for {first:02x}", came.peak);
        assert_eq!(came.code, None);
    }
}

#[test]
fn decisions_for_unknown_channels_leave_nothing() {
    for first in [0x01, 0x21] {
        let came = flood(&mut link(4, Attach::New(KEY)), App::Keeps, |number| {
            about(first, number)
        });
        assert!(came.peak < 1 << 16);
        assert_eq!(came.code, None);
    }
}

#[test]
fn a_message_on_one_channel_again_and_again_ends_at_the_window() {
    let came = flood(&mut link(4, Attach::New(KEY)), App::Keeps, |_| message(1));
    stays_below_the_ceiling(&came, Some("relink.limit_exceeded"));
    // One number acknowledges any number of consumed messages.
    let came = flood(&mut link(4, Attach::New(KEY)), App::Consumes, |_| {
        message(1)
    });
    assert_eq!(came.code, None);
    assert!(came.peak < 1 << 17, "{} bytes at once", came.peak);
}

#[test]
fn a_resume_that_comes_again_or_unasked_is_ignored() {
    for attach in [Attach::New(KEY), Attach::Resumed] {
        let came = flood(&mut link(4, attach), App::Keeps, |_| {
            vec![0x60, 0, 0, 0, 0, 0, 0, 0]
        });
        assert!(came.peak < 1 << 17);
        assert_eq!(came.code, None);
    }
}

#[test]
fn a_peer_that_claims_more_than_was_sent_is_refused() {
    let now = Instant::now();
    // Received, consumed, committed and uncommitted name messages that were never sent, or are far ahead.
    for first in [0x0d, 0x2d, 0x4d, 0x6d] {
        for claimed in [3_u32, 0x7fff_fffe, 0x7fff_ffff, u32::MAX - 1] {
            let mut link = link(4, Attach::New(KEY));
            for _ in 0..3 {
                let sent = link.send_to(now, &ChannelId::from(1_u32), Payload::from(vec![1]));
                assert!(sent.is_ok());
            }
            link.poll_transmit(now, &mut SendQueue::new());
            let is_outcome = first >= 0x4d;
            let mut input = BytesMut::from(&[first, 0, 1, 0, 0, 0, 0, 0][..]);
            input.extend_from_slice(&[claimed.to_le_bytes(), [0; 4]].concat());
            let code = take(&mut link, now, App::Keeps, &mut input);
            // An outcome up to 2^31 numbers behind is an old one, which is ignored (R-RELINK-V13).
            let is_behind = is_outcome && claimed >= 0x7fff_ffff;
            let expected = (!is_behind).then_some("relink.out_of_range");
            assert_eq!(code, expected, "{first:02x} of {claimed}");
        }
    }
}

#[test]
fn an_acknowledgement_in_the_implicit_form_needs_something_outstanding() {
    let now = Instant::now();
    for first in [0x05, 0x25, 0x45, 0x65] {
        let mut link = link(4, Attach::New(KEY));
        let sent = link.send_to(now, &ChannelId::from(1_u32), Payload::from(vec![1]));
        assert!(sent.is_ok());
        link.poll_transmit(now, &mut SendQueue::new());
        let twice = [about(first, 1), about(first, 1)].concat();
        let code = take(&mut link, now, App::Keeps, &mut BytesMut::from(&twice[..]));
        assert_eq!(code, Some("relink.out_of_range"), "{first:02x}");
    }
}
