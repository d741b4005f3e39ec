//! An open file description, which descriptors refer to. It has the object (a socket, an `epoll` instance, one end of a
//! pipe), `O_NONBLOCK`, and the queue of waiters for the object's readiness.
//!
//! "Duplicated file descriptors refer to the same open file description and thus share file offset and file status
//! flags" (dup(2)). It ends, and closes its socket, when the last descriptor is closed and the last call on it has
//! returned.

use std::sync::Arc;
use std::time::Duration;

use stack::Stack;
use sync::{Atomic, Ordering, Platform, model_is_over};

use crate::Errno;
use crate::epoll::Instance;
use crate::pipe::PipeEnd;
use crate::tcp_socket::TcpDescription;
use crate::udp_socket::UdpDescription;
use crate::wait_queue::{WaitQueue, Waiter, bits};
use crate::zero_file::Zeros;

pub(crate) enum OpenObject<P: Platform> {
    Tcp(TcpDescription<P>),
    Udp(UdpDescription<P>),
    Epoll(Arc<Instance<P>>),
    Pipe(PipeEnd<P>),
    Zeros(Zeros<P>),
}

/// See the head of this file. Any thread.
pub(crate) struct Description<P: Platform> {
    pub(crate) object: OpenObject<P>,
    /// Waiters for its readiness.
    pub(crate) waiters: Arc<WaitQueue<P>>,
    nonblocking: P::AtomicBool,
    /// `SO_RCVTIMEO` and `SO_SNDTIMEO`, nanoseconds; 0: no limit.
    receive_timeout: P::AtomicU64,
    send_timeout: P::AtomicU64,
    /// The access mode of `F_GETFL`.
    pub(crate) access: i32,
    stack: Stack<P>,
}

impl<P: Platform> Description<P> {
    /// `waiters` is the queue that the object was made with.
    pub(crate) fn new(
        object: OpenObject<P>,
        waiters: Arc<WaitQueue<P>>,
        (nonblocking, access): (bool, i32),
        stack: &Stack<P>,
    ) -> Arc<Self> {
        let nonblocking = P::AtomicBool::new(nonblocking);
        let (receive_timeout, send_timeout) = (P::AtomicU64::new(0), P::AtomicU64::new(0));
        let stack = stack.clone();
        Arc::new(Description { object, waiters, nonblocking, receive_timeout, send_timeout, access, stack })
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_socket(&self) -> bool {
        matches!(self.object, OpenObject::Tcp(_) | OpenObject::Udp(_))
    }

    /// How long a receive (or accept) waits, or a send (or connect).
    pub(crate) fn timeout(&self, receives: bool) -> Option<Duration> {
        let timeout = if receives { &self.receive_timeout } else { &self.send_timeout };
        match timeout.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// Zero: for ever.
    pub(crate) fn set_timeout(&self, receives: bool, time: Duration) {
        let timeout = if receives { &self.receive_timeout } else { &self.send_timeout };
        timeout.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn tcp(&self) -> Result<&TcpDescription<P>, Errno> {
        match &self.object {
            OpenObject::Tcp(socket) => Ok(socket),
            OpenObject::Udp(_) => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    pub(crate) fn epoll(&self) -> Result<&Arc<Instance<P>>, Errno> {
        match &self.object {
            OpenObject::Epoll(instance) => Ok(instance),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The stack below.
    pub(crate) fn stack(&self) -> &Stack<P> {
        &self.stack
    }

    /// Its current readiness, in bits of `epoll`. If it is not ready for one of `wanted`, the queue is notified when it
    /// is; the stack reports room to write only on request.
    pub(crate) fn events(&self, wanted: u32) -> u32 {
        match &self.object {
            OpenObject::Tcp(socket) => socket.events(&self.stack, wanted),
            OpenObject::Udp(socket) => socket.events(),
            OpenObject::Epoll(instance) => instance.events(),
            OpenObject::Pipe(end) => end.events(),
            OpenObject::Zeros(_) => bits::IN | bits::OUT,
        }
    }
}

impl<P: Platform> Drop for Description<P> {
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        for waiter in self.waiters.empty() {
            if let Waiter::Epoll(instance, key) = waiter
                && let Some(instance) = instance.upgrade()
            {
                instance.forget(key);
            }
        }
        match &self.object {
            OpenObject::Tcp(socket) => socket.close(&self.stack),
            OpenObject::Udp(socket) => socket.close(&self.stack),
            OpenObject::Pipe(end) => end.close(),
            OpenObject::Epoll(_) | OpenObject::Zeros(_) => {}
        }
    }
}
