//! How threads enter a shard: the parameters of the variants.

/// How threads enter a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entering {
    /// How the thread that posts an event uses the queue.
    pub mode: Mode,
    /// Frames are left in the device while their shard is in use.
    pub poll: bool,
    /// A connection is in the shard of the CPU on which it began, instead of that of its flow's hash.
    pub bind: bool,
}

impl Entering {
    /// Without polling, and without binding.
    pub(super) const fn by(mode: Mode) -> Entering {
        Entering { mode, poll: false, bind: false }
    }

    /// With polling, but without binding.
    pub(super) const fn polled(mode: Mode) -> Entering {
        Entering { poll: true, ..Entering::by(mode) }
    }

    /// The same, with binding.
    pub(super) const fn bound(self) -> Entering {
        Entering { bind: true, ..self }
    }
}

/// How the thread that posts an event uses the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Queue asynchronous events and leave them to the worker (`SQ_FILL`).
    Fill,
    /// Run the own event if the shard is free (`SQ_NODRAIN`).
    NoDrain,
    /// Run the own event, then those that arrived meanwhile, up to the bound (`SQ_PROCESS`).
    Process,
}
