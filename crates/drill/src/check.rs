//! A script under many architectures: it must pass under each, and the packets must be the same, byte by byte and at
//! the same virtual time. Their order must be the same, too, except where timers of several connections expire at one
//! instant (see `order`).

use std::fmt;
use std::path::Path;

use ::stack::Architecture;
use observe::CounterSnapshot;

use crate::error::ScriptError;
use crate::family::Family;
use crate::frame;
use crate::host::Crossing;
use crate::order::canonical;
use crate::parse;
use crate::run::{self, Options};

/// The result of a check.
pub struct Checked {
    /// The frames on the link, by architecture, as far as the script went.
    pub traces: Vec<(Architecture, Vec<Crossing>)>,
    /// The counters of the stack, in the order of the traces, up to the end of the script or its failure.
    pub counters: Vec<CounterSnapshot>,
    /// The first fault.
    pub fault: Option<Fault>,
}

/// A fault of a script, or of the stack.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The architecture under which it occurred; `None`: the script cannot be parsed.
    pub arch: Option<Architecture>,
    /// Line and sentence.
    pub error: ScriptError,
}

impl Fault {
    /// The fault of the script at `path`, as one line, with a line number if it concerns one.
    pub fn at(&self, path: &Path) -> impl fmt::Display {
        let line = if self.error.line == 0 { String::new() } else { format!(":{}", self.error.line) };
        let arch = self.arch.map_or_else(String::new, |arch| format!(" (under {arch})"));
        format!("{}{line}: {}{arch}", path.display(), self.error.message)
    }
}

/// Runs the script `data` under each of `architectures` and compares the traces with the first one's. Stops at the
/// first fault.
pub fn check(data: &str, architectures: &[Architecture], options: &Options, defines: &[(String, String)]) -> Checked {
    let mut checked = Checked { traces: Vec::new(), counters: Vec::new(), fault: None };
    let family = options.family.with(Family::declared_in(data));
    let usual = usual_names(family).into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let names: Vec<_> = usual.chain(defines.iter().cloned()).collect();
    let script = match parse::parse_with(data, &names) {
        Ok(script) => script,
        Err(error) => {
            checked.fault = Some(Fault { arch: None, error });
            return checked;
        }
    };
    for arch in architectures {
        let options = Options { arch: *arch, ..options.clone() };
        match run::counted(&script, &options) {
            Ok((trace, counters)) => {
                if let Some((first, reference)) = checked.traces.first() {
                    checked.fault = difference(*first, reference, &trace)
                        .map(|message| Fault { arch: Some(*arch), error: ScriptError::new(0, message) });
                }
                checked.traces.push((*arch, trace));
                checked.counters.push(counters);
            }
            Err(failure) => {
                checked.traces.push((*arch, failure.trace));
                checked.fault = Some(Fault { arch: Some(*arch), error: failure.error });
            }
        }
        if checked.fault.is_some() {
            break;
        }
    }
    checked
}

/// Names that the runners of public scripts define for every script, by the version of IP, and `NETWORK_CODE` beside
/// their `CODE`.
fn usual_names(family: Family) -> [(&'static str, &'static str); 6] {
    let v6 = !family.has_v4_packets();
    let [cookie, of_zero_key] =
        if v6 { ["c1d1e9742a47a9bc", "82af1a8f9a205c34"] } else { ["3021b9d889017eeb", "b7c12350a90dc8f5"] };
    [
        ("TFO_COOKIE", cookie),
        ("TFO_COOKIE_ZERO", of_zero_key),
        ("CODE", if v6 { "address_unreachable" } else { "host_unreachable" }),
        ("NETWORK_CODE", if v6 { "no_route" } else { "net_unreachable" }),
        ("CMSG_LEVEL_IP", if family == Family::V4 { "SOL_IP" } else { "SOL_IPV6" }),
        ("CMSG_TYPE_RECVERR", if family == Family::V4 { "IP_RECVERR" } else { "IPV6_RECVERR" }),
    ]
}

/// The first difference of two traces, as one sentence.
fn difference(first: Architecture, reference: &[Crossing], trace: &[Crossing]) -> Option<String> {
    let (reference, trace) = (canonical(reference), canonical(trace));
    let place = reference.iter().zip(&trace).position(|(a, b)| a != b).unwrap_or(reference.len().min(trace.len()));
    let (a, b) = (reference.get(place), trace.get(place));
    if a.is_none() && b.is_none() {
        return None;
    }
    Some(format!("packet {} is {}, under {first} it is {}", place + 1, shown(b), shown(a)))
}

/// A frame with its time, with live sequence numbers.
fn shown(crossing: Option<&Crossing>) -> String {
    let Some(Crossing { at, outbound, frame, .. }) = crossing else { return "missing".to_owned() };
    let direction = if *outbound { '>' } else { '<' };
    let what = match frame::read(frame) {
        Ok((_, frame::Payload::Tcp(tcp))) => format!(
            "{} {}:{} ack {} win {} <{}>",
            crate::notation::flags(tcp.flags),
            tcp.seq,
            tcp.seq.wrapping_add(tcp.data.len() as u32),
            tcp.ack,
            tcp.window,
            crate::notation::list(&tcp.options)
        ),
        Ok((_, frame::Payload::Udp { data, .. })) => format!("udp ({})", data.len()),
        Ok((_, frame::Payload::Icmp(icmp))) => icmp.to_string(),
        Ok((_, frame::Payload::Other(protocol))) => format!("protocol {protocol}"),
        Err(_) => format!("a frame of {} bytes", frame.len()),
    };
    format!("[{direction} {what} at {:.6} s]", at.as_secs_f64())
}
