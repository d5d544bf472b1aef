//! The functions of the fuzz targets, on random input.
#![allow(clippy::disallowed_methods)] // a test needs some instant

use std::time::Instant;

use ackline_relink::fuzzing;
use proptest::prelude::*;

/// Header bytes of sound packets, and some of unsound ones.
fn header() -> impl Strategy<Value = u8> {
    prop_oneof![
        // General packets.
        2 => (0_u8..5).prop_map(|kind| kind << 5),
        // Messages, short and small; multicast.
        5 => Just(0x11_u8),
        1 => Just(0x13_u8),
        // Any operation or acknowledgement.
        4 => (0_u8..4, 0_u8..5).prop_map(|(format, kind)| 1 | format << 2 | kind << 5),
        1 => any::<u8>(),
    ]
}

/// Eight bytes, mostly a packet for id sizes 1 and 2.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    (header(), 0_u8..4, 0_u8..4, 0_u8..3).prop_map(|(first, short, channel, number)| {
        let mut packet = vec![first, short & 1, channel, 0, 0, 0, 0, 0];
        match first {
            0x11 => packet[4] = 0,
            0x13 => (packet[2], packet[4]) = (0, number),
            _ => packet[4] = number,
        }
        packet
    })
}

proptest! {
    #[test]
    fn any_split_of_packets_gives_the_same(
        shape in any::<(u8, u8, u8)>(),
        packets in proptest::collection::vec(packet(), 0..40),
        rest in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        // The handshake is left out, because random packets do not pass it.
        let mut data = vec![shape.0 & !2, shape.1, shape.2];
        data.extend(packets.concat());
        data.extend(rest);
        fuzzing::receive(Instant::now(), &data);
    }

    #[test]
    fn any_split_of_a_handshake_gives_the_same(
        shape in any::<(u8, u8, u8)>(),
        flags in 0_u8..8,
        numbers in (0_u8..3, 0_u8..3),
        packets in proptest::collection::vec(packet(), 0..20),
        dirt in proptest::option::of((0_usize..40, any::<u8>())),
    ) {
        let mut data = vec![shape.0 | 2, shape.1, shape.2];
        data.extend([0; 8]);
        if shape.0 & 1 == 1 {
            let sizes = [[0, 0], [1, 1], [2, 1], [1, 9]][usize::from(shape.0 >> 6)];
            let agreed = shape.0 >> 3 & 3 | flags & 4;
            data.extend([0, sizes[0], sizes[1], agreed, 0, 0, 0, 0]);
        }
        data.extend([numbers.0, 0, 0, 0, 0, 0, 0, 0, numbers.1, 0, 0, 0, 0, 0, 0, 0]);
        data.extend(packets.concat());
        if let Some((at, byte)) = dirt {
            let at = at % data.len();
            data[at] ^= byte;
        }
        fuzzing::receive(Instant::now(), &data);
    }

    #[test]
    fn nothing_is_lost_doubled_or_out_of_order_whatever_happens(
        shape in any::<u8>(),
        steps in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut data = vec![shape];
        data.extend(steps);
        fuzzing::ops(Instant::now(), &data);
    }
}
