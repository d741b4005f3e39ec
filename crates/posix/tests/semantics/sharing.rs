//! dup(2), close(2), epoll(7): descriptors and the descriptions that they refer to.

use posix::{EpollInterest, Errno};

use crate::kernel_and_stacks;
use crate::world::{NOW, PATIENCE, World, until};

kernel_and_stacks! {
    flags = duplicates_share_their_status_flags;
    last = a_connection_ends_with_its_last_descriptor;
    watched = a_registration_outlives_its_descriptor_but_not_the_description;
    numbers = the_lowest_free_number_is_taken;
}

/// dup(2): "After a successful return, the old and new file descriptors may be used interchangeably. Since the two file
/// descriptors refer to the same open file description, they share file offset and file status flags".
fn duplicates_share_their_status_flags(world: &World) {
    let (server, client) = world.connection();
    let copy = world.server.dup(server).expect("dup");
    world.server.set_nonblocking(copy, true).expect("O_NONBLOCK");
    assert_eq!(world.server.is_nonblocking(server), Ok(true));
    assert_eq!(world.server.recv(server, 1, 0), Err(Errno::EAGAIN));
    world.client.send(client, b"ab", 0).expect("send");
    world.until(copy, libc::POLLIN);
    assert_eq!(world.server.recv(copy, 1, 0), Ok((1, b"a".to_vec())));
    assert_eq!(world.server.recv(server, 1, 0), Ok((1, b"b".to_vec())));
}

/// close(2): "If fd is the last file descriptor referring to the underlying open file description (see open(2)), the
/// resources associated with the open file description are freed".
fn a_connection_ends_with_its_last_descriptor(world: &World) {
    let (server, client) = world.connection();
    let copy = world.server.dup(server).expect("dup");
    world.server.close(server).expect("close");
    assert_eq!(world.server.recv(server, 1, 0), Err(Errno::EBADF));
    world.server.send(copy, b"x", 0).expect("send");
    assert_eq!(world.client.recv(client, 1, 0), Ok((1, b"x".to_vec())));
    assert_eq!(world.client.recv(client, 1, libc::MSG_DONTWAIT), Err(Errno::EAGAIN));
    world.server.close(copy).expect("close");
    assert_eq!(world.client.recv(client, 1, 0), Ok((0, Vec::new())));
}

/// epoll(7): "Will closing a file descriptor cause it to be removed from all epoll interest lists? Yes, but be aware of
/// the following point. A file descriptor is a reference to an open file description [...]. A file descriptor is
/// removed from an interest list only after all the file descriptors referring to the underlying open file description
/// have been closed."
fn a_registration_outlives_its_descriptor_but_not_the_description(world: &World) {
    let (server, client) = world.connection();
    let copy = world.server.dup(server).expect("dup");
    let epoll = world.server.epoll_create().expect("epoll_create");
    let interest = EpollInterest { events: libc::EPOLLIN as u32, data: 77 };
    world.server.epoll_ctl(epoll, libc::EPOLL_CTL_ADD, server, interest).expect("EPOLL_CTL_ADD");
    world
        .server
        .epoll_ctl(epoll, libc::EPOLL_CTL_ADD, copy, EpollInterest { data: 78, ..interest })
        .expect("EPOLL_CTL_ADD");
    world.server.epoll_ctl(epoll, libc::EPOLL_CTL_DEL, copy, interest).expect("EPOLL_CTL_DEL");
    world.server.close(server).expect("close");
    world.client.send(client, b"x", 0).expect("send");
    let events = world.server.epoll_wait(epoll, 8, PATIENCE).expect("epoll_wait");
    assert_eq!(events, [EpollInterest { events: libc::EPOLLIN as u32, data: 77 }]);
    let removed = world.server.epoll_ctl(epoll, libc::EPOLL_CTL_DEL, server, interest);
    assert_eq!(removed, Err(Errno::EBADF), "the number means nothing any more");
    world.server.close(copy).expect("close");
    assert_eq!(world.server.epoll_wait(epoll, 8, NOW), Ok(Vec::new()));
}

/// open(2), which socket(2) and dup(2) repeat: "the file descriptor returned by a successful call will be the
/// lowest-numbered file descriptor not currently open for the process". The kernel's process has other threads that
/// open files, so there only the number that was just closed is compared, with a retry if another thread was quicker.
fn the_lowest_free_number_is_taken(world: &World) {
    let system = &*world.server;
    let taken = (0..1000).any(|_| {
        let (low, high) = (system.socket(libc::SOCK_STREAM), system.socket(libc::SOCK_STREAM));
        let (low, high) = (low.expect("socket"), high.expect("socket"));
        system.close(low).expect("close");
        let again = system.dup(high).expect("dup");
        system.close(high).expect("close");
        system.close(again).expect("close");
        again == low
    });
    assert!(taken, "a number that is free again is not the next to be taken");
    let pair = system.pipe().expect("pipe");
    until(system, pair.1, libc::POLLOUT);
}
