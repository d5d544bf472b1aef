//! URLs of this protocol that name the topic and the filter of a subscription.

use ackline_core::OpenError;

use super::url::{Parts, split};

/// The URL without topic and filter, the topic, which is empty if the URL names none, and the filter, which can be read.
///
/// # Errors
/// [`OpenError::Url`]: the URL is of another protocol, or the filter cannot be read.
pub fn split_subscription(url: &str) -> Result<(String, String, Option<String>), OpenError> {
    let Parts {
        plain,
        topic,
        filter,
    } = split(url).map_err(OpenError::url)?;
    Ok((plain, topic, filter))
}
