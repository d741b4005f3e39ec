//! Opening a connection with options beyond the address. What may never happen: an option that is accepted and not
//! used.

use std::net::SocketAddr;
use std::time::Duration;

use tcp::ConnectionOptions;

use crate::address::ToAddr;
use crate::builder::Stack;
use crate::error::ConnectError;
use crate::stream::TcpStream;

/// How to open a TCP connection: its local address, its options, and data for the SYN. One value can open any number of
/// connections; [`TcpStream::connect`] is for connections that need none of it.
///
/// ```
/// use heddle::config::ConnectionOptions;
/// use heddle::{Connect, Interface, Readiness, Stack, TcpListener, mem};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = mem::pair(mem::MemConfig::default());
/// # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
/// # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
/// # let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// let connect = Connect::new()
///     .local("10.0.0.2:4000".parse()?)
///     .options(ConnectionOptions { no_delay: true, ..ConnectionOptions::default() });
/// let stream = connect.start(&client, "10.0.0.1:7")?;
/// // Other work could be done here.
/// assert!(stream.wait(Readiness::CONNECTED, None).contains(Readiness::CONNECTED));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "opens no connection until `open`, `open_timeout` or `start` is called"]
pub struct Connect<'d> {
    local: Option<SocketAddr>,
    options: ConnectionOptions,
    data: &'d [u8],
}

/// What [`Connect::checked`] returns.
pub(crate) type ConnectRequest<'a> = (SocketAddr, Option<&'a SocketAddr>, &'a ConnectionOptions, &'a [u8]);

impl<'d> Connect<'d> {
    /// From any local address and port, with the stack's options, without data.
    pub fn new() -> Connect<'d> {
        Connect::default()
    }

    /// From this local address. Port 0 takes any free port; an unspecified address takes the route's source address.
    pub fn local(mut self, local: SocketAddr) -> Connect<'d> {
        self.local = Some(local);
        self
    }

    /// With these options. Those that a SYN carries, such as segment size, window scale and user time-out, can only be
    /// set here.
    pub fn options(mut self, options: ConnectionOptions) -> Connect<'d> {
        self.options = options;
        self
    }

    /// Sends `data` first, with the SYN if there is a Fast Open cookie for the destination (RFC 7413, `MSG_FASTOPEN`);
    /// in rare cases it may then reach the peer twice, on two connections. Otherwise the data follows the handshake,
    /// and the SYN requests a cookie. At most 60 KiB, and no more than the initial send buffer.
    pub fn first_data(mut self, data: &'d [u8]) -> Connect<'d> {
        self.data = data;
        self
    }

    /// Opens a connection and waits until it is established or has failed.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn open(&self, stack: &Stack, address: impl ToAddr) -> Result<TcpStream, ConnectError> {
        self.start(stack, address)?.opened(None)
    }

    /// As [`Connect::open`], for at most `timeout`.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn open_timeout(
        &self,
        stack: &Stack,
        address: impl ToAddr,
        timeout: Duration,
    ) -> Result<TcpStream, ConnectError> {
        self.start(stack, address)?.opened(Some(timeout))
    }

    /// Starts to open a connection and returns at once; the stream is non-blocking. It becomes
    /// [`Readiness::CONNECTED`](crate::Readiness::CONNECTED), or [`Readiness::ERROR`](crate::Readiness::ERROR); see
    /// [`TcpStream::take_error`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn start(&self, stack: &Stack, address: impl ToAddr) -> Result<TcpStream, ConnectError> {
        let (remote, local, options, data) = self.checked(stack, address)?;
        let socket = stack
            .raw()
            .connect_with(local, &remote, options, data)
            .map_err(|refused| ConnectError::Refused(remote, refused))?;
        let stream = TcpStream::new(stack, socket);
        stream.block(false);
        Ok(stream)
    }

    /// The remote address, the local one, the options and the first data, which fits.
    pub(crate) fn checked(&self, stack: &Stack, address: impl ToAddr) -> Result<ConnectRequest<'_>, ConnectError> {
        let remote = address.to_addr()?;
        let most = stack.raw().first_data(&self.options);
        if self.data.len() > most {
            return Err(ConnectError::DataTooLong { len: self.data.len(), most });
        }
        Ok((remote, self.local.as_ref(), &self.options, self.data))
    }
}
