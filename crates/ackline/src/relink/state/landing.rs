//! The questions of a receiver to the journals of its links.

use std::path::Path;
use std::sync::Arc;

use ackline_relink::ChannelId;
use ackline_relink::frame::EndpointName;

use super::super::landed::Landed;
use super::log::Log;
use super::{CONNECTOR, Error, Journal, ListenerState, Origin, files};

impl Journal {
    /// Notes with the end of each of the peer's channels how far `landing` was.
    #[must_use]
    pub(crate) fn landing(mut self, landing: Arc<Landed>) -> Self {
        self.landing = Some(landing);
        self
    }

    /// A link that is lost does not stay in it: nothing of it is to be sent again.
    #[must_use]
    pub(crate) fn forgetting_lost(mut self) -> Self {
        self.keeps_lost = false;
        self
    }

    /// Whether the message at this position of the spool is of a life of the channel that has ended.
    pub(crate) fn has_ended(&self, channel: &ChannelId, position: u64) -> bool {
        self.ends.get(channel).is_some_and(|end| position < *end)
    }
}

impl ListenerState {
    /// Messages of its links are landed.
    #[must_use]
    pub(crate) fn landing(mut self, landing: Arc<Landed>) -> Self {
        self.landing = Some(landing);
        self
    }
}

/// The endpoints of the links that stand in a directory without a user.
///
/// # Errors
/// It cannot be read.
pub(crate) fn endpoints_in(dir: &Path) -> Result<Vec<EndpointName>, Error> {
    let mut names = Vec::new();
    let link_out = Some(dir.join(CONNECTOR)).filter(|file| file.exists());
    for file in files(dir)?.into_iter().chain(link_out) {
        let (_, kept) = Log::open(&file).map_err(Error::state)?;
        let mut first = kept.groups.first().map_or(&[][..], Vec::as_slice);
        names.extend(Origin::decode(&mut first).map(|origin| origin.endpoint_name));
    }
    names.sort();
    names.dedup();
    Ok(names)
}
