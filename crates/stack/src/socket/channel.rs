//! A channel between a connection's user and the thread that owns the connection, on which neither waits for the other.
//!
//! Under an architecture that sends calls to an owner, each SEND and RECEIVE is a message to the owner and an answer
//! back. With a channel data needs neither:
//!
//! * *Sending*. The owner grants room in the send buffer in advance: a count of bytes that only grows. A user posts data
//!   up to the grant and does not wait. The data is appended completely ([`tcp::SendPromised`]). A user without a grant
//!   is refused at once, and asks the owner, by a message without an answer, to make the socket writable when a call
//!   that was refused would do so.
//! * *Receiving*. After each batch the owner puts the received data into a ring of one producer and one consumer, with
//!   the end of the stream and the urgent mark in their places. The user takes it from there. The ring is short. Data
//!   in it counts as not read, and data that finds no room in it stays in the connection: if that leaves the peer a
//!   small window, a user that takes data notifies the owner, once for several items.
//!
//! Everything else, and every failure, is a call as before: messages of one thread arrive in their order, so a call runs
//! after the data posted before it. A channel whose owner's end is gone (the connection has ended, or the stack has
//! changed its architecture) delivers the data in its ring; after that the user makes calls.
//!
//! What may never happen: data that overtakes data of the ring; the user asleep with an item in the ring, or for room that the
//! connection has; the owner not notified of an emptied ring while the connection has more. Both sides therefore write, fence and read: the owner
//! puts an item in and then raises readiness, the user clears readiness and then checks the ring; the owner announces
//! more data and then checks for room, the user makes room and then checks the announcement.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use sync::ring::spsc::{self, Consumer, Producer};
use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform, model_is_over};

use super::{Readiness, TcpSocket};
use crate::flow::Key;

/// Items in a ring.
const ITEMS: usize = 4;
/// Bytes of data in one item, about: whole buffers, at least one.
pub(crate) const ITEM_BYTES: usize = 16 << 10;
/// Bytes in a ring beyond which nothing is put in.
const RING_BYTES: u64 = 48 << 10;

/// The words that both ends share.
struct ChannelWords<P: Platform> {
    /// The owner's end exists.
    attached: P::AtomicBool,
    /// Bytes that may have been posted in all; only grows.
    granted: P::AtomicU64,
    /// The connection has more data than the ring had room for, or its window is small: the user reports progress.
    more: P::AtomicBool,
    /// Bytes that the user has taken in all. Written by the user.
    taken: P::AtomicU64,
}

/// The user's end. Any thread; reading threads exclude each other.
pub struct Channel<P: Platform> {
    words: Arc<ChannelWords<P>>,
    /// Bytes posted.
    posted: P::AtomicU64,
    /// The user has ended one direction or both: calls have the answers.
    sending_ended: P::AtomicBool,
    receiving_ended: P::AtomicBool,
    items: Lock<Taking<P>, P>,
}

/// The ring's end of the user.
struct Taking<P: Platform> {
    ring: Consumer<tcp::Received, P>,
    /// Taken from the ring, and left for the next call.
    next: Option<tcp::Received>,
    /// Bytes given to the user.
    bytes: u64,
}

impl<P: Platform> Taking<P> {
    fn pop(&mut self) -> Option<tcp::Received> {
        self.next.take().or_else(|| self.ring.pop())
    }

    fn peek(&mut self) -> Option<&tcp::Received> {
        self.next = self.pop();
        self.next.as_ref()
    }
}

/// The duty of the caller of [`Channel::take`] after it has taken data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The owner must be notified that the ring has room: the connection has more data.
    pub more: bool,
}

/// Readiness of a connection that has failed: calls have the reason.
const FAILED: Readiness = Readiness::ERROR.union(Readiness::CLOSED);

fn length(received: &tcp::Received) -> usize {
    received.data.iter().map(|buffer| buffer.len()).sum()
}

/// The owner's end. Belongs to the cell of the connection.
pub struct OwnerEnd<P: Platform> {
    words: Arc<ChannelWords<P>>,
    socket: Arc<TcpSocket<P>>,
    items: Producer<tcp::Received, P>,
    /// Bytes put into the ring.
    put: u64,
    /// The connection must be notified of its user's reads.
    pub(crate) clamped: bool,
    /// Bytes of posted data that were appended.
    appended: u64,
    granted: u64,
    /// The largest room that was granted at once.
    most: u64,
    /// The end of the stream has been put into the ring.
    ended: bool,
    /// The user may use it.
    attached: bool,
    /// It is on the list of those to serve.
    pub(crate) listed: bool,
}

/// Both ends of a channel for the connection of `socket`. Nothing is granted, and nothing delivered, before the owner's
/// end has reached its cell.
pub fn channel<P: Platform>(socket: &Arc<TcpSocket<P>>) -> (Channel<P>, OwnerEnd<P>) {
    let words = Arc::new(ChannelWords {
        attached: P::AtomicBool::new(false),
        granted: P::AtomicU64::new(0),
        more: P::AtomicBool::new(false),
        taken: P::AtomicU64::new(0),
    });
    let (producer, consumer) = spsc::channel(ITEMS);
    let user = Channel {
        words: words.clone(),
        posted: P::AtomicU64::new(0),
        sending_ended: P::AtomicBool::new(false),
        receiving_ended: P::AtomicBool::new(false),
        items: Lock::new(LockKind::Reserved, LockClass::Handoff, Taking { ring: consumer, next: None, bytes: 0 }),
    };
    let owner = OwnerEnd {
        words,
        socket: socket.clone(),
        items: producer,
        put: 0,
        clamped: false,
        appended: 0,
        granted: 0,
        most: 0,
        ended: false,
        attached: false,
        listed: false,
    };
    (user, owner)
}

impl<P: Platform> Channel<P> {
    /// Whether data is posted: otherwise a send is a call.
    #[inline]
    pub(crate) fn may_post(&self, socket: &TcpSocket<P>) -> bool {
        self.words.attached.load(Ordering::Acquire)
            && !self.sending_ended.load(Ordering::Relaxed)
            && !socket.ready.get().intersects(FAILED)
    }

    /// Whether an empty ring means that there is no data now: otherwise a call has the answer.
    #[inline]
    pub(crate) fn delivers(&self, socket: &TcpSocket<P>) -> bool {
        self.words.attached.load(Ordering::Acquire)
            && !self.receiving_ended.load(Ordering::Relaxed)
            && !socket.ready.get().intersects(FAILED | Readiness::PEER_CLOSED)
    }

    /// The user is about to end sending: later sends are calls, which fail.
    pub fn end_sending(&self) {
        self.sending_ended.store(true, Ordering::Relaxed);
    }

    /// The user is about to end receiving.
    pub fn end_receiving(&self) {
        self.receiving_ended.store(true, Ordering::Relaxed);
    }

    /// Reserves room for at most `wanted` bytes, 1 or more; returns for how many.
    #[inline]
    pub fn reserve(&self, wanted: usize) -> usize {
        self.take_room(wanted).unwrap_or(0)
    }

    fn take_room(&self, wanted: usize) -> Option<usize> {
        let granted = self.words.granted.load(Ordering::Acquire);
        let mut posted = self.posted.load(Ordering::Relaxed);
        loop {
            let room = granted.saturating_sub(posted).min(wanted as u64);
            if room == 0 {
                return None;
            }
            match self.posted.compare_exchange_weak(posted, posted + room, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break usize::try_from(room).ok(),
                Err(now) => posted = now,
            }
        }
    }

    /// Returns reserved room that was not used.
    #[cold]
    pub(crate) fn release(&self, bytes: usize) {
        self.posted.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// No room was granted: the socket is not writable from now on, and `ask` asks the owner to make it writable again once the
    /// connection has room. If it is not writable already, the owner has been asked, or a call was refused for lack of room. False:
    /// `ask` could not ask.
    pub fn await_room(&self, socket: &TcpSocket<P>, ask: impl FnOnce() -> bool) -> bool {
        if !socket.ready.get().contains(Readiness::WRITABLE) {
            return true;
        }
        // Before the owner is asked, which may set the bit at once.
        socket.ready.clear(Readiness::WRITABLE);
        let asked = ask();
        if !asked {
            socket.ready.restore(Readiness::WRITABLE);
        }
        asked
    }

    /// Moves about `max` bytes of data from the ring to `received`, which is empty. An urgent mark, or the end of the
    /// stream, is in the last item of those taken together. `None`: the ring is empty.
    pub fn take(&self, max: usize, received: &mut tcp::Received) -> Option<Taken> {
        let mut items = self.items.lock();
        *received = items.pop()?;
        let mut bytes = length(received);
        while bytes < max
            && received.urgent.is_none()
            && !received.end
            && items.peek().is_some_and(|next| next.urgent.is_none())
            && let Some(next) = items.pop()
        {
            bytes += length(&next);
            received.data.extend(next.data);
            (received.more, received.end) = (next.more, next.end);
        }
        items.bytes += bytes as u64;
        self.words.taken.store(items.bytes, Ordering::Release);
        P::fence(Ordering::SeqCst);
        let more = items.ring.len_hint() <= ITEMS / 2
            && self.words.more.load(Ordering::Relaxed)
            && self.words.more.swap(false, Ordering::AcqRel);
        Some(Taken { more })
    }

    /// The owner could not be notified of room: the next [`Channel::take`] reports it again.
    pub(crate) fn report_again(&self) {
        self.words.more.store(true, Ordering::Release);
    }

    /// The ring was found empty: clears `READABLE`, unless there is an item after all.
    pub fn is_exhausted(&self, socket: &TcpSocket<P>) -> bool {
        socket.ready.clear(Readiness::READABLE);
        P::fence(Ordering::SeqCst);
        if self.items.lock().peek().is_none() {
            return true;
        }
        socket.ready.restore(Readiness::READABLE);
        false
    }

    /// Whether data in the ring would be lost with the channel.
    pub fn has_data(&self) -> bool {
        self.items.lock().peek().is_some_and(|item| !item.data.is_empty())
    }
}

impl<P: Platform> OwnerEnd<P> {
    /// Its connection's name.
    pub(crate) fn key(&self) -> Key {
        self.socket.target().key
    }

    /// Its user's side.
    pub(crate) fn socket(&self) -> &Arc<TcpSocket<P>> {
        &self.socket
    }

    /// Room has been granted: the user may use it.
    pub(crate) fn attach(&mut self) {
        if !std::mem::replace(&mut self.attached, true) {
            self.words.attached.store(true, Ordering::Release);
        }
    }

    /// Posted data of this length was appended.
    pub(crate) fn appended(&mut self, bytes: usize) {
        self.appended += bytes as u64;
    }

    /// Whether more room is granted now: half of a full grant is left to post at most.
    pub(crate) fn needs_grant(&self) -> bool {
        2 * self.granted.saturating_sub(self.appended) <= self.most
    }

    /// The connection has room for `room` bytes.
    pub fn grant(&mut self, room: usize) {
        self.most = self.most.max(room as u64);
        let granted = self.appended + room as u64;
        if granted > self.granted {
            self.granted = granted;
            self.words.granted.store(granted, Ordering::Release);
        }
    }

    /// Whether the next item can be put in. If there is no room, the user will report when there is.
    pub fn has_room(&mut self) -> bool {
        if self.ended || self.is_open() {
            return !self.ended;
        }
        self.request_report();
        self.is_open()
    }

    fn is_open(&mut self) -> bool {
        self.items.free() > 0 && (self.unread() as u64) < RING_BYTES
    }

    /// The user reports when it has next taken data.
    pub(crate) fn request_report(&self) {
        self.words.more.store(true, Ordering::Release);
        P::fence(Ordering::SeqCst);
    }

    /// Bytes that were put into the ring and that the user has not taken.
    pub(crate) fn unread(&self) -> usize {
        self.put.saturating_sub(self.words.taken.load(Ordering::Acquire)) as usize
    }

    /// Cancels the request to report room: the owner is about to check itself.
    pub fn take_back(&self) {
        self.words.more.store(false, Ordering::Relaxed);
    }

    /// Puts an item in, for which there is room.
    pub fn put(&mut self, received: tcp::Received) {
        self.ended |= received.end;
        self.put += length(&received) as u64;
        let put = self.items.push(received);
        debug_assert!(put.is_ok(), "only the owner fills the ring, and it has looked");
    }

    /// Orders the inserted items before the readiness that is raised next.
    pub fn publish(&self) {
        P::fence(Ordering::SeqCst);
    }

    /// Whether the ring has data that its user has not taken.
    pub(crate) fn has_data(&self) -> bool {
        self.unread() > 0
    }

    /// Whether the user has taken everything, so that a call may return the data that comes next.
    pub(crate) fn is_empty(&self) -> bool {
        // An item that the user has examined is neither in the ring nor taken.
        self.items.len_hint() == 0 && self.unread() == 0
    }
}

impl<P: Platform> Drop for OwnerEnd<P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.words.attached.store(false, Ordering::Release);
        }
    }
}
