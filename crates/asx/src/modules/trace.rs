//! `trace`: reports each message that passes, and changes nothing.
//!
//! All of its work is immediate (`put`): under every process architecture the thread that delivers a message reports
//! it, so the report has the name of that thread.

use std::fmt;
use std::sync::Arc;

use crate::message::Message;
use crate::queue::{Module, Passed, Queue, Side};

/// One message, or the end of one side, that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceLine {
    /// On its way up or down.
    pub side: Side,
    /// The number of messages before it on this side.
    pub number: u64,
    /// Its weight in a queue, in bytes; `None`: the end.
    pub weight: Option<usize>,
    /// The name of the thread that delivered it.
    pub thread: Option<String>,
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Read => "read",
            Side::Write => "write",
        };
        let thread = self.thread.as_deref().unwrap_or("a thread without a name");
        match self.weight {
            Some(weight) => write!(f, "{side} {}: {weight} bytes, by {thread}", self.number),
            None => write!(f, "{side} {}: the end, by {thread}", self.number),
        }
    }
}

/// The module, called `trace`. `report` is called by the thread that delivers a message; it must not use the stream.
pub fn module(report: impl Fn(TraceLine) + Send + Sync + 'static) -> Module {
    let report: Report = Arc::new(report);
    let queue = |side| TraceQueue { side, number: 0, report: report.clone() };
    Module::new("trace", queue(Side::Read), queue(Side::Write))
}

type Report = Arc<dyn Fn(TraceLine) + Send + Sync>;

struct TraceQueue {
    side: Side,
    number: u64,
    report: Report,
}

impl TraceQueue {
    fn tell(&mut self, weight: Option<usize>) {
        let thread = std::thread::current().name().map(str::to_owned);
        (self.report)(TraceLine { side: self.side, number: self.number, weight, thread });
        self.number += 1;
    }
}

impl Queue for TraceQueue {
    fn put(&mut self, message: Message, to: &mut Passed) -> Result<Option<Message>, String> {
        self.tell(Some(message.weight()));
        to.on(message);
        Ok(None)
    }

    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        to.on(message);
        Ok(())
    }

    fn end(&mut self, _: &mut Passed) -> Result<(), String> {
        self.tell(None);
        Ok(())
    }
}
