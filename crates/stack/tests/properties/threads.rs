//! The threads that an architecture has of its own: which of them a call waits for, and when they end.

use every_arch::every_arch;
use observe::DropReason;
use stack::Architecture;
use testbed::frames::Ends;

use crate::bench::{Bench, CELLS};
use crate::scene::State;

/// A stack that is dropped has ended the threads of its architecture, also those that sleep.
#[every_arch]
fn the_threads_of_an_architecture_end_with_its_stack(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        bench.connect(2000);
        let scene = bench.scene.clone();
        drop(bench);
        assert!(scene.state().own_threads_have_ended(), "{:?}", *scene.state());
    }
}

/// A thread of an architecture's own is pinned: that of number `n` to CPU `n`. Under `layer`, IP has a CPU beside that of the
/// transport protocols.
#[every_arch]
fn the_threads_of_an_architecture_are_pinned_one_to_each_cpu(arch: Architecture) {
    let bench = Bench::with_threads(arch, Ends::BOTH_FAMILIES[0]);
    for (name, cpu) in &bench.scene.state().pinned {
        let (kind, number) = name.split_at(name.find(|c: char| c.is_ascii_digit()).expect("its number"));
        let first = usize::from(kind == "heddle-ip");
        assert_eq!(number.parse(), Ok(cpu - first), "{name} is on CPU {cpu}");
    }
    let pinned = bench.scene.state().pinned.len();
    let threads = if arch.properties().own_threads && !arch.to_string().ends_with("+polling") { CELLS } else { 0 };
    assert_eq!(pinned, threads, "{:?}", bench.scene.state().pinned);
}

/// A segment that is dropped below the connections is counted, whichever thread examines it.
#[every_arch]
fn a_dropped_segment_is_counted_whichever_thread_examines_it(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let mut connection = bench.connect(2000);
        let mut frame = connection.data(b"data");
        *frame.last_mut().expect("it has data") ^= 1;
        bench.put(&frame);
        bench.settle();
        let by_stack = bench.stack.stats().counters.dropped(DropReason::TcpBadChecksum);
        assert_eq!(by_stack + bench.driver.counters().dropped(DropReason::TcpBadChecksum), 1);
    }
}

/// Whether `listen()` returns while the second protocol thread is busy and does not look into its queue.
fn returns_before_the_second_thread_knows(arch: &str, ends: Ends) -> bool {
    const NAME: &str = "listens";
    let mut bench = Bench::with_threads(Architecture::named(arch), ends);
    let (_, second) = bench.ports(CELLS, 0, 1);
    let busy = bench.connect(second);
    let opens = bench.scene.opens();
    let writer = bench.stop_in_a_write("writer", &busy);
    assert!(bench.scene.state().stopped.contains("heddle-pt1"), "{arch}: the owner carries the data down");
    let stack = bench.stack.clone();
    let at = (ends.dst, 81).into();
    let listens = bench.scene.spawn(NAME, move || drop(stack.listen(at, 8, Default::default()).expect("it is free")));
    // The first one sleeps again when it has its replica.
    let waits = |state: &State| state.sleeps(NAME, &[]) && state.sleeps("heddle-pt0", &[]);
    let state = bench.scene.until(|state| state.done.contains(NAME) || waits(state));
    let returned = state.done.contains(NAME);
    drop(state);
    drop(opens);
    listens.join();
    writer.join();
    returned
}

/// DragonFly replicates a listener into every protocol thread. When `listen()` returns, each has its replica; with the fault,
/// only the first.
#[test]
fn listen_waits_for_every_protocol_thread() {
    for (ends, name) in
        Ends::BOTH_FAMILIES.into_iter().flat_map(|ends| ["connp-t", "connp-t:spsc"].map(|name| (ends, name)))
    {
        assert!(!returns_before_the_second_thread_knows(name, ends), "{name}");
        assert!(returns_before_the_second_thread_knows(&format!("{name}+async-wildcard"), ends), "{name}");
    }
}
