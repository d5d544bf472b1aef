//! How long a peer may leave untaken what is sent to it.

use std::time::Duration;

/// Time without a byte taken while some wait, after which a peer is given up.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a peer may leave bytes untaken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StallTimeouts {
    /// While it takes nothing, whatever comes from it.
    pub send: Option<Duration>,
    /// While it takes nothing and nothing comes from it either.
    pub silence: Option<Duration>,
}

impl StallTimeouts {
    /// [`SEND_TIMEOUT`]; for a silent peer as long as a ping and its pong take.
    pub fn of_pings(ping_after: Option<Duration>, pong_timeout: Option<Duration>) -> Self {
        let both = ping_after.zip(pong_timeout);
        Self {
            send: Some(SEND_TIMEOUT),
            silence: both.map(|(ping, pong)| ping.saturating_add(pong)),
        }
    }
}
