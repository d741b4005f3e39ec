//! A receive thread sleeps, and a user's thread creates work that is due before its wake-up. It must not rely on a
//! frame to wake it, because the only frame expected may be lost.
//!
//! Time is stopped here, so only a call can end such a sleep.

mod pair;
mod world;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use dev::WaitOutcome;
use every_arch::every_arch;
use heddle::mem::MemConfig;
use heddle::{Architecture, Connect, Stack, TcpListener, TcpStream, UdpSocket};
use world::World;

/// Whether the architecture hands a user's call to the polling thread: the call itself then wakes that thread, and
/// timers run there.
fn hands_over(arch: Architecture) -> bool {
    arch.properties().polling_thread_owns || ["connp-t", "conn-thread", "layer"].contains(&arch.family())
}

/// The outcome of the sleep of `b`'s driver, which is asleep when `act` runs.
fn sleep_and(world: &mut World, act: impl FnOnce(&Stack)) -> WaitOutcome {
    let stack = world.b.clone();
    let driver = world.drivers().last_mut().expect("b has a driver");
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| driver.wait(None));
        while !stack.inner_stack().shared().links().alarms().sleeps(0) {
            thread::yield_now();
        }
        act(&stack);
        sleeper.join().expect("the driver wakes")
    })
}

/// A world at rest, with stacks that know each other's link addresses.
fn quiet(arch: Architecture, link: MemConfig) -> World {
    let mut world = World::with(arch, |_| {}, link);
    for (stack, other) in [(&world.a, "10.0.0.2:9"), (&world.b, "10.0.0.1:9")] {
        let socket = UdpSocket::bind(stack, "0.0.0.0:0").expect("a port");
        socket.send_to(b"hello", other).expect("sent");
    }
    world.pass(Duration::from_secs(600));
    world
}

fn connect(stack: &Stack, remote: &str) -> TcpStream {
    let remote: SocketAddr = remote.parse().expect("an address");
    Connect::new().start(stack, remote).expect("a connection to be")
}

#[every_arch]
fn a_request_for_a_neighbour_will_be_repeated(arch: Architecture) {
    if hands_over(arch) {
        return;
    }
    testbed::limit::within(move || {
        let mut world = quiet(arch, MemConfig::default());
        let outcome = sleep_and(&mut world, |stack| {
            UdpSocket::bind(stack, "0.0.0.0:0").expect("a port").send_to(b"anybody?", "10.0.0.9:53").expect("sent");
        });
        assert_eq!(outcome, WaitOutcome::Woken);
    });
}

#[every_arch]
fn a_syn_will_be_repeated(arch: Architecture) {
    if hands_over(arch) {
        return;
    }
    testbed::limit::within(move || {
        let mut world = quiet(arch, MemConfig::default());
        let mut opened = None;
        assert_eq!(sleep_and(&mut world, |stack| opened = Some(connect(stack, "10.0.0.1:80"))), WaitOutcome::Woken);
    });
}

#[every_arch]
fn data_will_be_repeated(arch: Architecture) {
    if hands_over(arch) {
        return;
    }
    testbed::limit::within(move || {
        let mut world = quiet(arch, MemConfig::default());
        let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
        let client = connect(&world.b, "10.0.0.1:80");
        world.settle();
        let (_server, _) = listener.accept().expect("the same");
        world.pass(Duration::from_secs(600));
        let outcome = sleep_and(&mut world, |_| {
            std::io::Write::write_all(&mut &client, b"hello").expect("room");
        });
        assert_eq!(outcome, WaitOutcome::Woken);
    });
}

/// No event signals room, so the driver of the queue must check.
#[every_arch]
fn what_waits_for_room_in_the_device_will_be_sent(arch: Architecture) {
    if hands_over(arch) {
        return;
    }
    testbed::limit::within(move || {
        let mut world = quiet(arch, MemConfig { ring_frames: 8, ..MemConfig::default() });
        let receiver = UdpSocket::bind(&world.a, "10.0.0.1:53").expect("the port is free");
        let outcome = sleep_and(&mut world, |stack| {
            let sender = UdpSocket::bind(stack, "10.0.0.2:53").expect("the port is free");
            for number in 0..20 {
                sender.send_to(&[number], "10.0.0.1:53").expect("sent, or put off");
            }
        });
        assert_eq!(outcome, WaitOutcome::Woken);
        world.pass(Duration::from_secs(1));
        receiver.set_nonblocking(true).unwrap();
        let mut data = [0; 10];
        let came: Vec<u8> = std::iter::from_fn(|| receiver.recv_from(&mut data).ok().map(|_| data[0])).collect();
        assert_eq!(came, (0..20).collect::<Vec<u8>>());
    });
}
