//! Many connections are opened together and then stay idle: no timer fires for any of them. Each firing is an event
//! with exclusive use of its cell, and those of thousands of connections would fall into the same tick.

mod world;

use std::io::{Read, Write};
use std::time::Duration;

use every_arch::every_arch;
use heddle::{Architecture, Connect, TcpListener, TcpStream};
use observe::Counter;
use world::World;

const CONNECTIONS: usize = 64;

/// Connections from `b` to `a`, and `a`'s ends of them.
fn opened(world: &mut World, address: &str) -> (Vec<TcpStream>, Vec<TcpStream>, TcpListener) {
    let listener = TcpListener::bind(&world.a, address).expect("the port is free");
    listener.set_backlog(CONNECTIONS);
    listener.set_nonblocking(true).expect("a mode");
    // The first resolves the neighbour; the others are opened at once.
    let mut clients = vec![Connect::new().start(&world.b, address).expect("a route")];
    world.settle();
    clients.extend((1..CONNECTIONS).map(|_| Connect::new().start(&world.b, address).expect("a route")));
    world.settle();
    let servers: Vec<_> = std::iter::from_fn(|| listener.accept().ok()).map(|(stream, _)| stream).collect();
    assert_eq!(servers.len(), CONNECTIONS);
    for stream in clients.iter().chain(&servers) {
        stream.set_nonblocking(true).expect("a mode");
    }
    (clients, servers, listener)
}

fn fired(world: &World) -> u64 {
    world.counters().get(Counter::TimersFired)
}

#[every_arch]
fn connections_that_were_opened_together_are_not_woken_together(arch: Architecture) {
    for address in ["10.0.0.1:80", "[fd00::1]:80"] {
        let mut world = World::new(arch);
        let (mut clients, mut servers, _listener) = opened(&mut world, address);
        let (before, armed) = (fired(&world), world.b.inner_stack().stats().timers);
        assert_eq!(armed, 0, "{address}: nothing is waited for");
        world.pass(Duration::from_secs(10));
        assert_eq!(fired(&world) - before, 0, "{address}: timers that found nothing to do");
        // Later timers work although the entry of the SYN is gone.
        clients[0].write_all(b"x").expect("room");
        world.settle();
        assert_eq!(world.b.inner_stack().stats().timers, 1, "{address}: a time-out");
        world.pass(Duration::from_secs(10));
        assert!(fired(&world) > before);
        assert_eq!(servers[0].read(&mut [0; 2]).expect("a byte"), 1);
    }
}

/// A timer that is still needed is not cancelled: data written before the handshake was complete is retransmitted.
#[every_arch]
fn data_that_waited_for_the_handshake_has_its_time_out(arch: Architecture) {
    for address in ["10.0.0.1:80", "[fd00::1]:80"] {
        let mut world = World::new(arch);
        let listener = TcpListener::bind(&world.a, address).expect("the port is free");
        let mut client = Connect::new().start(&world.b, address).expect("a route");
        client.set_nonblocking(true).expect("a mode");
        client.write_all(b"early").expect("room");
        world.settle();
        assert_eq!(world.b.inner_stack().stats().timers, 1, "{address}: data is out");
        world.pass(Duration::from_secs(10));
        assert_eq!(world.b.inner_stack().stats().timers, 0, "{address}: and acknowledged");
        drop(listener);
    }
}
