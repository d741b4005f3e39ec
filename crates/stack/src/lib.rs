//! The stack: one protocol implementation under a process architecture that is chosen at run time.
//!
//! # Map
//!
//! | file | owns |
//! |---|---|
//! | `stack.rs` | [`Stack`]: combines interfaces, architecture and drivers; the control plane |
//! | `stack/switching.rs`, `gate.rs` | switching the architecture of a stack in use; where its users wait meanwhile |
//! | `rx.rs` | [`Driver`]: from a device's queue to `post`, the one line where architectures differ; packets for IP itself in `rx/internet.rs` |
//! | `arch.rs`, `arch/` | the [`RunningArchitecture`](arch::RunningArchitecture) trait; one file for each; `select.rs` knows the names |
//! | `connections/` | the handling of connections, written once over a [`Place`](connections::Place) |
//! | `place/` | where connections are kept: a [`Cell`](place::Cell) behind one `&mut`, or [`Locked`](place::Locked) one by one; `place/connection.rs` has the slab in which they lie; `place/pcb/` a PCB behind one, two or six locks |
//! | `call.rs`, `handoff.rs` | work as values, and work that crosses threads |
//! | `deferred.rs` | effects that wait until the last guard has dropped |
//! | `interface.rs` | interfaces over ports (`path`): addresses on one side, devices on the other |
//! | `tx.rs` | from a segment to the device, in the order in which segments were made |
//! | `route_cache.rs`, `recent_routes.rs` | routes cached by connections and by cells |
//! | `table/`, `timers.rs`, `bound_sockets.rs` | keyed index of connections, timer wheel, bound sockets |
//! | `handshakes.rs` | storage of half-open connections, and the processing of a SYN; the rules are in [`tcp::handshake`] |
//! | `socket/` | state shared by a connection and its user: readiness, accept queues, datagram queues, poll sets |
//! | `containment.rs` | panics: their scope, and the users that are notified |
//! | `access/` | the tables of IP as all threads share them: the access traits of [`ip`] over locks, which one thread may claim |
//! | `links.rs`, `routes.rs`, `control.rs`, `internet.rs` | the owners of state that all cells share; `tx.rs` has the transmit path; `shared.rs` combines them |
//! | `ports.rs`, `secrets.rs`, `clock.rs`, `flow.rs` | port numbers, keys, time, names of connections |
//!
//! # What is absent
//! Only files under `arch/` and `place/` define how a thread gets access to a connection. No file under `arch/`
//! interprets a segment. There is no system call and no wire offset in this crate (`cargo xtask rules`).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(unreachable_pub))]

mod access;
mod account;
mod active_flows;
mod addresses;
pub mod alarm;
pub mod arch;
mod attempt;
mod batch_checks;
pub mod call;
mod charge;
mod clock;
pub mod connections;
mod containment;
mod control;
pub mod deferred;
mod exchange;
mod fast_open;
pub mod flow;
pub mod gate;
pub mod handoff;
mod handshakes;
mod icmp;
mod interface;
mod internet;
mod internet_deadline;
mod links;
mod loopback;
mod stats;

mod bound_sockets;
mod pings;
pub mod place;
pub mod ports;
mod recent_prototype;
mod recent_routes;
mod route_cache;
mod routes;
mod rx;
pub mod secrets;
pub mod shared;
pub mod socket;
pub mod stack;
pub mod table;
pub mod timers;
mod tx;
mod udp_call;
mod udp_table;
mod upcalls;

pub use addresses::Addressing;
pub use arch::adaptive::decisions::{
    DecisionMeasure, DecisionOutcome, DecisionReason, GroupDecision, GroupPlace, WindowCounts,
};
pub use arch::adaptive::number::{GroupNumber, NumberOutcome, NumberReason};
pub use arch::adaptive::queues::QueueClaims;
pub use arch::declaration::Properties;
pub use arch::registered::NameTaken;
pub use arch::select::{ALL as ALL_ARCHITECTURES, Architecture, UnknownArchitecture, register};
pub use clock::{Clock, StoppableClock, VirtualClock};
pub use containment::{Failure, FaultScope};
pub use control::SetKnobError;
pub use ip::autoconf::AddressEvent;
pub use ip::interface::AddressError;
pub use ip::{Cidr, ParseCidrError, ParseRouteError, Route, RouteAttributes, RouteName};
pub use links::DriverLayout;
pub use rx::Driver;

pub use stack::{
    BindRefused, ConnectRefused, InterfaceConfig, InterfaceOverPorts, JoinRefused, Stack, StackConfig, StackError,
};
pub use stats::StackStats;
