//! The cost of finding a connection, with 1 to 100 000 of them, and the cost of the timer wheel. Prints nanoseconds and
//! ratios, asserts nothing about time; `--smoke` runs a little of everything.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use observe::Time;
use stack::secrets::Secrets;
use stack::table::index::Index;
use stack::timers::{TimerPlace, Wheel};
use wire::{FlowMark, FourTuple};

/// As large as a connection with its PCB.
struct Connection {
    tuple: FourTuple,
    pcb: [u64; 60],
}

/// Stands for a device's hash, which costs the stack nothing.
fn mark(tuple: &FourTuple) -> FlowMark {
    FlowMark::of(u32::from(tuple.remote_port).wrapping_mul(0x85eb_ca6b), tuple)
}

fn tuple(n: u32) -> FourTuple {
    FourTuple {
        local_addr: IpAddr::V4([10, 0, 0, 1].into()),
        remote_addr: IpAddr::V4((0x0a01_0000 + n / 50_000).into()),
        local_port: 80,
        remote_port: 10_000 + (n % 50_000) as u16,
    }
}

/// Nanoseconds for one call of `work`, the least of five rounds of `n`.
fn time(n: u32, mut work: impl FnMut(u32)) -> f64 {
    let round = |work: &mut dyn FnMut(u32)| {
        let start = Instant::now();
        (0..n).for_each(work);
        start.elapsed().as_nanos() as f64 / f64::from(n)
    };
    (0..5).map(|_| round(&mut work)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke");
    let lookups = if smoke { 1_000 } else { 1_000_000 };
    let mut first = 0.0;
    println!("finding a connection in random order (keyed hash, cold and warm caches as they come):");
    for connections in [1, 10, 100, 1_000, 10_000, 100_000u32] {
        let (mut index, mut table) = (Index::new(&Secrets::from_seed(1)), Vec::new());
        for n in 0..connections {
            let absent = index.find(&tuple(n), mark(&tuple(n)), |_| false).expect_err("every tuple is new");
            table.push((Connection { tuple: tuple(n), pcb: [0; 60] }, absent));
            index.insert(n, mark(&tuple(n)), absent, |other| table[other as usize].1);
        }
        let mut seed = 1u32;
        let ns = time(lookups, |_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let tuple = tuple((seed >> 8) % connections);
            let has = |slot: u32| table.get(slot as usize).is_some_and(|(connection, _)| connection.tuple == tuple);
            let found = index.find(black_box(&tuple), mark(&tuple), has);
            let connection = found.ok().and_then(|slot| table.get(slot as usize));
            assert!(connection.is_some_and(|(connection, _)| black_box(connection.pcb[0]) == 0), "it is in the table");
        });
        first = if connections == 1 { ns } else { first };
        println!("{connections:>8} connections: {ns:6.1} ns, {:5.2} times one connection", ns / first);
    }
    let mut wheel = Wheel::new(Time::ZERO);
    let slots = 16_384;
    let mut timers = vec![TimerPlace::UNARMED; slots as usize];
    let mut now = 0u64;
    let ns = time(lookups, |n| {
        let slot = n % slots;
        wheel.cancel(timers[slot as usize], slot);
        now += 50;
        wheel.arm(&mut timers[slot as usize], slot, Time::from_nanos(now + 200_000_000));
    });
    println!("timer wheel, cancel and arm with {slots} timers: {ns:.1} ns");
}
