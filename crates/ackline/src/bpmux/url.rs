//! URLs of this protocol.

use ackline_core::OpenError;
use ackline_link::Endpoint;

use crate::dialing;

/// The endpoint of a URL of this protocol.
pub(super) fn endpoint(url: &str) -> Result<Endpoint, OpenError> {
    dialing::endpoint(super::SCHEME, url)
}
