//! Which thread runs what: seen by who gives the segments to the device.

use every_arch::every_arch;
use stack::Plan;
use stack::call::Call;
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::{Bench, Connection};
use crate::scene::TEST;

const CALLER: &str = "caller";

/// The thread of the architecture's own that serves this cell.
fn own(plan: Plan, cell: usize) -> String {
    let name = plan.to_string();
    format!("heddle-{}{cell}", if name.starts_with("squeue") { "sq" } else { "pt" })
}

/// Who has to answer a segment of this connection that the test's thread has received.
fn answers(plan: Plan, cell: usize) -> String {
    match plan.to_string().as_str() {
        "connp-t" | "connp-t:spsc" | "squeue:fill" => own(plan, cell),
        _ => TEST.to_owned(),
    }
}

/// Who has to run what a caller asks of an idle connection.
fn runs_calls(plan: Plan, cell: usize) -> String {
    match plan.to_string().as_str() {
        "up" => TEST.to_owned(),
        "connp-t" | "connp-t:spsc" => own(plan, cell),
        // Of squeue in all three modes: its caller sleeps anyway until the call is done (`squeue_synch_enter`).
        _ => CALLER.to_owned(),
    }
}

/// The peer's FIN with payload: it is answered at once.
fn fin(connection: &mut Connection) -> Vec<u8> {
    connection.segment(TcpFlags::FIN | TcpFlags::PSH, b"the end")
}

/// Two connections of each of two cells, from which one batch has a segment each. The batch is received by the test's thread,
/// which then does nothing more: whoever has to answer is told by the end of the batch.
#[every_arch]
fn a_batch_for_several_cells_is_answered_by_the_threads_of_these_cells(plan: Plan) {
    let mut bench = Bench::with_threads(plan);
    let mut connections: Vec<_> = [(0, 2000), (1, 3000), (1, 4000), (0, 5000)]
        .into_iter()
        .map(|(cell, from)| {
            let port = bench.port_from(2, cell, from);
            bench.connect(port)
        })
        .collect();
    bench.scene.state().sent.clear();
    let frames: Vec<_> = connections.iter_mut().map(fin).collect();
    frames.iter().for_each(|frame| bench.put(frame));
    assert_eq!(bench.driver.poll(), frames.len(), "one batch");
    let all = |state: &crate::scene::State| connections.iter().all(|c| !state.senders(c.port).is_empty());
    let state = bench.scene.until(all);
    for connection in &connections {
        assert_eq!(state.senders(connection.port), [answers(plan, bench.cell(connection))]);
    }
}

/// The user's thread asks; where somebody else has to do it, that is who does.
#[every_arch]
fn a_call_is_run_by_the_thread_that_the_architecture_says(plan: Plan) {
    let mut bench = Bench::with_threads(plan);
    let (a, b) = bench.ports(2, 0, 1);
    for port in [a, b] {
        let connection = bench.connect(port);
        bench.scene.state().sent.clear();
        let caller = bench.calls(CALLER, &connection, send(b"text"));
        bench.poll_until_done(CALLER);
        caller.join();
        bench.scene.state().done.clear();
        assert_eq!(bench.scene.state().senders(port), [runs_calls(plan, bench.cell(&connection))]);
    }
}

/// Under `up` the thread that polls has the stack, also if another one has used it before: that one gives it back.
#[every_arch(only(up))]
fn who_polls_owns_the_stack_and_who_set_it_up_does_not(plan: Plan) {
    let mut bench = Bench::with_threads(plan);
    let mut connection = bench.connect(2000);
    bench.driver.rest();
    let caller = bench.calls(CALLER, &connection, send(b"while nobody polls"));
    caller.join();
    assert_eq!(bench.scene.state().sent.last().expect("a segment").by, CALLER, "nobody owned the stack");
    let frame = fin(&mut connection);
    bench.put(&frame);
    bench.driver.poll();
    assert_eq!(bench.scene.state().sent.last().expect("an answer").by, TEST);
}

/// A shard is in use when a segment arrives: it is queued, and its bringer does not wait. When the shard is left, the segment
/// is run without anything more happening: by who leaves, in the mode that drains, else by the worker.
#[every_arch(only(squeue_fill, squeue_nodrain, squeue_process))]
fn what_is_queued_is_run_by_who_leaves_or_by_the_worker(plan: Plan) {
    let mut bench = Bench::with_threads(plan);
    let (first, second) = bench.ports(1024, 5, 5);
    let (one, mut two) = (bench.connect(first), bench.connect(second));
    let drains = if plan.to_string() == "squeue:process" { "writer".to_owned() } else { own(plan, bench.cell(&one)) };
    let opens = bench.scene.opens();
    let writer = bench.stop_in_a_write("writer", &one);
    bench.scene.state().sent.clear();
    let frame = fin(&mut two);
    bench.put(&frame);
    bench.driver.poll();
    // Behind the segment in the queue, and behind nothing else.
    let caller = bench.calls(CALLER, &two, send(b"text"));
    drop(bench.scene.until(|state| state.sleeps(CALLER, &[])));
    assert!(bench.scene.state().sent.is_empty(), "nobody else is let in meanwhile");
    drop(opens);
    writer.join();
    caller.join();
    let state = bench.scene.until(|state| state.sent.len() == 2);
    assert_eq!(state.senders(second), [drains.as_str(); 2]);
    assert_eq!(state.sent.iter().map(|sent| sent.len).collect::<Vec<_>>(), [0, 4], "in the order of the queue");
}

/// Who is not the worker drains a bounded number of events for others: 256 here. The rest is the worker's.
#[every_arch(only(squeue_process))]
fn a_caller_does_not_drain_without_end(plan: Plan) {
    /// Batches of 64 segments, each of which is acknowledged once: four are as much as a caller drains.
    const BATCHES: usize = 6;
    let mut bench = Bench::with_threads(plan);
    let (first, second) = bench.ports(1024, 5, 5);
    let (one, mut two) = (bench.connect(first), bench.connect(second));
    let worker = own(plan, bench.cell(&one));
    let opens = bench.scene.opens();
    let writer = bench.stop_in_a_write("writer", &one);
    for _ in 0..BATCHES {
        let frames: Vec<_> = (0..64).map(|_| two.data(&[7; 40])).collect();
        frames.iter().for_each(|frame| bench.put(frame));
        assert_eq!(bench.driver.poll(), 64);
    }
    bench.scene.state().sent.clear();
    drop(opens);
    writer.join();
    let acknowledged = |state: &crate::scene::State| state.senders(second).len() >= BATCHES;
    let state = bench.scene.until(acknowledged);
    let by = |thread: &str| state.senders(second).into_iter().filter(|by| *by == thread).count();
    assert_eq!((by("writer"), by(&worker)), (4, BATCHES - 4), "{:?}", state.sent);
}

/// A call that the owner of a connection makes itself is run at once, and what it has left to do is done when it returns: the
/// device is told, and whoever waits for the socket.
#[every_arch]
fn what_a_call_on_the_owners_thread_leaves_to_do_is_done(plan: Plan) {
    let mut bench = Bench::on_one_thread(plan);
    let (a, b) = bench.ports(2, 0, 1);
    for port in [a, b] {
        let connection = bench.connect(port);
        let set = stack::socket::PollSet::new(false).expect("a set");
        connection.socket.ready.register(&connection.socket, &set, 7);
        let mut events = Vec::new();
        set.try_wait(&mut events, 8);
        bench.call(&connection, send(b"text"));
        assert!(!bench.scene.state().unflushed, "the device was told of the segment");
        assert!(bench.collect() > 0);
        bench.call(&connection, Call::Abort(tcp::Abort));
        assert!(!bench.scene.state().unflushed, "the device was told of the reset");
        assert_eq!(set.try_wait(&mut events, 8), 1, "whoever watches the socket is told that it is closed");
        assert!(events[0].ready.contains(stack::socket::Readiness::CLOSED));
    }
}
