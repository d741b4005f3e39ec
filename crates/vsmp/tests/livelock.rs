//! Receive livelock: how much an application reads of more datagrams than its CPU can process, by the number of frames that a
//! hardware interrupt handler takes, and by the priority of the thread that processes them.

use std::net::SocketAddr;
use std::time::Duration;

use frames::{Datagram, Ends};
use stack::Architecture;
use vsmp::workload::overload::{CPUS, Goodput, Overload, card, interrupts_first};
use vsmp::{Arena, Costs, Machine};

#[global_allocator]
static ARENA: Arena = Arena::new();

const PORT: u16 = 9;
/// More than can be processed.
const TOO_MUCH: u64 = 4_000_000;
/// Offered loads, in percent of the capacity.
const LOADS: [u64; 6] = [50, 100, 150, 200, 300, 400];

/// The thread that takes frames from the card.
const HANDLER: bool = true;
const THREAD: bool = false;

fn run(arch: &str, interrupts: bool, ends: Ends, rate: u64) -> Goodput {
    let overload = Overload {
        arch: Architecture::named(arch),
        card: card(),
        frame: Datagram::new(2000, PORT, b"text").frame_over(ends),
        to: SocketAddr::new(ends.dst, PORT),
        from: ends.src,
        rate,
        interrupts,
        warm_up: Duration::from_millis(10),
        time: Duration::from_millis(30),
    };
    Machine::new(CPUS, interrupts_first(Costs::opteron_275())).run(move || overload.run()).0
}

/// The goodput at each of [`LOADS`]. The capacity is the goodput of a thread that polls fairly, under any load.
struct Curve {
    capacity: u64,
    points: [Goodput; LOADS.len()],
}

impl Curve {
    fn of(arch: &str, interrupts: bool, ends: Ends) -> Curve {
        let capacity = run("softint+polling", THREAD, ends, TOO_MUCH).read;
        let points = LOADS.map(|load| run(arch, interrupts, ends, capacity * load / 100));
        assert!(points[0].read * 10 > capacity * 4, "{arch}: half the capacity is processed: {points:?}");
        Curve { capacity, points }
    }

    fn peak(&self) -> u64 {
        self.points.iter().map(|at| at.read).max().expect("there are loads")
    }

    fn last(&self) -> Goodput {
        self.points[LOADS.len() - 1]
    }

    /// At four times the capacity the application reads almost nothing, and the CPU has worked for frames that are then
    /// dropped.
    fn collapses(&self) {
        assert!(self.last().read * 20 < self.peak(), "{:?}", self.points);
        assert!(self.last().unprocessed + self.last().unread > self.capacity, "{:?}", self.points);
    }
}

/// "It reduces execution periods of hardware interrupt handlers and prevents interrupt overload causing livelock": the
/// goodput stays at 16 frames for each interrupt, and the card drops the excess.
#[test]
fn goodput_stays_where_a_hard_handler_takes_a_bounded_number_of_frames() {
    for ends in Ends::BOTH_FAMILIES {
        let curve = Curve::of("softint", HANDLER, ends);
        let last = curve.last();
        assert!(last.read * 100 >= curve.peak() * 95, "{:?}", curve.points);
        assert!(curve.peak() <= 16 * 1_000_000_000 / card().interrupt_gap * 102 / 100, "{:?}", curve.points);
        assert_eq!((last.unprocessed, last.unread), (0, 0), "{:?}", curve.points);
    }
}

/// "It would easily migrate to the polling model": a thread that polls a bounded number of frames and lets the application run
/// loses nothing up to its capacity, and keeps its goodput beyond.
#[test]
fn goodput_stays_where_a_thread_polls_fairly() {
    for ends in Ends::BOTH_FAMILIES {
        let curve = Curve::of("softint+polling", THREAD, ends);
        assert!(curve.points[1..].iter().all(|at| at.read * 100 >= curve.peak() * 95), "{:?}", curve.points);
    }
}

/// Mogul and Ramakrishnan: "the system spends all its time processing interrupts, to the exclusion of other necessary tasks".
/// A handler that takes all frames leaves no CPU time to the application that should read them.
#[test]
fn goodput_collapses_where_a_hard_handler_takes_all_frames() {
    for ends in Ends::BOTH_FAMILIES {
        Curve::of("softint:all", HANDLER, ends).collapses();
    }
}

/// A bound helps if it is less than the number of frames that the CPU can process between two interrupts; 64 is more.
#[test]
fn goodput_collapses_where_the_bound_is_more_than_the_cpu_can_process() {
    for ends in Ends::BOTH_FAMILIES {
        Curve::of("softint:64", HANDLER, ends).collapses();
    }
}

/// If a hard handler does all work of the protocols, its datagrams are dropped at the socket, because the application
/// never runs; if a thread with the application's priority does it, they are not.
#[test]
fn goodput_collapses_where_a_hard_handler_does_all_work_of_the_protocols() {
    for ends in Ends::BOTH_FAMILIES {
        Curve::of("msgp:1", HANDLER, ends).collapses();
        let curve = Curve::of("msgp:1", THREAD, ends);
        assert!(curve.last().read * 100 >= curve.peak() * 95, "{:?}", curve.points);
    }
}
