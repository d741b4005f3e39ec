//! How `msgp-pool` counts the holders of a connection (Nahum et al. 1994, "Atomic increment/decrement"): by an atomic
//! instruction or under a lock.

use every_arch::every_arch;
use stack::Architecture;
use stack::call::{Call, Reply};
use sync::LockClass::{ConnTable, Holders};
use sync::{LockKind, RefCounting};
use testbed::frames::Ends;

use crate::bench::Bench;
use crate::events::{SEGMENTS, walks, walks_on};
use crate::walk::{Moment, What, count, taken};

const LOCKED: RefCounting = RefCounting::Locked(LockKind::Blocking);

/// Every pool: one lock, two and six, with and without order.
const POOLS: [&str; 5] =
    ["msgp-pool", "msgp-pool:2", "msgp-pool:6", "msgp-pool+tas+unordered", "msgp-pool:6+mcs+unordered"];

/// The walk without the locks of counts.
fn other_steps(walk: &[Moment]) -> Vec<What> {
    let of_counts = |moment: &&Moment| !matches!(moment.what, What::Takes(Holders) | What::Releases(Holders));
    walk.iter().filter(of_counts).map(|moment| moment.what).collect()
}

/// A look-up counts its thread in while it holds the table; the thread counts itself out when it holds nothing. So an event
/// takes the lock of the count twice, and is otherwise what it was.
#[test]
fn an_event_takes_the_lock_of_a_count_twice() {
    for (name, ends) in POOLS.into_iter().flat_map(|name| Ends::BOTH_FAMILIES.map(|ends| (name, ends))) {
        let arch = Architecture::named(name);
        let (plain, locked) = (walks(arch, ends), walks_on(Bench::that_counts(arch, ends, LOCKED)));
        for (plain, locked) in plain.of_data().into_iter().zip(locked.of_data()) {
            assert_eq!(other_steps(locked), other_steps(plain), "{name}");
            let held: Vec<_> = locked
                .iter()
                .filter(|moment| moment.what == What::Takes(Holders))
                .map(|moment| &moment.held[..])
                .collect();
            let events = count(plain, What::Takes(ConnTable));
            assert_eq!(held, [&[ConnTable][..], &[]].repeat(events), "{name}: {locked:?}");
            assert!(
                locked.iter().all(|moment| !moment.held.contains(&Holders) || moment.what == What::Releases(Holders))
            );
        }
        assert_eq!(count(&locked.data, What::Takes(Holders)), 2 * SEGMENTS, "{name}");
    }
}

/// An atomic instruction takes no lock.
#[test]
fn an_atomic_count_takes_no_lock() {
    for (name, ends) in POOLS.into_iter().flat_map(|name| Ends::BOTH_FAMILIES.map(|ends| (name, ends))) {
        let arch = Architecture::named(name);
        let (plain, atomic) = (walks(arch, ends), walks_on(Bench::that_counts(arch, ends, RefCounting::Atomic)));
        for (plain, atomic) in plain.all().into_iter().zip(atomic.all()) {
            assert_eq!(taken(atomic), taken(plain), "{name}");
        }
    }
}

/// No other architecture pays for the choice.
#[every_arch(except(msgp_pool))]
fn others_count_as_before(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (plain, locked) = (walks(arch, ends), walks_on(Bench::that_counts(arch, ends, LOCKED)));
        for (plain, locked) in plain.all().into_iter().zip(locked.all()) {
            assert_eq!(taken(locked), taken(plain));
        }
    }
}

/// Connections leave the pool with their last reference, and enter it with their first.
#[test]
fn a_switch_takes_connections_along() {
    for (counting, ends) in [LOCKED, RefCounting::Atomic].into_iter().zip(Ends::BOTH_FAMILIES) {
        let mut bench = Bench::that_counts(Architecture::named("msgp-pool"), ends, counting);
        let mut connection = bench.connect(2000);
        for name in ["connp-l:4", "msgp-pool:6", "msgp:2", "msgp-pool+mcs"] {
            bench.stack.set_architecture(Architecture::named(name)).expect("it is at rest");
            let data = connection.data(name.as_bytes());
            bench.put(&data);
            bench.settle();
            let reply = bench.call(&connection, Call::Receive(tcp::Receive { max: 100 }));
            let Reply::Received(Ok(received)) = reply else { panic!("{name}: nothing is received") };
            let bytes: Vec<u8> = received.data.iter().flat_map(|data| data.iter().copied()).collect();
            assert_eq!(bytes, name.as_bytes());
        }
    }
}
