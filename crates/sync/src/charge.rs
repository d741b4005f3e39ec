//! Reports of code above the seam to a platform that charges for them: plain work, plain memory, and the class of a
//! thread.
//!
//! A simulator sees atomics and system calls by itself, because they go through [`Platform`](crate::Platform). It does
//! not see the code between two of them, so `stack` reports that at a few places, by [`Platform::work`] and
//! [`Platform::touch`]. Those calls are conditional on [`Platform::CHARGED`]: on a real machine not even their
//! arguments are computed.
//!
//! [`Platform::work`]: crate::Platform::work
//! [`Platform::touch`]: crate::Platform::touch
//! [`Platform::CHARGED`]: crate::Platform::CHARGED

/// A piece of plain work, which a simulator gives a cost. Counts are of segments, frames or messages, not of function
/// calls: several segments processed at once count as several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Step {
    /// A driver polls a receive queue.
    Batch,
    /// A frame is received, by driver and IP.
    Frame,
    /// An event runs on a PCB.
    Event,
    /// A segment gets its headers and is given to the device.
    Emit,
    /// A user's call enters and leaves the stack.
    Call,
    /// A message is put into a queue, or taken from it.
    Message,
    /// A due timer is found.
    Timer,
    /// An application polls the readiness of its sockets.
    Poll,
    /// An application processes one event.
    Application,
    /// A connection is found in a table that threads share, for an event or a call, and given back: the code around its locks.
    LookUp,
}

impl Step {
    /// Every step, in the order of their declaration.
    pub const ALL: [Step; 10] = [
        Self::Batch,
        Self::Frame,
        Self::Event,
        Self::Emit,
        Self::Call,
        Self::Message,
        Self::Timer,
        Self::Poll,
        Self::Application,
        Self::LookUp,
    ];

    /// The name used in reports and in presets of machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Frame => "frame",
            Self::Event => "event",
            Self::Emit => "emit",
            Self::Call => "call",
            Self::Message => "message",
            Self::Timer => "timer",
            Self::Poll => "poll",
            Self::Application => "application",
            Self::LookUp => "lookup",
        }
    }
}

/// The operation of a thread on a lock, as reported to a simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockStep {
    /// Its first try has failed: it waits.
    Waits,
    /// It has the lock.
    Takes,
    /// It releases the lock.
    Releases,
}

/// The contents of plain memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Object {
    /// A connection: its PCB, its route, its timer.
    Connection,
    /// The user's side of a connection, which is shared with the user.
    Socket,
    /// The headers of a packet, and its buffer's metadata.
    Buffer,
    /// Data that a packet carries.
    Payload,
    /// A message between threads.
    Message,
    /// Counters of events: a cell's, or those that a thread counts in where connections have locks of their own.
    Counters,
    /// The index of connections and the timer wheel of a cell, or of all connections.
    Table,
    /// An entry of a ring between two threads, and the position of the end that uses it.
    Ring,
    /// The list of ready sockets that one thread watches and others write, with its members.
    Ready,
}

impl Object {
    /// Every kind, in the order of their declaration.
    pub const ALL: [Object; 9] = [
        Self::Connection,
        Self::Socket,
        Self::Buffer,
        Self::Payload,
        Self::Message,
        Self::Counters,
        Self::Table,
        Self::Ring,
        Self::Ready,
    ];

    /// The name used in reports and in presets of machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Socket => "socket",
            Self::Buffer => "buffer",
            Self::Payload => "payload",
            Self::Message => "message",
            Self::Counters => "counters",
            Self::Table => "table",
            Self::Ring => "ring",
            Self::Ready => "ready",
        }
    }
}

/// The class of a thread: a simulated scheduler gives each class its priority. A real kernel does not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadClass {
    /// Polls devices: an interrupt thread or a driver.
    Receive,
    /// Owns connections and runs their events.
    Protocol,
    /// Takes over work that others have left.
    Worker,
    /// Runs an application.
    Application,
}

impl ThreadClass {
    /// Every class, in the order of their declaration.
    pub const ALL: [ThreadClass; 4] = [Self::Receive, Self::Protocol, Self::Worker, Self::Application];

    /// The name used in reports and in presets of machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Protocol => "protocol",
            Self::Worker => "worker",
            Self::Application => "application",
        }
    }
}
