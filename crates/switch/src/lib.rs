//! An Ethernet bridge over devices. The rules are in the crate `bridge`; this crate has the ways in which threads share
//! them.
//!
//! | file | owns |
//! |---|---|
//! | `switch.rs` | [`Switch`]: a running bridge, with any way of sharing ([`BridgeExclusion`]) |
//! | `generic.rs` | [`Generic`]: one processor does everything, as in NetBSD's GENERIC kernel |
//! | `shared.rs` | [`SharedBridge`]: state and control plane of a bridge with several workers |
//! | `worker.rs` | [`BridgeWorker`]: one of them; its forwarding is in the next two files |
//! | `mpsafe.rs` | the paper's MP-safe bridge: a read section for each frame, references, locks of transmit queues |
//! | `rcu.rs` | a read section for each batch; no lock on the forwarding path |
//! | `outgoing.rs` | the frames of a batch that wait for a port under `rcu` |
//! | `flood.rs` | flooding, the same for all three: frames that several ports hold |
//! | `table.rs` | [`ConcurrentFdb`]: the forwarding database of these two |
//! | `interrupt.rs` | the vectors of a port ([`InterruptKind`], [`VectorRole`]) |
//! | `affinity.rs` | which worker polls which receive queue ([`Relocation`]) |
//! | `port.rs` | a device as a port: transmit queues, references, stopping |
//! | `configure.rs` | [`Configure`]: the common control plane |
//! | `tag.rs` | changes a frame's tag as forwarding has decided |
//! | `charge.rs` | reports the work of a frame to a platform that charges for it |
//!
//! All of it is generic over the platform; `models.rs` runs it under model checkers.
//!
//! # What may never happen
//! A rule of 802.1D or 802.1Q is in this crate. A frame is dropped without a counted reason. A thread in a read section
//! waits. A state of spanning tree takes effect after the BPDU that announces it.

#![forbid(unsafe_code)]

mod affinity;
mod charge;
mod configure;
mod flood;
mod generic;
mod interrupt;
#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
mod models;
mod mpsafe;
mod outgoing;
mod port;
mod port_error;
mod rcu;
mod shared;
mod switch;
mod table;
mod tag;
mod worker;

pub use affinity::Relocation;
pub use configure::Configure;
pub use generic::{Generic, GenericConfig, Work};
pub use interrupt::{
    AffinityError, InterruptController, InterruptCount, InterruptKind, InterruptReport, UnknownInterruptKind,
    UnknownVector, VectorRole, VectorSet,
};
pub use port::{PortReport, PortTraffic};
pub use port_error::PortError;
pub use shared::{PortRemoval, SharedBridge, SharedConfig, Sharing};
pub use switch::{BridgeExclusion, Switch, SwitchConfig, UnknownBridgeExclusion};
pub use table::ConcurrentFdb;
pub use worker::BridgeWorker;
