//! Sockets for tokio: [`TcpStream`], [`TcpListener`] and [`UdpSocket`] whose methods are futures.
//!
//! A socket here is a socket of this crate with wakers attached to its readiness: the thread of the stack that raises an
//! edge wakes the task, and no thread of its own polls or waits. Nothing depends on tokio's I/O driver, so any
//! executor will do; a `current_thread` runtime without `enable_io` is enough.
//!
//! Every operation tries, leaves its waker, and tries again before it says that it must wait: an edge that comes
//! between the two tries is seen by the second, one that comes later finds the waker. What may never happen: data
//! taken from the stack by a future that can still be dropped (each operation takes only in the poll that completes
//! it, so all of them are cancellation-safe).
//!
//! ```
//! use heddle::{Interface, Stack, mem, tokio::{TcpListener, TcpStream}};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (a, b) = mem::pair(mem::MemConfig::default());
//! let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
//! let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
//! tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//!     let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
//!     let mut stream = TcpStream::connect(&client, "10.0.0.1:7").await?;
//!     stream.write_all(b"hello").await?;
//!     let (mut peer, _) = listener.accept().await?;
//!     let mut greeting = [0; 5];
//!     peer.read_exact(&mut greeting).await?;
//!     assert_eq!(&greeting, b"hello");
//!     Ok(())
//! })
//! # }
//! ```

mod listener;
mod stream;
mod udp;
mod wakers;

pub use listener::TcpListener;
pub use stream::TcpStream;
pub use udp::UdpSocket;
