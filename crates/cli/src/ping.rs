//! `heddle ping`: echo requests, one after another.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args as Arguments;
use heddle::Stack;
use heddle::ping::{MAX_PING, Pong};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::Failure;
use crate::network::{DeviceName, NetworkArgs};
use crate::runtime::{self, Stop};

/// Test whether a host answers, and measure the round-trip time.
///
/// Sends ICMP echo requests (ICMPv6 for an IPv6 address) from Heddle's own stack. Over `mem`, the default, the host
/// that answers is a second stack in the same process. Stops after N requests (--count), or at Ctrl-C.
#[derive(Arguments)]
#[command(after_help = "\
Examples:
  heddle ping 10.0.0.1                                          a peer in this process; does not need root
  heddle ping fd00::1 -c 10 -i 0.1                              the same over IPv6, ten times, quickly
  heddle ping 10.0.0.1 --dev tap:heddle0 --addr 10.0.0.2/24     this machine's kernel, as root; give its end of
                                                                the interface an address first:
                                                                `ip addr add 10.0.0.1/24 dev heddle0`
Exit status: 0 if the host answered, 1 if it did not, 2 for a usage error.")]
pub struct Args {
    /// Address of the host, IPv4 or IPv6 (names are not resolved)
    #[arg(value_name = "ADDRESS", value_parser = address)]
    address: IpAddr,

    /// Number of requests to send
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,

    /// Bytes of data in each request
    #[arg(short, long, value_name = "BYTES", default_value_t = 56, value_parser = size)]
    size: usize,

    /// Seconds between requests
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// Seconds to wait for each answer
    #[arg(short = 'W', long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    timeout: Duration,

    /// Print the result as one JSON object
    #[arg(short, long)]
    json: bool,

    #[command(flatten)]
    network: NetworkArgs,
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "give an address such as 10.0.0.1 or fd00::1; names are not resolved".to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| *size <= MAX_PING);
    size.ok_or_else(|| format!("give 0 to {MAX_PING} bytes"))
}

/// A positive number of seconds, with decimals.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "give a positive number of seconds, such as 1 or 0.2".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero()).ok_or_else(wrong)
}

/// The result, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    destination: IpAddr,
    /// Bytes of data in each request.
    size: usize,
    sent: u32,
    received: u32,
    loss_percent: f64,
    /// `None` if there was no answer.
    rtt_ms: Option<RoundTrips>,
    replies: Vec<ReplyLine>,
}

/// In milliseconds.
#[derive(Debug, PartialEq, Serialize)]
struct RoundTrips {
    min: f64,
    avg: f64,
    max: f64,
    /// Standard deviation of the population, as in other implementations of ping.
    mdev: f64,
}

#[derive(Debug, Serialize)]
struct ReplyLine {
    seq: u32,
    from: IpAddr,
    bytes: usize,
    ttl: u8,
    ms: f64,
}

/// Runs the command.
///
/// # Errors
/// No host answered, or nothing could be sent.
pub fn run(args: Args) -> Result<(), Failure> {
    args.network.check_headroom()?;
    let (network, peer) = match &args.network.dev {
        DeviceName::Mem => args.network.with_peer(args.address).map(|(network, peer)| (network, Some(peer)))?,
        _ => (args.network.open()?, None),
    };
    if !args.json {
        let place = if peer.is_some() { " (a peer in this process)" } else { "" };
        println!("PING {}{place}: {} data bytes", args.address, args.size);
    }
    let report = runtime::new()?.block_on(send_all(&args, &network.stack))?;
    if args.json {
        println!("{}", serde_json::to_string(&report).map_err(Failure::failed)?);
    } else {
        print!("{}", report.summary());
    }
    network.finish()?;
    if report.received == 0 { Err(Failure::Reported) } else { Ok(()) }
}

async fn send_all(args: &Args, stack: &Stack) -> Result<Report, Failure> {
    let mut stop = Stop::listen()?;
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut report = Report::new(args.address, args.size);
    for seq in 1..=args.count {
        let ask = async {
            ticks.tick().await;
            let (stack, address, size, timeout) = (stack.clone(), args.address, args.size, args.timeout);
            // The sequence number on the wire has 16 bits; this one has more.
            let question = move || stack.ping(address, seq as u16, size, timeout);
            tokio::task::spawn_blocking(question).await
        };
        let Some(answer) = stop.or(ask).await else { break };
        let pong = answer.map_err(Failure::failed)?.map_err(Failure::usage)?;
        report.add(seq, pong);
        if !args.json {
            println!("{}", line(seq, pong, args));
        }
    }
    Ok(report.finished())
}

fn line(seq: u32, pong: Option<Pong>, args: &Args) -> String {
    match pong {
        Some(pong) => {
            let ms = millis(pong.round_trip);
            format!("{} bytes from {}: seq={seq} ttl={} time={ms:.3} ms", pong.len, pong.from, pong.ttl)
        }
        None => format!("no answer from {}: seq={seq} within {:?}", args.address, args.timeout),
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Report {
    fn new(destination: IpAddr, size: usize) -> Report {
        Report { destination, size, sent: 0, received: 0, loss_percent: 0.0, rtt_ms: None, replies: Vec::new() }
    }

    fn add(&mut self, seq: u32, pong: Option<Pong>) {
        self.sent += 1;
        if let Some(pong) = pong {
            self.received += 1;
            let ms = millis(pong.round_trip);
            self.replies.push(ReplyLine { seq, from: pong.from, bytes: pong.len, ttl: pong.ttl, ms });
        }
    }

    fn finished(mut self) -> Report {
        self.loss_percent = 100.0 * f64::from(self.sent - self.received) / f64::from(self.sent.max(1));
        self.rtt_ms = RoundTrips::of(&self.replies);
        self
    }

    fn summary(&self) -> String {
        let Report { destination, sent, received, loss_percent, .. } = self;
        let mut text = format!("\n{destination}: {sent} sent, {received} received, {loss_percent:.0} % lost\n");
        if let Some(RoundTrips { min, avg, max, mdev }) = &self.rtt_ms {
            text += &format!("round trip min/avg/max/mdev {min:.3}/{avg:.3}/{max:.3}/{mdev:.3} ms\n");
        }
        text
    }
}

impl RoundTrips {
    fn of(replies: &[ReplyLine]) -> Option<RoundTrips> {
        let first = replies.first()?.ms;
        let count = replies.len() as f64;
        let avg = replies.iter().map(|reply| reply.ms).sum::<f64>() / count;
        let variance = replies.iter().map(|reply| (reply.ms - avg).powi(2)).sum::<f64>() / count;
        let (min, max) =
            replies.iter().fold((first, first), |(min, max), reply| (min.min(reply.ms), max.max(reply.ms)));
        Some(RoundTrips { min, avg, max, mdev: variance.sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pong(ms: u64) -> Pong {
        Pong { from: [10, 0, 0, 1].into(), len: 56, ttl: 64, round_trip: Duration::from_millis(ms) }
    }

    #[test]
    fn the_summary_counts_what_was_lost() {
        let mut report = Report::new([10, 0, 0, 1].into(), 56);
        for (seq, answer) in [Some(pong(1)), None, Some(pong(3)), None].into_iter().enumerate() {
            report.add(seq as u32 + 1, answer);
        }
        let report = report.finished();
        assert_eq!((report.sent, report.received, report.loss_percent), (4, 2, 50.0));
        assert_eq!(report.rtt_ms, Some(RoundTrips { min: 1.0, avg: 2.0, max: 3.0, mdev: 1.0 }));
        assert!(report.summary().contains("4 sent, 2 received, 50 % lost"), "{}", report.summary());
    }

    #[test]
    fn without_an_answer_there_are_no_times() {
        let mut report = Report::new([10, 0, 0, 1].into(), 56);
        report.add(1, None);
        let report = report.finished();
        assert_eq!((report.loss_percent, report.rtt_ms.is_none()), (100.0, true));
    }

    #[test]
    fn seconds_are_positive_numbers() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "-1", "", "nan", "1e30", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
