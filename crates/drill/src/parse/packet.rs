//! Packets in tcpdump's notation.

use super::{Parsed, Parser};
use crate::error::ScriptError;
use crate::frame;
use crate::lex::Kind;
use crate::script::{Body, Direction, IcmpSpec, IpInfo, Packet, Quoted, TcpOption, TcpSpec, Tos, flag};

const U16: i64 = 0xffff;
const U32: i64 = 0xffff_ffff;

impl Parser {
    /// From the `<` or `>` to the end of the packet.
    pub(super) fn packet(&mut self) -> Parsed<Packet> {
        let direction = if self.eat('<') { Direction::Inbound } else { Direction::Outbound };
        if direction == Direction::Outbound {
            self.want('>')?;
        }
        let line = self.line();
        let ip = self.ip_info()?;
        if ip.tos == Some(Tos::Ect01) && direction == Direction::Inbound {
            return Err(ScriptError::new(line, "[ect01] leaves a choice: only for packets that are expected"));
        }
        if let Some(Kind::Word(word)) = self.peek()
            && matches!(word.as_str(), "ipv4" | "ipv6" | "gre" | "GREv0" | "mpls" | "psp")
        {
            return Err(ScriptError::unsupported(line, format!("encapsulation in {word}")));
        }
        let body = if self.eat_word("icmp") {
            Body::Icmp(self.icmp()?)
        } else if self.eat_word("udp") {
            let ports = self.ports()?;
            self.want('(')?;
            let len = self.number("bytes of payload", U16)? as u16;
            self.want(')')?;
            Body::Udp { ports, len }
        } else {
            Body::Tcp(self.tcp(direction)?)
        };
        Ok(Packet { direction, ip, body })
    }

    fn ip_info(&mut self) -> Parsed<IpInfo> {
        let mut info = IpInfo::default();
        let close = if self.eat('[') {
            ']'
        } else if self.eat('(') {
            ')'
        } else {
            return Ok(info);
        };
        loop {
            let line = self.line();
            match self.word("ect0, ect1, ce, noecn, tos, ttl or flowlabel")?.as_str() {
                "noecn" => info.tos = Some(Tos::Ecn(0)),
                "ect1" => info.tos = Some(Tos::Ecn(1)),
                "ect0" => info.tos = Some(Tos::Ecn(2)),
                "ce" => info.tos = Some(Tos::Ecn(3)),
                "ect01" => info.tos = Some(Tos::Ect01),
                "tos" => info.tos = Some(Tos::Whole(self.number("the type of service", 0xff)? as u8)),
                "ttl" => info.ttl = Some(self.number("the time to live", 0xff)? as u8),
                "flowlabel" => info.flow_label = Some(self.number("the flow label", 0xf_ffff)? as u32),
                other => return Err(ScriptError::unsupported(line, format!("`{other}` of an IP header"))),
            }
            if !self.eat(',') {
                break;
            }
        }
        self.want(close)?;
        Ok(info)
    }

    fn ports(&mut self) -> Parsed<Option<(u16, u16)>> {
        if !matches!((self.peek(), self.peek_at(1)), (Some(Kind::Integer(..)), Some(Kind::Sign('>')))) {
            return Ok(None);
        }
        let source = self.number("a port", U16)? as u16;
        self.want('>')?;
        Ok(Some((source, self.number("a port", U16)? as u16)))
    }

    fn tcp(&mut self, direction: Direction) -> Parsed<TcpSpec> {
        let ports = self.ports()?;
        let flags = self.flags()?;
        let (seq, len) = self.range()?;
        let mut spec =
            TcpSpec { ports, flags, seq, len, ack: None, window: None, urgent: None, options: Some(Vec::new()) };
        if self.eat_word("ack") {
            spec.ack = Some(self.number("an acknowledgement number", U32)? as u32);
        }
        if self.eat_word("win") {
            spec.window = Some(self.number("a window", U16)? as u16);
        }
        if spec.window.is_none() && direction == Direction::Inbound {
            return Err(self.error("a segment that comes needs a window"));
        }
        if self.eat_word("urg") {
            spec.urgent = Some(self.number("an urgent pointer", U16)? as u16);
        }
        if self.eat('<') {
            let line = self.line();
            spec.options = self.options()?;
            frame::option_bytes(spec.options.as_deref().unwrap_or_default())
                .map_err(|message| ScriptError::new(line, message))?;
            if spec.options.is_none() && direction == Direction::Inbound {
                return Err(self.error("<...> leaves a choice: only for packets that are expected"));
            }
        }
        Ok(spec)
    }

    /// `S`, `P.`, `.`, `-`, `SEWA`; `P5.` and `P.5` (pushed, with the ACE field 5).
    fn flags(&mut self) -> Parsed<u16> {
        if self.eat('-') {
            return Ok(0);
        }
        let (mut flags, mut ace) = (0, None);
        let letters = match self.peek() {
            Some(Kind::Word(letters)) => letters.clone(),
            _ => String::new(),
        };
        for letter in letters.chars() {
            flags |= match letter {
                'F' => flag::FIN,
                'S' => flag::SYN,
                'R' => flag::RST,
                'P' => flag::PSH,
                'U' => flag::URG,
                'E' => flag::ECE,
                'W' | 'C' => flag::CWR,
                'A' => flag::AE,
                '0'..='7' => self.ace(&mut ace, letter)?,
                _ => return Err(self.expected("the flags of a segment, of F S R P . U E W A")),
            };
        }
        self.at += usize::from(!letters.is_empty());
        if self.eat('.') {
            flags |= flag::ACK;
        } else if let Some(Kind::Float(text)) = self.peek()
            && let Some(digits) = text.strip_prefix('.').map(str::to_owned)
        {
            let [digit @ b'0'..=b'7'] = digits.as_bytes() else {
                return Err(self.error(format!("the ACE field must be 0 to 7, not {digits}")));
            };
            flags |= flag::ACK | self.ace(&mut ace, char::from(*digit))?;
            self.at += 1;
        } else if letters.is_empty() {
            return Err(self.expected("the flags of a segment, of F S R P . U E W A"));
        }
        let spelt = letters.contains(['E', 'W', 'C', 'A']);
        if spelt && ace.is_some() {
            return Err(self.error("a segment has the ACE field and E, W or A, which are its bits"));
        }
        Ok(flags)
    }

    /// The bits of the ACE field `digit`: AE, CWR, ECE from its high bit down (RFC 9768, 3.1). A segment has only one.
    fn ace(&self, ace: &mut Option<char>, digit: char) -> Parsed<u16> {
        if ace.replace(digit).is_some() {
            return Err(self.error("a segment has the ACE field twice"));
        }
        let value = digit.to_digit(8).unwrap_or_default();
        let bits = [(4, flag::AE), (2, flag::CWR), (1, flag::ECE)];
        Ok(bits.iter().filter(|(bit, _)| value & bit != 0).fold(0, |sum, (_, bit)| sum | bit))
    }

    /// `1:1001(1000)`: the first number and the length.
    fn range(&mut self) -> Parsed<(u32, u32)> {
        let line = self.line();
        let seq = self.number("a sequence number", U32)? as u32;
        self.want(':')?;
        let end = self.number("a sequence number", U32)? as u32;
        self.want('(')?;
        let len = self.number("bytes of text", U16)? as u32;
        self.want(')')?;
        if seq.wrapping_add(len) != end {
            return Err(ScriptError::new(line, format!("{seq}:{end}({len}) does not add up")));
        }
        Ok((seq, len))
    }

    /// After the `<`. `None` is `...`.
    fn options(&mut self) -> Parsed<Option<Vec<TcpOption>>> {
        if self.peek() == Some(&Kind::Ellipsis) {
            self.at += 1;
            self.want('>')?;
            return Ok(None);
        }
        let mut options = Vec::new();
        loop {
            options.push(self.option()?);
            if self.eat('>') {
                return Ok(Some(options));
            }
            self.want(',')?;
        }
    }

    fn option(&mut self) -> Parsed<TcpOption> {
        let line = self.line();
        Ok(match self.word("a TCP option")?.as_str() {
            "eol" => TcpOption::Eol,
            "nop" => TcpOption::Nop,
            "sackOK" => TcpOption::SackPermitted,
            "mss" => TcpOption::Mss(self.number("a segment size", U16)? as u16),
            "wscale" => TcpOption::WindowScale(self.number("a window shift", 0xff)? as u8),
            "sack" => self.sack()?,
            "TS" => {
                if !self.eat_word("val") {
                    return Err(self.expected("`val`"));
                }
                let val = self.number("a timestamp", U32)? as u32;
                if !self.eat_word("ecr") {
                    return Err(self.expected("`ecr`"));
                }
                TcpOption::Timestamps { val, ecr: self.number("a timestamp", U32)? as u32 }
            }
            "FO" => TcpOption::FastOpen(self.cookie()?),
            "FOEXP" => TcpOption::FastOpenExperimental(self.cookie()?),
            "ECN" => self.acc_ecn()?,
            other => return Err(ScriptError::unsupported(line, format!("TCP option {other}"))),
        })
    }

    fn sack(&mut self) -> Parsed<TcpOption> {
        let mut blocks = Vec::new();
        while matches!(self.peek(), Some(Kind::Integer(..))) {
            let left = self.number("a sequence number", U32)? as u32;
            self.want(':')?;
            blocks.push((left, self.number("a sequence number", U32)? as u32));
        }
        if blocks.is_empty() { Err(self.expected("a block of sequence numbers")) } else { Ok(TcpOption::Sack(blocks)) }
    }

    /// Hexadecimal digits, possibly none; the tokens may be numbers.
    fn cookie(&mut self) -> Parsed<Vec<u8>> {
        let text = match self.peek() {
            Some(Kind::Word(text) | Kind::Integer(_, text)) => text.clone(),
            _ => return Ok(Vec::new()),
        };
        let bytes = text.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        let cookie = bytes.collect::<Option<Vec<u8>>>();
        let cookie = cookie.ok_or_else(|| self.error(format!("`{text}` is not a cookie of hexadecimal bytes")))?;
        self.at += 1;
        Ok(cookie)
    }

    fn acc_ecn(&mut self) -> Parsed<TcpOption> {
        let order1 = matches!(self.peek(), Some(Kind::Word(word)) if word == "e1b");
        let names = if order1 { ["e1b", "ceb", "e0b"] } else { ["e0b", "ceb", "e1b"] };
        let mut fields = Vec::new();
        for name in names {
            if !self.eat_word(name) {
                break;
            }
            fields.push(self.number("a counter of AccECN", 0xff_ffff)? as u32);
        }
        Ok(TcpOption::AccEcn { order1, fields })
    }

    fn icmp(&mut self) -> Parsed<IcmpSpec> {
        let kind = self.word("the type of an ICMP message")?;
        let mut spec = IcmpSpec { kind, code: None, mtu: None, id: None, quoted: None };
        loop {
            if self.eat_word("mtu") {
                spec.mtu = Some(self.number("an MTU", U32)? as u32);
            } else if self.eat_word("id") {
                spec.id = Some(self.number("an identifier", U16)? as u16);
            } else if self.eat('[') {
                spec.quoted = Some(self.quoted()?);
            } else if let (Some(Kind::Word(word)), None) = (self.peek(), &spec.code) {
                spec.code = Some(word.clone());
                self.at += 1;
            } else {
                return Ok(spec);
            }
        }
    }

    fn quoted(&mut self) -> Parsed<Quoted> {
        let quoted = if self.eat_word("udp") {
            self.want('(')?;
            let len = self.number("bytes of payload", U16)? as u16;
            self.want(')')?;
            Quoted::Udp(len)
        } else {
            let (seq, len) = self.range()?;
            Quoted::Tcp { seq, len }
        };
        self.want(']')?;
        Ok(quoted)
    }
}
