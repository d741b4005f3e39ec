//! What code above the seam tells a platform that charges for it: which plain work it does, which plain memory it uses,
//! and what a thread is for.
//!
//! A simulator sees atomics and system calls by itself, because they go through [`Platform`](crate::Platform). It does
//! not see what lies between two of them, so `stack` says it at a few places, by [`Platform::work`] and
//! [`Platform::touch`]. Those calls stand behind [`Platform::CHARGED`]: on a real machine not even their arguments are
//! computed.
//!
//! [`Platform::work`]: crate::Platform::work
//! [`Platform::touch`]: crate::Platform::touch
//! [`Platform::CHARGED`]: crate::Platform::CHARGED

/// A piece of plain work, which a simulator gives a cost. Counts are of segments, frames or messages, and not of entries
/// into a function: where several segments are dealt with at once, the count is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Step {
    /// A driver looks into a receive queue.
    Batch,
    /// A frame is taken in, by driver and IP.
    Frame,
    /// An event runs on a PCB.
    Event,
    /// A segment gets its headers and is given to the device.
    Emit,
    /// A user's call enters the stack, and leaves it.
    Call,
    /// A message is put into a queue, or taken from it.
    Message,
    /// A timer that is due is found.
    Timer,
    /// An application asks which of its sockets are ready.
    Poll,
    /// An application deals with one event.
    Application,
}

impl Step {
    /// Every step, in the order of their declaration.
    pub const ALL: [Step; 9] = [
        Self::Batch,
        Self::Frame,
        Self::Event,
        Self::Emit,
        Self::Call,
        Self::Message,
        Self::Timer,
        Self::Poll,
        Self::Application,
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
        }
    }
}

/// What plain memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Object {
    /// A connection: its PCB, its route, its timer.
    Connection,
    /// The user's side of a connection, which is shared with the user.
    Socket,
    /// The headers of a packet, and what describes its buffer.
    Buffer,
    /// Data that a packet carries.
    Payload,
    /// A message between threads.
    Message,
}

impl Object {
    /// Every kind, in the order of their declaration.
    pub const ALL: [Object; 5] = [Self::Connection, Self::Socket, Self::Buffer, Self::Payload, Self::Message];

    /// The name used in reports and in presets of machines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Socket => "socket",
            Self::Buffer => "buffer",
            Self::Payload => "payload",
            Self::Message => "message",
        }
    }
}

/// What a thread is for: a simulated scheduler gives each class its priority. The kernel of a real machine is not told.
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
