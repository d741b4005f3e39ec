//! The run-time parameters of a stack, and the use of shared resources by its connections: TCP's parameters and the
//! account of memory, orphans and connections in TIME-WAIT.
//!
//! The two are in one place because the parameters are the limits of the account. Any thread; no lock is taken on the
//! data path.

use observe::Time;
use sync::{Platform, TooManyVersions, Versioned};

use crate::account::{Account, Resource};

/// See the head of the file.
pub struct Control<P: Platform> {
    tcp: Versioned<tcp::Config, P>,
    account: Account<P>,
}

/// A parameter could not be set on a running stack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetKnobError {
    /// There is no such knob, or the value is invalid for it.
    Knob(tcp::knobs::KnobError),
    /// One change too many in one run.
    TooManyVersions(TooManyVersions),
}

impl From<TooManyVersions> for SetKnobError {
    fn from(error: TooManyVersions) -> Self {
        SetKnobError::TooManyVersions(error)
    }
}

impl std::fmt::Display for SetKnobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SetKnobError::Knob(error) => error.fmt(f),
            SetKnobError::TooManyVersions(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SetKnobError {}

impl<P: Platform> Control<P> {
    /// These parameters, and an empty account.
    pub(crate) fn new(tcp: tcp::Config) -> Self {
        let account = Account::new(&tcp);
        Control { tcp: Versioned::new(tcp), account }
    }

    /// TCP's current parameters. An event uses one version from beginning to end; a connection keeps the values that it
    /// took from the version it was opened under.
    #[inline(always)]
    pub fn tcp(&self) -> &tcp::Config {
        self.tcp.get()
    }

    /// Sets a parameter by its sysctl's name, for everything that happens from now on; see [`tcp::knobs`]. No thread
    /// waits for this one.
    ///
    /// # Errors
    /// See [`SetKnobError`].
    pub fn set_knob(&self, name: &str, value: &str) -> Result<(), SetKnobError> {
        self.tcp.update(|config| tcp::knobs::set(config, name, value).map_err(SetKnobError::Knob))?;
        self.account.limits_changed(self.tcp());
        Ok(())
    }

    /// The use of resources that connections share.
    #[inline(always)]
    pub(crate) fn account(&self) -> &Account<P> {
        &self.account
    }

    /// Evaluates scarcity with the packets that wait for neighbours now.
    pub(crate) fn weigh_waiting(&self) {
        self.account.weigh_waiting(self.tcp());
    }

    /// Sets the number of bytes that fragments hold. The caller has the lock of their table.
    pub(crate) fn note_fragments(&self, bytes: usize) {
        self.account.note_fragments(bytes as u64, self.tcp());
    }

    /// Reviews the scarcity of memory, at most once a millisecond.
    #[inline]
    pub(crate) fn weigh_memory(&self, now: Time) {
        self.account.review(now, self.tcp());
    }

    /// The resources that are scarce now.
    #[inline(always)]
    pub fn scarcity(&self) -> tcp::Scarcity {
        self.account.scarcity()
    }

    /// Bytes of memory that the buffers of connections hold, sent and received, the receive queues of datagram sockets,
    /// fragments of packets that are not whole, and packets that wait for a neighbour; exact at rest.
    pub fn memory(&self) -> u64 {
        self.account.sum(Resource::Memory)
    }

    /// Cells and threads that have an entry in the account of shared resources.
    pub fn accounts(&self) -> usize {
        self.account.entries()
    }
}
