//! Bytes that are no TLS handshake: both ends name the error, and time and memory are bounded.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may panic

use std::time::{Duration, Instant};

use crate::pki::meeting::{DEADLINE, accept_raw, connect_raw, listener, plain, rest};
use crate::pki::{Authority, Pki};
use ackline_link::tls::{Server, TlsError, refuse_hello};
use ackline_link::{Address, Endpoint, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct Place {
    pki: Pki,
    ca: Authority,
    server: Server,
}

fn place() -> Place {
    let (pki, ca) = (Pki::new(), Authority::new("ca"));
    let server = Server::new(&pki.server(&ca, &["localhost", "127.0.0.1"], None)).unwrap();
    Place { pki, ca, server }
}

impl Place {
    fn tls(&self, at: Address) -> Endpoint {
        Endpoint::new("toy", vec![at], Some(self.pki.client(&self.ca, None)))
    }
}

fn says(error: &TlsError, code: &str, part: &str) {
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(part), "{part}: {error}");
}

/// A hello that offers TLS 1.1 and nothing later, as a peer of 2006 sends it.
fn old_hello() -> Vec<u8> {
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]); // random
    hello.push(0); // no session
    hello.extend([0, 4, 0x00, 0x2f, 0x00, 0x35]); // AES_128_CBC_SHA, AES_256_CBC_SHA
    hello.extend([1, 0]); // no compression
    let mut message = vec![1, 0, 0, u8::try_from(hello.len()).unwrap()];
    message.extend(hello);
    let mut record = vec![0x16, 0x03, 0x01, 0, u8::try_from(message.len()).unwrap()];
    record.extend(message);
    record
}

#[tokio::test]
async fn a_client_of_tls_1_1_is_refused_by_an_alert() {
    let place = place();
    let refused = accept_raw(&place.server, async |mut socket: TcpStream| {
        socket.write_all(&old_hello()).await.unwrap();
        let answer = rest(&mut socket).await;
        // A fatal alert, handshake_failure: a hello of that age names no signatures either.
        assert_eq!(
            (answer[0], &answer[5..]),
            (0x15, &[2, 40][..]),
            "{answer:?}"
        );
    });
    let error = refused.await.unwrap_err();
    says(&error, "tls.handshake", "no TLS 1.2 or 1.3 in common");
}

#[tokio::test]
async fn a_server_of_tls_1_1_is_refused() {
    let place = place();
    let refused = connect_raw(
        |at| place.tls(at),
        DEADLINE,
        async |mut socket: TcpStream| {
            let mut head = [0; 5];
            socket.read_exact(&mut head).await.unwrap();
            let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            socket.read_exact(&mut hello).await.unwrap();
            let mut answer = vec![0x03, 0x02];
            answer.extend([9; 32]);
            answer.extend([0, 0x00, 0x2f, 0]);
            let mut message = vec![2, 0, 0, u8::try_from(answer.len()).unwrap()];
            message.extend(answer);
            let mut record = vec![0x16, 0x03, 0x02, 0, u8::try_from(message.len()).unwrap()];
            record.extend(message);
            socket.write_all(&record).await.unwrap();
            assert_eq!(rest(&mut socket).await[0], 0x15, "no alert");
        },
    );
    let error = refused.await.unwrap_err();
    says(
        TlsError::of(&error).unwrap(),
        "tls.handshake",
        "no TLS 1.2 or 1.3 in common",
    );
}

/// The bytes of a real hello.
async fn real_hello(place: &Place) -> Vec<u8> {
    let mut hello = Vec::new();
    let _ = connect_raw(
        |at| place.tls(at),
        DEADLINE,
        async |mut socket: TcpStream| {
            let mut some = vec![0; 4_096];
            let count = socket.read(&mut some).await.unwrap();
            hello.extend_from_slice(&some[..count]);
        },
    )
    .await;
    hello
}

/// A client that sends every byte alone.
#[tokio::test]
async fn a_handshake_byte_by_byte_succeeds() {
    let place = place();
    let listener = listener().await;
    let Address::Tcp(host, port) = listener.local().unwrap() else {
        panic!("not TCP")
    };
    let connecting = connect_raw(
        |at| place.tls(at),
        DEADLINE,
        async |socket: TcpStream| {
            let onward = TcpStream::connect((host.as_str(), port)).await.unwrap();
            onward.set_nodelay(true).unwrap();
            let ((mut client, mut to_client), (mut server, mut to_server)) =
                (socket.into_split(), onward.into_split());
            let forth = async {
                let mut byte = [0];
                while client.read(&mut byte).await.unwrap_or(0) == 1 {
                    to_server.write_all(&byte).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let back = async {
                let _ = tokio::io::copy(&mut server, &mut to_client).await;
            };
            tokio::select! { () = forth => {}, () = back => {} }
        },
    );
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut stream, _) = place.server.accept(stream).await.unwrap();
        tell_one(&mut stream).await;
    };
    let both = async {
        tokio::join!(accepting, async {
            hear_one(connecting.await.unwrap()).await;
        })
    };
    tokio::time::timeout(DEADLINE, both).await.unwrap();
}

async fn tell_one(stream: &mut Stream) {
    stream.write_all(b"one").await.unwrap();
    stream.shutdown().await.unwrap();
}

async fn hear_one(mut stream: Stream) {
    let mut word = Vec::new();
    stream.read_to_end(&mut word).await.unwrap();
    assert_eq!(word, b"one");
}

#[tokio::test]
async fn a_hello_cut_at_each_byte_is_an_end_in_the_handshake() {
    let place = place();
    let hello = real_hello(&place).await;
    assert!(hello.len() > 100);
    for cut in 0..hello.len() {
        let refused = accept_raw(&place.server, async |mut socket: TcpStream| {
            socket.write_all(&hello[..cut]).await.unwrap();
            socket.shutdown().await.unwrap();
            rest(&mut socket).await;
        });
        let error = refused.await.unwrap_err();
        says(&error, "tls.handshake", "closed");
    }
}

#[tokio::test]
async fn an_orderly_end_right_after_the_hello_is_named() {
    let place = place();
    let hello = real_hello(&place).await;
    let refused = accept_raw(&place.server, async |mut socket: TcpStream| {
        socket.write_all(&hello).await.unwrap();
        let close_notify = [0x15, 0x03, 0x03, 0, 2, 1, 0];
        socket.write_all(&close_notify).await.unwrap();
        socket.shutdown().await.unwrap();
        rest(&mut socket).await;
    });
    says(&refused.await.unwrap_err(), "tls.handshake", "clos");
}

#[tokio::test]
async fn a_reset_in_the_handshake_is_named() {
    let place = place();
    let hello = real_hello(&place).await;
    let refused = accept_raw(&place.server, async |mut socket: TcpStream| {
        socket.write_all(&hello[..50]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        socket.set_zero_linger().unwrap();
    });
    says(
        &refused.await.unwrap_err(),
        "tls.handshake",
        "broke in the handshake",
    );
    let refused = connect_raw(
        |at| place.tls(at),
        DEADLINE,
        async |mut socket: TcpStream| {
            socket.read_u8().await.unwrap();
            socket.set_zero_linger().unwrap();
        },
    );
    let error = refused.await.unwrap_err();
    says(
        TlsError::of(&error).unwrap(),
        "tls.handshake",
        "broke in the handshake",
    );
}

#[tokio::test]
async fn a_silent_client_is_given_up_at_the_deadline() {
    let place = place();
    let patient = Duration::from_millis(150);
    let hello = real_hello(&place).await;
    let server = place.server.within(patient);
    for (sent, said) in [
        (&hello[..0], "sent nothing"),
        (&hello[..20], "did not go on"),
    ] {
        let begin = Instant::now();
        let refused = accept_raw(&server, async |mut socket: TcpStream| {
            socket.write_all(sent).await.unwrap();
            rest(&mut socket).await;
        });
        says(&refused.await.unwrap_err(), "tls.timeout", said);
        assert!(begin.elapsed() >= patient && begin.elapsed() < DEADLINE);
    }
}

#[tokio::test]
async fn a_client_that_trickles_does_not_move_the_deadline() {
    let place = place();
    let hello = real_hello(&place).await;
    let server = place.server.within(Duration::from_millis(300));
    let refused = accept_raw(&server, async |mut socket: TcpStream| {
        for byte in &hello {
            if socket.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the whole hello was taken");
    });
    says(&refused.await.unwrap_err(), "tls.timeout", "300ms");
}

#[tokio::test]
async fn a_silent_server_is_given_up_at_the_deadline() {
    let place = place();
    let refused = connect_raw(
        |at| place.tls(at),
        Duration::from_millis(200),
        async |mut socket: TcpStream| {
            rest(&mut socket).await;
        },
    );
    let error = refused.await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
    says(
        TlsError::of(&error).unwrap(),
        "tls.timeout",
        "the server did not end it",
    );
}

#[tokio::test]
async fn plain_bytes_on_a_port_of_tls_are_named_on_both_ends() {
    let place = place();
    for (bytes, guess) in [
        (&b"2W\0\0\0\x01"[..], "Lumberjack version 2"),
        (b"1W\0\0\0\x01", "Lumberjack version 1"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x00\x00", "no TLS"),
    ] {
        let refused = accept_raw(&place.server, async |mut socket: TcpStream| {
            socket.write_all(bytes).await.unwrap();
            let answer = rest(&mut socket).await;
            assert_eq!(answer, [0x15, 3, 3, 0, 2, 2, 10], "{bytes:?}");
        });
        says(&refused.await.unwrap_err(), "tls.plaintext", guess);
    }
    // Our client, which wrote plain bytes, recognizes the answer.
    let listener = listener().await;
    let at = listener.local().unwrap();
    let accept = async {
        let (stream, _) = listener.accept().await.unwrap();
        place.server.accept(stream).await.map(|_| ()).unwrap_err()
    };
    let dial = async {
        let mut stream = ackline_link::connect(&plain(at), DEADLINE).await.unwrap();
        stream.write_all(b"2W\0\0\0\x01").await.unwrap();
        stream.read_u8().await.unwrap_err()
    };
    let both = async { tokio::join!(accept, dial) };
    let (refused, told) = tokio::time::timeout(DEADLINE, both).await.unwrap();
    says(&refused, "tls.plaintext", "Lumberjack");
    says(TlsError::of(&told).unwrap(), "tls.plaintext", "+tls");
}

#[tokio::test]
async fn tls_on_a_plain_port_is_named_on_both_ends() {
    let place = place();
    let listener = listener().await;
    let at = listener.local().unwrap();
    let accept = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(stream.first_byte().await.unwrap(), Some(0x16));
        refuse_hello(stream).await;
    };
    let endpoint = place.tls(at);
    let both = async { tokio::join!(accept, ackline_link::connect(&endpoint, DEADLINE)) };
    let ((), told) = tokio::time::timeout(DEADLINE, both).await.unwrap();
    let told = told.unwrap_err();
    says(TlsError::of(&told).unwrap(), "tls.unexpected", "not TLS");
}

#[tokio::test]
async fn a_server_that_closes_instead_of_answering_is_named() {
    let place = place();
    let refused = connect_raw(
        |at| place.tls(at),
        DEADLINE,
        async |mut socket: TcpStream| {
            let mut hello = [0; 4_096];
            assert!(socket.read(&mut hello).await.unwrap() > 0);
        },
    );
    let error = refused.await.unwrap_err();
    says(
        TlsError::of(&error).unwrap(),
        "tls.handshake",
        "before a byte of its handshake",
    );
}

#[tokio::test]
async fn a_handshake_message_above_64_kib_is_refused_before_it_is_read() {
    let place = place();
    let refused = accept_raw(&place.server, async |mut socket: TcpStream| {
        // A hello that announces 16 MiB, in records of 16 KiB.
        let mut sent = 0_usize;
        let mut record = vec![0x16, 3, 1, 0x40, 0];
        record.extend([1, 0xff, 0xff, 0xff]);
        record.resize(5 + 0x4000, 0);
        let follow = [&[0x16, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
        while sent < 16 << 20 {
            let next = if sent == 0 { &record } else { &follow };
            if socket.write_all(next).await.is_err() {
                break;
            }
            sent += next.len();
        }
        assert!(sent < 16 << 20, "all of it was taken");
    });
    says(&refused.await.unwrap_err(), "tls.handshake", "");
}

#[tokio::test]
async fn random_bytes_behind_a_records_type_are_refused() {
    let place = place();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..100 {
        let mut noise = vec![0x16];
        for _ in 0..64 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            noise.push(u8::try_from(seed & 0xff).unwrap());
        }
        let refused = accept_raw(&place.server, async |mut socket: TcpStream| {
            socket.write_all(&noise).await.unwrap();
            socket.shutdown().await.unwrap();
            rest(&mut socket).await;
        });
        assert_eq!(
            refused.await.map(|_| ()).unwrap_err().code(),
            "tls.handshake"
        );
    }
}

/// A TLS server's alert is recognized by its whole head: other protocols may begin with its first
/// byte.
#[tokio::test]
async fn plain_bytes_that_look_a_little_like_an_alert_are_read() {
    for bytes in [
        &[0x15, 0x03, 0x03, 0, 2, 1, 10][..],
        &[0x15, 0x03, 0x03, 0, 3, 2, 10],
        &[0x15, 0x01, 0x03, 0, 2, 2, 10],
        &[0x15],
    ] {
        let connected = connect_raw(plain, DEADLINE, async |mut socket: TcpStream| {
            socket.write_all(bytes).await.unwrap();
        });
        let mut read = Vec::new();
        connected
            .await
            .unwrap()
            .read_to_end(&mut read)
            .await
            .unwrap();
        assert_eq!(read, bytes);
    }
}
