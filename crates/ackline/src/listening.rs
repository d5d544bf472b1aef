//! A listener of any protocol whose links are connections: those that the acceptor admits, each handed out once.

use ackline_link::{Acceptor, AcceptorStats, Admitted, BoundListener, Turned};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinHandle;

/// Accepts connections and makes links of them. Dropping it closes the socket.
pub(crate) struct Listening<T> {
    url: String,
    acceptor: Acceptor,
    admitted: Mutex<mpsc::Receiver<T>>,
    accepting: Mutex<JoinHandle<()>>,
}

impl<T: Send + 'static> Listening<T> {
    /// Accepts at a listener. Must run inside a tokio runtime.
    pub(crate) fn start(
        listener: BoundListener,
        acceptor: Acceptor,
        admit: impl Fn(Admitted) -> T + Clone + Send + Sync + 'static,
    ) -> Self {
        let url = listener.url().to_owned();
        // The acceptor's slots bound what waits here.
        let (ready, admitted) = mpsc::channel(Semaphore::MAX_PERMITS);
        let told = move |outcome| match outcome {
            Ok(admitted) => {
                // Nobody accepts any more: dropping the link ends it.
                let _ = ready.try_send(admit(admitted));
            }
            Err(turned) => say(&turned),
        };
        let accepting = tokio::spawn({
            let acceptor = acceptor.clone();
            async move {
                let error = acceptor.run(&listener, told).await;
                tracing::error!(code = "receiver.accept", %error, "accepting ended");
            }
        });
        Self {
            url,
            acceptor,
            admitted: Mutex::new(admitted),
            accepting: Mutex::new(accepting),
        }
    }

    /// The URL listened on, with the port that was chosen.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Who was turned away, and how many health checks came.
    pub(crate) fn stats(&self) -> AcceptorStats {
        self.acceptor.stats()
    }

    /// The next link; `None` if the listening socket itself is broken. Cancel-safe.
    pub(crate) async fn next(&self) -> Option<T> {
        self.admitted.lock().await.recv().await
    }

    /// The next link, if one is there now.
    pub(crate) fn try_next(&self) -> Option<T> {
        self.admitted.try_lock().ok()?.try_recv().ok()
    }

    /// Accepts no more: when this returns, the socket is closed and its address is free. Cancel-safe.
    pub(crate) async fn close(&self) {
        let mut accepting = self.accepting.lock().await;
        accepting.abort();
        if !accepting.is_finished() {
            let _ = (&mut *accepting).await;
        }
    }
}

impl<T> Drop for Listening<T> {
    fn drop(&mut self) {
        self.accepting.get_mut().abort();
    }
}

/// Logs who was turned away.
pub(crate) fn say(turned: &Turned) {
    if let Turned::Refused(refused) | Turned::Untold(refused) = turned
        && let Some(times) = refused.times
    {
        let (peer, code, why) = (&*refused.peer, refused.code, &refused.message);
        let offset = refused.offset;
        tracing::warn!(peer, code, offset, times, why, "connection refused");
    }
}
