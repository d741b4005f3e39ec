//! A panic outside any event, where no connection can be given up for it: in a device that is notified of frames.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use every_arch::every_arch;
use observe::Counter;
use stack::call::Reply;
use stack::flow::Target;
use stack::socket::Readiness;
use stack::socket::readiness::Watch;
use stack::{Architecture, Stack};
use testbed::frames::Ends;
use testbed::limit::HANG;
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::{Bench, CELLS};
use crate::scene::{Observed, Thread};

/// A thread panics while it drains a shard's queue for others: it has lost the flag, the rest of the queue is run by
/// the worker, and the shard serves later segments.
#[every_arch(only(squeue_process))]
fn a_panic_while_draining_leaves_the_rest_to_the_worker(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let writer = a_writer_panics_while_it_drains(&mut bench);
        drop(writer);
    }
}

/// The call of the thread that drains is done: the segment that panics is another thread's, and so is not its error.
#[every_arch(only(squeue_process))]
fn a_panic_while_draining_does_not_leave_the_call_of_the_thread_that_drains(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::that_contains_panics(arch, ends);
        let writer = a_writer_panics_while_it_drains(&mut bench);
        writer.join();
        assert_eq!(bench.stack.stats().counters.get(Counter::PanicsContained), 1);
    }
}

/// A thread that writes is stopped in the device, the queue of its shard fills, and the first message that it drains
/// panics. Returns when the shard has served all others.
fn a_writer_panics_while_it_drains(bench: &mut Bench) -> Thread {
    let mut from = 2000;
    let [busy, mut first, called, mut queued] = [(); 4].map(|()| {
        let port = bench.port_from(1024, 5, from);
        from = port + 1;
        bench.connect(port)
    });
    let worker = format!("heddle-sq{}", bench.cell(&busy));
    let opens = bench.scene.opens();
    let writer = bench.stop_in_a_write("writer", &busy);
    bench.scene.state().sent.clear();
    let fin = first.segment(TcpFlags::FIN | TcpFlags::PSH, b"the end");
    bench.put(&fin);
    bench.driver.poll();
    // The answer to this call comes before the last message is run, and after the messages that the device must
    // observe.
    let caller = bench.calls("caller", &called, send(b"text"));
    drop(bench.scene.until(|state| state.sleeps("caller", &[])));
    let fin = queued.segment(TcpFlags::FIN | TcpFlags::PSH, b"the end");
    bench.put(&fin);
    bench.driver.poll();
    bench.scene.panic_at_flush();
    drop(opens);
    // The writer drains, and panics.
    drop(bench.scene.until(|state| state.done.contains("writer")));
    let answered = |state: &crate::scene::State| !state.senders(queued.port).is_empty();
    assert_eq!(bench.scene.until(answered).senders(queued.port), [worker.as_str()]);
    caller.join();
    bench.scene.state().sent.clear();
    let again = first.segment(TcpFlags::FIN, b"");
    bench.put(&again);
    bench.driver.poll();
    drop(bench.scene.until(|state| !state.senders(first.port).is_empty()));
    writer
}

/// Notified of data, says so, and waits until the test lets it go on.
struct Waits(Mutex<(Sender<()>, Receiver<()>)>);

impl Watch for Waits {
    fn ready(&self, raised: Readiness, _level: Readiness) {
        if raised.contains(Readiness::READABLE) {
            let steps = self.0.lock().expect("no test panics here");
            steps.0.send(()).expect("the test waits");
            steps.1.recv_timeout(HANG).expect("the test goes on");
        }
    }
}

/// Notified of data, says so, writes to another connection, and says whether that was accepted.
pub struct Asks {
    pub stack: Stack<Observed>,
    pub other: Target,
    pub steps: Mutex<(Sender<()>, Sender<bool>)>,
}

impl Watch for Asks {
    fn ready(&self, raised: Readiness, _level: Readiness) {
        if raised.contains(Readiness::READABLE) {
            let steps = self.steps.lock().expect("no test panics here");
            steps.0.send(()).expect("the test waits");
            let reply = self.stack.call(&self.other, send(b"text"));
            steps.1.send(matches!(reply, Reply::Sent(Ok(_)))).expect("the test waits");
        }
    }
}

/// Hears nothing: replaces a watch that keeps its stack alive.
pub struct Deaf;

impl Watch for Deaf {
    fn ready(&self, _: Readiness, _level: Readiness) {}
}

/// While a user's code on a protocol thread waits for another one, its thread runs segments of other connections. A
/// panic in one of them is not that code's error: its call is answered.
#[every_arch(only(conn_thread_2, connp_t, connp_t_spsc))]
fn a_panic_while_a_user_waits_does_not_leave_that_users_call(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::that_contains_panics(arch, ends);
        let (first, second) = bench.ports(CELLS, 0, 1);
        let third = bench.port_from(CELLS, 0, first + 1);
        let [mut asking, mut waiting, mut queued] = [first, second, third].map(|port| bench.connect(port));
        let (told, is_told) = mpsc::channel();
        let ((go_on, may_go_on), (answer, answered)) = (mpsc::channel(), mpsc::channel());
        waiting.socket.ready.watch(Arc::new(Waits(Mutex::new((told.clone(), may_go_on)))));
        let (stack, other) = (bench.stack.clone(), waiting.socket.target());
        asking.socket.ready.watch(Arc::new(Asks { stack, other, steps: Mutex::new((told, answer)) }));
        for connection in [&mut waiting, &mut asking] {
            let data = connection.data(b"data");
            bench.put(&data);
            bench.driver.poll();
            is_told.recv_timeout(HANG).expect("the user is told");
        }
        drop(bench.scene.until(|state| state.sleeps("heddle-pt0", &[])));
        bench.scene.state().sent.clear();
        bench.scene.panic_at_flush();
        let fin = queued.segment(TcpFlags::FIN | TcpFlags::PSH, b"the end");
        bench.put(&fin);
        bench.driver.poll();
        let flushed = bench.scene.until(|state| !state.senders(third).is_empty() && !state.unflushed);
        assert_eq!(flushed.senders(third), ["heddle-pt0"]);
        drop(flushed);
        go_on.send(()).expect("the user waits");
        assert_eq!(answered.recv_timeout(HANG), Ok(true), "{arch}");
        for connection in [&waiting, &asking] {
            // Otherwise a watch and its stack would keep each other alive.
            connection.socket.ready.watch(Arc::new(Deaf));
        }
        assert_eq!(bench.stack.stats().counters.get(Counter::PanicsContained), 1);
    }
}

/// A panic in the effects of a call, on the thread that runs it for its caller: the caller does not wait for ever.
#[every_arch(only(conn_thread_2, connp_t, connp_t_spsc))]
fn a_panic_in_the_effects_of_a_call_answers_its_caller(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::that_contains_panics(arch, ends);
        let connection = bench.connect(2000);
        bench.scene.panic_at_flush();
        let (stack, target) = (bench.stack.clone(), connection.socket.target());
        let caller = move || assert!(matches!(stack.call(&target, send(b"text")), Reply::Gone), "{arch}");
        bench.scene.spawn("caller", caller).join();
        assert_eq!(bench.stack.stats().counters.get(Counter::PanicsContained), 1);
    }
}
