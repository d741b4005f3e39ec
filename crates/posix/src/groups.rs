//! Multicast of a datagram socket: the groups that it is in, and how its datagrams to groups leave, with the rules and
//! error numbers of ip(7) and ipv6(7).
//!
//! A setting before the socket is bound is checked at once and kept; the host joins the groups when the socket is
//! bound, before which it could not receive. Closing the socket leaves them.

use std::net::{IpAddr, Ipv4Addr};

use stack::socket::UdpShared;
use stack::{JoinRefused, Stack};
use sync::Platform;
use udp::{GroupEgress, MAX_MEMBERSHIPS};

use crate::Errno;
use crate::options::OptionValue;

/// The value of an option that joins or leaves a group: `struct ip_mreqn`, and `struct ipv6_mreq`, which has no address.
/// `struct ip_mreq` is one without a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRequest {
    /// The group. Unused in `IP_MULTICAST_IF`.
    pub group: IpAddr,
    /// An address of the interface; the unspecified one: not given. Not with IPv6.
    pub address: Ipv4Addr,
    /// The interface's number, counted from 1 in the order in which the stack was given them; 0: not given.
    pub index: u32,
}

/// A group that the socket is in.
struct KeptMembership {
    group: IpAddr,
    interface: usize,
    /// As it was requested: `IP_DROP_MEMBERSHIP` is compared with it.
    address: Ipv4Addr,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct GroupSettings {
    memberships: Vec<KeptMembership>,
    egress_v4: Option<GroupEgress>,
    egress_v6: Option<GroupEgress>,
}

impl GroupSettings {
    /// Applies the settings to a socket that was just bound.
    pub(crate) fn apply<P: Platform>(&self, stack: &Stack<P>, socket: &UdpShared<P>) -> Result<(), Errno> {
        self.apply_egress(stack, socket);
        self.memberships.iter().try_for_each(|one| join(stack, socket, one.group, one.interface))
    }

    fn apply_egress<P: Platform>(&self, stack: &Stack<P>, socket: &UdpShared<P>) {
        stack.set_group_egress(socket, false, self.egress_v4);
        stack.set_group_egress(socket, true, self.egress_v6);
    }

    /// `setsockopt`; whether it is one of these options.
    pub(crate) fn set<P: Platform>(
        &mut self,
        stack: &Stack<P>,
        socket: Option<&UdpShared<P>>,
        (level, name): (i32, i32),
        value: &OptionValue,
    ) -> Result<bool, Errno> {
        let request = || if let OptionValue::Group(request) = value { Ok(*request) } else { Err(Errno::EINVAL) };
        match (level, name) {
            (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP) => self.join(stack, socket, of_v4(request()?)?)?,
            (libc::IPPROTO_IP, libc::IP_DROP_MEMBERSHIP) => self.leave(stack, socket, of_v4(request()?)?)?,
            (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP) => self.join(stack, socket, of_v6(request()?)?)?,
            (libc::IPPROTO_IPV6, libc::IPV6_DROP_MEMBERSHIP) => self.leave(stack, socket, of_v6(request()?)?)?,
            (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) => self.egress_v4 = leaving_v4(stack, value)?,
            (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF) => self.egress_v6 = leaving_v6(stack, value)?,
            _ => return Ok(false),
        }
        if let Some(socket) = socket {
            self.apply_egress(stack, socket);
        }
        Ok(true)
    }

    /// `getsockopt`: the value of one of these options that has one.
    pub(crate) fn get(&self, level: i32, name: i32) -> Option<OptionValue> {
        match (level, name) {
            (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) => {
                let address = self.egress_v4.and_then(|egress| egress.source);
                Some(OptionValue::Address(address.unwrap_or(Ipv4Addr::UNSPECIFIED)))
            }
            (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF) => {
                Some(OptionValue::Int(self.egress_v6.map_or(0, |egress| i64::from(egress.interface) + 1)))
            }
            _ => None,
        }
    }

    fn join<P: Platform>(
        &mut self,
        stack: &Stack<P>,
        socket: Option<&UdpShared<P>>,
        request: GroupRequest,
    ) -> Result<(), Errno> {
        let GroupRequest { group, address, index } = request;
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        // Over IPv6 a group without a number is the one that the socket is in on any interface.
        let anywhere = group.is_ipv6() && index == 0;
        if anywhere && self.memberships.iter().any(|one| one.group == group) {
            return Err(Errno::EADDRINUSE);
        }
        let interface = interface(stack, request).ok_or(Errno::ENODEV)?;
        if self.memberships.iter().any(|one| (one.group, one.interface) == (group, interface)) {
            return Err(Errno::EADDRINUSE);
        }
        if self.memberships.len() >= MAX_MEMBERSHIPS {
            return Err(Errno::ENOBUFS);
        }
        if let Some(socket) = socket {
            join(stack, socket, group, interface)?;
        }
        self.memberships.push(KeptMembership { group, interface, address });
        Ok(())
    }

    fn leave<P: Platform>(
        &mut self,
        stack: &Stack<P>,
        socket: Option<&UdpShared<P>>,
        request: GroupRequest,
    ) -> Result<(), Errno> {
        let GroupRequest { group, address, index } = request;
        let on = if group.is_ipv6() {
            if !group.is_multicast() {
                return Err(Errno::EINVAL);
            }
            index.checked_sub(1).map(|index| index as usize)
        } else {
            let found = interface(stack, request);
            if found.is_none() && index == 0 && address.is_unspecified() {
                return Err(Errno::ENODEV);
            }
            found.or_else(|| index.checked_sub(1).map(|index| index as usize))
        };
        let meant = |one: &KeptMembership| match on {
            Some(interface) => one.interface == interface,
            None => group.is_ipv6() || one.address == address,
        };
        let place = self.memberships.iter().position(|one| one.group == group && meant(one));
        let one = self.memberships.remove(place.ok_or(Errno::EADDRNOTAVAIL)?);
        match socket {
            Some(socket) => stack.leave_group(socket, group, Some(one.interface)).map_err(refusal),
            None => Ok(()),
        }
    }
}

/// The request, if its group is of IPv4.
fn of_v4(request: GroupRequest) -> Result<GroupRequest, Errno> {
    if request.group.is_ipv4() { Ok(request) } else { Err(Errno::EINVAL) }
}

/// The request, if its group is of IPv6. Such a request has no address.
fn of_v6(request: GroupRequest) -> Result<GroupRequest, Errno> {
    let request = GroupRequest { address: Ipv4Addr::UNSPECIFIED, ..request };
    if request.group.is_ipv6() { Ok(request) } else { Err(Errno::EINVAL) }
}

fn join<P: Platform>(stack: &Stack<P>, socket: &UdpShared<P>, group: IpAddr, interface: usize) -> Result<(), Errno> {
    stack.join_group(socket, group, Some(interface)).map_err(refusal)
}

/// The interface that a request names: by its number, by one of its addresses, or by the route to the group.
fn interface<P: Platform>(stack: &Stack<P>, request: GroupRequest) -> Option<usize> {
    match request {
        GroupRequest { index: 0, address, group } if address.is_unspecified() => stack.group_interface(group),
        GroupRequest { index: 0, address, .. } => with_address(stack, address),
        GroupRequest { index, .. } => numbered(stack, index),
    }
}

fn with_address<P: Platform>(stack: &Stack<P>, address: Ipv4Addr) -> Option<usize> {
    stack.shared().links().interfaces().iter().position(|interface| interface.view.get().is_local(address.into()))
}

fn numbered<P: Platform>(stack: &Stack<P>, index: u32) -> Option<usize> {
    let place = index.checked_sub(1)? as usize;
    (place < stack.shared().links().interfaces().len()).then_some(place)
}

/// `IP_MULTICAST_IF`: "Set the local device for a multicast socket", by a number or an address; neither: as before any
/// was set (ip(7)).
fn leaving_v4<P: Platform>(stack: &Stack<P>, value: &OptionValue) -> Result<Option<GroupEgress>, Errno> {
    let (address, index) = match *value {
        OptionValue::Address(address) => (address, 0),
        OptionValue::Group(GroupRequest { address, index, .. }) => (address, index),
        _ => return Err(Errno::EINVAL),
    };
    let source = (!address.is_unspecified()).then_some(address);
    let interface = match (index, source) {
        (0, None) => return Ok(None),
        (0, Some(address)) => with_address(stack, address),
        (index, _) => numbered(stack, index),
    };
    Ok(Some(GroupEgress { interface: interface.ok_or(Errno::EADDRNOTAVAIL)? as u16, source }))
}

/// `IPV6_MULTICAST_IF`: "The argument is a pointer to an interface index" (ipv6(7)); 0: as before any was set.
fn leaving_v6<P: Platform>(stack: &Stack<P>, value: &OptionValue) -> Result<Option<GroupEgress>, Errno> {
    let OptionValue::Int(index) = *value else { return Err(Errno::EINVAL) };
    if index == 0 {
        return Ok(None);
    }
    let interface = u32::try_from(index).ok().and_then(|index| numbered(stack, index)).ok_or(Errno::ENODEV)?;
    Ok(Some(GroupEgress { interface: interface as u16, source: None }))
}

fn refusal(refused: JoinRefused) -> Errno {
    match refused {
        JoinRefused::Socket(udp::JoinError::Joined(_)) => Errno::EADDRINUSE,
        JoinRefused::Socket(udp::JoinError::TooMany) | JoinRefused::Interface(_) => Errno::ENOBUFS,
        JoinRefused::Socket(udp::JoinError::NotAGroup(_)) => Errno::EINVAL,
        JoinRefused::Socket(udp::JoinError::Closed) => Errno::EBADF,
        JoinRefused::NoInterface => Errno::ENODEV,
        JoinRefused::NotJoined(_) => Errno::EADDRNOTAVAIL,
    }
}
