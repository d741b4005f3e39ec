//! The rules of an Ethernet bridge (IEEE 802.1D-2004, 802.1Q), as values and pure functions: the decision about a frame,
//! the learning process, and the state into which spanning tree puts a port.
//!
//! | file | owns |
//! |---|---|
//! | `forward.rs` | [`forward`]: one frame, one [`Decision`]; [`InputPort`]: the same in two steps, of which the second is rare; the ports that a frame is flooded to |
//! | `relay.rs` | [`BatchRelay`]: the first of them for the frames of a batch, in a few comparisons for nearly all |
//! | `flows.rs` | [`FlowMemory`]: what was decided about the last frame of each flow |
//! | `members.rs` | [`Members`]: ports, their configuration and state, their VLANs |
//! | `port_set.rs` | [`PortSet`], [`PortNumber`] |
//! | `vlan.rs` | [`Vlans`]; [`TagAction`]: the change to a frame's tag |
//! | `fdb.rs` | [`FdbKey`], [`FdbEntry`], the access to a table that the rules need ([`Fdb`], [`FdbWriter`]) and the control plane ([`FdbControl`]), the rule of learning |
//! | `table.rs` | [`FdbTable`]: the forwarding database of one thread |
//! | `storm.rs` | [`Storm`]: rate limits on the frames that a port floods |
//! | `stp.rs`, `stp/` | [`Stp`]: spanning tree, STP and RSTP |
//! | `bridge.rs` | [`Bridge`]: all of it for one thread, or behind one lock |
//!
//! # How the state is divided
//!
//! No lock, atomic, thread or clock is named here; time is an argument. The crate `switch` provides exclusion, of
//! three kinds over these rules: one lock (`generic`), readers in a pserialize-like section (`mpsafe`), caches
//! for each worker (`rcu`). The kinds differ in which threads may write at the same time. The state that a frame reads
//! and writes is divided accordingly:
//!
//! * **[`Members`] is read for each frame and written for none.** [`forward`] takes it by `&`, so it can be changed in
//!   place under one lock, or replaced as a whole, with the old one freed after a grace period. The port sets for
//!   flooding are computed when it changes.
//! * **[`Fdb`] is the access to the table that threads may have concurrently**: look up an entry; record a hit, which is a
//!   store of one word to an existing entry (the paper's update without a lock); and, rarely, learn. [`Fdb::learn`]
//!   obtains exclusive use, by a mutex or by a message to another thread, and runs [`place`] over [`FdbWriter`]: look
//!   up again, count, insert. So the rules (which entries move, which are sticky, how many entries a port may have) are
//!   written once, and an implementation contains none of them.
//! * **An [`FdbEntry`] is one word**, so that a reader without a lock never sees a port with another entry's flags; a table
//!   for concurrent readers keeps it in an atomic. [`FdbTable`], for one thread, keeps it in a slot of open addressing.
//!   Its entries move, so it does not suit concurrent readers; a table for those has entries that do not move, and
//!   frees them a grace period after they were unlinked. Nothing here holds a reference to an entry.
//! * **[`Bridge`] is the control plane**, generic over the table: it is the whole bridge of one thread, or configures
//!   threads that forward with copies of its member list.
//! * **The state of a storm limit is one word** ([`NextDue`]). [`Storm`] is that of a port that one thread polls; threads that poll
//!   queues of one port share it by their own [`StormControl`].
//!
//! # What a frame costs
//! Between known stations: two look-ups and the comparison of some fields. No allocation and no scan of the ports; a flood
//! costs some instructions for each 64 ports, and a test of each port by which the frame leaves.
//!
//! # What may never happen
//! Forwarding of a frame to 01-80-C2-00-00-0X, or by a port that spanning tree has not put into the state Forwarding. A
//! frame that is dropped because the table is full, or without a counted reason.

#![forbid(unsafe_code)]

mod bridge;
mod fdb;
mod flows;
mod forward;
mod members;
mod port_set;
mod relay;
mod storm;
mod stp;
mod table;
mod vlan;

pub use bridge::Bridge;
pub use fdb::{
    AgeLimit, Counts, EntryFlags, Fdb, FdbControl, FdbEntry, FdbKey, FdbWriter, Learned, LearnedSource, learn, nanos,
    place, place_fixed,
};
pub use flows::{FlowMemory, Versions};
pub use forward::{Arrival, Decision, Exception, Flood, FloodPorts, ForwardedFrame, InputPort, count_learned, forward};
pub use members::{LONGEST_FRAME, Member, Members, PortConfig, PortState};
pub use port_set::{PortNumber, PortSet};
pub use relay::BatchRelay;
pub use storm::{FloodKind, NextDue, Storm, StormControl, StormLimits, StormRate};
pub use stp::{Effect, PortStatus, Role, Stp, StpConfig, StpConfigError, StpPortConfig, StpVersion, path_cost};
pub use table::{FdbConfig, FdbTable};
pub use vlan::{TagAction, Vid, Vlan, Vlans};
