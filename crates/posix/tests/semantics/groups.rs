//! Multicast of datagram sockets: joining and leaving groups, and the interface by which datagrams to groups leave.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use posix::Errno;

use crate::kernel_and_stacks;
use crate::system::System;
use crate::world::World;

kernel_and_stacks! {
    group_errors = joining_and_leaving_report_what_is_wrong;
    group_errors_v6 = joining_and_leaving_over_ipv6_report_what_is_wrong;
    group_delivery = a_group_is_received_between_joining_and_leaving;
    group_interface = datagrams_to_a_group_leave_by_the_interface_that_was_set;
    group_values_v6 = hop_limit_loop_and_interface_of_ipv6_groups_are_kept;
    group_streams = a_stream_socket_joins_no_group;
}

mod members {
    use every_arch::every_arch;
    use stack::Architecture;

    use crate::world::World;

    #[test]
    fn kernel() {
        World::with_two_links_of_the_kernel(super::a_datagram_to_a_group_reaches_its_members);
    }

    #[every_arch]
    fn two_links(arch: Architecture) {
        super::a_datagram_to_a_group_reaches_its_members(&World::two_links(arch));
    }
}

const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// An address of no interface (RFC 5737), and a number of none.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const NOWHERE: u32 = 9999;

fn v4(address: IpAddr) -> Ipv4Addr {
    let IpAddr::V4(address) = address else { panic!("the worlds of these tests are of IPv4") };
    address
}

/// A datagram socket bound to any address and a free port, and the port.
fn bound(system: &dyn System) -> (i32, u16) {
    let socket = system.socket(libc::SOCK_DGRAM).expect("socket");
    system.bind(socket, (ANY, 0).into()).expect("bind");
    (socket, system.local(socket).expect("getsockname").port())
}

/// The errors of Linux's `ip_mc_join_group` and `ip_mc_leave_group`; igmp_max_memberships is 20. An interface has the
/// number 1 in all worlds. A socket that is not bound joins, too.
fn joining_and_leaving_report_what_is_wrong(world: &World) {
    let (system, here) = (&*world.server, v4(world.ip));
    let group = IpAddr::from([239, 1, 2, 3]);
    for early in [true, false] {
        let socket = if early { system.socket(libc::SOCK_DGRAM).expect("socket") } else { bound(system).0 };
        assert_eq!(system.join(socket, group, here, 0), Ok(()));
        assert_eq!(system.join(socket, group, here, 0), Err(Errno::EADDRINUSE));
        assert_eq!(system.join(socket, group, ANY, 1), Err(Errno::EADDRINUSE), "the same interface by its number");
        assert_eq!(system.join(socket, world.ip, here, 0), Err(Errno::EINVAL), "not a group");
        assert_eq!(system.join(socket, [239, 1, 2, 4].into(), ELSEWHERE, 0), Err(Errno::ENODEV));
        assert_eq!(system.join(socket, [239, 1, 2, 4].into(), ANY, NOWHERE), Err(Errno::ENODEV));
        assert_eq!(system.leave(socket, group, ELSEWHERE, 0), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(system.leave(socket, group, ANY, NOWHERE), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(system.leave(socket, [239, 1, 2, 4].into(), here, 0), Err(Errno::EADDRNOTAVAIL), "not joined");
        assert_eq!(system.leave(socket, world.ip, here, 0), Err(Errno::EADDRNOTAVAIL), "no group at all");
        if early {
            system.bind(socket, (ANY, 0).into()).expect("bind");
        }
        assert_eq!(system.leave(socket, group, ANY, 1), Ok(()));
        assert_eq!(system.leave(socket, group, here, 0), Err(Errno::EADDRNOTAVAIL), "left already");
        for last in 1..=20 {
            assert_eq!(system.join(socket, [239, 9, 9, last].into(), here, 0), Ok(()), "{last}");
        }
        assert_eq!(system.join(socket, [239, 9, 9, 21].into(), here, 0), Err(Errno::ENOBUFS));
        assert_eq!(system.leave(socket, [239, 9, 9, 7].into(), here, 0), Ok(()));
        assert_eq!(system.join(socket, [239, 9, 9, 21].into(), here, 0), Ok(()));
        assert_eq!(system.close(socket), Ok(()));
    }
}

/// The errors of Linux's `ipv6_sock_mc_join` and `ipv6_sock_mc_drop`: number 0 stands for any interface.
fn joining_and_leaving_over_ipv6_report_what_is_wrong(world: &World) {
    let system = &*world.server;
    let (group, other) = (IpAddr::from([0xff15, 0, 0, 0, 0, 1, 2, 3]), IpAddr::from([0xff15, 0, 0, 0, 0, 1, 2, 4]));
    let socket = system.socket_v6(libc::SOCK_DGRAM).expect("socket");
    assert_eq!(system.join(socket, group, ANY, 1), Ok(()));
    for index in [0, 1] {
        assert_eq!(system.join(socket, group, ANY, index), Err(Errno::EADDRINUSE), "{index}");
    }
    assert_eq!(system.join(socket, Ipv6Addr::LOCALHOST.into(), ANY, 1), Err(Errno::EINVAL), "not a group");
    assert_eq!(system.join(socket, other, ANY, NOWHERE), Err(Errno::ENODEV));
    assert_eq!(system.leave(socket, other, ANY, 1), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(system.leave(socket, group, ANY, NOWHERE), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(system.leave(socket, Ipv6Addr::LOCALHOST.into(), ANY, 1), Err(Errno::EINVAL), "not a group");
    assert_eq!(system.leave(socket, group, ANY, 0), Ok(()));
    assert_eq!(system.leave(socket, group, ANY, 1), Err(Errno::EADDRNOTAVAIL));
    // The options of a family are not those of the other's sockets.
    let older = system.socket(libc::SOCK_DGRAM).expect("socket");
    assert_eq!(system.join(older, group, ANY, 1), Err(Errno::ENOPROTOOPT));
}

/// ip(7), IP_ADD_MEMBERSHIP: "Join a multicast group"; IP_DROP_MEMBERSHIP: "Leave a multicast group". The datagram sent
/// after leaving is followed by one to the host, which is received next.
fn a_group_is_received_between_joining_and_leaving(world: &World) {
    let (group, here) = (IpAddr::from([239, 2, 2, 2]), v4(world.ip));
    let ((member, port), (sender, _)) = (bound(&*world.server), bound(&*world.client));
    assert_eq!(world.client.set_group_interface(sender, v4(world.from), 0), Ok(()));
    let send = |data: &[u8], to: IpAddr| world.client.sendto(sender, data, (to, port).into()).expect("sendto");
    let next = || world.server.recv(member, 9, 0).map(|(_, data)| data);
    assert_eq!(world.server.join(member, group, here, 0), Ok(()));
    send(b"joined", group);
    assert_eq!(next(), Ok(b"joined".to_vec()));
    assert_eq!(world.server.leave(member, group, here, 0), Ok(()));
    send(b"left", group);
    send(b"host", world.ip);
    assert_eq!(next(), Ok(b"host".to_vec()));
    assert_eq!(world.server.join(member, group, ANY, 1), Ok(()));
    send(b"again", group);
    assert_eq!(next(), Ok(b"again".to_vec()));
}

/// ip(7), IP_MULTICAST_IF: "Set the local device for a multicast socket." By the loopback interface a datagram reaches
/// members on the same host.
fn datagrams_to_a_group_leave_by_the_interface_that_was_set(world: &World) {
    let (system, group) = (&*world.client, IpAddr::from([239, 3, 3, 3]));
    let ((member, port), (sender, _)) = (bound(system), bound(system));
    assert_eq!(system.group_interface(sender), Ok(ANY));
    assert_eq!(system.set_group_interface(sender, ELSEWHERE, 0), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(system.set_group_interface(sender, ANY, NOWHERE), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(system.group_interface(sender), Ok(ANY), "a refused value changes nothing");
    assert_eq!(system.join(member, group, Ipv4Addr::LOCALHOST, 0), Ok(()));
    assert_eq!(system.set_group_interface(sender, Ipv4Addr::LOCALHOST, 0), Ok(()));
    assert_eq!(system.group_interface(sender), Ok(Ipv4Addr::LOCALHOST));
    system.sendto(sender, b"by address", (group, port).into()).expect("sendto");
    assert_eq!(system.recv(member, 99, 0).map(|(_, data)| data), Ok(b"by address".to_vec()));
    assert_eq!(system.set_group_interface(sender, ANY, world.loopback), Ok(()));
    assert_eq!(system.group_interface(sender), Ok(ANY));
    system.sendto(sender, b"by number", (group, port).into()).expect("sendto");
    assert_eq!(system.recv(member, 99, 0).map(|(_, data)| data), Ok(b"by number".to_vec()));
    assert_eq!(system.set_group_interface(sender, ANY, 0), Ok(()));
    // Set before the bind, kept by it.
    let early = system.socket(libc::SOCK_DGRAM).expect("socket");
    assert_eq!(system.set_group_interface(early, Ipv4Addr::LOCALHOST, 0), Ok(()));
    system.sendto(early, b"early", (group, port).into()).expect("sendto");
    assert_eq!(system.recv(member, 99, 0).map(|(_, data)| data), Ok(b"early".to_vec()));
}

/// ipv6(7): IPV6_MULTICAST_HOPS "-1 in the value means use the route default, otherwise it should be between 0 and 255",
/// IPV6_MULTICAST_LOOP "whether the socket sees multicast packets that it has send itself", IPV6_MULTICAST_IF. The
/// kernel has no route for groups on its loopback interface: there nothing is sent.
fn hop_limit_loop_and_interface_of_ipv6_groups_are_kept(world: &World) {
    let (system, index) = (&*world.server, world.loopback);
    let sender = system.socket_v6(libc::SOCK_DGRAM).expect("socket");
    assert_eq!(system.group_options_v6(sender), Ok((1, true, 0)));
    assert_eq!(system.set_group_interface_v6(sender, NOWHERE), Err(Errno::ENODEV));
    assert_eq!(system.set_group_hops(sender, 256), Err(Errno::EINVAL));
    assert_eq!((system.set_group_hops(sender, 9), system.set_group_loop_v6(sender, false)), (Ok(()), Ok(())));
    assert_eq!(system.set_group_interface_v6(sender, index), Ok(()));
    assert_eq!(system.group_options_v6(sender), Ok((9, false, index)));
    assert_eq!(system.set_group_interface_v6(sender, 0), Ok(()));
    assert_eq!(system.group_options_v6(sender), Ok((9, false, 0)));
    let older = system.socket(libc::SOCK_DGRAM).expect("socket");
    assert_eq!(system.set_group_interface_v6(older, index), Err(Errno::ENOPROTOOPT));
    if world.is_kernel {
        return;
    }
    let group = IpAddr::from([0xff15, 0, 0, 0, 0, 3, 3, 3]);
    let member = system.socket_v6(libc::SOCK_DGRAM).expect("socket");
    system.bind(member, (Ipv6Addr::UNSPECIFIED, 0).into()).expect("bind");
    let port = system.local(member).expect("getsockname").port();
    assert_eq!(system.join(member, group, ANY, index), Ok(()));
    assert_eq!(system.set_group_interface_v6(sender, index), Ok(()));
    system.sendto(sender, b"joined", (group, port).into()).expect("sendto");
    assert_eq!(system.recv(member, 9, 0).map(|(_, data)| data), Ok(b"joined".to_vec()));
    assert_eq!(system.leave(member, group, ANY, 0), Ok(()));
    system.sendto(sender, b"left", (group, port).into()).expect("sendto");
    system.sendto(sender, b"host", (Ipv6Addr::LOCALHOST, port).into()).expect("sendto");
    assert_eq!(system.recv(member, 9, 0).map(|(_, data)| data), Ok(b"host".to_vec()));
}

/// Linux's `do_ip_setsockopt` and `do_ipv6_setsockopt`: EPROTO for a membership of a connection-oriented socket; EINVAL
/// and ENOPROTOOPT for how its datagrams would leave.
fn a_stream_socket_joins_no_group(world: &World) {
    let system = &*world.server;
    let socket = system.socket(libc::SOCK_STREAM).expect("socket");
    let group = IpAddr::from([239, 1, 2, 3]);
    assert_eq!(system.join(socket, group, v4(world.ip), 0), Err(Errno::EPROTO));
    assert_eq!(system.leave(socket, group, v4(world.ip), 0), Err(Errno::EPROTO));
    assert_eq!(system.set_group_ttl(socket, 2), Err(Errno::EINVAL));
    assert_eq!(system.set_group_interface(socket, v4(world.ip), 0), Err(Errno::EINVAL));
    let socket = system.socket_v6(libc::SOCK_STREAM).expect("socket");
    let group = IpAddr::from([0xff15, 0, 0, 0, 0, 1, 2, 3]);
    assert_eq!(system.join(socket, group, ANY, 1), Err(Errno::EPROTO));
    assert_eq!(system.set_group_hops(socket, 2), Err(Errno::ENOPROTOOPT));
    assert_eq!(system.set_group_interface_v6(socket, 1), Err(Errno::ENOPROTOOPT));
}

/// A host with two links, as the sockets of one family see it.
struct Links<'a> {
    world: &'a World,
    v6: bool,
    group: IpAddr,
    /// Of the first link.
    host: IpAddr,
    sender: i32,
}

/// A socket that may receive, and one of the same port that receives what is sent to the host.
#[derive(Clone, Copy)]
struct Candidate {
    socket: i32,
    port: u16,
    of_host: i32,
}

impl Links<'_> {
    fn candidate(&self, ip: IpAddr, all: bool) -> Candidate {
        let system = &*self.world.server;
        let socket = self.socket();
        assert_eq!(system.all_groups(socket, self.v6), Ok(true), "the default");
        assert_eq!(system.set_all_groups(socket, self.v6, all), Ok(()));
        assert_eq!(system.all_groups(socket, self.v6), Ok(all));
        let bind = |socket, ip, port| {
            system.bind(socket, (ip, port).into()).expect("bind");
            system.local(socket).expect("getsockname").port()
        };
        if !ip.is_multicast() {
            return Candidate { socket, port: bind(socket, ip, 0), of_host: socket };
        }
        // The host's address first: a port that is free for the group can be one that the host's address has already.
        let of_host = self.socket();
        let port = bind(of_host, self.host, 0);
        bind(socket, ip, port);
        Candidate { socket, port, of_host }
    }

    fn socket(&self) -> i32 {
        let system = &*self.world.server;
        let made = if self.v6 { system.socket_v6(libc::SOCK_DGRAM) } else { system.socket(libc::SOCK_DGRAM) };
        made.expect("socket")
    }

    fn join(&self, candidate: Candidate, link: usize) {
        assert_eq!(self.world.server.join(candidate.socket, self.group, ANY, self.world.links[link]), Ok(()));
    }

    fn leave(&self, candidate: Candidate, link: usize) {
        assert_eq!(self.world.server.leave(candidate.socket, self.group, ANY, self.world.links[link]), Ok(()));
    }

    /// Sent datagrams to the group leave by this link, and come back if `loops`.
    fn set_sender(&self, link: usize, loops: bool) {
        let (system, index) = (&*self.world.server, self.world.links[link]);
        if self.v6 {
            assert_eq!(system.set_group_interface_v6(self.sender, index), Ok(()));
            assert_eq!(system.set_group_loop_v6(self.sender, loops), Ok(()));
        } else {
            assert_eq!(system.set_group_interface(self.sender, ANY, index), Ok(()));
            assert_eq!(system.set_group_loop(self.sender, loops), Ok(()));
        }
    }

    /// Whether a datagram to the group and the socket's port reaches it. One to the host and this port, which certainly
    /// arrives, follows it.
    fn reaches(&self, candidate: Candidate) -> bool {
        let (system, Candidate { socket, port, of_host }) = (&*self.world.server, candidate);
        let send = |data: &[u8], to: IpAddr| system.sendto(self.sender, data, (to, port).into()).expect("sendto");
        let next = || system.recv(of_host, 9, 0).map(|(_, data)| data).expect("recv");
        send(b"group", self.group);
        send(b"host", self.host);
        if socket != of_host {
            assert_eq!(next(), b"host");
            return system.recv(socket, 9, libc::MSG_DONTWAIT).map(|(_, data)| data) == Ok(b"group".to_vec());
        }
        let reached = next() == b"group";
        assert!(!reached || next() == b"host");
        reached
    }
}

/// ip(7), IP_MULTICAST_ALL: "The argument is a boolean integer (defaults to 1). If set to 1, the socket will receive
/// messages from all the groups that have been joined globally on the whole system. Otherwise, it will deliver messages
/// only from the groups that have been explicitly joined". Linux's IPV6_MULTICAST_ALL is the same of IPv6; its
/// `inet6_mc_check` does not ask on which interface the socket has joined.
fn a_datagram_to_a_group_reaches_its_members(world: &World) {
    for v6 in [false, true] {
        let (any, group, host): (IpAddr, IpAddr, IpAddr) = if v6 {
            let group = [0xff15, 0, 0, 0, 0, 0, 7, 7];
            (Ipv6Addr::UNSPECIFIED.into(), group.into(), [0xfd00, 0, 0, 1, 0, 0, 0, 1].into())
        } else {
            (ANY.into(), [239, 7, 7, 7].into(), [10, 0, 1, 1].into())
        };
        let mut links = Links { world, v6, group, host, sender: 0 };
        links.sender = links.socket();
        links.set_sender(0, true);
        let (member, stranger) = (links.candidate(any, true), links.candidate(any, true));
        let (strict, strict_member) = (links.candidate(any, false), links.candidate(any, false));
        let (elsewhere, at_host) = (links.candidate(any, true), links.candidate(host, true));
        let (at_group, strict_at_group) = (links.candidate(group, true), links.candidate(group, false));

        let candidates = [member, stranger, strict, strict_member, elsewhere, at_host, at_group, strict_at_group];
        let reached = || candidates.map(|candidate| links.reaches(candidate));
        assert_eq!(reached(), [false; 8], "nobody has joined, v6: {v6}");
        links.join(member, 0);
        let open = [true, true, false, false, true, false, true, false];
        assert_eq!(reached(), open, "one has joined, v6: {v6}");
        links.join(strict_member, 0);
        links.join(elsewhere, 1);
        links.join(at_host, 0);
        links.join(strict_at_group, 0);
        let joined = [true, true, false, true, true, false, true, true];
        assert_eq!(reached(), joined, "others have joined, v6: {v6}");
        links.set_sender(0, false);
        assert_eq!(reached(), [false; 8], "nothing comes back, v6: {v6}");

        // By the other link, on which one socket has joined.
        links.set_sender(1, true);
        assert_eq!([elsewhere, stranger, strict].map(|one| links.reaches(one)), [true, true, false], "v6: {v6}");
        links.leave(elsewhere, 1);
        assert_eq!([elsewhere, stranger, strict].map(|one| links.reaches(one)), [false; 3], "v6: {v6}");
        links.set_sender(0, true);
        for one in [member, strict_member, at_host, strict_at_group] {
            links.leave(one, 0);
        }
        assert_eq!(reached(), [false; 8], "all have left, v6: {v6}");
    }
}
