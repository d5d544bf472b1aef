//! What is emitted, in this order: what a new transport begins with, hints, pongs and pings, the announcements
//! of a resume, what is owed for the peer's channels, what the calls on own channels have planned, and
//! the shutdown when nothing is left. All of it is encoded late and stops when the queue is full.
//!
//! Its rules: REQ-RELINK-61, R-REL-27, R-RELINK-V17.

use std::cmp::Reverse;
use std::time::Instant;

use ackline_core::{SendQueue, Sequence};

use super::channels::Key;
use super::outgoing::Close;
use super::transactions::{Outcomes, Said};
use super::transport::{Answer, Ping, Step, Transport};
use super::{Link, Shutdown};
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
        if std::mem::take(&mut transport.shutdown_again) {
            encode(&Packet::Shutdown, out);
        }
        // Before the pongs: whoever asks knows with its pong what was told.
        if let Some(hints) = &mut transport.hints {
            hints.drain(..).for_each(|hint| hint.encode(out));
        }
        while transport.pongs_owed > 0 && out.room() > 0 {
            transport.pongs_owed = transport.pongs_owed.saturating_sub(1);
            encode(&Packet::Pong, out);
        }
        while transport.pings_wanted > 0 && out.room() > 0 {
            transport.pings_wanted = transport.pings_wanted.saturating_sub(1);
            encode(&Packet::Ping, out);
            self.position = self.position.saturating_add(1);
            transport.pings.push_back(Ping {
                sent: now,
                position: self.position,
                paused: transport.paused_so_far(),
            });
        }
    }

    fn put_answers(&mut self, out: &mut SendQueue) {
        while out.room() > 0 {
            let answer = self
                .transport
                .as_mut()
                .and_then(|transport| transport.answers.pop_front());
            match answer {
                Some(Answer::Channel(key)) => self.put_answer(key, out),
                Some(Answer::Closed(id)) => {
                    acknowledgement(&id, Acknowledgement::Closed, None, out);
                }
                None => return,
            }
        }
    }

    /// All that a channel owes, its end last.
    fn put_answer(&mut self, key: Key, out: &mut SendQueue) {
        let from_consumed = self.config.resume_from_consumed;
        let position = self.position;
        let (Some(transport), Some((id, channel))) =
            (&mut self.transport, self.incoming.entry_mut(key))
        else {
            return;
        };
        channel.queued = false;
        if !channel.announced {
            return;
        }
        let ends = channel.closed_ready && channel.close_came;
        if std::mem::take(&mut channel.received_owed) {
            let through = channel.received_to_tell(from_consumed);
            acknowledgement(id, Acknowledgement::Received, Some(through), out);
        }
        if channel.consumed_owed || ends {
            if let Some(due) = channel.due {
                transport.due.remove(&(due, key));
            }
            if let Some(through) = channel.tell_consumed() {
                acknowledgement(id, Acknowledgement::Consumed, Some(through), out);
            }
        }
        if let Some(outcomes) = &mut channel.outcomes {
            while let Some(said) = outcomes.emit(position) {
                say_outcome(id, said, out);
            }
        }
        if ends {
            acknowledgement(id, Acknowledgement::Closed, None, out);
            let kept = channel.outcomes.as_ref().map_or(0, Outcomes::history_len);
            self.incoming.remove(key);
            self.count_outcomes(kept, 0);
            self.uncharge_gone();
        }
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
            transport.untold.is_due(most) && !transport.untold_channels.is_empty()
        };
        self.transport.as_ref().is_some_and(owes)
    }

    /// The decisions that are due come next, by ascending channel; not before the peer's resume
    /// (R-RELINK-V4), then it answers false.
    fn plan_untold(&mut self) -> bool {
        let Some(transport) = self.transport.as_mut().filter(|it| !it.peer_resuming) else {
            return false;
        };
        let mut keys = Vec::from_iter(std::mem::take(&mut transport.untold_channels));
        let outgoing = &self.outgoing;
        keys.sort_by_key(|key| Reverse(outgoing.entry(*key).map(|(id, _)| id)));
        for key in keys {
            transport.plan.push_front(Step::Decisions(key));
        }
        true
    }

    /// Answers how many did not find room, or go out behind decisions.
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
            transport.count_untold(key, channel.carried(bytes));
            self.stats.messages_sent_again = self
                .stats
                .messages_sent_again
                .saturating_add(u64::from(again));
            count = count.saturating_sub(1);
        }
        None
    }

    /// In as few packets as this end would take itself.
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
                    transport.count_untold(*key, channel.carried(bytes));
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
            channel.close = Close::Emitted;
            channel_packet(id, Body::Operation(Operation::Close), out);
        }
    }

    /// Says whether more of them found no room.
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
            transport.forget_untold(key, decisions.told());
        }
        false
    }

    /// Once every own channel is closed, or drained where none is ever closed (R-REL-25, R-REL-26).
    fn put_shutdown(&mut self, out: &mut SendQueue) {
        if self.shutdown != Shutdown::Ready || out.room() == 0 {
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
            self.shutdown = Shutdown::Emitted;
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

/// Channels of one packet whose message has so many bytes.
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
