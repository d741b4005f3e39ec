//! A peer that stops answering: every way of waiting for it ends, with the proper error.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use every_arch::every_arch;
use heddle::config::KeepAlive;
use heddle::{Architecture, Connect, Readiness, TcpListener, TcpStream, UdpSocket};
use world::World;

/// Longer than any of TCP's time-outs here.
const LONG: Duration = Duration::from_secs(2 * 3600);

fn connected(world: &mut World) -> (TcpStream, TcpStream, TcpListener) {
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    listener.set_nonblocking(true).unwrap();
    let client = Connect::new().start(&world.b, "10.0.0.1:80");
    let client = client.expect("a route");
    world.settle();
    let (server, _) = listener.accept().expect("the handshake is complete");
    server.set_nonblocking(true).unwrap();
    (client, server, listener)
}

/// Lets time pass until `stream` has an error; returns how long that took.
fn until_error(world: &mut World, stream: &TcpStream) -> Duration {
    let start = world.clock.now();
    while !stream.readiness().intersects(Readiness::ERROR | Readiness::CLOSED) {
        assert!(world.clock.now() - start < LONG, "no error in {LONG:?}: {:?}", stream.status());
        let end = world.clock.now() + LONG;
        world.step(end);
    }
    world.clock.now() - start
}

/// Data for a dead peer: retransmitted fifteen times (R2), then ETIMEDOUT.
#[every_arch]
fn data_that_nobody_acknowledges_times_out(arch: Architecture) {
    let mut world = World::new(arch);
    let (client, mut server, listener) = connected(&mut world);
    world.disconnect_b();
    server.write_all(b"is anybody there?").expect("room");
    let took = until_error(&mut world, &server);
    // 200 ms doubled ten times and then two minutes each: about 15 minutes, as Linux's tcp_retries2 says.
    assert!((Duration::from_secs(600)..Duration::from_secs(1800)).contains(&took), "{took:?}");
    let error = server.read(&mut [0; 10]).expect_err("an error");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    drop((server, listener));
    world.pass(Duration::from_secs(61));
    assert_eq!((world.a.stats().connections, world.a.stats().timers), (0, 0));
    drop(client);
}

/// An idle connection with keep-alive: its probes detect the failure.
#[every_arch(only(up, msgp_6, connp_t_spsc, connp_l_128, squeue_process))]
fn an_idle_connection_is_found_dead_by_its_probes(arch: Architecture) {
    let mut world = World::new(arch);
    let (_client, mut server, _listener) = connected(&mut world);
    let timing = KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 3 };
    server.set_keepalive(Some(timing)).expect("alive");
    world.disconnect_b();
    let took = until_error(&mut world, &server);
    assert!((Duration::from_secs(85)..Duration::from_secs(95)).contains(&took), "{took:?}");
    assert_eq!(server.read(&mut [0; 10]).expect_err("an error").kind(), ErrorKind::TimedOut);
}

/// A connection to a host that is silent from the start.
#[every_arch(only(up, giant, msgp_6, connp_t, connp_l_128, squeue_process))]
fn opening_towards_a_dead_host_fails(arch: Architecture) {
    let mut world = World::new(arch);
    // The neighbour is known: the host fails after its link address was resolved.
    let known = connected(&mut world);
    world.disconnect_b();
    let stream = Connect::new().start(&world.a, "10.0.0.2:99").expect("a route");
    let took = until_error(&mut world, &stream);
    assert!(took > Duration::from_secs(10), "{took:?}");
    let error = stream.take_error().unwrap().expect("an error");
    assert!([ErrorKind::TimedOut, ErrorKind::HostUnreachable].contains(&error.kind()), "{error}");
    drop(known);
}

/// A device is unplugged under two connections: both end within a second, and the listener stays.
#[every_arch]
fn a_device_that_vanishes_ends_its_connections(arch: Architecture) {
    let mut world = World::lossy(arch, "unplug 5s");
    let (mut client, mut server, listener) = connected(&mut world);
    server.write_all(b"some text").expect("room");
    world.pass(Duration::from_millis(4500));
    assert!(!server.readiness().intersects(Readiness::ERROR));
    server.write_all(b"more text").expect("room");
    world.pass(Duration::from_millis(1500));
    assert!(server.readiness().intersects(Readiness::ERROR), "a second later nobody has been told");
    let error = server.read(&mut [0; 10]).expect_err("an error");
    assert_eq!(error.kind(), ErrorKind::NetworkDown, "{error}");
    // The other end still has a device, but without a peer.
    assert_eq!(client.read(&mut [0; 100]).expect("what came before"), 18);
    assert!(!client.readiness().intersects(Readiness::ERROR));
    drop(server);
    world.pass(Duration::from_secs(1));
    assert_eq!((world.a.stats().connections, world.a.stats().timers), (0, 0));
    drop(listener);
}

/// A connection opened while the device is away ends at once; once it is back, connections work as before, also to the
/// existing listener.
#[every_arch]
fn nothing_is_opened_while_the_device_is_away(arch: Architecture) {
    let mut world = World::lossy(arch, "unplug 5s back 5s");
    let (client, server, listener) = connected(&mut world);
    let datagrams = UdpSocket::bind(&world.a, "10.0.0.1:53").expect("the port is free");
    world.pass(Duration::from_secs(6));
    assert!(server.readiness().intersects(Readiness::ERROR));
    let down = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::NetworkDown, "{error}");
    let remote = "10.0.0.2:99";
    down(Connect::new().start(&world.a, remote).expect_err("no way out").into());
    down(TcpListener::bind(&world.a, "10.0.0.1:81").expect_err("no way in").into());
    down(UdpSocket::bind(&world.a, "[::]:54").expect_err("no way in").into());
    down(datagrams.send_to(b"lost", remote).expect_err("no way out"));
    // The other end's interface is up, and its neighbour is silent.
    assert!(Connect::new().start(&world.b, "10.0.0.1:80").is_ok());
    drop((client, server));
    world.pass(Duration::from_secs(60));
    let again = Connect::new().start(&world.b, "10.0.0.1:80");
    let mut again = again.expect("a route");
    world.pass(Duration::from_secs(10));
    let (mut accepted, _) = std::iter::from_fn(|| listener.accept().ok()).last().expect("the listener is still there");
    again.write_all(b"back").expect("room");
    world.settle();
    let mut data = [0; 4];
    accepted.read_exact(&mut data).expect("the data");
    assert_eq!(&data, b"back");
    let outward = TcpListener::bind(&world.b, "10.0.0.2:99").expect("the port is free");
    let other_way = Connect::new().start(&world.a, remote).expect("a way out");
    world.pass(Duration::from_secs(5));
    assert!(other_way.readiness().intersects(Readiness::CONNECTED));
    drop(outward);
}
