//! A handler with the state of its connection, which determines the next callback. The order of callbacks is decided
//! here, once for all architectures.

use observe::Time;
use pktbuf::PktBuf;
use sync::Platform;
use tcp::{Readiness, Received};

use super::conn::Conn;
use super::held::HeldConnection;
use super::inbox::{HandlerRef, Post};
use super::{ConnectionHandler, within};

/// A handler, beside its connection. Used by one thread at a time: the one that holds the cell, or the one that has taken
/// it out of the connection.
pub struct HandlerState<P: Platform> {
    handler: Box<dyn ConnectionHandler<P>>,
    control: HandlerControl<P>,
}

/// The phase of the handler's connection.
pub(super) struct HandlerControl<P: Platform> {
    pub(super) name: HandlerRef<P>,
    stage: HandlerStage,
    /// The handler wants no data now.
    pub(super) paused: bool,
    /// Data may wait in the receive buffer.
    unread: bool,
    /// The peer's end of the stream was reached.
    ended: bool,
    /// Our end of the stream was queued.
    pub(super) shut: bool,
    /// A send was not taken whole.
    pub(super) waits_for_room: bool,
    /// When to call `timer`.
    pub(super) deadline: Option<Time>,
    /// Bits that have risen and for which it has not run yet.
    pending: Readiness,
    /// Why the connection failed, if a receive has reported it.
    failure: Option<tcp::Error>,
}

enum HandlerStage {
    /// The active open is not complete.
    Opening,
    /// Accepted; the handler was not called yet.
    Accepted,
    Open,
    /// The handler has closed it, or it has ended; the handler's last callback has not been called yet.
    Released(Result<(), tcp::Error>),
    Over,
}

impl<P: Platform> HandlerControl<P> {
    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, HandlerStage::Open)
    }

    /// The handler releases the connection. False: there is nothing to release.
    pub(super) fn release(&mut self, outcome: Result<(), tcp::Error>) -> bool {
        let may = matches!(self.stage, HandlerStage::Open | HandlerStage::Opening);
        if may {
            self.stage = HandlerStage::Released(outcome);
        }
        may
    }

    /// Whether data is due.
    fn may_read(&self) -> bool {
        self.unread && self.takes_data()
    }

    /// Whether the handler gets data that has come.
    fn takes_data(&self) -> bool {
        self.is_open() && !self.paused && !self.ended
    }

    /// Whether no callback is due after one with data.
    fn is_done(&self) -> bool {
        self.is_open() && !self.ended && self.deadline.is_none() && !self.name.may_have_messages()
    }
}

impl<P: Platform> HandlerState<P> {
    /// For a connection that a listener has accepted.
    pub(crate) fn accepted(handler: Box<dyn ConnectionHandler<P>>, name: HandlerRef<P>) -> Box<Self> {
        Self::at(handler, name, HandlerStage::Accepted)
    }

    /// For an active open.
    pub(crate) fn opening(handler: Box<dyn ConnectionHandler<P>>, name: HandlerRef<P>) -> Box<Self> {
        Self::at(handler, name, HandlerStage::Opening)
    }

    fn at(handler: Box<dyn ConnectionHandler<P>>, name: HandlerRef<P>, stage: HandlerStage) -> Box<Self> {
        let control = HandlerControl {
            name,
            stage,
            paused: false,
            unread: false,
            ended: false,
            shut: false,
            waits_for_room: false,
            deadline: None,
            pending: Readiness::NONE,
            failure: None,
        };
        Box::new(HandlerState { handler, control })
    }

    /// Whether its last callback has returned.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.control.stage, HandlerStage::Over)
    }

    /// When it must be run again even if nothing happens to its connection.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.control.deadline
    }

    /// These bits have risen, and it moves to another place before it is run for them.
    pub(crate) fn add_pending(&mut self, bits: Readiness) {
        self.control.pending |= bits;
    }

    /// The connection was taken from it: by a panic of the stack, or by its own. Nothing can be posted any more.
    pub(crate) fn give_up(&mut self) {
        self.control.stage = HandlerStage::Over;
        drop(self.control.name.close());
    }

    /// Calls the handler for everything that has happened: `bits` have risen, and perhaps time has passed or messages
    /// have been posted. Posts are left in `posts`.
    ///
    /// # Panics
    /// With the handler's panic.
    #[inline(always)]
    pub(crate) fn run<H: HeldConnection>(&mut self, held: &mut H, mut bits: Readiness, posts: &mut Vec<Post<P>>) {
        let _within = within::enter::<P>();
        let HandlerState { handler, control } = self;
        bits |= std::mem::replace(&mut control.pending, Readiness::NONE);
        // Nearly always data has come for an open connection, and that is all.
        let usual = bits == Readiness::READABLE && control.takes_data();
        let mut rest = None;
        let taken = usual.then(|| held.receive(&mut rest));
        control.unread &= !usual;
        let mut conn = Conn { held, control, posts };
        match taken {
            Some(Ok(Some(data))) => {
                handler.data(&mut conn, data);
                if !conn.control.is_done() {
                    end_step(&mut **handler, &mut conn, bits, false);
                }
            }
            Some(taken) => {
                read_on(&mut **handler, &mut conn, taken, rest);
                end_step(&mut **handler, &mut conn, bits, false);
            }
            None => step(&mut **handler, &mut conn, bits),
        }
        let bits = conn.held.raised();
        if !bits.is_empty() || conn.control.may_read() {
            step_on(&mut **handler, &mut conn, bits);
        }
    }

    /// Whether data that arrives now is all that the handler is to be called for, and is given to it at once.
    #[inline(always)]
    pub(crate) fn takes_at_once(&self) -> bool {
        self.control.pending.is_empty() && self.control.takes_data()
    }

    /// [`HandlerState::run`] for data that has come, and that was taken for it: it [takes data at once](HandlerState::takes_at_once).
    ///
    /// # Panics
    /// With the handler's panic.
    #[inline(always)]
    pub(crate) fn receive<H: HeldConnection>(&mut self, held: &mut H, data: PktBuf, posts: &mut Vec<Post<P>>) {
        let _within = within::enter::<P>();
        let HandlerState { handler, control } = self;
        control.unread = false;
        let mut conn = Conn { held: &mut *held, control: &mut *control, posts: &mut *posts };
        handler.data(&mut conn, data);
        if !conn.control.is_done() {
            end_step(&mut **handler, &mut conn, Readiness::READABLE, false);
        }
        let bits = held.raised();
        if !bits.is_empty() || control.may_read() {
            step_on(&mut **handler, &mut Conn { held, control, posts }, bits);
        }
    }

    /// As [`HandlerState::run`], after the connection was taken away by a panic of the stack.
    pub(crate) fn run_aborted<H: HeldConnection>(&mut self, held: &mut H, posts: &mut Vec<Post<P>>) {
        if self.is_over() {
            return;
        }
        self.control.stage = HandlerStage::Released(Err(tcp::Error::Aborted));
        self.run(held, Readiness::NONE, posts);
    }
}

/// The callbacks that are due because of these bits, or because data is unread, and then those that are due because of the callbacks.
#[inline(never)]
fn step_on<P: Platform>(handler: &mut dyn ConnectionHandler<P>, conn: &mut Conn<'_, P>, mut bits: Readiness) {
    while !bits.is_empty() || conn.control.may_read() {
        step(handler, conn, bits);
        bits = conn.held.raised();
    }
}

/// The callbacks that are due, in their order.
fn step<P: Platform>(handler: &mut dyn ConnectionHandler<P>, conn: &mut Conn<'_, P>, bits: Readiness) {
    // Of a send before these bits rose: the room was made after it was refused.
    let room = conn.control.waits_for_room && bits.intersects(Readiness::WRITABLE);
    begin(handler, conn, bits);
    conn.control.unread |= bits.intersects(Readiness::READABLE);
    if conn.control.may_read() {
        read(handler, conn);
    }
    end_step(handler, conn, bits, room);
}

/// The callbacks after those with data: that there is `room` again, the timer, messages, the end.
#[inline(never)]
fn end_step<P: Platform>(handler: &mut dyn ConnectionHandler<P>, conn: &mut Conn<'_, P>, bits: Readiness, room: bool) {
    if conn.control.is_open() && room {
        conn.control.waits_for_room = false;
        handler.writable(conn);
    }
    let due = |conn: &Conn<'_, P>| conn.control.deadline.is_some_and(|deadline| deadline <= conn.held.now());
    if conn.control.is_open() && due(conn) {
        conn.control.deadline = None;
        handler.timer(conn);
    }
    while conn.control.is_open()
        && let Some(message) = conn.control.name.take()
    {
        handler.message(conn, message);
    }
    if bits.intersects(Readiness::ERROR | Readiness::CLOSED) && !conn.control.may_read() {
        end(conn);
    }
    if conn.control.is_open() && conn.control.ended && conn.control.shut {
        conn.close();
    }
    finish(handler, conn);
}

/// The connection becomes open, or fails to.
fn begin<P: Platform>(handler: &mut dyn ConnectionHandler<P>, conn: &mut Conn<'_, P>, bits: Readiness) {
    match conn.control.stage {
        HandlerStage::Accepted => {}
        HandlerStage::Opening if bits.intersects(Readiness::CONNECTED) => {}
        _ => return,
    }
    conn.control.stage = HandlerStage::Open;
    conn.held.expect_answers();
    handler.open(conn);
}

/// Gives the handler the data that has arrived, buffer by buffer, and then the end of the stream.
fn read<P: Platform>(handler: &mut dyn ConnectionHandler<P>, conn: &mut Conn<'_, P>) {
    conn.control.unread = false;
    while conn.control.is_open() && !conn.control.ended {
        if conn.control.paused {
            conn.control.unread = true;
            return;
        }
        let mut rest = None;
        let taken = conn.held.receive(&mut rest);
        if !pass_on(handler, conn, taken, rest) {
            return;
        }
    }
}

/// [`read`], after the first buffer was taken.
#[inline(never)]
fn read_on<P: Platform>(
    handler: &mut dyn ConnectionHandler<P>,
    conn: &mut Conn<'_, P>,
    taken: Result<Option<PktBuf>, tcp::Error>,
    rest: Option<Received>,
) {
    if pass_on(handler, conn, taken, rest) {
        read(handler, conn);
    }
}

/// Gives the handler what was taken. Returns whether there may be more.
fn pass_on<P: Platform>(
    handler: &mut dyn ConnectionHandler<P>,
    conn: &mut Conn<'_, P>,
    taken: Result<Option<PktBuf>, tcp::Error>,
    rest: Option<Received>,
) -> bool {
    match taken {
        Ok(Some(data)) => {
            handler.data(conn, data);
            false
        }
        Ok(None) => {
            let mut received = rest.unwrap_or_default();
            let (end, more) = (received.end, received.more);
            if let Some(data) = received.data.pop() {
                debug_assert!(received.data.is_empty(), "one buffer was asked for");
                handler.data(conn, data);
            }
            conn.control.ended = end;
            if end && conn.control.is_open() {
                handler.end(conn);
            }
            end || more
        }
        Err(tcp::Error::WouldBlock) => false,
        Err(error) => {
            conn.control.failure = Some(error);
            false
        }
    }
}

/// The connection has ended or failed: it is released, because no user will.
fn end<P: Platform>(conn: &mut Conn<'_, P>) {
    if !matches!(conn.control.stage, HandlerStage::Open | HandlerStage::Opening) {
        return;
    }
    let failure = conn.control.failure.take().or_else(|| conn.held.failure());
    let outcome = match failure {
        None | Some(tcp::Error::NotConnected) => Ok(()),
        Some(error) => Err(error),
    };
    conn.control.release(outcome);
    conn.held.close();
}

/// The last callback, if it is due.
fn finish<P: Platform>(handler: &mut dyn ConnectionHandler<P>, conn: &mut Conn<'_, P>) {
    if let HandlerStage::Released(outcome) = conn.control.stage {
        conn.control.stage = HandlerStage::Over;
        conn.control.deadline = None;
        let unread = conn.control.name.close();
        handler.closed(conn, outcome);
        drop(unread);
    }
}
