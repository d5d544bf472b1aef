//! Sockets that the process was started with, as systemd hands them over (`LISTEN_FDS`, `LISTEN_PID`;
//! `sd_listen_fds(3)`). Whoever keeps them open keeps their queue: who connects while the receiver is
//! restarted waits there and is served by the next one.

use std::io;
use std::net::SocketAddr;
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

/// Read once: the variables are removed with it, so that no child takes them for its own.
fn all() -> &'static Mutex<Vec<Inherited>> {
    static ALL: OnceLock<Mutex<Vec<Inherited>>> = OnceLock::new();
    ALL.get_or_init(|| Mutex::new(read()))
}

fn read() -> Vec<Inherited> {
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

fn socket(given: &mut ListenFd, index: usize) -> io::Result<Socket> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    if let Ok(Some(unix)) = given.take_unix_listener(index) {
        let address = unix.local_addr()?;
        let path = address.as_pathname().ok_or_else(gone)?.to_owned();
        return Ok(Socket::Unix(unix, path));
    }
    let tcp = given.take_tcp_listener(index)?.ok_or_else(gone)?;
    let address = tcp.local_addr()?;
    Ok(Socket::Tcp(tcp, address))
}

/// A copy of the inherited socket that listens at one of `addresses`, if there is one: what is kept open
/// here and by whoever gave it outlives every listener.
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

/// What was inherited and no listener has asked for: its clients wait for nobody.
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
    fn any_address_is_the_same_in_both_families_and_a_port_never_is() {
        let same = |one: &str, other: &str| is_same(one.parse().unwrap(), other.parse().unwrap());
        assert!(same("0.0.0.0:5044", "[::]:5044"));
        assert!(same("127.0.0.1:5044", "127.0.0.1:5044"));
        assert!(!same("127.0.0.1:5044", "[::]:5044"));
        assert!(!same("0.0.0.0:0", "0.0.0.0:5044"));
    }
}
