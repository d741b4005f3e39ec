//! The tables of IP as all threads of a stack share them: the access traits of [`ip`] over locks.
//!
//! A lock here is a [`ClaimLock`](sync::ClaimLock). Where an architecture has one thread that alone uses the stack, that
//! thread claims the tables ([`Shared::claim`](crate::Shared::claim)) and then has them by `&mut`, without a lock;
//! otherwise each operation of a trait takes the table's lock for itself. Rules are written over the traits, in [`ip`] and
//! in `routes.rs`, `internet.rs` and `tx.rs`, and no lock is visible there. Any thread.
//!
//! | file | table | trait |
//! |---|---|---|
//! | `routes.rs` | routes | [`ip::RouteAccess`] |
//! | `path_mtus.rs` | path MTUs that routers reported | [`ip::PathMtuAccess`] |
//! | `fragments.rs` | fragments | [`ip::ReassemblyAccess`] |
//! | `neighbours.rs` | neighbours, by interface | [`ip::NeighbourAccess`] |
//!
//! The fifth, for the PCBs of datagram sockets, is [`DatagramAccess`](crate::connections::DatagramAccess): they are kept in
//! a place, as connections are, and not in the whole stack.

mod fragments;
mod neighbours;
mod path_mtus;
mod routes;

pub(crate) use fragments::SharedFragments;
pub(crate) use neighbours::Neighbours;
pub(crate) use path_mtus::SharedPathMtus;
pub(crate) use routes::SharedRoutes;
