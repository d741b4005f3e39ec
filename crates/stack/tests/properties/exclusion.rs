//! The locks that each architecture takes for an event, and those held while the event runs.

use every_arch::every_arch;
use stack::Architecture;
use sync::LockClass::{self, *};
use testbed::frames::Ends;
use testbed::node::send;

use crate::bench::Bench;
use crate::events::{SEGMENTS, walks};
use crate::scene::TEST;
use crate::walk::{Moment, What, connection_locks, count, held_by_events, taken};

/// Willmann's UP: one thread has the stack, and needs no lock. IX, Seastar: so does a core for the flows that it polls.
#[every_arch(only(up, shared_nothing, connp_t_lwkt))]
fn a_thread_that_owns_what_it_polls_takes_no_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        for walk in walks.all() {
            assert_eq!(taken(walk), [], "no lock");
            assert_eq!(count(walk, What::HandsOver), 0, "no message");
        }
        assert!(walks.sent.iter().all(|sent| sent.held.is_empty() && sent.by == TEST), "{:?}", walks.sent);
    }
}

/// One lock around the stack: every event takes it once, runs under it and releases it.
#[every_arch(only(giant))]
fn giant_runs_each_event_under_one_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        for walk in walks.all() {
            assert!(taken(walk).iter().all(|class| *class == Group), "{walk:?}");
            assert!(held_by_events(walk).iter().all(|held| *held == [Group]), "{walk:?}");
        }
        assert!(walks.sent.iter().all(|sent| sent.held == [Group]), "{:?}", walks.sent);
        assert_eq!(acquisitions_with_events(&walks.data), SEGMENTS, "each segment takes the lock for itself");
        for call in [&walks.read, &walks.write] {
            assert_eq!(taken(call), [Group], "a call takes the lock once");
        }
    }
}

/// How many acquisitions of a group's lock are followed by an event before the release.
fn acquisitions_with_events(walk: &[Moment]) -> usize {
    let spans = walk.split(|moment| moment.what == What::Takes(Group));
    spans.filter(|span| count(span, What::Runs) > 0).count()
}

/// Willmann, 3.2.2: "each group is protected by a single lock"; the thread acquires the lock of the group "and then"
/// carries out the request "with private access to any group-wide structures (including connection state)". So an event
/// takes one lock and no other.
#[every_arch(only(connp_l_4, connp_l_128, connp_l_1024))]
fn connp_l_takes_one_lock_for_each_event(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        assert_eq!(taken(&walks.data), [Group; SEGMENTS]);
        for walk in &walks.of_data()[1..] {
            assert_eq!(taken(walk), [Group]);
        }
        for walk in walks.all() {
            assert!(held_by_events(walk).iter().all(|held| *held == [Group]), "{walk:?}");
            assert!(walk.iter().all(|moment| moment.held.len() <= 1), "never two locks at once: {walk:?}");
        }
        assert!(walks.sent.iter().all(|sent| sent.held == [Group]), "{:?}", walks.sent);
        assert_eq!(taken(&walks.idle), [], "where nothing is due no group's lock is taken");
    }
}

/// Willmann, 3.2.1: "Because connections are uniquely and persistently assigned to a specific protocol thread, no
/// per-connection state locking is required." 4.1: ConnP-T "eliminates global TCP/IP locking completely". The remaining
/// locks are those of the queues, and no event runs under one.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2, layer))]
fn connp_t_runs_events_without_a_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        for walk in walks.all() {
            assert!(taken(walk).iter().all(|class| *class == Handoff), "{walk:?}");
            assert!(held_by_events(walk).iter().all(|held| held.is_empty()), "{walk:?}");
        }
        assert!(walks.sent.iter().all(|sent| sent.held.is_empty()), "{:?}", walks.sent);
    }
}

/// 3.2.1: "At each entry point into the TCP/IP protocol stack, a request for service is enqueued for the appropriate
/// protocol thread." A thread runs a request to itself at once (DragonFly): otherwise it would wait for its own answer.
#[every_arch(only(connp_t, connp_t_spsc, conn_thread_2))]
fn connp_t_enqueues_each_segment_and_runs_an_owners_call_at_once(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        assert_eq!(count(&walks.data, What::HandsOver), SEGMENTS);
        let first = walks.data.iter().position(|moment| moment.what == What::Runs);
        let last = walks.data.iter().rposition(|moment| moment.what == What::HandsOver);
        assert!(last < first, "nothing of a batch is run where it is received: {:?}", walks.data);
        for call in [&walks.read, &walks.write] {
            assert_eq!((count(call, What::HandsOver), taken(call)), (0, vec![]));
        }
        assert_eq!(count(&walks.write, What::Runs), 1);
    }
}

/// A ring takes no lock, so a segment takes none between the device and the connection.
#[every_arch(only(connp_t_spsc))]
fn connp_t_with_rings_takes_no_lock_for_a_segment(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        for walk in [&walks.data, &walks.answered, &walks.ack, &walks.timer, &walks.fin, &walks.idle] {
            assert_eq!(taken(walk), []);
        }
    }
}

/// Solaris: the squeue's lock guards the queue and the flag and is "dropped while processing": the flag is the
/// ownership.
#[every_arch(only(squeue_fill, squeue_nodrain, squeue_process, squeue_process_bind, squeue_process_poll))]
fn squeue_runs_events_under_its_flag_and_no_lock(arch: Architecture) {
    let binds = arch.to_string().ends_with("+bind");
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        for walk in walks.all() {
            assert!(taken(walk).iter().all(|class| *class == Squeue || binds && *class == FlowBindings), "{walk:?}");
            assert!(held_by_events(walk).iter().all(|held| held.is_empty()), "{walk:?}");
        }
        assert!(walks.sent.iter().all(|sent| sent.held.is_empty()), "{:?}", walks.sent);
        for call in [&walks.read, &walks.write] {
            let found = if binds { vec![FlowBindings] } else { vec![] };
            let flag = [Squeue, Squeue];
            assert_eq!(
                taken(call),
                [found, flag.into()].concat(),
                "a call takes the flag of a free shard and gives it back"
            );
        }
        let references = if binds { 2 * SEGMENTS } else { 0 };
        assert_eq!(count(&walks.data, What::Takes(FlowBindings)), references, "a segment takes one and gives it back");
    }
}

/// `SQ_FILL` queues every segment; the other two modes run a segment where it arrives if the shard is free.
#[every_arch(only(squeue_fill, squeue_nodrain, squeue_process, squeue_process_bind, squeue_process_poll))]
fn squeue_queues_segments_of_a_free_shard_in_mode_fill_only(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let fills = arch.to_string() == "squeue:fill";
        let walks = walks(arch, ends);
        assert_eq!(count(&walks.data, What::HandsOver), if fills { SEGMENTS } else { 0 });
        assert_eq!(count(&walks.read, What::HandsOver), 0, "a call is not left to the worker: its caller waits");
    }
}

/// The locks of a connection, in the one order in which all of them are taken together.
fn layout(arch: Architecture) -> &'static [LockClass] {
    match arch.to_string().as_bytes()[5] {
        // The connections of a pool, behind work streams and soft interrupts have one, too.
        b'1' | b'p' | b'r' | b'n' => &[PcbHeaderIn],
        b'2' => &[PcbReceiveWindow, PcbSendWindow],
        _ => &[PcbHeaderIn, PcbReceiveWindow, PcbReassembly, PcbSendWindow, PcbRetransmit, PcbHeaderOut],
    }
}

fn is_coupled(arch: Architecture) -> bool {
    arch.to_string().ends_with("+coupled")
}

/// Nahum et al.: one lock, two locks ("send-side state, receive-side state"), six locks "for connection state": the
/// classes that a connection's events take, and the locks held when a segment is given to the device.
#[every_arch(only(
    msgp_1,
    msgp_2,
    msgp_6,
    msgp_1_coupled,
    msgp_2_coupled,
    msgp_6_coupled,
    msgp_pool,
    netisr_hybrid,
    netisr_deferred,
    softint,
    softint_polling
))]
fn msgp_has_as_many_locks_for_a_connection_as_it_says(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (walks, layout) = (walks(arch, ends), layout(arch));
        let mut all: Vec<_> = connection_locks(&walks.answered).into_iter().map(|(class, _)| class).collect();
        all.sort();
        all.dedup();
        assert_eq!(all, layout, "a segment that is answered takes each of them");
        let sender = &layout[layout.len() / 2..];
        for sent in &walks.sent[..2] {
            assert_eq!(sent.held, sender, "data and acknowledgements leave under the locks of the send side");
        }
        // A timer and a FIN concern the whole connection.
        for sent in &walks.sent[2..] {
            let held: Vec<_> = sent.held.iter().copied().filter(|class| *class != ConnTable).collect();
            assert_eq!(held, layout);
        }
    }
}

/// With two or six locks a read needs only the receive side, and a write only the send side.
#[every_arch(only(
    msgp_1,
    msgp_2,
    msgp_6,
    msgp_1_coupled,
    msgp_2_coupled,
    msgp_6_coupled,
    netisr_hybrid,
    netisr_deferred,
    softint,
    softint_polling
))]
fn msgp_locks_only_the_side_that_a_call_concerns(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let (walks, layout) = (walks(arch, ends), layout(arch));
        let classes = |walk: &[Moment]| connection_locks(walk).into_iter().map(|(class, _)| class).collect::<Vec<_>>();
        let (receiver, sender): (&[LockClass], &[LockClass]) = match layout.len() {
            1 => (layout, layout),
            2 => (&layout[..1], &layout[1..]),
            // Header processing belongs to the receive path, and a read has none.
            _ => (&layout[1..3], &layout[3..]),
        };
        assert_eq!(classes(&walks.read), receiver);
        assert_eq!(classes(&walks.write), sender);
    }
}

/// Each event takes the one table lock once, to find its connection.
#[every_arch(only(
    msgp_1,
    msgp_2,
    msgp_6,
    msgp_1_coupled,
    msgp_2_coupled,
    msgp_6_coupled,
    msgp_pool,
    netisr_hybrid,
    netisr_deferred,
    softint,
    softint_polling
))]
fn msgp_finds_each_connection_under_the_one_table_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        assert_eq!(count(&walks.data, What::Takes(ConnTable)), SEGMENTS);
        for walk in &walks.all()[1..] {
            assert_eq!(count(walk, What::Takes(ConnTable)), 1, "{walk:?}");
            let table = walk.iter().position(|moment| moment.what == What::Takes(ConnTable));
            let connection = walk
                .iter()
                .position(|moment| matches!(moment.what, What::Takes(class) if class > Group && class < Handoff));
            assert!(table < connection, "the table comes first: {walk:?}");
        }
    }
}

/// The pool's workers take each packet from the one input under its lock, and hold that lock for nothing else: not while a
/// packet waits for its turn, is looked up, or runs.
#[every_arch(only(msgp_pool))]
fn a_pool_takes_each_packet_under_the_lock_of_the_input(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        // Once to put the batch there, once for each packet, and once to find that there are no more.
        assert_eq!(count(&walks.data, What::Takes(Handoff)), SEGMENTS + 2);
        for walk in walks.all() {
            assert!(walk.iter().all(|moment| !moment.held.contains(&Handoff) || moment.held.len() == 1), "{walk:?}");
            assert!(held_by_events(walk).iter().all(|held| held.is_empty()), "{walk:?}");
        }
        for call in [&walks.read, &walks.write] {
            assert_eq!(taken(call), [ConnTable, PcbHeaderIn], "a call does not pass the input");
        }
        assert_eq!(taken(&walks.idle), [], "a poll that finds no frame leaves the input alone");
    }
}

/// Without `+coupled` the table lock is released once the connection is found: no thread waits for a connection's lock
/// or sends while it holds it.
#[every_arch(only(msgp_1, msgp_2, msgp_6, msgp_pool, netisr_hybrid, netisr_deferred, softint, softint_polling))]
fn msgp_drops_the_table_lock_before_it_takes_a_connections(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        for walk in walks.all() {
            for (class, held) in connection_locks(walk) {
                assert!(!held.contains(&ConnTable), "{class} is taken under the table lock");
            }
            assert!(held_by_events(walk).iter().all(|held| held.is_empty()), "{walk:?}");
        }
        assert!(walks.sent.iter().all(|sent| !sent.held.contains(&ConnTable)), "{:?}", walks.sent);
    }
}

/// Willmann, figure 4: acquire the connection hashtable's lock, look the connection up, acquire the connection's lock,
/// release the hashtable's, output. So every event takes the first lock of the connection hand over hand, and segments
/// sent by a write or an acknowledgement leave without the table lock.
#[every_arch(only(msgp_1_coupled, msgp_2_coupled, msgp_6_coupled))]
fn coupled_takes_the_connection_hand_over_hand(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        assert!(is_coupled(arch));
        let walks = walks(arch, ends);
        for walk in walks.all() {
            let (class, held) = connection_locks(walk)[0];
            assert_eq!(held, [ConnTable], "{class} is waited for with the table lock held: {walk:?}");
        }
        for sent in &walks.sent[..2] {
            assert!(!sent.held.contains(&ConnTable), "{sent:?}");
        }
    }
}

/// So does the data that is sent after an acknowledgement which header prediction would take, where a connection is one.
#[every_arch(only(msgp_1_coupled, msgp_2_coupled, msgp_6_coupled))]
fn coupled_sends_after_predicted_segments_without_the_table_lock(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut bench = Bench::on_one_thread(arch, ends);
        let port = bench.ports(2, 0, 1).0;
        let mut connection = bench.connect_stamped(port);
        bench.call(&connection, send(&[1; 30_000]));
        bench.settle();
        bench.scene.state().sent.clear();
        let frame = connection.ack(1000);
        bench.walk(&[frame]);
        let sent = bench.scene.state().sent.clone();
        assert!(sent.iter().any(|sent| sent.len > 0), "{arch}: the congestion window has room");
        assert!(sent.iter().all(|sent| !sent.held.contains(&ConnTable)), "{arch}: {sent:?}");
    }
}

/// FreeBSD's tcp_input keeps both locks through state and acknowledgement processing, and to the end for events that
/// end a connection.
#[every_arch(only(msgp_1_coupled, msgp_2_coupled, msgp_6_coupled))]
fn coupled_keeps_the_table_lock_through_acknowledgement_processing(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let walks = walks(arch, ends);
        for walk in [&walks.answered, &walks.ack] {
            let table = walk.iter().position(|moment| moment.what == What::Releases(ConnTable)).expect("a release");
            let sender = walk.iter().position(|moment| match arch.to_string().as_bytes()[5] {
                // With one lock acknowledgements are processed somewhere between its taking and its release.
                b'1' => moment.what == What::Takes(PcbHeaderIn),
                _ => moment.what == What::Releases(PcbSendWindow),
            });
            assert!(sender.expect("the send side is taken") < table, "{walk:?}");
        }
        for sent in &walks.sent[2..] {
            assert_eq!(sent.held[0], ConnTable, "a timer and a FIN keep it to the end: {sent:?}");
        }
    }
}
