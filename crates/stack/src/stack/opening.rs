//! Active opens: whether there is a route, from which address and port, with which data on the SYN. The architecture
//! makes the connection. A thread that polls some of the receive queues prefers ports whose flow comes to these
//! ([`StackConfig::homing`](crate::StackConfig::homing)). What may never happen: an open that is refused although a port is
//! free.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use observe::Time;
use pktbuf::{Chunk, PktBuf};
use sync::Platform;
use tcp::Start;
use tcp::config::ConnectionOptions;
use wire::FourTuple;

use super::Stack;
use super::recent_destination::Departure;
use crate::call::{Call, OpenRefused, OpenRequest};
use crate::charge;
use crate::flow::Flow;
use crate::ports::PortCounter;
use crate::socket::TcpSocket;
use crate::socket::handler::{IN_HANDLER, in_handler};

/// The most data that an open takes: it fits in a pooled buffer, and an empty send buffer accepts it however small it
/// is.
const FIRST_DATA: usize = 60 << 10;

/// Ports of flows that other threads receive which an active open passes over before it takes the next free one. Each
/// costs the hash of its flow. With up to 16 queues fewer than two opens in a hundred find none of their own among them.
const MOST_ASTRAY: u32 = 64;

/// Data that an active open begins with, borrowed (`&[u8]`) or on its way to another thread (`Vec<u8>`).
#[derive(Clone, Copy)]
enum FirstData<D> {
    /// None, and no Fast Open.
    None,
    /// All of it is queued; the part that the SYN cannot carry follows it.
    Queued(D),
    /// Only the part that the SYN carries is taken; the flag: the user will send more.
    OnSyn(D, bool),
}

impl<D: AsRef<[u8]>> FirstData<D> {
    fn borrowed(&self) -> FirstData<&[u8]> {
        match self {
            FirstData::None => FirstData::None,
            FirstData::Queued(data) => FirstData::Queued(data.as_ref()),
            FirstData::OnSyn(data, more) => FirstData::OnSyn(data.as_ref(), *more),
        }
    }

    /// A copy of the data that one open can take, and one byte more if there is more.
    fn into_owned(self) -> FirstData<Vec<u8>> {
        let first = |data: D| data.as_ref().iter().take(FIRST_DATA + 1).copied().collect();
        match self {
            FirstData::None => FirstData::None,
            FirstData::Queued(data) => FirstData::Queued(first(data)),
            FirstData::OnSyn(data, more) => FirstData::OnSyn(first(data), more),
        }
    }
}

/// The route to a destination, as an active open finds it.
#[derive(Clone, Copy)]
struct RouteSnapshot {
    /// Of the routes.
    generation: u32,
    /// The interface; `None`: there is no route.
    leaves_by: Option<usize>,
}

/// What an active open is to do, from whichever local port.
struct ActiveOpen<'a> {
    remote: &'a SocketAddr,
    options: &'a ConnectionOptions,
    data: FirstData<&'a [u8]>,
    route: RouteSnapshot,
    now: Time,
}

/// Why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectRefused {
    /// No route, or no address of the right family on the interface it leads to.
    NoRoute,
    /// The remote address is a broadcast, group or unspecified one.
    NotAHost,
    /// The local address is a loopback address and the remote one another host's: such an address must not appear on a
    /// link (RFC 1122 section 3.2.1.3 g).
    LoopbackSource,
    /// The local address and port already have a connection to that remote.
    AddressInUse,
    /// Every local port has a connection to that remote.
    NoPort,
    /// No packet buffer is left, or the connections' buffers have reached their memory limit (`tcp_mem`).
    NoBuffer,
    /// The device that leads there has vanished.
    NetworkDown,
    /// The stack panicked during the open; see [`Stack::failures`].
    Fault,
    /// The calling thread runs a handler, which must not call the stack.
    InHandler,
}

impl fmt::Display for ConnectRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectRefused::NoRoute => "no route: give the interface an address of this family, or a gateway",
            ConnectRefused::NotAHost => "a broadcast, group or unspecified address: connect to that of one host",
            ConnectRefused::LoopbackSource => "a loopback address reaches no other host: connect from another address",
            ConnectRefused::AddressInUse => "the local port already has a connection there: choose another port",
            ConnectRefused::NoPort => "every local port has a connection there: close some, or add an address",
            ConnectRefused::NetworkDown => "network down: the device towards it was removed; open it again",
            ConnectRefused::Fault => {
                "the stack panicked while opening it, and continues: Stack::failures has the reason"
            }
            ConnectRefused::InHandler => IN_HANDLER,
            ConnectRefused::NoBuffer => "no packet buffer left: raise the buffer limit or close connections",
        })
    }
}

impl std::error::Error for ConnectRefused {}

impl<P: Platform> Stack<P> {
    /// Opens a connection to `remote` from `local` (or from an address and port that are chosen) and returns without
    /// waiting for the handshake.
    ///
    /// # Errors
    /// See [`ConnectRefused`].
    pub fn connect(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &ConnectionOptions,
    ) -> Result<Arc<TcpSocket<P>>, ConnectRefused> {
        self.connect_with(local.as_ref(), &remote, options, &[])
    }

    /// As [`Stack::connect`], with data to send, at most [`Stack::first_data`] bytes. It leaves with the SYN if the
    /// Fast Open cache allows it (RFC 7413), otherwise after the handshake.
    ///
    /// # Errors
    /// See [`ConnectRefused`].
    pub fn connect_with(
        &self,
        local: Option<&SocketAddr>,
        remote: &SocketAddr,
        options: &ConnectionOptions,
        data: &[u8],
    ) -> Result<Arc<TcpSocket<P>>, ConnectRefused> {
        let data = if data.is_empty() { FirstData::None } else { FirstData::Queued(data) };
        self.connect_by(local, remote, options, data).map(|(socket, _)| socket)
    }

    /// As [`Stack::connect_with`], but takes only the part of `data` that leaves with the SYN, and returns its length.
    /// Without a cookie it is 0, and the SYN requests one even without data (Linux's `MSG_FASTOPEN`). `more`: the user
    /// sends more as soon as the connection is open.
    ///
    /// # Errors
    /// See [`ConnectRefused`].
    pub fn connect_fast(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &ConnectionOptions,
        data: &[u8],
        more: bool,
    ) -> Result<(Arc<TcpSocket<P>>, usize), ConnectRefused> {
        self.connect_by(local.as_ref(), &remote, options, FirstData::OnSyn(data, more))
    }

    /// Whether a SYN to `remote` may carry data now: the cookie of its peer is known, or none is needed.
    pub fn opens_fast(&self, remote: IpAddr) -> bool {
        let offered = self.at_tables(move |stack| {
            let shared = stack.shared();
            shared.destinations.offer(remote, u16::MAX, shared.control().tcp().fast_open, shared.clock().now())
        });
        offered.is_some_and(|offer| offer.max_data > 0)
    }

    /// Opens where the tables of IP may be used: the whole call is sent to their owner if they have one.
    fn connect_by(
        &self,
        local: Option<&SocketAddr>,
        remote: &SocketAddr,
        options: &ConnectionOptions,
        data: FirstData<&[u8]>,
    ) -> Result<(Arc<TcpSocket<P>>, usize), ConnectRefused> {
        let result = if self.owns_tables() {
            self.connect_here(local, remote, options, data)
        } else {
            self.connect_beside(local, remote, options, data)
        };
        // Checked only after a failure, so that other opens do not pay for it.
        result.map_err(|refused| if in_handler::<P>() { ConnectRefused::InHandler } else { refused })
    }

    /// By a thread that does not own the tables.
    #[inline(never)]
    fn connect_beside(
        &self,
        local: Option<&SocketAddr>,
        remote: &SocketAddr,
        options: &ConnectionOptions,
        data: FirstData<&[u8]>,
    ) -> Result<(Arc<TcpSocket<P>>, usize), ConnectRefused> {
        if let Ok(result) = self.at_tables_here(|| self.connect_there(local, remote, options, data)) {
            return result;
        }
        let (local, remote, options, data) = (local.copied(), *remote, options.clone(), data.into_owned());
        let open = move |stack: &Stack<P>| stack.connect_there(local.as_ref(), &remote, &options, data.borrowed());
        self.at_tables(open).unwrap_or(Err(ConnectRefused::Fault))
    }

    /// [`Stack::connect_here`], not inlined.
    #[inline(never)]
    fn connect_there(
        &self,
        local: Option<&SocketAddr>,
        remote: &SocketAddr,
        options: &ConnectionOptions,
        data: FirstData<&[u8]>,
    ) -> Result<(Arc<TcpSocket<P>>, usize), ConnectRefused> {
        self.connect_here(local, remote, options, data)
    }

    /// Inlined, as is what it calls: each result that passes through memory is read there in other pieces than it was written
    /// in, for which the processor waits.
    #[inline(always)]
    fn connect_here(
        &self,
        local: Option<&SocketAddr>,
        remote: &SocketAddr,
        options: &ConnectionOptions,
        data: FirstData<&[u8]>,
    ) -> Result<(Arc<TcpSocket<P>>, usize), ConnectRefused> {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
        //# A TCP implementation MUST reject as an error a local OPEN call for an invalid remote IP address (e.g., a
        //# broadcast or multicast address) (MUST-46).
        let (links, peer) = (self.core.shared.links(), remote.ip());
        // Not refused while memory is short (`tcp_mem`): as on Linux an active open succeeds, with the least memory
        // that it needs. Read before the routes: the first emission then notices a change in between.
        let generation = self.core.shared.routes().generation();
        let (leaves_by, source) = match self.core.recent.interface(peer, generation) {
            Some(interface) => (Some(interface), None),
            None => self.find_departure(peer, generation).ok_or(ConnectRefused::NotAHost)?,
        };
        let is_down = || leaves_by.is_some_and(|interface| links.is_down(interface));
        let source = match local.map(|local| local.ip()) {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
            //# The optional "local IP address" parameter MUST be supported to allow the specification of the local IP
            //# address (MUST-43).
            Some(ip) if !ip.is_unspecified() => ip,
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
            //# If an application on a multihomed host does not specify the local IP address when actively opening a TCP
            //# connection, then the TCP implementation MUST ask the IP layer to select a local IP address before
            //# sending the (first) SYN (MUST-44).
            _ => source.or_else(|| self.core.recent.source(peer, generation)).ok_or(ConnectRefused::NoRoute)?,
        };
        if source.is_loopback() && !leaves_by.is_some_and(|interface| links.is_loopback(interface)) {
            return Err(ConnectRefused::LoopbackSource);
        }
        if is_down() {
            return Err(ConnectRefused::NetworkDown);
        }
        let (route, now) = (RouteSnapshot { generation, leaves_by }, self.core.shared.clock().now());
        let (socket, taken) =
            self.open_somewhere((local, source), &ActiveOpen { remote, options, data, route, now })?;
        // The device may have vanished between the check and the insertion into the table, and its connections may have
        // been ended in between.
        if is_down() {
            self.call(&socket.target(), Call::Abort(tcp::Abort));
            return Err(ConnectRefused::NetworkDown);
        }
        Ok((socket, taken))
    }

    /// The interface by which connections to `peer` leave, and their source address, with routes of this generation.
    /// `None`: no single host has that address.
    #[cold]
    #[inline(never)]
    fn find_departure(&self, peer: IpAddr, generation: u32) -> Option<(Option<usize>, Option<IpAddr>)> {
        let links = self.core.shared.links();
        if !links.may_be_host(peer) {
            return None;
        }
        let leaves_by = self.core.shared.routes().lookup(links, peer).map(|(interface, _)| interface);
        let source = leaves_by.and_then(|interface| links.source_by(interface, peer));
        if let (Some(interface), Some(source)) = (leaves_by, source) {
            self.core.recent.note(peer, generation, Departure { interface, source });
        }
        Some((leaves_by, source))
    }

    /// Opens from the requested local port, or from a free one.
    #[inline(always)]
    fn open_somewhere(
        &self,
        (local, source): (Option<&SocketAddr>, IpAddr),
        opening: &ActiveOpen<'_>,
    ) -> Result<(Arc<TcpSocket<P>>, usize), ConnectRefused> {
        let remote = opening.remote;
        if let Some(port) = local.map(|local| local.port()).filter(|port| *port != 0) {
            let flow = self.flow(SocketAddr::new(source, port), *remote);
            return self.open(&flow, opening).map_err(|refused| match refused {
                OpenRefused::TupleInUse => ConnectRefused::AddressInUse,
                OpenRefused::NoBuffer => ConnectRefused::NoBuffer,
                OpenRefused::Fault => ConnectRefused::Fault,
            });
        }
        let links = self.core.shared.links();
        // The interface, where the caller polls some of the queues.
        let mut home = opening.route.leaves_by.filter(|_| self.core.homing && links.polls_some());
        loop {
            let counter = if home.is_some() { PortCounter::OfThread } else { PortCounter::OfAll };
            let candidates = self.core.ports.candidates(&self.core.shared.secrets, (source, *remote), counter);
            let mut astray = 0;
            for (passed, port) in candidates.enumerate() {
                // A connection can open with itself without a listener (RFC 9293 section 3.5, simultaneous initiation):
                // allowed if the user requests that port, but never by chance.
                if port == remote.port() && source == remote.ip() {
                    continue;
                }
                let tuple = FourTuple {
                    local_addr: source,
                    remote_addr: remote.ip(),
                    local_port: port,
                    remote_port: remote.port(),
                };
                // The hash is written beside the tuple, which is not moved for it.
                let mut flow = Flow { tuple, hash: 0 };
                flow.hash = self.core.rss.hash_tcp(&flow.tuple);
                let comes_home = |interface| links.comes_home(interface, flow.hash) && self.active().is_home(flow.hash);
                if home.is_some_and(|interface| astray < MOST_ASTRAY && !comes_home(interface)) {
                    astray += 1;
                    continue;
                }
                match self.open(&flow, opening) {
                    Ok(opened) => {
                        self.core.ports.passed_over(passed as u32, counter);
                        return Ok(opened);
                    }
                    Err(OpenRefused::TupleInUse) => {}
                    Err(OpenRefused::NoBuffer) => return Err(ConnectRefused::NoBuffer),
                    Err(OpenRefused::Fault) => return Err(ConnectRefused::Fault),
                }
            }
            // All are taken, but for those that were passed over.
            if home.take().is_none() {
                return Err(ConnectRefused::NoPort);
            }
        }
    }

    fn open(
        &self,
        flow: &Flow,
        &ActiveOpen { options, data, route: RouteSnapshot { generation, leaves_by }, now, .. }: &ActiveOpen<'_>,
    ) -> Result<(Arc<TcpSocket<P>>, usize), OpenRefused> {
        // In one expression, so that the parameters are made where they stay.
        let mut request = OpenRequest {
            params: self.open_params(flow, options, leaves_by, now),
            generation,
            at: now,
            socket: None,
            fast_open: None,
        };
        let mut taken = 0;
        if !matches!(data, FirstData::None) {
            request.fast_open = self.start_with(&request.params, data, now)?;
            taken = request.fast_open.as_ref().map_or(0, |start| start.data.iter().map(Chunk::len).sum());
        }
        charge::receive::<P>();
        match self.core.running.get().owned().and_then(|active| active.open_as_owner(&mut request)) {
            Some(opened) => opened,
            None => self.active().open(&mut request).map(drop),
        }?;
        Ok((request.socket.ok_or(OpenRefused::Fault)?, taken))
    }

    /// The parameters of an active open of `flow` through this interface, if there is a route.
    #[inline(always)]
    fn open_params(
        &self,
        flow: &Flow,
        options: &ConnectionOptions,
        interface: Option<usize>,
        now: Time,
    ) -> tcp::OpenParams {
        let (routes, links) = (self.core.shared.routes(), self.core.shared.links());
        let (iss, ts_offset) = self.core.shared.secrets.isn().beginning(&flow.tuple, now);
        tcp::OpenParams {
            tuple: flow.tuple,
            iss,
            ts_offset,
            flow_hash: Some(flow.hash),
            mss: routes.mss_by(links, interface, flow.tuple.remote_addr, now),
            options: routes.on_path(links, options, flow.tuple.remote_addr).into_owned(),
        }
    }

    #[inline(never)]
    fn start_with(
        &self,
        params: &tcp::OpenParams,
        data: FirstData<&[u8]>,
        now: Time,
    ) -> Result<Option<Box<Start>>, OpenRefused> {
        let shared = &self.core.shared;
        let mss = params.options.max_segment.unwrap_or(u16::MAX).min(params.mss);
        let offer = || shared.destinations.offer(params.tuple.remote_addr, mss, shared.control().tcp().fast_open, now);
        let (data, offer, more) = match data {
            FirstData::None => return Ok(None),
            FirstData::Queued(data) => (data, offer(), false),
            FirstData::OnSyn(data, more) => {
                let offer = offer();
                let fits = data.len().min(offer.max_data.into()).min(self.first_data(&params.options));
                (&data[..fits], offer, more && fits < data.len())
            }
        };
        if data.is_empty() {
            return Ok(Some(Box::new(Start { offer, data: tcp::Chunks::new(), more })));
        }
        let buffer = PktBuf::from_slice(data).ok_or(OpenRefused::NoBuffer)?;
        Ok(Some(Box::new(Start { offer, data: tcp::Chunks::from_iter([Chunk::Pooled(buffer)]), more })))
    }

    /// Bytes that [`Stack::connect_with`] takes at most under `options`.
    pub fn first_data(&self, options: &ConnectionOptions) -> usize {
        let buffer = options.send_buffer.unwrap_or(self.core.shared.control().tcp().send_buffer.initial);
        FIRST_DATA.min(buffer.max(1) as usize)
    }
}
