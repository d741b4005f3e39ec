//! The cost of the established path in heap allocations and hold-sets per segment.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use support::endpoint::{Driver, Endpoint, Setup};
use support::script::{Script, peer};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread.
struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator; counting touches only a thread-local integer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn modern() -> Script {
    Script::connected(Setup::default(), |syn| syn.sack_permitted().scale(7).ts(7, 1000))
}

#[test]
fn data_in_order_allocates_nothing() {
    let mut t = modern();
    t.us.sent.reserve(1000);
    t.us.received.reserve(1 << 20);
    let mut seq = 1;
    let mut during = 0;
    for round in 0..41 {
        for _ in 0..10 {
            let segment = t.segment(&peer(".").seq(seq).len(1000).ts(7, 1000));
            seq += 1000;
            let before = allocations();
            t.us.segment_arrives(segment, t.now);
            // With the second ten it is more than a request, and its window is measured.
            during += if round < 2 { 0 } else { allocations() - before };
        }
        t.read();
        t.us.sent.clear();
    }
    assert_eq!(during, 0, "heap allocations for 390 segments in order");
}

#[test]
fn acknowledgements_and_the_data_they_let_out_allocate_nothing() {
    let mut t = modern();
    t.us.sent.reserve(1000);
    let mut during = 0;
    for round in 0..40 {
        t.send(8 * 988);
        let acked = 1 + 8 * 988 * (round + 1);
        let segment = t.segment(&peer(".").ack(acked).ts(7, 1000));
        let before = allocations();
        t.us.segment_arrives(segment, t.now);
        during += if round == 0 { 0 } else { allocations() - before };
        t.us.sent.clear();
    }
    assert_eq!(during, 0, "heap allocations for 39 acknowledgements");
}

fn hold_sets(end: &Endpoint) -> u64 {
    match &end.driver {
        Some(Driver::Staged(pcb)) => pcb.hold_sets,
        _ => unreachable!("the driver is staged"),
    }
}

/// The number of guards that a staged driver takes is the cost by which TCP-1, TCP-2 and TCP-6 are compared.
#[test]
fn hold_sets_per_segment() {
    let mut setup = Setup { staged: true, ..Setup::default() };
    setup.config.quick_acks = 0;
    let mut t = Script::connected(setup, |syn| syn);
    let cost = |t: &mut Script, act: &dyn Fn(&mut Script)| {
        let before = hold_sets(&t.us);
        act(t);
        hold_sets(&t.us) - before
    };
    assert_eq!(cost(&mut t, &|t| t.inject(peer(".").len(1000))), 5, "text: header, window, ACK, text, header out");
    assert_eq!(cost(&mut t, &|t| t.inject(peer(".").seq(1001).len(1000))), 5, "the same with an acknowledgement");
    assert_eq!(cost(&mut t, &|t| _ = t.read()), 1, "a read that moves no window");
    assert_eq!(cost(&mut t, &|t| _ = t.send(100)), 1, "a write");
    assert_eq!(cost(&mut t, &|t| t.inject(peer(".").seq(2001).ack(101))), 3, "an acknowledgement with nothing to send");
    t.inject(peer(".").seq(2001).ack(101).len(10));
    assert_eq!(cost(&mut t, &|t| _ = t.send(100)), 2, "a write that carries the delayed acknowledgement");
}
