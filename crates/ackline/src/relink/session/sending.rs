//! The verbs that send, and the limits that a message meets before it is sent.

use std::collections::HashMap;
use std::time::Instant;

use ackline_core::{LimitHit, UsageError};
use ackline_relink::{ChannelId, Error, Payload};

use super::Session;
use crate::relink::receipt::Receipt;

impl Session {
    /// Sends a message on each of these channels, in one packet.
    ///
    /// # Errors
    /// [`Error::Blocked`] without room on one of them; the machine's refusals; the link is over.
    pub fn send(
        &mut self,
        now: Instant,
        channels: &[ChannelId],
        payload: &Payload,
    ) -> Result<Vec<Receipt>, Error> {
        self.is_alive()?;
        self.fits(payload)?;
        self.fits_windows(channels)?;
        let bytes = payload.bytes();
        let all = bytes.saturating_mul(channels.len());
        if !self.sent.fits(all) {
            return Err(Error::Blocked);
        }
        let machine = &mut self.machine;
        let sent = match channels {
            [one] => machine
                .send_to(now, one, payload.clone())
                .map(|sequence| vec![sequence]),
            _ => machine.send(now, channels, payload.clone()),
        };
        let sequences = sent.map_err(|error| self.refused(error, channels))?;
        self.sent.bytes += all;
        let change = self.machine.changes_noted();
        let sent = channels.iter().zip(sequences);
        Ok(sent
            .map(|(channel, sequence)| {
                let life = self.sent.life(channel, sequence);
                life.sent(sequence, std::iter::once(bytes), change)
            })
            .collect())
    }

    /// A channel that is named more often than its window has messages would be waited for for ever.
    fn fits_windows(&self, channels: &[ChannelId]) -> Result<(), Error> {
        let window = usize::try_from(self.machine.config().send_window).unwrap_or(usize::MAX);
        if channels.len() <= window {
            return Ok(());
        }
        let mut counts: HashMap<&ChannelId, usize> = HashMap::new();
        for channel in channels {
            let count = counts.entry(channel).or_default();
            *count += 1;
            if *count > window {
                return Err(Error::Usage(TOO_OFTEN));
            }
        }
        Ok(())
    }

    /// Sends the messages on one channel, in order, while there is room: how many, and the receipt of the last
    /// of them, which stands for all.
    ///
    /// # Errors
    /// As [`send`](Self::send), if not even the first was sent.
    pub fn send_run(
        &mut self,
        now: Instant,
        channel: &ChannelId,
        payloads: &[Payload],
    ) -> Result<(usize, Option<Receipt>), Error> {
        self.is_alive()?;
        let (mut first, mut sent) = (None, 0);
        for payload in payloads {
            let bytes = payload.bytes();
            let taken = if self.sent.fits(bytes) {
                self.fits(payload).and_then(|()| {
                    let taken = self.machine.send_to(now, channel, payload.clone());
                    taken.map_err(|error| self.refused(error, std::slice::from_ref(channel)))
                })
            } else {
                Err(Error::Blocked)
            };
            match taken {
                Ok(sequence) => first = first.or(Some(sequence)),
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
            self.sent.bytes += bytes;
            sent += 1;
        }
        let (Some(first), run) = (first, &payloads[..sent]) else {
            return Ok((0, None));
        };
        let steps = u32::try_from(sent - 1).unwrap_or_default();
        let sizes = run.iter().map(Payload::bytes);
        let change = self.machine.changes_noted();
        let life = self.sent.life(channel, first);
        let last = life.sent(first.plus(steps), sizes, change);
        Ok((sent, Some(last)))
    }

    /// Why a message is not sent on these channels.
    fn refused(&self, error: UsageError, channels: &[ChannelId]) -> Error {
        let wanted = self.machine.config().own_channel_id_size();
        let is_wrong = |channel: &&ChannelId| channel.len() != usize::from(wanted);
        match channels.iter().find(is_wrong) {
            Some(channel) if error.code == "invalid_channel_id" => Error::ChannelIdSize {
                channel: channel.clone(),
                wanted,
            },
            _ => Error::refused(error),
        }
    }

    /// A message that this side would refuse is not sent: it would come again with every transport.
    fn fits(&self, payload: &Payload) -> Result<(), Error> {
        let limits = &self.machine.config().limits;
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let parts = payload.as_slice().iter();
        let largest = parts.map(bytes::Bytes::len).max().unwrap_or(0);
        let all = [
            (
                payload.len(),
                limits.max_message_parts.into(),
                "max_message_parts",
            ),
            (largest, limits.max_part_bytes, "max_part_bytes"),
            (
                payload.bytes(),
                limits.max_message_bytes,
                "max_message_bytes",
            ),
        ];
        let over = all.iter().find(|(count, limit, _)| wide(*count) > *limit);
        over.map_or(Ok(()), |(count, limit, option)| {
            Err(Error::TooLarge(LimitHit {
                value: wide(*count),
                limit: *limit,
                option,
            }))
        })
    }
}

/// One channel, many times.
const TOO_OFTEN: UsageError = UsageError::new(
    "too_often",
    "a channel is named more often than send_window has messages: send them one by one",
);
