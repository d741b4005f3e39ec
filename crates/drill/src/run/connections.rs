//! The connections of a script: the packets of each, and the mapping of the script's numbers to live ones.

use std::collections::HashMap;
use std::net::SocketAddr;

use observe::Time;

use crate::frame::{self, Ip, Tcp};
use crate::script::flag;

use super::{Ran, Runner};

/// The target of packets without ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnderTest {
    /// No socket was made yet.
    Nothing,
    /// A socket that listens, or is not connected.
    Socket(i32),
    /// A connection, by its index.
    Connection(usize),
}

/// A connection, or the exchange of datagrams between two addresses.
pub(super) struct Connection {
    /// The stack's end.
    pub local: SocketAddr,
    /// The script's end.
    pub remote: SocketAddr,
    /// The descriptor, once there is one.
    pub fd: Option<i32>,
    /// The descriptor was closed.
    pub closed: bool,
    /// The live sequence number of the stack's SYN, once it was seen.
    pub live_isn: Option<u32>,
    /// The script's number of the stack's SYN.
    pub isn: u32,
    /// The sequence number of the script's first SYN, which is also the live one.
    pub remote_isn: Option<u32>,
    /// Live sequence numbers of the latest SYNs that began a connection, the stack's and the script's: data begins
    /// after them.
    pub own_syn: u32,
    pub peer_syn: u32,
    /// Timestamps of the stack: the script's value, mapped to the live one.
    pub timestamps: HashMap<u32, u32>,
    /// The first timestamp: time, script's value, live value.
    pub first_timestamp: Option<(Time, u32, u32)>,
    /// Sequence and acknowledgement number for a reset by the peer.
    pub last: Option<(u32, u32)>,
    /// The last compared segment of the stack: time, end, bytes of data.
    pub previous: Option<(Time, u32, u32)>,
    /// The bytes do not follow the pattern.
    pub unchecked: bool,
}

impl Connection {
    pub(super) fn new(local: SocketAddr, remote: SocketAddr) -> Connection {
        Connection {
            local,
            remote,
            fd: None,
            closed: false,
            live_isn: None,
            isn: 0,
            remote_isn: None,
            own_syn: 0,
            peer_syn: 0,
            timestamps: HashMap::new(),
            first_timestamp: None,
            last: None,
            previous: None,
            unchecked: false,
        }
    }

    /// Converts a live sequence number of the stack to the script's: relative to the SYN's, which the script
    /// chooses.
    pub(super) fn to_script(&self, seq: u32, syn: bool) -> u32 {
        seq.wrapping_sub(self.live_isn.unwrap_or(0)).wrapping_add(if syn { self.isn } else { 0 })
    }

    /// The reverse.
    pub(super) fn to_live(&self, seq: u32, syn: bool) -> u32 {
        seq.wrapping_add(self.live_isn.unwrap_or(0)).wrapping_sub(if syn { self.isn } else { 0 })
    }

    /// The base of the script's own numbers in a segment: its SYN, or zero in a SYN.
    pub(super) fn base(&self, syn: bool) -> u32 {
        if syn { 0 } else { self.remote_isn.unwrap_or(0) }
    }

    /// Whether a packet of the stack with these addresses belongs to this connection.
    pub(super) fn owns(&self, ip: &Ip, ports: (u16, u16)) -> bool {
        ip.src == self.local.ip()
            && ip.dst == self.remote.ip()
            && ports.0 == self.local.port()
            && ports.1 == self.remote.port()
    }
}

impl Runner {
    /// The connection of a packet. `ports` are the stack's and the script's, if the packet names them; `opens`: it is a
    /// SYN to the stack, which with unknown ports begins a connection. Without ports a packet belongs to the connection
    /// under test also after its descriptor was closed: a SYN may arrive in TIME-WAIT.
    pub(super) fn connection(&mut self, ports: Option<(u16, u16)>, opens: bool) -> Ran<usize> {
        if let Some((local, remote)) = ports {
            let known = self.connections.iter().rposition(|c| c.local.port() == local && c.remote.port() == remote);
            return match (known, self.under_test) {
                (Some(index), _) => Ok(index),
                // Unknown ports: the packet belongs to the connection under test, which does not change.
                (None, UnderTest::Connection(index)) if !opens => {
                    let stranger = self.add_connection(local, remote);
                    self.under_test = UnderTest::Connection(index);
                    let known = &self.connections[index];
                    let (live_isn, isn, remote_isn) = (known.live_isn, known.isn, known.remote_isn);
                    let (own_syn, peer_syn) = (known.own_syn, known.peer_syn);
                    let like = &mut self.connections[stranger];
                    (like.live_isn, like.isn, like.remote_isn) = (live_isn, isn, remote_isn);
                    (like.own_syn, like.peer_syn) = (own_syn, peer_syn);
                    Ok(stranger)
                }
                _ => Ok(self.add_connection(local, remote)),
            };
        }
        match self.under_test {
            UnderTest::Connection(index) => Ok(index),
            UnderTest::Nothing => Ok(self.add_passive(self.settings.bind_port)),
            UnderTest::Socket(fd) => {
                if let (Some(local), Some(remote)) = self.sockets.addresses(fd) {
                    let index = self.add_connection(local.port(), remote.port());
                    self.connections[index].remote = remote;
                    self.connections[index].fd = Some(fd);
                    return Ok(index);
                }
                let port = self.sockets.addresses(fd).0.map_or(self.settings.bind_port, |local| local.port());
                let index = self.add_passive(port);
                if !self.sockets.is_listening(fd) {
                    self.connections[index].fd = Some(fd);
                }
                Ok(index)
            }
        }
    }

    fn add_passive(&mut self, local: u16) -> usize {
        let remote = self.next_port;
        self.next_port = self.next_port.wrapping_add(1).max(32768);
        self.add_connection(local, remote)
    }

    fn add_connection(&mut self, local: u16, remote: u16) -> usize {
        let addresses = &self.settings.addresses;
        let connection = Connection::new((addresses.local, local).into(), (addresses.remote, remote).into());
        self.connections.push(connection);
        let index = self.connections.len() - 1;
        self.under_test = UnderTest::Connection(index);
        index
    }

    /// After `connect`: its connection is the one under test.
    pub(super) fn connected(&mut self, fd: i32) {
        let (Some(local), Some(remote)) = self.sockets.addresses(fd) else { return };
        if self.connections.iter().any(|c| c.fd == Some(fd) && !c.closed && c.local == local && c.remote == remote) {
            return;
        }
        let mut connection = Connection::new(local, remote);
        connection.fd = Some(fd);
        self.connections.push(connection);
        self.under_test = UnderTest::Connection(self.connections.len() - 1);
    }

    /// After `accept`: the connection has a descriptor.
    pub(super) fn accepted(&mut self, fd: i32) {
        let (Some(local), Some(remote)) = self.sockets.addresses(fd) else { return };
        let owner = self.connections.iter_mut().rfind(|c| c.local.port() == local.port() && c.remote == remote);
        if let Some(connection) = owner {
            connection.fd = Some(fd);
            connection.closed = false;
        }
    }

    /// After `close`.
    pub(super) fn closed(&mut self, fd: i32) {
        for connection in self.connections.iter_mut().filter(|connection| connection.fd == Some(fd)) {
            connection.closed = true;
            connection.fd = None;
        }
        self.streams.remove(&fd);
    }

    /// The descriptor whose TCP_INFO assertions read.
    pub(super) fn fd_under_test(&self) -> Option<i32> {
        match self.under_test {
            UnderTest::Connection(index) => self.connections[index].fd,
            UnderTest::Socket(fd) => Some(fd),
            UnderTest::Nothing => None,
        }
    }

    /// Resets every connection, as a restarted peer would.
    pub(super) fn reset_all(&mut self) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let Some((seq, ack)) = connection.last else { continue };
            let reset = Tcp {
                ports: (connection.remote.port(), connection.local.port()),
                flags: flag::RST | flag::ACK,
                seq,
                ack,
                window: 0,
                urgent: 0,
                options: Vec::new(),
                data: Vec::new(),
            };
            let ip = self.inbound_ip(index, 0, 64);
            if let Ok(frame) = frame::tcp(self.host.macs, &ip, &reset) {
                // If a full link drops a reset, the connection ends by its timers.
                let _ = self.host.put(&frame);
                self.host.settle();
            }
        }
    }
}
