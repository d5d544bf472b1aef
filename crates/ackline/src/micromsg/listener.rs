//! Listening.

use ackline_core::OpenError;
use ackline_link::Budget;

use super::connection::{Connection, Made};
use super::options::ListenOptions;
use crate::dialing;

/// Accepts connections.
pub type Listener = dialing::Listener<Connection>;

pub(super) async fn bind(url: &str, mut options: ListenOptions) -> Result<Listener, OpenError> {
    let endpoint = options.endpoint(url)?;
    let made = Made {
        config: options.link,
        send_bytes: options.send_bytes,
        budget: Budget::new(options.memory),
    };
    let made = move |admitted| Connection::admitted(admitted, &made);
    Listener::bind(endpoint, options.acceptor, false, made).await
}
