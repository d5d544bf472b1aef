//! From a listening socket to served connections: who may come in is the front's, what they send is the
//! protocol's.

use std::sync::Arc;

use ackline_link::{Budget, Door};

use super::Shared;
use super::connection::serve;
use crate::ingest::Ingest;

/// Accepts connections and lands what they send by `ingest`, until the listener is broken or the receiver
/// ends. Who has not come in by then has sent nothing.
pub(crate) async fn accept<I: Ingest + Clone>(
    door: Door,
    shared: Arc<Shared>,
    make: impl FnOnce(&Budget) -> I,
) {
    let ingest = make(&shared.budget);
    let told = {
        let shared = Arc::clone(&shared);
        move |outcome| match outcome {
            Ok(admitted) => {
                tokio::spawn(serve(Arc::clone(&shared), ingest.clone(), admitted));
            }
            Err(turned) => shared.report.turned_away(I::SCHEME, turned),
        }
    };
    let front = shared.front.clone();
    let running = front.run(&door, told);
    if let Some(error) = shared.open.aborted().run_until_cancelled(running).await {
        tracing::error!(code = "receiver.accept", %error, "accepting ended");
        shared.listener_failed(&error);
    }
}
