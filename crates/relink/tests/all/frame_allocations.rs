//! Decoding allocates nothing, for any numbers in the packets.

use ackline_relink::frame::{self, Context, Decoded, Packet, Role};
use ackline_relink::{ChannelId, Limits};

use crate::counting::allocated;

#[test]
fn decoding_allocates_nothing_by_the_numbers_on_the_wire() {
    let open = Limits {
        max_channel_ids: u32::MAX,
        max_message_parts: u32::MAX,
        max_part_bytes: u64::MAX,
        max_message_bytes: u64::MAX,
        max_multicast_bytes: u64::MAX,
        copies: u32::MAX,
    };
    let most = u32::MAX.to_le_bytes();
    let hostile = [
        // A multicast to 2^32-1 channels: without ids, with missing ids, with parts.
        [&[0x03, 0, 0, 0][..], &most].concat(),
        [&[0x13, 9, 0, 0][..], &most].concat(),
        // 2^32-1 parts, small and large; a part of 2^64-1 bytes, one of 2^62.
        [&[0x31, 0][..], &most, &[0; 2]].concat(),
        [&[0x71, 0][..], &most, &[0; 2]].concat(),
        [&[0x51, 1, 0, 0, 0, 0, 0, 0][..], &u64::MAX.to_le_bytes()].concat(),
        [
            &[0x51, 1, 0, 0, 0, 0, 0, 0][..],
            &(1_u64 << 62).to_le_bytes(),
        ]
        .concat(),
        // Sound packets: 255 parts, and a ping.
        [&[0x11, 0xff][..], &[0; 518]].concat(),
        vec![0x20, 0, 0, 0, 0, 0, 0, 0],
    ];
    for limits in [Limits::default(), open] {
        for id_size in [0, 2, 255] {
            let context = Context {
                from: Role::Connector,
                connector_channel_id_size: id_size,
                listener_channel_id_size: id_size,
            };
            for bytes in &hostile {
                let came = allocated(|| {
                    for cut in 0..=bytes.len() {
                        let _ =
                            std::hint::black_box(frame::decode(&context, &limits, &bytes[..cut]));
                    }
                });
                assert_eq!(came, 0, "{bytes:02x?} with id size {id_size}");
            }
        }
    }
}

#[test]
fn walking_ids_and_parts_allocates_nothing_for_ids_of_22_bytes() {
    let context = Context {
        from: Role::Connector,
        connector_channel_id_size: 22,
        listener_channel_id_size: 0,
    };
    let mut wire = vec![0x13, 1, 0, 0, 2, 0, 0, 0];
    wire.extend_from_slice(&[7; 44]);
    wire.extend_from_slice(&[3, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0, 0]);
    let came = allocated(|| {
        let decoded = frame::decode(&context, &Limits::default(), &wire);
        let Ok(Decoded::Whole {
            packet: Packet::Channel { targets, body },
            ..
        }) = decoded
        else {
            panic!("{decoded:?}");
        };
        assert!(targets.iter().map(ChannelId::from).all(|id| id.len() == 22));
        let frame::Body::Message(parts) = body else {
            panic!("{body:?}")
        };
        assert!(parts.iter().eq([b"abc"]));
    });
    assert_eq!(came, 0);
    let longer = allocated(|| drop(ChannelId::from(&[7; 23])));
    assert!(longer >= 23, "the counter counts: {longer}");
}
