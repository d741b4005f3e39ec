//! [`ProcessArchitecture`]: which threads run the queues of a stream. The modules are the same under each.
//!
//! Each is a rule that states which work a thread may claim ([`Claimant`]), and a list of threads. Schmidt & Suda,
//! "Measuring the performance of parallel message-based process architectures" (1995), section 2, has the first two;
//! the third is their task-based one.

use std::fmt;
use std::str::FromStr;

use crate::chain::{Carrier, Claimant};
use crate::queue::Side;

/// Which threads run the queues of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ProcessArchitecture {
    /// `caller`: only the threads that call [`read`](crate::Stream::read) and [`write`](crate::Stream::write).
    #[default]
    Caller,
    /// `connection`: one thread for the connection receives each message and runs it through all modules, before it takes the next
    /// one (Connectional Parallelism). Outgoing messages borrow the thread of the application.
    Connection,
    /// `message:N`: each of N threads takes a message in turn and escorts it through all modules, while others escort the
    /// messages before and behind it (Message Parallelism). Outgoing messages borrow the thread of the application.
    Message {
        /// How many threads; at least 1.
        threads: usize,
    },
    /// `layer`: a thread for each module, one for the bottom that sends and one that receives, and a queue with water marks
    /// before each. The immediate part of a module ([`put`](crate::Queue::put)) is run by the thread that delivers the
    /// message.
    Layer,
}

impl ProcessArchitecture {
    /// The claims of the thread that takes a message, entering on this side, through the modules.
    pub(crate) fn carries(self, side: Side, carrier: Carrier) -> Claimant {
        match self {
            ProcessArchitecture::Caller => Claimant::Caller(side),
            ProcessArchitecture::Connection | ProcessArchitecture::Message { .. } => Claimant::Escort(side, carrier),
            ProcessArchitecture::Layer => Claimant::Bringer(carrier),
        }
    }

    /// Threads that receive from the bottom.
    pub(crate) fn receivers(self) -> usize {
        match self {
            ProcessArchitecture::Caller => 0,
            ProcessArchitecture::Connection | ProcessArchitecture::Layer => 1,
            ProcessArchitecture::Message { threads } => threads.max(1),
        }
    }

    /// Whether each module has a thread of its own.
    pub(crate) fn has_owners(self) -> bool {
        self == ProcessArchitecture::Layer
    }

    /// Whether an application that reads receives from the bottom itself.
    pub(crate) fn reader_receives(self) -> bool {
        self == ProcessArchitecture::Caller
    }
}

impl fmt::Display for ProcessArchitecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessArchitecture::Caller => f.write_str("caller"),
            ProcessArchitecture::Connection => f.write_str("connection"),
            ProcessArchitecture::Message { threads } => write!(f, "message:{threads}"),
            ProcessArchitecture::Layer => f.write_str("layer"),
        }
    }
}

/// No process architecture of streams has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProcessArchitecture(String);

impl fmt::Display for UnknownProcessArchitecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a process architecture of a stream: give caller, connection, message:N (N from 1) or layer",
            self.0
        )
    }
}

impl std::error::Error for UnknownProcessArchitecture {}

impl FromStr for ProcessArchitecture {
    type Err = UnknownProcessArchitecture;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownProcessArchitecture(text.to_owned());
        match text {
            "caller" => Ok(ProcessArchitecture::Caller),
            "connection" => Ok(ProcessArchitecture::Connection),
            "layer" => Ok(ProcessArchitecture::Layer),
            _ => {
                let threads = text.strip_prefix("message:").and_then(|number| number.parse().ok());
                let threads = threads.filter(|threads| *threads > 0).ok_or_else(unknown)?;
                Ok(ProcessArchitecture::Message { threads })
            }
        }
    }
}
