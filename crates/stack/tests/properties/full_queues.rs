//! A protocol thread that finds the queue of another one full.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use every_arch::every_arch;
use observe::DropReason;
use stack::Architecture;
use testbed::frames::Ends;
use testbed::limit::HANG;

use crate::bench::{Bench, CELLS};
use crate::faults::{Asks, Deaf};
use crate::scene::State;
use crate::squeue_upcalls::Tells;
use crate::two_queues::fin;

/// Batches of 64 segments, the last of which finds the queue of 4096 messages full.
const BATCHES: usize = 4096 / 64 + 1;

/// A user's code on a protocol thread calls the other one, which has a full queue. Until there is room, its thread runs the
/// messages to its own cell: the other may wait for room there.
#[every_arch(only(connp_t_spsc))]
fn a_thread_that_finds_a_queue_full_runs_its_own_messages(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let (first, second) = bench.ports(CELLS, 0, 1);
        let [third, fourth] = [(0, first + 1), (1, second + 1)].map(|(cell, from)| bench.port_from(CELLS, cell, from));
        let [mut asking, mut busy, mut queued, mut called] =
            [first, second, third, fourth].map(|port| bench.connect(port));
        let ((told, is_told), (answer, answered)) = (mpsc::channel(), mpsc::channel());
        let (stack, other) = (bench.stack.clone(), called.socket.target());
        asking.socket.ready.watch(Arc::new(Asks { stack, other, steps: Mutex::new((told, answer)) }));
        let ((waits, is_waiting), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
        Tells::watch(&busy, waits, Some(may_go_on));
        let data = busy.data(b"data");
        bench.put(&data);
        bench.driver.poll();
        is_waiting.recv_timeout(HANG).expect("a user's code runs on the second thread, and waits for the test");
        bench.receive_batches(BATCHES, 64, &mut called);
        let data = asking.data(b"data");
        bench.put(&data);
        bench.driver.poll();
        is_told.recv_timeout(HANG).expect("the user is told");
        let last = fin(&mut queued);
        bench.put(&last);
        bench.driver.poll();
        let ran = |state: &State| !state.senders(third).is_empty();
        assert_eq!(bench.scene.until(ran).senders(third), ["heddle-pt0"]);
        assert!(answered.try_recv().is_err(), "there is no room yet");
        go_on.send(()).expect("the user waits");
        assert_eq!(answered.recv_timeout(HANG), Ok(true), "{arch}");
        assert!(bench.stack.stats().counters.dropped(DropReason::InputQueueFull) >= 64, "the queue was full");
        // Otherwise the watch and its stack would keep each other alive.
        asking.socket.ready.watch(Arc::new(Deaf));
    }
}
