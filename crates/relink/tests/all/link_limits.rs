//! The memory that a link holds for a peer is bounded, for any input.

#![allow(clippy::disallowed_methods)] // tests may panic, and need an instant

use std::sync::Arc;

use crate::one_end::{OneEnd, about, bare, general, id, message, operation, text};
use ackline_core::{
    Connection, EVENTS_PER_CALL, ErrorKind as _, Need, Quota, SEND_QUEUE_BYTES, Sequence,
    UsageError,
};
use ackline_relink::frame::{Acknowledgement, Body, Operation, Packet, Targets};
use ackline_relink::{CHANNEL_BYTES, ChannelId, Event, FREE_CHANNELS, Kind, Link, Payload};
use bytes::Bytes;

#[test]
fn owed_pongs_are_counted_and_leave_as_there_is_room() {
    let mut end = OneEnd::new(bare(1, false));
    let ping = general(Packet::Ping);
    for _ in 0..60 {
        end.take(&ping.repeat(1_000)).unwrap();
    }
    let first = end.some_sent();
    assert_eq!(first.len(), SEND_QUEUE_BYTES);
    let rest = end.sent();
    assert_eq!(first.len() + rest.len(), 60_000 * 8);
    assert!(rest.chunks(8).all(|pong| pong == general(Packet::Pong)));
}

#[test]
fn closes_of_unknown_channels_are_answered_up_to_a_limit() {
    let mut config = bare(2, false);
    config.max_channels = 100;
    let mut end = OneEnd::new(config);
    let close = |number: u16| about(&number.to_le_bytes(), Body::Operation(Operation::Close));
    let closes: Vec<u8> = (0..100).flat_map(close).collect();
    end.take(&closes).unwrap();
    assert_eq!(end.sent().len(), 100 * 8);
    end.take(&closes).unwrap();
    let over = end.take(&close(7)).unwrap_err();
    assert!(matches!(over, Kind::Limit(hit) if hit.option == "--max-channels" && hit.limit == 100));
}

#[test]
fn open_channels_of_the_peer_are_limited() {
    let mut config = bare(1, false);
    config.max_channels = 3;
    let mut end = OneEnd::new(config);
    for channel in 0..3 {
        end.take(&message(&[id(channel)], &text("m"))).unwrap();
        end.take(&operation(channel, Operation::Close, None))
            .unwrap();
    }
    // One channel ends, and another may open.
    end.link.consume(end.now, &id(1), Sequence(0)).unwrap();
    assert_eq!(end.sent().len(), 16);
    end.take(&message(&[id(8)], &text("m"))).unwrap();
    let over = end.take(&message(&[id(9)], &text("m"))).unwrap_err();
    assert!(matches!(over, Kind::Limit(hit) if (hit.value, hit.limit) == (4, 3)));
}

/// Returns a message of so many bytes for so many channels without an id.
fn many(bytes: usize, count: u32) -> Vec<u8> {
    let payload = Payload::from(Bytes::from(vec![7; bytes]));
    let mut many = message(&[ChannelId::IMPLICIT, ChannelId::IMPLICIT], &payload);
    many[4..8].copy_from_slice(&count.to_le_bytes());
    many
}

#[test]
fn a_multicast_to_a_count_of_nothing_is_taken_in_steps_and_ends_at_the_window() {
    let mut config = bare(0, false);
    (config.limits.max_multicast_bytes, config.limits.copies) = (u64::MAX, u32::MAX);
    let mut end = OneEnd::new(config);
    assert_eq!(end.receive(&many(5_000, 1_048_576)), Ok(Need::Again));
    let events = end.events();
    // The first delivery is paid for by the packet, and the others are at most 16 KiB.
    assert_eq!(events.len(), 4);
    let address = |event: &Event| match event {
        Event::Message { payload, .. } => payload.as_slice()[0].as_ptr(),
        other => unreachable!("{other:?}"),
    };
    // All deliveries share one payload.
    let first = address(&events[0]);
    assert!(events.iter().all(|event| address(event) == first));
    let mut taken = events.len();
    let over = loop {
        assert_eq!(end.link.step_bytes(), 16 << 10);
        match end.link.receive(end.now, &mut end.input) {
            Ok(need) => assert_eq!(need, Need::Again),
            Err(error) => break error,
        }
        let events = end.events();
        assert!(events.len() <= 3);
        taken += events.len();
    };
    taken += end.events().len();
    assert_eq!((taken, over.offset), (65_536, 0));
    assert!(matches!(over.kind, Kind::Limit(hit) if hit.option == "--receive-window"));
    assert_eq!(end.link.held_bytes(), 65_536 * 5_000);
}

#[test]
fn many_parts_are_charged_for_their_handles_before_they_are_made() {
    let mut end = OneEnd::new(bare(0, false));
    let parts = |count| Payload::from_parts(vec![Bytes::new(); count]);
    let message = |count| message(&[ChannelId::IMPLICIT], &parts(count));
    end.receive(&message(1)).unwrap();
    assert_eq!(
        end.link.held_bytes(),
        0,
        "one part has no handle of its own"
    );
    end.receive(&message(2)).unwrap();
    assert_eq!(end.link.held_bytes(), 2 * 32);
    let before = end.link.held_bytes();
    let many = message(1_000).repeat(20);
    assert_eq!(end.receive(&many), Ok(Need::Again));
    let mut taken = end.events().len() - 2;
    while taken < 20 {
        let granted = end.link.step_bytes();
        let held = end.link.held_bytes();
        end.receive(&[]).unwrap();
        let added = end.link.held_bytes() - held;
        assert!(added <= granted, "{added} and {granted} were granted");
        taken += end.events().len();
    }
    assert_eq!(end.link.held_bytes() - before, 20 * 1_000 * 32);
    let last = end.link.stats().messages_received;
    end.link
        .consume(
            end.now,
            &ChannelId::IMPLICIT,
            Sequence(u32::try_from(last - 1).unwrap()),
        )
        .unwrap();
    assert_eq!(end.link.held_bytes(), 0);
}

#[test]
fn the_bytes_of_a_step_are_told_before_it_is_taken() {
    let mut config = bare(0, false);
    config.limits.copies = 30;
    let mut end = OneEnd::new(config);
    assert_eq!(end.link.step_bytes(), 0);
    // A message for one channel adds its own bytes.
    assert!(end.receive(&many(100_000, 1)).is_ok());
    assert_eq!(end.link.step_bytes(), 0);
    assert_eq!(end.receive(&many(100_000, 3)), Ok(Need::Again));
    for left in (0..3).rev() {
        assert_eq!(end.events().len(), if left == 2 { 2 } else { 1 });
        assert_eq!(end.link.held_bytes(), 100_000 * (4 - left));
        if left > 0 {
            assert_eq!(end.link.step_bytes(), 100_064);
        }
        end.receive(&[]).unwrap();
    }
    // Small packets are limited together: at most 16 KiB of them in one step.
    let one = many(60, 30);
    assert_eq!(end.receive(&one.repeat(400)), Ok(Need::Again));
    loop {
        let before = end.link.held_bytes();
        let granted = end.link.step_bytes();
        assert_eq!(granted, 16 << 10);
        let came = end.input.len();
        let need = end.receive(&[]).unwrap();
        end.events();
        let added = end.link.held_bytes() - before;
        assert!(added <= granted + came - end.input.len());
        if need != Need::Again {
            break;
        }
    }
}

#[test]
fn a_multicast_leaves_in_packets_that_this_end_would_take() {
    let mut config = bare(1, false);
    config.limits.max_multicast_bytes = 10_000;
    let mut end = OneEnd::new(config);
    let channels: Vec<ChannelId> = (1..=5).map(id).collect();
    let payload = Payload::from(Bytes::from(vec![7; 4_000]));
    end.link.send(end.now, &channels, payload.clone()).unwrap();
    let expected = [
        message(&channels[..2], &payload),
        message(&channels[2..4], &payload),
        message(&channels[4..], &payload),
    ];
    assert!(end.sent() == expected.concat());
    let large = Payload::from(Bytes::from(vec![7; 10_001]));
    end.link
        .send(end.now, &channels[..2], large.clone())
        .unwrap();
    let each = channels[..2].iter();
    let each: Vec<u8> = each
        .flat_map(|id| message(std::slice::from_ref(id), &large))
        .collect();
    assert!(end.sent() == each);
}

#[test]
fn copies_for_a_channel_without_an_id_leave_in_packets_that_this_end_would_take() {
    let mut end = OneEnd::new(bare(0, false));
    let copies = vec![ChannelId::IMPLICIT; 20];
    end.link.send(end.now, &copies, text("m")).unwrap();
    let packets = [8, 8, 4].map(|count| message(&copies[..count], &text("m")));
    assert_eq!(end.sent(), packets.concat());
}

#[test]
fn input_waits_while_events_are_not_taken() {
    let mut config = bare(1, false);
    config.max_events = 10;
    let mut end = OneEnd::new(config);
    let one = message(&[id(1)], &text("m"));
    assert_eq!(end.receive(&one.repeat(25)), Ok(Need::Room));
    assert_eq!(end.input.len(), one.len() * 15);
    assert_eq!(end.receive(&[]), Ok(Need::Room));
    assert_eq!(end.events().len(), 10);
    assert_eq!(end.take(&[]).unwrap().len(), 15);
}

#[test]
fn input_waits_while_too_many_bytes_are_not_taken() {
    let mut config = bare(1, false);
    config.max_event_bytes = 3_000;
    let mut end = OneEnd::new(config);
    let payload = Payload::from(Bytes::from(vec![0; 1_000]));
    let one = message(&[id(1)], &payload);
    assert_eq!(end.receive(&one.repeat(5)), Ok(Need::Room));
    assert_eq!(end.events().len(), 3);
    // A multicast stops between its channels too.
    let both = message(&[id(1), id(2), id(3), id(4)], &payload);
    assert_eq!(end.receive(&both), Ok(Need::Room));
    assert_eq!((end.events().len(), end.input.len()), (3, 0));
    assert_eq!(end.take(&[]).unwrap().len(), 3);
}

#[test]
fn held_bytes_are_those_delivered_and_not_consumed() {
    let mut end = OneEnd::new(bare(1, false));
    for size in [10, 10, 2_000, 0] {
        let payload = Payload::from(vec![1; size]);
        end.take(&message(&[id(1), id(2)], &payload)).unwrap();
    }
    assert_eq!(end.link.held_bytes(), 2 * 2_020);
    end.link.consume(end.now, &id(1), Sequence(1)).unwrap();
    assert_eq!(end.link.held_bytes(), 2_000 + 2_020);
    end.link.consume(end.now, &id(2), Sequence(3)).unwrap();
    assert_eq!(end.link.held_bytes(), 2_000);
    end.link.consume(end.now, &id(1), Sequence(3)).unwrap();
    assert_eq!(end.link.held_bytes(), 0);
}

#[test]
fn output_stops_when_there_is_no_room_and_goes_on_where_it_was() {
    let mut end = OneEnd::new(bare(1, false));
    let payload = Payload::from(Bytes::from(vec![7; 150_000]));
    for _ in 0..5 {
        end.link.send_to(end.now, &id(1), payload.clone()).unwrap();
    }
    let one = message(&[id(1)], &payload);
    assert_eq!(end.some_sent(), one.repeat(2));
    assert_eq!(end.some_sent(), one.repeat(2));
    assert_eq!(end.some_sent(), one);
    assert_eq!(end.some_sent(), b"");
}

#[test]
fn twenty_thousand_channels_are_announced_as_there_is_room() {
    let mut end = OneEnd::new(bare(2, false));
    for number in 0..20_000_u16 {
        let channel = ChannelId::from(number);
        end.take(&message(&[channel], &text("m"))).unwrap();
    }
    end.resume();
    let first = end.some_sent();
    assert_eq!(first.len(), SEND_QUEUE_BYTES);
    let announced = [first, end.sent()].concat();
    assert_eq!(announced.len(), 20_000 * 16 + 8);
    assert!(announced.ends_with(&general(Packet::Resume)));
    // The order is that of the ids, ascending.
    let ids: Vec<_> = announced.chunks_exact(16).map(|both| &both[2..4]).collect();
    assert!(ids.is_sorted());
}

#[test]
fn pings_are_limited() {
    let mut end = OneEnd::new(bare(1, false));
    for _ in 0..1_024 {
        end.link.ping(end.now).unwrap();
    }
    let refused: UsageError = end.link.ping(end.now).unwrap_err();
    assert_eq!(refused.code, "window_full");
    assert_eq!(end.sent().len(), 1_024 * 8);
    end.take(&general(Packet::Pong)).unwrap();
    end.link.ping(end.now).unwrap();
}

#[test]
fn outcomes_that_the_peer_has_seen_are_not_kept() {
    let mut config = bare(1, true);
    config.max_outcome_runs = 8;
    let mut end = OneEnd::new(config);
    let one = message(&[id(1)], &text("m"));
    end.take(&one.repeat(40)).unwrap();
    end.take(&operation(1, Operation::Commit, Some(39)))
        .unwrap();
    let answer = |end: &mut OneEnd, number: u32| {
        let through = Some(Sequence(number));
        if number.is_multiple_of(2) {
            end.link.committed(end.now, &id(1), through)
        } else {
            end.link.uncommitted(end.now, &id(1), through)
        }
    };
    for number in 0..8 {
        answer(&mut end, number).unwrap();
    }
    assert_eq!(answer(&mut end, 8).unwrap_err().code, "outcomes_full");
    // Above half of the limit, a ping finds out whether the peer knows them.
    let sent = end.sent();
    assert_eq!(sent[..8], general(Packet::Ping));
    assert_eq!(sent.len(), 8 + 8 * 8);
    end.take(&general(Packet::Pong)).unwrap();
    // The ping left before the outcomes; the next one tells.
    assert_eq!(answer(&mut end, 8).unwrap_err().code, "outcomes_full");
    assert_eq!(end.sent(), general(Packet::Ping));
    end.take(&general(Packet::Pong)).unwrap();
    answer(&mut end, 8).unwrap();
    end.sent();
    end.resume();
    // Outcomes that the peer knows are not repeated, except the last run.
    let told = Body::SequenceAcknowledgement(Acknowledgement::Uncommitted, Sequence(7));
    let sent = end.sent();
    assert_eq!(sent[16..24], about(&[1], told));
    assert_eq!(sent.len(), 16 + 16 + 8);
}

#[test]
fn a_long_multicast_of_operations_is_taken_in_steps() {
    let mut end = OneEnd::new(bare(2, false));
    let ids: Vec<u8> = (0..1_000_u16).flat_map(u16::to_le_bytes).collect();
    let close = general(Packet::Channel {
        targets: Targets::multicast(&ids, 2, 1_000),
        body: Body::Operation(Operation::Close),
    });
    let ping = general(Packet::Ping);
    assert_eq!(end.receive(&[close, ping].concat()), Ok(Need::Again));
    assert_eq!(end.some_sent().len(), EVENTS_PER_CALL * 8);
    assert!(end.take(&[]).unwrap().is_empty());
    let sent = end.sent();
    assert_eq!(sent.len(), 8 + (1_000 - EVENTS_PER_CALL) * 8);
    assert_eq!(sent[..8], general(Packet::Pong));
}

/// A link with ids of 4 bytes that shares `quota`, after the peer has opened so many channels.
fn sharing(quota: &Arc<Quota>, channels: u32) -> OneEnd {
    let mut end = OneEnd::new(bare(4, false));
    end.link.share(Arc::clone(quota));
    for number in 0..channels {
        end.take(&opening(number))
            .expect("a channel within the limits");
    }
    end
}

/// A message that opens a channel.
fn opening(number: u32) -> Vec<u8> {
    message(&[ChannelId::from(number)], &text("m"))
}

#[test]
fn channels_of_the_peer_are_charged_to_the_quota_of_all_links() {
    let quota = Arc::new(Quota::new(20 * CHANNEL_BYTES));
    let free = u32::try_from(FREE_CHANNELS).unwrap();
    let mut one = sharing(&quota, free + 10);
    assert_eq!(quota.used(), 10 * CHANNEL_BYTES);
    // A channel that is open already costs nothing more.
    one.take(&opening(0)).unwrap();
    let over = one.take(&opening(free + 10)).unwrap_err();
    assert_eq!(
        over.to_string(),
        "the link's open channels take 5632 bytes; a link may have 5120 for them now, of a quarter of \
         --memory"
    );
    let hit = over.limit().unwrap();
    assert_eq!(
        (hit.value, hit.limit),
        (11 * CHANNEL_BYTES, 10 * CHANNEL_BYTES)
    );
    assert_eq!(hit.option, "--memory");

    // Another link has its free channels, and half of the quota that is left.
    let mut other = sharing(&quota, free + 5);
    other.take(&opening(free + 5)).unwrap_err();
    assert_eq!(quota.used(), 15 * CHANNEL_BYTES);
    let _third = sharing(&quota, free + 2);
    assert_eq!(quota.used(), 17 * CHANNEL_BYTES);
    drop((one, other));
    assert_eq!(quota.used(), 2 * CHANNEL_BYTES);
}

#[test]
fn a_closed_channel_frees_its_charge_and_a_restored_one_is_charged() {
    let quota = Arc::new(Quota::new(20 * CHANNEL_BYTES));
    let free = u32::try_from(FREE_CHANNELS).unwrap();
    let mut end = sharing(&quota, free + 2);
    let close = about(&1_u32.to_le_bytes(), Body::Operation(Operation::Close));
    end.take(&close).unwrap();
    for number in 0..free + 2 {
        let channel = ChannelId::from(number);
        end.link.consume(end.now, &channel, Sequence(0)).unwrap();
    }
    end.sent();
    assert_eq!(quota.used(), CHANNEL_BYTES);
    // Channels from a journal are charged, and never refused.
    let changes = end.link.snapshot();
    drop(end);
    let mut config = bare(4, false);
    config.journal = true;
    let mut again = Link::restore(config, changes).unwrap();
    again.share(Arc::clone(&quota));
    assert_eq!(again.stats().channels_incoming, FREE_CHANNELS + 1);
    assert_eq!(quota.used(), CHANNEL_BYTES);
}

#[test]
fn a_close_that_comes_twice_before_the_announcement_frees_its_charge_once() {
    let quota = Arc::new(Quota::new(20 * CHANNEL_BYTES));
    let free = u32::try_from(FREE_CHANNELS).unwrap();
    let mut end = sharing(&quota, free + 2);
    let first = ChannelId::from(1_u32);
    let close = about(first.as_bytes(), Body::Operation(Operation::Close));
    end.link.consume(end.now, &first, Sequence(0)).unwrap();
    end.take(&close).unwrap();
    end.resume();
    assert_eq!(quota.used(), 2 * CHANNEL_BYTES);
    end.take(&close.repeat(2)).unwrap();
    assert_eq!(quota.used(), CHANNEL_BYTES);
    end.sent();
    assert_eq!(quota.used(), CHANNEL_BYTES);
}

#[test]
fn a_closed_channel_frees_its_charge_for_one_that_the_same_bytes_open() {
    let quota = Arc::new(Quota::new(4 * CHANNEL_BYTES));
    let mut end = OneEnd::new(bare(4, false));
    end.link.share(Arc::clone(&quota));
    let free = u32::try_from(FREE_CHANNELS).unwrap();
    let opened = |number: u32| message(&[ChannelId::from(number)], &text("m"));
    let close = |number: u32| about(&number.to_le_bytes(), Body::Operation(Operation::Close));
    let consume = |end: &mut OneEnd, number: u32| {
        let channel = ChannelId::from(number);
        end.link.consume(end.now, &channel, Sequence(0)).unwrap();
    };
    for number in 0..free + 2 {
        end.take(&opened(number)).unwrap();
        consume(&mut end, number);
    }
    assert_eq!(quota.used(), 2 * CHANNEL_BYTES);
    // There was no output between the close and the next packets, and a second close has no effect on the charge.
    let bytes = [close(0), close(0), opened(free + 2)].concat();
    end.take(&bytes).unwrap();
    assert_eq!(quota.used(), 2 * CHANNEL_BYTES);
    end.take(&opened(free + 3)).unwrap_err();
    // The same holds if the last message is consumed after the close.
    end.resume();
    let left = "the answer to the close has left before the error";
    assert_eq!(quota.used(), 2 * CHANNEL_BYTES, "{left}");
    end.take(&close(free + 2)).unwrap();
    consume(&mut end, free + 2);
    assert_eq!(quota.used(), CHANNEL_BYTES);
    end.take(&[close(0), close(1)].concat()).unwrap();
    assert_eq!(quota.used(), 0);
    end.take(&general(Packet::Resume)).unwrap();
    end.sent();
    assert_eq!(end.link.stats().channels_incoming, FREE_CHANNELS);
    end.take(&[opened(0), opened(1)].concat()).unwrap();
    assert_eq!(quota.used(), 2 * CHANNEL_BYTES);
}

#[test]
fn a_peer_that_reads_no_closed_has_few_channels_free_of_charge() {
    let quota = Arc::new(Quota::new(10_000 * CHANNEL_BYTES));
    let mut end = OneEnd::new(bare(4, false));
    end.link.share(Arc::clone(&quota));
    for number in 0..1_000_u32 {
        let channel = ChannelId::from(number);
        end.take(&message(std::slice::from_ref(&channel), &text("m")))
            .unwrap();
        end.link.consume(end.now, &channel, Sequence(0)).unwrap();
        let close = about(&number.to_le_bytes(), Body::Operation(Operation::Close));
        end.take(&close).unwrap();
    }
    let charged = u64::try_from(1_000 - FREE_CHANNELS - EVENTS_PER_CALL).unwrap();
    assert_eq!(quota.used(), charged * CHANNEL_BYTES);
    end.sent();
    assert_eq!(quota.used(), 0);
}
