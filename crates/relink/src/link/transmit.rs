//! The output, in this order: a shutdown that a new transport repeats, hints, pongs and pings, the announcements of a
//! resume, the answers owed for the peer's channels, the steps that calls on own channels have planned, and the shutdown
//! when nothing is left. Packets are encoded late, and encoding stops when the queue is full.
//!
//! Its rules: REQ-RELINK-61, R-REL-27, R-RELINK-V17.

use std::cmp::Reverse;
use std::time::Instant;

use ackline_core::{SendQueue, Sequence};

use super::Link;
use super::channels::Key;
use super::outgoing::close::Input;
use super::transactions::Said;
use super::transport::{Step, Transport};
use crate::frame::{Acknowledgement, Body, Operation, Packet, Targets, encode, encode_message};
use crate::limits::TARGET_BYTES;
use crate::{ChannelId, Limits};

impl Link {
    pub(crate) fn put_output(&mut self, now: Instant, out: &mut SendQueue) {
        if let Some(transport) = &mut self.transport {
            out.append(&mut transport.staged);
        }
        if !self.is_attached() {
            return;
        }
        self.put_general(now, out);
        if self.announce(out) {
            self.put_answers(out);
            self.put_plan(out);
            self.put_shutdown(out);
            self.close_if_done();
        }
    }

    fn put_general(&mut self, now: Instant, out: &mut SendQueue) {
        let Some(transport) = &mut self.transport else {
            return;
        };
        // Hints go before the pongs: a peer that has its pong has seen the hints before it.
        transport.opening.put(out);
        transport.pings.put_pongs(out);
        let paused = transport.timing.pause;
        transport.pings.put(now, paused, &mut self.position, out);
    }

    fn put_plan(&mut self, out: &mut SendQueue) {
        while out.room() > 0 {
            if self.owes_decisions() && !self.plan_untold() {
                return;
            }
            let step = self
                .transport
                .as_mut()
                .and_then(|transport| transport.plan.pop_front());
            let Some(step) = step else {
                return;
            };
            let rest = match step {
                Step::Messages { key, count } => self
                    .put_messages(key, count, out)
                    .map(|count| Step::Messages { key, count }),
                Step::Multicast(keys) => {
                    self.put_multicast(&keys, out);
                    None
                }
                Step::Close(key) => {
                    self.put_close(key, out);
                    None
                }
                Step::Decisions(key) => {
                    let has_more = self.put_decisions(key, out);
                    has_more.then_some(Step::Decisions(key))
                }
            };
            if let (Some(rest), Some(transport)) = (rest, &mut self.transport) {
                transport.plan.push_front(rest);
            }
        }
    }

    /// Whether decisions come before the next step.
    fn owes_decisions(&self) -> bool {
        let most = self.config.undecided_bytes;
        let owes = |transport: &Transport| {
            transport.untold.is_due(most) && transport.untold.has_channels()
        };
        self.transport.as_ref().is_some_and(owes)
    }

    /// Plans the decisions that are due as the next steps, by ascending channel. Returns false before the peer's resume,
    /// which they wait for (R-RELINK-V4).
    fn plan_untold(&mut self) -> bool {
        let Some(transport) = &mut self.transport else {
            return false;
        };
        if transport.resuming.waits_for_peer() {
            return false;
        }
        let mut keys = Vec::from_iter(transport.untold.take_channels());
        let outgoing = &self.outgoing;
        keys.sort_by_key(|key| Reverse(outgoing.entry(*key).map(|(id, _)| id)));
        for key in keys {
            transport.plan.push_front(Step::Decisions(key));
        }
        true
    }

    /// Emits messages. Returns how many have to wait for room or for decisions.
    fn put_messages(&mut self, key: Key, mut count: u32, out: &mut SendQueue) -> Option<u32> {
        let most = self.config.undecided_bytes;
        let (id, channel) = self.outgoing.entry_mut(key)?;
        let transport = self.transport.as_mut()?;
        while count > 0 {
            if out.room() == 0 || transport.untold.is_due(most) {
                return Some(count);
            }
            let again = channel.repeats();
            let payload = channel.emit()?;
            let bytes = payload.bytes();
            encode_message(std::slice::from_ref(id), payload, out);
            transport.untold.count(key, channel.carried(bytes));
            if again {
                self.totals.sent_again();
            }
            count = count.saturating_sub(1);
        }
        None
    }

    /// Emits the next message of each channel, in as few packets as this end would accept itself.
    fn put_multicast(&mut self, keys: &[Key], out: &mut SendQueue) {
        let mut ids = Vec::with_capacity(keys.len());
        let mut payload = None;
        for key in keys {
            if let Some((id, channel)) = self.outgoing.entry_mut(*key)
                && let Some(message) = channel.emit()
            {
                let bytes = message.bytes();
                ids.push(id.clone());
                payload.get_or_insert_with(|| message.clone());
                if let Some(transport) = &mut self.transport {
                    transport.untold.count(*key, channel.carried(bytes));
                }
            }
        }
        if let Some(payload) = payload {
            let id_size = self.config.own_channel_id_size();
            for ids in ids.chunks(most_channels(&self.config.limits, id_size, payload.bytes())) {
                encode_message(ids, &payload, out);
            }
        }
    }

    fn put_close(&mut self, key: Key, out: &mut SendQueue) {
        if let Some((id, channel)) = self.outgoing.entry_mut(key) {
            channel.advance(Input::Emit);
            channel_packet(id, Body::Operation(Operation::Close), out);
        }
    }

    /// Emits decisions. Returns whether more of them have to wait for room.
    fn put_decisions(&mut self, key: Key, out: &mut SendQueue) -> bool {
        let Some((id, channel)) = self.outgoing.entry_mut(key) else {
            return false;
        };
        let limit = channel.emitted();
        let Some(decisions) = &mut channel.decisions else {
            return false;
        };
        while let Some(Said { kind, through }) = decisions.emit(limit) {
            let body = match through {
                Some(through) => Body::SequenceOperation(kind, through),
                None => Body::Operation(kind),
            };
            channel_packet(id, body, out);
            if out.room() == 0 {
                return true;
            }
        }
        if let Some(transport) = &mut self.transport {
            transport.untold.forget(key, decisions.told());
        }
        false
    }

    /// Emits the shutdown once every own channel is closed, or drained where channels are never closed (R-REL-25,
    /// R-REL-26).
    fn put_shutdown(&mut self, out: &mut SendQueue) {
        if !self.end.may_emit() || out.room() == 0 {
            return;
        }
        let is_done = if self.config.own_channel_id_size() == 0 {
            self.outgoing
                .iter()
                .all(|(_, channel)| channel.is_drained())
        } else {
            self.outgoing.is_empty()
        };
        if is_done {
            self.end.emit();
            encode(&Packet::Shutdown, out);
        }
    }
}

fn channel_packet(id: &ChannelId, body: Body<'_>, out: &mut SendQueue) {
    let targets = Targets::unicast(id.as_bytes());
    encode(&Packet::Channel { targets, body }, out);
}

pub(crate) fn acknowledgement(
    id: &ChannelId,
    acknowledgement: Acknowledgement,
    through: Option<Sequence>,
    out: &mut SendQueue,
) {
    let body = match through {
        Some(through) => Body::SequenceAcknowledgement(acknowledgement, through),
        None => Body::Acknowledgement(acknowledgement),
    };
    channel_packet(id, body, out);
}

pub(crate) fn say_outcome(id: &ChannelId, said: Said<bool>, out: &mut SendQueue) {
    let kind = if said.kind {
        Acknowledgement::Committed
    } else {
        Acknowledgement::Uncommitted
    };
    acknowledgement(id, kind, said.through, out);
}

/// Returns how many channels one packet may name, if its message has so many bytes.
fn most_channels(limits: &Limits, id_size: u8, bytes: usize) -> usize {
    let each = u64::try_from(bytes).unwrap_or(u64::MAX);
    let each = each.saturating_add(TARGET_BYTES);
    let by_bytes = limits.max_multicast_bytes.checked_div(each).unwrap_or(0);
    let copies = if id_size == 0 {
        limits.copies
    } else {
        u32::MAX
    };
    let by_ids = limits.max_channel_ids.min(copies);
    usize::try_from(by_bytes.min(by_ids.into()))
        .unwrap_or(usize::MAX)
        .max(1)
}
