//! Packet scripts: what a program calls, what comes from the network, and what must go out, with times. The language is
//! packetdrill's; the clock is virtual; the stack under test runs any process architecture.
//!
//! # Map
//!
//! | file | content |
//! |---|---|
//! | [`script`] | a script as a value |
//! | [`mod@parse`] (with `lex`) | from text to script |
//! | [`code`] | the assertion blocks `%{ }%` |

#![forbid(unsafe_code)]

pub mod code;
mod error;
mod lex;
pub mod parse;
pub mod script;

pub use error::ScriptError;
