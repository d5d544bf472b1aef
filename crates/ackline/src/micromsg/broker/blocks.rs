//! The blocks of a queue in the spool.

use std::sync::Arc;

use ackline_micromsg::broker::Routed;
use ackline_micromsg::stored::put_length;
use ackline_spool::{Block, Origin};

use super::super::layout::NAME;
use super::peer::Peer;
use super::queue_cell::QueueCell;
use super::read_back;
use crate::pieces::Pieces;

/// Where the messages of a block come from.
pub(super) enum Source<'a> {
    Publisher(&'a Peer),
    /// A move of the queue.
    Copy(Progress),
}

/// How far a queue is moved once a block of copies is durable. A broker that was killed meanwhile goes on there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// Messages below this position were copied.
    pub(super) copied_to: u64,
    /// The copies begin at this position or behind it, and nothing else of any queue stands between them.
    pub(super) copies_from: u64,
    /// The queue's mark in its file until the move has ended.
    pub(super) mark: u64,
}

impl Progress {
    /// As it stands in the attributes of a block.
    fn attribute(self) -> (Arc<str>, Arc<str>) {
        let text = format!("{} {} {}", self.copied_to, self.copies_from, self.mark);
        (MOVED.into(), text.into())
    }

    /// Reads the value of the attribute.
    pub(super) fn read(text: &str) -> Option<Self> {
        let numbers = text.split(' ').map(|number| number.parse().ok());
        let numbers = numbers.collect::<Option<Vec<u64>>>()?;
        let [copied_to, copies_from, mark] = <[u64; 3]>::try_from(numbers).ok()?;
        Some(Self {
            copied_to,
            copies_from,
            mark,
        })
    }
}

/// The attribute of copies with their [`Progress`].
pub(super) const MOVED: &str = "micromsg.moved";

/// A block of messages to a queue, each with its position.
pub(super) fn block(
    queue: &QueueCell,
    source: &Source<'_>,
    messages: &[(Arc<Routed>, u64)],
) -> Block {
    let (mut body, mut length) = (Pieces::default(), Vec::new());
    let mut put = |body: &mut Pieces, bytes: usize| {
        length.clear();
        put_length(&mut length, bytes);
        body.copy(&length);
    };
    for (message, _) in messages {
        put(&mut body, message.properties().len());
        body.copy(message.properties().as_bytes());
        let payload = message.payload();
        put(&mut body, payload.len());
        body.put(&payload);
    }
    let (body, inflated_bytes) = body.finish();
    let first = messages.first();
    let dotnet_type = first.and_then(|(message, _)| message.dotnet_type().cloned());
    let own = dotnet_type.map(|name| (read_back::DOTNET_TYPE.into(), name));
    let (name, attributes, repeats) = match source {
        Source::Publisher(publisher) => {
            let info = &publisher.info;
            (Arc::clone(&info.name), &*info.attributes, None)
        }
        Source::Copy(_) => (COPY.into(), &[][..], Some(all_ones(messages.len()))),
    };
    let moved = match source {
        Source::Copy(progress) => Some(progress.attribute()),
        Source::Publisher(_) => None,
    };
    Block {
        origin: Origin {
            protocol: super::super::SCHEME.into(),
            peer: Arc::clone(&name),
            link: name,
            stream: Some(Arc::clone(&queue.name)),
        },
        layout: NAME,
        codec: "none",
        first_sequence: first.map_or(0, |(_, position)| {
            i64::try_from(*position).unwrap_or(i64::MAX)
        }),
        // A batch of a connection is small.
        count: u32::try_from(messages.len()).unwrap_or(u32::MAX),
        windows: 1,
        inflated_bytes,
        repeats,
        attributes: own
            .into_iter()
            .chain(moved)
            .chain(attributes.iter().cloned())
            .collect(),
        body,
    }
}

/// A bitmap that marks so many messages as repeated.
fn all_ones(count: usize) -> Vec<u8> {
    let mut bits = vec![u8::MAX; count / 8];
    if !count.is_multiple_of(8) {
        bits.push((1 << (count % 8)) - 1);
    }
    bits
}

/// The peer of messages that were moved.
const COPY: &str = "a queue that was moved";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_as_it_was_written() {
        let progress = Progress {
            copied_to: 7,
            copies_from: u64::MAX,
            mark: 3,
        };
        let (name, value) = progress.attribute();
        assert_eq!((&*name, &*value), (MOVED, "7 18446744073709551615 3"));
        assert_eq!(Progress::read(&value), Some(progress));
        for wrong in [
            "", "7", "7 8", "7 8 ", " 7 8", "a 7 8", "7 8 -1", "7 8 9 10",
        ] {
            assert_eq!(Progress::read(wrong), None, "{wrong:?}");
        }
    }
}
