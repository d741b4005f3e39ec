//! How long a receive thread may sleep: until the earliest deadline of the connections whose timers it runs, neither
//! longer nor shorter.

use every_arch::every_arch;
use observe::Time;
use stack::Architecture;
use testbed::frames::Ends;
use testbed::node::send;

use crate::bench::Bench;
use crate::scene::State;

/// A wheel may have early entries, which find nothing due; this many would be a busy loop.
const WAKES: usize = 8;

/// Connections in two cells; the second writes. The receive thread sleeps until its deadline, again and again, and the
/// data is sent again.
fn sleeps_until_the_data_is_sent_again(mut bench: Bench) {
    let (a, b) = bench.ports(2, 0, 1);
    let (_idle, writes) = (bench.connect(a), bench.connect(b));
    bench.scene.state().sent.clear();
    bench.call(&writes, send(b"text"));
    let sent = |bench: &Bench| bench.scene.state().senders(b).len();
    assert_eq!(sent(&bench), 1);
    let start = bench.clock.now();
    for _ in 0..WAKES {
        let deadline = bench.driver.next_deadline();
        assert!(deadline > bench.clock.now() && deadline < Time::MAX, "{deadline:?} at {:?}", bench.clock.now());
        bench.clock.advance_to(deadline);
        bench.settle();
        if sent(&bench) > 1 {
            let waited = bench.clock.now() - start;
            assert!(waited.as_secs() < 2, "after {waited:?}");
            return;
        }
    }
    panic!("after {WAKES} deadlines nothing was sent again");
}

#[every_arch]
fn one_thread_sleeps_until_the_earliest_deadline(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        sleeps_until_the_data_is_sent_again(Bench::on_one_thread(arch, ends));
    }
}

/// Workers and callers run events, but the receive thread runs the timers.
#[every_arch(except(connp_t, connp_t_spsc, conn_thread_2, layer))]
fn a_receive_thread_sleeps_until_the_earliest_deadline(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        sleeps_until_the_data_is_sent_again(Bench::with_threads(arch, ends));
    }
}

/// Willmann, 3.2.1: a protocol thread does all the work of its connections, their timers too. The receive thread need
/// not wake for them.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2, layer))]
fn a_receive_thread_sleeps_on_while_protocol_threads_have_timers(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let connection = bench.connect(2000);
        let before = bench.driver.next_deadline();
        bench.call(&connection, send(b"text"));
        assert_eq!(bench.stack.stats().timers, 1, "the retransmission timer is armed");
        assert_eq!(bench.driver.next_deadline(), before);
    }
}

/// The protocol thread itself sleeps until then.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2, layer))]
fn a_protocol_thread_sleeps_until_its_earliest_deadline(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::with_threads(arch, ends);
        let connection = bench.connect(2000);
        let owner = format!("heddle-pt{}", if arch.family() == "layer" { 0 } else { bench.cell(&connection) });
        let caller = bench.calls("caller", &connection, send(b"text"));
        bench.poll_until_done("caller");
        caller.join();
        // The thread has answered, and may still be running.
        let sleeps = |state: &State| state.sleeps(&owner, &[]);
        let bound = bench.scene.until(sleeps).bounds[&owner];
        assert!(bound.is_some_and(|bound| !bound.is_zero() && bound.as_secs() < 2), "it sleeps for {bound:?}");
    }
}
