//! A user's calls on connections, active opens included.

use observe::Time;
use tcp::{Outbox, PcbAccess, TcpEvent};

use super::events::Events;
use super::handlers::HandledConnections;
use super::place::Place;
use crate::attempt::attempt;
use crate::call::{self, Call, OpenRefused, OpenRequest, Reply};
use crate::deferred::{DeferredEffects, LazyEffects, SendEffects};
use crate::flow::{Key, Target};
use crate::socket::Readiness;

/// Calls; see the module documentation.
pub trait Calls: Place {
    /// Runs a user's call and stores the answer in `reply`.
    #[inline(never)]
    fn call(
        &mut self,
        target: &Target,
        call: &mut Call<Self::Platform>,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
        reply: &mut Reply,
    ) {
        let answer = match call {
            Call::Send(event) => match self.send(target.key, event, now, deferred) {
                Some(Ok(accepted)) => {
                    let (accepted, rest) = (accepted as usize, std::mem::take(&mut event.chunks));
                    Reply::Sent(Ok(tcp::Sent { accepted, rest }))
                }
                Some(Err(error)) => Reply::Sent(Err(error)),
                None => Reply::Gone,
            },
            Call::Receive(event) => {
                let mut received = tcp::Received::default();
                let taken = self.take(target.key, *event, now, &mut LazyEffects::given(deferred), &mut received);
                taken.map_or(Reply::Gone, |taken| Reply::Received(taken.map(|()| received)))
            }
            Call::Close(event) => self.close(target.key, *event, now, deferred),
            Call::SendPromised(event) => self.send_promised(target.key, event, now, deferred),
            _ => self.other_call(target, call.take(), now, deferred),
        };
        // Nearly always there was none, and dropping that would be a call that does nothing.
        if !matches!(reply, Reply::Gone) {
            *reply = Reply::Gone;
        }
        std::mem::forget(std::mem::replace(reply, answer));
    }

    /// CLOSE, which every connection is given: without moving the call.
    #[inline(never)]
    fn close(
        &mut self,
        key: Key,
        event: tcp::Close,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Reply {
        let Some((id, held)) = self.find_key(key) else { return Reply::Gone };
        self.before_call(&id, Readiness::NONE);
        let closed = self.run_contained(&id, held, event, now, deferred);
        self.after_call(&id, Readiness::NONE, false);
        match closed {
            Some(()) => Reply::Done,
            None => Reply::Gone,
        }
    }

    /// SEND of data for which room was granted: without moving the call.
    #[inline(never)]
    fn send_promised(
        &mut self,
        key: Key,
        event: &mut tcp::SendPromised,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Reply {
        let Some((id, held)) = self.find_key(key) else { return Reply::Gone };
        let event = tcp::SendPromised(std::mem::take(&mut event.0));
        self.before_call(&id, Readiness::NONE);
        let sent = self.run_contained(&id, held, event, now, deferred);
        self.after_call(&id, Readiness::NONE, false);
        // A failure comes with the next call.
        sent.map_or(Reply::Gone, |_| Reply::Done)
    }

    /// SEND: one of the two most frequent calls. Data that was not taken stays in `event`. `None`: the connection is
    /// gone.
    #[inline(never)]
    fn send(
        &mut self,
        key: Key,
        event: &mut tcp::Send,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Option<Result<u32, tcp::Error>> {
        let (id, held) = self.find_key(key)?;
        self.before_call(&id, Readiness::WRITABLE);
        let taken = self.run_contained(&id, held, &mut *event, now, deferred);
        let exhausted = matches!(taken, Some(Ok(_))) && !event.chunks.is_empty();
        self.after_call(&id, Readiness::WRITABLE, exhausted);
        taken
    }

    /// The same, where effects are recorded only if there are some.
    #[inline(never)]
    fn send_briefly(
        &mut self,
        key: Key,
        event: &mut tcp::Send,
        now: Time,
        effects: &mut SendEffects<Self::Platform>,
    ) -> Option<Result<u32, tcp::Error>> {
        self.send_here::<()>(key, event, now, effects)
    }

    /// The same as a part of its caller, which `By` names: see [`Place::receive`].
    #[inline(always)]
    fn send_here<By>(
        &mut self,
        key: Key,
        event: &mut tcp::Send,
        now: Time,
        effects: &mut SendEffects<Self::Platform>,
    ) -> Option<Result<u32, tcp::Error>> {
        let (id, _) = self.find_key(key)?;
        // Beside the result: moved out of it, it would cost more.
        let mut accepted = 0;
        if let Err(panic) = attempt(|| accepted = self.send_alone(&id, event, now, effects)) {
            self.contain(&id, panic, now, effects.record());
            return None;
        }
        if accepted != 0 { Some(Ok(accepted)) } else { self.send(key, event, now, effects.record()) }
    }

    /// RECEIVE, the other one, into `received`, which is empty.
    #[inline(never)]
    fn take(
        &mut self,
        key: Key,
        event: tcp::Receive,
        now: Time,
        deferred: &mut LazyEffects<'_, Self::Platform>,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        self.take_here::<()>(key, event, || now, deferred, received)
    }

    /// The same as a part of its caller, which `By` names: see [`Place::receive`].
    #[inline(always)]
    fn take_here<By>(
        &mut self,
        key: Key,
        event: tcp::Receive,
        now: impl FnOnce() -> Time,
        deferred: &mut LazyEffects<'_, Self::Platform>,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        let found = self.find_key(key)?;
        self.receive::<By>(found, event, now, deferred, received)
    }

    /// Every other call.
    #[inline(never)]
    fn other_call(
        &mut self,
        target: &Target,
        call: Call<Self::Platform>,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Reply {
        let call = match call {
            Call::Open(mut request) => return Reply::Opened(self.open_actively(&mut request, now, deferred)),
            Call::Handle(handler) => {
                let Some((id, held)) = self.find_key(target.key) else { return Reply::Gone };
                drop(held);
                self.give_handler(&id, handler, now, deferred);
                return Reply::Done;
            }
            other => other,
        };
        match self.find_key(target.key) {
            Some((id, held)) => self.serve(&id, held, call, now, deferred),
            None => Reply::Gone,
        }
    }

    /// Runs a call on a connection that has been found.
    fn serve(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        call: Call<Self::Platform>,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Reply {
        let bit = call::level_of(&call);
        self.before_call(id, bit);
        let reply = self.run_contained(id, held, Served(call), now, deferred);
        self.after_call(id, bit, reply.as_ref().is_some_and(call::exhausted));
        reply.unwrap_or(Reply::Gone)
    }

    /// OPEN, active. A connection in TIME-WAIT with the tuple is replaced where RFC 6191 allows it.
    #[inline(never)]
    fn open_actively(
        &mut self,
        request: &mut OpenRequest<Self::Platform>,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Result<Key, OpenRefused> {
        let flow = request.flow();
        let mut found = self.find(&flow.tuple, flow.hash);
        if let Ok((id, held)) = found {
            let may = self.shared().control().tcp().reclaims_time_wait(&flow.tuple);
            let successor = if may { self.reclaim(&id, held, now, deferred) } else { None };
            request.params.iss = successor.ok_or(OpenRefused::TupleInUse)?;
            found = self.find(&flow.tuple, flow.hash);
        }
        let Err(missing) = found else { return Err(OpenRefused::TupleInUse) };
        let mut effects = None;
        let (id, key) = self.with_directory(|directory, site| {
            let absent = Self::absent(directory, missing, &flow).ok_or(OpenRefused::TupleInUse)?;
            Self::open(directory, site, request, absent, now, (&mut effects, deferred))
        })?;
        if let Some(effects) = effects {
            self.settle(&id, effects, now, deferred);
        }
        Ok(key)
    }

    /// The initial sequence number for the successor of a connection in TIME-WAIT, which is closed.
    #[cold]
    fn reclaim(
        &mut self,
        id: &Self::Id,
        held: Self::Held,
        now: Time,
        deferred: &mut DeferredEffects<Self::Platform>,
    ) -> Option<wire::SeqNumber> {
        self.run_contained(id, held, tcp::Reclaim, now, deferred).flatten()
    }
}

impl<L: Events> Calls for L {}

/// A call as an event.
struct Served<P: sync::Platform>(Call<P>);

impl<P: sync::Platform> TcpEvent for Served<P> {
    type Reply = Reply;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Reply {
        call::run(self.0, pcb, out, now)
    }
}
