//! Ten thousand channels on one link: each has its own order, window and life, also across a cut.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests may panic, and need an instant

use std::time::{Duration, Instant};

use ackline_core::{Connection as _, Need, SendQueue, Sequence};
use ackline_relink::frame::{Parameters, Role};
use ackline_relink::{Attach, ChannelId, Event, Link, LinkConfig, LinkKey, Payload};
use bytes::{BufMut as _, BytesMut};

const KEY: LinkKey = LinkKey {
    epoch: 1,
    link_id: 1,
};
const CHANNELS: u32 = 10_000;
const EACH: u32 = 3;

fn end(role: Role, now: Instant) -> Link {
    let parameters = Parameters {
        connector_channel_id_size: 4,
        listener_channel_id_size: 4,
        connector_transactions: false,
        listener_transactions: false,
    };
    let mut config = LinkConfig::new(role, parameters);
    config.ack_delay = Duration::ZERO;
    let mut link = Link::new(config, KEY);
    link.attach(now, Attach::New(KEY));
    link
}

/// Both ends, and the messages that the receiving application has seen.
struct Ends {
    now: Instant,
    sender: Link,
    receiver: Link,
    /// The next message of each channel.
    next: Vec<u32>,
    closed: usize,
}

impl Ends {
    /// Delivers the sender's output, up to so many bytes. The rest is lost.
    fn forth(&mut self, most: usize) -> bool {
        let mut bytes = said(&mut self.sender, self.now);
        bytes.truncate(most);
        let has_moved = !bytes.is_empty();
        let mut need = Need::Again;
        while need == Need::Again || need == Need::Room {
            need = self.receiver.receive(self.now, &mut bytes).unwrap();
            self.take();
        }
        has_moved
    }

    /// Delivers the answers. Returns whether there were any.
    fn back(&mut self) -> bool {
        let mut bytes = said(&mut self.receiver, self.now);
        let has_moved = !bytes.is_empty();
        let mut need = Need::Again;
        while need == Need::Again || need == Need::Room {
            need = self.sender.receive(self.now, &mut bytes).unwrap();
            while let Some(event) = self.sender.poll_event() {
                if let Event::Closed { unacknowledged, .. } = event {
                    assert_eq!(unacknowledged, 0);
                    self.closed += 1;
                }
            }
        }
        has_moved
    }

    fn settle(&mut self) {
        while self.forth(usize::MAX) | self.back() {}
    }

    /// Checks that each message is the next one of its channel.
    fn take(&mut self) {
        while let Some(event) = self.receiver.poll_event() {
            let Event::Message {
                channel,
                sequence,
                payload,
            } = event
            else {
                continue;
            };
            let at = u32::from_le_bytes(channel.as_bytes().try_into().unwrap());
            let expected = &mut self.next[usize::try_from(at).unwrap()];
            assert_eq!(sequence, Sequence(*expected), "channel {at}");
            assert_eq!(payload.as_slice()[0], expected.to_le_bytes().as_slice());
            *expected += 1;
            self.receiver.consume(self.now, &channel, sequence).unwrap();
        }
    }
}

/// Returns the output of one call.
fn said(link: &mut Link, now: Instant) -> BytesMut {
    let mut out = SendQueue::new();
    link.poll_transmit(now, &mut out);
    let mut bytes = BytesMut::new();
    bytes.put(out);
    bytes
}

#[test]
fn ten_thousand_channels_keep_their_order_across_cuts_and_are_all_closed() {
    let now = Instant::now();
    let mut ends = Ends {
        now,
        sender: end(Role::Connector, now),
        receiver: end(Role::Listener, now),
        next: vec![0; usize::try_from(CHANNELS).unwrap()],
        closed: 0,
    };
    for number in 0..EACH {
        for channel in 0..CHANNELS {
            let payload = Payload::from(number.to_le_bytes().to_vec());
            let channel = ChannelId::from(channel);
            ends.sender.send_to(now, &channel, payload).unwrap();
        }
    }
    for cut in 0..4 {
        ends.forth(usize::MAX);
        // The cut is in the middle of a packet, and every second time the answers are lost.
        ends.forth(10_005);
        if cut % 2 == 0 {
            ends.back();
        }
        for link in [&mut ends.sender, &mut ends.receiver] {
            assert!(link.detached(now));
            link.attach(now, Attach::Resumed);
        }
    }
    let counts = [0, EACH].map(|count| ends.next.contains(&count));
    assert_ne!(counts, [false, true], "all came before the cuts");
    ends.settle();
    assert!(ends.next.iter().all(|count| *count == EACH));
    assert_eq!(ends.sender.unacknowledged().count(), 0);
    assert_eq!(ends.receiver.stats().resumes, 4);
    for channel in 0..CHANNELS {
        let channel = ChannelId::from(channel);
        ends.sender.close_channel(now, &channel).unwrap();
    }
    ends.settle();
    let open = (
        ends.sender.stats().channels_outgoing,
        ends.receiver.stats().channels_incoming,
    );
    assert_eq!((ends.closed, open), (ends.next.len(), (0, 0)));
    assert_eq!(ends.receiver.held_bytes(), 0);
}
