//! The exchange of the running architecture for another one, or for the same one with another number of cells, while the
//! [gate](crate::gate) is closed: the old one is dissolved, the new one is built from its contents, and runs the messages that
//! waited in the old one. The rules for users of the stack are in `stack/switching.rs`.

use std::fmt;
use std::sync::Arc;

use observe::Counters;
use sync::{Platform, TooManyVersions};

use crate::arch::RunningArchitecture;
use crate::arch::running::{ArchitectureSlot, Running};
use crate::arch::select::{self, Architecture};
use crate::call::Reply;
use crate::deferred::DeferredEffects;
use crate::gate::Closing;
use crate::handoff::CellMessage;
use crate::place::Contents;
use crate::shared::Shared;
use crate::socket::TcpSocket;

/// The most switches of one stack, those by itself included: each leaves some kilobytes for each cell of the old architecture.
pub const MOST_SWITCHES: u32 = 1024;

/// Why a stack keeps its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchRefused {
    /// Its locks never wait, but the other architecture shares them between threads.
    NullLock(Architecture),
    /// A thread that polls a driver by itself owns a cell, and has neither polled nor rested within some seconds; or a
    /// call did not end, because its owner does not poll.
    NotAtRest,
    /// Another thread is switching.
    Busy,
    /// The calling thread is inside the stack: it runs a handler, or a notification of readiness.
    Inside,
    /// It was switched [`MOST_SWITCHES`] times.
    TooOften,
}

impl fmt::Display for SwitchRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwitchRefused::NullLock(arch) => {
                write!(
                    f,
                    "the null lock does not exclude other threads, and {arch} shares its locks: build the stack with another kind of lock"
                )
            }
            SwitchRefused::NotAtRest => f.write_str(
                "a thread that polls a driver of the stack owns it and does not poll: poll on that thread, or let its driver rest",
            ),
            SwitchRefused::Busy => f.write_str("another thread is switching the stack: wait for it"),
            SwitchRefused::Inside => {
                f.write_str("a handler or a notification runs inside the stack: switch it from another thread")
            }
            SwitchRefused::TooOften => write!(f, "a stack is switched {MOST_SWITCHES} times at most: build a new one"),
        }
    }
}

impl std::error::Error for SwitchRefused {}

impl From<TooManyVersions> for SwitchRefused {
    fn from(_: TooManyVersions) -> Self {
        SwitchRefused::TooOften
    }
}

/// Builds the architecture again, with the number of cells that its decisions ask for. Called by a driver
/// as the last step of its turn. If the other threads do not yield at once, all stays as it is, and it is tried again much later.
#[cold]
pub(crate) fn rebuild<P: Platform>(shared: &Arc<Shared<P>>, slot: &ArchitectureSlot<P>) {
    let Some(book) = slot.get().active.book().cloned() else { return };
    if !book.lock().number.is_asked_for() {
        return;
    }
    let rebuilt = shared.gate().close_in_turn().is_ok_and(|closing| {
        let Running { active, arch, version, .. } = slot.get();
        let still = active.book().is_some_and(|current| Arc::ptr_eq(current, &book));
        if !still || *version >= MOST_SWITCHES || exchange(shared, slot, &closing, *arch, |_| ()).is_err() {
            return false;
        }
        book.lock().number.is_changed(closing.lasted());
        true
    });
    if rebuilt {
        shared.links().wake_drivers();
    } else {
        book.lock().number.is_refused();
    }
}

/// What was found in the contents, and the sockets the channels of which have ended.
pub(crate) type Exchanged<P, R> = (R, Vec<Arc<TcpSocket<P>>>);

/// Dissolves the architecture while the gate is closed, and builds `arch` from its contents. Returns what `look` found in these, and
/// the sockets the channels of which have ended.
pub(crate) fn exchange<P: Platform, R>(
    shared: &Arc<Shared<P>>,
    slot: &ArchitectureSlot<P>,
    closing: &Closing<'_, P>,
    arch: Architecture,
    look: impl FnOnce(&Contents<P>) -> R,
) -> Result<Exchanged<P, R>, SwitchRefused> {
    let (old, links) = (slot.get(), shared.links());
    if old.version >= MOST_SWITCHES {
        return Err(SwitchRefused::TooOften);
    }
    let drained = closing.drain(|| {
        old.active.tick(shared.clock().now());
        old.active.retire();
    });
    if !drained {
        return Err(SwitchRefused::NotAtRest);
    }
    let dissolved = closing.rest(|| links.wake_drivers(), || old.active.dissolve().ok());
    let mut contents = dissolved.ok_or(SwitchRefused::NotAtRest)?;
    let looked = look(&contents);
    add_up(&contents, &shared.counters);
    let messages = std::mem::take(&mut contents.messages);
    let had_channels = std::mem::take(&mut contents.had_channels);
    let active = select::build(arch, shared, old.thread_config, Box::new(contents));
    let next = Running::new(active, arch, old.thread_config, old.version + 1);
    slot.update(|running| {
        *running = next;
        Ok::<_, SwitchRefused>(())
    })?;
    let active = &*slot.get().active;
    messages.into_iter().for_each(|message| deliver(message, active, shared));
    Ok((looked, had_channels))
}

/// Runs a message that the old architecture had queued. The calling thread passes the gate.
fn deliver<P: Platform>(message: CellMessage<P>, active: &dyn RunningArchitecture<P>, shared: &Shared<P>) {
    let now = shared.clock().now();
    match message {
        CellMessage::Ingress(mut ingress) => {
            let mut deferred = DeferredEffects::default();
            active.post(&mut ingress, now, &mut deferred);
            deferred.flush(shared.links());
            active.end_of_batch(&mut deferred);
        }
        CellMessage::Call(target, mut call, asker) => {
            let mut reply = Reply::Gone;
            active.call(&target, &mut call, &mut reply);
            asker.answer(reply);
        }
        // Channels end with the architecture that has owners.
        CellMessage::Attach(..) | CellMessage::Continue(_) => {}
        CellMessage::Udp(mut call, asker) => asker.answer(Reply::Udp(Box::new(active.udp(&mut call)))),
        CellMessage::Control(change, asker) => {
            active.control(change);
            asker.answer(Reply::Done);
        }
        CellMessage::Job(job, asker) => {
            let (mut job, mut reply) = (Some(job), Reply::Gone);
            active.use_tables(&mut || {
                if let Some(job) = job.take() {
                    reply = Reply::Job(job());
                }
            });
            asker.answer(job.map_or(reply, |job| active.ask_tables(job)));
        }
        CellMessage::StackStats(asker) => asker.answer(Reply::StackStats(Box::new(active.stats()))),
    }
}

/// Adds the counters of the old architecture's cells to those of the stack.
fn add_up<P: Platform>(contents: &Contents<P>, counters: &Counters) {
    for (counter, n) in contents.counted.counters() {
        counters.add(counter, n);
    }
    for (reason, n) in contents.counted.drops() {
        counters.count_drops(reason, n);
    }
}
