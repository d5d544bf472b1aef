//! Accepting transports. A listener survives the failures of single connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::{Address, PeerInfo, Stream, descriptors};

/// The peer of an accepted transport.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// A TCP peer's address.
    Tcp(SocketAddr),
    /// The client of a Unix socket: the id of its user, if the system says it. Clients have no
    /// name.
    Unix(Option<u32>),
}

impl Peer {
    /// The information about the peer before it has sent anything.
    pub fn info(&self) -> PeerInfo {
        match self {
            Self::Tcp(address) => PeerInfo::tcp(*address),
            Self::Unix(user) => PeerInfo::unix(*user),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(_) => f.write_str("unix"),
        }
    }
}

/// A bound address that accepts transports. Dropping it closes it and removes its Unix socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
    /// An inherited socket: its file belongs to the process that made it.
    Inherited(UnixListener, PathBuf),
}

impl Listener {
    /// Listens on `address`: on a socket that the process inherited for it (`LISTEN_FDS`), else on
    /// a new one. A Unix socket without a listener is replaced.
    ///
    /// # Errors
    /// The address cannot be resolved or is in use.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        let socket = match address {
            Address::Tcp(host, port) => Socket::Tcp(bind_tcp(host, *port).await?),
            Address::Unix(path) => {
                if let Some(inherited) = crate::inherited::unix(path)? {
                    Socket::Inherited(UnixListener::from_std(inherited)?, path.clone())
                } else {
                    let listener = bind_unix(path).await?;
                    Socket::Unix(listener, SocketFile::new(path)?)
                }
            }
        };
        Ok(Self { socket })
    }

    /// The listener's address: the chosen port in place of port 0.
    ///
    /// # Errors
    /// The system does not tell the address.
    pub fn local(&self) -> io::Result<Address> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let local = listener.local_addr()?;
                Ok(Address::Tcp(local.ip().to_string(), local.port()))
            }
            Socket::Unix(_, file) => Ok(Address::Unix(file.path.clone())),
            Socket::Inherited(_, path) => Ok(Address::Unix(path.clone())),
        }
    }

    /// The next transport. Errors of single connections and a lack of descriptors or memory are
    /// logged and survived, with a pause of 100 ms to 1 s after the latter. The last descriptors
    /// ([`reserved_descriptors`](crate::reserved_descriptors)) are for other uses. Cancel-safe.
    ///
    /// # Errors
    /// The listener itself is broken.
    pub async fn accept(&self) -> io::Result<(Stream, Peer)> {
        persist(|context| self.poll_accept(context)).await
    }

    /// Makes room for the descriptors of this number of connections.
    pub(crate) fn expect(&self, connections: usize) {
        match &self.socket {
            Socket::Tcp(listener) => descriptors::make_room(listener, connections),
            Socket::Unix(listener, _) | Socket::Inherited(listener, _) => {
                descriptors::make_room(listener, connections);
            }
        }
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(Stream, Peer)>> {
        match &self.socket {
            Socket::Tcp(listener) => {
                descriptors::check(listener)?;
                let (stream, peer) = ready!(listener.poll_accept(context))?;
                // An error of a connection that is gone already is not an error of the listener.
                let stream = Stream::from_tcp(stream)
                    .map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                Poll::Ready(Ok((stream, Peer::Tcp(peer))))
            }
            Socket::Unix(listener, _) | Socket::Inherited(listener, _) => {
                descriptors::check(listener)?;
                let (stream, _) = ready!(listener.poll_accept(context))?;
                let stream = Stream::from_unix(stream);
                let peer = Peer::Unix(stream.user());
                Poll::Ready(Ok((stream, peer)))
            }
        }
    }
}

/// Accepts until it succeeds; failures in between are passed over, unless the listener is broken.
async fn persist<T>(
    mut poll_accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<T> {
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match poll_fn(&mut poll_accept).await {
            Ok(accepted) => return Ok(accepted),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(EBADF | EINVAL | ENOTSOCK | EOPNOTSUPP) => return Err(error),
            Some(EMFILE | ENFILE | ENOBUFS | ENOMEM) => {
                if pause == FIRST_PAUSE {
                    let reserved = descriptors::reserve();
                    tracing::warn!(
                        code = "link.accept_paused",
                        %error,
                        reserved,
                        "no connection is accepted until there is room: of the files that the process may open \
                         (ulimit -n) the last {reserved} are for the spool and journals"
                    );
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(LAST_PAUSE);
            }
            // One connection ended before it was accepted.
            _ => tracing::debug!(code = "link.accept_failed", %error, "accept failed"),
        }
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(1);

// The same numbers on every Unix that tokio runs on, except the last three, which are Linux's.
const EBADF: i32 = 9;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOTSOCK: i32 = 88;
const EOPNOTSUPP: i32 = 95;
const ENOBUFS: i32 = 105;

/// Connections that may wait to be accepted. Senders all come back at once after a restart, and a
/// sender that finds the queue full silently retries a second later. The system may allow fewer
/// (`somaxconn`).
const BACKLOG: u32 = 4096;

async fn bind_tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
    if let Some(inherited) = crate::inherited::tcp(&addresses)? {
        return TcpListener::from_std(inherited);
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in addresses {
        match bind_address(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                last = io::Error::new(error.kind(), format!("cannot bind {address}: {error}"));
            }
        }
    }
    Err(last)
}

fn bind_address(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restarted receiver gets its port back although old connections linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let bound = UnixListener::bind(path);
    let Err(error) = &bound else { return bound };
    let named = |kind, why: &dyn std::fmt::Display| {
        io::Error::new(kind, format!("cannot bind {}: {why}", path.display()))
    };
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|found| found.file_type().is_socket());
    if error.kind() != io::ErrorKind::AddrInUse || !is_socket {
        return Err(named(error.kind(), error));
    }
    match tokio::net::UnixStream::connect(path).await {
        Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
            // A killed process left the file.
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        _ => Err(named(
            io::ErrorKind::AddrInUse,
            &"another process listens there",
        )),
    }
}

/// The file of a Unix socket, removed on drop if it is still ours.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        let found = path.symlink_metadata()?;
        Ok(Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = self.path.symlink_metadata();
        if found.is_ok_and(|found| found.dev() == self.device && found.ino() == self.inode) {
            // The next `bind` replaces a socket without a listener.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECONNABORTED: i32 = 103;

    #[tokio::test(start_paused = true)]
    async fn a_lack_of_descriptors_pauses_and_a_lost_connection_does_not() {
        let mut script = vec![Ok(7), Err(ENFILE), Err(ECONNABORTED)];
        script.extend([Err(EMFILE); 5]);
        let begin = tokio::time::Instant::now();
        let accepted = persist(|_| {
            let next = script.pop().expect("no call after success");
            Poll::Ready(next.map_err(io::Error::from_raw_os_error))
        });
        assert_eq!(accepted.await.unwrap(), 7);
        assert_eq!(
            begin.elapsed().as_millis(),
            100 + 200 + 400 + 800 + 1_000 + 1_000
        );
    }

    #[tokio::test]
    async fn a_broken_listener_is_an_error() {
        let broken = || Err::<(), _>(io::Error::from_raw_os_error(EBADF));
        let error = persist(|_| Poll::Ready(broken())).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EBADF));
    }

    #[tokio::test]
    async fn the_table_of_descriptors_has_room_for_the_expected_connections() {
        let size = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        let address = Address::Tcp("127.0.0.1".to_owned(), 0);
        let listener = Listener::bind(&address).await.unwrap();
        listener.expect(700);
        assert!(size() >= 700, "{}", size());
        // A limit that is set as high as it goes does not fill the memory of the system.
        listener.expect(usize::MAX);
        assert!(size() <= 1 << 17, "{}", size());
        assert!(listener.local().is_ok());
    }
}
