//! readv(2), writev(2), recvmsg(2), sendmsg(2): several buffers in one call.

use posix::Errno;

use crate::kernel_and_stacks;
use crate::world::World;

kernel_and_stacks! {
    stream = buffers_are_filled_and_emptied_in_array_order;
    datagram = a_datagram_is_gathered_and_scattered_whole;
    nothing = nothing_to_move_moves_nothing;
    many = more_buffers_than_the_system_takes_are_refused;
}

fn buffers<const N: usize>(sizes: [usize; N]) -> [Vec<u8>; N] {
    sizes.map(|size| vec![0; size])
}

/// readv(2): "Buffers are processed in array order. This means that readv() completely fills iov[0] before proceeding
/// to iov[1], and so on. (If there is insufficient data, then not all buffers pointed to by iov may be filled.)
/// Similarly, writev() writes out the entire contents of iov[0] before proceeding to iov[1], and so on."
fn buffers_are_filled_and_emptied_in_array_order(world: &World) {
    let (server, client) = world.connection();
    assert_eq!(world.client.writev(client, &[b"he", b"", b"l", b"lo, world"]), Ok(12));
    let whole = libc::MSG_PEEK | libc::MSG_WAITALL;
    let mut seen = buffers([5, 7]);
    assert_eq!(world.server.recvmsg(server, &mut seen, whole), Ok(12));
    assert_eq!(seen, [b"hello".to_vec(), b", world".to_vec()]);
    let mut first = buffers([1, 0, 3]);
    assert_eq!(world.server.readv(server, &mut first), Ok(4));
    assert_eq!(first, [b"h".to_vec(), Vec::new(), b"ell".to_vec()]);
    let mut rest = buffers([4, 2, 9]);
    assert_eq!(world.server.readv(server, &mut rest), Ok(8));
    assert_eq!(rest, [b"o, w".to_vec(), b"or".to_vec(), b"ld\0\0\0\0\0\0\0".to_vec()]);
    let (reader, writer) = world.server.pipe().expect("pipe");
    assert_eq!(world.server.writev(writer, &[b"ab", b"c"]), Ok(3));
    let mut piped = buffers([1, 2]);
    assert_eq!(world.server.readv(reader, &mut piped), Ok(3));
    assert_eq!(piped, [b"a".to_vec(), b"bc".to_vec()]);
}

/// sendmsg(2), recvmsg(2) of datagrams: one call is one message, whatever the number of its buffers.
fn a_datagram_is_gathered_and_scattered_whole(world: &World) {
    let here = world.server.socket(libc::SOCK_DGRAM).expect("socket");
    world.server.bind(here, (world.ip, 0).into()).expect("bind");
    let there = world.client.socket(libc::SOCK_DGRAM).expect("socket");
    world.client.connect(there, world.server.local(here).expect("getsockname")).expect("connect");
    assert_eq!(world.client.sendmsg(there, &[b"data", b"gram"], 0), Ok(8));
    assert_eq!(world.client.writev(there, &[b"ne", b"xt"]), Ok(4));
    let mut parts = buffers([3, 3]);
    assert_eq!(world.server.recvmsg(here, &mut parts, libc::MSG_TRUNC), Ok(8), "the real length of the datagram");
    assert_eq!(parts, [b"dat".to_vec(), b"agr".to_vec()]);
    let mut parts = buffers([1, 9]);
    assert_eq!(world.server.readv(here, &mut parts), Ok(4));
    assert_eq!(parts, [b"n".to_vec(), b"ext\0\0\0\0\0\0".to_vec()]);
}

/// read(2): "If count is zero, read() may detect the errors described below. In the absence of any errors, or if read()
/// does not check for errors, a read() with a count of 0 returns zero and has no other effects." On Linux that holds
/// for `readv` and `writev`, too: no datagram is taken and none is sent.
fn nothing_to_move_moves_nothing(world: &World) {
    let here = world.server.socket(libc::SOCK_DGRAM).expect("socket");
    world.server.bind(here, (world.ip, 0).into()).expect("bind");
    let there = world.client.socket(libc::SOCK_DGRAM).expect("socket");
    world.client.connect(there, world.server.local(here).expect("getsockname")).expect("connect");
    assert_eq!(world.server.read(here, 0), Ok(Vec::new()), "and does not wait for a datagram");
    assert_eq!(world.client.writev(there, &[b"", b""]), Ok(0));
    assert_eq!(world.client.send(there, b"one", 0), Ok(3));
    assert_eq!(world.server.recv(here, 9, libc::MSG_PEEK), Ok((3, b"one".to_vec())), "no empty datagram is before it");
    assert_eq!(world.server.read(here, 0), Ok(Vec::new()));
    assert_eq!(world.server.readv(here, &mut buffers([0, 0])), Ok(0));
    assert_eq!(world.server.recv(here, 9, 0), Ok((3, b"one".to_vec())), "it was left where it was");
    let (reader, writer) = world.server.pipe().expect("pipe");
    assert_eq!(world.server.readv(reader, &mut []), Ok(0));
    assert_eq!(world.server.readv(writer, &mut []), Err(Errno::EBADF));
    assert_eq!(world.server.writev(reader, &[]), Err(Errno::EBADF));
}

/// readv(2): "EINVAL The vector count, iovcnt, is less than zero or greater than the permitted maximum"; sendmsg(2):
/// "EMSGSIZE [...] or the number of messages to be sent is too large". The maximum is 1024 ("IOV_MAX").
fn more_buffers_than_the_system_takes_are_refused(world: &World) {
    let (server, client) = world.connection();
    let bytes: Vec<&[u8]> = vec![b"x"; 1025];
    assert_eq!(world.client.writev(client, &bytes), Err(Errno::EINVAL));
    assert_eq!(world.client.sendmsg(client, &bytes, 0), Err(Errno::EMSGSIZE));
    assert_eq!(world.client.writev(client, &bytes[1..]), Ok(1024));
    let mut one_each = vec![vec![0]; 1025];
    assert_eq!(world.server.readv(server, &mut one_each), Err(Errno::EINVAL));
    assert_eq!(world.server.recvmsg(server, &mut one_each, 0), Err(Errno::EMSGSIZE));
    assert_eq!(world.server.recvmsg(server, &mut one_each[1..], libc::MSG_WAITALL), Ok(1024));
}
