//! Listening.

use ackline_core::OpenError;
use ackline_link::Budget;

use super::connection::Connection;
use super::options::ListenOptions;
use crate::dialing;

/// Accepts connections.
pub type Listener = dialing::Listener<Connection>;

pub(super) async fn bind(url: &str, mut options: ListenOptions) -> Result<Listener, OpenError> {
    let endpoint = options.endpoint(url)?;
    let (budget, link) = (Budget::new(options.memory), options.link);
    let made = move |admitted| Connection::admitted(admitted, &link, budget.clone());
    // A peer may wait for credit before it says anything.
    Listener::bind(endpoint, options.acceptor, true, made).await
}
