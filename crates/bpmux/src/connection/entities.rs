//! Sinks, streams and duplexes of both ends that are not over, and the top-level, which always is there.

use ackline_core::{Table, UsageError};

use super::entity::{Entity, OwnEnd, Reader, Status, Writer};
use super::ids::Ids;
use crate::error::Subject;
use crate::{EntityKind, Kind, Target, refusal};

/// The entities of a connection.
#[derive(Debug, Default)]
pub(super) struct Entities {
    pub(super) top_writer: Writer,
    pub(super) top_reader: Reader,
    /// Entities that this end has opened.
    pub(super) own: Table<u32, Entity>,
    /// Entities that the peer has opened.
    pub(super) peer: Table<u32, Entity>,
    free_ids: Ids,
    /// The number of the peer's that have come whole.
    peer_complete: usize,
    /// The number of the peer's closes whose acknowledgements wait for a call.
    held_closes: u32,
}

impl Entities {
    /// Returns an id that no own entity has.
    pub(super) fn free_id(&mut self) -> Result<u32, UsageError> {
        let own = &self.own;
        self.free_ids.free_one(|id| own.contains_key(&id))
    }

    /// Begins an own entity.
    pub(super) fn insert_own(&mut self, kind: EntityKind, id: u32) -> Result<(), UsageError> {
        if self.own.contains_key(&id) {
            return Err(refusal::ID_IN_USE);
        }
        self.own.insert(id, Entity::new(kind, true));
        Ok(())
    }

    /// An entity of the peer has come whole.
    pub(super) fn complete(&mut self, id: u32, is_refused: bool) {
        if let Some(entity) = self.peer.get_mut(&id) {
            entity.status = Status::complete(is_refused);
            self.peer_complete = self.peer_complete.saturating_add(1);
        }
    }

    /// The opening of an own entity was sent whole.
    pub(super) fn opening_sent(&mut self, id: u32) {
        if let Some(entity) = self.own.get_mut(&id) {
            entity.status = Status::Open;
        }
    }

    pub(super) fn get(&self, target: Target) -> Option<&Entity> {
        match target {
            Target::Top => None,
            Target::Own(id) => self.own.get(&id),
            Target::Peer(id) => self.peer.get(&id),
        }
    }

    fn get_mut(&mut self, target: Target) -> Option<&mut Entity> {
        match target {
            Target::Top => None,
            Target::Own(id) => self.own.get_mut(&id),
            Target::Peer(id) => self.peer.get_mut(&id),
        }
    }

    /// Returns the half that this end writes.
    #[inline]
    pub(super) fn writer(&mut self, target: Target) -> Option<&mut Writer> {
        match target {
            Target::Top => Some(&mut self.top_writer),
            _ => self.get_mut(target)?.writer.as_mut(),
        }
    }

    /// Returns the half that this end reads.
    #[inline]
    pub(super) fn reader(&mut self, target: Target) -> Option<&mut Reader> {
        match target {
            Target::Top => Some(&mut self.top_reader),
            _ => self.get_mut(target)?.reader.as_mut(),
        }
    }

    /// Returns a half that this end reads, for a chunk of the peer.
    pub(super) fn known_reader(&mut self, target: Target) -> Result<&mut Reader, Kind> {
        if target == Target::Top {
            return Ok(&mut self.top_reader);
        }
        let what = Subject::Entity(target);
        let entity = self.known(target)?;
        entity.reader.as_mut().ok_or(Kind::WrongDirection { what })
    }

    /// Returns a half that this end writes, for a chunk of the peer.
    pub(super) fn known_writer(&mut self, target: Target) -> Result<&mut Writer, Kind> {
        if target == Target::Top {
            return Ok(&mut self.top_writer);
        }
        let what = Subject::Entity(target);
        let entity = self.known(target)?;
        entity.writer.as_mut().ok_or(Kind::WrongDirection { what })
    }

    /// Returns an entity for a chunk of the peer. One that is not there, or not opened whole, is unknown (R-BPM-21); the
    /// kinds are those of R-BPMUX-V5.
    pub(super) fn known(&mut self, target: Target) -> Result<&mut Entity, Kind> {
        let what = Subject::Entity(target);
        let entity = self.get_mut(target).filter(|entity| entity.is_complete());
        entity.ok_or(Kind::UnknownId { what })
    }

    /// Returns a half that this end writes, for a call of the application.
    pub(super) fn open_writer(&mut self, target: Target) -> Result<&mut Writer, UsageError> {
        if target == Target::Top {
            return Ok(&mut self.top_writer);
        }
        let entity = self.open(target)?;
        entity.writer.as_mut().ok_or(refusal::WRONG_DIRECTION)
    }

    /// Returns a half that this end reads, for a call of the application.
    pub(super) fn open_reader(&mut self, target: Target) -> Result<&mut Reader, UsageError> {
        if target == Target::Top {
            return Ok(&mut self.top_reader);
        }
        let entity = self.open(target)?;
        entity.reader.as_mut().ok_or(refusal::WRONG_DIRECTION)
    }

    fn open(&mut self, target: Target) -> Result<&mut Entity, UsageError> {
        let entity = self.get_mut(target);
        let open = entity.filter(|entity| entity.status == Status::Open);
        open.ok_or(refusal::UNKNOWN_ID)
    }

    /// Whether the application is not told of it.
    pub(super) fn is_refused(&self, target: Target) -> bool {
        self.get(target)
            .is_some_and(|entity| entity.status == Status::Refused)
    }

    /// Whether payloads that come on the top-level are refused: its cancel was sent (R-BPM-27).
    pub(super) fn refuses_openings(&self) -> bool {
        self.top_reader.own_end == OwnEnd::Sent
    }

    /// Whether both directions of the top-level have ended.
    pub(super) fn top_has_ended(&self) -> bool {
        self.top_writer.has_ended() && self.top_reader.has_ended()
    }

    /// Whether both halves of an entity are over.
    pub(super) fn is_over(&self, target: Target) -> bool {
        self.get(target).is_some_and(Entity::is_over)
    }

    /// Removes an entity: its id is free.
    pub(super) fn remove(&mut self, target: Target) -> Option<Entity> {
        match target {
            Target::Top => None,
            Target::Own(id) => {
                self.free_ids.free(id);
                self.own.remove(&id)
            }
            Target::Peer(id) => {
                let entity = self.peer.remove(&id)?;
                let less = usize::from(entity.is_complete());
                self.peer_complete = self.peer_complete.saturating_sub(less);
                Some(entity)
            }
        }
    }

    /// Whether an entity keeps the connection open.
    pub(super) fn keep_open(&self) -> bool {
        self.peer_complete > 0 || !self.own.is_empty()
    }

    /// The number of the peer's entities that have come whole.
    pub(super) const fn peer_complete(&self) -> usize {
        self.peer_complete
    }

    /// The number of free ids that are kept.
    pub(super) fn free_ids_kept(&self) -> usize {
        self.free_ids.kept()
    }

    /// The acknowledgement of a close waits for a call.
    pub(super) const fn hold_close(&mut self) {
        self.held_closes = self.held_closes.saturating_add(1);
    }

    /// The acknowledgement of a close waits no longer.
    pub(super) const fn release_close(&mut self) {
        self.held_closes = self.held_closes.saturating_sub(1);
    }

    /// The number of closes whose acknowledgements wait for a call.
    pub(super) const fn held_closes(&self) -> u32 {
        self.held_closes
    }

    /// Returns all halves that this end reads.
    pub(super) fn readers(&self) -> impl Iterator<Item = &Reader> {
        let entities = self.own.values().chain(self.peer.values());
        let readers = entities.filter_map(|entity| entity.reader.as_ref());
        readers.chain([&self.top_reader])
    }

    /// Drops the messages that have come in part.
    pub(super) fn drop_messages_in_parts(&mut self) {
        let entities = self.own.values_mut().chain(self.peer.values_mut());
        let readers = entities.filter_map(|entity| entity.reader.as_mut());
        for reader in readers.chain([&mut self.top_reader]) {
            reader.message = None;
        }
    }

    /// Drops the messages that wait to be sent.
    pub(super) fn drop_waiting(&mut self) {
        let entities = self.own.values_mut().chain(self.peer.values_mut());
        let writers = entities.filter_map(|entity| entity.writer.as_mut());
        for writer in writers.chain([&mut self.top_writer]) {
            writer.drop_waiting();
        }
    }
}
