//! Which thread of a shard runs the upcalls that events cause, and when: users' code runs without the flag, in the order of
//! the events, and upcalls that become pending while another thread runs some are left to the worker.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use every_arch::every_arch;
use stack::Architecture;
use stack::socket::Readiness;
use stack::socket::readiness::Watch;
use testbed::frames::Ends;
use testbed::limit::HANG;

use crate::bench::{Bench, Connection};
use crate::scene::{Opens, Scene, State};
use crate::two_queues::fin;

/// A stack, three connections of one shard, and what opens the device.
fn of_one_shard(arch: &str, ends: Ends) -> (Bench, [Connection; 3], Opens) {
    let mut bench = Bench::with_threads(Architecture::named(arch), ends);
    let mut from = 2000;
    let connections = [(); 3].map(|()| {
        let port = bench.port_from(1024, 5, from);
        from = port + 1;
        bench.connect(port)
    });
    let opens = bench.scene.opens();
    (bench, connections, opens)
}

/// Notified of data, records whether this port has been sent anything.
struct Looks {
    scene: Arc<Scene>,
    port: u16,
    seen: Mutex<Sender<bool>>,
}

impl Watch for Looks {
    fn ready(&self, raised: Readiness, _: Readiness) {
        if raised.contains(Readiness::READABLE) {
            let sent = !self.scene.state().senders(self.port).is_empty();
            self.seen.lock().expect("no test panics here").send(sent).expect("the test waits");
        }
    }
}

/// The worker gives the flag up after each batch that causes upcalls, and runs them before it takes the next: their code does
/// not wait for events that arrived later.
#[test]
fn the_worker_tells_users_after_each_batch() {
    for ends in Ends::BOTH_FAMILIES {
        let (mut bench, [_, mut first, mut later], opens) = of_one_shard("squeue:fill", ends);
        let (seen, is_seen) = mpsc::channel();
        let looks = Looks { scene: bench.scene.clone(), port: later.port, seen: Mutex::new(seen) };
        first.socket.ready.watch(Arc::new(looks));
        bench.scene.state().sent.clear();
        bench.scene.close(first.port);
        let [one, two] = [fin(&mut first), fin(&mut later)];
        bench.put(&one);
        bench.driver.poll();
        drop(bench.scene.until(|state| !state.stopped.is_empty()));
        bench.put(&two);
        bench.driver.poll();
        drop(opens);
        assert_eq!(is_seen.recv_timeout(HANG), Ok(false), "the later segment was run first");
        bench.settle();
        assert_eq!(bench.scene.state().senders(later.port).len(), 1, "it is run afterwards");
    }
}

/// Notified of data, says so; and then waits until the test lets it go on, if it is to.
pub struct Tells(Mutex<(Sender<()>, Option<Receiver<()>>)>);

impl Tells {
    /// Watches this connection.
    pub fn watch(connection: &Connection, told: Sender<()>, go_on: Option<Receiver<()>>) {
        connection.socket.ready.watch(Arc::new(Tells(Mutex::new((told, go_on)))));
    }
}

impl Watch for Tells {
    fn ready(&self, raised: Readiness, _: Readiness) {
        if raised.contains(Readiness::READABLE) {
            let steps = self.0.lock().expect("no test panics here");
            steps.0.send(()).expect("the test waits");
            steps.1.iter().for_each(|go_on| go_on.recv_timeout(HANG).expect("the test goes on"));
        }
    }
}

/// One thread at a time tells the users of a shard. While a caller tells those of the batch that it has drained, the worker
/// runs the rest, and its users are told once the caller is done: by the worker, though it slept.
#[test]
fn upcalls_of_events_during_another_threads_upcalls_are_run_by_the_worker() {
    for ends in Ends::BOTH_FAMILIES {
        let (mut bench, [busy, mut drained, mut left], opens) = of_one_shard("squeue:process", ends);
        let worker = format!("heddle-sq{}", bench.cell(&busy));
        let ((told, is_told), (other_told, other_is_told)) = (mpsc::channel(), mpsc::channel());
        let (go_on, may_go_on) = mpsc::channel();
        Tells::watch(&drained, told, Some(may_go_on));
        Tells::watch(&left, other_told, None);
        let writer = bench.stop_in_a_write("writer", &busy);
        bench.receive_batches(1, 32, &mut drained);
        let last = fin(&mut left);
        bench.put(&last);
        bench.driver.poll();
        drop(opens);
        is_told.recv_timeout(HANG).expect("the writer tells the user of the batch that it has drained");
        let ran = |state: &State| !state.senders(left.port).is_empty() && state.sleeps(&worker, &[]);
        assert_eq!(bench.scene.until(ran).senders(left.port), [worker.as_str()]);
        assert!(other_is_told.try_recv().is_err(), "two threads tell the users of a shard");
        go_on.send(()).expect("the user waits");
        other_is_told.recv_timeout(HANG).expect("the worker tells the other user");
        writer.join();
    }
}

/// A stack that tells a user something is at work, though no event waits and no thread has a flag: it is not switched meanwhile.
#[every_arch(only(squeue_fill, squeue_nodrain, squeue_process, squeue_process_poll))]
fn a_stack_that_tells_a_user_does_not_rest(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (mut bench, [busy, mut notified, _], opens) = of_one_shard(&arch.to_string(), ends);
        let ((told, is_told), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
        Tells::watch(&notified, told, Some(may_go_on));
        let writer = bench.stop_in_a_write("writer", &busy);
        let end = fin(&mut notified);
        bench.put(&end);
        bench.driver.poll();
        drop(opens);
        is_told.recv_timeout(HANG).expect("the segment is run by the writer or the worker, which tells its user");
        assert!(!bench.stack.is_quiescent(), "it tells a user");
        go_on.send(()).expect("the user waits");
        writer.join();
        bench.settle();
        assert!(bench.stack.is_quiescent());
    }
}
