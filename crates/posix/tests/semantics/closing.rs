//! close(2), socket(7): the effect on a call that another thread has begun, and how long close itself waits. The man
//! pages only call the first "probably unwise", so Linux's behaviour is the reference.

use std::time::Duration;

use posix::{Errno, PollFd};

use crate::kernel_and_stacks;
use crate::world::{PATIENCE, World, sleeping};

kernel_and_stacks! {
    reader = a_read_goes_on_after_the_close_of_its_descriptor;
    acceptor = an_accept_goes_on_after_the_close_of_its_listener;
    poller = a_poll_says_that_a_descriptor_is_gone_when_it_is_woken;
    linger = close_waits_until_the_peer_has_everything;
    replaced = dup2_waits_for_the_connection_that_it_ends;
    linger_time = a_linger_time_ends_the_wait_and_not_the_connection;
}

/// close(2): "the blocking I/O system call holds a reference to the underlying open file description, and this
/// reference keeps the description open until the I/O system call completes."
fn a_read_goes_on_after_the_close_of_its_descriptor(world: &World) {
    let (server, client) = world.connection();
    let reader = world.server.clone();
    let reads = sleeping(move || (reader.recv(server, 9, 0), reader.recv(server, 9, 0)));
    world.server.close(server).expect("close");
    assert!(!reads.is_finished(), "the close woke the thread that reads");
    world.client.send(client, b"late", 0).expect("send");
    let (first, second) = reads.join().expect("the thread");
    assert_eq!(first, Ok((4, b"late".to_vec())));
    assert_eq!(second, Err(Errno::EBADF), "the next call has no descriptor");
    // The description has ended with the call.
    assert_eq!(world.client.recv(client, 1, 0), Ok((0, Vec::new())));
}

/// As above: the listener accepts connections until the call that waits for one has returned.
fn an_accept_goes_on_after_the_close_of_its_listener(world: &World) {
    let (listener, address) = world.listener();
    let acceptor = world.server.clone();
    let accepts = sleeping(move || acceptor.accept(listener, 0));
    world.server.close(listener).expect("close");
    let first = world.client.socket(libc::SOCK_STREAM).expect("socket");
    assert_eq!(world.client.connect(first, address), Ok(()));
    let child = accepts.join().expect("the thread").expect("accept");
    world.client.send(first, b"x", 0).expect("send");
    assert_eq!(world.server.recv(child, 1, 0), Ok((1, b"x".to_vec())));
    let second = world.client.socket(libc::SOCK_STREAM).expect("socket");
    assert_eq!(world.client.connect(second, address), Err(Errno::ECONNREFUSED));
}

/// poll(2): "POLLNVAL Invalid request: fd not open (only returned in revents; ignored in events)." The close wakes no
/// thread; an event of the description, which the call keeps open, does, and then the number is invalid.
fn a_poll_says_that_a_descriptor_is_gone_when_it_is_woken(world: &World) {
    let (server, client) = world.connection();
    let poller = world.server.clone();
    let polls = sleeping(move || {
        let mut entry = [PollFd { fd: server, events: libc::POLLIN, revents: 0 }];
        (poller.poll(&mut entry, PATIENCE), entry[0].revents)
    });
    world.server.close(server).expect("close");
    assert!(!polls.is_finished(), "the close woke the thread that polls");
    world.client.send(client, b"x", 0).expect("send");
    assert_eq!(polls.join().expect("the thread"), (1, libc::POLLNVAL));
}

/// Sends until no more is accepted; returns how many bytes were.
fn fill(world: &World, client: i32) -> usize {
    world.client.set_nonblocking(client, true).expect("O_NONBLOCK");
    let mut sent = 0;
    loop {
        match world.client.send(client, &[7; 1 << 16], 0) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error, Errno::EAGAIN);
                break;
            }
        }
    }
    world.client.set_nonblocking(client, false).expect("O_NONBLOCK");
    sent
}

/// Reads to the end of the stream; returns the number of bytes.
fn drain(world: &World, server: i32) -> usize {
    let mut read = 0;
    loop {
        match world.server.recv(server, 1 << 16, 0).expect("recv").0 {
            0 => return read,
            count => read += count,
        }
    }
}

/// socket(7), SO_LINGER: "When enabled, a close(2) or shutdown(2) will not return until all queued messages for the
/// socket have been successfully sent or the linger timeout has been reached. Otherwise, the call returns immediately
/// and the closing is done in the background." On Linux `shutdown` does not wait, and `close` waits whether the
/// descriptor blocks or not.
fn close_waits_until_the_peer_has_everything(world: &World) {
    let (server, client) = world.connection();
    let sent = fill(world, client);
    world.client.set_linger(client, PATIENCE).expect("SO_LINGER");
    world.client.set_nonblocking(client, true).expect("O_NONBLOCK");
    assert_eq!(world.client.shutdown(client, libc::SHUT_WR), Ok(()));
    let closer = world.client.clone();
    let closes = sleeping(move || closer.close(client));
    assert!(!closes.is_finished(), "close returned while the peer had not read");
    assert_eq!(drain(world, server), sent);
    assert_eq!(closes.join().expect("the thread"), Ok(()));
}

/// dup2(2): "If the file descriptor newfd was previously open, it is closed before being reused; the close is performed
/// silently".
fn dup2_waits_for_the_connection_that_it_ends(world: &World) {
    let (server, client) = world.connection();
    let sent = fill(world, client);
    world.client.set_linger(client, PATIENCE).expect("SO_LINGER");
    let other = world.client.socket(libc::SOCK_DGRAM).expect("socket");
    let closer = world.client.clone();
    let closes = sleeping(move || closer.dup2(other, client));
    assert!(!closes.is_finished(), "dup2 returned while the peer had not read");
    assert_eq!(drain(world, server), sent);
    assert_eq!(closes.join().expect("the thread"), Ok(()));
}

/// As above: "or the linger timeout has been reached". Linux then continues closing in the background.
fn a_linger_time_ends_the_wait_and_not_the_connection(world: &World) {
    let (server, client) = world.connection();
    let sent = fill(world, client);
    world.client.set_linger(client, Duration::from_secs(1)).expect("SO_LINGER");
    assert_eq!(world.client.close(client), Ok(()));
    assert_eq!(drain(world, server), sent);
}
