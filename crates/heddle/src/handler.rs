//! Handlers: servers and clients that run where their data arrives.
//!
//! A [`Handler`] belongs to one connection. The thread that processes the connection's segments calls it, and data that
//! it sends leaves together with the acknowledgement of the received data: no thread is woken, no call is made, no
//! received data is copied. [`Stack::serve`] gives each connection of a port a handler, [`Connect::start_with_handler`]
//! one that is being opened.
//!
//! ```
//! use heddle::device::PktBuf;
//! use heddle::handler::{Conn, Handler};
//! use heddle::{Interface, Stack, TcpStream, mem};
//! use std::io::{Read, Write};
//!
//! /// Returns the data that it receives.
//! struct Echo;
//!
//! impl Handler for Echo {
//!     fn on_data(&mut self, conn: &mut Conn<'_>, data: PktBuf) {
//!         // There is room, if the client reads.
//!         if conn.send(&data) != Ok(data.len()) {
//!             conn.abort();
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (a, b) = mem::pair(mem::MemConfig::default());
//! # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
//! # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
//! let service = server.serve("10.0.0.1:7", |_peer| Echo)?;
//! let mut stream = TcpStream::connect(&client, service.local_addr())?;
//! stream.write_all(b"there and back")?;
//! let mut back = [0; 14];
//! stream.read_exact(&mut back)?;
//! assert_eq!(&back, b"there and back");
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! * Callbacks of one handler never overlap. `on_open` is the first, `on_closed` the last; data comes in the order of the
//!   stream, and `on_end` after the last of it.
//! * A handler uses its own [`Conn`] and nothing else of the stack. Blocking, and every call of a socket or stack, is
//!   refused with [`io::ErrorKind::Deadlock`](std::io::ErrorKind::Deadlock): depending on the
//!   [architecture](crate::Properties::handlers) a handler runs while a part of the stack is held. For the same reason a
//!   callback should be short: it delays every connection of that part.
//! * To act on another connection, a handler sends a message ([`Conn::post`]) to that connection's handler, which may
//!   run on any thread. `examples/proxy.rs` joins two connections in this way.
//! * A panic in a handler resets its connection and no other; see [`Stack::failures`].

use std::fmt;
use std::net::SocketAddr;

use pktbuf::PktBuf;
use stack::socket::TcpSocket;
use stack::socket::handler::ConnectionHandler;
use sync::Real;
use tcp::ConnectionOptions;

use crate::address::ToAddr;
use crate::builder::Stack;
use crate::connect::Connect;
use crate::error::{BindError, ConnectError, TcpError};
use crate::listener::{BACKLOG, TcpListener};

pub use stack::socket::HandlersRun;
pub use stack::socket::handler::{HandlerMessage, PostRefused};

/// A connection, for the length of a callback of its handler.
pub type Conn<'a> = stack::socket::handler::Conn<'a, Real>;

/// Names a connection with a handler: messages can be posted to it, by any thread. See [`Conn::name`].
pub type HandlerRef = stack::socket::handler::HandlerRef<Real>;

/// The program of one connection: see the [module documentation](self).
pub trait Handler: Send + 'static {
    /// The connection is open: it was accepted, or the peer has accepted it.
    fn on_open(&mut self, _conn: &mut Conn<'_>) {}

    /// Data has arrived: the next bytes of the stream, at least one, in the buffer in which they came. The handler may
    /// keep the buffer, or send it on with [`Conn::send_buffer`].
    fn on_data(&mut self, conn: &mut Conn<'_>, data: PktBuf);

    /// The peer sends no more. Closes the connection unless it is replaced.
    fn on_end(&mut self, conn: &mut Conn<'_>) {
        conn.close();
    }

    /// There is room again, after a send that was accepted only in part.
    fn on_writable(&mut self, _conn: &mut Conn<'_>) {}

    /// The time that [`Conn::set_timer`] set has passed.
    fn on_timer(&mut self, _conn: &mut Conn<'_>) {}

    /// Another handler, or another thread, has posted this.
    fn on_message(&mut self, _conn: &mut Conn<'_>, _message: HandlerMessage) {}

    /// The connection is over for this handler; nothing follows. `Ok`: both directions have ended, or the handler has
    /// closed it; otherwise why it failed. [`Conn::post`] still works.
    fn on_closed(&mut self, _conn: &mut Conn<'_>, _outcome: Result<(), TcpError>) {}
}

/// A handler as the stack calls it.
struct Adapted<H>(H);

impl<H: Handler> ConnectionHandler<Real> for Adapted<H> {
    fn open(&mut self, conn: &mut Conn<'_>) {
        self.0.on_open(conn);
    }

    fn data(&mut self, conn: &mut Conn<'_>, data: PktBuf) {
        self.0.on_data(conn, data);
    }

    fn end(&mut self, conn: &mut Conn<'_>) {
        self.0.on_end(conn);
    }

    fn writable(&mut self, conn: &mut Conn<'_>) {
        self.0.on_writable(conn);
    }

    fn timer(&mut self, conn: &mut Conn<'_>) {
        self.0.on_timer(conn);
    }

    fn message(&mut self, conn: &mut Conn<'_>, message: HandlerMessage) {
        self.0.on_message(conn, message);
    }

    fn closed(&mut self, conn: &mut Conn<'_>, outcome: Result<(), TcpError>) {
        self.0.on_closed(conn, outcome);
    }
}

/// A port whose connections are served by handlers. Dropping it stops listening; connections that are open stay.
#[must_use = "dropping it stops listening"]
pub struct Service {
    listener: TcpListener,
}

impl Service {
    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.shared().local()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("local", &self.local_addr()).finish()
    }
}

impl Stack {
    /// Listens on `address`, as [`TcpListener::bind`] does, and gives each connection the handler that `make` returns for
    /// its peer. `make` is called where the handler will run, and the rules for handlers hold for it.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn serve<H: Handler>(
        &self,
        address: impl ToAddr,
        make: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
    ) -> Result<Service, BindError> {
        self.serve_with(address, ConnectionOptions::default(), make)
    }

    /// As [`Stack::serve`], with options that the connections inherit.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn serve_with<H: Handler>(
        &self,
        address: impl ToAddr,
        options: ConnectionOptions,
        make: impl Fn(SocketAddr) -> H + Send + Sync + 'static,
    ) -> Result<Service, BindError> {
        let address = address.to_addr()?;
        let make = move |socket: &TcpSocket<Real>| {
            let tuple = socket.tuple();
            let handler = make(SocketAddr::new(tuple.remote_addr, tuple.remote_port));
            Box::new(Adapted(handler)) as Box<dyn ConnectionHandler<Real>>
        };
        let listener = self.raw().listen_with_handlers(address, BACKLOG, options, make);
        let listener = listener.map_err(|refused| BindError::new(address, refused))?;
        Ok(Service { listener: TcpListener::over(self, listener) })
    }
}

impl Connect<'_> {
    /// Starts to open a connection whose user is `handler`, and returns at once: the handler's `on_open` is called when
    /// the connection is open, or its `on_closed` with the reason why it failed.
    ///
    /// ```
    /// use heddle::device::PktBuf;
    /// use heddle::handler::{Conn, Handler};
    /// use heddle::{Connect, Interface, Stack, TcpListener, mem};
    /// use std::io::Write;
    /// use std::sync::mpsc;
    ///
    /// /// Passes on what it receives.
    /// struct Reader(mpsc::Sender<Vec<u8>>);
    ///
    /// impl Handler for Reader {
    ///     fn on_data(&mut self, _conn: &mut Conn<'_>, data: PktBuf) {
    ///         let _ = self.0.send(data.to_vec());
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = mem::pair(mem::MemConfig::default());
    /// # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
    /// # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
    /// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
    /// let (told, lines) = mpsc::channel();
    /// Connect::new().start_with_handler(&client, "10.0.0.1:7", Reader(told))?;
    /// listener.accept()?.0.write_all(b"welcome")?;
    /// assert_eq!(lines.recv()?, b"welcome");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn start_with_handler(
        &self,
        stack: &Stack,
        address: impl ToAddr,
        handler: impl Handler,
    ) -> Result<HandlerRef, ConnectError> {
        let (remote, local, options, data) = self.checked(stack, address)?;
        let local = local.copied();
        let handler = Box::new(Adapted(handler));
        let opened = stack.raw().connect_with_handler(local, remote, options, data, handler);
        opened.map_err(|refused| ConnectError::Refused(remote, refused))
    }
}
