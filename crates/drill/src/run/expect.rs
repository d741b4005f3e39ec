//! Expected packets: waiting, conversion to the script's numbers, and comparison.

use std::time::Duration;

use observe::Time;

use crate::frame::{self, Ip, Payload, Tcp};
use crate::notation;
use crate::script::{Body, Direction, IpInfo, Nanos, Packet, TcpOption, TcpSpec, Tos, When, flag};

use super::values::pattern;
use super::{Ran, Runner, tolerance};

/// How long after its time a packet is still awaited, so that a late one is not reported as missing.
const GRACE: Duration = Duration::from_secs(2);
/// How long `*` waits: longer than any retransmission.
const FOREVER: Duration = Duration::from_secs(1000);

/// A packet of the stack: IP header, payload, and time.
struct Live {
    at: Time,
    ip: Ip,
    payload: Payload,
}

impl Runner {
    /// Waits for the packet and compares it; returns the script time from which the next event counts.
    pub(super) fn expect(&mut self, wanted: &Packet, when: When, from: Nanos, to: Nanos) -> Ran<Nanos> {
        let index = match &wanted.body {
            Body::Tcp(spec) => self.connection(spec.ports, false)?,
            Body::Udp { ports, .. } => self.connection(*ports, false)?,
            Body::Icmp(_) => self.connection(None, false)?,
        };
        let latest = if when == When::Any { self.host.now() + FOREVER } else { self.live(to) + GRACE };
        let first = self.next_packet(index, wanted, latest)?;
        let at = self.script_time(first.at);
        match (&wanted.body, &first.payload) {
            (Body::Tcp(spec), Payload::Tcp(_)) => self.compare_segment(index, wanted, spec, first, (when, from, to))?,
            (Body::Udp { len, .. }, Payload::Udp { data, ports }) => {
                let actual = Body::Udp { ports: Some(*ports), len: data.len() as u16 };
                let actual = Packet { direction: Direction::Outbound, ip: IpInfo::default(), body: actual };
                let wrong = if data.len() != usize::from(*len) { vec!["length"] } else { Vec::new() };
                let late = self.timing(when, from, to, at);
                self.verdict(wanted, &actual, wrong, &first.ip, late)?;
            }
            (Body::Icmp(spec), Payload::Icmp(actual)) => {
                let mut wrong = Vec::new();
                if spec.kind != actual.kind || spec.code.is_some() && spec.code != actual.code {
                    wrong.push("type");
                }
                if spec.mtu.is_some() && spec.mtu != actual.mtu {
                    wrong.push("mtu");
                }
                let body = Body::Icmp(actual.clone());
                let actual = Packet { direction: Direction::Outbound, ip: IpInfo::default(), body };
                let late = self.timing(when, from, to, at);
                self.verdict(wanted, &actual, wrong, &first.ip, late)?;
            }
            _ => return Err(self.error(format!("expected {wanted}, got another protocol"))),
        }
        // After a range or `*` the next event counts from the actual time.
        Ok(if matches!(when, When::Absolute(_) | When::Relative(_)) { from } else { at })
    }

    /// An error for the first packet that was sent and not compared.
    pub(super) fn leftovers(&self) -> Ran<()> {
        let Some((at, bytes)) = self.host.sent.front() else { return Ok(()) };
        let seconds = self.script_time(*at) as f64 / 1e9;
        let (ip, payload) = frame::read(bytes).map_err(|error| self.error(format!("the stack sent {error}")))?;
        let shown = match payload {
            Payload::Tcp(segment) => {
                let owner = self.connections.iter().position(|connection| connection.owns(&ip, segment.ports));
                let window = Some(segment.window);
                let spec =
                    TcpSpec { ports: None, flags: 0, seq: 0, len: 0, ack: None, window, urgent: None, options: None };
                owner.map_or_else(
                    || "a segment of no connection".into(),
                    |i| self.in_script(i, &segment, &spec).to_string(),
                )
            }
            Payload::Udp { data, .. } => format!("udp ({})", data.len()),
            Payload::Icmp(icmp) => icmp.to_string(),
            Payload::Other(protocol) => format!("protocol {protocol}"),
        };
        Err(self.error(format!("{shown} was sent at {seconds:.6} s, which the script does not have")))
    }

    fn belongs(&self, index: usize, wanted: &Packet, ip: &Ip, payload: &Payload) -> bool {
        let connection = &self.connections[index];
        match (&wanted.body, payload) {
            (Body::Tcp(_), Payload::Tcp(tcp)) => connection.owns(ip, tcp.ports),
            (Body::Udp { .. }, Payload::Udp { ports, .. }) => connection.owns(ip, *ports),
            (Body::Icmp(_), Payload::Icmp(_)) => ip.dst == connection.remote.ip(),
            _ => false,
        }
    }

    /// The next packet of the connection that the stack has sent or sends until `latest`.
    fn next_packet(&mut self, index: usize, wanted: &Packet, latest: Time) -> Ran<Live> {
        self.step();
        loop {
            for place in 0..self.host.sent.len() {
                let (at, bytes) = &self.host.sent[place];
                let at = *at;
                let (ip, payload) =
                    frame::read(bytes).map_err(|error| self.error(format!("the stack sent {error}")))?;
                if self.belongs(index, wanted, &ip, &payload) {
                    self.host.sent.remove(place);
                    self.note(index, &payload);
                    return Ok(Live { at, ip, payload });
                }
            }
            let now = self.host.now();
            if now >= latest {
                let strangers = self.host.sent.len();
                let others =
                    if strangers > 0 { format!("; {strangers} of other connections wait") } else { String::new() };
                let seconds = self.script_time(now) as f64 / 1e9;
                return Err(self.error(format!("expected {wanted}, got nothing until {seconds:.6} s{others}")));
            }
            let next = self.next_stop(latest);
            self.host.set_time(next);
            self.step();
        }
    }

    /// Records the numbers for a reset by the peer after this packet.
    fn note(&mut self, index: usize, payload: &Payload) {
        let Payload::Tcp(tcp) = payload else { return };
        let end = tcp.data.len() as u32 + u32::from(tcp.flags & flag::SYN != 0) + u32::from(tcp.flags & flag::FIN != 0);
        let connection = &mut self.connections[index];
        let seq = if tcp.flags & flag::ACK != 0 { tcp.ack } else { 0 };
        connection.last = (tcp.flags & flag::RST == 0).then(|| (seq, tcp.seq.wrapping_add(end)));
    }

    /// `None`: in time. Else the message.
    fn timing(&self, when: When, from: Nanos, to: Nanos, at: Nanos) -> Option<String> {
        if when == When::Any {
            return None;
        }
        let slack = tolerance(&self.settings, to - self.last);
        if (from - slack..=to + slack).contains(&at) {
            return None;
        }
        let seconds = |nanos: Nanos| nanos as f64 / 1e9;
        let due = if from == to {
            format!("{:.6}", seconds(from))
        } else {
            format!("{:.6}~{:.6}", seconds(from), seconds(to))
        };
        Some(format!("time {:.6} s instead of {due} s", seconds(at)))
    }

    /// One line with both packets, unless they agree.
    fn verdict(
        &self,
        wanted: &Packet,
        actual: &Packet,
        mut wrong: Vec<&'static str>,
        ip: &Ip,
        late: Option<String>,
    ) -> Ran<()> {
        match wanted.ip.tos {
            Some(Tos::Ecn(bits)) if ip.tos & 3 != bits => wrong.push("ECN"),
            Some(Tos::Ect01) if !matches!(ip.tos & 3, 1 | 2) => wrong.push("ECN"),
            Some(Tos::Whole(tos)) if ip.tos != tos => wrong.push("tos"),
            _ => {}
        }
        if wanted.ip.ttl.is_some_and(|ttl| ttl != ip.ttl) {
            wrong.push("ttl");
        }
        if wanted.ip.flow_label.is_some_and(|label| label != ip.flow_label) {
            wrong.push("flowlabel");
        }
        if wrong.is_empty() && late.is_none() {
            return Ok(());
        }
        let mut actual = actual.clone();
        if wanted.ip.tos.is_some() {
            let whole = matches!(wanted.ip.tos, Some(Tos::Whole(_)));
            actual.ip.tos = Some(if whole { Tos::Whole(ip.tos) } else { Tos::Ecn(ip.tos & 3) });
        }
        actual.ip.ttl = wanted.ip.ttl.map(|_| ip.ttl);
        let mut what: Vec<String> = wrong.into_iter().map(str::to_owned).collect();
        what.extend(late);
        Err(self.error(format!("expected {wanted}, got {actual}: {}", what.join(", "))))
    }

    fn compare_segment(
        &mut self,
        index: usize,
        wanted: &Packet,
        spec: &TcpSpec,
        first: Live,
        (when, from, to): (When, Nanos, Nanos),
    ) -> Ran<()> {
        let at = self.script_time(first.at);
        let ip = first.ip;
        let Payload::Tcp(mut segment) = first.payload else { return Err(self.error("not a TCP segment")) };
        self.learn_sequence(index, spec, &segment);
        self.check_data(index, &segment)?;
        let mut late = self.timing(when, from, to, at);
        let mut several = false;
        // A scripted segment may match several in a row, as a device would have cut it, and an acknowledgement right
        // before it, as in packetdrill.
        while !self.settings.strict_segments && may_go_on(&segment) && (segment.data.len() as u32) < spec.len {
            let latest = self.live(to.max(at)) + Duration::from_nanos(tolerance(&self.settings, to - self.last) as u64);
            let Ok(next) = self.next_packet(index, wanted, latest) else { break };
            let Payload::Tcp(more) = next.payload else { break };
            if !continues(&segment, &more) {
                let actual = self.in_script(index, if segment.data.is_empty() { &segment } else { &more }, spec);
                return Err(self.error(format!("expected {wanted}, got {actual} in the middle of it")));
            }
            self.check_data(index, &more)?;
            let script_time = self.script_time(next.at);
            late = late.or_else(|| self.timing(when, from, to, script_time));
            segment.flags |= more.flags & (flag::PSH | flag::FIN);
            several |= !segment.data.is_empty();
            segment.data.extend(more.data);
        }
        let end = segment.seq.wrapping_add(segment.data.len() as u32);
        if several || self.ends_super_segment(index, first.at, &segment, end) {
            // Linux sets PSH on every super-segment, so that the receiver's merging ends there; single segments have no
            // such reason.
            segment.flags |= spec.flags & flag::PSH;
        }
        self.connections[index].previous = Some((first.at, end, segment.data.len() as u32));
        let actual = self.in_script(index, &segment, spec);
        let mut wrong = self.differences(index, spec, &segment, &actual, at);
        if spec.ports.is_some_and(|ports| ports != segment.ports) {
            wrong.push("ports");
        }
        self.verdict(wanted, &actual, wrong, &ip, late)?;
        self.learn_timestamp(index, spec, &segment, at);
        Ok(())
    }

    /// Whether this may be the last piece of a super-segment that the script lists piece by piece: it follows one of
    /// the same length, and more data follows at once.
    fn ends_super_segment(&self, index: usize, at: Time, segment: &Tcp, end: u32) -> bool {
        let connection = &self.connections[index];
        let alike = Some((at, segment.seq, segment.data.len() as u32));
        !segment.data.is_empty()
            && connection.previous == alike
            && self.host.sent.iter().any(|(left, bytes)| match frame::read(bytes) {
                Ok((ip, Payload::Tcp(next))) => {
                    *left == at && connection.owns(&ip, next.ports) && next.seq == end && !next.data.is_empty()
                }
                _ => false,
            })
    }

    /// The stack's first SYN sets the base of its numbers, also for later connections between the same ports.
    fn learn_sequence(&mut self, index: usize, spec: &TcpSpec, segment: &Tcp) {
        let connection = &mut self.connections[index];
        if segment.flags & flag::SYN != 0 {
            connection.own_syn = segment.seq;
            if connection.live_isn.is_none() {
                connection.live_isn = Some(segment.seq);
                connection.isn = spec.seq;
            }
        }
    }

    fn learn_timestamp(&mut self, index: usize, spec: &TcpSpec, segment: &Tcp, at: Nanos) {
        if let (Some((script, _)), Some((live, _))) =
            (timestamps(spec.options.as_deref()), timestamps(Some(&segment.options)))
        {
            let at = self.live(at);
            let connection = &mut self.connections[index];
            connection.timestamps.insert(script, live);
            connection.first_timestamp.get_or_insert((at, script, live));
        }
    }

    /// The live segment in the script's numbers, with the fields that the script has.
    fn in_script(&self, index: usize, segment: &Tcp, spec: &TcpSpec) -> Packet {
        let connection = &self.connections[index];
        let wanted = timestamps(spec.options.as_deref());
        let syn = segment.flags & flag::SYN != 0;
        let remote = |seq: u32| seq.wrapping_sub(connection.base(syn));
        let options = segment.options.iter().map(|option| match option {
            TcpOption::Sack(blocks) => {
                TcpOption::Sack(blocks.iter().map(|(left, right)| (remote(*left), remote(*right))).collect())
            }
            TcpOption::Timestamps { val, ecr } => {
                let known =
                    connection.first_timestamp.map(|(_, script, live)| script.wrapping_add(val.wrapping_sub(live)));
                let val = match (self.settings.tick, wanted, known) {
                    // Without a tick the script's value matches any clock value.
                    (None, Some((val, _)), _) | (Some(_), Some((val, _)), None) => val,
                    (_, _, known) => known.unwrap_or(*val),
                };
                TcpOption::Timestamps { val, ecr: *ecr }
            }
            other => other.clone(),
        });
        let body = Body::Tcp(TcpSpec {
            ports: spec.ports.map(|_| segment.ports),
            flags: segment.flags,
            seq: connection.to_script(segment.seq, syn),
            len: segment.data.len() as u32,
            ack: (segment.flags & flag::ACK != 0).then(|| remote(segment.ack)),
            window: spec.window.map(|_| segment.window),
            urgent: (segment.flags & flag::URG != 0).then_some(segment.urgent),
            options: Some(options.collect()),
        });
        Packet { direction: Direction::Outbound, ip: IpInfo::default(), body }
    }

    fn differences(
        &self,
        index: usize,
        spec: &TcpSpec,
        segment: &Tcp,
        actual: &Packet,
        at: Nanos,
    ) -> Vec<&'static str> {
        let Body::Tcp(actual) = &actual.body else { return Vec::new() };
        let mut wrong = Vec::new();
        let mut differ = |condition, what| {
            if condition {
                wrong.push(what);
            }
        };
        differ(spec.flags != actual.flags, "flags");
        differ(spec.seq != actual.seq, "sequence number");
        differ(spec.len != actual.len, "length");
        differ(spec.ack.unwrap_or(0) != actual.ack.unwrap_or(0), "acknowledgement number");
        differ(spec.window.is_some_and(|window| window != segment.window), "window");
        differ(spec.urgent.unwrap_or(0) != actual.urgent.unwrap_or(0), "urgent pointer");
        if let (Some(wanted), Some(got)) = (&spec.options, &actual.options) {
            differ(!self.same_options(index, wanted, got, at), "options");
        }
        wrong
    }

    /// In order and exact; a timestamp may be off by the tolerance of times.
    fn same_options(&self, index: usize, wanted: &[TcpOption], got: &[TcpOption], at: Nanos) -> bool {
        wanted.len() == got.len()
            && wanted.iter().zip(got).all(|pair| match pair {
                (TcpOption::Timestamps { val, ecr }, TcpOption::Timestamps { val: live, ecr: echo }) => {
                    ecr == echo && self.same_timestamp(index, *val, *live, at)
                }
                (wanted, got) => wanted == got,
            })
    }

    fn same_timestamp(&self, index: usize, wanted: u32, got: u32, at: Nanos) -> bool {
        let Some(tick) = self.settings.tick else { return true };
        let Some((first, ..)) = self.connections[index].first_timestamp else { return true };
        let gap = at - self.script_time(first);
        let slack = tolerance(&self.settings, gap) / tick + 1;
        i64::from(got.wrapping_sub(wanted) as i32).abs() <= slack
    }

    /// The data of a segment must be the data written, wherever it was cut and however often it was sent.
    fn check_data(&self, index: usize, segment: &Tcp) -> Ran<()> {
        let connection = &self.connections[index];
        if connection.unchecked || segment.data.is_empty() || connection.live_isn.is_none() {
            return Ok(());
        }
        // The first byte follows the SYN.
        let first =
            segment.seq.wrapping_sub(connection.own_syn).wrapping_sub(u32::from(segment.flags & flag::SYN == 0));
        let wrong = segment.data.iter().zip(0_u32..).find(|(byte, n)| **byte != pattern(first.wrapping_add(*n)));
        match wrong {
            None => Ok(()),
            Some((byte, n)) => Err(self.error(format!(
                "byte {} of the stream was sent as {byte:#04x}, written as {:#04x} (in a segment {})",
                first.wrapping_add(n),
                pattern(first.wrapping_add(n)),
                notation::flags(segment.flags),
            ))),
        }
    }
}

/// Whether a segment may be the beginning of one scripted segment: it has data, or is a pure acknowledgement.
fn may_go_on(segment: &Tcp) -> bool {
    !segment.data.is_empty() || segment.flags == flag::ACK
}

/// Whether `next` continues `segment`. An acknowledgement must have the same numbers as the data after it.
fn continues(segment: &Tcp, next: &Tcp) -> bool {
    let says = |segment: &Tcp| (segment.ack, segment.window, segment.options.len());
    next.seq == segment.seq.wrapping_add(segment.data.len() as u32)
        && segment.flags & flag::FIN == 0
        && (!segment.data.is_empty() || !next.data.is_empty() && says(segment) == says(next))
}

fn timestamps(options: Option<&[TcpOption]>) -> Option<(u32, u32)> {
    options?.iter().find_map(|option| match option {
        TcpOption::Timestamps { val, ecr } => Some((*val, *ecr)),
        _ => None,
    })
}
