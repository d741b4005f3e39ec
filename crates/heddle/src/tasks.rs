//! Sockets as tasks hold them: wakers attached to the readiness of this crate's sockets, for any executor.
//!
//! [`tokio`](crate::tokio) and [`futures`](crate::futures) are both names of these types; what differs is which
//! `AsyncRead` and `AsyncWrite` they have. The thread of the stack that raises an edge wakes the task, and no thread of
//! its own polls or waits.
//!
//! Every operation tries, leaves its waker, and tries again before it says that it must wait: an edge that comes
//! between the two tries is seen by the second, one that comes later finds the waker. What may never happen: data taken
//! from the stack by a future that can still be dropped (each operation takes only in the poll that completes it, so
//! all of them are cancellation-safe).

mod halves;
mod interest;
mod listener;
mod stream;
mod traits;
mod udp;
mod wakers;

pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use interest::{Interest, Ready};
pub use listener::TcpListener;
pub use stream::TcpStream;
pub use udp::UdpSocket;
