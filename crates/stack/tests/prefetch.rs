//! A receive thread that knows the flows of a batch asks the processor for their connections before it processes the first
//! segment, where the cell is its own and has more connections than the caches hold. So does a thread that is notified of events of
//! such connections, if it has caused them by receiving.

use std::ops::Range;
use std::sync::Arc;

use every_arch::every_arch;
use observe::Counter;
use stack::Architecture;
use stack::socket::{ListenerShared, PollSet, TcpSocket};
use sync::Real;
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig};
use wire::tcp::TcpFlags;

const PORT: u16 = 80;
const FIRST: u16 = 2000;

/// Connections with peers of one family.
struct Crowd {
    node: Node<Real>,
    _listener: Arc<ListenerShared<Real>>,
    ends: Ends,
    peers: Vec<Peer>,
    sockets: Vec<Arc<TcpSocket<Real>>>,
}

/// A peer's port, its next number, and the number that it expects.
struct Peer {
    port: u16,
    seq: u32,
    expects: u32,
}

impl Crowd {
    /// So many connections.
    fn of(arch: Architecture, ends: Ends, count: u16) -> Crowd {
        let mut node = Node::new(NodeConfig::new(arch));
        node.exchange(&frames::arp_request());
        node.exchange(&frames::neighbour_solicitation());
        let listener = node.listen(PORT, 8);
        let (mut peers, mut sockets) = (Vec::new(), Vec::new());
        for port in FIRST..FIRST + count {
            let answers = node.exchange(&Segment::syn(port, PORT).frame_over(ends));
            let (syn_ack, _) = answers.iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK");
            let (seq, expects) = (ISS.wrapping_add(1), syn_ack.seq.0.wrapping_add(1));
            node.exchange(&Segment::ack((port, PORT), seq, expects).frame_over(ends));
            sockets.push(listener.accept().expect("a child waits"));
            peers.push(Peer { port, seq, expects });
        }
        Crowd { node, _listener: listener, ends, peers, sockets }
    }

    /// Data of each of these connections arrives as one batch. Returns how many connections were asked for.
    fn receive(&mut self, peers: Range<usize>) -> u64 {
        let asked = |node: &Node<Real>| node.driver.counters().snapshot().get(Counter::ConnectionsPrefetched);
        let (before, count) = (asked(&self.node), peers.len());
        for Peer { port, seq, expects } in &mut self.peers[peers] {
            let data = Segment { data: b"data", ..Segment::ack((*port, PORT), *seq, *expects) };
            self.node.put(&data.and(TcpFlags::PSH).frame_over(self.ends));
            *seq = seq.wrapping_add(4);
        }
        let acknowledged = self.node.settle().iter().filter_map(|frame| tcp_of(frame)).count();
        assert_eq!(acknowledged, count, "each segment is acknowledged");
        asked(&self.node) - before
    }

    /// An acknowledgement of each of these arrives, all as one batch.
    fn use_all(&mut self, peers: Range<usize>) {
        for Peer { port, seq, expects } in &self.peers[peers] {
            self.node.put(&Segment::ack((*port, PORT), *seq, *expects).frame_over(self.ends));
        }
        self.node.settle();
    }

    /// [`Crowd::receive`], after data of each of them has come by itself, so that the table knows their hashes.
    fn receive_known(&mut self, peers: Range<usize>) -> u64 {
        for one in peers.clone() {
            assert_eq!(self.receive(one..one + 1), 0, "a single segment does not wait for others");
        }
        self.receive(peers)
    }
}

/// Whether the thread that polls uses the one cell of its flows without a lock.
fn owns_its_flows(arch: Architecture) -> bool {
    ["up", "shared-nothing"].contains(&arch.family())
}

/// The flows of a thread are in sixteen groups, each of which has so many connections that the caches do not hold all of them; but only
/// those of groups at home are used without a lock.
#[test]
fn connections_of_a_batch_are_asked_for_in_all_groups_at_home() {
    for ends in Ends::BOTH_FAMILIES {
        let mut crowd = Crowd::of(Architecture::named("adaptive:16"), ends, 16 * 50);
        let all = |crowd: &mut Crowd| (0..20).map(|part| crowd.receive(part * 40..(part + 1) * 40)).sum::<u64>();
        while crowd.node.stack.decisions().len() < 16 {
            assert!(all(&mut crowd) < 16 * 50, "not all groups are at home");
        }
        all(&mut crowd);
        for batch in [4, 60] {
            assert_eq!(crowd.receive_known(100..100 + batch), batch as u64);
        }
    }
}

#[every_arch(except(adaptive))]
fn connections_of_a_batch_are_asked_for_where_there_are_many(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut crowd = Crowd::of(arch, ends, 520);
        for batch in [4, 8, 60] {
            let asked = crowd.receive_known(100..100 + batch);
            assert_eq!(asked, if owns_its_flows(arch) { batch as u64 } else { 0 }, "{arch}");
        }
        assert_eq!(crowd.receive_known(0..3), 0, "{arch}: too few to be worth it");
    }
}

#[every_arch]
fn connections_of_a_small_cell_are_not_asked_for(arch: Architecture) {
    for ends in Ends::BOTH_FAMILIES {
        let mut crowd = Crowd::of(arch, ends, 500);
        assert_eq!(crowd.receive_known(100..108), 0, "{arch}");
    }
}

/// A set with all connections of the crowd. Their events have been taken.
fn watched(crowd: &Crowd) -> Arc<PollSet<Real>> {
    let set = PollSet::new(false).expect("a set without a descriptor");
    crowd.sockets.iter().enumerate().for_each(|(token, socket)| socket.ready.register(socket, &set, token));
    while set.try_wait(&mut Vec::new(), 64) > 0 {}
    set
}

#[test]
fn connections_of_events_are_asked_for_where_there_are_many() {
    let cases =
        [("up", 520, 40), ("shared-nothing", 520, 40), ("giant", 520, 40), ("up", 500, 0), ("connp-l:8", 500, 0)];
    for ((arch, count, asked), ends) in cases.iter().flat_map(|case| Ends::BOTH_FAMILIES.map(|ends| (*case, ends))) {
        let mut crowd = Crowd::of(Architecture::named(arch), ends, count);
        let set = watched(&crowd);
        crowd.receive(100..140);
        assert_eq!(set.expected(), 0, "{arch}: no event was taken");
        assert_eq!(set.try_wait(&mut Vec::new(), 64), 40);
        assert_eq!(set.expected(), asked, "{arch} with {count}");
    }
}

/// A thread that uses many cells with a few connections each has as many as one that uses a large cell: it asks for a connection if it
/// would for that of a single cell, where each cell has as many.
#[test]
fn connections_of_events_are_asked_for_where_many_cells_have_a_few() {
    let groups = [("connp-l:8", 100), ("connp-l:128", 12), ("adaptive:16", 60)];
    for ((arch, each), ends) in groups.iter().flat_map(|case| Ends::BOTH_FAMILIES.map(|ends| (*case, ends))) {
        let cells = arch.split(':').nth(1).map_or(1, |cells| cells.parse().unwrap_or(1));
        let mut crowd = Crowd::of(Architecture::named(arch), ends, cells * each);
        let set = watched(&crowd);
        crowd.receive(100..140);
        assert_eq!(set.try_wait(&mut Vec::new(), 64), 40);
        assert_eq!(set.expected(), 40, "{arch} with {each} connections in each of {cells} cells");
    }
}

/// Another thread would take the connection's lines from the one that has received.
#[test]
fn another_thread_asks_for_no_connection() {
    let mut crowd = Crowd::of(Architecture::named("up"), Ends::BOTH_FAMILIES[0], 520);
    let set = watched(&crowd);
    crowd.receive(100..140);
    let taken = std::thread::scope(|threads| threads.spawn(|| set.try_wait(&mut Vec::new(), 64)).join());
    assert_eq!((taken.ok(), set.expected()), (Some(40), 0));
}

/// The caches have the connections of a thread that uses few, however many are idle.
#[test]
fn a_thread_that_uses_few_of_its_connections_asks_for_none() {
    for (arch, ends) in ["up", "shared-nothing", "giant", "adaptive"]
        .iter()
        .flat_map(|arch| Ends::BOTH_FAMILIES.map(|ends| (arch, ends)))
    {
        let mut crowd = Crowd::of(Architecture::named(arch), ends, 900);
        let set = watched(&crowd);
        // Connections that were asked for before their segments, and before their events, where these have had no event yet.
        let asked = |crowd: &mut Crowd, peers: Range<usize>| {
            while set.try_wait(&mut Vec::new(), 64) > 0 {}
            let before = set.expected();
            let segments = crowd.receive(peers);
            assert_eq!(set.try_wait(&mut Vec::new(), 64), 40);
            (segments, set.expected() - before)
        };
        (0..110).for_each(|_| crowd.use_all(0..40));
        assert_eq!(asked(&mut crowd, 600..640), (0, 0), "{arch}: forty are in use");
        // Others are used now, all in turn.
        (0..110).for_each(|part| crowd.use_all(part % 15 * 40..(part % 15 + 1) * 40));
        let now = asked(&mut crowd, 640..680);
        let segments = if owns_its_flows(Architecture::named(arch)) { 40 } else { 0 };
        // Groups that are not at home are not asked for.
        assert!(*arch == "adaptive" || now == (segments, 40), "{arch}: {now:?}, and six hundred are in use");
        (0..110).for_each(|_| crowd.use_all(0..40));
        assert_eq!(asked(&mut crowd, 680..720), (0, 0), "{arch}: forty are in use again");
    }
}
