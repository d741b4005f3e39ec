//! Which threads wait for which: one thread is stopped in the device while it sends for a connection, with all the
//! locks that it holds then, and other threads enter the stack.

use every_arch::every_arch;
use stack::Architecture;
use stack::call::Call;
use sync::LockClass::{self, ConnTable};
use testbed::frames::Ends;
use testbed::node::send;

use crate::bench::Bench;
use crate::scene::{Observed, State, TEST};

const WRITER: &str = "writer";
const OTHER: &str = "other";
const THIRD: &str = "third";

fn read() -> Call<Observed> {
    Call::Receive(tcp::Receive { max: 10 })
}

/// The outcome of a thread: it ends, or it sleeps with these locks.
#[derive(Debug, PartialEq, Eq)]
enum Comes {
    Through,
    UpTo(Vec<LockClass>),
}

fn comes(bench: &Bench, thread: &str) -> Comes {
    let over = |state: &State| state.done.contains(thread) || state.asleep.contains_key(thread);
    let state = bench.scene.until(over);
    if state.done.contains(thread) { Comes::Through } else { Comes::UpTo(state.asleep[thread].clone()) }
}

/// Two connections, of cells `a` and `b` out of 1024. A thread is stopped while it sends for the first; another reads
/// from the second. `judge` examines that thread while the first is still stopped.
fn second_connection(arch: Architecture, ends: Ends, (a, b): (usize, usize), judge: impl FnOnce(&Bench)) {
    let mut bench = Bench::with_threads(arch, ends);
    let (first, second) = bench.ports(1024, a, b);
    let (one, two) = (bench.connect(first), bench.connect(second));
    // Under `up` the thread that polls owns the stack; it releases it here, so that callers may enter.
    bench.driver.rest();
    let opens = bench.scene.opens();
    let writer = bench.stop_in_a_write(WRITER, &one);
    let other = bench.calls(OTHER, &two, read());
    judge(&bench);
    drop(opens);
    writer.join();
    other.join();
}

fn goes_through(bench: &Bench) {
    drop(bench.scene.until(|state| state.done.contains(OTHER)));
}

fn waits(bench: &Bench) {
    assert_eq!(comes(bench, OTHER), Comes::UpTo(vec![]));
}

/// There is one cell: a thread waits for the thread inside, whichever connections the two want.
#[every_arch(only(up, giant))]
fn a_thread_in_the_stack_keeps_all_others_out(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        second_connection(arch, ends, (0, 1), waits);
    }
}

/// "The number of groups may far exceed the number of threads" (Willmann, 3.2.2), and so for shards: cells are
/// independent.
#[every_arch(only(
    connp_l_4,
    connp_l_128,
    connp_l_1024,
    connp_t,
    connp_t_spsc,
    conn_thread_2,
    squeue_fill,
    squeue_nodrain,
    squeue_process,
    squeue_process_poll
))]
fn a_busy_cell_does_not_block_other_cells(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        second_connection(arch, ends, (0, 1), goes_through);
    }
}

/// The same once `adaptive` has several groups for each receive thread.
#[test]
fn a_busy_group_does_not_block_other_groups() {
    for ends in Ends::BOTH_FAMILIES {
        second_connection(Architecture::named("adaptive:16"), ends, (0, 1), goes_through);
    }
}

/// All connections of a cell are served by one lock, thread or flag.
#[every_arch(only(
    adaptive,
    connp_l_4,
    connp_l_128,
    connp_l_1024,
    connp_t,
    connp_t_spsc,
    conn_thread_2,
    squeue_fill,
    squeue_nodrain,
    squeue_process,
    squeue_process_bind,
    squeue_process_poll
))]
fn a_busy_cell_serves_one_connection_at_a_time(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        second_connection(arch, ends, (5, 5), waits);
    }
}

/// Willmann, 3.1: MsgP permits threads "to process messages independently": a connection is a cell of its own, whatever
/// its hash is. With `+coupled` too, as long as no thread waits for the busy connection.
#[every_arch(only(
    msgp_1,
    msgp_2,
    msgp_6,
    msgp_1_coupled,
    msgp_2_coupled,
    msgp_6_coupled,
    msgp_pool,
    backlog,
    backlog_processor,
    netisr_hybrid,
    netisr_deferred,
    steal,
    softint,
    softint_polling
))]
fn a_busy_connection_does_not_block_other_connections(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        second_connection(arch, ends, (5, 5), goes_through);
    }
}

/// Three threads: one is stopped while it sends for a connection, one wants the same connection, and one another
/// connection. The outcomes of the second and the third thread.
fn a_second_for_the_same(arch: Architecture, ends: Ends) -> [Comes; 2] {
    let mut bench = Bench::with_threads(arch, ends);
    let (first, second) = bench.ports(1024, 0, 1);
    let (one, two) = (bench.connect(first), bench.connect(second));
    let opens = bench.scene.opens();
    let writer = bench.stop_in_a_write(WRITER, &one);
    let other = bench.calls(OTHER, &one, send(b"more"));
    let second_comes = comes(&bench, OTHER);
    let third = bench.calls(THIRD, &two, read());
    let third_comes = comes(&bench, THIRD);
    drop(opens);
    [writer, other, third].into_iter().for_each(crate::scene::Thread::join);
    [second_comes, third_comes]
}

/// A thread that waits for a connection has released the table lock, and others look up theirs meanwhile.
#[every_arch(only(
    msgp_1,
    msgp_2,
    msgp_6,
    backlog,
    backlog_processor,
    netisr_hybrid,
    netisr_deferred,
    steal,
    softint,
    softint_polling
))]
fn a_thread_that_waits_for_a_connection_holds_nothing(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(a_second_for_the_same(arch, ends), [Comes::UpTo(vec![]), Comes::Through]);
    }
}

/// Willmann, 4.1: "when a Connection lock is contended (...), a thread blocks longer holding the global Connection
/// Hashtable lock, preventing other threads from making progress."
#[every_arch(only(msgp_1_coupled, msgp_2_coupled, msgp_6_coupled))]
fn a_thread_that_waits_for_a_connection_holds_the_table(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(a_second_for_the_same(arch, ends), [Comes::UpTo(vec![ConnTable]), Comes::UpTo(vec![])]);
    }
}

/// "Usually between the kernel's inbound protocol thread and an application's sending thread": a segment of the busy
/// connection arrives, and a third thread wants another connection. The locks of the receive thread while it waits, and
/// the outcome of the third thread.
fn a_segment_for_the_same(arch: Architecture, ends: Ends) -> (Vec<LockClass>, Comes) {
    let mut bench = Bench::with_threads(arch, ends);
    let (first, second) = bench.ports(1024, 0, 1);
    let (mut one, two) = (bench.connect(first), bench.connect(second));
    let writer = bench.stop_in_a_write(WRITER, &one);
    let frame = one.data(b"text");
    bench.put(&frame);
    let (scene, stack, target) = (bench.scene.clone(), bench.stack.clone(), two.socket.target());
    let (tell, told) = std::sync::mpsc::channel();
    // The thread of the test is the receive thread and will wait, so another thread observes.
    let looks = bench.scene.spawn("looks", move || {
        let _opens = scene.opens();
        let held = scene.until(|state| state.asleep.contains_key(TEST)).asleep[TEST].clone();
        let third = scene.spawn(THIRD, move || drop(stack.call(&target, read())));
        let state = scene.until(|state| state.done.contains(THIRD) || state.asleep.contains_key(THIRD));
        let comes = state.asleep.get(THIRD).map_or(Comes::Through, |held| Comes::UpTo(held.clone()));
        drop(state);
        scene.open();
        third.join();
        tell.send((held, comes)).expect("the test listens");
    });
    bench.driver.poll();
    looks.join();
    writer.join();
    told.recv().expect("it was seen")
}

#[every_arch(only(msgp_1, msgp_2, msgp_6))]
fn a_segment_that_waits_for_its_connection_holds_nothing(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(a_segment_for_the_same(arch, ends), (vec![], Comes::Through));
    }
}

/// With two locks or six it waits for the send side, in which the acknowledgement number is processed.
#[every_arch(only(msgp_1_coupled, msgp_2_coupled, msgp_6_coupled))]
fn a_segment_that_waits_for_its_connection_holds_the_table(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(a_segment_for_the_same(arch, ends), (vec![ConnTable], Comes::UpTo(vec![])));
    }
}

/// One connection: a thread is stopped while it sends, and another reads. The outcome of the reader.
fn reader_beside_a_writer(arch: Architecture, ends: Ends) -> Comes {
    let mut bench = Bench::with_threads(arch, ends);
    let port = bench.ports(2, 0, 1).0;
    let connection = bench.connect(port);
    let opens = bench.scene.opens();
    let writer = bench.stop_in_a_write(WRITER, &connection);
    let reader = bench.calls(OTHER, &connection, read());
    let comes = comes(&bench, OTHER);
    drop(opens);
    writer.join();
    reader.join();
    comes
}

/// TCP-1: the connection is one. So it is for its owner.
#[every_arch(only(msgp_1, backlog, backlog_processor, steal))]
fn one_lock_keeps_a_reader_from_a_writers_connection(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(reader_beside_a_writer(arch, ends), Comes::UpTo(vec![]));
    }
}

/// TCP-2 and TCP-6: "send-side state, receive-side state".
#[every_arch(only(msgp_2, msgp_6, msgp_2_coupled, msgp_6_coupled))]
fn a_reader_passes_a_writer_of_the_same_connection(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert_eq!(reader_beside_a_writer(arch, ends), Comes::Through);
    }
}
