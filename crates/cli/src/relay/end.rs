//! The two kinds of ends of a relay, the kernel's and Heddle's, with one interface: address, listening, opening,
//! reading, writing, half-close and reset.

use std::fmt;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use heddle::Stack;
use tokio::io::Interest;

use crate::failure::Failure;

/// Where one end of a relay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A socket of this machine's kernel.
    Kernel(SocketAddr),
    /// A connection or a listener of Heddle's stack.
    Heddle(SocketAddr),
}

impl Place {
    /// Its address.
    pub fn address(self) -> SocketAddr {
        match self {
            Place::Kernel(address) | Place::Heddle(address) => address,
        }
    }

    /// Whether it is the kernel's.
    pub fn is_kernel(self) -> bool {
        matches!(self, Place::Kernel(_))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Kernel(address) => write!(f, "kernel:{address}"),
            Place::Heddle(address) => address.fmt(f),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(data: &str) -> Result<Place, String> {
        let (place, address): (fn(SocketAddr) -> Place, &str) = match data.strip_prefix("kernel:") {
            Some(address) => (Place::Kernel, address),
            None => (Place::Heddle, data.strip_prefix("heddle:").unwrap_or(data)),
        };
        address.parse().map(place).map_err(|_| {
            "an end is ADDRESS:PORT on Heddle's stack, as in 10.0.0.2:80 or [fd00::2]:80, or kernel:ADDRESS:PORT on this \
             machine's kernel, as in kernel:127.0.0.1:8080 (names are not resolved)"
                .to_owned()
        })
    }
}

/// A listening socket of either kind.
pub enum Listener {
    /// The kernel's.
    Kernel(tokio::net::TcpListener),
    /// Heddle's.
    Heddle(heddle::tokio::TcpListener),
}

/// A connection accepted at a [`Listener`], and its remote address.
pub enum Accepted {
    /// The kernel's.
    Kernel(tokio::net::TcpStream, SocketAddr),
    /// Heddle's.
    Heddle(heddle::tokio::TcpStream, SocketAddr),
}

impl Listener {
    /// Listens at `place`. The error is a sentence with the remedy.
    pub async fn open(place: Place, stack: &Stack) -> Result<Listener, String> {
        match place {
            Place::Heddle(address) => heddle::tokio::TcpListener::bind(stack, address)
                .map(Listener::Heddle)
                .map_err(|error| error.to_string()),
            Place::Kernel(address) => {
                let bound = tokio::net::TcpListener::bind(address).await;
                bound.map(Listener::Kernel).map_err(|error| cannot_listen(address, &error))
            }
        }
    }

    /// The listening address, with the port that was chosen if it was given as 0.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn address(&self, kernel: bool) -> Result<Place, Failure> {
        let address = match self {
            Listener::Kernel(listener) => listener.local_addr().map_err(Failure::failed)?,
            Listener::Heddle(listener) => listener.local_addr().map_err(Failure::failed)?,
        };
        Ok(if kernel { Place::Kernel(address) } else { Place::Heddle(address) })
    }

    /// Waits for the next connection. The error is a sentence with the remedy.
    pub async fn accept(&self) -> Result<Accepted, String> {
        match self {
            Listener::Heddle(listener) => match listener.accept().await {
                Ok((stream, peer)) => Ok(Accepted::Heddle(stream, peer)),
                Err(error) => Err(format!("cannot accept a connection: {error}")),
            },
            Listener::Kernel(listener) => match listener.accept().await {
                Ok((stream, peer)) => Ok(Accepted::Kernel(stream, peer)),
                Err(error) => Err(format!(
                    "cannot accept a connection: {error}; raise the limit of open files (`ulimit -n`) or give a smaller \
                     --max-connections"
                )),
            },
        }
    }
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens on that port: choose another port, or stop that program",
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine, or 0.0.0.0",
        io::ErrorKind::PermissionDenied => "ports below 1024 need root: choose a higher one",
        _ => "choose another address or port",
    };
    format!("cannot listen on the kernel's {address}: {error}; {remedy}")
}

/// Opens a connection by the kernel. The error is a sentence with the remedy.
pub async fn open_by_kernel(address: SocketAddr, limit: Duration) -> Result<tokio::net::TcpStream, String> {
    match tokio::time::timeout(limit, tokio::net::TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(format!("kernel:{address}: {error}; check that the program is running, and its address")),
        Err(_) => {
            Err(format!("kernel:{address}: no answer within {limit:?}; check that the host is up, and the address"))
        }
    }
}

/// Opens a connection by Heddle's stack. The error is a sentence with the remedy.
pub async fn open_by_heddle(
    stack: &Stack,
    address: SocketAddr,
    limit: Duration,
) -> Result<heddle::tokio::TcpStream, String> {
    match tokio::time::timeout(limit, heddle::tokio::TcpStream::connect(stack, address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("{address}: no answer within {limit:?}; check that the host is up, and the address")),
    }
}

/// One end of a relayed connection. All its waits must be in one task.
pub trait End: Send + Sync {
    /// Waits until a read may succeed.
    fn readable(&self) -> impl Future<Output = ()> + Send;

    /// Waits until a write may succeed.
    fn writable(&self) -> impl Future<Output = ()> + Send;

    /// Waits until the connection has failed, without reading.
    fn failed(&self) -> impl Future<Output = ()> + Send;

    /// The error with which it has failed.
    fn failure(&self) -> io::Error;

    /// Reads the available data; 0: the stream has ended.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: nothing is there now. Others: the connection has failed.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: there is no room now. Others: the connection has failed.
    fn try_write(&self, data: &[u8]) -> io::Result<usize>;

    /// Ends the stream after the data written.
    ///
    /// # Errors
    /// The connection has failed.
    fn finish(&self) -> io::Result<()>;

    /// Sends small segments at once: the sending program has decided about coalescing.
    fn prompt(&self);

    /// Makes the drop a reset.
    fn reset_when_dropped(&self);
}

impl End for heddle::tokio::TcpStream {
    async fn readable(&self) {
        let _ = heddle::tokio::TcpStream::readable(self).await;
    }

    async fn writable(&self) {
        let _ = heddle::tokio::TcpStream::writable(self).await;
    }

    async fn failed(&self) {
        heddle::tokio::TcpStream::failed(self).await;
    }

    fn failure(&self) -> io::Error {
        self.get_ref().take_error().unwrap_or_else(Some).unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.get_ref().read(buffer)
    }

    fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        self.get_ref().write(data)
    }

    fn finish(&self) -> io::Result<()> {
        self.get_ref().shutdown(Shutdown::Write)
    }

    fn prompt(&self) {
        // If the connection has failed already, the next read reports it.
        let _ = self.set_nodelay(true);
    }

    fn reset_when_dropped(&self) {
        let _ = self.get_ref().set_linger(Some(Duration::ZERO));
    }
}

impl End for tokio::net::TcpStream {
    async fn readable(&self) {
        // The read reports an error of this, too.
        let _ = tokio::net::TcpStream::readable(self).await;
    }

    async fn writable(&self) {
        let _ = tokio::net::TcpStream::writable(self).await;
    }

    async fn failed(&self) {
        let _ = self.ready(Interest::ERROR).await;
    }

    fn failure(&self) -> io::Error {
        self.take_error().unwrap_or_else(Some).unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        tokio::net::TcpStream::try_read(self, buffer)
    }

    fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        tokio::net::TcpStream::try_write(self, data)
    }

    fn finish(&self) -> io::Result<()> {
        rustix::net::shutdown(self, rustix::net::Shutdown::Write).map_err(io::Error::from)
    }

    fn prompt(&self) {
        let _ = self.set_nodelay(true);
    }

    fn reset_when_dropped(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_as_they_are_written() {
        for data in ["kernel:127.0.0.1:8080", "kernel:[::1]:0", "10.0.0.2:80", "[fd00::2]:80"] {
            assert_eq!(data.parse::<Place>().unwrap().to_string(), data);
        }
        assert_eq!("heddle:10.0.0.2:80".parse(), "10.0.0.2:80".parse::<Place>());
        for wrong in ["", "80", "kernel:80", "localhost:80", "kernel:", "10.0.0.2", "tap:10.0.0.2:80"] {
            assert!(wrong.parse::<Place>().is_err_and(|message| message.contains("kernel:127.0.0.1:8080")), "{wrong}");
        }
    }
}
