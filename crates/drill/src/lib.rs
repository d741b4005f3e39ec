//! Packet scripts: a program's system calls, packets from the network, and expected packets, with times. The language
//! is packetdrill's; the clock is virtual; the stack under test runs any process architecture.
//!
//! # Map
//!
//! | file | content |
//! |---|---|
//! | [`script`] | a script as a value |
//! | [`mod@parse`] (with `lex`) | from text to script |
//! | [`code`] | the assertion blocks `%{ }%` |
//! | [`run`] | events in order, packets compared, calls compared |
//! | [`check`] (with `order`) | a script under many architectures, and the comparison of their traces |
//! | [`host`] (with `link`) | the machine under test |
//! | `family` | the address families that scripts run in |
//! | `frame`, `icmp`, `notation` | packets as bytes and as text |
//! | [`batch`] | many scripts, one line each; captures |
//! | `shell`, `symbols` | shell lines as knobs; names of C |

#![forbid(unsafe_code)]

pub mod batch;
pub mod check;
pub mod code;
mod error;
mod family;
mod frame;
pub mod host;
mod icmp;
mod lex;
mod link;
mod notation;
mod order;
pub mod parse;

pub mod run;
pub mod script;
mod shell;
mod symbols;

pub use error::ScriptError;
pub use family::Family;
pub use host::Crossing;
