//! Streams of modules over a connection, configured from text and changed while they are in use: the framework ASX of Schmidt
//! & Suda (1995), whose process architectures run the same modules by different threads.
//!
//! A [`Stream`] is a chain of [`Module`]s over a [`Bottom`]. A module is a layer: a pair of [`Queue`]s, one for each
//! [`Side`]. Messages that the application writes go down through the write queues and are sent by the bottom; messages
//! that the bottom receives come up through the read queues.
//!
//! ```
//! use asx::{Catalogue, ProcessArchitecture, Stream, WaterMarks, memory};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let catalogue = Catalogue::default();
//! let (here, there) = memory::pair(16);
//! let modules = || catalogue.modules("checksum | frame max=4096");
//! let client: Stream = Stream::over(here, "caller".parse()?, modules()?, WaterMarks::default())?;
//! let server: Stream = Stream::over(there, "layer".parse()?, modules()?, WaterMarks::default())?;
//! client.write(&b"first"[..])?;
//! let message = server.read()?.expect("a message");
//! assert_eq!(message.as_bytes(), Some(&b"first"[..]));
//!
//! // Both sides put another module on top, while the stream is in use.
//! client.push(catalogue.module("xdr")?)?;
//! server.push(catalogue.module("xdr")?)?;
//! client.write(&b"second"[..])?;
//! assert_eq!(server.read()?.expect("a message").as_bytes(), Some(&b"second"[..]));
//! assert_eq!(server.modules(), ["xdr", "checksum", "frame"]);
//! # Ok(())
//! # }
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `message.rs`, `queue.rs` | [`Message`]; [`Queue`], [`Module`], [`WaterMarks`]: the interface for authors of modules |
//! | `bottom.rs`, `memory.rs` | [`Bottom`]; a pair of them in memory |
//! | `tcp_bottom.rs` | `TcpBottom`: a connection of the crate `heddle` as a bottom (feature `heddle`) |
//! | `chain.rs`, `chain/` | order, water marks, which thread may run which queue: plain data |
//! | `architecture.rs` | [`ProcessArchitecture`]: the work that each kind of thread may run |
//! | `stream.rs`, `change.rs` | [`Stream`]: the lock around a chain, its threads; push, pop, replace |
//! | `configure.rs` | [`Catalogue`]: modules from text |
//! | `modules/` | [`checksum`](modules::checksum), [`frame`](modules::frame), [`trace`](modules::trace), [`xdr`](modules::xdr) |
//!
//! Streams are generic over the platform; `models.rs` changes them under a model checker.
//!
//! # What may never happen
//! A message is lost, passed twice or overtaken, also while modules change. Two threads use one queue. A lock is held
//! while a module or the bottom runs. Code of a module uses a lock.
//!
//! # Not from the paper
//! The paper's messages have no priorities, so there are none. Its demultiplexing is done below a stream here: a bottom
//! is one connection, like a socket.

#![forbid(unsafe_code)]

mod architecture;
mod bottom;
mod chain;
mod change;
mod configure;
mod error;
pub mod memory;
mod message;
#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
mod models;
pub mod modules;
mod queue;
mod stream;
#[cfg(feature = "heddle")]
mod tcp_bottom;

/// The example of the project's page is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/asx.md")]
struct Page;

pub use architecture::{ProcessArchitecture, UnknownProcessArchitecture};
pub use bottom::Bottom;
pub use configure::{Catalogue, ConfigureError, ModuleOptions};
pub use error::{ChangeError, StreamError};
pub use message::Message;
pub use queue::{Module, Passed, Queue, Side, WaterMarks};
pub use stream::{Stream, TryWriteError};
#[cfg(feature = "heddle")]
pub use tcp_bottom::TcpBottom;
