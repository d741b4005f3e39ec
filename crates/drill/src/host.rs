//! The machine under test: one stack without threads of its own, its clock, and the other end of its link, which
//! answers all ARP requests and neighbour solicitations and records every frame with its time.
//!
//! The thread that owns the [`Host`] advances it; different threads may do so, one at a time.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ::stack::{Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, StackError, VirtualClock};
use observe::Time;
use pktbuf::PktBuf;
use sync::Real;
use wire::ethernet::{self, EtherType, MacAddr};
use wire::{arp, icmpv6, ipv6, protocol};

use crate::link::{ScriptEnd, link};

/// Start of virtual time: late enough that no limit per second reaches back before zero.
pub const START: Time = Time::from_nanos(1_000_000_000_000);
/// Link addresses of the stack and of its neighbour: locally administered.
const MACS: (MacAddr, MacAddr) = (MacAddr([2, 0x68, 0x65, 0x64, 0, 0xa]), MacAddr([2, 0x68, 0x65, 0x64, 0, 0xb]));

/// The addresses of both ends.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The stack's.
    pub local: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
    /// The router to all other hosts.
    pub gateway: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
}

impl Addresses {
    /// The addresses assumed by scripts over IPv4.
    pub const V4: Addresses = Addresses {
        local: IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
        prefix: 16,
        gateway: IpAddr::V4(Ipv4Addr::new(192, 168, 0, 2)),
        remote: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    };
    /// The addresses for scripts of both families when run over IPv6.
    pub const V6: Addresses = Addresses {
        local: IpAddr::V6(Ipv6Addr::new(0xfd3d, 0xa0b, 0x17d6, 0, 0, 0, 0, 1)),
        prefix: 48,
        gateway: IpAddr::V6(Ipv6Addr::new(0xfd3d, 0xa0b, 0x17d6, 0x8888, 0, 0, 0, 1)),
        remote: IpAddr::V6(Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1)),
    };
    /// The addresses assumed by scripts that declare IPv6.
    pub const V6_OF_SCRIPTS: Addresses =
        Addresses { remote: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), ..Addresses::V6 };
}

impl Addresses {
    /// The same with another address of the stack; the router's is changed if it is the same.
    pub fn at(self, local: IpAddr) -> Addresses {
        let gateway = match (self.gateway == local, local) {
            (false, _) => self.gateway,
            (true, IpAddr::V4(_)) => Ipv4Addr::new(192, 168, 255, 254).into(),
            (true, IpAddr::V6(_)) => Ipv6Addr::new(0xfd3d, 0xa0b, 0x17d6, 0x8888, 0, 0, 0, 2).into(),
        };
        Addresses { local, gateway, ..self }
    }
}

/// Configuration of a host.
pub struct HostConfig {
    /// The process architecture.
    pub arch: Architecture,
    /// TCP's parameters.
    pub tcp: tcp::Config,
    /// The addresses of both ends.
    pub addresses: Addresses,
    /// The link's MTU in bytes, 68 to 65535.
    pub mtu: usize,
    /// The link takes super-segments and delivers them uncut, with unfinished checksums.
    pub super_segments: bool,
}

/// A frame and the time at which it crossed the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Since the script began.
    pub at: Duration,
    /// From the stack.
    pub outbound: bool,
    /// It was caused by the clock, not by a packet or a call.
    pub by_timer: bool,
    /// From the link header on.
    pub frame: Vec<u8>,
}

/// The machine.
pub struct Host {
    /// The stack on it.
    pub stack: Stack<Real>,
    driver: Driver<Real>,
    clock: Arc<VirtualClock<Real>>,
    far: ScriptEnd,
    /// Frames sent by the stack and not taken yet, without ARP and neighbour discovery.
    pub sent: VecDeque<(Time, Vec<u8>)>,
    /// Every frame that crossed the link since the list was last taken.
    pub trace: Vec<Crossing>,
    /// The link drops the frames of the stack.
    pub drop_output: bool,
    pub(crate) macs: (MacAddr, MacAddr),
    local: IpAddr,
    /// The clock has moved, and the stack has not run since.
    clock_moved: bool,
    /// The stack runs because the clock has moved.
    by_timer: bool,
}

impl Host {
    /// A machine at [`START`].
    ///
    /// # Errors
    /// The stack cannot be built with this configuration.
    pub fn new(terms: HostConfig) -> Result<Host, StackError> {
        let (near, far) = link(terms.mtu, MACS.0, terms.super_segments);
        let clock = VirtualClock::new(START);
        let mut config = StackConfig::new(terms.arch);
        config.cpus = 2;
        config.own_threads = false;
        config.tcp = terms.tcp;
        config.clock = Clock::Virtual(clock.clone());
        config.seed = Some(1);
        let Addresses { local, prefix, gateway, .. } = terms.addresses;
        let interface = InterfaceConfig {
            device: Box::new(near),
            addresses: vec![(local, prefix)],
            gateways: vec![gateway],
            addressing: Default::default(),
        };
        let (stack, mut drivers) = Stack::build(config, vec![interface])?;
        let driver = drivers.pop().ok_or_else(|| StackError::NoQueues("drill".into()))?;
        let (sent, trace) = (VecDeque::new(), Vec::new());
        let (drop_output, clock_moved, by_timer) = (false, false, false);
        Ok(Host { stack, driver, clock, far, sent, trace, drop_output, macs: MACS, local, clock_moved, by_timer })
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Moves the clock; a time in the past has no effect.
    pub fn set_time(&mut self, time: Time) {
        self.clock_moved |= time > self.clock.now();
        self.clock.advance_to(time);
    }

    /// When the stack must next run.
    pub fn next_deadline(&self) -> Time {
        self.driver.next_deadline()
    }

    /// Sends a frame to the stack.
    ///
    /// # Errors
    /// A sentence: the frame is longer than a packet can be.
    pub fn put(&mut self, frame: &[u8]) -> Result<(), String> {
        self.put_merged(frame, 0)
    }

    /// As [`Host::put`], for a frame that the device has merged from segments of `size` bytes of data; 0: not merged.
    ///
    /// # Errors
    /// As [`Host::put`].
    pub fn put_merged(&mut self, frame: &[u8], size: u16) -> Result<(), String> {
        let mut buffer = PktBuf::from_slice(frame).ok_or("the packet is too large for a packet buffer")?;
        buffer.meta_mut().segment_size = size;
        self.far.put(buffer);
        self.record(false, frame.to_vec());
        Ok(())
    }

    /// Sends an IP packet to the stack, in a frame from its neighbour.
    ///
    /// # Errors
    /// A sentence: the packet is of neither version of IP, or longer than a packet can be.
    pub fn put_packet(&mut self, packet: &[u8]) -> Result<(), String> {
        let ethertype = match packet.first().map(|byte| byte >> 4) {
            Some(4) => EtherType::Ipv4,
            Some(6) => EtherType::Ipv6,
            _ => return Err("the packet is of neither version of IP".into()),
        };
        let mut frame = link_header(self.macs.0, self.macs.1, ethertype);
        frame.extend_from_slice(packet);
        self.put(&frame)
    }

    /// Takes the oldest IP packet sent by the stack and not taken yet, with its time.
    pub fn take_packet(&mut self) -> Option<(Time, Vec<u8>)> {
        let (at, mut frame) = self.sent.pop_front()?;
        frame.drain(..ethernet::HEADER_LEN.min(frame.len()));
        Some((at, frame))
    }

    /// Runs everything that is due at this moment. Whether anything did.
    pub fn settle(&mut self) -> bool {
        self.by_timer = std::mem::take(&mut self.clock_moved);
        let mut busy = false;
        loop {
            let taken = self.driver.poll();
            let collected = self.collect();
            if taken == 0 && !collected && self.stack.is_quiescent() {
                self.by_timer = false;
                return busy;
            }
            busy = true;
        }
    }

    fn record(&mut self, outbound: bool, frame: Vec<u8>) {
        let at = self.clock.now() - START;
        self.trace.push(Crossing { at, outbound, by_timer: self.by_timer, frame });
    }

    /// Takes the stack's frames; answers for its neighbours.
    fn collect(&mut self) -> bool {
        let mut any = false;
        while let Some(buffer) = self.far.take() {
            any = true;
            let frame = buffer.to_vec();
            self.record(true, frame.clone());
            if self.drop_output {
                continue;
            }
            match self.neighbour(&frame) {
                Neighbour::Answer(reply) => {
                    // Without a packet buffer the answer is lost; the stack solicits again.
                    let _ = self.put(&reply);
                }
                Neighbour::Silent => {}
                Neighbour::None => self.sent.push_back((self.clock.now(), frame)),
            }
        }
        any
    }

    fn neighbour(&self, frame: &[u8]) -> Neighbour {
        let Ok((header, start)) = ethernet::parse(frame) else { return Neighbour::Silent };
        let (ours, theirs) = (self.macs.1, self.macs.0);
        match header.ethertype {
            EtherType::Arp => {
                let Ok(request) = arp::parse(&frame[start..]) else { return Neighbour::Silent };
                let probe = request.spa.is_unspecified() || IpAddr::V4(request.tpa) == self.local;
                if request.op != arp::Operation::Request || probe {
                    return Neighbour::Silent;
                }
                let reply = arp::Packet {
                    op: arp::Operation::Reply,
                    sha: ours,
                    spa: request.tpa,
                    tha: theirs,
                    tpa: request.spa,
                };
                let mut out = link_header(theirs, ours, EtherType::Arp);
                let mut body = [0; arp::PACKET_LEN];
                reply.emit(&mut body);
                out.extend_from_slice(&body);
                Neighbour::Answer(out)
            }
            EtherType::Ipv6 => self.discovery(&frame[start..]),
            _ => Neighbour::None,
        }
    }

    fn discovery(&self, packet: &[u8]) -> Neighbour {
        let Ok(header) = ipv6::parse(packet) else { return Neighbour::Silent };
        if header.next_header != protocol::ICMPV6 {
            return Neighbour::None;
        }
        let Some(body) = packet.get(ipv6::HEADER_LEN..) else { return Neighbour::Silent };
        let Ok(message) = icmpv6::parse(body, header.src, header.dst) else { return Neighbour::Silent };
        match message {
            icmpv6::Message::NeighbourSolicit { target, .. }
                if header.src.is_unspecified() || IpAddr::V6(target) == self.local =>
            {
                Neighbour::Silent
            }
            icmpv6::Message::NeighbourSolicit { target, .. } => {
                let advert = icmpv6::Message::NeighbourAdvert {
                    target,
                    router: true,
                    solicited: true,
                    override_flag: true,
                    target_mac: Some(self.macs.1),
                };
                let mut body = vec![0; advert.header_len()];
                advert.emit(target, header.src, &mut body);
                let mut out = link_header(self.macs.0, self.macs.1, EtherType::Ipv6);
                let mut ip = [0; ipv6::HEADER_LEN];
                let reply = ipv6::Header {
                    src: target,
                    dst: header.src,
                    next_header: protocol::ICMPV6,
                    hop_limit: 255,
                    payload_len: body.len() as u16,
                    ..header
                };
                reply.emit(&mut ip);
                out.extend_from_slice(&ip);
                out.extend_from_slice(&body);
                Neighbour::Answer(out)
            }
            icmpv6::Message::NeighbourAdvert { .. } | icmpv6::Message::RouterSolicit { .. } => Neighbour::Silent,
            // Multicast listener reports and the like are not part of a script.
            _ if header.dst.is_multicast() => Neighbour::Silent,
            _ => Neighbour::None,
        }
    }
}

enum Neighbour {
    Answer(Vec<u8>),
    /// Nothing to do with a script.
    Silent,
    /// Not a neighbour message.
    None,
}

/// A link header.
pub(crate) fn link_header(to: MacAddr, from: MacAddr, ethertype: EtherType) -> Vec<u8> {
    let mut out = [0; ethernet::HEADER_LEN];
    ethernet::Header { dst: to, src: from, ethertype }.emit(&mut out);
    out.to_vec()
}
