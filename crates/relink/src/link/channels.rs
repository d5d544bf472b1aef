//! The channels of one direction: found by id, kept in slots, walked in ascending order of their ids.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::ChannelId;

/// One life of a channel: stays invalid once that life is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    index: usize,
    life: u64,
}

#[derive(Debug)]
struct Slot<T> {
    life: u64,
    channel: Option<(ChannelId, T)>,
}

/// Channels by id and by key.
#[derive(Debug)]
pub(crate) struct Channels<T> {
    by_id: BTreeMap<ChannelId, usize>,
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    /// The slot found last, because packets and calls for one channel come in runs.
    last: usize,
}

impl<T> Channels<T> {
    pub(crate) const fn new() -> Self {
        Self {
            by_id: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            last: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn find(&mut self, id: &[u8]) -> Option<Key> {
        if let Some(slot) = self.slots.get(self.last)
            && let Some((own, _)) = &slot.channel
            && own.as_bytes() == id
        {
            return Some(Key {
                index: self.last,
                life: slot.life,
            });
        }
        let key = self.look(id)?;
        self.last = key.index;
        Some(key)
    }

    /// As [`find`](Self::find), without remembering the slot.
    pub(crate) fn look(&self, id: &[u8]) -> Option<Key> {
        self.key_of(*self.by_id.get(id)?)
    }

    fn key_of(&self, index: usize) -> Option<Key> {
        let slot = self.slots.get(index)?;
        slot.channel.is_some().then_some(Key {
            index,
            life: slot.life,
        })
    }

    /// A new channel; its id is not in use.
    pub(crate) fn insert(&mut self, id: ChannelId, value: T) -> Key {
        let index = self.free.pop().unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(Slot {
                life: 0,
                channel: None,
            });
        }
        self.by_id.insert(id.clone(), index);
        let mut life = 0;
        if let Some(slot) = self.slots.get_mut(index) {
            slot.channel = Some((id, value));
            life = slot.life;
        }
        self.last = index;
        Key { index, life }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<(ChannelId, T)> {
        let slot = self
            .slots
            .get_mut(key.index)
            .filter(|slot| slot.life == key.life)?;
        let (id, value) = slot.channel.take()?;
        slot.life = slot.life.wrapping_add(1);
        self.free.push(key.index);
        if self.by_id.get(id.as_bytes()) == Some(&key.index) {
            self.by_id.remove(id.as_bytes());
        }
        Some((id, value))
    }

    /// Frees the channel's id for its next life. The key stays valid until it is [removed](Self::remove).
    pub(crate) fn retire(&mut self, key: Key) {
        let Some((id, _)) = self.entry(key) else {
            return;
        };
        let id = id.clone();
        if self.by_id.get(id.as_bytes()) == Some(&key.index) {
            self.by_id.remove(id.as_bytes());
        }
        if self.last == key.index {
            self.last = usize::MAX;
        }
    }

    /// Puts retired channels back under their ids. One whose id is in use again is dropped.
    pub(crate) fn reinstate(&mut self) {
        for index in 0..self.slots.len() {
            let Some(key) = self.key_of(index) else {
                continue;
            };
            let Some((id, _)) = self.entry(key) else {
                continue;
            };
            match self.by_id.get(id.as_bytes()) {
                Some(at) if *at == index => {}
                Some(_) => {
                    self.remove(key);
                }
                None => {
                    let id = id.clone();
                    self.by_id.insert(id, index);
                }
            }
        }
    }

    /// Channels in memory, retired ones too.
    pub(crate) fn held(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.entry(key).map(|(_, value)| value)
    }

    pub(crate) fn entry(&self, key: Key) -> Option<&(ChannelId, T)> {
        let slot = self.slots.get(key.index)?;
        slot.channel.as_ref().filter(|_| slot.life == key.life)
    }

    pub(crate) fn entry_mut(&mut self, key: Key) -> Option<&mut (ChannelId, T)> {
        let slot = self.slots.get_mut(key.index)?;
        slot.channel.as_mut().filter(|_| slot.life == key.life)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entry_mut(key).map(|(_, value)| value)
    }

    /// All keys, ascending by id.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.by_id
            .values()
            .filter_map(|index| self.key_of(*index))
            .collect()
    }

    /// All channels, ascending by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(ChannelId, T)> {
        let slots = self.by_id.values().filter_map(|at| self.slots.get(*at));
        slots.filter_map(|slot| slot.channel.as_ref())
    }

    /// The first channel after that id, or the first of all.
    pub(crate) fn after(&self, id: Option<&ChannelId>) -> Option<Key> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        let mut range = self
            .by_id
            .range::<ChannelId, _>((from, Bound::<&ChannelId>::Unbounded));
        self.key_of(*range.next()?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_void_once_its_life_is_over() {
        let mut channels = Channels::new();
        let first = channels.insert(ChannelId::from(2_u8), "first");
        channels.insert(ChannelId::from(1_u8), "other");
        assert_eq!(channels.find(&[2]), Some(first));
        assert_eq!(
            channels.remove(first).map(|(_, value)| value),
            Some("first")
        );
        assert_eq!(channels.find(&[2]), None);
        let again = channels.insert(ChannelId::from(2_u8), "again");
        assert_eq!(
            (channels.get(first), channels.get(again)),
            (None, Some(&"again"))
        );
        let order: Vec<_> = channels.iter().map(|(_, value)| *value).collect();
        assert_eq!(order, ["other", "again"]);
        assert_eq!(channels.after(Some(&ChannelId::from(1_u8))), Some(again));
        assert_eq!((channels.len(), channels.keys().len()), (2, 2));
    }

    #[test]
    fn a_retired_channel_frees_its_id_and_comes_back_unless_that_is_in_use() {
        let mut channels = Channels::new();
        let old = channels.insert(ChannelId::from(1_u8), "old");
        channels.retire(old);
        assert_eq!((channels.find(&[1]), channels.len()), (None, 0));
        assert_eq!((channels.get(old), channels.held()), (Some(&"old"), 1));
        channels.reinstate();
        assert_eq!(channels.find(&[1]), Some(old));
        channels.retire(old);
        let new = channels.insert(ChannelId::from(1_u8), "new");
        assert_eq!((channels.len(), channels.held()), (1, 2));
        channels.reinstate();
        assert_eq!(channels.find(&[1]), Some(new));
        assert_eq!(channels.get(old), None);
        let again = channels.insert(ChannelId::from(2_u8), "again");
        channels.retire(again);
        channels.remove(again);
        assert_eq!((channels.get(new), channels.held()), (Some(&"new"), 1));
    }
}
