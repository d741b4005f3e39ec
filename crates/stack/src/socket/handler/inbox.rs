//! Messages for handlers: from one handler, or any thread, to the handler of another connection.
//!
//! A message is put into the connection's inbox, and the thread that may use the connection is notified, as for a
//! segment. If a handler posts, that waits until the guards of its event have dropped ([`Post`]): the other connection
//! may be in the same cell, or in one whose thread posts here at the same moment.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};

use super::super::TcpSocket;
use super::within::in_handler;
use crate::flow::Target;

/// A message to a handler.
pub type HandlerMessage = Box<dyn Any + Send>;

/// Names a connection with a handler. Clones name the same one. Any thread.
pub struct HandlerRef<P: Platform> {
    inbox: Arc<Inbox<P>>,
}

impl<P: Platform> Clone for HandlerRef<P> {
    fn clone(&self) -> Self {
        HandlerRef { inbox: self.inbox.clone() }
    }
}

struct Inbox<P: Platform> {
    socket: Arc<TcpSocket<P>>,
    owners: Arc<dyn NotifyOwner<P>>,
    /// Whether the queue may have messages, readable without its lock.
    filled: P::AtomicBool,
    queue: Lock<MessageQueue, P>,
}

#[derive(Default)]
struct MessageQueue {
    closed: bool,
    messages: VecDeque<HandlerMessage>,
}

/// Reaches the thread that may use a connection.
pub trait NotifyOwner<P: Platform>: Send + Sync {
    /// Makes the handler of this connection take its messages. Does not wait. Returns the messages that this handler
    /// posted in turn, if it ran here.
    fn announce(&self, target: &Target) -> Vec<Post<P>>;
}

/// A message has been posted to this connection, whose handler was not notified yet.
pub struct Post<P: Platform> {
    pub(super) to: HandlerRef<P>,
}

impl<P: Platform> Post<P> {
    /// Notifies the handlers, and those that they post to on this thread. The caller holds no guard.
    pub(crate) fn deliver(posts: impl IntoIterator<Item = Post<P>>) {
        let mut left: VecDeque<Post<P>> = posts.into_iter().collect();
        while let Some(Post { to }) = left.pop_front() {
            left.extend(to.inbox.owners.announce(&to.inbox.socket.target()));
        }
    }
}

/// Why a message was not posted.
pub enum PostRefused {
    /// The connection is over; the message.
    Closed(HandlerMessage),
    /// A handler posts by its own [`Conn`](super::Conn), because it may hold a cell; the message.
    InHandler(HandlerMessage),
}

impl fmt::Debug for PostRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostRefused::Closed(_) => "Closed",
            PostRefused::InHandler(_) => "InHandler",
        })
    }
}

impl fmt::Display for PostRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostRefused::Closed(_) => "the connection is over: nothing can be posted to its handler",
            PostRefused::InHandler(_) => "a handler posts with the post method of its own Conn",
        })
    }
}

impl std::error::Error for PostRefused {}

impl<P: Platform> HandlerRef<P> {
    pub(crate) fn new(socket: &Arc<TcpSocket<P>>, owners: &Arc<dyn NotifyOwner<P>>) -> Self {
        let queue = Lock::new(LockKind::Blocking, LockClass::SocketBuffer, MessageQueue::default());
        let inbox = Inbox { socket: socket.clone(), owners: owners.clone(), filled: P::AtomicBool::new(false), queue };
        HandlerRef { inbox: Arc::new(inbox) }
    }

    /// Both ends of the connection.
    pub fn tuple(&self) -> wire::FourTuple {
        self.inbox.socket.tuple()
    }

    /// Whether the connection is over for its handler.
    pub fn is_closed(&self) -> bool {
        self.inbox.queue.lock().closed
    }

    /// Posts a message from outside a handler: the connection's handler is called with it, perhaps on another thread and
    /// later. Does not wait.
    ///
    /// # Errors
    /// See [`PostRefused`].
    pub fn post(&self, message: HandlerMessage) -> Result<(), PostRefused> {
        if in_handler::<P>() {
            return Err(PostRefused::InHandler(message));
        }
        self.put(message).map_err(PostRefused::Closed)?;
        Post::deliver(self.inbox.owners.announce(&self.inbox.socket.target()));
        Ok(())
    }

    pub(super) fn put(&self, message: HandlerMessage) -> Result<(), HandlerMessage> {
        let mut queue = self.inbox.queue.lock();
        if queue.closed {
            return Err(message);
        }
        queue.messages.push_back(message);
        self.inbox.filled.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether [`HandlerRef::take`] may return one.
    #[inline(always)]
    pub(super) fn may_have_messages(&self) -> bool {
        self.inbox.filled.load(Ordering::Acquire)
    }

    /// The oldest message. Called by the thread that runs the handler.
    #[inline(always)]
    pub(super) fn take(&self) -> Option<HandlerMessage> {
        if self.may_have_messages() { self.take_first() } else { None }
    }

    #[inline(never)]
    fn take_first(&self) -> Option<HandlerMessage> {
        let mut queue = self.inbox.queue.lock();
        let message = queue.messages.pop_front();
        self.inbox.filled.store(!queue.messages.is_empty(), Ordering::Release);
        message
    }

    /// No message can be posted any more. The waiting messages are returned, to be dropped where the lock is not held.
    pub(super) fn close(&self) -> VecDeque<HandlerMessage> {
        let mut queue = self.inbox.queue.lock();
        queue.closed = true;
        std::mem::take(&mut queue.messages)
    }
}

impl<P: Platform> fmt::Debug for HandlerRef<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerRef").field(&self.tuple()).finish()
    }
}
