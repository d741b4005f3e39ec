//! `StackConfig::homing`: a connection that a thread opens from any port is received by a queue that this thread polls.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Barrier, Mutex};
use std::thread;

use dev::mem::{self, MemConfig, MemDevice};
use observe::Time;
use stack::socket::Readiness;
use stack::{Architecture, Clock, Driver, InterfaceConfig, Stack, StackConfig, VirtualClock};
use sync::Real;
use tcp::config::ConnectionOptions;
// It has the stack compiled for the real machine, which would be compiled for this test once more otherwise.
use testbed as _;

/// Queues of the device, each polled by a thread of its own.
const QUEUES: usize = 4;
/// Connections that each thread opens over each family.
const CONNECTIONS: usize = 24;
/// The architectures under which any thread runs a connection's work, by cells and by connections; and the one under which
/// the threads that poll own the cells, and none of them polls here while another opens.
const ARCHITECTURES: [&str; 6] = ["connp-l:4", "squeue:process", "squeue:nodrain", "giant", "msgp:1", "shared-nothing"];

fn addresses(host: u8) -> [IpAddr; 2] {
    [IpAddr::from([10, 0, 0, host]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)])]
}

fn build(device: MemDevice, host: u8, config: StackConfig<Real>) -> (Stack<Real>, Vec<Driver<Real>>) {
    let addresses = addresses(host).map(|address| (address, if address.is_ipv4() { 24 } else { 64 })).to_vec();
    let interface =
        InterfaceConfig { device: Box::new(device), addresses, gateways: vec![], addressing: Default::default() };
    Stack::build(config, vec![interface]).expect("the stack builds")
}

/// The number of connections, of those that each thread has opened, that were complete when that thread alone had polled
/// its queue after the peer's answers.
fn opened_by_own_queue(arch: &str, homing: bool) -> [usize; QUEUES] {
    let (near, far) = mem::pair::<Real>(MemConfig { queues: QUEUES, ..MemConfig::default() });
    let clock = VirtualClock::new(Time::from_secs(1));
    let config = |arch: &str| StackConfig {
        seed: Some(7),
        cpus: QUEUES,
        own_threads: false,
        clock: Clock::Virtual(clock.clone()),
        ..StackConfig::new(Architecture::named(arch))
    };
    let (client, mut drivers) = build(near, 1, StackConfig { homing, ..config(arch) });
    let (server, mut peers) = build(far, 2, config("giant"));
    let options = ConnectionOptions::default();
    let targets = addresses(2).map(|address| SocketAddr::new(address, 80));
    let listeners = targets.map(|at| server.listen(at, 1024, options.clone()).expect("the port is free"));
    // The neighbours are known from the first connection on.
    for target in targets {
        client.connect(None, target, &options).expect("a port is free");
    }
    while drivers.iter_mut().chain(&mut peers).map(Driver::poll).sum::<usize>() > 0 {}
    // Other threads poll them from now on.
    drivers.iter_mut().for_each(Driver::rest);

    let (ready, peers, opened) = (Barrier::new(QUEUES), Mutex::new(peers), Mutex::new([0; QUEUES]));
    thread::scope(|scope| {
        for (queue, mut driver) in drivers.into_iter().enumerate() {
            let (client, options, ready, peers, opened) = (client.clone(), &options, &ready, &peers, &opened);
            scope.spawn(move || {
                driver.poll();
                ready.wait();
                let mut peers = peers.lock().expect("nobody panicked");
                let open = |target| client.connect(None, target, options).expect("a port is free");
                let sockets: Vec<_> = targets.into_iter().cycle().map(open).take(2 * CONNECTIONS).collect();
                while driver.poll() + peers.iter_mut().map(Driver::poll).sum::<usize>() > 0 {}
                let complete = sockets.iter().filter(|socket| socket.ready.get().contains(Readiness::WRITABLE)).count();
                opened.lock().expect("nobody panicked")[queue] = complete;
                drop(peers);
                // A thread that has ended would leave its number to the next.
                ready.wait();
            });
        }
    });
    drop(listeners);
    opened.into_inner().expect("nobody panicked")
}

#[test]
fn the_packets_of_a_connection_arrive_at_the_thread_that_opened_it() {
    for arch in ARCHITECTURES {
        assert_eq!(opened_by_own_queue(arch, true), [2 * CONNECTIONS; QUEUES], "{arch}");
    }
}

/// Otherwise the test above would show nothing.
#[test]
fn without_homing_flows_are_spread_over_the_queues() {
    let opened = opened_by_own_queue("connp-l:4", false);
    assert!(opened.iter().all(|opened| *opened < CONNECTIONS), "{opened:?} of {}", 2 * CONNECTIONS);
}

/// A thread that polls no queue, or every queue, passes over no port.
#[test]
fn one_thread_with_all_queues_takes_the_ports_in_order() {
    let ports = |homing| {
        let (near, far) = mem::pair::<Real>(MemConfig { queues: QUEUES, ..MemConfig::default() });
        let config = StackConfig { seed: Some(7), homing, ..StackConfig::new(Architecture::named("connp-l:4")) };
        let (client, mut drivers) = build(near, 1, config);
        let mut ports = Vec::new();
        for polled in [false, true] {
            if polled {
                drivers.iter_mut().for_each(|driver| _ = driver.poll());
            }
            let open = |_| client.connect(None, SocketAddr::new(addresses(2)[0], 80), &ConnectionOptions::default());
            ports.extend((0..8).map(open).map(|socket| socket.expect("a port is free").tuple().local_port));
        }
        drop(far);
        ports
    };
    let (with, without) = (ports(true), ports(false));
    assert_eq!(with, without);
    assert!(with.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == 1 || pair[1] == 49152), "{with:?}");
}
