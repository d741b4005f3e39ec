//! epoll(7), epoll_ctl(2), poll(2).

use posix::{EpollInterest, Errno, PollFd};

use crate::kernel_and_stacks;
use crate::system::System;
use crate::world::{NOW, PATIENCE, World, sleeping, until};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;

kernel_and_stacks! {
    level_and_edge = a_level_lasts_and_an_edge_is_reported_once;
    arrivals = every_arrival_is_an_edge_although_data_is_unread;
    oneshot = a_one_shot_registration_is_disabled_until_it_is_modified;
    rdhup = the_peers_shutdown_is_reported;
    room = room_to_write_is_an_edge_after_the_buffer_was_full;
    wrong = wrong_uses_fail_as_the_manual_says;
    nested = an_instance_is_readable_when_it_has_events;
    circle = instances_may_not_watch_each_other_in_a_circle;
    listener = a_listener_is_readable_when_a_connection_waits;
    fair = all_ready_descriptors_get_their_turn;
    reports = an_entry_of_the_error_queue_wakes_who_waits;
}

fn watch(system: &dyn System, fd: i32, events: u32) -> i32 {
    let epoll = system.epoll_create().expect("epoll_create");
    system.epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, EpollInterest { events, data: fd as u64 }).expect("EPOLL_CTL_ADD");
    epoll
}

/// The report of `epoll_wait` for the one descriptor that `epoll` watches, without waiting; 0: none.
fn look(system: &dyn System, epoll: i32) -> u32 {
    system.epoll_wait(epoll, 8, NOW).expect("epoll_wait").first().map_or(0, |event| event.events)
}

/// The same, and it waits for an event.
fn await_event(system: &dyn System, epoll: i32) -> u32 {
    let events = system.epoll_wait(epoll, 8, PATIENCE).expect("epoll_wait");
    assert_eq!(events.len(), 1, "no event comes");
    events[0].events
}

/// epoll(7), of data of which half is read: "If the rfd file descriptor has been added to the epoll interface using the
/// EPOLLET (edge-triggered) flag, the call to epoll_wait(2) done in step 5 will probably hang despite the available
/// data still present in the file input buffer"; "by contrast, when used as a level-triggered interface (the default,
/// when EPOLLET is not specified), epoll is simply a faster poll(2)".
fn a_level_lasts_and_an_edge_is_reported_once(world: &World) {
    let (server, client) = world.connection();
    let edge = watch(&*world.server, server, IN | ET);
    let level = watch(&*world.server, server, IN);
    // One segment, so that there is one edge.
    world.client.send(client, b"ab", 0).expect("send");
    // Each instance reports it.
    assert_eq!(await_event(&*world.server, edge), IN);
    assert_eq!(await_event(&*world.server, level), IN);
    assert_eq!(world.server.recv(server, 1, 0), Ok((1, b"a".to_vec())));
    assert_eq!((look(&*world.server, edge), look(&*world.server, level)), (0, IN));
    assert_eq!((look(&*world.server, edge), look(&*world.server, level)), (0, IN));
    assert_eq!(world.server.recv(server, 1, 0), Ok((1, b"b".to_vec())));
    assert_eq!(look(&*world.server, level), 0);
    assert_eq!(world.server.recv(server, 1, libc::MSG_DONTWAIT), Err(Errno::EAGAIN));
}

/// epoll(7): "Since even with edge-triggered epoll, multiple events can be generated upon receipt of multiple chunks of
/// data".
fn every_arrival_is_an_edge_although_data_is_unread(world: &World) {
    let (server, client) = world.connection();
    let epoll = watch(&*world.server, server, IN | ET);
    for _ in 0..3 {
        world.client.send(client, b"x", 0).expect("send");
        assert_eq!(await_event(&*world.server, epoll), IN);
        assert_eq!(look(&*world.server, epoll), 0);
    }
}

/// epoll_ctl(2), EPOLLONESHOT: "after an event notified for the file descriptor by epoll_wait(2), the file descriptor
/// is disabled in the interest list and no other events will be reported by the epoll interface. The user must call
/// epoll_ctl() with EPOLL_CTL_MOD to rearm the file descriptor with a new event mask."
fn a_one_shot_registration_is_disabled_until_it_is_modified(world: &World) {
    let (server, client) = world.connection();
    let epoll = watch(&*world.server, server, IN | ONESHOT);
    world.client.send(client, b"a", 0).expect("send");
    assert_eq!(await_event(&*world.server, epoll), IN);
    world.client.send(client, b"b", 0).expect("send");
    world.client.shutdown(client, libc::SHUT_WR).expect("shutdown");
    until(&*world.server, server, libc::POLLRDHUP);
    assert_eq!(look(&*world.server, epoll), 0);
    let again = EpollInterest { events: IN | ONESHOT, data: 0 };
    world.server.epoll_ctl(epoll, libc::EPOLL_CTL_MOD, server, again).expect("EPOLL_CTL_MOD");
    assert_eq!(look(&*world.server, epoll), IN);
    assert_eq!(look(&*world.server, epoll), 0);
}

/// epoll_ctl(2), EPOLLRDHUP: "Stream socket peer closed connection, or shut down writing half of connection". EPOLLHUP:
/// "when reading from a channel such as a pipe or a stream socket, this event merely indicates that the peer closed its
/// end of the channel"; "it is not necessary to set it in events".
fn the_peers_shutdown_is_reported(world: &World) {
    let (server, client) = world.connection();
    let epoll = watch(&*world.server, server, IN | RDHUP | ET);
    world.client.shutdown(client, libc::SHUT_WR).expect("shutdown");
    assert_eq!(await_event(&*world.server, epoll), IN | RDHUP);
    assert_eq!(world.server.recv(server, 1, 0), Ok((0, Vec::new())));
    world.server.shutdown(server, libc::SHUT_WR).expect("shutdown");
    let both = until(&*world.server, server, libc::POLLHUP);
    assert_ne!(both & libc::POLLHUP, 0);
}

/// epoll(7): "an application that employs the EPOLLET flag should use nonblocking file descriptors", and waits for an
/// event "only after read(2) or write(2) return EAGAIN".
fn room_to_write_is_an_edge_after_the_buffer_was_full(world: &World) {
    let (server, client) = world.connection();
    world.server.set_nonblocking(server, true).expect("O_NONBLOCK");
    let epoll = watch(&*world.server, server, OUT | ET);
    assert_eq!(await_event(&*world.server, epoll), OUT);
    assert_eq!(look(&*world.server, epoll), 0);
    let mut sent = 0;
    loop {
        match world.server.send(server, &[0; 1 << 16], 0) {
            Ok(count) => sent += count,
            Err(error) => break assert_eq!(error, Errno::EAGAIN),
        }
        // Data sent meanwhile has made room.
        let _ = look(&*world.server, epoll);
    }
    while sent > 0 {
        let (count, _) = world.client.recv(client, 1 << 20, 0).expect("recv");
        sent -= count;
    }
    assert_eq!(await_event(&*world.server, epoll), OUT);
}

/// epoll_ctl(2): "EEXIST op was EPOLL_CTL_ADD, and the supplied file descriptor fd is already registered"; "ENOENT op
/// was EPOLL_CTL_MOD or EPOLL_CTL_DEL, and fd is not registered"; "EINVAL epfd is not an epoll file descriptor, or fd
/// is the same as epfd"; "EBADF epfd or fd is not a valid file descriptor".
fn wrong_uses_fail_as_the_manual_says(world: &World) {
    let system = &*world.server;
    let (fd, _) = world.listener();
    let epoll = system.epoll_create().expect("epoll_create");
    let interest = EpollInterest { events: IN, data: 0 };
    let ctl = |epoll, operation, fd| system.epoll_ctl(epoll, operation, fd, interest);
    assert_eq!(ctl(epoll, libc::EPOLL_CTL_MOD, fd), Err(Errno::ENOENT));
    assert_eq!(ctl(epoll, libc::EPOLL_CTL_DEL, fd), Err(Errno::ENOENT));
    assert_eq!(ctl(epoll, libc::EPOLL_CTL_ADD, fd), Ok(()));
    assert_eq!(ctl(epoll, libc::EPOLL_CTL_ADD, fd), Err(Errno::EEXIST));
    assert_eq!(ctl(epoll, libc::EPOLL_CTL_ADD, epoll), Err(Errno::EINVAL));
    assert_eq!(ctl(fd, libc::EPOLL_CTL_ADD, epoll), Err(Errno::EINVAL));
    assert_eq!(ctl(epoll, libc::EPOLL_CTL_ADD, 999), Err(Errno::EBADF));
    assert_eq!(ctl(epoll, libc::EPOLL_CTL_DEL, fd), Ok(()));
    assert_eq!(ctl(epoll, libc::EPOLL_CTL_DEL, fd), Err(Errno::ENOENT));
    assert_eq!(system.epoll_wait(fd, 1, NOW), Err(Errno::EINVAL));
}

/// epoll(7): "Is the epoll file descriptor itself poll/epoll/selectable? Yes. If an epoll file descriptor has events
/// waiting, then it will indicate as being readable."
fn an_instance_is_readable_when_it_has_events(world: &World) {
    let system = &*world.server;
    let (reader, writer) = system.pipe().expect("pipe");
    let inner = watch(system, reader, IN);
    let outer = watch(system, inner, IN);
    assert_eq!(look(system, outer), 0);
    system.write(writer, b"x").expect("write");
    assert_eq!(await_event(system, outer), IN);
    assert_ne!(until(system, inner, libc::POLLIN) & libc::POLLIN, 0);
    assert_eq!(system.read(reader, 1).expect("read"), b"x");
    assert_eq!(look(system, outer), 0);
    system.close(writer).expect("close");
    assert_eq!(look(system, inner), HUP, "asked for or not");
}

/// epoll_ctl(2): "ELOOP fd refers to an epoll instance and this EPOLL_CTL_ADD operation would result in a circular loop
/// of epoll instances monitoring one another or a nesting depth of epoll instances greater than 5."
fn instances_may_not_watch_each_other_in_a_circle(world: &World) {
    let system = &*world.server;
    let made: Vec<_> = (0..3).map(|_| system.epoll_create().expect("epoll_create")).collect();
    let interest = EpollInterest { events: IN, data: 0 };
    let add = |epoll: usize, fd: usize| system.epoll_ctl(made[epoll], libc::EPOLL_CTL_ADD, made[fd], interest);
    assert_eq!(add(0, 1), Ok(()));
    assert_eq!(add(1, 2), Ok(()));
    assert_eq!(add(1, 0), Err(Errno::ELOOP));
    assert_eq!(add(2, 0), Err(Errno::ELOOP));
}

/// accept(2): "you can use select(2), poll(2), or epoll(7). A readable event will be delivered when a new connection is
/// attempted and you may then call accept() to get a socket for that connection."
fn a_listener_is_readable_when_a_connection_waits(world: &World) {
    let (listener, address) = world.listener();
    world.server.set_nonblocking(listener, true).expect("O_NONBLOCK");
    assert_eq!(world.server.accept(listener, 0), Err(Errno::EAGAIN));
    let epoll = watch(&*world.server, listener, IN);
    assert_eq!(look(&*world.server, epoll), 0);
    let client = world.client.socket(libc::SOCK_STREAM).expect("socket");
    world.client.connect(client, address).expect("connect");
    assert_eq!(await_event(&*world.server, epoll), IN);
    let child = world.server.accept(listener, libc::SOCK_NONBLOCK).expect("accept");
    assert_eq!(world.server.is_nonblocking(child), Ok(true));
    assert_eq!(look(&*world.server, epoll), 0);
}

/// epoll_wait(2): "If the number of ready file descriptors is greater than maxevents, then successive epoll_wait()
/// calls will round robin through the set of ready file descriptors. This behavior helps avoid starvation scenarios".
fn all_ready_descriptors_get_their_turn(world: &World) {
    let system = &*world.server;
    let epoll = system.epoll_create().expect("epoll_create");
    for data in 0..4 {
        let (reader, writer) = system.pipe().expect("pipe");
        system.write(writer, b"x").expect("write");
        system
            .epoll_ctl(epoll, libc::EPOLL_CTL_ADD, reader, EpollInterest { events: IN, data })
            .expect("EPOLL_CTL_ADD");
    }
    let mut seen: Vec<u64> = (0..4).map(|_| system.epoll_wait(epoll, 1, NOW).expect("epoll_wait")[0].data).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
}

/// poll(2): "POLLERR Error condition (only returned in revents; ignored in events)." The kernel's documentation of
/// timestamping (`SOF_TIMESTAMPING_TX_ACK`): "Request tx timestamps when all data in the send buffer has been
/// acknowledged"; "reading from the error queue is always a non-blocking operation. To block waiting on a timestamp,
/// use poll or select. poll() will return POLLERR in pollfd.revents if any data is ready on the error queue."
fn an_entry_of_the_error_queue_wakes_who_waits(world: &World) {
    let (server, client) = world.connection();
    let flags = libc::SOF_TIMESTAMPING_TX_ACK | libc::SOF_TIMESTAMPING_SOFTWARE;
    world.client.set_timestamping(client, flags).expect("SO_TIMESTAMPING");
    let edges = watch(&*world.client, client, ET);
    assert_eq!(look(&*world.client, edges), 0, "nothing was sent");
    let poller = world.client.clone();
    let polls = sleeping(move || {
        let mut entry = [PollFd { fd: client, events: 0, revents: 0 }];
        (poller.poll(&mut entry, PATIENCE), entry[0].revents)
    });
    assert!(!polls.is_finished(), "nothing was sent");
    world.client.send(client, b"x", 0).expect("send");
    assert_eq!(polls.join().expect("the thread"), (1, libc::POLLERR));
    let events = world.client.epoll_wait(edges, 8, PATIENCE).expect("epoll_wait");
    assert_eq!(events, [EpollInterest { events: libc::EPOLLERR as u32, data: client as u64 }]);
    assert_eq!(world.server.recv(server, 9, 0), Ok((1, b"x".to_vec())));
}
