//! [`Queue`]: one side of a module, which the author of a protocol implements. [`Module`]: a pair of them.
//!
//! One thread at a time uses a queue; the process architecture chooses it. Messages come to a queue in the order in
//! which the queue before it passed them on. So a queue needs no lock. It passes messages on by [`Passed::on`], which
//! only collects them: the next queue runs when this one has returned.

use crate::message::Message;

/// One of the two ways through a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Up, from the bottom to the application.
    Read,
    /// Down, from the application to the bottom.
    Write,
}

impl Side {
    pub(crate) const BOTH: [Side; 2] = [Side::Read, Side::Write];
}

/// The messages that a queue has passed to the next one, in order.
#[derive(Debug, Default)]
pub struct Passed(pub(crate) Vec<Message>);

impl Passed {
    /// Passes `message` to the next queue. It is put there when the present call has returned.
    pub fn on(&mut self, message: Message) {
        self.0.push(message);
    }

    /// The messages that were passed on, for tests of a queue without a stream.
    pub fn into_messages(self) -> Vec<Message> {
        self.0
    }
}

/// One side of a module. An error ends the stream: the application reads it instead of a message.
pub trait Queue: Send {
    /// The part of the work that is done at once, by the thread that delivers the message. Returns the message if there
    /// is work left for [`svc`](Queue::svc); by default that is all of it.
    ///
    /// If the queue is in use, or earlier messages wait, the thread that runs `svc` does this part first.
    ///
    /// # Errors
    /// What is wrong with the message.
    fn put(&mut self, message: Message, to: &mut Passed) -> Result<Option<Message>, String> {
        let _ = to;
        Ok(Some(message))
    }

    /// The part that may be deferred. The process architecture chooses the thread that runs it: the one that delivered
    /// the message, or one of the module's own.
    ///
    /// # Errors
    /// What is wrong with the message.
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String>;

    /// No message follows.
    ///
    /// # Errors
    /// The data is incomplete.
    fn end(&mut self, to: &mut Passed) -> Result<(), String> {
        let _ = to;
        Ok(())
    }

    /// The module is being removed from the stream, possibly after the [end](Queue::end): passes on the messages that
    /// the queue holds. Later messages do not pass through it.
    fn close(&mut self, to: &mut Passed) {
        let _ = to;
    }
}

/// When a queue is full, and when it no longer is.
///
/// A queue is full as soon as its messages weigh `high` bytes. Until they weigh `low` or less, the queue before it is not run;
/// then that one is enabled again. A message counts as a whole, and all that one call passes on is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaterMarks {
    low: usize,
    high: usize,
}

impl WaterMarks {
    /// Marks in bytes. `high` is at least 1, and `low` less than `high`; other values are moved there.
    pub fn new(low: usize, high: usize) -> WaterMarks {
        let high = high.max(1);
        WaterMarks { low: low.min(high - 1), high }
    }

    /// A queue that holds this many bytes or fewer accepts messages again.
    pub fn low(self) -> usize {
        self.low
    }

    /// A queue that holds this many bytes or more is full.
    pub fn high(self) -> usize {
        self.high
    }
}

/// 16 and 64 KiB.
impl Default for WaterMarks {
    fn default() -> WaterMarks {
        WaterMarks::new(16 << 10, 64 << 10)
    }
}

/// A layer: a pair of queues with a name.
pub struct Module {
    pub(crate) name: String,
    pub(crate) marks: WaterMarks,
    pub(crate) read: Box<dyn Queue>,
    pub(crate) write: Box<dyn Queue>,
}

impl Module {
    /// A module of these queues. Its name is unique in a stream.
    pub fn new(name: impl Into<String>, read: impl Queue + 'static, write: impl Queue + 'static) -> Module {
        Module { name: name.into(), marks: WaterMarks::default(), read: Box::new(read), write: Box::new(write) }
    }

    /// The same with another name.
    pub fn named(self, name: impl Into<String>) -> Module {
        Module { name: name.into(), ..self }
    }

    /// The same with other marks, for both of its queues.
    pub fn marks(self, marks: WaterMarks) -> Module {
        Module { marks, ..self }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queue of one side, to run it without a stream.
    pub fn queue(&mut self, side: Side) -> &mut dyn Queue {
        match side {
            Side::Read => &mut *self.read,
            Side::Write => &mut *self.write,
        }
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("name", &self.name).field("marks", &self.marks).finish_non_exhaustive()
    }
}
