//! Sockets for tokio: [`TcpStream`], [`TcpListener`] and [`UdpSocket`] with asynchronous methods.
//!
//! Methods have tokio's names and signatures; [`Interest`] and [`Ready`] are this crate's own, because tokio has them
//! only with its I/O driver. Nothing here depends on that driver: any executor works, such as a `current_thread`
//! runtime without `enable_io`. Each operation is cancellation-safe.
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

pub use crate::tasks::{
    Interest, OwnedReadHalf, OwnedWriteHalf, ReadHalf, Ready, ReuniteError, TcpListener, TcpStream, UdpSocket,
    WriteHalf,
};
