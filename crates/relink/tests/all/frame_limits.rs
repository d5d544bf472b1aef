//! Hostile numbers: each is refused as soon as it has arrived, or its bytes are waited for, and none sizes an
//! allocation.
#![allow(clippy::unwrap_used, clippy::panic)] // tests may panic

use ackline_core::{ErrorKind, LimitHit};
use ackline_relink::frame::{self, Body, Context, Decoded, Packet, Role};
use ackline_relink::{Kind, Limits};

/// Limits that allow every number on the wire.
const OPEN: Limits = Limits {
    max_channel_ids: u32::MAX,
    max_message_parts: u32::MAX,
    max_part_bytes: u64::MAX,
    max_message_bytes: u64::MAX,
    max_multicast_bytes: u64::MAX,
    copies: u32::MAX,
};

fn context(id_size: u8) -> Context {
    Context {
        from: Role::Connector,
        connector_channel_id_size: id_size,
        listener_channel_id_size: id_size,
    }
}

fn decode(id_size: u8, limits: Limits, bytes: &[u8]) -> Result<Decoded<'_>, Kind> {
    frame::decode(&context(id_size), &limits, bytes)
}

#[track_caller]
fn refused(id_size: u8, limits: Limits, bytes: &[u8]) -> LimitHit {
    let kind = decode(id_size, limits, bytes).unwrap_err();
    assert_eq!(kind.code(), "relink.limit_exceeded");
    assert_eq!(kind.option(), kind.limit().map(|hit| hit.option));
    kind.limit().unwrap()
}

#[track_caller]
fn waits(id_size: u8, limits: Limits, bytes: &[u8]) -> usize {
    match decode(id_size, limits, bytes) {
        Ok(Decoded::Partial { at_least }) => {
            assert!(at_least > bytes.len());
            at_least
        }
        other => panic!("{other:?}"),
    }
}

/// Checks that the last byte of `bytes` is refused, and no byte before.
#[track_caller]
fn refused_by_the_last_byte(id_size: u8, limits: Limits, bytes: &[u8]) -> LimitHit {
    for cut in 0..bytes.len() {
        waits(id_size, limits, &bytes[..cut]);
    }
    refused(id_size, limits, bytes)
}

fn hit(value: u64, limit: u64, option: &'static str) -> LimitHit {
    LimitHit {
        value,
        limit,
        option,
    }
}

fn multicast(first: u8, count: u32) -> Vec<u8> {
    [&[first, 0, 0, 0][..], &count.to_le_bytes()].concat()
}

#[test]
fn a_multicast_count_is_refused_before_its_ids() {
    for (id_size, first) in [(0, 0x03), (0, 0x27), (2, 0x13), (255, 0x0b)] {
        let bytes = multicast(first, u32::MAX);
        let came = refused_by_the_last_byte(id_size, Limits::default(), &bytes);
        assert_eq!(came, hit(u64::from(u32::MAX), 1 << 20, "--max-channel-ids"));
    }
}

#[test]
fn a_multicast_at_its_limit_is_waited_for_or_taken() {
    let bytes = multicast(0x43, 1 << 20);
    assert_eq!(waits(3, Limits::default(), &bytes), 8 + 3 * (1 << 20));
    refused(3, Limits::default(), &multicast(0x43, (1 << 20) + 1));
    let Ok(Decoded::Whole {
        packet: Packet::Channel { targets, .. },
        len: 8,
    }) = decode(0, Limits::default(), &bytes)
    else {
        panic!("a close of a million channels without ids");
    };
    assert_eq!(
        (targets.count(), targets.iter().count()),
        (1 << 20, 1 << 20)
    );
}

#[test]
fn a_count_of_ids_without_bytes_is_not_a_size_to_allocate_by() {
    let bytes = multicast(0x03, u32::MAX);
    let Ok(Decoded::Whole {
        packet: Packet::Channel { targets, .. },
        ..
    }) = decode(0, OPEN, &bytes)
    else {
        panic!("a sound packet");
    };
    assert_eq!(targets.iter().size_hint().0, 0);
    assert_eq!(targets.iter().take(3).count(), 3);
    assert_eq!(
        waits(255, OPEN, &bytes),
        (8 + 255 * 0xffff_ffff_usize).next_multiple_of(8)
    );
}

#[test]
fn a_multicast_above_the_limit_is_refused_before_its_payload() {
    // Two parts of 100 and 156 bytes, for `count` channels.
    let head = |count: u32| {
        let sizes = [100_u16.to_le_bytes(), 156_u16.to_le_bytes()].concat();
        let mut bytes = multicast(0x13, count);
        bytes[1] = 2;
        [bytes, sizes].concat()
    };
    let copied = Limits {
        copies: u32::MAX,
        ..Limits::default()
    };
    let most = (64 << 20) / (256 + 64);
    let came = refused_by_the_last_byte(0, copied, &head(most + 1));
    let value = u64::from(most + 1) * (256 + 64);
    assert_eq!(came, hit(value, 64 << 20, "--max-multicast-bytes"));
    waits(0, copied, &head(most));
    // Every target is charged, so a message without a byte has a limit too.
    let least = Limits {
        max_multicast_bytes: 3 * 64,
        ..copied
    };
    assert!(decode(0, least, &multicast(0x13, 3)).is_ok());
    let came = refused_by_the_last_byte(0, least, &multicast(0x13, 4));
    assert_eq!(came, hit(4 * 64, 3 * 64, "--max-multicast-bytes"));
    // One channel has only the limit of a message, and a packet without channels has no cost.
    let small = Limits {
        max_multicast_bytes: 255,
        ..Limits::default()
    };
    for count in [0, 1] {
        waits(0, small, &head(count));
    }
    refused(0, small, &head(2));
}

#[test]
fn few_bytes_do_not_become_many_messages_on_a_channel_without_an_id() {
    // Such a packet has at least 8 bytes.
    assert!(decode(0, Limits::default(), &multicast(0x13, 8)).is_ok());
    let came = refused_by_the_last_byte(0, Limits::default(), &multicast(0x13, 9));
    assert_eq!(came, hit(9, 8, "fixed"));
    // An acknowledgement of many messages delivers none, and ids take bytes.
    let many = multicast(0x27, 65_536);
    let acknowledged = decode(0, Limits::default(), &many);
    assert!(matches!(acknowledged, Ok(Decoded::Whole { .. })));
    waits(1, Limits::default(), &multicast(0x13, 9));
}

#[test]
fn a_number_of_parts_is_refused_before_their_sizes() {
    let long = [&[0x31, 0, 0x45, 0x60][..], &u32::MAX.to_le_bytes()].concat();
    let came = refused_by_the_last_byte(2, Limits::default(), &long);
    assert_eq!(came, hit(u64::from(u32::MAX), 1_024, "--max-message-parts"));
    assert_eq!(
        waits(2, OPEN, &long),
        (8 + 2 * 0xffff_ffff_usize).next_multiple_of(8)
    );
    let limits = Limits {
        max_message_parts: 4,
        ..Limits::default()
    };
    let came = refused_by_the_last_byte(2, limits, &[0x11, 5]);
    assert_eq!(came, hit(5, 4, "--max-message-parts"));
    assert_eq!(waits(2, limits, &[0x11, 4]), 8);
}

#[test]
fn the_short_length_of_a_long_message_is_no_number_of_parts() {
    let limits = Limits {
        max_message_parts: 1,
        ..Limits::default()
    };
    let bytes = [0x31, 0xff, 0x45, 0x60, 0, 0, 0, 0];
    assert!(matches!(
        decode(2, limits, &bytes),
        Ok(Decoded::Whole { len: 8, .. })
    ));
}

/// Returns a short, large message of id size 6 with these sizes.
fn large(sizes: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0x51, u8::try_from(sizes.len()).unwrap(), 0, 0, 0, 0, 0, 0];
    for size in sizes {
        bytes.extend_from_slice(&size.to_le_bytes());
    }
    bytes
}

#[test]
fn a_part_size_is_refused_before_the_next_one_is_there() {
    for size in [u64::MAX, u64::MAX - 7, 1 << 63, (1 << 30) + 1] {
        let bytes = large(&[0, size, 0, 0]);
        let came = refused_by_the_last_byte(6, Limits::default(), &bytes[..24]);
        assert_eq!(came, hit(size, 1 << 30, "--max-part-bytes"));
        refused(6, Limits::default(), &bytes);
    }
    let came = waits(6, Limits::default(), &large(&[1 << 30]));
    assert_eq!(came, 16 + (1 << 30));
}

#[test]
fn the_sum_of_the_parts_is_refused_at_the_part_that_exceeds_it() {
    let limits = Limits {
        max_message_bytes: 100,
        ..Limits::default()
    };
    let came = refused_by_the_last_byte(2, limits, &[0x11, 3, 0x45, 0x60, 60, 0, 42, 0]);
    assert_eq!(came, hit(102, 100, "--max-message-bytes"));
    // 60 and 40 bytes take 64 and 40 with their padding, but only the bytes themselves count.
    assert_eq!(
        waits(2, limits, &[0x11, 2, 0x45, 0x60, 60, 0, 40, 0]),
        8 + 64 + 40
    );
}

#[test]
fn sums_that_no_memory_holds_are_refused_without_a_limit_too() {
    let most = u64::MAX;
    for sizes in [
        &[most][..],
        &[most - 7],
        &[1 << 63],
        &[1 << 62, 1 << 62],
        &[1 << 63, 1 << 63],
        &[most, most],
        &[(1 << 63) - 1],
    ] {
        let came = refused(6, OPEN, &large(sizes));
        assert_eq!((came.limit, came.option), (most, "--max-message-bytes"));
    }
    let lasts = (1 << 62) + 1;
    assert_eq!(waits(6, OPEN, &large(&[lasts])), 16 + (1 << 62) + 8);
}

#[test]
fn an_enumeration_is_refused_by_its_first_byte() {
    let general = [5_u8, 6, 7].map(|kind| kind << 5);
    let formats = [5_u8, 6, 7].map(|format| 1 | format << 2);
    let data = [
        (0, 3),
        (0, 7),
        (1, 5),
        (1, 7),
        (2, 2),
        (2, 7),
        (3, 4),
        (3, 7),
    ];
    let data = data.map(|(format, data): (u8, u8)| 1 | format << 2 | data << 5);
    for first in general.into_iter().chain(formats).chain(data) {
        let kind = decode(2, Limits::default(), &[first]).unwrap_err();
        assert_eq!(kind.code(), "relink.unused_enumeration", "{first:02x}");
        assert_eq!(kind.limit(), None);
    }
    for first in 0..=u8::MAX {
        let is_message = first & 0x1d == 0x11;
        let waits = matches!(
            decode(2, Limits::default(), &[first]),
            Ok(Decoded::Partial { .. })
        );
        assert!(
            waits || !is_message,
            "every combination of a message's flags is sound: {first:02x}"
        );
    }
}

#[test]
fn ids_have_the_size_of_the_side_that_sends_the_messages() {
    // The connector's ids have 1 byte, the listener's 3.
    let sizes = |from, first: u8| {
        let context = Context {
            from,
            connector_channel_id_size: 1,
            listener_channel_id_size: 3,
        };
        let bytes = [first, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0];
        match frame::decode(&context, &Limits::default(), &bytes) {
            Ok(Decoded::Whole {
                packet: Packet::Channel { targets, .. },
                ..
            }) => targets.id_size(),
            other => panic!("{other:?}"),
        }
    };
    let (operations, acknowledgements) = ([0x01, 0x09, 0x11], [0x05, 0x0d]);
    for first in operations {
        assert_eq!(
            (sizes(Role::Connector, first), sizes(Role::Listener, first)),
            (1, 3)
        );
    }
    for first in acknowledgements {
        assert_eq!(
            (sizes(Role::Connector, first), sizes(Role::Listener, first)),
            (3, 1)
        );
    }
}

#[test]
fn a_message_of_no_parts_is_one_of_an_empty_part_is_another() {
    let parts = |bytes: &[u8]| match decode(0, Limits::default(), bytes) {
        Ok(Decoded::Whole {
            packet:
                Packet::Channel {
                    body: Body::Message(parts),
                    ..
                },
            len: 8,
        }) => (parts.len(), parts.is_empty(), parts.bytes()),
        other => panic!("{other:?}"),
    };
    assert_eq!(parts(&[0x11, 0, 0, 0, 0, 0, 0, 0]), (0, true, 0));
    assert_eq!(parts(&[0x11, 1, 0, 0, 0, 0, 0, 0]), (1, false, 0));
}
