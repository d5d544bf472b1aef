//! The time for which a peer may leave bytes untaken that are sent to it.

use std::time::Duration;

/// The time after which a connection is ended whose peer takes no byte while some wait.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// The times for which a peer may leave bytes untaken; without a limit if there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StallTimeouts {
    /// The time for which it may take nothing, even while bytes come from it.
    pub send: Option<Duration>,
    /// The time for which it may take nothing while nothing comes from it either.
    pub silence: Option<Duration>,
}

impl StallTimeouts {
    /// Returns [`SEND_TIMEOUT`]; for a silent peer the time that a ping and its pong take.
    pub fn of_pings(ping_after: Option<Duration>, pong_timeout: Option<Duration>) -> Self {
        let both = ping_after.zip(pong_timeout);
        Self {
            send: Some(SEND_TIMEOUT),
            silence: both.map(|(ping, pong)| ping.saturating_add(pong)),
        }
    }
}
