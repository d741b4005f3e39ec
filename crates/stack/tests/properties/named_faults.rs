//! The named faults of the measured systems: what each does, and that nothing is different without it.

use std::time::Duration;

use every_arch::every_arch;
use observe::Counter;
use stack::Architecture;
use stack::arch::declaration::Declaration;
use stack::call::Call;
use sync::LockClass::{self, ConnTable, Group, PcbHeaderIn, Route, Routes};
use testbed::frames::{Ends, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, send};
use wire::tcp::TcpFlags;

use crate::bench::{Bench, CELLS, PORT};
use crate::cpu_groups;
use crate::events::walks;
use crate::scene::{Observed, Scene, TEST};
use crate::walk::{Moment, What, count, moments, taken};

/// The locks of routes that a walk takes, each with the route table's locks that are held then.
fn route_locks(walk: &[Moment]) -> Vec<(LockClass, Vec<LockClass>)> {
    let held = |moment: &Moment| moment.held.iter().copied().filter(|class| [Routes, Route].contains(class)).collect();
    let of_routes = |moment: &Moment| match moment.what {
        What::Takes(class) if [Routes, Route].contains(&class) => Some((class, held(moment))),
        _ => None,
    };
    walk.iter().filter_map(of_routes).collect()
}

/// Willmann, figure 4: each packet that is sent takes the lock of the route table, and waits with it for the lock of the
/// route. Without the fault a connection has cached its route.
#[test]
fn with_routes_each_segment_takes_the_locks_of_the_route_table_and_of_the_route() {
    for name in ["msgp:1", "msgp:2", "msgp:6", "msgp:1+coupled"] {
        for ends in Ends::BOTH_FAMILIES {
            let faulty = walks(Architecture::named(&format!("{name}+routes")), ends);
            let each = vec![(Routes, vec![]), (Route, vec![Routes])];
            for sends in [&faulty.answered, &faulty.write, &faulty.timer] {
                assert_eq!(route_locks(sends), each, "one segment: {sends:?}");
            }
            // The acknowledgement of the FIN waits for the user's (RFC 9293 section 3.8.6.3).
            for silent in [&faulty.data, &faulty.ack, &faulty.read, &faulty.fin, &faulty.idle] {
                assert_eq!(route_locks(silent), [], "nothing is sent: {silent:?}");
            }
            assert!(faulty.sent.iter().all(|sent| !sent.held.contains(&Routes) && !sent.held.contains(&Route)));
            let plain = walks(Architecture::named(name), ends);
            for (with, without) in faulty.all().into_iter().zip(plain.all()) {
                assert_eq!(route_locks(without), []);
                let others: Vec<_> = taken(with).into_iter().filter(|class| ![Routes, Route].contains(class)).collect();
                assert_eq!(others, taken(without), "all other locks are the same");
            }
        }
    }
}

/// The loop of figure 4 is over the segments of a message: a write takes the two locks for each.
#[test]
fn with_routes_a_burst_takes_them_for_each_segment() {
    let mut bench = Bench::on_one_thread(Architecture::named("msgp:1+coupled+routes"), Ends::BOTH_FAMILIES[0]);
    let port = bench.port_from(1, 0, 2000);
    let connection = bench.connect(port);
    bench.scene.state().sent.clear();
    let (_, write) = sync::walk::record(|| bench.call(&connection, send(&[7; 4000])));
    let walk = moments(&write);
    let segments = bench.scene.state().senders(port).len();
    assert!(segments > 1, "{segments} segments");
    let passed = (count(&walk, What::Takes(Routes)), count(&walk, What::Takes(Route)));
    assert_eq!(passed, (segments, segments), "{walk:?}");
    assert_eq!((count(&walk, What::Takes(ConnTable)), count(&walk, What::Takes(PcbHeaderIn))), (1, 1), "{walk:?}");
}

/// Polls once each 100 ms for a second; how many locks of groups each poll takes.
fn groups_locked(bench: &mut Bench) -> Vec<usize> {
    let poll = |bench: &mut Bench| {
        bench.clock.advance(Duration::from_millis(100));
        let walk = moments(&bench.walk(&[]));
        let alone = |moment: &Moment| !matches!(moment.what, What::Takes(Group)) || moment.held.is_empty();
        assert!(walk.iter().all(alone), "one group's lock at a time: {walk:?}");
        count(&walk, What::Takes(Group))
    };
    (0..10).map(|_| poll(bench)).collect()
}

/// Willmann, section 5.1: updates "are lazily broadcast to all groups via a timer-based mechanism, regardless of whether or
/// not they currently have an active connection". An event of a connection still takes one lock, its group's.
#[test]
fn with_lazy_broadcast_a_timer_takes_every_groups_lock_after_a_handshake() {
    for (name, groups) in [("connp-l:4", 4), ("connp-l:128", 128)] {
        for ends in Ends::BOTH_FAMILIES {
            let arch = |fault: &str| Architecture::named(&format!("{name}{fault}"));
            let mut faulty = Bench::on_one_thread(arch("+lazy-broadcast"), ends);
            faulty.connect(2000);
            faulty.pass(Duration::from_secs(3));
            assert_eq!(groups_locked(&mut faulty), [0; 10], "nothing has changed");
            let syn = Segment::syn(2001, PORT).frame_over(ends);
            assert_eq!(count(&moments(&faulty.walk(&[syn])), What::Takes(Group)), 1);
            // The group whose timer is due takes its own lock once more, to find that no other timer is.
            assert_eq!(groups_locked(&mut faulty), [0, 0, 0, 0, groups + 1, 0, 0, 0, 0, 1], "and the SYN-ACK again");
            let mut plain = Bench::on_one_thread(arch(""), ends);
            plain.connect(2000);
            plain.pass(Duration::from_secs(3));
            let syn = Segment::syn(2001, PORT).frame_over(ends);
            plain.walk(&[syn]);
            assert_eq!(groups_locked(&mut plain), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "the SYN-ACK again");
            let data = walks(arch("+lazy-broadcast"), ends);
            for walk in data.of_data() {
                assert_eq!(taken(walk).len(), count(walk, What::Runs).max(1), "one lock for each event: {walk:?}");
            }
        }
    }
}

/// The flags of the answers to a SYN from each cell's peer, sent as soon as `listen()` has returned.
fn answers_after_listen(arch: Architecture) -> Vec<TcpFlags> {
    let scene = Scene::new();
    let mut node = Node::<Observed>::with_known_peer(NodeConfig { cpus: 4, ..NodeConfig::new(arch) });
    node.driver.poll();
    let flow = |node: &Node<Observed>, port: u16| {
        let ends = Ends::BOTH_FAMILIES[0];
        node.stack.flow((ends.dst, PORT).into(), (ends.src, port).into()).index(4)
    };
    let peers: Vec<u16> =
        (0..4).map(|cell| (2000..).find(|port| flow(&node, *port) == cell).expect("a port")).collect();
    let listener = node.listen(PORT, 64);
    peers.iter().for_each(|port| node.put(&Segment::syn(*port, PORT).frame()));
    let answers = node.settle();
    let flags = |port: &u16| {
        let own = answers.iter().filter_map(|frame| tcp_of(frame)).find(|(header, _)| header.dst_port == *port);
        own.expect("each SYN is answered").0.flags
    };
    let first: Vec<TcpFlags> = peers.iter().map(flags).collect();
    // The window is over: each of them is admitted now, and nobody once the listener has closed.
    for port in peers.iter().zip(&first).filter(|(_, flags)| flags.contains(TcpFlags::RST)).map(|(port, _)| *port) {
        let again = node.exchange(&Segment::syn(port, PORT).frame());
        assert_eq!(tcp_of(&again[0]).expect("TCP").0.flags, TcpFlags::SYN | TcpFlags::ACK);
    }
    node.stack.unlisten(&listener);
    for port in 3000..3032 {
        let refused = node.exchange(&Segment::syn(port, PORT).frame());
        assert!(tcp_of(&refused[0]).expect("TCP").0.flags.contains(TcpFlags::RST), "a replica outlives its listener");
    }
    assert!(scene.state().asleep.is_empty(), "{TEST} does all the work");
    first
}

/// DragonFly: `listen()` returns when one thread knows the listener. A SYN that comes then to another one is refused.
#[test]
fn with_async_wildcard_a_syn_right_after_listen_may_meet_no_listener() {
    let (admitted, refused) = (TcpFlags::SYN | TcpFlags::ACK, TcpFlags::RST | TcpFlags::ACK);
    for name in ["connp-t", "connp-t:spsc"] {
        let faulty = answers_after_listen(Architecture::named(&format!("{name}+async-wildcard")));
        assert_eq!(faulty, [admitted, refused, refused, refused], "{name}: only the first thread's is waited for");
        assert_eq!(answers_after_listen(Architecture::named(name)), [admitted; 4], "{name}");
    }
}

/// A listener that is closed at once: the replicas on their way find that, and stay away.
#[test]
fn with_async_wildcard_a_replica_does_not_come_after_its_listener_has_closed() {
    for name in ["connp-t+async-wildcard", "connp-t:spsc+async-wildcard", "connp-t:lwkt+async-wildcard"] {
        let _scene = Scene::new();
        let arch = Architecture::named(name);
        let mut node = Node::<Observed>::with_known_peer(NodeConfig { cpus: 4, ..NodeConfig::new(arch) });
        let listener = node.listen(PORT, 64);
        node.stack.unlisten(&listener);
        for port in 3000..3032 {
            let refused = node.exchange(&Segment::syn(port, PORT).frame());
            assert!(tcp_of(&refused[0]).expect("TCP").0.flags.contains(TcpFlags::RST), "{name}");
        }
        assert_eq!(node.stack.stats().counters.get(Counter::SynAcksOut), 0);
    }
}

/// With `+racy-stats` all threads count in one block; without, each in its own. One thread loses nothing.
#[test]
fn racy_statistics_of_one_thread_are_exact() {
    for ends in Ends::BOTH_FAMILIES {
        let counted = |name: &str| {
            let mut bench = Bench::on_one_thread(Architecture::named(name), ends);
            bench.connect(2000);
            bench.stack.stats().counters
        };
        assert_eq!(counted("msgp:1+racy-stats"), counted("msgp:1"));
        assert_eq!(counted("msgp:1+coupled+routes+racy-stats"), counted("msgp:1+coupled"));
    }
}

/// A handshake, data and a close under every fault: the peer sees what it sees without.
#[test]
fn the_peer_sees_no_fault_but_the_refused_syn() {
    let faults = [
        "msgp:6+coupled+routes+racy-stats",
        "connp-l:4+lazy-broadcast",
        "connp-t+async-wildcard",
        "connp-t:spsc+async-wildcard",
        "connp-t:lwkt+async-wildcard",
    ];
    for name in faults {
        for ends in Ends::BOTH_FAMILIES {
            let arch = Architecture::named(name);
            let plain = Architecture::named(name.split_once("+").map_or(name, |(plain, _)| plain));
            let seen = |arch| {
                let mut bench = Bench::on_one_thread(arch, ends);
                let mut connection = bench.connect(2000);
                let data = connection.data(b"question");
                bench.put(&data);
                let mut sent = bench.settle();
                bench.call(&connection, send(b"answer"));
                sent.extend(bench.settle());
                bench.pass(Duration::from_secs(2));
                sent
            };
            assert_eq!(seen(arch), seen(plain), "{name}");
        }
    }
}

/// What a program registers is read like any other name, and no list has it.
#[every_arch(only(cpu_groups))]
fn a_registered_architecture_has_as_many_groups_as_cpus(arch: Architecture) {
    assert!(!stack::ALL_ARCHITECTURES.contains(&"cpu-groups"));
    assert_eq!((arch.family(), arch.parameter(), arch.to_string().as_str()), ("cpu-groups", None, "cpu-groups"));
    let walks = walks(arch, Ends::BOTH_FAMILIES[0]);
    assert_eq!(taken(&walks.write), [Group]);
    let mut bench = Bench::on_one_thread(arch, Ends::BOTH_FAMILIES[0]);
    let (a, b) = bench.ports(CELLS, 0, 1);
    let (busy, free) = (bench.connect(a), bench.connect(b));
    let _opens = bench.scene.opens();
    let busy = bench.stop_in_a_write("writes", &busy);
    // The other CPU's group is free. A read needs no device, at which the write has stopped.
    bench.calls("reads", &free, Call::Receive(tcp::Receive { max: 10 })).join();
    bench.scene.open();
    busy.join();
}

/// A name has one meaning. To register the same declaration again changes nothing.
#[test]
fn a_name_is_registered_once() {
    let named = |name| -> &'static Declaration<()> {
        let Declaration { variants, properties, rows, .. } = cpu_groups::DECLARATION;
        Box::leak(Box::new(Declaration {
            name,
            options: "",
            variants,
            unlisted: &[],
            default: 0,
            numbers: None,
            faults: &[],
            properties,
            exceptions: &[],
            rows,
        }))
    };
    crate::register_architectures();
    crate::register_architectures();
    assert_eq!(Architecture::named("cpu-groups"), Architecture::named("cpu-groups"));
    for taken in ["msgp", "cpu-groups"] {
        let refused = stack::register::<Observed, _>(named(taken), cpu_groups::new).unwrap_err();
        assert!(refused.to_string().contains(&format!("{taken:?} already")), "{refused}");
    }
}
