//! The rules of an Ethernet bridge (IEEE 802.1D-2004, 802.1Q), as values and pure functions: what becomes of a frame,
//! what is learned, what state spanning tree puts a port in.
//!
//! | file | owns |
//! |---|---|
//! | `forward.rs` | [`forward`]: one frame, one [`Decision`]; the ports that a frame is flooded to |
//! | `members.rs` | [`Members`]: ports, their configuration and state, their VLANs |
//! | `port_set.rs` | [`PortSet`], [`PortNumber`] |
//! | `vlan.rs` | [`Vlans`]; [`TagAction`]: what is done to a frame's tag |
//! | `fdb.rs` | [`FdbKey`], [`FdbEntry`], what the rules ask of a table ([`Fdb`], [`FdbWriter`]), the rule of learning |
//! | `table.rs` | [`FdbTable`]: the forwarding database of one thread |
//! | `storm.rs` | [`Storm`]: how much is flooded of what a port receives |
//! | `stp.rs`, `stp/` | [`Stp`]: spanning tree, STP and RSTP |
//! | `bridge.rs` | [`Bridge`]: all of it for one thread, or behind one lock |
//!
//! # Why it is cut this way
//!
//! No lock, atomic, thread or clock is named here; time is an argument. Exclusion is `switch`'s, and there are to be
//! three kinds over these rules: one lock (`generic`), readers in a pserialize-like section (`mpsafe`), caches for each
//! worker (`rcu`). They differ in who may write what at the same time, so what a frame reads and writes is cut by that:
//!
//! * **[`Members`] is read by each frame and written by none.** It can be changed in place under one lock, or replaced
//!   as a whole and the old one given back after a grace period: [`forward`] takes it by `&`. The sets by which it floods
//!   are derived when it changes.
//! * **A table is asked, by [`Fdb`], for what a thread may do at once**: look up; note a hit, which is a store of one word
//!   to an entry that is there (the paper's update without a lock); and, rarely, learn with exclusive use. That last is
//!   [`Fdb::learn`], where an implementation takes its mutex, or sends a message, and runs [`place`], which looks
//!   again, counts and inserts, by [`FdbWriter`]. So the rules (what moves, what is sticky, who may have how many
//!   entries) are written once, and an implementation has no rule in it.
//! * **An [`FdbEntry`] is one word**, so that a reader without a lock never sees a port with another entry's flags; a table
//!   for concurrent readers keeps it in an atomic. [`FdbTable`], for one thread, keeps it in a slot of open addressing;
//!   its entries move, so it is not for concurrent readers. Theirs has entries that stay, unlinked together and given
//!   back after one grace period: memory is the implementation's business, and nothing here holds a reference to an
//!   entry.
//! * **[`Storm`] belongs to whoever polls a port's queue**, and needs no exclusion.
//!
//! # What a frame costs
//! Between known stations two look-ups and the comparison of some fields. No allocation, no scan of ports; a flood costs
//! some instructions for each 64 ports and a look at each port that the frame leaves by.
//!
//! # What may never happen
//! A frame to 01-80-C2-00-00-0X is forwarded. A frame is dropped because the table is full. A frame is dropped without a
//! reason. A port that spanning tree has not put into Forwarding forwards.

#![forbid(unsafe_code)]

mod bridge;
mod fdb;
mod forward;
mod members;
mod port_set;
mod storm;
mod stp;
mod table;
mod vlan;

pub use bridge::Bridge;
pub use fdb::{Counts, EntryFlags, Fdb, FdbEntry, FdbKey, FdbWriter, Learned, LearnedSource, learn, place};
pub use forward::{Arrival, Decision, Flood, FloodPorts, ForwardedFrame, forward};
pub use members::{LONGEST_FRAME, Member, Members, PortConfig, PortState};
pub use port_set::{PortNumber, PortSet};
pub use storm::{FloodKind, Storm, StormLimits, StormRate};
pub use stp::{Effect, PortStatus, Role, Stp, StpConfig, StpConfigError, StpPortConfig, StpVersion, path_cost};
pub use table::{FdbConfig, FdbTable};
pub use vlan::{TagAction, Vid, Vlan, Vlans};
