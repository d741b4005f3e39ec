//! Which locks the data path takes, counted by the profile, on one thread.
//!
//! The profile is per process, so the tests of this binary run one at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use every_arch::every_arch;
use stack::Architecture;
use stack::call::{Call, Reply};
use stack::socket::TcpSocket;
use sync::{LockClass, Real};
use testbed::frames::{ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig, send};

const PORT: u16 = 80;
const SEGMENTS: u32 = 32;

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An idle connection.
struct Connection {
    node: Node<Real>,
    socket: Arc<TcpSocket<Real>>,
    next: u32,
    /// Bytes that the peer has sent.
    sent: u32,
}

impl Connection {
    fn open(arch: Architecture) -> Connection {
        let mut node = Node::with_known_peer(NodeConfig::new(arch));
        let listener = node.listen(PORT, 8);
        let answers = node.exchange(&Segment::syn(2000, PORT).frame());
        let next = tcp_of(&answers[0]).expect("a SYN-ACK").0.seq.0.wrapping_add(1);
        let mut connection = Connection {
            socket: TcpSocket::new(node.stack.flow(([0; 4], 0).into(), ([0; 4], 0).into())),
            node,
            next,
            sent: 0,
        };
        connection.segment(b"");
        connection.socket = listener.accept().expect("a child waits");
        connection.node.stack.unlisten(&listener);
        connection
    }

    /// Delivers the peer's next data, and runs everything that follows.
    fn segment(&mut self, data: &[u8]) {
        let seq = ISS.wrapping_add(1).wrapping_add(self.sent);
        let segment = Segment { data, ..Segment::ack((2000, PORT), seq, self.next) };
        self.sent += data.len() as u32;
        self.node.exchange(&segment.frame());
    }
}

/// The locks that `work` takes, by class.
fn locks(work: impl FnOnce()) -> BTreeMap<LockClass, u64> {
    let before = sync::profile::snapshot();
    work();
    let deferred = sync::profile::snapshot();
    let taken =
        deferred.iter().zip(&before).map(|(deferred, before)| (deferred.class, deferred.acquired - before.acquired));
    taken.filter(|(_, count)| *count > 0).collect()
}

/// The locks taken in total by data segments in, by reads, and by writes. Device queues are left out: they belong to
/// the device.
fn data_path(arch: Architecture) -> [BTreeMap<LockClass, u64>; 3] {
    let mut connection = Connection::open(arch);
    // The first acknowledgement looks up its route, and the connection caches it.
    connection.segment(&[7; 1400]);
    let arriving = locks(|| (0..SEGMENTS).for_each(|_| connection.segment(&[7; 1400])));
    let Connection { node, socket, .. } = &mut connection;
    let reading = locks(|| {
        for _ in 0..SEGMENTS {
            let reply = node.call(socket, Call::Receive(tcp::Receive { max: 1400 }));
            assert!(matches!(reply, Reply::Received(_)));
        }
    });
    let writing = locks(|| (0..SEGMENTS).for_each(|_| drop(node.call(socket, send(b"text")))));
    [arriving, reading, writing].map(|mut taken| {
        taken.remove(&LockClass::DeviceTx);
        taken
    })
}

/// Exactly one stack lock for each data segment and for each call.
#[every_arch(only(connp_l_4, connp_l_128, connp_l_1024))]
fn one_group_lock_for_each_event(arch: Architecture) {
    let _turn = turn();
    for taken in data_path(arch) {
        assert_eq!(taken, BTreeMap::from([(LockClass::Group, u64::from(SEGMENTS))]));
    }
}

/// The owner takes no lock; a sender takes the mailbox's, and a waiting caller the slot's.
#[every_arch(only(connp_t, connp_t_spsc))]
fn protocol_threads_take_none(arch: Architecture) {
    let _turn = turn();
    let allowed = [LockClass::Handoff, LockClass::SocketBuffer];
    for taken in data_path(arch) {
        assert!(taken.keys().all(|class| allowed.contains(class)), "{taken:?}");
    }
}

/// A ring needs no lock for a segment at all.
#[every_arch(only(connp_t_spsc))]
fn a_segment_crosses_the_ring_without_a_lock(arch: Architecture) {
    let _turn = turn();
    let [arriving, ..] = data_path(arch);
    assert_eq!(arriving, BTreeMap::new());
}

#[every_arch(only(up))]
fn one_thread_takes_none(arch: Architecture) {
    let _turn = turn();
    assert_eq!(data_path(arch), [const { BTreeMap::new() }; 3]);
}

/// One table lock and one connection lock for each event: the definition of MsgP.
#[every_arch(only(msgp_1, msgp_1_coupled))]
fn table_then_connection(arch: Architecture) {
    let _turn = turn();
    for taken in data_path(arch) {
        assert_eq!(taken.get(&LockClass::ConnTable), Some(&u64::from(SEGMENTS)), "{taken:?}");
        assert_eq!(taken.get(&LockClass::PcbHeaderIn), Some(&u64::from(SEGMENTS)), "{taken:?}");
        let rest: Vec<_> =
            taken.keys().filter(|c| ![LockClass::ConnTable, LockClass::PcbHeaderIn].contains(c)).collect();
        assert!(rest.iter().all(|class| **class == LockClass::Timers), "{taken:?}");
    }
}

/// A call takes the flag of a free shard and returns it, in every mode: there is no hand-over.
#[every_arch(only(squeue_fill, squeue_nodrain, squeue_process, squeue_process_bind, squeue_process_poll))]
fn a_call_enters_a_free_shard_in_every_mode(arch: Architecture) {
    let _turn = turn();
    let [_, reading, writing] = data_path(arch);
    for taken in [reading, writing] {
        let found = arch.to_string().ends_with("+bind").then_some((LockClass::FlowBindings, u64::from(SEGMENTS)));
        let flag = (LockClass::Squeue, 2 * u64::from(SEGMENTS));
        assert_eq!(taken, found.into_iter().chain([flag]).collect());
    }
}

/// Segments left to the worker of those that arrive at a free shard.
fn handed_over(arch: Architecture) -> u64 {
    let mut connection = Connection::open(arch);
    let before = sync::profile::handoffs().handoffs;
    (0..SEGMENTS).for_each(|_| connection.segment(b"text"));
    sync::profile::handoffs().handoffs - before
}

#[every_arch(only(squeue_fill))]
fn fill_leaves_every_segment_to_the_worker(arch: Architecture) {
    let _turn = turn();
    assert_eq!(handed_over(arch), u64::from(SEGMENTS));
}

#[every_arch(only(squeue_nodrain, squeue_process, squeue_process_bind, squeue_process_poll))]
fn a_segment_enters_a_free_shard_in_the_other_modes(arch: Architecture) {
    let _turn = turn();
    assert_eq!(handed_over(arch), 0);
}

/// The counter works: the same test on an architecture with a lock around everything.
#[every_arch(only(giant))]
fn the_giant_lock_is_counted(arch: Architecture) {
    let _turn = turn();
    for taken in data_path(arch) {
        assert!(taken[&LockClass::Group] >= u64::from(SEGMENTS), "{taken:?}");
    }
}
