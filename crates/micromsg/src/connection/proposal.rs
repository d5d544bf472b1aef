//! The agreement on extensions by the application: what the peer proposes, and the answer to it.

use std::time::Instant;

use ackline_core::UsageError;

use super::{Agreed, Connection, Event, Kind, Life, Lists, Replied, Role, Version, written};
use crate::text::Extension;
use crate::{Limits, negotiation, refusal};

/// The handshake of a peer, for an application that answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The version that both ends speak.
    pub version: Version,
    /// The name that the peer gives itself.
    pub identity: String,
    /// The extensions without which the peer does not work.
    pub required: Vec<Extension>,
    /// The extensions that the peer suggests.
    pub optional: Vec<Extension>,
}

impl Proposal {
    /// Bytes of memory behind it.
    pub(super) fn held_bytes(&self) -> usize {
        let lists = [&self.required, &self.optional].map(|list| negotiation::held_bytes(list));
        let lists = lists.into_iter().fold(0, usize::saturating_add);
        self.identity.len().saturating_add(lists)
    }
}

/// A handshake of the peer that this end has not answered, or has answered last.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) lists: Lists,
    /// Its version, and the lower one of both ends.
    pub(super) versions: [Version; 2],
    pub(super) identity: String,
}

impl Connection {
    /// The server's reply to a first handshake (R-MM-19), or the client's decision on a reply (REQ-MM-16): by this end's
    /// rules, or by the application.
    pub(super) fn propose(&mut self, asked: Asked) -> Result<(), Kind> {
        let terms = &self.config.terms;
        if self.is_manual() {
            let [_, version] = asked.versions;
            self.state.named_bytes = asked.lists.held_bytes();
            self.events.push(Event::Proposed(Proposal {
                version,
                identity: asked.identity.clone(),
                required: asked.lists.required.clone(),
                optional: asked.lists.optional.clone(),
            }));
            self.state.life = Life::Proposed(Box::new(asked));
            return Ok(());
        }
        let answer = match self.state.role {
            Role::Server => negotiation::reply(terms, &asked.lists)?,
            Role::Client => negotiation::decide(terms, &asked.lists)?,
        };
        check_length(&answer)?;
        let agreed = match self.state.role {
            Role::Server => Agreed::default(),
            Role::Client => Agreed::decided(terms, &asked.lists, &answer),
        };
        self.answered(asked, answer, agreed);
        Ok(())
    }

    /// Answers the peer's proposal. A server requires and suggests extensions; the client decides on those that are used, with
    /// numbers in the order of both lists. [`fail`](Self::fail) refuses the peer in place of it.
    ///
    /// # Errors
    /// `closed`; `nothing_proposed`: the peer has proposed nothing that was not answered, or the connection decides by itself.
    /// `invalid_answer`: a name or a count is not allowed, an extension is named twice, there are more than 255 of them, or a
    /// client's lacks one that an end requires, or has one that its peer did not offer. `out_of_range`: a list has more than
    /// 65,535 bytes.
    pub fn answer(
        &mut self,
        now: Instant,
        required: Vec<Extension>,
        optional: Vec<Extension>,
    ) -> Result<(), UsageError> {
        let asked = match &self.state.life {
            Life::Proposed(asked) => asked,
            Life::Ended => return Err(refusal::CLOSED),
            _ => return Err(refusal::NOTHING_PROPOSED),
        };
        let answer = Lists { required, optional };
        check_own(&answer)?;
        let agreed = match self.state.role {
            Role::Server => Ok(Agreed::default()),
            Role::Client => {
                let own = Lists::own(&self.config.terms);
                negotiation::check(&own, &asked.lists, &answer)
            }
        };
        let agreed = agreed.map_err(|kind| refused(&kind))?;
        // The peer's time begins again: meanwhile it waited.
        self.state.since = Some(now);
        if let Life::Proposed(asked) = std::mem::replace(&mut self.state.life, Life::Running) {
            self.answered(*asked, answer, agreed);
        }
        Ok(())
    }

    fn answered(&mut self, asked: Asked, answer: Lists, agreed: Agreed) {
        let [_, version] = asked.versions;
        self.put_handshake(version, &answer);
        match self.state.role {
            Role::Server => {
                let held = asked.lists.held_bytes();
                self.state.named_bytes = held.saturating_add(answer.held_bytes());
                self.state.life = Life::Replied(Box::new(Replied {
                    asked,
                    reply: answer,
                }));
            }
            Role::Client => {
                self.agreed = agreed;
                self.state.life = Life::Running;
                self.connected(version, asked.identity);
            }
        }
    }
}

/// Both lists are as a peer can read them, and name each extension once.
fn check_own(lists: &Lists) -> Result<(), UsageError> {
    let [required, optional] = written(lists);
    if required.len().max(optional.len()) > 65_535 {
        return Err(refusal::LIST_TOO_LONG);
    }
    let no_limits = Limits {
        max_names: u64::MAX,
        ..Limits::default()
    };
    let read = Lists::read(required.as_bytes(), optional.as_bytes(), &no_limits);
    if !read.is_ok_and(|read| read == *lists) {
        return Err(refusal::INVALID_ANSWER);
    }
    let all: Vec<_> = lists.required.iter().chain(&lists.optional).collect();
    negotiation::check_own(&all).map_err(|kind| refused(&kind))
}

/// The refusal of an answer that would be this violation of a peer's.
const fn refused(kind: &Kind) -> UsageError {
    match kind {
        Kind::DuplicateExtension { .. } => refusal::ANSWERED_TWICE,
        Kind::TooManyExtensions { .. } => refusal::ANSWERED_TOO_MANY,
        Kind::MissingExtension { .. } => refusal::ANSWER_LACKS,
        Kind::UnexpectedExtension { .. } => refusal::ANSWER_NOT_OFFERED,
        Kind::InvalidExtensionProperty { .. } => refusal::ANSWER_COUNT,
        _ => refusal::INVALID_ANSWER,
    }
}

/// A list that both ends have part in may be longer than either end's: its length has two bytes.
fn check_length(lists: &Lists) -> Result<(), Kind> {
    let mut written = written(lists).into_iter();
    match written.find(|list| list.len() > 65_535) {
        None => Ok(()),
        Some(list) => Err(Kind::InvalidExtensionList {
            text: list.chars().take(100).collect(),
            reason: "with the entries of both ends it is longer than 65,535 bytes",
        }),
    }
}
