//! Injected packets.

use std::num::NonZeroU16;

use crate::frame::{self, Ip, Offender, Tcp};
use crate::script::{Body, IcmpSpec, Packet, Quoted, TcpOption, TcpSpec, Tos, flag};

use super::values::pattern;
use super::{Ran, Runner};

const TTL: u8 = 64;

/// The segments of `whole`: `size` bytes of data each, FIN and PSH at the end.
fn cut(whole: Tcp, size: u16) -> Vec<Tcp> {
    let size = usize::from(size);
    let parts = whole.data.len().div_ceil(size);
    let part = |(n, data): (usize, &[u8])| {
        let last = n + 1 == parts;
        Tcp {
            seq: whole.seq.wrapping_add((n * size) as u32),
            flags: if last { whole.flags } else { whole.flags & !(flag::FIN | flag::PSH) },
            options: whole.options.clone(),
            data: data.to_vec(),
            ..whole
        }
    };
    whole.data.chunks(size).enumerate().map(part).collect()
}

impl Runner {
    /// Makes the packet and gives it to the stack.
    pub(super) fn inject(&mut self, packet: &Packet) -> Ran<()> {
        let tos = match packet.ip.tos {
            Some(Tos::Ecn(bits)) => bits,
            Some(Tos::Whole(tos)) => tos,
            Some(Tos::Ect01) | None => 0,
        };
        let ttl = packet.ip.ttl.unwrap_or(TTL);
        let frame = match &packet.body {
            Body::Tcp(spec) => {
                let index = self.connection_of(spec)?;
                let ip = Ip { flow_label: packet.ip.flow_label.unwrap_or(0), ..self.inbound_ip(index, tos, ttl) };
                let whole = self.segment(index, spec);
                let size =
                    self.settings.segment.map(NonZeroU16::get).filter(|size| whole.data.len() > usize::from(*size));
                let segments = match size {
                    Some(size) if self.settings.unmerged => cut(whole, size),
                    _ => vec![whole],
                };
                // A packet merged by a device carries the segment size.
                let merged = size.filter(|_| !self.settings.unmerged).unwrap_or(0);
                for segment in segments {
                    let frame = frame::tcp(self.host.macs, &ip, &segment).map_err(|error| self.error(error))?;
                    self.host.put_merged(&frame, merged).map_err(|error| self.error(error))?;
                }
                self.step();
                return Ok(());
            }
            Body::Udp { ports, len } => {
                let index = self.connection(ports.map(|(from, to)| (to, from)), false)?;
                let connection = &self.connections[index];
                let ports = ports.unwrap_or((connection.remote.port(), connection.local.port()));
                let data: Vec<u8> = (0..u32::from(*len)).map(pattern).collect();
                frame::udp(self.host.macs, &self.inbound_ip(index, tos, ttl), ports, &data)
            }
            Body::Icmp(spec) => self.icmp(spec, tos, ttl)?,
        };
        let frame = frame.map_err(|error| self.error(error))?;
        self.host.put(&frame).map_err(|error| self.error(error))?;
        self.step();
        Ok(())
    }

    fn connection_of(&mut self, spec: &TcpSpec) -> Ran<usize> {
        let opens = spec.flags & (flag::SYN | flag::ACK | flag::RST) == flag::SYN;
        let index = self.connection(spec.ports.map(|(from, to)| (to, from)), opens)?;
        if spec.flags & flag::SYN != 0 {
            // Another SYN may begin another connection between the same ports: numbers stay relative to the first.
            self.connections[index].remote_isn.get_or_insert(spec.seq);
            if !self.is_synchronised(index) {
                self.connections[index].peer_syn = spec.seq;
            }
        }
        Ok(index)
    }

    /// A SYN in such a connection does not begin another one.
    fn is_synchronised(&mut self, index: usize) -> bool {
        let info = self.connections[index].fd.and_then(|fd| self.sockets.tcp_info(fd).ok());
        let state = info.and_then(|info| info.field("state"));
        // All but SYN-SENT, SYN-RECEIVED, TIME-WAIT, CLOSED and LISTEN.
        matches!(state, Some(1 | 4 | 5 | 8 | 9 | 11))
    }

    /// From the script's peer to the stack.
    pub(super) fn inbound_ip(&self, index: usize, tos: u8, ttl: u8) -> Ip {
        let connection = &self.connections[index];
        Ip { src: connection.remote.ip(), dst: connection.local.ip(), tos, ttl, flow_label: 0 }
    }

    /// The script's segment with live numbers.
    fn segment(&self, index: usize, spec: &TcpSpec) -> Tcp {
        let connection = &self.connections[index];
        let syn = spec.flags & flag::SYN != 0;
        let live = |seq| connection.to_live(seq, syn);
        let options = spec.options.clone().unwrap_or_default().into_iter().map(|option| match option {
            // SACK blocks are in the stack's sequence space.
            TcpOption::Sack(blocks) => {
                TcpOption::Sack(blocks.into_iter().map(|(left, right)| (live(left), live(right))).collect())
            }
            TcpOption::Timestamps { val, ecr } => {
                TcpOption::Timestamps { val, ecr: connection.timestamps.get(&ecr).copied().unwrap_or(ecr) }
            }
            other => other,
        });
        let seq = spec.seq.wrapping_add(connection.base(syn));
        // The first byte of data follows the SYN.
        let first = seq.wrapping_sub(connection.peer_syn).wrapping_sub(u32::from(!syn));
        Tcp {
            ports: spec.ports.unwrap_or((connection.remote.port(), connection.local.port())),
            flags: spec.flags,
            seq,
            ack: spec.ack.or((spec.flags & flag::ACK != 0).then_some(0)).map_or(0, live),
            window: spec.window.unwrap_or(0),
            urgent: spec.urgent.unwrap_or(0),
            options: options.collect(),
            data: (0..spec.len).map(|n| pattern(first.wrapping_add(n))).collect(),
        }
    }

    fn icmp(&mut self, spec: &IcmpSpec, tos: u8, ttl: u8) -> Ran<Result<Vec<u8>, String>> {
        let index = self.connection(None, false)?;
        let connection = &self.connections[index];
        // Without a quoted packet: the first segment of the connection.
        let quoted = spec.quoted.unwrap_or(Quoted::Tcp { seq: 0, len: 0 });
        let seq = match quoted {
            Quoted::Tcp { seq, .. } => connection.to_live(seq, false),
            Quoted::Udp(_) => 0,
        };
        let offender = Offender {
            ip: Ip { src: connection.local.ip(), dst: connection.remote.ip(), tos: 0, ttl: TTL, flow_label: 0 },
            ports: (connection.local.port(), connection.remote.port()),
            seq,
            quoted,
        };
        // The sender is a router; the peer's address serves as its address.
        Ok(frame::icmp(self.host.macs, &self.inbound_ip(index, tos, ttl), spec, &offender))
    }
}
