//! From a listening socket to served connections: the acceptor decides which connections may come in, the
//! protocol reads their input.

use std::sync::Arc;

use ackline_link::{Admitted, BoundListener, Budget, TurnedAway};
use ackline_spool::RECEIVER_URL;

use super::Shared;
use super::connection::serve;
use crate::ingest::PerConnection;

/// Accepts connections and lands their input by `ingest`, until the listener is broken or the receiver ends.
pub(crate) async fn accept<I: PerConnection>(
    listener: BoundListener,
    shared: Arc<Shared>,
    make: impl FnOnce(&Budget) -> I,
) {
    let ingest = make(&shared.budget);
    let serving = Arc::clone(&shared);
    admit(listener, shared, I::SCHEME, move |admitted| {
        tokio::spawn(serve(Arc::clone(&serving), ingest.clone(), admitted));
    })
    .await;
}

/// Accepts connections for `serve`, until the listener is broken or the receiver ends. A connection that has
/// not come in by then has sent nothing.
pub(crate) async fn admit(
    listener: BoundListener,
    shared: Arc<Shared>,
    scheme: &'static str,
    serve: impl Fn(Admitted) + Clone + Send + 'static,
) {
    let told = {
        let (shared, url) = (Arc::clone(&shared), listener.url().to_owned());
        move |outcome: Result<Admitted, TurnedAway>| match outcome {
            Ok(mut admitted) => {
                admitted.peer = admitted.peer.with(RECEIVER_URL, &url);
                serve(admitted);
            }
            Err(turned) => shared.report.turned_away(scheme, turned),
        }
    };
    let acceptor = shared.sockets.acceptor.clone();
    let running = acceptor.run(&listener, told);
    if let Some(error) = shared.open.aborted().run_until_cancelled(running).await {
        tracing::error!(code = "receiver.accept", %error, "accepting ended");
        shared.listener_failed(&error);
    }
}
