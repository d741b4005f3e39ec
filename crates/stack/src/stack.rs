//! A stack: interfaces, an architecture, the drivers that poll the devices; and the calls of the control plane. The
//! public library wraps this. Any thread may use everything here, unless stated otherwise.

mod build;
mod channels;
mod checking;
mod datagrams;
mod handlers;
mod opening;
mod recent_destination;
mod switching;
mod tables;

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use observe::Time;
use sync::{LockKind, Platform, RefCounting, model_is_over};
use tcp::config::ConnectionOptions;
use wire::FourTuple;

use crate::account::Resource;
use crate::arch::RunningArchitecture;
use crate::arch::adaptive::decisions::GroupDecision;
use crate::arch::adaptive::number::GroupNumber;
use crate::arch::adaptive::queues::QueueClaims;
use crate::arch::select::Architecture;
use crate::call::{Call, ControlRequest, Reply};
use crate::charge;
use crate::clock::Clock;
use crate::containment::Failure;
use crate::deferred::DeferredEffects;
use crate::flow::{Flow, Target};
use crate::gate::GateGuard;
use crate::links::DriverLayout;
use crate::pings::EchoReply;
use crate::ports::{PortNumbers, Transport};
use crate::shared::Shared;
use crate::socket::handler::in_handler;
use crate::socket::{Acceptor, ListenerShared};
use crate::stats::StackStats;

pub use build::{InterfaceConfig, InterfaceOverPorts, StackError};
pub use datagrams::JoinRefused;
pub use opening::ConnectRefused;
pub use switching::{MOST_SWITCHES, SwitchRefused};

use self::recent_destination::RecentDestination;
use crate::arch::running::ArchitectureSlot;
pub use crate::arch::running::Running;

/// How a stack is to be built.
pub struct StackConfig<P: Platform> {
    /// The process architecture.
    pub arch: Architecture,
    /// The kind of lock it uses. Device queues have the same, and so has a message queue under a mutex (`connp-t`, `up`).
    pub lock_kind: LockKind,
    /// How `msgp-pool` counts the threads that use a connection, for measuring what that costs; `None`: as `Arc` does. No other
    /// architecture reads it.
    pub counting: Option<RefCounting>,
    /// CPUs to spread cells and threads over; at least 1.
    pub cpus: usize,
    /// Whether an architecture with threads of its own starts them (see [`ThreadConfig`](crate::arch::select::ThreadConfig)).
    pub own_threads: bool,
    /// TCP's parameters.
    pub tcp: tcp::Config,
    /// Where `now` comes from.
    pub clock: Clock<P>,
    /// A seed for the secrets, for runs that must repeat; `None` draws them.
    pub seed: Option<u64>,
    /// Resets that each CPU may send in a second to segments of no connection, a quarter of them to one peer; at least
    /// 16. The limit keeps a flood of stray segments from causing as many resets; a port scanner learns nothing from
    /// it; a peer that gets no reset waits for its own time-outs.
    pub resets_per_second: u32,
    /// The most frames that a driver takes from a queue before it performs their deferred effects, above all wake-ups: 1 to
    /// 64. With 1 each segment wakes its user, as in the systems of the papers.
    pub receive_batch: usize,
    /// Whether segments of one connection that directly follow one another in a batch enter the architecture together,
    /// if it can take them so: one entry, one exclusion and one event for all of them. Without, each segment is an entry, an
    /// exclusion and an event, as in the systems of the papers. The effects of the segments are the same.
    pub runs: bool,
    /// How receive queues are divided among drivers.
    pub drivers: DriverLayout,
    /// Whether an active open from any port prefers a port whose flow is received by a queue that the calling thread
    /// polls, so that one thread does all work of the connection. Without it flows are spread evenly, as in the papers.
    /// It makes no difference to a thread that polls no queue, or all of them.
    pub homing: bool,
    /// Whether a panic in the stack ends only one connection, or one piece of work, instead of the thread; see
    /// `containment.rs`. For stacks with threads of their own.
    pub contain: bool,
}

impl<P: Platform> StackConfig<P> {
    /// The architecture on the platform's clock, with Linux-like TCP parameters.
    pub fn new(arch: Architecture) -> Self {
        StackConfig {
            arch,
            lock_kind: LockKind::default(),
            counting: None,
            cpus: 1,
            own_threads: true,
            tcp: tcp::Config::default(),
            clock: Clock::Platform,
            seed: None,
            resets_per_second: 1000,
            receive_batch: path::VECTOR_LEN,
            runs: true,
            drivers: DriverLayout::default(),
            homing: true,
            contain: false,
        }
    }
}

/// One stack. Clones name the same stack.
pub struct Stack<P: Platform> {
    core: Arc<Core<P>>,
}

impl<P: Platform> Clone for Stack<P> {
    fn clone(&self) -> Self {
        Stack { core: self.core.clone() }
    }
}

/// The architecture, during one call.
struct ActiveCall<'a, P: Platform> {
    architecture: &'a dyn RunningArchitecture<P>,
    _inside: GateGuard<'a, P>,
}

impl<'a, P: Platform> Deref for ActiveCall<'a, P> {
    type Target = dyn RunningArchitecture<P> + 'a;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        self.architecture
    }
}

struct Core<P: Platform> {
    shared: Arc<Shared<P>>,
    running: Arc<ArchitectureSlot<P>>,
    ports: Box<PortNumbers<P>>,
    recent: Box<RecentDestination<P>>,
    /// Datagram sockets made so far.
    datagrams: P::AtomicU32,
    rss: wire::rss::Toeplitz,
    /// See [`StackConfig::homing`].
    homing: bool,
}

impl<P: Platform> Drop for Core<P> {
    fn drop(&mut self) {
        if !model_is_over::<P>() {
            self.running.get().active.shutdown();
        }
    }
}

impl<P: Platform> Stack<P> {
    /// The architecture it runs under.
    pub fn architecture(&self) -> Architecture {
        self.core.running.get().arch
    }

    /// What its architecture has decided by itself since the stack has it, and why, oldest first; only the latest are kept.
    /// Empty if there was nothing to decide. Any thread.
    pub fn decisions(&self) -> Vec<GroupDecision> {
        self.core.running.get().active.decisions()
    }

    /// The claims of transmit queues that its architecture has made by itself since the stack has it, by receive thread. Empty: none.
    /// Any thread.
    pub fn queue_claims(&self) -> Vec<QueueClaims> {
        self.core.running.get().active.queue_claims()
    }

    /// The changes of the number of its cells that its architecture has made by itself, and those that it tried to make, since the stack
    /// has it, and why, oldest first; only the latest are kept. Any thread.
    pub fn group_numbers(&self) -> Vec<GroupNumber> {
        self.core.running.get().active.book().map(|book| book.lock().number.log()).unwrap_or_default()
    }

    /// The architecture itself, for one call: waits while the stack is being switched, and keeps it from being switched
    /// until the value is dropped.
    #[inline(always)]
    fn active(&self) -> ActiveCall<'_, P> {
        self.active_inside(self.core.shared.gate().enter_or_rest(|| self.core.running.get().active.retire()))
    }

    /// The same, if the calling thread need not wait and there is nothing else to be done for it.
    #[inline(always)]
    fn active_at_once(&self) -> Option<ActiveCall<'_, P>> {
        Some(self.active_inside(self.core.shared.gate().enter_at_once()?))
    }

    #[inline(always)]
    fn active_inside<'a>(&'a self, inside: GateGuard<'a, P>) -> ActiveCall<'a, P> {
        ActiveCall { architecture: &*self.core.running.get().active, _inside: inside }
    }

    /// Configuration, interfaces, counters.
    pub fn shared(&self) -> &Arc<Shared<P>> {
        &self.core.shared
    }

    /// Statistics of the stack: live connections, and the counters of cells and common work together. Exact at rest.
    pub fn stats(&self) -> StackStats {
        let mut stats = self.active().stats();
        stats.counters += &self.core.shared.counters.snapshot();
        stats.time_wait = self.core.shared.control().account().sum(Resource::TimeWaits) as usize;
        stats
    }

    /// The latest panics that were contained, oldest first.
    pub fn failures(&self) -> Vec<Failure> {
        self.core.shared.failures.list()
    }

    /// Whether nothing that was posted is still waiting to be run.
    pub fn is_quiescent(&self) -> bool {
        self.active().is_quiescent()
    }

    /// The flow of a connection between two addresses, from the view of this stack.
    pub fn flow(&self, local: SocketAddr, remote: SocketAddr) -> Flow {
        let tuple = FourTuple::new(local, remote);
        Flow { tuple, hash: self.core.rss.hash_tcp(&tuple) }
    }

    /// Runs a call on a connection.
    #[inline]
    pub fn call(&self, target: &Target, mut call: Call<P>) -> Reply {
        let mut reply = Reply::Gone;
        self.call_in_place(target, &mut call, &mut reply);
        reply
    }

    /// The same without moving call or answer. The contents of `call` are unspecified afterwards; the previous value of
    /// `reply` is dropped.
    #[inline]
    pub fn call_in_place(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        call.charge();
        let owned = self.core.running.get().owned();
        if !owned.is_some_and(|active| active.call_as_owner(target, call, reply)) {
            self.call_inside(target, call, reply);
        }
        if self.checks_later() {
            self.check_answer(target, reply);
        }
        reply.charge::<P>();
    }

    /// [`Stack::call_in_place`] by a thread that does not own the connection: behind the gate.
    #[inline(never)]
    fn call_inside(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        self.active().call(target, call, reply);
    }

    /// CLOSE on a connection, without the values of calls and answers. A connection that is gone needs none.
    #[inline]
    pub fn close(&self, target: &Target) {
        charge::receive::<P>();
        let owned = self.core.running.get().owned();
        if !owned.is_some_and(|active| active.close_as_owner(target)) {
            self.call_inside(target, &mut Call::Close(tcp::Close), &mut Reply::Gone);
        }
    }

    /// SEND on a connection, the most frequent call, without the values of calls and answers: data that was not taken
    /// stays in `send`. `None`: the connection is gone.
    #[inline]
    pub fn send(&self, target: &Target, send: &mut tcp::Send) -> Option<Result<usize, tcp::Error>> {
        charge::send::<P>(send);
        let owned = self.core.running.get().owned().and_then(|active| active.send_as_owner(target, send));
        let answer = match owned {
            Some(answer) => answer,
            None => self.send_inside(target, send),
        };
        answer.map(|answer| answer.map(|taken| taken as usize))
    }

    /// [`Stack::send`] by a thread that does not own the connection: behind the gate.
    #[inline]
    fn send_inside(&self, target: &Target, send: &mut tcp::Send) -> Option<Result<u32, tcp::Error>> {
        match self.active_at_once() {
            Some(active) => active.send(target, send),
            None => self.send_later(target, send),
        }
    }

    /// [`Stack::send`] where passing the gate takes more than a few instructions.
    #[inline(never)]
    fn send_later(&self, target: &Target, send: &mut tcp::Send) -> Option<Result<u32, tcp::Error>> {
        self.active().send(target, send)
    }

    /// RECEIVE on a connection in the same way, into `received`, which must be empty.
    #[inline]
    pub fn receive(
        &self,
        target: &Target,
        event: tcp::Receive,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        charge::receive::<P>();
        let owned = self.core.running.get().owned();
        let answer = match owned.and_then(|active| active.receive_as_owner(target, event, received)) {
            Some(answer) => answer,
            None => self.receive_inside(target, event, received),
        };
        if self.checks_later() && !self.check_received(target, received) && received.data.is_empty() {
            return self.receive_later(target, event, received);
        }
        charge::received::<P>(received);
        answer
    }

    /// [`Stack::receive`] by a thread that does not own the connection: behind the gate.
    #[inline]
    fn receive_inside(
        &self,
        target: &Target,
        event: tcp::Receive,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        match self.active_at_once() {
            Some(active) => active.receive(target, event, received),
            None => self.receive_later(target, event, received),
        }
    }

    /// [`Stack::receive`] where passing the gate takes more than a few instructions.
    #[inline(never)]
    fn receive_later(
        &self,
        target: &Target,
        event: tcp::Receive,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        self.active().receive(target, event, received)
    }

    /// Number of the driver of the queue to which the device steers the segments of `flow`; `None` if no route leads to
    /// its peer any more. A device that distributes flows by other rules than their hash may differ.
    pub fn driver_of(&self, flow: &Flow) -> Option<usize> {
        let remote = flow.tuple.remote_addr;
        let found = self.at_tables(move |stack| stack.shared().routes().lookup(stack.shared().links(), remote));
        let (interface, _) = found.flatten()?;
        let links = self.core.shared.links();
        let port = links.port_of(interface, flow.hash)?;
        Some(links.driver_of(port, flow.index(links.ports()[port].queues().len())))
    }

    /// Listens on `address` (port 0: any). Complete when every cell has its replica.
    ///
    /// # Errors
    /// See [`BindRefused`].
    pub fn listen(
        &self,
        address: SocketAddr,
        backlog: usize,
        options: ConnectionOptions,
    ) -> Result<Arc<ListenerShared<P>>, BindRefused> {
        self.listen_and(address, backlog, options, None)
    }

    fn listen_and(
        &self,
        address: SocketAddr,
        backlog: usize,
        options: ConnectionOptions,
        acceptor: Option<Acceptor<P>>,
    ) -> Result<Arc<ListenerShared<P>>, BindRefused> {
        if in_handler::<P>() {
            return Err(BindRefused::InHandler);
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
        //# Every passive OPEN call either creates a new connection record in LISTEN state, or it returns an error; it
        //# MUST NOT affect any previously created connection record (MUST-41).
        let local = self.bind(Transport::Tcp, address)?;
        let shared = &self.core.shared;
        let bounds = (backlog, shared.control().tcp().syn_backlog as usize);
        let listener = ListenerShared::new(local, bounds, options, shared.links().alarms().clone());
        if let Some(acceptor) = acceptor {
            listener.serve_by(acceptor);
        }
        self.active().control(ControlRequest::Listen(listener.clone()));
        Ok(listener)
    }

    /// Stops listening. Complete when no cell can reach the listener; connections that were not accepted are reset.
    pub fn unlisten(&self, listener: &Arc<ListenerShared<P>>) {
        self.active().control(ControlRequest::Unlisten(listener.clone()));
        for child in listener.close() {
            self.call(&child.target(), Call::Abort(tcp::Abort));
        }
        self.core.ports.release(Transport::Tcp, listener.local());
    }

    /// Sends an echo request with `len` bytes of data and waits for the reply for at most `timeout`; the reply, and how
    /// long it took. Another thread must drive the stack.
    ///
    /// # Errors
    /// No route, or no packet buffer.
    pub fn ping(
        &self,
        destination: IpAddr,
        seq: u16,
        len: usize,
        timeout: Duration,
    ) -> Result<Option<(EchoReply, Duration)>, ConnectRefused> {
        let asked = self.at_tables(move |stack| stack.send_echo_request(destination, seq, len));
        let (ident, sent) = asked.unwrap_or(Err(ConnectRefused::Fault))?;
        let reply = self.core.shared.pings.wait(ident, seq, timeout);
        Ok(reply.map(|reply| (reply, reply.at - sent)))
    }

    /// Sends an echo request, and returns its identifier and when it was sent.
    fn send_echo_request(&self, destination: IpAddr, seq: u16, len: usize) -> Result<(u16, Time), ConnectRefused> {
        if in_handler::<P>() {
            return Err(ConnectRefused::InHandler);
        }
        let shared = &self.core.shared;
        let (interface, _) = shared.routes().lookup(shared.links(), destination).ok_or(ConnectRefused::NoRoute)?;
        if shared.links().is_down(interface) {
            return Err(ConnectRefused::NetworkDown);
        }
        let view = shared.links().view(interface);
        let source = shared.links().source_by(interface, destination).ok_or(ConnectRefused::NoRoute)?;
        let ident = shared.pings.identifier();
        let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let request = ip::icmp::echo_request(source, destination, ident, seq, &data, view.mtu_for(destination));
        let request = request.ok_or(ConnectRefused::NoBuffer)?;
        shared.pings.expect(ident, seq);
        let protocol = if destination.is_ipv4() { wire::protocol::ICMP } else { wire::protocol::ICMPV6 };
        let sent = shared.clock().now();
        let mut deferred = DeferredEffects::default();
        shared.egress().send_fragmented(request, source, destination, protocol, &shared.counters, &mut deferred);
        deferred.flush(shared.links());
        Ok((ident, sent))
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
    //# A TCP implementation that supports multiple concurrent connections MUST provide an OPEN call that will
    //# functionally allow an application to LISTEN on a port while a connection block with the same local port is in
    //# SYN-SENT or SYN-RECEIVED state (MUST-42).
    fn bind(&self, transport: Transport, address: SocketAddr) -> Result<SocketAddr, BindRefused> {
        if !address.ip().is_unspecified() && !self.core.shared.links().is_local(address.ip()) {
            return Err(BindRefused::NotLocal);
        }
        if self.core.shared.links().is_down_at(address.ip()) {
            return Err(BindRefused::NetworkDown);
        }
        self.core.ports.bind(transport, &self.core.shared.secrets, address).map_err(|_| BindRefused::InUse)
    }
}

/// Why an address could not be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindRefused {
    /// Another socket has it, or no port is left.
    InUse,
    /// It is not an address of this stack.
    NotLocal,
    /// Every device that could receive packets for it has vanished.
    NetworkDown,
    /// The calling thread runs a handler.
    InHandler,
}
