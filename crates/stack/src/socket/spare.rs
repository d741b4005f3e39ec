//! Sockets that neither a connection nor a user refers to any more, for the next connections of the same cell.
//!
//! What may never happen: that a user finds anything of an earlier connection in a socket. What a socket refers to is let
//! go when its connection ends, and everything else is written anew when it is used again.

use std::sync::Arc;

use sync::Platform;

use super::TcpSocket;
use crate::flow::Flow;

/// So many are kept, in less than six kilobytes.
const MOST: usize = 64;

/// See the module documentation. Used by the thread that has its cell.
pub(crate) struct SpareSockets<P: Platform> {
    sockets: Vec<Arc<TcpSocket<P>>>,
}

impl<P: Platform> SpareSockets<P> {
    /// None.
    pub(crate) fn new() -> Self {
        SpareSockets { sockets: Vec::new() }
    }

    /// A socket for a connection that is about to be put into its table.
    #[inline]
    pub(crate) fn take(&mut self, flow: &Flow) -> Arc<TcpSocket<P>> {
        if let Some(spare) = self.sockets.pop()
            && spare.renew(flow)
        {
            return spare;
        }
        TcpSocket::new(*flow)
    }

    /// The connection of this socket has ended. It is kept if its user has let go of it before.
    #[inline]
    pub(crate) fn keep(&mut self, mut socket: Arc<TcpSocket<P>>) {
        if self.sockets.len() < MOST && TcpSocket::let_all_go(&mut socket) {
            self.sockets.push(socket);
        }
    }

    /// Gives their memory back.
    pub(crate) fn clear(&mut self) {
        self.sockets = Vec::new();
    }

    /// Memory held, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        self.sockets.len() * size_of::<TcpSocket<P>>() + self.sockets.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Weak;

    use sync::{Real, Writers};
    use wire::FourTuple;

    use super::*;
    use crate::flow::Key;
    use crate::socket::readiness::Watch;
    use crate::socket::{PollSet, Readiness};

    type Socket = TcpSocket<Real>;

    const ENDS: [(&str, &str); 2] = [("10.0.0.1:4000", "10.0.0.2:80"), ("[fd00::1]:4000", "[fd00::2]:80")];

    /// A flow over IPv4 or IPv6; others have other ports and hashes.
    fn flow(ipv6: bool, n: u16) -> Flow {
        let [mut local, remote] = [ENDS[usize::from(ipv6)].0, ENDS[usize::from(ipv6)].1]
            .map(|end| end.parse::<SocketAddr>().expect("an address"));
        local.set_port(4000 + n);
        Flow { tuple: FourTuple::new(local, remote), hash: 7700 + u32::from(n) }
    }

    struct Watcher;

    impl Watch for Watcher {
        fn ready(&self, _: Readiness, _: Readiness) {}
    }

    /// A socket at the end of a connection that everything has happened to, and whatever its user gave it.
    fn used(socket: &Arc<Socket>, writers: Writers) -> (Weak<PollSet<Real>>, Weak<Watcher>) {
        let set = PollSet::new(false).expect("a poll set without a descriptor");
        let watch = Arc::new(Watcher);
        socket.ready.begin(Readiness::NONE, writers);
        socket.placed(Key { slot: 3, generation: 8 });
        socket.ready.register(socket, &set, 5);
        socket.ready.raise_as(Readiness::READABLE | Readiness::WRITABLE | Readiness::CONNECTED, writers);
        socket.ready.raise_as(Readiness::ERROR | Readiness::CLOSED, writers);
        socket.ready.deregister();
        socket.ready.watch(watch.clone());
        socket.ready.deregister();
        socket.ready.watch(watch.clone());
        socket.ready.hand_over();
        socket.let_go();
        socket.abort();
        (Arc::downgrade(&set), Arc::downgrade(&watch))
    }

    /// What anybody can learn of a socket, and what an edge does to it.
    fn described(socket: &Arc<Socket>, writers: Writers) -> String {
        let before = format!("{:?} {:?} {:?}", socket.target(), socket.flow(), socket.slot());
        let word = format!("{:?} {} {}", socket.ready.get(), socket.ready.is_handled(), socket.is_aborted());
        socket.ready.begin(Readiness::NONE, writers);
        let begun = format!("{:?} {}", socket.ready.get(), socket.ready.is_handled());
        let (set, mut events) = (PollSet::new(false).expect("a poll set without a descriptor"), Vec::new());
        socket.ready.register(socket, &set, 9);
        let at_first = set.try_wait(&mut events, 8);
        socket.ready.raise_as(Readiness::WRITABLE, writers);
        let after = set.try_wait(&mut events, 8);
        let events: Vec<_> = events.iter().map(|event| (event.token, event.ready)).collect();
        format!("{before} {word} {begun} {at_first} {after} {events:?}")
    }

    #[test]
    fn a_socket_that_is_used_again_is_like_a_new_one() {
        for writers in [Writers::One, Writers::Many] {
            for (before, after) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut spare = SpareSockets::<Real>::new();
                let first = spare.take(&flow(before, 1));
                used(&first, writers);
                let place = Arc::as_ptr(&first);
                spare.keep(first);
                let again = spare.take(&flow(after, 2));
                let has_room = before == after;
                assert!(!has_room || Arc::as_ptr(&again) == place, "it is the same memory");
                let new = TcpSocket::new(flow(after, 2));
                assert_eq!(described(&again, writers), described(&new, writers), "{before} {after}");
            }
        }
    }

    /// A poll set has a descriptor and a watch is the user's: neither lives longer for a socket that nobody uses.
    #[test]
    fn a_spare_socket_keeps_nothing_of_its_user_alive() {
        let mut spare = SpareSockets::<Real>::new();
        let socket = spare.take(&flow(false, 1));
        let (set, watch) = used(&socket, Writers::Many);
        assert!(set.upgrade().is_some() && watch.upgrade().is_some(), "the socket refers to both");
        spare.keep(socket);
        assert_eq!(spare.sockets.len(), 1);
        assert!(set.upgrade().is_none() && watch.upgrade().is_none());
    }

    #[test]
    fn a_socket_that_its_user_still_has_is_not_used_again() {
        let mut spare = SpareSockets::<Real>::new();
        let socket = spare.take(&flow(false, 1));
        let user = socket.clone();
        user.placed(Key { slot: 3, generation: 8 });
        user.ready.raise(Readiness::READABLE);
        spare.keep(socket);
        let next = spare.take(&flow(false, 2));
        assert!(!Arc::ptr_eq(&next, &user));
        assert_eq!(user.target().key, Key { slot: 3, generation: 8 });
        assert_eq!((user.ready.get(), user.flow()), (Readiness::READABLE, flow(false, 1)));
    }

    /// After many connections at once only so many sockets are kept, and none when memory is given back.
    #[test]
    fn few_are_kept() {
        let mut spare = SpareSockets::<Real>::new();
        let sockets: Vec<_> = (0..3 * MOST as u16).map(|n| spare.take(&flow(true, n))).collect();
        let kept: Vec<_> = sockets.iter().map(Arc::as_ptr).collect();
        sockets.into_iter().for_each(|socket| spare.keep(socket));
        assert_eq!(spare.sockets.len(), MOST);
        assert!(spare.sockets.iter().all(|socket| kept.contains(&Arc::as_ptr(socket))));
        assert!(spare.footprint() < 6 << 10, "{} bytes", spare.footprint());
        spare.clear();
        assert_eq!(spare.footprint(), 0);
    }
}
