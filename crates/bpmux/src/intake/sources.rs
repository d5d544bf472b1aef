//! The sources of a connection's messages: the names of their rows, and the progress of each source.

use std::collections::HashMap;
use std::sync::Arc;

use ackline_core::Payload;

use crate::Target;

/// A source of messages, as the rows of these messages name it.
#[derive(Debug)]
pub struct Source {
    /// The name of the entity; nothing for the top-level and for requests.
    pub stream: Option<Arc<str>>,
    /// The attributes of its rows.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
}

impl Source {
    /// Of a kind (`bpmux.kind`), opened with a payload (`bpmux.opening`, if it has any).
    pub(super) fn new(kind: &str, stream: Option<Arc<str>>, opening: &Payload) -> Arc<Self> {
        let mut attributes = vec![(Arc::from("bpmux.kind"), Arc::from(kind))];
        let opening = opening.to_bytes();
        if !opening.is_empty() {
            attributes.push(match std::str::from_utf8(&opening) {
                Ok(text) => (Arc::from("bpmux.opening"), Arc::from(text)),
                Err(_) => (Arc::from("bpmux.opening_hex"), hex(&opening).into()),
            });
        }
        Arc::new(Self { stream, attributes })
    }

    /// Bytes that it keeps, about.
    pub(super) fn cost(&self) -> usize {
        let texts = self.attributes.iter().map(|(_, value)| value.len());
        texts.fold(SOURCE_BYTES, usize::saturating_add)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // A string takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A sink, the read half of a duplex, or another source of messages.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) source: Arc<Source>,
    /// Messages so far: the number of the next one.
    pub(super) messages: u64,
    /// Runs of it that are not settled.
    pub(super) unsettled: usize,
    /// The peer has closed it, and waits for the acknowledgement.
    pub(super) is_closed: bool,
}

impl Mailbox {
    pub(super) fn new(source: Arc<Source>) -> Self {
        Self {
            source,
            messages: 0,
            unsettled: 0,
            is_closed: false,
        }
    }
}

/// The open sources, by their target on the wire.
#[derive(Debug)]
pub(super) struct Open {
    places: HashMap<Target, Mailbox>,
    pub(super) names: Names,
    /// Bytes of the sources.
    pub(super) kept: usize,
}

impl Open {
    /// The top-level alone.
    pub(super) fn new(top: Arc<Source>) -> Self {
        Self {
            places: HashMap::from([(Target::Top, Mailbox::new(top))]),
            names: Names::default(),
            kept: 0,
        }
    }

    pub(super) fn enter(&mut self, target: Target, source: Arc<Source>) {
        self.kept = self.kept.saturating_add(source.cost());
        self.places.insert(target, Mailbox::new(source));
    }

    pub(super) fn get(&mut self, target: Target) -> Option<&mut Mailbox> {
        self.places.get_mut(&target)
    }

    /// Forgets a source that is closed and whose runs are all settled; answers whether it was.
    pub(super) fn leave_if_kept(&mut self, target: Target) -> bool {
        let place = self.places.get(&target);
        let is_kept = place.is_some_and(|place| place.is_closed && place.unsettled == 0);
        if is_kept && let Some(place) = self.places.remove(&target) {
            self.kept = self.kept.saturating_sub(place.source.cost());
        }
        is_kept
    }

    /// Bytes that it keeps, about.
    pub(super) fn cost(&self) -> usize {
        self.kept.saturating_add(self.names.cost())
    }
}

/// Names for the entities that a peer opens: the id, and from its second use on how often it was used.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// How often each of these ids was used.
    uses: HashMap<u32, u64>,
    /// The largest id that was used: above it none was.
    largest: Option<u32>,
    /// The number of all openings.
    opened: u64,
}

impl Names {
    /// The name of the entity that is opened under this id: another one each time. Of a peer that uses more
    /// ids than are counted, an id that may have been used before has the number of all openings behind it.
    pub(super) fn next(&mut self, id: u32) -> Arc<str> {
        self.opened = self.opened.saturating_add(1);
        let is_new = self.largest.is_none_or(|largest| id > largest);
        self.largest = self.largest.max(Some(id));
        let room = self.uses.len() < MOST_IDS;
        let count = match self.uses.get_mut(&id) {
            Some(uses) => {
                *uses = uses.saturating_add(1);
                *uses
            }
            None if room => {
                self.uses.insert(id, 1);
                1
            }
            None if is_new => 1,
            None => self.opened,
        };
        if count == 1 {
            id.to_string().into()
        } else {
            format!("{id}.{count}").into()
        }
    }

    /// Bytes that it keeps, about.
    pub(super) fn cost(&self) -> usize {
        self.uses.len().saturating_mul(ID_BYTES)
    }
}

/// Bytes that a source costs beside its texts.
const SOURCE_BYTES: usize = 256;
/// Ids of a connection whose uses are counted.
const MOST_IDS: usize = 4_096;
/// Bytes that each of them costs.
const ID_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_id_that_is_used_again_is_counted() {
        let mut names = Names::default();
        let all: Vec<_> = [0, 7, 0, 3, 0, 7].map(|id| names.next(id)).to_vec();
        assert_eq!(
            all.iter().map(|it| &**it).collect::<Vec<_>>(),
            ["0", "7", "0.2", "3", "0.3", "7.2"]
        );
    }

    #[test]
    fn no_name_comes_twice_however_many_ids_are_used() {
        let mut names = Names::default();
        let (mut seen, count) = (HashSet::new(), 10_000_u32);
        for round in 0..3 {
            for id in 0..count {
                let name = names.next(id);
                assert!(seen.insert(Arc::clone(&name)), "{name} came twice");
                let is_plain = *name == *id.to_string();
                assert_eq!(is_plain, round == 0, "a new id has no number");
            }
        }
        for id in [u32::MAX, count + 5, count + 5, u32::MAX] {
            assert!(seen.insert(names.next(id)));
        }
        assert!(names.cost() <= MOST_IDS * ID_BYTES);
    }
}
