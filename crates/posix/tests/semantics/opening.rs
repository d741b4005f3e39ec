//! connect(2), accept(2), listen(2), socket(7): how connections begin, and how errors are reported.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use posix::Errno;

use crate::kernel_and_stacks;
use crate::world::{World, until};

kernel_and_stacks! {
    connect = a_nonblocking_connect_is_completed_by_polling;
    refused = a_refusal_is_told_once_by_so_error;
    blocking_refused = a_blocking_connect_returns_the_refusal;
    shut_listener = accept_on_a_socket_that_no_longer_listens_is_invalid;
    wrong = calls_on_the_wrong_socket_fail_as_the_manual_says;
    already = an_attempt_under_way_is_not_begun_again;
    names = both_ends_know_both_addresses;
}

/// connect(2): "EINPROGRESS The socket is nonblocking and the connection cannot be completed immediately. [...] It is
/// possible to select(2) or poll(2) for completion by selecting the socket for writing. After select(2) indicates
/// writability, use getsockopt(2) to read the SO_ERROR option at level SOL_SOCKET to determine whether connect()
/// completed successfully (SO_ERROR is zero)"; "EISCONN The socket is already connected."
fn a_nonblocking_connect_is_completed_by_polling(world: &World) {
    let (_listener, address) = world.listener();
    let client = world.client.socket(libc::SOCK_STREAM | libc::SOCK_NONBLOCK).expect("socket");
    assert_eq!(world.client.connect(client, address), Err(Errno::EINPROGRESS));
    assert_eq!(until(&*world.client, client, libc::POLLOUT), libc::POLLOUT);
    assert_eq!(world.client.error(client), Ok(0));
    assert_eq!(world.client.connect(client, address), Ok(()), "Linux: the first call after it has completed");
    assert_eq!(world.client.connect(client, address), Err(Errno::EISCONN));
}

/// socket(7): "SO_ERROR Get and clear the pending socket error."
fn a_refusal_is_told_once_by_so_error(world: &World) {
    let (listener, address) = world.listener();
    world.server.close(listener).expect("close");
    let client = world.client.socket(libc::SOCK_STREAM | libc::SOCK_NONBLOCK).expect("socket");
    assert_eq!(world.client.connect(client, address), Err(Errno::EINPROGRESS));
    let events = until(&*world.client, client, libc::POLLOUT);
    assert_eq!(events & (libc::POLLERR | libc::POLLHUP), libc::POLLERR | libc::POLLHUP);
    assert_eq!(world.client.error(client), Ok(libc::ECONNREFUSED));
    assert_eq!(world.client.error(client), Ok(0));
    assert_eq!(until(&*world.client, client, libc::POLLOUT) & libc::POLLERR, 0);
}

/// connect(2): "ECONNREFUSED A connect() on a stream socket found no one listening on the remote address."
fn a_blocking_connect_returns_the_refusal(world: &World) {
    let (listener, address) = world.listener();
    world.server.close(listener).expect("close");
    let client = world.client.socket(libc::SOCK_STREAM).expect("socket");
    assert_eq!(world.client.connect(client, address), Err(Errno::ECONNREFUSED));
}

/// accept(2): "EINVAL Socket is not listening for connections". Linux wakes a thread that blocks in accept when another
/// shuts the listener down.
fn accept_on_a_socket_that_no_longer_listens_is_invalid(world: &World) {
    let (listener, _) = world.listener();
    let server = world.server.clone();
    let accepts = thread::spawn(move || server.accept(listener, 0));
    world.server.shutdown(listener, libc::SHUT_RDWR).expect("shutdown");
    assert_eq!(accepts.join().expect("the thread"), Err(Errno::EINVAL));
    assert_eq!(world.server.accept(listener, 0), Err(Errno::EINVAL));
    world.server.close(listener).expect("close");
    assert_eq!(world.server.accept(listener, 0), Err(Errno::EBADF));
}

/// accept(2), connect(2), getpeername(2), send(2), recv(2): their lists of errors.
fn calls_on_the_wrong_socket_fail_as_the_manual_says(world: &World) {
    let system = &*world.server;
    let fresh = system.socket(libc::SOCK_STREAM).expect("socket");
    assert_eq!(system.accept(fresh, 0), Err(Errno::EINVAL));
    assert_eq!(system.recv(fresh, 1, 0), Err(Errno::ENOTCONN));
    assert_eq!(system.send(fresh, b"x", 0), Err(Errno::EPIPE));
    assert_eq!(system.peer(fresh), Err(Errno::ENOTCONN));
    assert_eq!(system.shutdown(fresh, libc::SHUT_WR), Err(Errno::ENOTCONN));
    let (reader, writer) = system.pipe().expect("pipe");
    assert_eq!(system.accept(reader, 0), Err(Errno::ENOTSOCK));
    assert_eq!(system.write(reader, b"x"), Err(Errno::EBADF));
    assert_eq!(system.read(writer, 1), Err(Errno::EBADF));
    let datagrams = system.socket(libc::SOCK_DGRAM).expect("socket");
    assert_eq!(system.listen(datagrams, 1), Err(Errno::EOPNOTSUPP));
    assert_eq!(system.close(999), Err(Errno::EBADF));
}

/// connect(2): "EALREADY The socket is nonblocking and a previous connection attempt has not yet been completed." The
/// listener's queue is full, so the second connection is not completed. A blocking call waits for the attempt in
/// progress; when its time is over, "connect(2)" of its own attempt returns EINPROGRESS (socket(7)), and one that found
/// an attempt EALREADY.
fn an_attempt_under_way_is_not_begun_again(world: &World) {
    let listener = world.server.socket(libc::SOCK_STREAM).expect("socket");
    world.server.bind(listener, SocketAddr::new(world.ip, 0)).expect("bind");
    world.server.listen(listener, 0).expect("listen");
    let address = world.server.local(listener).expect("getsockname");
    let fills = world.client.socket(libc::SOCK_STREAM).expect("socket");
    world.client.connect(fills, address).expect("connect");
    until(&*world.server, listener, libc::POLLIN);
    let client = world.client.socket(libc::SOCK_STREAM | libc::SOCK_NONBLOCK).expect("socket");
    assert_eq!(world.client.connect(client, address), Err(Errno::EINPROGRESS));
    assert_eq!(world.client.connect(client, address), Err(Errno::EALREADY));
    assert_eq!(world.client.connect(client, address), Err(Errno::EALREADY));
    world.client.set_nonblocking(client, false).expect("O_NONBLOCK");
    world.client.set_send_timeout(client, Duration::from_millis(1)).expect("SO_SNDTIMEO");
    assert_eq!(world.client.connect(client, address), Err(Errno::EALREADY));
    let first = world.client.socket(libc::SOCK_STREAM).expect("socket");
    world.client.set_send_timeout(first, Duration::from_millis(1)).expect("SO_SNDTIMEO");
    assert_eq!(world.client.connect(first, address), Err(Errno::EINPROGRESS));
}

/// getsockname(2) "returns the current address to which the socket sockfd is bound", getpeername(2) "the address of the
/// peer connected to the socket".
fn both_ends_know_both_addresses(world: &World) {
    let (server, client) = world.connection();
    assert_eq!(world.server.local(server), world.client.peer(client));
    assert_eq!(world.server.peer(server), world.client.local(client));
}
