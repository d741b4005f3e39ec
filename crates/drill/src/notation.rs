//! Packets in the tcpdump notation of scripts.

use std::fmt;

use crate::script::{Body, Direction, IcmpSpec, IpInfo, Packet, Quoted, TcpOption, TcpSpec, Tos, flag};

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.direction == Direction::Inbound { "< " } else { "> " })?;
        self.ip.fmt(f)?;
        match &self.body {
            Body::Tcp(tcp) => tcp.fmt(f),
            Body::Udp { ports, len } => {
                f.write_str("udp ")?;
                write_ports(*ports, f)?;
                write!(f, "({len})")
            }
            Body::Icmp(icmp) => icmp.fmt(f),
        }
    }
}

fn write_ports(ports: Option<(u16, u16)>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match ports {
        Some((from, to)) => write!(f, "{from} > {to} "),
        None => Ok(()),
    }
}

impl fmt::Display for IpInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.tos {
            Some(Tos::Ecn(bits)) => parts.push(["noecn", "ect1", "ect0", "ce"][usize::from(bits & 3)].to_owned()),
            Some(Tos::Ect01) => parts.push("ect01".to_owned()),
            Some(Tos::Whole(tos)) => parts.push(format!("tos {tos:#x}")),
            None => {}
        }
        parts.extend(self.ttl.map(|ttl| format!("ttl {ttl}")));
        parts.extend(self.flow_label.map(|label| format!("flowlabel {label:#x}")));
        if parts.is_empty() { Ok(()) } else { write!(f, "[{}] ", parts.join(",")) }
    }
}

/// `S`, `P.`, `SEW`, `-`.
pub(crate) fn flags(flags: u16) -> String {
    let letters = [
        (flag::SYN, 'S'),
        (flag::FIN, 'F'),
        (flag::RST, 'R'),
        (flag::PSH, 'P'),
        (flag::URG, 'U'),
        (flag::ECE, 'E'),
        (flag::CWR, 'W'),
        (flag::AE, 'A'),
        (flag::ACK, '.'),
    ];
    let text: String = letters.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, letter)| letter).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

impl fmt::Display for TcpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ports(self.ports, f)?;
        let (seq, len) = (self.seq, self.len);
        write!(f, "{} {seq}:{}({len})", flags(self.flags), seq.wrapping_add(len))?;
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        if let Some(urgent) = self.urgent {
            write!(f, " urg {urgent}")?;
        }
        match &self.options {
            None => f.write_str(" <...>"),
            Some(options) if options.is_empty() => Ok(()),
            Some(options) => write!(f, " <{}>", list(options)),
        }
    }
}

/// Options in a script's notation.
pub(crate) fn list(options: &[TcpOption]) -> String {
    options.iter().map(TcpOption::to_string).collect::<Vec<_>>().join(",")
}

impl fmt::Display for TcpOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TcpOption::Eol => f.write_str("eol"),
            TcpOption::Nop => f.write_str("nop"),
            TcpOption::Mss(mss) => write!(f, "mss {mss}"),
            TcpOption::WindowScale(shift) => write!(f, "wscale {shift}"),
            TcpOption::SackPermitted => f.write_str("sackOK"),
            TcpOption::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.iter().try_for_each(|(left, right)| write!(f, " {left}:{right}"))
            }
            TcpOption::Timestamps { val, ecr } => write!(f, "TS val {val} ecr {ecr}"),
            TcpOption::FastOpen(cookie) => write!(f, "FO{}", cookie_data(cookie)),
            TcpOption::FastOpenExperimental(cookie) => write!(f, "FOEXP{}", cookie_data(cookie)),
            TcpOption::AccEcn { order1, fields } => {
                let names = if *order1 { ["e1b", "ceb", "e0b"] } else { ["e0b", "ceb", "e1b"] };
                f.write_str("ECN")?;
                names.iter().zip(fields).try_for_each(|(name, field)| write!(f, " {name} {field}"))
            }
            TcpOption::Other(kind, body) => write!(f, "option-{kind}{}", cookie_data(body)),
        }
    }
}

fn cookie_data(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if hex.is_empty() { hex } else { format!(" {hex}") }
}

impl fmt::Display for IcmpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "icmp {}", self.kind)?;
        if let Some(code) = &self.code {
            write!(f, " {code}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        if let Some(id) = self.id {
            write!(f, " id {id}")?;
        }
        match self.quoted {
            Some(Quoted::Tcp { seq, len }) => write!(f, " [{seq}:{}({len})]", seq.wrapping_add(len)),
            Some(Quoted::Udp(len)) => write!(f, " [udp ({len})]"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::script::Action;

    #[test]
    fn what_is_written_is_what_was_read() {
        for text in [
            "> P. 1:1001(1000) ack 1 win 257 <nop,nop,TS val 1 ecr 2>",
            "> [ect0] SEWA 0:0(0) <mss 1460,nop,nop,sackOK,nop,wscale 8,FO 01ab,ECN e1b 1 ceb 0>",
            "< 5 > 6 . 1:1(0) ack 1 win 10 urg 3 <nop,nop,sack 1:2 3:4>",
            "> - 1:1(0) <...>",
            "< icmp unreachable frag_needed mtu 1200 [1:1461(1460)]",
            "> udp 1 > 2 (1000)",
        ] {
            let script = crate::parse::parse(&format!("+0 {text}")).unwrap_or_else(|error| panic!("{text}: {error}"));
            let Action::Packet(packet) = &script.events[0].action else { panic!("a packet") };
            assert_eq!(packet.to_string(), text);
        }
    }
}
