//! Sockets for executors that use `futures-io`: the types of this module implement its `AsyncRead` and `AsyncWrite`.
//!
//! They need no reactor and no runtime: the stack's threads wake the tasks. (With the feature `tokio` they implement
//! tokio's traits, too; import the extension traits of only one of the two.)
//!
//! ```
//! use futures_io::{AsyncRead, AsyncWrite};
//! use heddle::{Interface, Stack, futures::{TcpListener, TcpStream}, mem};
//! use std::future::poll_fn;
//! use std::pin::Pin;
//!
//! # fn block_on<T>(future: impl Future<Output = T>) -> T {
//! #     struct Unpark(std::thread::Thread);
//! #     impl std::task::Wake for Unpark { fn wake(self: std::sync::Arc<Self>) { self.0.unpark() } }
//! #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
//! #     let (mut cx, mut future) = (std::task::Context::from_waker(&waker), std::pin::pin!(future));
//! #     loop {
//! #         match future.as_mut().poll(&mut cx) {
//! #             std::task::Poll::Ready(value) => break value,
//! #             std::task::Poll::Pending => std::thread::park(),
//! #         }
//! #     }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (a, b) = mem::pair(mem::MemConfig::default());
//! let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
//! let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
//! // On any executor:
//! block_on(async {
//!     let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
//!     let mut stream = TcpStream::connect(&client, "10.0.0.1:7").await?;
//!     let sent = poll_fn(|cx| AsyncWrite::poll_write(Pin::new(&mut stream), cx, b"hello")).await?;
//!     let (mut peer, _) = listener.accept().await?;
//!     let mut greeting = [0; 16];
//!     let came = poll_fn(|cx| AsyncRead::poll_read(Pin::new(&mut peer), cx, &mut greeting)).await?;
//!     assert_eq!((sent, &greeting[..came]), (5, &b"hello"[..]));
//!     Ok(())
//! })
//! # }
//! ```

pub use crate::tasks::{
    Interest, OwnedReadHalf, OwnedWriteHalf, ReadHalf, Ready, ReuniteError, TcpListener, TcpStream, UdpSocket,
    WriteHalf,
};
