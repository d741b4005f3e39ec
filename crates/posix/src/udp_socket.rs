//! A datagram socket, bound when it is first used.

use std::net::SocketAddr;
use std::sync::Arc;

use pktbuf::PktBuf;
use stack::Stack;
use stack::socket::{Readiness, UdpShared};
use sync::{Lock, LockClass, LockKind, Platform};
use udp::{OthersGroups, ReceivedDatagram};

use crate::groups::GroupSettings;
use crate::messages::ReceivedMessage;
use crate::options::{OptionValue, domain, is_known};
use crate::receive::Put;
use crate::transfer::Transfer;
use crate::wait_queue::{WaitQueue, bits};
use crate::{Errno, as_seen, on_wire, unspecified};

/// The largest payload that UDP's length field allows, in bytes.
const MOST_PAYLOAD: usize = 65_527;

/// A UDP socket. Any thread.
pub(crate) struct UdpDescription<P: Platform> {
    state: Lock<UdpSocketState<P>, P>,
    waiters: Arc<WaitQueue<P>>,
    v6: bool,
}

struct UdpSocketState<P: Platform> {
    socket: Option<Arc<UdpShared<P>>>,
    /// A datagram that was peeked (`MSG_PEEK`): the next receive returns it again.
    peeked: Option<ReceivedDatagram>,
    settings: DatagramSettings,
    groups: GroupSettings,
}

/// The values that `setsockopt` has set, also before the socket is bound.
struct DatagramSettings {
    /// Time to live, or hop limit.
    hop_limit: u8,
    /// The same of datagrams to groups.
    group_hop_limit: u8,
    /// Datagrams to groups of IPv4 come back to members on this host.
    loop_v4: bool,
    /// The same for IPv6.
    loop_v6: bool,
    /// Datagrams to groups of IPv4 that any socket has joined are received.
    all_v4: bool,
    /// The same for IPv6.
    all_v6: bool,
}

impl DatagramSettings {
    fn apply<P: Platform>(&self, stack: &Stack<P>, socket: &UdpShared<P>) {
        stack.set_udp_ttl(socket, self.hop_limit);
        stack.set_group_ttl(socket, self.group_hop_limit);
        stack.set_group_loop(socket, false, self.loop_v4);
        stack.set_group_loop(socket, true, self.loop_v6);
        let others = |all| if all { OthersGroups::All } else { OthersGroups::None };
        stack.set_others_groups(socket, false, others(self.all_v4));
        stack.set_others_groups(socket, true, others(self.all_v6));
    }

    /// Stores a value; whether it is one of these options.
    fn set(&mut self, level: i32, name: i32, value: &OptionValue) -> Result<bool, Errno> {
        // The least value that the option takes. Minus one: the default.
        let (field, default, least) = match (level, name) {
            // Linux takes 0 over IPv6; such a datagram would not leave the host.
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
                (&mut self.hop_limit, HOP_LIMIT, 1)
            }
            (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS) => {
                (&mut self.group_hop_limit, GROUP_HOP_LIMIT, 0)
            }
            (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP) => {
                let OptionValue::Int(value) = value else { return Err(Errno::EINVAL) };
                self.loop_v4 = *value != 0;
                return Ok(true);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP) => {
                let OptionValue::Int(value @ (0 | 1)) = value else { return Err(Errno::EINVAL) };
                self.loop_v6 = *value != 0;
                return Ok(true);
            }
            (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL) => {
                let OptionValue::Int(value @ (0 | 1)) = value else { return Err(Errno::EINVAL) };
                self.all_v4 = *value != 0;
                return Ok(true);
            }
            (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL) => {
                let OptionValue::Int(value) = value else { return Err(Errno::EINVAL) };
                self.all_v6 = *value != 0;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let OptionValue::Int(value) = value else { return Err(Errno::EINVAL) };
        let value = if *value == -1 { default.into() } else { *value };
        *field = u8::try_from(value).ok().filter(|value| *value >= least).ok_or(Errno::EINVAL)?;
        Ok(true)
    }

    /// The value of one of these options.
    fn get(&self, level: i32, name: i32) -> Option<i32> {
        Some(match (level, name) {
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => self.hop_limit.into(),
            (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS) => {
                self.group_hop_limit.into()
            }
            (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP) => self.loop_v4.into(),
            (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP) => self.loop_v6.into(),
            (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL) => self.all_v4.into(),
            (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL) => self.all_v6.into(),
            _ => return None,
        })
    }
}

/// Linux's number, which `libc` has not for each of its C libraries.
const IPV6_MULTICAST_ALL: i32 = 29;
/// Time to live and hop limit where nothing was set (RFC 1700).
const HOP_LIMIT: u8 = 64;
/// The same to groups: datagrams stay on the link (RFC 1112 section 6.1).
const GROUP_HOP_LIMIT: u8 = 1;

impl<P: Platform> UdpDescription<P> {
    /// `waiters` are notified of its events.
    pub(crate) fn new(v6: bool, waiters: Arc<WaitQueue<P>>) -> Self {
        let (hop_limit, group_hop_limit) = (HOP_LIMIT, GROUP_HOP_LIMIT);
        let settings =
            DatagramSettings { hop_limit, group_hop_limit, loop_v4: true, loop_v6: true, all_v4: true, all_v6: true };
        let state = UdpSocketState { socket: None, peeked: None, settings, groups: GroupSettings::default() };
        UdpDescription { state: Lock::new(LockKind::Blocking, LockClass::OpenFile, state), waiters, v6 }
    }

    pub(crate) fn addresses(&self, stack: &Stack<P>) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let socket = self.state.lock().socket.clone();
        (socket.as_ref().map(|socket| stack.udp_local(socket)), socket.and_then(|socket| stack.udp_remote(&socket)))
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.v6
    }

    pub(crate) fn bind(&self, stack: &Stack<P>, address: SocketAddr) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.socket.is_some() {
            return Err(Errno::EINVAL);
        }
        self.bind_to(&mut state, stack, on_wire(self.v6, address)?)?;
        Ok(())
    }

    fn bind_to(
        &self,
        state: &mut UdpSocketState<P>,
        stack: &Stack<P>,
        address: SocketAddr,
    ) -> Result<Arc<UdpShared<P>>, Errno> {
        let socket = stack.bind_udp(address)?;
        if let Err(error) = state.groups.apply(stack, &socket) {
            stack.unbind_udp(&socket);
            return Err(error);
        }
        socket.ready.watch(self.waiters.clone());
        state.settings.apply(stack, &socket);
        state.socket = Some(socket.clone());
        Ok(socket)
    }

    /// The socket, bound to any address and a free port if it was not bound before. It is of the family of `to` on the
    /// wire, or of its own.
    fn bound(&self, stack: &Stack<P>, to: Option<SocketAddr>) -> Result<Arc<UdpShared<P>>, Errno> {
        let mut state = self.state.lock();
        match &state.socket {
            Some(socket) => Ok(socket.clone()),
            None => {
                let v6 = to.map_or(self.v6, |to| to.is_ipv6());
                self.bind_to(&mut state, stack, SocketAddr::new(unspecified(v6), 0))
            }
        }
    }

    pub(crate) fn connect(&self, stack: &Stack<P>, to: Option<SocketAddr>) -> Result<(), Errno> {
        let to = on_wire(self.v6, to.ok_or(Errno::EAFNOSUPPORT)?)?;
        let socket = self.bound(stack, Some(to))?;
        stack.connect_udp(&socket, to).map_err(refusal)
    }

    /// "MSG_TRUNC: return the real length of the packet or datagram, even when it was longer than the passed buffer"
    /// (recv(2)); in `msg_flags` it "indicates that the trailing portion of a datagram was discarded because the
    /// datagram was larger than the buffer supplied".
    pub(crate) fn receive(
        &self,
        stack: &Stack<P>,
        max: usize,
        flags: i32,
        put: Put<'_>,
    ) -> Result<ReceivedMessage, Errno> {
        let socket = self.bound(stack, None)?;
        let mut state = self.state.lock();
        let datagram = match state.peeked.take() {
            Some(datagram) => datagram,
            None => stack.receive_udp(&socket).map_err(no_datagram)?,
        };
        let whole = datagram.buf.len();
        put(&datagram.buf[..whole.min(max)]);
        let received = ReceivedMessage {
            data: Vec::new(),
            count: if flags & libc::MSG_TRUNC != 0 { whole } else { whole.min(max) },
            peer: Some(as_seen(self.v6, datagram.source)),
            flags: if whole > max { libc::MSG_TRUNC } else { 0 },
            waiting: None,
        };
        if flags & libc::MSG_PEEK != 0 {
            state.peeked = Some(datagram);
        }
        Ok(received)
    }

    pub(crate) fn send(
        &self,
        stack: &Stack<P>,
        transfer: &mut Transfer,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        let to = to.map(|to| on_wire(self.v6, to)).transpose()?;
        let socket = self.bound(stack, to)?;
        let (data, range) = transfer.next(MOST_PAYLOAD + 1);
        if range.len() > MOST_PAYLOAD {
            return Err(Errno::EMSGSIZE);
        }
        let payload = PktBuf::from_slice(&data[range]).ok_or(Errno::EMSGSIZE)?;
        let sent = stack.send_udp(&socket, payload, to).map_err(refusal)?;
        transfer.advance(sent);
        Ok(sent)
    }

    /// No descriptor refers to it any more.
    pub(crate) fn close(&self, stack: &Stack<P>) {
        if let Some(socket) = self.state.lock().socket.take() {
            socket.ready.deregister();
            stack.unbind_udp(&socket);
        }
    }

    /// `setsockopt`. Options that exist for other sockets and have no meaning here are accepted without effect.
    pub(crate) fn set_option(&self, stack: &Stack<P>, level: i32, name: i32, value: &OptionValue) -> Result<(), Errno> {
        if level == libc::IPPROTO_IPV6 && !self.v6 {
            return Err(Errno::ENOPROTOOPT);
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.groups.set(stack, state.socket.as_deref(), (level, name), value)? {
            return Ok(());
        }
        if state.settings.set(level, name, value)? {
            if let Some(socket) = &state.socket {
                state.settings.apply(stack, socket);
            }
            return Ok(());
        }
        if is_known(level, name) { Ok(()) } else { Err(Errno::ENOPROTOOPT) }
    }

    /// `getsockopt`. "SO_ERROR: Get and clear the pending socket error" (socket(7)).
    pub(crate) fn option(&self, stack: &Stack<P>, level: i32, name: i32) -> Option<OptionValue> {
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let socket = self.state.lock().socket.clone();
                let error = socket.and_then(|socket| stack.take_udp_error(&socket));
                error.map_or(0, |error| refusal(error).0)
            }
            (libc::IPPROTO_IPV6, _) if !self.v6 => return None,
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_DGRAM,
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => domain(self.v6),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_UDP,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => 0,
            (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) | (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF) => {
                return self.state.lock().groups.get(level, name);
            }
            _ => self.state.lock().settings.get(level, name)?,
        };
        Some(OptionValue::Int(number.into()))
    }

    pub(crate) fn events(&self) -> u32 {
        let state = self.state.lock();
        let Some(socket) = &state.socket else { return bits::OUT };
        let ready = socket.ready.get();
        let mut events = bits::OUT;
        if ready.contains(Readiness::READABLE) || state.peeked.is_some() {
            events |= bits::IN;
        }
        if ready.contains(Readiness::ERROR) {
            events |= bits::ERR;
        }
        events
    }
}

fn no_datagram(error: udp::ReceiveError) -> Errno {
    match error {
        udp::ReceiveError::WouldBlock => Errno::EAGAIN,
        udp::ReceiveError::Refused => Errno::ECONNREFUSED,
        udp::ReceiveError::Unreachable => Errno::EHOSTUNREACH,
        _ => Errno::EBADF,
    }
}

fn refusal(error: udp::SendError) -> Errno {
    match error {
        udp::SendError::NoDestination => Errno::EDESTADDRREQ,
        udp::SendError::BadDestination | udp::SendError::LoopbackSource => Errno::EINVAL,
        udp::SendError::Refused => Errno::ECONNREFUSED,
        udp::SendError::Unreachable => Errno::EHOSTUNREACH,
        udp::SendError::NetworkDown => Errno::ENETDOWN,
        udp::SendError::PathTooNarrow { .. } => Errno::EMSGSIZE,
        udp::SendError::Closed => Errno::EBADF,
        _ => Errno::EMSGSIZE,
    }
}
