//! The order in which locks may be taken, as one list. There is no other table of pairs.
//!
//! From the list come the values of [`LockClass`], by which debug builds check each thread's order, and the types in
//! [`class`], by which the compiler checks locks that are taken one under the other in one place:
//! [`Lock::lock_after`](crate::Lock::lock_after) wants [`Before`] of their classes.

use std::fmt;

macro_rules! lock_classes {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// The data that a lock protects. Declared outermost first: a thread that holds a lock may wait only for locks
        /// declared after it (and, inside one class, only through [`Lock::lock_nested`](crate::Lock::lock_nested) with
        /// a rising index). [`lock_order`](crate::lock_order) holds debug builds to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum LockClass { $($(#[$doc])+ $name,)+ }

        impl LockClass {
            /// Every class, outermost first.
            pub const ALL: [LockClass; [$($text),+].len()] = [$(LockClass::$name),+];
            /// How many classes there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in reports and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(LockClass::$name => $text,)+ }
            }
        }

        /// The classes as types, for locks whose class the compiler is to know.
        pub mod class {
            $($(#[$doc])+ #[derive(Debug)] pub enum $name {})+

            /// A class that is known at run time only.
            #[derive(Debug)]
            pub enum Unstated {}
        }

        $(impl Class for class::$name { const CLASS: LockClass = LockClass::$name; })+
        pairs! { $($name)+ }
    };
}

/// `Before` for each class and every one after it.
macro_rules! pairs {
    ($outer:ident $($inner:ident)*) => {
        $(impl Before<class::$inner> for class::$outer {})*
        pairs! { $($inner)* }
    };
    () => {};
}

/// A class as a type: see [`class`].
pub trait Class {
    /// The same class as a value.
    const CLASS: LockClass;
}

/// A lock of class `Inner` may be waited for while one of this class is held.
#[diagnostic::on_unimplemented(
    message = "lock order: a `{Inner}` lock may not be taken while a `{Self}` lock is held",
    label = "`{Self}` is not declared before `{Inner}` in `LockClass`"
)]
pub trait Before<Inner> {}

lock_classes! {
    /// A process's table of descriptors: its numbers and its parts, nested by index. No other lock is taken under it.
    Descriptors = "descriptors",
    /// An open file description: the state and options of its socket. Held during the stack's calls to open, to listen,
    /// to shut down and to receive a datagram.
    OpenFile = "open-file",
    /// The part of a connection kept in a user's handle: delivered data that has not been read completely. Held while
    /// more is received from the stack.
    UserHandle = "user-handle",
    /// Configuration and switching of architectures.
    Control = "control",
    /// The bridge's list of ports.
    BridgeMembers = "bridge-members",
    /// The bridge's forwarding table.
    Fdb = "fdb",
    /// The connection table.
    ConnTable = "conn-table",
    /// A group of connections, or the whole stack. Nested by group index.
    Group = "group",
    /// A connection, or its part that validates arriving headers. The six parts follow in canonical order.
    PcbHeaderIn = "pcb-header-in",
    /// A connection's receive window; under the two-lock layout, its receive half.
    PcbReceiveWindow = "pcb-receive-window",
    /// A connection's reassembly queue.
    PcbReassembly = "pcb-reassembly",
    /// A connection's send window; under the two-lock layout, its send half.
    PcbSendWindow = "pcb-send-window",
    /// A connection's retransmission queue.
    PcbRetransmit = "pcb-retransmit",
    /// A connection's part that builds headers to send.
    PcbHeaderOut = "pcb-header-out",
    /// The gate of a connection that threads own in turn: its backlog. Nobody waits for anything while holding it.
    Backlog = "backlog",
    /// A mailbox between threads, or the slot in which a caller waits for its answer.
    Handoff = "handoff",
    /// The queue of a serialisation queue (own-it-or-queue).
    Squeue = "squeue",
    /// A socket's buffers.
    SocketBuffer = "socket-buffer",
    /// The waiters of a descriptor, and the reports of an `epoll` instance. No callback runs while it is held.
    WaitQueue = "wait-queue",
    /// A listener's queue of connections to accept.
    AcceptQueue = "accept-queue",
    /// A timer wheel.
    Timers = "timers",
    /// The routing table; looked up on output, with the connection held.
    Routes = "routes",
    /// One route of the table, under an architecture with the fault `+routes`.
    Route = "route",
    /// The neighbour table (ARP and ND).
    Neighbours = "neighbours",
    /// The cache of destinations for Fast Open.
    Destinations = "destinations",
    /// The list of entries in the account of shared resources. Taken when a cell is made or dissolved, or all are added
    /// up.
    Accounts = "accounts",
    /// A device's transmit queue.
    DeviceTx = "device-tx",
    /// Messages for the thread that has claimed a device's transmit queue.
    TransmitMail = "transmit-mail",
    /// Free slots for connections that belong to no cell.
    ConnSlab = "conn-slab",
    /// A buffer pool.
    Pool = "pool",
    /// The list of panics that were contained.
    Failures = "failures",
    /// The loads and decisions of an adaptive architecture. Taken at the end of a window of a group.
    Decisions = "decisions",
    /// The number of holders of a connection, where the stack counts them under locks. Nothing is taken under it.
    Holders = "holders",
    /// A bucket of the cells that flows are bound to. Nothing is taken under it.
    FlowBindings = "flow-bindings",
    /// Free packet buffers that threads exchange. May be taken under any other lock.
    BufferPool = "buffer-pool",
}

impl LockClass {
    /// The class's place in [`LockClass::ALL`], from 0.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for LockClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
