//! A panic outside any event, where no connection can be given up for it: in a device that is notified of frames.

use every_arch::every_arch;
use observe::Counter;
use stack::Architecture;
use testbed::frames::Ends;
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::Bench;
use crate::scene::Thread;

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
