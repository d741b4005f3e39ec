//! User calls on a connection, as values: they can be run at once, sent to the thread that owns the connection, or
//! queued until a thread holds it.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use observe::Time;
use sync::Platform;
use tcp::{
    Abort, Close, DamagedData, Outbox, PcbAccess, Peek, Receive, ReceiveInOrder, ReportUnread, Send, SendMore,
    SendPromised, SendRecord, SendUrgent, SetOption, Shutdown, Status, TakeError, TcpEvent,
};

use wire::rss::Toeplitz;

use crate::charge;
use crate::flow::{Flow, Key, Target, UdpName};
use crate::socket::handler::HandlerState;
use crate::socket::{ListenerShared, Readiness, TcpSocket};
use crate::stats::StackStats;
use crate::udp_call::UdpReply;

/// One request of a user to one connection.
pub enum Call<P: Platform> {
    /// Active open (RFC 9293, 3.10.1): make the PCB of this tuple and send its SYN.
    Open(Box<OpenRequest<P>>),
    /// Give the connection a handler, which is its user from now on.
    Handle(Box<HandlerState<P>>),
    /// Append data (3.10.2).
    Send(Send),
    /// Take in-order data (3.10.3).
    Receive(Receive),
    /// The same, with an application ticket.
    ReceiveInOrder(ReceiveInOrder),
    /// Copy in-order data and leave it queued.
    Peek(Peek),
    /// Report how much of the delivered payload has not been read yet.
    ReportUnread(ReportUnread),
    /// No more data in one or both directions.
    Shutdown(Shutdown),
    /// Graceful close (3.10.4); the user releases the connection.
    Close(Close),
    /// Abort (3.10.5), and release.
    Abort(Abort),
    /// End the connection: data that was taken from it was damaged.
    Damaged(DamagedData),
    /// Report (3.10.6).
    Status(Status),
    /// Change a per-connection option.
    SetOption(SetOption),
    /// Append data for which the user was granted room; no answer is waited for.
    SendPromised(SendPromised),
    /// Append data whose last byte is urgent.
    SendUrgent(SendUrgent),
    /// Append data that ends a record.
    SendRecord(SendRecord),
    /// Append data that more will follow (`MSG_MORE`).
    SendMore(SendMore),
    /// Take the error that the connection failed with; it is reported once.
    TakeError(TakeError),
}

impl<P: Platform> OpenRequest<P> {
    /// The flow that the request opens.
    pub(crate) fn flow(&self) -> Flow {
        Flow { tuple: self.params.tuple, hash: self.hash() }
    }

    /// Its hash.
    pub(crate) fn hash(&self) -> u32 {
        self.params.flow_hash.unwrap_or(0)
    }

    /// The target of the call that makes the connection, which has no name yet.
    pub(crate) fn target(&self) -> Target {
        Target { hash: self.hash(), key: Key::from_bits(u64::MAX) }
    }
}

impl<P: Platform> Call<P> {
    /// Reports that it enters the stack, and that its data is read.
    #[inline(always)]
    pub(crate) fn charge(&self) {
        if P::CHARGED {
            match self {
                Call::Send(event) => charge::send::<P>(event),
                _ => charge::receive::<P>(),
            }
        }
    }

    /// Takes the call out of a value that is passed by reference.
    pub fn take(&mut self) -> Call<P> {
        std::mem::replace(self, Call::Receive(Receive { max: 0 }))
    }
}

/// The parameters of an active open.
pub struct OpenRequest<P: Platform> {
    /// Parameters of the PCB.
    pub params: tcp::OpenParams,
    /// Generation of the routes they were computed from.
    pub generation: u32,
    /// When they were computed.
    pub at: Time,
    /// The socket by which its user will use it. `None`: the place where the connection is kept makes it.
    pub socket: Option<Arc<TcpSocket<P>>>,
    /// Data that may leave with the SYN.
    pub fast_open: Option<Box<tcp::Start>>,
}

/// Makes the PCB of an active open, and puts its SYN into `out`.
pub fn open(params: &tcp::OpenParams, fast_open: Option<Box<tcp::Start>>, out: &mut Outbox<'_>, now: Time) -> tcp::Pcb {
    let mut pcb = tcp::Pcb::unopened(params, out.config, now);
    tcp::Open(fast_open).run(&mut pcb.parts(), out, now);
    pcb
}

/// The answer to a [`Call`].
pub enum Reply {
    /// To `Open`: where the connection lives now.
    Opened(Result<Key, OpenRefused>),
    /// To `Send`, `SendUrgent`, `SendRecord` and `SendMore`.
    Sent(<Send as TcpEvent>::Reply),
    /// To `Receive`.
    Received(<Receive as TcpEvent>::Reply),
    /// To `ReceiveInOrder`.
    ReceivedInOrder(<ReceiveInOrder as TcpEvent>::Reply),
    /// To `Peek`.
    Peeked(<Peek as TcpEvent>::Reply),
    /// To `Shutdown`.
    ShutDown(<Shutdown as TcpEvent>::Reply),
    /// To `Status`.
    Status(Box<<Status as TcpEvent>::Reply>),
    /// To `SetOption`.
    OptionSet(<SetOption as TcpEvent>::Reply),
    /// To `TakeError`.
    Failure(<TakeError as TcpEvent>::Reply),
    /// To `SendPromised`, `ReportUnread`, `Close`, `Abort` and `Damaged`, and to a change of replicas.
    Done,
    /// To a call on a datagram socket that was sent to its home.
    Udp(Box<UdpReply>),
    /// To a request for statistics that was sent to a cell.
    StackStats(Box<StackStats>),
    /// To a job that was sent to the owner of the tables of IP: its result.
    Job(Box<dyn Any + std::marker::Send>),
    /// The connection is no longer there.
    Gone,
}

impl Reply {
    /// Reports that it returns, and that the user reads its data.
    #[inline(always)]
    pub(crate) fn charge<P: Platform>(&self) {
        if P::CHARGED {
            match self {
                Reply::Received(Ok(data)) => charge::received::<P>(data),
                Reply::ReceivedInOrder(Ok(data)) => charge::received::<P>(&data.received),
                _ => {}
            }
        }
    }
}

/// Why an active open was refused before it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenRefused {
    /// The tuple is in use by another connection.
    TupleInUse,
    /// No packet buffer was left for the SYN.
    NoBuffer,
    /// The stack panicked.
    Fault,
}

/// OPEN as a call that `run` makes; see [`RunningArchitecture::open`](crate::arch::RunningArchitecture::open).
#[cold]
pub(crate) fn open_by<P: Platform>(
    request: &mut OpenRequest<P>,
    run: impl FnOnce(&mut Call<P>, &mut Reply),
) -> Result<Key, OpenRefused> {
    // Made here, because the request does not come back.
    let flow = request.flow();
    let socket = Some(request.socket.get_or_insert_with(|| TcpSocket::new(flow)).clone());
    let OpenRequest { generation, at, .. } = *request;
    let (params, fast_open) = (request.params.clone(), request.fast_open.take());
    let request = OpenRequest { params, generation, at, socket, fast_open };
    let mut reply = Reply::Gone;
    run(&mut Call::Open(Box::new(request)), &mut reply);
    match reply {
        Reply::Opened(opened) => opened,
        _ => Err(OpenRefused::NoBuffer),
    }
}

/// SEND as a call that `run` makes; see [`RunningArchitecture::send`](crate::arch::RunningArchitecture::send).
#[cold]
pub(crate) fn send_by<P: Platform>(
    send: &mut Send,
    run: impl FnOnce(&mut Call<P>, &mut Reply),
) -> Option<Result<u32, tcp::Error>> {
    let mut reply = Reply::Gone;
    run(&mut Call::Send(std::mem::take(send)), &mut reply);
    match reply {
        Reply::Sent(Ok(sent)) => {
            send.chunks = sent.rest;
            Some(Ok(sent.accepted as u32))
        }
        Reply::Sent(Err(error)) => Some(Err(error)),
        _ => None,
    }
}

/// The same for RECEIVE.
#[cold]
pub(crate) fn receive_by<P: Platform>(
    event: Receive,
    received: &mut tcp::Received,
    run: impl FnOnce(&mut Call<P>, &mut Reply),
) -> Option<Result<(), tcp::Error>> {
    let mut reply = Reply::Gone;
    run(&mut Call::Receive(event), &mut reply);
    match reply {
        Reply::Received(taken) => Some(taken.map(|taken| *received = taken)),
        _ => None,
    }
}

/// Runs a user's call on a connection that the caller holds. The protocol is in `tcp`; this only unpacks values.
pub fn run<P: Platform, A: PcbAccess>(call: Call<P>, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Reply {
    match call {
        Call::Open(_) => unreachable!("an open has no PCB yet: the table's owner makes it"),
        Call::Handle(_) => unreachable!("a handler is kept beside the PCB, by its place"),
        Call::Send(event) => Reply::Sent(event.run(pcb, out, now)),
        Call::Receive(event) => Reply::Received(event.run(pcb, out, now)),
        Call::ReceiveInOrder(event) => Reply::ReceivedInOrder(event.run(pcb, out, now)),
        Call::Peek(event) => Reply::Peeked(event.run(pcb, out, now)),
        Call::ReportUnread(event) => {
            event.run(pcb, out, now);
            Reply::Done
        }
        Call::Shutdown(event) => Reply::ShutDown(event.run(pcb, out, now)),
        Call::Close(event) => {
            event.run(pcb, out, now);
            Reply::Done
        }
        Call::Abort(event) => {
            event.run(pcb, out, now);
            Reply::Done
        }
        Call::Damaged(event) => {
            event.run(pcb, out, now);
            Reply::Done
        }
        Call::Status(event) => Reply::Status(Box::new(event.run(pcb, out, now))),
        Call::SetOption(event) => Reply::OptionSet(event.run(pcb, out, now)),
        Call::SendPromised(event) => {
            // The user learns of a failure by the connection's readiness, and its reason by the next call.
            let _ = event.run(pcb, out, now);
            Reply::Done
        }
        Call::SendUrgent(event) => Reply::Sent(event.run(pcb, out, now)),
        Call::SendRecord(event) => Reply::Sent(event.run(pcb, out, now)),
        Call::SendMore(event) => Reply::Sent(event.run(pcb, out, now)),
        Call::TakeError(event) => Reply::Failure(event.run(pcb, out, now)),
    }
}

/// The readiness bit that a call can clear.
pub fn level_of<P: Platform>(call: &Call<P>) -> Readiness {
    match call {
        Call::Receive(_) | Call::ReceiveInOrder(_) | Call::Peek(_) => Readiness::READABLE,
        Call::Send(_) | Call::SendUrgent(_) | Call::SendRecord(_) | Call::SendMore(_) => Readiness::WRITABLE,
        _ => Readiness::NONE,
    }
}

/// Whether the call would block now, so that the readiness bit must be cleared.
#[inline]
pub fn exhausted(reply: &Reply) -> bool {
    match reply {
        Reply::Received(Err(error)) | Reply::Peeked(Err(error)) => *error == tcp::Error::WouldBlock,
        Reply::ReceivedInOrder(Err(error)) => *error == tcp::Error::WouldBlock,
        Reply::Sent(Ok(sent)) => !sent.rest.is_empty(),
        _ => false,
    }
}

/// An asynchronous event: from a device, a timer or another connection.
pub enum Ingress {
    /// A parsed TCP segment; its flow determines the cell.
    Segment(ArrivingSegment),
    /// Several of one flow; only where the architecture takes them
    /// ([`RunningArchitecture::takes_runs`](crate::arch::RunningArchitecture::takes_runs)).
    Run(ArrivingRun),
    /// A UDP datagram, still with its header.
    Datagram(ArrivingDatagram),
    /// An ICMP error about one of our connections.
    IcmpError {
        /// Hash of the flow that the error is about.
        hash: u32,
        /// The error.
        error: ip::ReceivedIcmpError,
    },
    /// The device has room again for a connection that had to stop sending.
    TransmitReady(Target),
    /// Messages were posted to the handler of a connection.
    Posted(Target),
}

impl Ingress {
    /// The hash of its flow, which selects the cell.
    #[inline]
    pub fn hash(&self) -> u32 {
        match self {
            Ingress::Segment(segment) => segment.hash,
            Ingress::Run(run) => run.hash,
            Ingress::Datagram(datagram) => UdpName::home(datagram.tuple.local_port),
            Ingress::IcmpError { error, .. } if error.protocol == wire::protocol::UDP => {
                UdpName::home(error.tuple.local_port)
            }
            Ingress::IcmpError { hash, .. } => *hash,
            Ingress::TransmitReady(target) | Ingress::Posted(target) => target.hash,
        }
    }

    /// The first of the segments in it.
    #[inline]
    pub(crate) fn first_segment(&self) -> Option<&tcp::Segment> {
        match self {
            Ingress::Segment(arriving) => arriving.segment.as_ref(),
            Ingress::Run(run) => run.segments.first()?.as_ref(),
            _ => None,
        }
    }

    /// The number of packets in it.
    #[inline]
    pub fn packets(&self) -> usize {
        match self {
            Ingress::Run(run) => run.segments.len(),
            _ => 1,
        }
    }

    /// Whether it was received as a packet. Otherwise it is a notice, and must not be dropped.
    #[inline]
    pub fn is_packet(&self) -> bool {
        !matches!(self, Ingress::TransmitReady(_) | Ingress::Posted(_))
    }

    /// Whether it is for the datagram sockets of a port, and [`Ingress::hash`] is their home instead of the hash of a flow.
    #[inline]
    pub fn is_for_a_port(&self) -> bool {
        match self {
            Ingress::Datagram(_) => true,
            Ingress::IcmpError { error, .. } => error.protocol == wire::protocol::UDP,
            _ => false,
        }
    }

    /// The hash of the packet's own flow, if it has been hashed: that of a segment. Datagrams and ICMP messages are not
    /// hashed; [`Ingress::hash`] determines their cell.
    #[inline]
    pub fn flow_hash(&self) -> Option<u32> {
        match self {
            Ingress::Segment(segment) => Some(segment.hash),
            Ingress::Run(run) => Some(run.hash),
            _ => None,
        }
    }
}

impl Ingress {
    /// Hashes the flow of a segment that the device has not hashed.
    #[cold]
    pub(crate) fn rehash(&mut self, rss: &Toeplitz) {
        if let Ingress::Segment(ArrivingSegment { hash, segment: Some(segment) }) = self {
            *hash = rss.hash_tcp(&segment.tuple);
        }
    }
}

impl Default for Ingress {
    /// A placeholder, left where an event has been taken.
    fn default() -> Self {
        Ingress::Segment(ArrivingSegment { hash: 0, segment: None })
    }
}

/// A TCP segment on its way to its connection.
pub struct ArrivingSegment {
    /// Hash of its flow.
    pub hash: u32,
    /// The parsed segment, until it is taken.
    pub segment: Option<tcp::Segment>,
}

/// TCP segments of one flow that were received directly after one another, on their way to their connection. Their
/// checksums have been checked.
#[derive(Default)]
pub struct ArrivingRun {
    /// Hash of their flow.
    pub hash: u32,
    /// The parsed segments, in the order in which they arrived, until they are taken.
    pub segments: Vec<Option<tcp::Segment>>,
}

/// A UDP datagram on its way to its socket.
pub struct ArrivingDatagram {
    /// Its tuple, as seen from here.
    pub tuple: wire::FourTuple,
    /// UDP header and payload; the checksum has not been verified.
    pub datagram: ip::Datagram,
}

/// A change that every cell must see, because each has replicas of the listeners, and connections.
pub enum ControlRequest<P: Platform> {
    /// Start to accept connections.
    Listen(Arc<ListenerShared<P>>),
    /// Stop to.
    Unlisten(Arc<ListenerShared<P>>),
    /// The device of this interface has vanished: connections through it end.
    LinkDown(usize),
    /// The stack has lost this address: connections from it end.
    AddressLost(IpAddr),
    /// Give back memory that a peak has left behind.
    Trim,
}

impl<P: Platform> Clone for ControlRequest<P> {
    fn clone(&self) -> Self {
        match self {
            ControlRequest::Listen(listener) => ControlRequest::Listen(listener.clone()),
            ControlRequest::Unlisten(listener) => ControlRequest::Unlisten(listener.clone()),
            ControlRequest::LinkDown(interface) => ControlRequest::LinkDown(*interface),
            ControlRequest::AddressLost(address) => ControlRequest::AddressLost(*address),
            ControlRequest::Trim => ControlRequest::Trim,
        }
    }
}
