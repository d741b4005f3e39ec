//! The words and the ring of a channel, one step of its two ends after another. The models test the interaction of
//! threads (`tests/shuttle/channel.rs`).

use pktbuf::PktBuf;
use sync::Real;
use tcp::Received;

use super::*;
use crate::flow::Flow;

struct Ends {
    socket: Arc<TcpSocket<Real>>,
    user: Channel<Real>,
    owner: OwnerEnd<Real>,
}

/// Both ends; the owner's has reached its cell.
fn ends() -> Ends {
    let address = std::net::IpAddr::from([10, 0, 0, 1]);
    let tuple = wire::FourTuple { local_addr: address, remote_addr: address, local_port: 1, remote_port: 2 };
    let socket = TcpSocket::new(Flow { tuple, hash: 0 });
    let (user, mut owner) = channel(&socket);
    owner.attach();
    Ends { socket, user, owner }
}

fn item(data: &[u8]) -> Received {
    let buffer = PktBuf::from_slice(data).expect("a buffer");
    Received { data: [buffer].into_iter().collect(), more: true, ..Received::default() }
}

impl Ends {
    fn put(&mut self, received: Received) {
        assert!(self.owner.has_room());
        self.owner.put(received);
    }

    /// Takes about `max` bytes: the data, whether there is more, whether the stream has ended, the urgent mark.
    fn take(&self, max: usize) -> Option<(Vec<u8>, bool, bool, Option<usize>)> {
        let mut received = Received::default();
        self.user.take(max, &mut received)?;
        let data = received.data.iter().flat_map(|buffer| buffer.to_vec()).collect();
        Some((data, received.more, received.end, received.urgent))
    }

    /// Whether its user posts data, and believes an empty ring.
    fn is_used(&self) -> (bool, bool) {
        (self.user.may_post(&self.socket), self.user.delivers(&self.socket))
    }
}

/// Until the owner's end is in its cell, once it has gone, for a direction that has ended, and after a failure, calls have
/// the answers.
#[test]
fn a_channel_is_used_while_its_owner_is_there_and_nothing_has_failed() {
    let address = std::net::IpAddr::from([10, 0, 0, 1]);
    let tuple = wire::FourTuple { local_addr: address, remote_addr: address, local_port: 1, remote_port: 2 };
    let socket = TcpSocket::<Real>::new(Flow { tuple, hash: 0 });
    let (user, mut owner) = channel(&socket);
    assert!(!user.may_post(&socket) && !user.delivers(&socket), "not attached");
    owner.attach();
    assert!(user.may_post(&socket) && user.delivers(&socket));
    owner.attach();
    drop(owner);
    assert!(!user.may_post(&socket) && !user.delivers(&socket), "the owner's end has gone");
    for (bits, used) in [
        (Readiness::READABLE | Readiness::WRITABLE | Readiness::SOFT_ERROR, (true, true)),
        (Readiness::PEER_CLOSED, (true, false)),
        (Readiness::ERROR, (false, false)),
        (Readiness::CLOSED, (false, false)),
    ] {
        let ends = ends();
        ends.socket.ready.raise(bits);
        assert_eq!(ends.is_used(), used, "{bits:?}");
    }
    let ends = ends();
    ends.user.end_sending();
    assert_eq!(ends.is_used(), (false, true));
    ends.user.end_receiving();
    assert_eq!(ends.is_used(), (false, false));
}

/// The granted room is a count of bytes that only grows: the appended bytes, and the room after them.
#[test]
fn as_much_is_posted_as_was_granted() {
    let Ends { user, mut owner, .. } = ends();
    assert_eq!(user.reserve(1), 0, "nothing was granted");
    owner.grant(100);
    assert_eq!([user.reserve(60), user.reserve(60), user.reserve(1)], [60, 40, 0]);
    owner.appended(60);
    owner.grant(30);
    assert_eq!(user.reserve(1), 0, "less room than was granted before: that stays granted");
    owner.appended(40);
    owner.grant(70);
    assert_eq!(user.reserve(50), 50);
    user.release(30);
    assert_eq!([user.reserve(100), user.reserve(1)], [50, 0]);
}

#[test]
fn items_are_taken_together_up_to_what_is_asked_for() {
    let mut ends = ends();
    assert_eq!(ends.take(1), None);
    for data in [b"ab", b"cd", b"ef"] {
        ends.put(item(data));
    }
    ends.put(Received { more: false, ..item(b"gh") });
    assert_eq!(ends.take(2), Some((b"ab".to_vec(), true, false, None)), "enough");
    assert_eq!(ends.take(3), Some((b"cdef".to_vec(), true, false, None)), "whole items");
    assert_eq!(ends.take(100), Some((b"gh".to_vec(), false, false, None)));
    for data in [b"a", b"b", b"c"] {
        ends.put(item(data));
    }
    assert_eq!(ends.take(2), Some((b"ab".to_vec(), true, false, None)));
    assert_eq!(ends.take(2), Some((b"c".to_vec(), true, false, None)));
    assert_eq!(ends.take(100), None);
}

/// An urgent mark, or the end of the stream, is in the last item of those taken together.
#[test]
fn marks_and_the_end_keep_their_places() {
    let mut ends = ends();
    ends.put(item(b"ab"));
    ends.put(Received { urgent: Some(1), ..item(b"cd") });
    ends.put(item(b"ef"));
    ends.put(Received { end: true, more: false, ..item(b"gh") });
    assert!(!ends.owner.has_room(), "the stream has ended");
    assert_eq!(ends.take(100), Some((b"ab".to_vec(), true, false, None)));
    assert_eq!(ends.take(100), Some((b"cd".to_vec(), true, false, Some(1))));
    assert_eq!(ends.take(100), Some((b"efgh".to_vec(), false, true, None)));
    assert_eq!(ends.take(100), None);
    assert!(!ends.owner.has_room(), "nothing follows the end");
}

/// A user that takes data notifies an owner that has requested it, once, and not before half of the ring is free.
#[test]
fn the_owner_is_told_when_half_of_the_ring_is_free() {
    let mut ends = ends();
    let told = |user: &Channel<Real>| user.take(1, &mut Received::default()).expect("an item").more;
    let fill = |ends: &mut Ends| {
        let before = ends.owner.unread();
        while ends.owner.has_room() {
            ends.owner.put(item(b"a"));
        }
        ends.owner.unread() - before
    };
    assert_eq!(fill(&mut ends), ITEMS);
    assert_eq!([(); 4].map(|()| told(&ends.user)), [false, true, false, false]);
    // The owner looks for itself.
    assert_eq!(fill(&mut ends), ITEMS);
    ends.owner.take_back();
    assert_eq!([(); 4].map(|()| told(&ends.user)), [false; 4]);
    // The owner requests it without a full ring; and the user cannot notify it.
    ends.put(item(b"a"));
    ends.put(item(b"a"));
    ends.owner.request_report();
    assert!(told(&ends.user));
    ends.user.report_again();
    assert!(told(&ends.user));
    ends.put(Received { end: true, ..item(b"a") });
    assert!(!ends.owner.has_room());
    assert!(!told(&ends.user), "it is not for lack of room that nothing more comes");
}

/// A ring of few large items is full, too: its data is not in the window.
#[test]
fn a_ring_takes_no_more_than_its_bytes() {
    let mut ends = ends();
    let buffers = |count: usize| (0..count).map(|_| PktBuf::from_slice(&[0; 1024]).expect("a buffer"));
    let most = RING_BYTES as usize / 1024;
    ends.put(Received { data: buffers(most - 1).collect(), ..Received::default() });
    assert_eq!((ends.owner.has_room(), ends.owner.unread()), (true, 1024 * (most - 1)));
    ends.put(Received { data: buffers(1).collect(), ..Received::default() });
    assert_eq!((ends.owner.has_room(), ends.owner.unread()), (false, 1024 * most));
    assert_eq!(ends.take(1).expect("an item").0.len(), 1024 * (most - 1));
    assert_eq!((ends.owner.has_room(), ends.owner.unread()), (true, 1024));
}

/// Readiness is cleared where the ring is empty, and comes back where it is not.
#[test]
fn readiness_is_as_long_as_there_are_items() {
    let mut ends = ends();
    ends.socket.ready.raise(Readiness::READABLE);
    assert!(ends.user.is_exhausted(&ends.socket));
    assert!(ends.socket.ready.get().is_empty());
    ends.put(item(b"ab"));
    ends.put(Received { urgent: Some(1), ..item(b"cd") });
    ends.socket.ready.raise(Readiness::READABLE);
    for _ in 0..2 {
        assert!(!ends.user.is_exhausted(&ends.socket));
        assert_eq!(ends.socket.ready.get(), Readiness::READABLE);
        // The second item was looked at, and is left for the next call.
        assert!(ends.take(100).is_some());
    }
    assert!(ends.user.is_exhausted(&ends.socket));
}

/// Data that closing would lose: data that was not taken, also with the end of the stream, but not the end alone.
#[test]
fn data_in_the_ring_is_known_at_both_ends() {
    let data = |ends: &Ends| {
        let owner = (ends.owner.has_data(), ends.owner.is_empty());
        let user = ends.user.has_data();
        assert_eq!(ends.owner.has_data(), owner.0, "the user has only looked at it");
        assert!(!owner.0 || !ends.owner.is_empty());
        (user, owner.0, owner.1)
    };
    let mut all = ends();
    assert_eq!(data(&all), (false, false, true));
    all.put(item(b"ab"));
    assert_eq!(data(&all), (true, true, false));
    all.take(100);
    assert_eq!(data(&all), (false, false, true));
    all.put(Received { end: true, ..item(b"cd") });
    assert_eq!(data(&all), (true, true, false));
    all.take(100);
    assert_eq!(data(&all), (false, false, true));
    let mut end = ends();
    end.put(Received { end: true, ..Received::default() });
    assert_eq!(data(&end), (false, false, false));
}
