//! The few bytes that an acceptor reads itself. It peeks at them: bytes that are no PROXY header
//! stay in the socket for the protocol.

use std::time::Duration;

use tokio::net::TcpStream;

use super::reason::{FirstBytes, Reason};
use crate::proxy::{Parser, Source, begins};

/// Bytes peeked at together: a whole v1 line, most v2 headers.
const PEEK: usize = 256;

/// Reads a PROXY header and no byte after it.
pub(super) async fn proxy_header(stream: &TcpStream) -> Result<Source, Reason> {
    let mut parser = Parser::default();
    loop {
        let mut peeked = [0; PEEK];
        let count = match stream.peek(&mut peeked).await {
            Ok(count) if count > 0 => count,
            _ if parser.is_empty() => return Err(Reason::HealthCheck),
            _ => return Err(Reason::HeaderCut),
        };
        let bytes = peeked.get(..count).unwrap_or_default();
        let (taken, source) = parser.push(bytes).map_err(Reason::Header)?;
        let seen = peeked.get_mut(..taken).unwrap_or_default();
        if !matches!(stream.try_read(seen), Ok(read) if read == taken) {
            return Err(Reason::HeaderCut);
        }
        if let Some(source) = source {
            return Ok(source);
        }
    }
}

/// Waits for the first byte and classifies the beginning, as far as it is not the protocol's
/// business.
pub(super) async fn first_bytes(stream: &TcpStream) -> Result<FirstBytes, Reason> {
    for _ in 0..LOOKS {
        let mut peeked = [0; LONGEST];
        let count = match stream.peek(&mut peeked).await {
            Ok(count) if count > 0 => count,
            _ => return Err(Reason::HealthCheck),
        };
        if let Some(first) = classify(peeked.get(..count).unwrap_or_default()) {
            return Ok(first);
        }
        // More bytes cannot be awaited while these are there.
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(FirstBytes::Other)
}

/// Classifies the first bytes; `None` while they may still become one or the other.
pub(super) fn classify(bytes: &[u8]) -> Option<FirstBytes> {
    if bytes.first() == Some(&TLS_HANDSHAKE) {
        return Some(FirstBytes::Tls);
    }
    let is_http = METHODS.iter().any(|method| bytes.starts_with(method));
    if is_http {
        return Some(FirstBytes::Http);
    }
    let may_be_http = METHODS.iter().any(|method| method.starts_with(bytes));
    match begins(bytes) {
        Some(true) => Some(FirstBytes::Proxy),
        None => None,
        Some(false) if may_be_http => None,
        Some(false) => Some(FirstBytes::Other),
    }
}

/// The record type of a `ClientHello` (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 0x16;
/// RFC 9110 §9.3, RFC 5789, and the preface of HTTP/2 (RFC 9113 §3.4).
const METHODS: &[&[u8]] = &[
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"CONNECT ",
    b"OPTIONS ",
    b"TRACE ",
    b"PATCH ",
    b"PRI ",
];
/// The longest beginning that can be classified.
const LONGEST: usize = 12;
/// Looks at an incomplete beginning: a peer that sends the start of a word and no more has a
/// second; then the protocol receives it.
const LOOKS: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_protocol_is_recognized_by_its_first_bytes() {
        for (bytes, first) in [
            (&b"2W"[..], Some(FirstBytes::Other)),
            (b"\x16\x03\x01", Some(FirstBytes::Tls)),
            (b"GET / HTTP/1.1", Some(FirstBytes::Http)),
            (b"PRI * HTTP/2", Some(FirstBytes::Http)),
            (b"P", None),
            (b"PRO", None),
            (b"PROXY TCP4 ", Some(FirstBytes::Proxy)),
            (b"\r\n\r\n\0\r\nQUIT\n", Some(FirstBytes::Proxy)),
            (b"\r\n", None),
            (b"PROBLEM", Some(FirstBytes::Other)),
        ] {
            assert_eq!(classify(bytes), first, "{bytes:?}");
        }
    }
}
