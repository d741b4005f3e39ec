//! Records of effects: which are forgotten with nothing lost, and which must be dropped.
//!
//! A call forgets a record that is plain ([`DeferredEffects::is_plain`]): what it owns then would never be freed. So one
//! that has got memory of its own is never plain again, though all its effects have been performed.

use std::sync::Arc;
use std::time::Duration;

use stack::Architecture;
use stack::deferred::{DeferredEffects, LazyEffects};
use stack::socket::readiness::Watch;
use stack::socket::{ListenerShared, PollSet, Readiness};
use sync::Real;
use testbed::frames::{self, Ends, ISS, Segment, tcp_of};
use testbed::node::{Node, NodeConfig};

/// A number that a set of bits has no place for in itself.
const LARGE: usize = 64;

fn node() -> Node<Real> {
    Node::new(NodeConfig::new(Architecture::named("up")))
}

/// Whether a record is plain after `effects` and their performance.
fn is_plain(node: &Node<Real>, effects: impl FnOnce(&mut DeferredEffects<Real>)) -> bool {
    let mut deferred = DeferredEffects::default();
    assert!(deferred.is_plain(), "nothing has happened");
    effects(&mut deferred);
    deferred.flush(node.stack.shared().links());
    deferred.is_plain()
}

fn listeners(node: &Node<Real>, count: u16) -> Vec<Arc<ListenerShared<Real>>> {
    (0..count).map(|n| node.listen(80 + n, 4)).collect()
}

struct Ignore;

impl Watch for Ignore {
    fn ready(&self, _: Readiness, _: Readiness) {}
}

#[test]
fn effects_without_memory_leave_a_plain_record() {
    let node = node();
    assert!(is_plain(&node, |deferred| deferred.due(7)));
    assert!(is_plain(&node, |deferred| deferred.dirty().mark(0)));
    assert!(is_plain(&node, |deferred| {
        deferred.announce(LARGE - 1);
        assert!(deferred.has_announcements());
        assert_eq!((deferred.next_announcement(), deferred.next_announcement()), (Some(LARGE - 1), None));
        assert!(!deferred.has_announcements());
    }));
}

#[test]
fn a_record_with_effects_to_perform_is_not_plain() {
    let mut deferred = DeferredEffects::<Real>::default();
    deferred.dirty();
    assert!(!deferred.is_plain());
    let mut deferred = DeferredEffects::<Real>::default();
    deferred.due(7);
    assert!(!deferred.is_plain());
}

#[test]
fn a_record_with_large_numbers_is_never_plain_again() {
    let node = node();
    assert!(!is_plain(&node, |deferred| {
        deferred.announce(LARGE);
        assert_eq!(deferred.next_announcement(), Some(LARGE));
    }));
    assert!(!is_plain(&node, |deferred| {
        deferred.dirty().mark(LARGE);
        assert_eq!(deferred.dirty().next_queue().map(|(queue, _)| queue), Some(LARGE));
    }));
    let mut deferred = DeferredEffects::<Real>::default();
    deferred.announce(LARGE);
    assert!(!deferred.is_plain(), "it has memory before it is flushed");
}

/// It has places for four members of a poll set.
#[test]
fn a_record_of_many_members_of_a_poll_set_is_never_plain_again() {
    let node = node();
    let set = PollSet::<Real>::new(false).expect("a set");
    let listeners = listeners(&node, 5);
    for (token, listener) in listeners.iter().enumerate() {
        listener.ready.register(listener, &set, token);
    }
    let wake = |count: usize| {
        let effects = |deferred: &mut DeferredEffects<Real>| {
            for listener in &listeners[..count] {
                listener.ready.clear(Readiness::ACCEPTABLE);
                deferred.wake_listener(listener);
            }
        };
        let is_plain = is_plain(&node, effects);
        let mut events = Vec::new();
        assert_eq!(set.try_wait(&mut events, 8), count, "each was told");
        is_plain
    };
    assert!(wake(4));
    assert!(!wake(5));
}

/// It has a place for one of the others.
#[test]
fn a_record_of_two_watched_sockets_is_never_plain_again() {
    let node = node();
    let listeners = listeners(&node, 2);
    listeners.iter().for_each(|listener| listener.ready.watch(Arc::new(Ignore)));
    let wake = |count: usize| {
        is_plain(&node, |deferred| {
            for listener in &listeners[..count] {
                listener.ready.clear(Readiness::ACCEPTABLE);
                deferred.wake_listener(listener);
            }
        })
    };
    assert!(wake(1));
    assert!(!wake(2));
}

/// Memory of two kinds at once is not less than that of one.
#[test]
fn a_record_with_memory_of_two_kinds_is_never_plain_again() {
    let node = node();
    let set = PollSet::<Real>::new(false).expect("a set");
    let listeners = listeners(&node, 7);
    let (members, watched) = listeners.split_at(5);
    for (token, listener) in members.iter().enumerate() {
        listener.ready.register(listener, &set, token);
    }
    watched.iter().for_each(|listener| listener.ready.watch(Arc::new(Ignore)));
    let wake = |deferred: &mut DeferredEffects<Real>, some: &[Arc<ListenerShared<Real>>]| {
        for listener in some {
            listener.ready.clear(Readiness::ACCEPTABLE);
            deferred.wake_listener(listener);
        }
    };
    let announce = |deferred: &mut DeferredEffects<Real>| {
        deferred.announce(LARGE);
        assert_eq!(deferred.next_announcement(), Some(LARGE));
    };
    assert!(!is_plain(&node, |deferred| wake(deferred, &listeners)));
    for some in [members, watched] {
        assert!(!is_plain(&node, |deferred| {
            wake(deferred, some);
            announce(deferred);
        }));
    }
    assert!(!is_plain(&node, |deferred| {
        announce(deferred);
        deferred.dirty().mark(LARGE);
        assert_eq!(deferred.dirty().next_queue().map(|(queue, _)| queue), Some(LARGE));
    }));
}

/// A record that was made only when it was needed is flushed; one that was given is its owner's to flush.
#[test]
fn a_record_that_was_made_is_flushed_and_a_given_one_is_not() {
    let node = node();
    let set = PollSet::<Real>::new(false).expect("a set");
    let listener = node.listen(80, 4);
    listener.ready.register(&listener, &set, 0);
    let told = || set.try_wait(&mut Vec::new(), 8);
    let links = node.stack.shared().links();
    let mut made = LazyEffects::<Real>::none();
    made.record().wake_listener(&listener);
    assert_eq!(told(), 0);
    made.flush(links);
    assert_eq!(told(), 1);
    listener.ready.clear(Readiness::ACCEPTABLE);
    let mut deferred = DeferredEffects::default();
    let mut given = LazyEffects::given(&mut deferred);
    given.record().wake_listener(&listener);
    given.flush(links);
    assert_eq!(told(), 0);
    deferred.flush(links);
    assert_eq!(told(), 1);
}

/// A listener on `port`, watched by a poll set of its own.
fn watched(node: &Node<Real>, port: u16) -> (Arc<ListenerShared<Real>>, Arc<PollSet<Real>>) {
    let set = PollSet::<Real>::new(false).expect("a set");
    let listener = node.listen(port, 4);
    listener.ready.register(&listener, &set, port.into());
    (listener, set)
}

/// A connection arrives at `port`, in batches of one frame.
fn connect(node: &mut Node<Real>, ends: Ends, ports: (u16, u16)) {
    let answers = node.exchange(&Segment::syn(ports.0, ports.1).frame_over(ends));
    let (syn_ack, _) = answers.iter().find_map(|frame| tcp_of(frame)).expect("a SYN-ACK");
    node.exchange(&Segment::ack(ports, ISS.wrapping_add(1), syn_ack.seq.0.wrapping_add(1)).frame_over(ends));
}

fn told(set: &PollSet<Real>) -> Vec<usize> {
    let mut events = Vec::new();
    set.try_wait(&mut events, 8);
    events.iter().map(|event| event.token).collect()
}

/// The poll set of one batch may be needed for the next one; but a thread that does nothing keeps it, and its descriptor, no
/// longer than its users do.
#[test]
fn a_receive_thread_gives_up_the_poll_set_of_its_latest_batch_before_it_rests() {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = Node::<Real>::with_known_peer(NodeConfig::new(Architecture::named("up")));
        node.exchange(&frames::neighbour_solicitation());
        let (listener, set) = watched(&node, 80);
        let owners = Arc::strong_count(&set);
        let rests: [fn(&mut Node<Real>); 2] = [
            |node| node.driver.rest(),
            |node| {
                node.driver.wait(Some(Duration::ZERO));
            },
        ];
        for (rest, port) in rests.into_iter().zip(2000..) {
            connect(&mut node, ends, (port, 80));
            assert_eq!((told(&set), Arc::strong_count(&set)), (vec![80], owners + 1));
            rest(&mut node);
            assert_eq!(Arc::strong_count(&set), owners);
            listener.accept().expect("a child waits");
        }
    }
}

/// The set that a thread has kept does not get the edges of another one.
#[test]
fn edges_of_two_poll_sets_in_turn_reach_their_own() {
    for ends in Ends::BOTH_FAMILIES {
        let mut node = Node::<Real>::with_known_peer(NodeConfig::new(Architecture::named("up")));
        node.exchange(&frames::neighbour_solicitation());
        let both = [watched(&node, 80), watched(&node, 81)];
        for (turn, port) in [80, 81, 81, 80].into_iter().zip(2000..) {
            connect(&mut node, ends, (port, turn));
            for (_listener, set) in &both {
                let (events, own) = (told(set), std::ptr::eq(set, &both[usize::from(turn - 80)].1));
                assert_eq!(events, if own { vec![usize::from(turn)] } else { vec![] });
            }
        }
    }
}
