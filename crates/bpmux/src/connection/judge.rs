//! Decides whether a payload of the peer may come now, by the entity or request that it belongs to.
//! Its credit and its size are judged elsewhere.

use super::entity::{OwnEnd, PeerEnd};
use super::tables::Tables;
use crate::chunk::PayloadRole;
use crate::error::Subject;
use crate::{EntityKind, Kind, Target};

impl Tables {
    /// Judges the next chunk of a payload.
    pub(super) fn judge(&mut self, role: PayloadRole) -> Result<(), Kind> {
        match role {
            PayloadRole::Open(kind, id) => self.judge_opening(kind, id),
            PayloadRole::Message(target) => self.judge_message(target),
            PayloadRole::Request(id) => self.judge_request(id),
            PayloadRole::Response(id) => {
                let request = self.requests.sent(id)?;
                match request.peer_end {
                    PeerEnd::Done => Err(ended(Subject::OwnRequest(id))),
                    _ if request.crossed => Err(ended(Subject::OwnRequest(id))),
                    PeerEnd::Begun => Err(violation("a response inside of its close")),
                    _ => Ok(()),
                }
            }
            PayloadRole::CancelRequest(id) => match self.requests.peer.get(&id) {
                Some(request) if request.cancelled => Err(ended(Subject::PeerRequest(id))),
                _ => Ok(()),
            },
            PayloadRole::CloseResponse(id) => {
                let request = self.requests.sent(id)?;
                if request.crossed || request.peer_end == PeerEnd::Done {
                    return Err(ended(Subject::OwnRequest(id)));
                }
                if self.is_partial(PayloadRole::Response(id)) {
                    return Err(violation("a close inside of the response"));
                }
                Ok(())
            }
            PayloadRole::Cancel(target) => self.judge_cancel(target),
            PayloadRole::Close(target) => self.judge_close(target),
        }
    }

    fn top_is_open(&self, role: PayloadRole) -> Result<(), Kind> {
        match self.entities.top_reader.peer_end {
            PeerEnd::Done => Err(Kind::TopLevelClosed { what: role }),
            _ => Ok(()),
        }
    }

    fn judge_opening(&self, kind: EntityKind, id: u32) -> Result<(), Kind> {
        let what = PayloadRole::Open(kind, id);
        self.top_is_open(what)?;
        match self.entities.peer.get(&id) {
            Some(entity) if entity.is_complete() || entity.kind != kind => {
                Err(Kind::IdInUse { what })
            }
            _ => Ok(()),
        }
    }

    fn judge_request(&self, id: u32) -> Result<(), Kind> {
        let what = PayloadRole::Request(id);
        self.top_is_open(what)?;
        let is_taken = match self.requests.peer.get(&id) {
            Some(request) => request.is_complete(),
            None => self.is_partial(PayloadRole::CancelRequest(id)),
        };
        if is_taken {
            return Err(Kind::IdInUse { what });
        }
        Ok(())
    }

    /// A half whose close has begun carries nothing else (R-BPMUX-V15).
    fn judge_message(&mut self, target: Target) -> Result<(), Kind> {
        if target == Target::Top {
            self.top_is_open(PayloadRole::Message(target))?;
        }
        let what = Subject::Entity(target);
        let reader = self.entities.known_reader(target)?;
        if reader.own_end == OwnEnd::Acknowledged {
            return Err(ended(what));
        }
        match reader.peer_end {
            PeerEnd::Held | PeerEnd::Released | PeerEnd::Done => Err(ended(what)),
            PeerEnd::Begun => Err(violation("a message inside of the close of its sink")),
            PeerEnd::No => Ok(()),
        }
    }

    fn judge_cancel(&mut self, target: Target) -> Result<(), Kind> {
        let writer = self.entities.known_writer(target)?;
        if writer.cancelled || writer.own_end == OwnEnd::Acknowledged {
            return Err(ended(Subject::Entity(target)));
        }
        Ok(())
    }

    /// A close behind a part of a message cuts that off (R-BPM-17), and one of the top-level behind a part of an opening
    /// or a request (R-BPMUX-V8).
    fn judge_close(&mut self, target: Target) -> Result<(), Kind> {
        let is_opening =
            |it: PayloadRole| matches!(it, PayloadRole::Open(..) | PayloadRole::Request(_));
        let is_cut = target == Target::Top && self.partials().any(is_opening);
        let reader = self.entities.known_reader(target)?;
        if reader.peer_end.has_come() || reader.own_end == OwnEnd::Acknowledged {
            return Err(ended(Subject::Entity(target)));
        }
        if is_cut || reader.message.is_some() {
            return Err(violation(
                "a close inside an opening, a request or a message before it",
            ));
        }
        Ok(())
    }
}

/// A payload in parts is broken off, nested or too long.
pub(super) fn violation(what: &'static str) -> Kind {
    Kind::PartialViolation { what }
}

/// A chunk for something that has ended.
pub(super) fn ended(what: Subject) -> Kind {
    Kind::AlreadyEnded { what }
}
