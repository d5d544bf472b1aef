//! Sockets that the process inherited, as systemd hands them over (`LISTEN_FDS`, `LISTEN_PID`;
//! `sd_listen_fds(3)`). The process that keeps them open keeps their queue: clients that connect
//! while the receiver restarts wait there, and the next receiver serves them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use listenfd::ListenFd;

enum Socket {
    Tcp(std::net::TcpListener, SocketAddr),
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

/// A socket of the process and whether a listener has used it.
struct Inherited {
    socket: Socket,
    is_used: bool,
}

/// Read once. The variables are removed then, so that no child process takes them for its own.
fn all() -> &'static Mutex<Vec<Inherited>> {
    static ALL: OnceLock<Mutex<Vec<Inherited>>> = OnceLock::new();
    ALL.get_or_init(|| Mutex::new(read()))
}

fn read() -> Vec<Inherited> {
    for name in ["LISTEN_FDS", "LISTEN_PID"] {
        let text = std::env::var_os(name).unwrap_or_default();
        if let Some(error) = wrong_number(name, &text.to_string_lossy()) {
            tracing::warn!(
                code = "link.inherited_unusable",
                error,
                "no socket is inherited"
            );
            return Vec::new();
        }
    }
    let mut given = ListenFd::from_env();
    let mut all = Vec::new();
    for index in 0..given.len() {
        match socket(&mut given, index) {
            Ok(socket) => all.push(Inherited {
                socket,
                is_used: false,
            }),
            Err(error) => {
                tracing::warn!(code = "link.inherited_unusable", index, %error, "passed over");
            }
        }
    }
    all
}

/// The error in a variable that must hold a number; an empty variable counts as not set.
fn wrong_number(name: &str, text: &str) -> Option<String> {
    let most = if name == "LISTEN_FDS" {
        MAX_GIVEN
    } else {
        u32::MAX
    };
    match text.parse::<u32>() {
        _ if text.is_empty() => None,
        Ok(number) if number <= most => None,
        Ok(_) => Some(format!("{name}={text:?} is above {most}")),
        Err(_) => Some(format!("{name}={text:?} is not a number")),
    }
}

/// Sockets that a process may be handed; systemd's own limit is in the same order.
const MAX_GIVEN: u32 = 4096;

/// Refuses a socket on which `listen` was not called: it would never accept a connection.
fn check_listening(socket: &impl AsFd) -> io::Result<()> {
    if rustix::net::sockopt::socket_acceptconn(socket)? {
        return Ok(());
    }
    let kind = io::ErrorKind::InvalidInput;
    Err(io::Error::new(
        kind,
        "the socket is bound, but not listening",
    ))
}

fn socket(given: &mut ListenFd, index: usize) -> io::Result<Socket> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    if let Ok(Some(unix)) = given.take_unix_listener(index) {
        check_listening(&unix)?;
        let address = unix.local_addr()?;
        let path = address.as_pathname().ok_or_else(gone)?.to_owned();
        return Ok(Socket::Unix(unix, path));
    }
    let tcp = given.take_tcp_listener(index)?.ok_or_else(gone)?;
    check_listening(&tcp)?;
    let address = tcp.local_addr()?;
    Ok(Socket::Tcp(tcp, address))
}

/// A copy of the inherited socket that listens on one of `addresses`, if there is one. The
/// original, here and in the parent, outlives every listener.
pub(crate) fn tcp(addresses: &[SocketAddr]) -> io::Result<Option<std::net::TcpListener>> {
    take(|socket| match socket {
        Socket::Tcp(listener, local) if addresses.iter().any(|one| is_same(*one, *local)) => {
            Some(listener.try_clone().and_then(|copy| {
                copy.set_nonblocking(true)?;
                Ok(copy)
            }))
        }
        _ => None,
    })
}

/// The same for a Unix socket's path.
pub(crate) fn unix(path: &Path) -> io::Result<Option<std::os::unix::net::UnixListener>> {
    take(|socket| match socket {
        Socket::Unix(listener, local) if local == path => {
            Some(listener.try_clone().and_then(|copy| {
                copy.set_nonblocking(true)?;
                Ok(copy)
            }))
        }
        _ => None,
    })
}

fn take<T>(mut copy: impl FnMut(&Socket) -> Option<io::Result<T>>) -> io::Result<Option<T>> {
    let mut all = all().lock().unwrap_or_else(PoisonError::into_inner);
    for one in all.iter_mut() {
        if let Some(copied) = copy(&one.socket) {
            one.is_used = true;
            tracing::info!(code = "link.inherited", address = %name(&one.socket), "listening");
            return copied.map(Some);
        }
    }
    Ok(None)
}

/// Inherited sockets that no listener has used: their clients would wait for ever.
pub fn unused_sockets() -> Vec<String> {
    let all = all().lock().unwrap_or_else(PoisonError::into_inner);
    let unused = all.iter().filter(|one| !one.is_used);
    unused.map(|one| name(&one.socket)).collect()
}

fn name(socket: &Socket) -> String {
    match socket {
        Socket::Tcp(_, address) => address.to_string(),
        Socket::Unix(_, path) => path.display().to_string(),
    }
}

/// `ListenStream=5044` is `[::]:5044` on both families: any address is any address.
fn is_same(wanted: SocketAddr, local: SocketAddr) -> bool {
    let any = wanted.ip().is_unspecified() && local.ip().is_unspecified();
    wanted.port() == local.port() && (any || wanted.ip() == local.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_no_number_is_named() {
        let wrong = |name, text| wrong_number(name, text).unwrap_or_default();
        for text in ["x", "-1", "1 ", "4294967296", "0x3"] {
            let said = wrong("LISTEN_FDS", text);
            assert_eq!(said, format!("LISTEN_FDS={text:?} is not a number"));
            assert!(wrong("LISTEN_PID", text).contains("LISTEN_PID"), "{text}");
        }
        assert_eq!(
            wrong("LISTEN_FDS", "4097"),
            "LISTEN_FDS=\"4097\" is above 4096"
        );
        for (name, text) in [
            ("LISTEN_FDS", ""),
            ("LISTEN_FDS", "4096"),
            ("LISTEN_PID", "99999"),
        ] {
            assert_eq!(wrong_number(name, text), None, "{text}");
        }
    }

    #[test]
    fn a_socket_that_does_not_listen_is_refused() {
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        check_listening(&listening).unwrap();
        let bound = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = check_listening(&bound).unwrap_err();
        assert!(error.to_string().contains("not listening"), "{error}");
    }

    #[test]
    fn any_address_is_the_same_in_both_families_and_a_port_never_is() {
        let same = |one: &str, other: &str| is_same(one.parse().unwrap(), other.parse().unwrap());
        assert!(same("0.0.0.0:5044", "[::]:5044"));
        assert!(same("127.0.0.1:5044", "127.0.0.1:5044"));
        assert!(!same("127.0.0.1:5044", "[::]:5044"));
        assert!(!same("0.0.0.0:0", "0.0.0.0:5044"));
    }
}
