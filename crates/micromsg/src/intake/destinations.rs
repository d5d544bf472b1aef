//! The destinations that a peer names: the numbers of their messages, and the memory that their names take. A peer may name
//! new ones for as long as it lives, and reading gives nothing back, so they are charged to a quota.

use std::collections::HashMap;
use std::sync::Arc;

use ackline_core::{LimitHit, Quota, Share};

use super::{From, Source, wide};
use crate::Message;

/// The destinations of a connection, and the share of the quota that they take.
#[derive(Debug)]
pub(super) struct Destinations {
    by_name: HashMap<Arc<str>, Destination>,
    bytes: u64,
    share: Share,
}

/// A destination for which messages have come.
#[derive(Debug)]
struct Destination {
    name: Arc<str>,
    /// Messages so far: the number of the next one.
    messages: u64,
    /// The .NET type of the last message.
    dotnet_type: Option<Arc<str>>,
    source: Arc<Source>,
}

impl Destinations {
    /// None yet, of a connection that shares this quota with others.
    pub(super) fn new(quota: Arc<Quota>) -> Self {
        Self {
            by_name: HashMap::new(),
            bytes: 0,
            share: Share::of(quota, 0),
        }
    }

    /// Counts a message. Returns the key and the source of its run, and its number.
    pub(super) fn enter(
        &mut self,
        message: &Message,
        identity: &Arc<str>,
    ) -> Result<(From, Arc<Source>, u64), LimitHit> {
        if let Some(one) = self.by_name.get_mut(message.destination())
            && one.dotnet_type == message.dotnet_type
        {
            return Ok(one.count());
        }
        let dotnet_type = message.dotnet_type.as_ref();
        let source = |name: &Arc<str>| Source::new(name, dotnet_type, identity);
        let named = dotnet_type.map_or(0, |name| name.len());
        let known = self.by_name.get(message.destination());
        let before = known.map(|one| one.dotnet_type.as_ref().map_or(0, |name| name.len()));
        let Some(before) = before else {
            let name = Arc::<str>::from(message.destination());
            self.charge(
                0,
                name.len().saturating_add(named).saturating_add(NAME_COST),
            )?;
            let mut one = Destination {
                source: source(&name),
                name: Arc::clone(&name),
                messages: 0,
                dotnet_type: dotnet_type.cloned(),
            };
            let counted = one.count();
            self.by_name.insert(name, one);
            return Ok(counted);
        };
        self.charge(before, named)?;
        let Some(one) = self.by_name.get_mut(message.destination()) else {
            unreachable!("it was found above");
        };
        one.dotnet_type = dotnet_type.cloned();
        one.source = source(&one.name);
        Ok(one.count())
    }

    /// Changes the bytes of the table.
    fn charge(&mut self, before: usize, now: usize) -> Result<(), LimitHit> {
        let others = self.bytes.saturating_sub(wide(before));
        let wanted = others.saturating_add(wide(now));
        self.share.change(wanted)?;
        self.bytes = wanted;
        Ok(())
    }
}

impl Destination {
    /// Counts a message. Returns the key and the source of its run, and its number.
    fn count(&mut self) -> (From, Arc<Source>, u64) {
        let number = self.messages;
        self.messages = number.saturating_add(1);
        let from = From::Destination(Arc::clone(&self.name));
        (from, Arc::clone(&self.source), number)
    }
}

/// The cost of a destination beside its name and the copies of it, about.
pub(super) const NAME_COST: usize = 512;
