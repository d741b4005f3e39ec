//! Opening many loopback connections, within the limits of ports and descriptors.
//!
//! An address of 127.0.0.0/8 gives about 28 000 connections, one for each ephemeral port, so the [`Opener`] changes to
//! the next address well before. Ends are non-blocking, without Nagle's delay, and closed without TIME-WAIT: the ports
//! must be free again for the next run.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::KernelError;

/// Connections on one destination address before the next is used: below the ephemeral ports of any usual range.
const PER_ADDRESS: u32 = 20_000;

/// The two ends of one connection.
#[derive(Debug)]
pub(super) struct Pair {
    /// The end that sends, or requests.
    pub client: TcpStream,
    /// The end that receives, or answers.
    pub server: TcpStream,
}

impl Pair {
    /// Send buffer of the client and receive buffer of the server, in bytes of payload. The kernel reports twice the
    /// requested size, including its own overhead (socket(7)).
    pub(super) fn buffers(&self) -> io::Result<(usize, usize)> {
        let send = sockopt::socket_send_buffer_size(&self.client)?;
        let receive = sockopt::socket_recv_buffer_size(&self.server)?;
        Ok((send / 2, receive / 2))
    }
}

/// Opens one connection after another, moving to further loopback addresses as ports run out.
#[derive(Debug)]
pub(super) struct Opener {
    listener: TcpListener,
    last_byte: u8,
    opened_here: u32,
    send_buffer: Option<usize>,
    receive_buffer: Option<usize>,
}

impl Opener {
    pub(super) fn new(send_buffer: Option<usize>, receive_buffer: Option<usize>) -> io::Result<Opener> {
        let listener = listen(Ipv4Addr::LOCALHOST, receive_buffer)?;
        Ok(Opener { listener, last_byte: 1, opened_here: 0, send_buffer, receive_buffer })
    }

    /// One more connection.
    pub(super) fn open(&mut self) -> io::Result<Pair> {
        if self.opened_here == PER_ADDRESS {
            self.next_address()?;
        }
        let pair = match self.connect() {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                self.next_address()?;
                self.connect()?
            }
            other => other?,
        };
        self.opened_here += 1;
        Ok(pair)
    }

    fn next_address(&mut self) -> io::Result<()> {
        let out = || io::Error::new(io::ErrorKind::AddrNotAvailable, "no loopback port is left");
        self.last_byte = self.last_byte.checked_add(1).ok_or_else(out)?;
        self.listener = listen(Ipv4Addr::new(127, 0, 0, self.last_byte), self.receive_buffer)?;
        self.opened_here = 0;
        Ok(())
    }

    /// The handshake is complete when a blocking connect returns, so an accept right after it never waits.
    fn connect(&self) -> io::Result<Pair> {
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if let Some(bytes) = self.send_buffer {
            sockopt::set_socket_send_buffer_size(&socket, bytes)?;
        }
        rustix::net::connect(&socket, &self.listener.local_addr()?)?;
        let client = TcpStream::from(socket);
        let server = accept_from(&self.listener, client.local_addr()?)?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
            end.set_nonblocking(true)?;
            sockopt::set_socket_linger(end, Some(Duration::ZERO))?;
        }
        Ok(Pair { client, server })
    }
}

/// A listener on any free port of `address`. Connections inherit its receive buffer, and with it their window scale.
pub(super) fn listen(address: Ipv4Addr, receive_buffer: Option<usize>) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(SocketAddrV4::new(address, 0))?;
    if let Some(bytes) = receive_buffer {
        sockopt::set_socket_recv_buffer_size(&listener, bytes)?;
    }
    Ok(listener)
}

/// The connection from `peer`; one from another process on this machine is dropped.
pub(super) fn accept_from(listener: &TcpListener, peer: SocketAddr) -> io::Result<TcpStream> {
    loop {
        let (server, from) = listener.accept()?;
        if from == peer {
            return Ok(server);
        }
    }
}

/// Makes room for `more` file descriptors beside those that are open, raising the soft and, where allowed, the hard
/// limit.
pub(super) fn allow_descriptors(more: u64) -> Result<(), KernelError> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(64, |entries| entries.count() as u64);
    let needed = open + more;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let hard = maximum.map(|maximum| maximum.max(needed));
    let raised = Rlimit { current: Some(needed), maximum: hard };
    setrlimit(Resource::Nofile, raised)
        .map_err(|_| KernelError::FileLimit { needed, limit: maximum.unwrap_or(u64::MAX) })
}

/// MTU of the loopback interface in bytes; 65536, the kernel's default, where it cannot be read.
pub(super) fn loopback_mtu() -> u32 {
    let text = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap_or_default();
    text.trim().parse().unwrap_or(65_536)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn ends_belong_together() {
        let mut opener = Opener::new(Some(65_536), Some(65_536)).unwrap();
        let mut pairs: Vec<Pair> = (0..3).map(|_| opener.open().unwrap()).collect();
        for (index, pair) in pairs.iter_mut().enumerate() {
            pair.client.write_all(&[index as u8; 4]).unwrap();
        }
        for (index, pair) in pairs.iter_mut().enumerate() {
            let mut got = [0; 8];
            assert_eq!(pair.server.read(&mut got).unwrap(), 4);
            assert_eq!(got[0], index as u8);
            assert_eq!(pair.client.peer_addr().unwrap(), pair.server.local_addr().unwrap());
        }
        assert_eq!(pairs[0].buffers().unwrap(), (65_536, 65_536));
    }

    #[test]
    fn the_next_address_is_used_when_one_is_full() {
        let mut opener = Opener::new(None, None).unwrap();
        opener.opened_here = PER_ADDRESS;
        let pair = opener.open().unwrap();
        assert_eq!(pair.server.local_addr().unwrap().ip(), Ipv4Addr::new(127, 0, 0, 2));
        opener.last_byte = u8::MAX;
        opener.opened_here = PER_ADDRESS;
        assert_eq!(opener.open().unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn more_descriptors_than_any_kernel_allows_are_refused_with_a_remedy() {
        let error = allow_descriptors(1 << 40).unwrap_err();
        assert!(error.to_string().contains("LimitNOFILE="), "{error}");
    }
}
