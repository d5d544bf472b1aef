//! Decisions between the messages that go out again (R-RELINK-V25), for a bound of 0 untold bytes. The packets of an
//! end on its own channels pass through this module.

use crate::endpoint::{Endpoint, Phase};
use crate::outgoing::Closing;
use crate::packet::{CHANNELS, Count, Operation, Output, Packet};

/// Packets that wait for the peer's resume, and the channels with a decision that is due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Between {
    held: Vec<Packet>,
    due: [bool; CHANNELS],
}

impl Between {
    fn is_due(&self) -> bool {
        self.due.contains(&true)
    }
}

impl Endpoint {
    /// Orders the packets that one call or packet has made this end write.
    pub fn put_between(&mut self, out: &mut Output) {
        let written = std::mem::take(&mut out.packets);
        if self.phase == Phase::Up {
            self.tell_due(out);
            for packet in std::mem::take(&mut self.between.held) {
                self.put(packet, out);
            }
        }
        for packet in written {
            self.put(packet, out);
        }
    }

    /// The transport is gone, and the peer does not know the packets that were not written.
    pub fn cut_between(&mut self) {
        for packet in std::mem::take(&mut self.between).held {
            if let Packet::Close(channel) = packet
                && let Some(outgoing) = &mut self.outgoing[channel]
            {
                outgoing.closing = Closing::Called;
            }
        }
        for outgoing in self.outgoing.iter_mut().flatten() {
            outgoing.carried.told = outgoing.decisions.answered;
        }
    }

    fn put(&mut self, packet: Packet, out: &mut Output) {
        let is_planned = matches!(
            packet,
            Packet::Message { .. } | Packet::Multicast(_) | Packet::Close(_) | Packet::Decision(..)
        );
        if is_planned && self.between.is_due() {
            self.between.held.push(packet);
            return;
        }
        match packet {
            Packet::Message { channel, message } => {
                out.packets.push(packet);
                self.carried(channel, message);
            }
            Packet::Multicast(messages) => {
                out.packets.push(packet);
                for (channel, message) in messages.into_iter().enumerate() {
                    self.carried(channel, message);
                }
            }
            Packet::Decision(channel, operation, through) => {
                let Some(outgoing) = &mut self.outgoing[channel] else {
                    return;
                };
                let told = through.unwrap_or(outgoing.decisions.decided);
                if told > outgoing.carried.told {
                    outgoing.carried.told = told;
                    out.packets
                        .push(Packet::Decision(channel, operation, through));
                }
            }
            _ => out.packets.push(packet),
        }
        if self.phase == Phase::Up {
            self.tell_due(out);
        }
    }

    /// A message was written: if a decision ends with it, the decision is due.
    fn carried(&mut self, channel: usize, message: u8) {
        if let Some(outgoing) = &mut self.outgoing[channel] {
            let count = message - outgoing.first + 1;
            outgoing.carried.count = count;
            let carried = outgoing.carried;
            self.between.due[channel] |= carried.is_end(count) && count > carried.told;
        }
    }

    fn tell_due(&mut self, out: &mut Output) {
        for channel in 0..CHANNELS {
            if !std::mem::take(&mut self.between.due[channel]) {
                continue;
            }
            let Some(outgoing) = &mut self.outgoing[channel] else {
                continue;
            };
            let carried = outgoing.carried;
            let is_end = |count: &Count| carried.is_end(*count);
            let last = (1..=carried.count).rev().find(is_end).unwrap_or(0);
            let mut runs: Vec<(Operation, Count)> = Vec::new();
            for index in carried.told.max(outgoing.decisions.answered)..last {
                let operation = outgoing.decisions.operation(index);
                match runs.last_mut() {
                    Some((before, through)) if *before == operation => *through = index + 1,
                    _ => runs.push((operation, index + 1)),
                }
            }
            outgoing.carried.told = carried.told.max(last);
            outgoing.bare = true;
            let packets = runs
                .into_iter()
                .map(|(operation, through)| Packet::Decision(channel, operation, Some(through)));
            out.packets.extend(packets);
        }
    }
}
