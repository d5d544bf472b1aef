//! Opening a transport to an address, with a deadline.

use std::io;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};

use crate::{Address, Stream};

/// Connects to `address`, trying each of a host name's addresses, for `timeout` in all.
///
/// # Errors
/// The address cannot be resolved or reached, or the time is up (`TimedOut`).
pub async fn connect(address: &Address, timeout: Duration) -> io::Result<Stream> {
    let connecting = async {
        match address {
            Address::Tcp(host, port) => {
                Stream::from_tcp(TcpStream::connect((host.as_str(), *port)).await?)
            }
            Address::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
        }
    };
    let late = |_| {
        let message = format!("{address} did not answer within {timeout:?}");
        io::Error::new(io::ErrorKind::TimedOut, message)
    };
    tokio::time::timeout(timeout, connecting)
        .await
        .map_err(late)?
}
