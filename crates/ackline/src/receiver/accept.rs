//! From a listening socket to served connections: who may come in is the front's, what they send is the
//! protocol's.

use std::sync::Arc;

use ackline_link::{Arrived, Budget, tls};

use super::Shared;
use super::connection::serve;
use crate::ingest::Ingest;
use crate::protocol::Place;

/// Accepts connections and lands what they send by `ingest`, until the listener is broken.
pub(crate) async fn accept<I: Ingest + Clone>(
    place: Place,
    shared: Arc<Shared>,
    make: impl FnOnce(&Budget) -> I,
) {
    let ingest = make(&shared.budget);
    loop {
        match shared.front.accept(&place.listener).await {
            Ok(Ok(arrived)) => {
                let (shared, tls) = (Arc::clone(&shared), place.tls.clone());
                tokio::spawn(admit(shared, ingest.clone(), arrived, tls));
            }
            Ok(Err(turned)) => shared.report.turned_away(I::SCHEME, turned),
            Err(error) => {
                tracing::error!(code = "receiver.accept", %error, "accepting ended");
                return;
            }
        }
    }
}

/// Awaits what must come first, then serves. Who has not come in when the receiver stops has sent nothing.
async fn admit<I: Ingest>(
    shared: Arc<Shared>,
    ingest: I,
    arrived: Arrived,
    tls: Option<Arc<tls::Server>>,
) {
    let mut stopping = shared.stopping.clone();
    let admitted = {
        // Boxed: it ends soon, and the task of the connection lives for long.
        let mut admitting = Box::pin(arrived.admit(tls.as_deref()));
        tokio::select! {
            admitted = &mut admitting => admitted,
            _ = stopping.wait_for(Option::is_some) => return,
            () = shared.open.aborted() => return,
        }
    };
    drop((stopping, tls));
    match admitted {
        Ok(admitted) => serve(shared, ingest, admitted).await,
        Err(turned) => shared.report.turned_away(I::SCHEME, turned),
    }
}
