//! Light-weight protocol threads (`connp-t:lwkt`; DragonFly BSD): the stack on which a core's protocol thread runs. What it
//! does with its queue is shown on two cores, in `tests/shared_nothing/lwkt.rs`; that it needs no lock, by `exclusion.rs` and
//! `tests/no_locks.rs`.
//!
//! The thread of the test is the core: its driver and its application.

use std::sync::{Arc, Mutex};

use every_arch::every_arch;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::Readiness;
use stack::socket::readiness::Watch;
use sync::walk::{WalkStep, record};
use testbed::frames::Ends;
use testbed::node::send;
use wire::tcp::TcpFlags;

use crate::bench::{Bench, Connection};
use crate::scene::{Observed, TEST, on_this_stack};

/// More than all frames of a test's thread need, and less than a stack has.
const NEAR: usize = 256 << 10;

/// The stacks on which a segment of the peer is answered, and a call sends: both by the thread of the test.
fn stacks(arch: Architecture, ends: Ends) -> [usize; 2] {
    let mut bench = Bench::with_threads(arch, ends);
    let mut connection = bench.connect(2000);
    bench.scene.state().sent.clear();
    let fin = connection.segment(TcpFlags::FIN | TcpFlags::PSH, b"the end");
    bench.put(&fin);
    assert_eq!(bench.driver.poll(), 1);
    assert!(matches!(bench.call(&connection, send(b"text")), Reply::Sent(Ok(_))));
    let state = bench.scene.state();
    let [answer, sent] = &state.sent[..] else { panic!("two segments: {state:?}") };
    assert_eq!([answer.len, sent.len], [0, 4]);
    assert!([answer, sent].iter().all(|sent| sent.by == TEST), "one thread of the kernel: {state:?}");
    [answer.stack, sent.stack]
}

/// "Coroutines with stacks of their own": segments and calls run on the stack of the protocol thread, which is not that of
/// the driver and the application. It is no direct call to the owner's function.
#[every_arch(only(connp_t_lwkt))]
fn the_protocol_thread_has_a_stack_of_its_own(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let [answered, called] = stacks(arch, ends);
        assert!(answered.abs_diff(called) < NEAR, "one protocol thread runs both");
        assert!(answered.abs_diff(on_this_stack()) > NEAR, "and not on this stack");
    }
}

/// The measure works: where the owner calls its function directly, there is one stack.
#[every_arch(only(up, shared_nothing))]
fn an_owner_without_a_protocol_thread_has_one_stack(arch: Architecture) {
    let here = on_this_stack();
    for ends in Ends::BOTH_FAMILIES {
        assert!(stacks(arch, ends).iter().all(|stack| stack.abs_diff(here) < NEAR));
    }
}

/// Reads when it is told, on whichever stack that is.
struct Reads {
    seen: Mutex<Vec<(usize, usize)>>,
    stack: stack::Stack<Observed>,
    target: stack::flow::Target,
}

impl Watch for Reads {
    fn ready(&self, _: Readiness, _: Readiness) {
        let Reply::Received(Ok(got)) = self.stack.call(&self.target, Call::Receive(tcp::Receive { max: 100 })) else {
            return;
        };
        let bytes = got.data.iter().map(|data| data.len()).sum();
        self.seen.lock().expect("no test has failed in it").push((bytes, on_this_stack()));
    }
}

/// DragonFly: a synchronous message to one's own port runs at once, because it would never be answered. Here the protocol
/// thread notifies a user, and that one reads.
#[every_arch(only(connp_t_lwkt))]
fn a_call_by_the_protocol_thread_itself_runs_at_once(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let mut connection: Connection = bench.connect(2000);
        let reads = Reads { seen: Mutex::default(), stack: bench.stack.clone(), target: connection.socket.target() };
        let reads = Arc::new(reads);
        connection.socket.ready.watch(reads.clone());
        let frame = connection.data(b"text");
        bench.put(&frame);
        let (taken, walk) = record(|| bench.driver.poll());
        assert_eq!(taken, 1);
        assert!(!walk.contains(&WalkStep::Answer), "it is no message, which would be answered: {walk:?}");
        let seen = reads.seen.lock().expect("no test has failed in it");
        let [(4, stack)] = seen[..] else { panic!("read once: {seen:?}") };
        assert!(stack.abs_diff(on_this_stack()) > NEAR, "by the protocol thread");
        drop(seen);
        assert!(bench.stack.is_quiescent());
    }
}
