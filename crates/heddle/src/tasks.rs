//! Asynchronous sockets: wakers attached to the readiness of this crate's sockets, for any executor.
//!
//! [`tokio`](crate::tokio) and [`futures`](crate::futures) both re-export these types, which implement the `AsyncRead`
//! and `AsyncWrite` of each. The stack's thread that raises an edge wakes the task; there is no extra thread that polls
//! or waits.
//!
//! Every operation tries, registers its waker, and tries again before it returns `Pending`: the second try sees an edge
//! between the two, and a later edge finds the waker. What may never happen: data taken from the stack by a future that
//! can still be dropped (each operation takes data only in the poll that completes it, so all are cancellation-safe).

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
