//! recv(2), tcp(7), socket(7), pipe(7): flags, ends and time-outs.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use posix::{Errno, PollFd};

use crate::kernel_and_stacks;
use crate::world::{NOW, World, until};

kernel_and_stacks! {
    peek = a_peek_leaves_what_it_shows;
    truncate = truncation_is_said_by_the_value;
    wait_all = waitall_blocks_until_the_whole_request_is_satisfied;
    dont_wait = dontwait_is_for_one_call;
    timeout = a_receive_times_out_as_if_it_did_not_block;
    end = the_end_of_a_stream_is_a_receive_of_nothing;
    shut = a_shutdown_wakes_a_thread_that_reads;
    broken = a_write_after_the_peer_has_gone_fails;
    datagrams = datagrams_keep_their_boundaries;
    datagram_error = the_error_of_a_datagram_is_pending_until_it_is_read;
    datagram_ttl = a_time_to_live_is_set_before_or_after_the_bind;
    datagram_groups = datagrams_to_a_group_come_back_as_the_sender_sets;
    pipes = pipes_block_end_and_break;
}

/// recv(2), MSG_PEEK: "causes the receive operation to return data from the beginning of the receive queue without
/// removing that data from the queue. Thus, a subsequent receive call will return the same data."
fn a_peek_leaves_what_it_shows(world: &World) {
    let (server, client) = world.connection();
    world.client.send(client, b"hello", 0).expect("send");
    assert_eq!(world.server.recv(server, 2, libc::MSG_PEEK), Ok((2, b"he".to_vec())));
    assert_eq!(world.server.recv(server, 5, libc::MSG_PEEK | libc::MSG_WAITALL), Ok((5, b"hello".to_vec())));
    assert_eq!(world.server.recv(server, 2, 0), Ok((2, b"he".to_vec())));
    assert_eq!(world.server.recv(server, 9, libc::MSG_PEEK), Ok((3, b"llo".to_vec())));
    assert_eq!(world.server.recv(server, 9, 0), Ok((3, b"llo".to_vec())));
}

/// tcp(7): "Since version 2.4, Linux supports the use of MSG_TRUNC in the flags argument of recv(2) (and recvmsg(2)).
/// This flag causes the received bytes of data to be discarded, rather than passed back in a caller-supplied buffer."
/// recv(2), of datagrams: "return the real length of the packet or datagram, even when it was longer than the passed
/// buffer."
fn truncation_is_said_by_the_value(world: &World) {
    let (server, client) = world.connection();
    world.client.send(client, b"hello", 0).expect("send");
    assert_eq!(world.server.recv(server, 3, libc::MSG_TRUNC | libc::MSG_WAITALL).expect("recv").0, 3);
    assert_eq!(world.server.recv(server, 9, 0), Ok((2, b"lo".to_vec())));
    let (here, there) = (world.server.socket(libc::SOCK_DGRAM), world.client.socket(libc::SOCK_DGRAM));
    let (here, there) = (here.expect("socket"), there.expect("socket"));
    world.server.bind(here, (world.ip, 0).into()).expect("bind");
    let address = world.server.local(here).expect("getsockname");
    world.client.sendto(there, b"datagram", address).expect("sendto");
    world.client.sendto(there, b"next", address).expect("sendto");
    assert_eq!(world.server.recv(here, 4, libc::MSG_TRUNC | libc::MSG_PEEK), Ok((8, b"data".to_vec())));
    assert_eq!(world.server.recv(here, 4, 0), Ok((4, b"data".to_vec())));
    assert_eq!(world.server.recv(here, 9, 0), Ok((4, b"next".to_vec())));
}

/// recv(2), MSG_WAITALL: "requests that the operation block until the full request is satisfied. However, the call may
/// still return less data than requested if [...] an error or disconnect occurs".
fn waitall_blocks_until_the_whole_request_is_satisfied(world: &World) {
    let (server, client) = world.connection();
    let reader = world.server.clone();
    let reads = thread::spawn(move || {
        let whole = reader.recv(server, 6, libc::MSG_WAITALL);
        (whole, reader.recv(server, 6, libc::MSG_WAITALL))
    });
    for part in [b"ab", b"cd", b"ef", b"gh"] {
        world.client.send(client, part, 0).expect("send");
    }
    world.client.shutdown(client, libc::SHUT_WR).expect("shutdown");
    let (whole, rest) = reads.join().expect("the thread");
    assert_eq!(whole, Ok((6, b"abcdef".to_vec())));
    assert_eq!(rest, Ok((2, b"gh".to_vec())));
}

/// recv(2), MSG_DONTWAIT: "if the operation would block, the call fails with the error EAGAIN or EWOULDBLOCK. This
/// provides similar behavior to setting the O_NONBLOCK flag [...], but differs in that MSG_DONTWAIT is a per-call
/// option".
fn dontwait_is_for_one_call(world: &World) {
    let (server, client) = world.connection();
    assert_eq!(world.server.recv(server, 1, libc::MSG_DONTWAIT), Err(Errno::EAGAIN));
    assert_eq!(world.server.is_nonblocking(server), Ok(false));
    world.client.send(client, b"x", 0).expect("send");
    assert_eq!(world.server.recv(server, 1, 0), Ok((1, b"x".to_vec())));
}

/// socket(7), SO_RCVTIMEO: "if no data has been transferred and the timeout has been reached, then -1 is returned with
/// errno set to EAGAIN or EWOULDBLOCK [...] just as if the socket was specified to be nonblocking"; "if an input or
/// output function blocks for this period of time, and data has been sent or received, the return value of that
/// function will be the amount of data transferred".
fn a_receive_times_out_as_if_it_did_not_block(world: &World) {
    let (server, client) = world.connection();
    world.server.set_receive_timeout(server, Duration::from_millis(1)).expect("SO_RCVTIMEO");
    assert_eq!(world.server.recv(server, 1, 0), Err(Errno::EAGAIN));
    world.client.send(client, b"abc", 0).expect("send");
    world.until(server, libc::POLLIN);
    assert_eq!(world.server.recv(server, 9, libc::MSG_WAITALL), Ok((3, b"abc".to_vec())));
    let (listener, _) = world.listener();
    world.server.set_receive_timeout(listener, Duration::from_millis(1)).expect("SO_RCVTIMEO");
    assert_eq!(world.server.accept(listener, 0), Err(Errno::EAGAIN));
}

/// recv(2): "When a stream socket peer has performed an orderly shutdown, the return value will be 0 (the traditional
/// \"end-of-file\" return)."
fn the_end_of_a_stream_is_a_receive_of_nothing(world: &World) {
    let (server, client) = world.connection();
    world.client.send(client, b"x", 0).expect("send");
    world.client.close(client).expect("close");
    assert_eq!(world.server.recv(server, 9, 0), Ok((1, b"x".to_vec())));
    assert_eq!(world.server.recv(server, 9, 0), Ok((0, Vec::new())));
    assert_eq!(world.server.recv(server, 9, 0), Ok((0, Vec::new())));
}

/// shutdown(2), SHUT_RD: "further receptions will be disallowed". On Linux a thread that blocks in recv returns 0.
fn a_shutdown_wakes_a_thread_that_reads(world: &World) {
    let (server, _client) = world.connection();
    let reader = world.server.clone();
    let reads = thread::spawn(move || reader.recv(server, 1, 0));
    world.server.shutdown(server, libc::SHUT_RD).expect("shutdown");
    assert_eq!(reads.join().expect("the thread"), Ok((0, Vec::new())));
}

/// send(2): "EPIPE The local end has been shut down on a connection oriented socket." A reset is reported once:
/// "ECONNRESET Connection reset by peer".
fn a_write_after_the_peer_has_gone_fails(world: &World) {
    let (server, client) = world.connection();
    world.server.send(server, b"never read", 0).expect("send");
    crate::world::until(&*world.client, client, libc::POLLIN);
    // With unread data a close sends a reset.
    world.client.close(client).expect("close");
    world.until(server, libc::POLLHUP);
    assert_eq!(world.server.recv(server, 1, 0), Err(Errno::ECONNRESET));
    assert_eq!(world.server.recv(server, 1, 0), Ok((0, Vec::new())));
    assert_eq!(world.server.send(server, b"x", 0), Err(Errno::EPIPE));
}

/// recv(2): "If a message is too long to fit in the supplied buffer, excess bytes may be discarded depending on the
/// type of socket the message is received from." connect(2), of datagrams: "sockfd is the address to which datagrams
/// are sent by default".
fn datagrams_keep_their_boundaries(world: &World) {
    let here = world.server.socket(libc::SOCK_DGRAM).expect("socket");
    world.server.bind(here, (world.ip, 0).into()).expect("bind");
    let there = world.client.socket(libc::SOCK_DGRAM).expect("socket");
    assert_eq!(world.client.send(there, b"x", 0), Err(Errno::EDESTADDRREQ));
    world.client.connect(there, world.server.local(here).expect("getsockname")).expect("connect");
    for data in [&b"one"[..], b"", b"three"] {
        assert_eq!(world.client.send(there, data, 0), Ok(data.len()));
    }
    assert_eq!(world.server.recv(here, 2, 0), Ok((2, b"on".to_vec())));
    assert_eq!(world.server.recv(here, 9, 0), Ok((0, Vec::new())));
    assert_eq!(world.server.recv(here, 9, 0), Ok((5, b"three".to_vec())));
    assert_eq!(world.server.recv(here, 9, libc::MSG_DONTWAIT), Err(Errno::EAGAIN));
}

/// pipe(7): "If all file descriptors referring to the write end of a pipe have been closed, then an attempt to read(2)
/// from the pipe will see end-of-file (read(2) will return 0)"; of the read end: "the write fails with the error
/// EPIPE"; "the pipe capacity is [...] 65,536 bytes".
fn pipes_block_end_and_break(world: &World) {
    let system = &*world.server;
    let (reader, writer) = system.pipe().expect("pipe");
    system.set_nonblocking(reader, true).expect("O_NONBLOCK");
    assert_eq!(system.read(reader, 1), Err(Errno::EAGAIN));
    let blocking = world.server.clone();
    let writes = thread::spawn(move || blocking.write(writer, &[7; 70_000]));
    let mut read = 0;
    while read < 70_000 {
        crate::world::until(system, reader, libc::POLLIN);
        read += system.read(reader, 70_000).expect("read").len();
    }
    assert_eq!(writes.join().expect("the thread"), Ok(70_000));
    system.close(writer).expect("close");
    assert_eq!(system.read(reader, 1), Ok(Vec::new()));
    let (reader, writer) = system.pipe().expect("pipe");
    system.close(reader).expect("close");
    assert_eq!(system.write(writer, b"x"), Err(Errno::EPIPE));
}

/// udp(7): "All fatal errors will be passed to the user as an error return"; "ECONNREFUSED: No receiver was associated
/// with the destination address." socket(7), SO_ERROR: "Get and clear the pending socket error."
fn the_error_of_a_datagram_is_pending_until_it_is_read(world: &World) {
    let gone = world.server.socket(libc::SOCK_DGRAM).expect("socket");
    world.server.bind(gone, (world.ip, 0).into()).expect("bind");
    let address = world.server.local(gone).expect("getsockname");
    world.server.close(gone).expect("close");
    let socket = world.client.socket(libc::SOCK_DGRAM).expect("socket");
    world.client.connect(socket, address).expect("connect");
    assert_eq!(world.client.error(socket), Ok(0));
    for by_option in [true, false] {
        assert_eq!(world.client.send(socket, b"anybody there?", 0), Ok(14));
        assert_ne!(until(&*world.client, socket, libc::POLLIN) & libc::POLLERR, 0);
        if by_option {
            assert_eq!(world.client.error(socket), Ok(libc::ECONNREFUSED));
        } else {
            assert_eq!(world.client.send(socket, b"again", 0), Err(Errno::ECONNREFUSED));
        }
        assert_eq!(world.client.error(socket), Ok(0), "it was cleared");
        let mut entry = [PollFd { fd: socket, events: libc::POLLIN, revents: 0 }];
        assert_eq!(world.client.poll(&mut entry, NOW), 0, "{:#x}", entry[0].revents);
    }
}

/// ip(7), IP_TTL: "Set or retrieve the current time-to-live field that is used in every packet sent from this socket."
/// "EINVAL Invalid argument passed": Linux takes 1 to 255.
fn a_time_to_live_is_set_before_or_after_the_bind(world: &World) {
    let socket = world.server.socket(libc::SOCK_DGRAM).expect("socket");
    assert_eq!(world.server.ttl(socket), Ok(64));
    assert_eq!(world.server.set_ttl(socket, 7), Ok(()));
    world.server.bind(socket, (world.ip, 0).into()).expect("bind");
    assert_eq!(world.server.ttl(socket), Ok(7));
    assert_eq!(world.server.set_ttl(socket, 255), Ok(()));
    for wrong in [0, 256] {
        assert_eq!(world.server.set_ttl(socket, wrong), Err(Errno::EINVAL), "{wrong}");
    }
    assert_eq!(world.server.ttl(socket), Ok(255));
}

/// ip(7), IP_MULTICAST_LOOP: "Set or read a boolean integer argument that determines whether sent multicast packets
/// should be looped back to the local sockets"; those that leave by the loopback interface always are. IP_MULTICAST_TTL:
/// "it is very important for multicast packets to set the smallest TTL possible. The default is 1".
fn datagrams_to_a_group_come_back_as_the_sender_sets(world: &World) {
    let bound = |ip| {
        let socket = world.server.socket(libc::SOCK_DGRAM).expect("socket");
        world.server.bind(socket, (ip, 0).into()).expect("bind");
        socket
    };
    // Every host is a member of this group.
    let group = Ipv4Addr::new(224, 0, 0, 1);
    let (member, sender) = (bound(Ipv4Addr::UNSPECIFIED.into()), bound(world.ip));
    let to = (group, world.server.local(member).expect("getsockname").port()).into();
    assert_eq!(world.server.group_options(sender), Ok((1, true)));
    world.server.sendto(sender, b"looped", to).expect("sendto");
    assert_eq!(world.server.recv(member, 9, 0), Ok((6, b"looped".to_vec())));
    assert_eq!(world.server.set_group_loop(sender, false), Ok(()));
    assert_eq!(world.server.group_options(sender), Ok((1, false)));
    world.server.sendto(sender, b"not", to).expect("sendto");
    assert_eq!(world.server.set_group_loop(sender, true), Ok(()));
    world.server.sendto(sender, b"again", to).expect("sendto");
    let next = if world.ip.is_loopback() { b"not".as_slice() } else { b"again" };
    assert_eq!(world.server.recv(member, 9, 0), Ok((next.len(), next.to_vec())));
    // Set before the bind, kept by it.
    let early = world.server.socket(libc::SOCK_DGRAM).expect("socket");
    assert_eq!((world.server.set_group_ttl(early, 0), world.server.set_group_loop(early, false)), (Ok(()), Ok(())));
    world.server.bind(early, (world.ip, 0).into()).expect("bind");
    assert_eq!(world.server.group_options(early), Ok((0, false)));
    assert_eq!(world.server.set_group_ttl(early, 256), Err(Errno::EINVAL));
}
