//! Messages per second through two ends in memory: `cargo run --release -p ackline-relink --example speed`.
//!
//! With a number as its argument it sends so many times fewer messages, for a run under callgrind.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stdout)] // it measures and tells

use std::time::Instant;

use ackline_core::{Connection, Need, SendQueue};
use ackline_relink::frame::{Parameters, Role};
use ackline_relink::{Attach, ChannelId, Event, Link, LinkConfig, LinkKey, Payload};
use bytes::{Buf, Bytes, BytesMut};

fn main() {
    let fewer = std::env::args()
        .nth(1)
        .map_or(1, |text| text.parse().unwrap());
    for (size, channels) in [(64, 1), (64, 10_000), (65_536, 1)] {
        let messages = if size > 1_000 { 100_000 } else { 6_000_000 } / fewer;
        let (started, used) = (Instant::now(), processor_seconds());
        run(messages, size, channels);
        let rate = |seconds: f64| f64::from(messages) / seconds / 1e6;
        println!(
            "{size} bytes on {channels} channels: {:.2} M messages/s, {:.2} M per second of processor",
            rate(started.elapsed().as_secs_f64()),
            rate(processor_seconds() - used),
        );
    }
}

/// Processor time of this process: the load of other processes does not count.
fn processor_seconds() -> f64 {
    let line = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = line.split(' ').next().and_then(|text| text.parse().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

fn run(messages: u32, size: usize, channels: u32) {
    let parameters = Parameters {
        connector_channel_id_size: 4,
        listener_channel_id_size: 4,
        ..Parameters::default()
    };
    let now = Instant::now();
    let key = LinkKey {
        epoch: 1,
        link_id: 1,
    };
    let [mut sender, mut receiver] = [Role::Connector, Role::Listener].map(|role| {
        let mut link = Link::new(LinkConfig::new(role, parameters), key);
        link.attach(now, Attach::New(key));
        link
    });
    let ids: Vec<_> = (0..channels).map(ChannelId::from).collect();
    let payload = Payload::from(Bytes::from(vec![7; size]));
    let (mut input, mut back) = (BytesMut::new(), BytesMut::new());
    let (mut sent, mut received) = (0, 0);
    while received < messages {
        let now = Instant::now();
        for _ in 0..512 {
            let id = &ids[(sent % channels) as usize];
            if sent == messages || sender.send_to(now, id, payload.clone()).is_err() {
                break;
            }
            sent += 1;
        }
        flow(&mut sender, now, &mut input);
        loop {
            let need = receiver.receive(now, &mut input).unwrap();
            let mut last: Option<(ChannelId, _)> = None;
            while let Some(event) = receiver.poll_event() {
                if let Event::Message {
                    channel, sequence, ..
                } = event
                {
                    received += 1;
                    if let Some((before, through)) = last.replace((channel, sequence))
                        && last.as_ref().is_none_or(|(now, _)| *now != before)
                    {
                        receiver.consume(now, &before, through).unwrap();
                    }
                }
            }
            if let Some((channel, through)) = last {
                receiver.consume(now, &channel, through).unwrap();
            }
            if matches!(need, Need::Input { .. }) {
                break;
            }
        }
        receiver.handle_timeout(now).unwrap();
        flow(&mut receiver, now, &mut back);
        sender.receive(now, &mut back).unwrap();
        while sender.poll_event().is_some() {}
    }
}

fn flow(link: &mut Link, now: Instant, into: &mut BytesMut) {
    loop {
        let mut out = SendQueue::new();
        link.poll_transmit(now, &mut out);
        if out.is_empty() {
            return;
        }
        while out.has_remaining() {
            let chunk = out.chunk().len();
            into.extend_from_slice(out.chunk());
            out.advance(chunk);
        }
    }
}
