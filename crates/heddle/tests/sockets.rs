//! Behaviour of sockets, as in `std::net`, in virtual time on one thread.

mod world;

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use every_arch::every_arch;
use heddle::config::ConnectionOptions;
use heddle::error::ParseAddrError;
use heddle::{Architecture, BindError, Connect, ConnectError, Readiness, Stack, TcpListener, TcpStream, UdpSocket};
use observe::DropReason;
use testbed::limit::HANG;
use world::World;

const SERVER: &str = "10.0.0.1:80";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A client's and a server's end, non-blocking.
fn connect(world: &mut World) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(&world.a, SERVER).unwrap();
    listener.set_nonblocking(true).unwrap();
    let client = Connect::new().start(&world.b, address(SERVER)).unwrap();
    world.settle();
    assert!(client.readiness().contains(Readiness::CONNECTED | Readiness::WRITABLE));
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    (client, server)
}

fn read(mut stream: &TcpStream) -> Result<Vec<u8>, ErrorKind> {
    let mut buffer = vec![0; 100_000];
    let count = stream.read(&mut buffer).map_err(|error| error.kind())?;
    buffer.truncate(count);
    Ok(buffer)
}

fn drops(stack: &heddle::Stack, reason: DropReason) -> u64 {
    stack.stats().counters.drops().find(|(other, _)| *other == reason).map_or(0, |(_, count)| count)
}

#[every_arch]
fn each_half_ends_by_itself(arch: Architecture) {
    let mut world = World::new(arch);
    let (mut client, mut server) = connect(&mut world);
    client.write_all(b"request").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    world.settle();
    assert_eq!(read(&server).unwrap(), b"request");
    assert_eq!(read(&server).unwrap(), b"", "the end of the stream");
    assert_eq!(client.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    server.write_all(b"response").unwrap();
    world.settle();
    assert_eq!(read(&client).unwrap(), b"response");
    assert_eq!(read(&client), Err(ErrorKind::WouldBlock), "the other half lives");
    server.shutdown(Shutdown::Both).unwrap();
    world.settle();
    assert_eq!(read(&client).unwrap(), b"");
}

#[every_arch]
fn nothing_is_read_after_shutting_down_reads(arch: Architecture) {
    let mut world = World::new(arch);
    let (mut client, server) = connect(&mut world);
    client.write_all(b"lost").unwrap();
    world.settle();
    server.shutdown(Shutdown::Read).unwrap();
    assert_eq!(read(&server).unwrap(), b"");
}

#[every_arch]
fn linger_zero_resets(arch: Architecture) {
    let mut world = World::new(arch);
    let (mut client, server) = connect(&mut world);
    server.set_linger(Some(Duration::ZERO)).unwrap();
    drop(server);
    world.settle();
    assert!(client.readiness().contains(Readiness::ERROR));
    let error = client.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(error.to_string().contains(SERVER), "{error} names the peer");
    assert!(client.write(b"x").is_err());
}

/// RFC 9293, 3.6.1: the peer must learn that its data was lost, whether the connection or its handle still had it.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//= type=test
//# If such a host issues a CLOSE call while received data is still pending in the TCP connection, or if new data is
//# received after CLOSE is called, its TCP implementation SHOULD send a RST to show that data was lost (SHLD-3).
#[every_arch]
fn unread_text_resets(arch: Architecture) {
    for taken in [0, 1] {
        let mut world = World::new(arch);
        let (mut client, mut server) = connect(&mut world);
        client.write_all(b"text").unwrap();
        world.settle();
        assert_eq!(server.read(&mut vec![0; taken]).unwrap(), taken);
        drop(server);
        world.settle();
        assert_eq!(read(&client), Err(ErrorKind::ConnectionReset), "{taken} bytes were taken");
    }
}

#[every_arch]
fn a_refused_open_says_who_refused(arch: Architecture) {
    let mut world = World::new(arch);
    let client = Connect::new().start(&world.b, address("10.0.0.1:81")).unwrap();
    assert!(client.take_error().unwrap().is_none(), "nothing has happened yet");
    world.settle();
    assert!(client.readiness().contains(Readiness::ERROR));
    let error = client.take_error().unwrap().expect("the open has failed");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(error.to_string().contains("10.0.0.1:81"), "{error} names the address");
    drop(client);
    assert_eq!(world.b.stats().connections, 0);
}

#[every_arch]
fn an_open_that_nobody_answers_times_out(arch: Architecture) {
    let mut world = World::with(arch, |config| config.syn_retries = 2, Default::default());
    let client = Connect::new().start(&world.b, address("10.0.0.9:80")).unwrap();
    world.pass(Duration::from_secs(10));
    let error = client.take_error().unwrap().expect("the open has failed");
    assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable), "{error}");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# The optional "local IP address" parameter MUST be supported to allow the specification of the local IP address
//# (MUST-43).
#[every_arch]
fn opens_that_cannot_be_tried(arch: Architecture) {
    let world = World::new(arch);
    let open = |local: Option<&str>, remote: &str| {
        let from = local.map_or(Connect::new(), |local| Connect::new().local(address(local)));
        from.start(&world.b, remote).map_err(|error| error.to_string())
    };
    assert!(open(None, "192.168.0.1:80").unwrap_err().contains("no route"));
    assert!(open(Some("127.0.0.1:4000"), SERVER).unwrap_err().contains("loopback"));
    let held = open(Some("10.0.0.2:4000"), SERVER).unwrap();
    assert_eq!(held.local_addr().unwrap(), address("10.0.0.2:4000"));
    assert!(open(Some("10.0.0.2:4000"), SERVER).unwrap_err().contains("choose another port"));
    let nonsense = TcpStream::connect(&world.b, "here:80").unwrap_err();
    assert_eq!(nonsense, ConnectError::BadAddress(ParseAddrError::new("here:80")));
    let much = vec![0; 1 << 20];
    let refused = Connect::new().first_data(&much).start(&world.b, SERVER).unwrap_err();
    assert!(matches!(refused, ConnectError::DataTooLong { len: 1_048_576, most } if most <= 60 << 10), "{refused}");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# Every passive OPEN call either creates a new connection record in LISTEN state, or it returns an error; it MUST NOT
//# affect any previously created connection record (MUST-41).
#[every_arch]
fn an_address_is_bound_once_and_free_again(arch: Architecture) {
    let world = World::new(arch);
    let first = TcpListener::bind(&world.a, SERVER).unwrap();
    assert_eq!(TcpListener::bind(&world.a, SERVER).err(), Some(BindError::InUse(address(SERVER))));
    drop(first);
    TcpListener::bind(&world.a, SERVER).expect("free again");
    let first = UdpSocket::bind(&world.a, "10.0.0.1:53").unwrap();
    assert_eq!(UdpSocket::bind(&world.a, "10.0.0.1:53").err(), Some(BindError::InUse(address("10.0.0.1:53"))));
    drop(first);
    UdpSocket::bind(&world.a, "10.0.0.1:53").expect("free again");
    let elsewhere = address("10.0.0.7:80");
    assert_eq!(TcpListener::bind(&world.a, elsewhere).err(), Some(BindError::NotLocal(elsewhere)));
    assert_eq!(UdpSocket::bind(&world.a, elsewhere).err(), Some(BindError::NotLocal(elsewhere)));
    assert_ne!(TcpListener::bind(&world.a, "10.0.0.1:0").unwrap().local_addr().unwrap().port(), 0);
}

#[every_arch]
fn a_full_accept_queue_makes_clients_wait(arch: Architecture) {
    const BACKLOG: usize = 2;
    let mut world = World::new(arch);
    let listener = TcpListener::bind_with(&world.a, SERVER, BACKLOG, ConnectionOptions::default()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let open = |world: &mut World| {
        let client = Connect::new().start(&world.b, address(SERVER)).unwrap();
        world.settle();
        client
    };
    let clients: Vec<_> = (0..=BACKLOG).map(|_| open(&mut world)).collect();
    let connected = |client: &TcpStream| client.readiness().contains(Readiness::CONNECTED);
    assert_eq!(clients.iter().filter(|client| connected(client)).count(), BACKLOG);
    assert_eq!(listener.occupancy(), (0, BACKLOG));
    assert_eq!(drops(&world.a, DropReason::AcceptQueueFull), 1);
    let accepted = listener.accept().unwrap();
    assert_eq!(accepted.1, clients[0].local_addr().unwrap(), "in the order of their coming");
    world.pass(Duration::from_secs(2));
    assert!(clients.iter().all(connected), "the SYN was sent again");
    assert_eq!(listener.occupancy(), (0, BACKLOG));
}

#[every_arch]
fn a_closed_listener_resets_who_was_not_accepted(arch: Architecture) {
    let mut world = World::new(arch);
    let listener = TcpListener::bind(&world.a, SERVER).unwrap();
    let client = Connect::new().start(&world.b, address(SERVER)).unwrap();
    world.settle();
    drop(listener);
    world.settle();
    assert_eq!(read(&client), Err(ErrorKind::ConnectionReset));
    let late = Connect::new().start(&world.b, address(SERVER)).unwrap();
    world.settle();
    assert_eq!(late.take_error().unwrap().map(|error| error.kind()), Some(ErrorKind::ConnectionRefused));
}

#[every_arch]
fn shared_bytes_are_sent_as_they_are(arch: Architecture) {
    let mut world = World::new(arch);
    let (client, server) = connect(&mut world);
    let data: Arc<[u8]> = (0..200_000u32).map(|n| (n ^ n >> 8) as u8).collect();
    let mut sent = 1000;
    let mut received = Vec::new();
    while received.len() < 150_000 {
        if sent < 151_000 {
            sent += client.send_shared(&data, sent..151_000).unwrap();
        }
        world.settle();
        while let Ok(piece) = read(&server) {
            received.extend_from_slice(&piece);
        }
        world.pass(Duration::from_millis(1));
    }
    assert!(received == data[1000..151_000]);
    assert_eq!(client.send_shared(&data, 0..200_001).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(client.send_shared(&data, 5..5).unwrap(), 0);
    // Acknowledged: only this test still holds the bytes.
    world.pass(Duration::from_millis(200));
    assert_eq!(Arc::strong_count(&data), 1);
}

#[every_arch]
fn buffers_are_handed_over_whole(arch: Architecture) {
    let mut world = World::new(arch);
    let (mut client, server) = connect(&mut world);
    let data: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    client.write_all(&data).unwrap();
    world.settle();
    // The rest of a partially read buffer comes first.
    assert_eq!((&server).read(&mut [0; 10]).unwrap(), 10);
    let mut received = Vec::new();
    while received.len() < data.len() - 10 {
        for buffer in server.receive_buffers(4000).unwrap() {
            received.extend_from_slice(&buffer);
        }
    }
    assert!(received == data[10..]);
    assert_eq!(server.receive_buffers(1).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(client);
    world.settle();
    assert!(server.receive_buffers(1).unwrap().is_empty(), "the end of the stream");
}

/// Partial reads, within packets or up to their ends, open the window for a waiting peer, even without a new receive
/// call.
#[every_arch]
fn packets_that_are_read_in_parts_open_the_window_again(arch: Architecture) {
    let tune = |config: &mut heddle::config::Config| {
        config.receive_buffer = heddle::config::BufferSizes { min: 4096, initial: 4096, max: 4096 };
    };
    for part in [100, 724] {
        let mut world = World::with(arch, tune, Default::default());
        let (mut client, server) = connect(&mut world);
        client.set_nodelay(true).expect("set");
        client.write_all(&[7; 30_000]).expect("there is room");
        let mut received = 0;
        while received < 30_000 {
            world.settle();
            received += (&server).read(&mut vec![0; part]).unwrap_or_else(|error| panic!("{error} after {received}"));
        }
    }
}

#[every_arch]
fn several_slices_are_one_write(arch: Architecture) {
    let mut world = World::new(arch);
    let (mut client, server) = connect(&mut world);
    let parts = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
    assert_eq!(client.write_vectored(&parts).unwrap(), 7);
    assert_eq!(client.write_vectored(&[]).unwrap(), 0);
    world.settle();
    assert_eq!(read(&server).unwrap(), b"one two");
}

#[every_arch]
fn datagrams_there_and_back(arch: Architecture) {
    for (server, client) in [("10.0.0.1:53", "10.0.0.2:1053"), ("[fd00::1]:53", "[fd00::2]:1053")] {
        let mut world = World::new(arch);
        let (server, client) = (UdpSocket::bind(&world.a, server), UdpSocket::bind(&world.b, client));
        let (server, client) = (server.unwrap(), client.unwrap());
        server.set_nonblocking(true).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut buffer = [0; 100];
        assert_eq!(server.recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(client.send_to(b"question", server.local_addr().unwrap()).unwrap(), 8);
        world.settle();
        assert!(server.readiness().contains(Readiness::READABLE));
        assert_eq!(server.recv_from(&mut buffer[..3]).unwrap(), (3, client.local_addr().unwrap()), "cut to what fits");
        server.connect(client.local_addr().unwrap()).unwrap();
        assert_eq!(server.send(b"").unwrap(), 0);
        assert_eq!(server.send(b"answer").unwrap(), 6);
        world.settle();
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (0, server.local_addr().unwrap()));
        assert_eq!(client.recv(&mut buffer).unwrap(), 6);
        assert_eq!(&buffer[..6], b"answer");
        assert_eq!(client.send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
    }
}

/// Datagrams to a group reach only its members; they stay on the link by default.
#[every_arch]
fn datagrams_to_groups_reach_their_members(arch: Architecture) {
    let mut world = World::new(arch);
    let sender = UdpSocket::bind(&world.b, "10.0.0.2:1053").unwrap();
    let (member, stranger) = ("0.0.0.0:5353", "0.0.0.0:5354");
    let (member, stranger) = (UdpSocket::bind(&world.a, member).unwrap(), UdpSocket::bind(&world.a, stranger).unwrap());
    member.set_nonblocking(true).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let (group, anywhere) = (Ipv4Addr::new(239, 1, 2, 3), Ipv4Addr::UNSPECIFIED);
    let mut buffer = [0; 100];
    let mut tell = |world: &mut World, to: &str| {
        sender.send_to(b"hear, hear", to).unwrap();
        world.settle();
        (member.recv(&mut buffer).ok(), stranger.recv(&mut buffer).ok())
    };
    assert_eq!(tell(&mut world, "239.1.2.3:5353"), (None, None), "nobody has joined");
    member.join_multicast_v4(&group, &anywhere).unwrap();
    assert_eq!(member.join_multicast_v4(&group, &anywhere).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(
        member.join_multicast_v4(&group, &"10.0.0.9".parse().unwrap()).unwrap_err().kind(),
        ErrorKind::AddrNotAvailable
    );
    assert_eq!(tell(&mut world, "239.1.2.3:5353"), (Some(10), None));
    assert_eq!(tell(&mut world, "239.1.2.3:5354"), (None, None), "the host is in the group, that socket is not");
    assert_eq!(tell(&mut world, "239.1.2.4:5353"), (None, None));
    stranger.join_multicast_v4(&group, &"10.0.0.1".parse().unwrap()).unwrap();
    assert_eq!(tell(&mut world, "239.1.2.3:5354"), (None, Some(10)));
    member.leave_multicast_v4(&group, &anywhere).unwrap();
    assert_eq!(member.leave_multicast_v4(&group, &anywhere).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    assert_eq!(tell(&mut world, "239.1.2.3:5353"), (None, None));
    assert_eq!(tell(&mut world, "239.1.2.3:5354"), (None, Some(10)), "the other is still in it");
    drop(stranger);
    assert!(world.a.inner_stack().shared().links().view(0).groups().is_empty(), "an end is a leave");
    assert_eq!(sender.multicast_ttl_v4().unwrap(), 1);
}

#[every_arch]
fn datagrams_to_ipv6_groups_and_sockets_bound_to_a_group(arch: Architecture) {
    let mut world = World::new(arch);
    let sender = UdpSocket::bind(&world.b, "[fd00::2]:1053").unwrap();
    let member = UdpSocket::bind(&world.a, "[ff15::77]:5353").unwrap();
    member.set_nonblocking(true).unwrap();
    member.join_multicast_v6(&"ff15::77".parse().unwrap(), 1).unwrap();
    let wrong = member.join_multicast_v6(&"ff15::77".parse().unwrap(), 9).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::AddrNotAvailable, "{wrong}");
    let unicast = member.join_multicast_v6(&"fd00::1".parse().unwrap(), 0).unwrap_err();
    assert_eq!(unicast.kind(), ErrorKind::InvalidInput, "{unicast}");
    let mut buffer = [0; 100];
    for (to, heard) in [("[ff15::77]:5353", Some(3)), ("[ff15::78]:5353", None), ("[fd00::1]:5353", None)] {
        sender.send_to(b"hum", to).unwrap();
        world.settle();
        assert_eq!(member.recv(&mut buffer).ok(), heard, "{to}");
    }
}

/// RFC 1112 section 6.1: datagrams to a group that the sending host is a member of come back to it, unless the sender
/// has cleared that; those with a time to live of zero do not leave the host.
#[every_arch]
fn datagrams_to_a_group_come_back_to_a_member_on_the_sending_host(arch: Architecture) {
    for (local, group, far) in
        [("10.0.0.1:1053", "239.1.2.3:5353", "0.0.0.0:5353"), ("[fd00::1]:1053", "[ff15::77]:5353", "[::]:5353")]
    {
        let mut world = World::new(arch);
        let sender = UdpSocket::bind(&world.a, local).unwrap();
        let [here, there] = [&world.a, &world.b].map(|stack| UdpSocket::bind(stack, far).unwrap());
        let v6 = local.starts_with('[');
        let join = |socket: &UdpSocket| match group.parse::<SocketAddr>().unwrap().ip() {
            IpAddr::V4(group) => socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED).unwrap(),
            IpAddr::V6(group) => socket.join_multicast_v6(&group, 1).unwrap(),
        };
        let set = |on| if v6 { sender.set_multicast_loop_v6(on) } else { sender.set_multicast_loop_v4(on) }.unwrap();
        here.set_nonblocking(true).unwrap();
        there.set_nonblocking(true).unwrap();
        join(&there);
        let mut buffer = vec![0; 70_000];
        let mut tell = |world: &mut World, len: usize| {
            assert_eq!(sender.send_to(&vec![7; len], group).unwrap(), len);
            world.settle();
            [&here, &there].map(|socket| socket.recv_from(&mut buffer).ok().map(|(len, from)| (len, from.to_string())))
        };
        let came = |len: usize| Some((len, local.to_owned()));
        assert_eq!(tell(&mut world, 5), [None, came(5)], "this host is no member");
        join(&here);
        world.settle();
        assert_eq!(tell(&mut world, 5), [came(5), came(5)]);
        assert_eq!(tell(&mut world, 9000), [came(9000), came(9000)], "the link's in fragments");
        let most = if v6 { 65_527 } else { 65_507 };
        assert_eq!(tell(&mut world, most)[0], came(most), "the longest");
        set(false);
        assert_eq!(tell(&mut world, 6), [None, came(6)]);
        set(true);
        sender.set_multicast_ttl_v4(0).unwrap();
        assert_eq!(tell(&mut world, 7), [came(7), None], "it stays in the host");
        let unheard = |world: &World| world.counters().dropped(DropReason::NoRoute);
        let before = unheard(&world);
        set(false);
        assert_eq!(tell(&mut world, 8), [None, None], "for nobody");
        assert_eq!(unheard(&world), before + 1);
    }
}

/// A stack without an interface reaches the members in itself.
#[every_arch]
fn datagrams_to_groups_by_the_loopback_interface(arch: Architecture) {
    let builder = Stack::builder().architecture(arch).cpus(2);
    let stack = builder.build().unwrap();
    for (local, group) in [("127.0.0.1:1053", "239.1.2.3:5353"), ("[::1]:1053", "[ff15::77]:5353")] {
        let sender = UdpSocket::bind(&stack, local).unwrap();
        let member = UdpSocket::bind(&stack, group).unwrap();
        match group.parse::<SocketAddr>().unwrap().ip() {
            IpAddr::V4(group) => member.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).unwrap(),
            IpAddr::V6(group) => member.join_multicast_v6(&group, 0).unwrap(),
        }
        sender.send_to(b"to myself", group).unwrap();
        let mut buffer = [0; 16];
        member.set_read_timeout(Some(HANG)).unwrap();
        let (len, from) = member.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (b"to myself".as_slice(), local.parse().unwrap()));
    }
}

#[every_arch]
fn a_long_datagram_goes_in_fragments(arch: Architecture) {
    for (server, client, most) in [("10.0.0.1:53", "10.0.0.2:0", 65_507), ("[fd00::1]:53", "[fd00::2]:0", 65_527)] {
        let mut world = World::new(arch);
        let (server, client) = (UdpSocket::bind(&world.a, server), UdpSocket::bind(&world.b, client));
        let (server, client) = (server.unwrap(), client.unwrap());
        server.set_nonblocking(true).unwrap();
        let data: Vec<u8> = (0..66_000u32).map(|n| (n ^ n >> 8) as u8).collect();
        let mut buffer = vec![0; 70_000];
        // The first is sent to a neighbour that is not resolved yet.
        for length in [9000, 1472, 1473, most] {
            assert_eq!(client.send_to(&data[..length], server.local_addr().unwrap()).unwrap(), length);
            world.settle();
            let received = server.recv_from(&mut buffer).map_err(|error| error.to_string());
            assert_eq!(received, Ok((length, client.local_addr().unwrap())));
            assert!(buffer[..length] == data[..length]);
        }
        let error = client.send_to(&data[..most + 1], server.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&most.to_string()), "{error} names the limit");
    }
}

#[every_arch]
fn a_refused_datagram_is_reported_to_a_connected_socket(arch: Architecture) {
    for (client, nowhere) in [("10.0.0.2:0", "10.0.0.1:54"), ("[fd00::2]:0", "[fd00::1]:54")] {
        let mut world = World::new(arch);
        let client = UdpSocket::bind(&world.b, client).unwrap();
        client.set_nonblocking(true).unwrap();
        client.send_to(b"x", nowhere).unwrap();
        world.settle();
        let unconnected = client.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(unconnected.kind(), ErrorKind::WouldBlock, "not connected, not told");
        client.connect(nowhere).unwrap();
        client.send(b"x").unwrap();
        // Refusals are rate-limited per destination.
        world.pass(Duration::from_secs(2));
        let error = client.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        assert_eq!(client.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock, "told once");
    }
}

#[every_arch]
fn the_counts_tell_time_wait_from_live_connections(arch: Architecture) {
    for server in ["10.0.0.1:80", "[fd00::1]:80", "[::]:80"] {
        let mut world = World::new(arch);
        let listener = TcpListener::bind(&world.a, server).expect("the port is free");
        listener.set_nonblocking(true).unwrap();
        let to: SocketAddr = server.replace("[::]", "10.0.0.1").parse().expect("an address");
        let mut clients: Vec<_> =
            (0..3).map(|_| Connect::new().start(&world.b, to).expect("the open starts")).collect();
        world.settle();
        let accepted: Vec<_> = (0..3).map(|_| listener.accept().expect("it is established")).collect();
        let seen = |world: &World| {
            let stats = world.b.stats();
            (stats.live(), stats.time_wait, stats.connections)
        };
        assert_eq!(seen(&world), (3, 0, 3), "{server}");
        // The end that closes first is in TIME-WAIT.
        let stays = clients.pop();
        drop(clients);
        world.settle();
        drop(accepted);
        world.settle();
        assert_eq!(seen(&world), (1, 2, 3), "{server}");
        drop(stays);
        world.pass(Duration::from_secs(120));
        assert_eq!(seen(&world), (0, 0, 0), "{server}");
    }
}
