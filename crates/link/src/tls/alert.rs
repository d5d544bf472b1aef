//! Answers to a peer that speaks TLS on a plain port, or plain bytes on a TLS port.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Stream;

/// The bytes of a TLS record that holds an alert.
pub(crate) const ALERT_BYTES: usize = 7;

/// Clients show these bytes as "wrong version number" or "first record does not look like a TLS
/// handshake", which their documents explain.
const NO_TLS: &[u8] = b"this port takes no TLS\r\n";

/// The time that the peer has to read it.
const GOODBYE: Duration = Duration::from_secs(1);

/// Bytes from the peer that are read and dropped, so that its reset does not overtake the answer.
const MAX_DROPPED: usize = 64 * 1024;

/// Tells a TLS client on a plain port that there is no TLS, and closes the connection, within a
/// second.
pub async fn refuse_hello(stream: Stream) {
    goodbye(stream, NO_TLS).await;
}

/// Ends a connection with FIN, within a second. Bytes that were written reach the peer: a close
/// with unread bytes would reset the connection and lose them.
pub(crate) async fn linger(stream: Stream) {
    goodbye(stream, &[]).await;
}

/// Sends these words and closes the connection, within a second.
pub(super) async fn goodbye(mut stream: Stream, words: &[u8]) {
    let saying = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        let mut dropped = 0;
        let mut scratch = [0; 1_024];
        while dropped < MAX_DROPPED {
            match stream.read(&mut scratch).await? {
                0 => break,
                count => dropped += count,
            }
        }
        io::Result::Ok(())
    };
    // A peer that is gone needs no answer.
    let _ = tokio::time::timeout(GOODBYE, saying).await;
}

/// Whether bytes begin a fatal TLS alert: a TLS server's answer to a plain client.
pub(crate) fn is_alert(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15, 0x03, 0x00..=0x04, 0x00, 0x02, 0x02, ..])
}
