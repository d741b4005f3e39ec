//! `heddle relay`: relays TCP connections between the kernel's sockets and Heddle's stack, in both directions.
//!
//! This file owns the life of a relay: the device is opened, every `--listen` bound, each accepted connection is passed
//! to a task that opens its other half and carries data until both directions have ended; a signal or the removal of
//! the device stops it, and the totals are printed. One connection is in `relay/carry.rs`, the two kinds of ends in
//! `relay/end.rs`.
//!
//! Nothing here blocks a thread: one runtime waits for the kernel's sockets and for Heddle's. A connection has no
//! buffer while both its ends keep up, and at most one piece in each direction.

mod carry;
mod end;
mod rate_limited_log;
mod totals;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::arch::{self, ControlArgs};
use crate::failure::Failure;
use crate::network::{DeviceName, Network, NetworkArgs};
use crate::ping::seconds;
use crate::runtime::{self, Stop};
use crate::serve::totals::Ending;

use self::end::{Listener, Place};
use self::rate_limited_log::RateLimitedLog;
use self::totals::Totals;

/// Time for open connections after a signal before they are reset.
const GRACE: Duration = Duration::from_secs(1);
/// Connections at a time, where the limit of open files does not allow fewer.
const CONNECTIONS: u32 = 16_384;
/// Descriptors that are not for connections: those of devices and inherited ones, which are counted once they are open,
/// and [`LATER_DESCRIPTORS`].
const SPARE_DESCRIPTORS: u64 = 256;
/// Descriptors that are opened after the device, besides one for each listener: those of the runtime and of signals.
const LATER_DESCRIPTORS: u64 = 24;

/// Relay TCP connections between this machine's kernel and Heddle's stack.
///
/// One end is a socket of the kernel, the other a connection of Heddle's stack: `--listen kernel:...` accepts connections of
/// ordinary programs and opens a connection with Heddle for each; `--listen ADDRESS:PORT` accepts with Heddle and opens
/// with the kernel. Ends of stream and resets are passed on, and a slow reader slows its writer down. Runs until Ctrl-C,
/// then prints totals.
#[derive(Arguments)]
#[command(after_help = "\
Examples, as root:
  heddle relay --listen kernel:127.0.0.1:8080 --to 10.0.0.1:80 --dev tap:heddle0 --addr 10.0.0.2/24
      programs that connect to port 8080 of this machine reach 10.0.0.1 through Heddle's TCP
  heddle relay --listen 10.0.0.2:80 --to kernel:127.0.0.1:8080 --dev tap:heddle0 --addr 10.0.0.2/24
      a program of this machine that listens on port 8080 serves the clients of 10.0.0.2
  heddle relay --listen 10.0.0.2:22 --to kernel:127.0.0.1:22 --listen 10.0.0.2:80 --to kernel:127.0.0.1:80 ...
      several ports at once: the first --to belongs to the first --listen
The kernel's end of the interface needs an address: ip addr add 10.0.0.1/24 dev heddle0")]
pub struct Args {
    /// End that listens: ADDRESS:PORT on Heddle's stack (0.0.0.0 and [::] are all its addresses), or kernel:ADDRESS:PORT
    #[arg(short, long, value_name = "END", required = true)]
    listen: Vec<Place>,

    /// End to connect to: kernel:ADDRESS:PORT, or ADDRESS:PORT through Heddle's stack; one for each --listen, in order
    #[arg(short, long, value_name = "END", required = true)]
    to: Vec<Place>,

    /// Number of connections that are relayed at a time; others wait to be accepted [default: 16384, or as many as the
    /// limit of open files allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: Option<u32>,

    /// Seconds to wait for the far end to accept a connection
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,

    /// Print one line per connection to standard error
    #[arg(short, long)]
    verbose: bool,

    /// Print one JSON object when the relay is ready and one when it has ended
    #[arg(short, long)]
    json: bool,

    #[command(flatten)]
    control: ControlArgs,

    #[command(flatten)]
    network: NetworkArgs,
}

/// State shared by all connections of a relay.
pub struct Relay {
    network: Network,
    timeout: Duration,
    verbose: bool,
    connections: u32,
    slots: Arc<Semaphore>,
    totals: Totals,
    log: RateLimitedLog,
}

/// Runs the command.
///
/// # Errors
/// The relay could not start, or its device was removed.
pub fn run(args: Args) -> Result<(), Failure> {
    let routes = routes(&args)?;
    if args.network.dev == DeviceName::Mem {
        return Err(Failure::usage(
            "with --dev mem there is no host to relay to, because both ends are in this process: use --dev tap:NAME",
        ));
    }
    args.network.check_headroom()?;
    // Before --user is applied: root may raise the limit.
    let wanted = args.max_connections.unwrap_or(CONNECTIONS);
    raise_descriptors(u64::from(wanted));
    let mut control = args.control.open()?;
    let network = args.network.open()?;
    arch::answer_for(&network.stack, control.as_mut())?;
    let connections = admitted(wanted, room_for_connections(routes.len() as u64))?;
    if args.max_connections.is_some() && connections < wanted {
        eprintln!("heddle: {}", fewer(connections, wanted));
    }
    let relay = Arc::new(Relay::new(network, &args, connections));
    let done = runtime::new()?.block_on(relay.clone().run(&routes, args.json));
    done.and(relay.network.finish())
}

/// Pairs each listening place with its target.
fn routes(args: &Args) -> Result<Vec<(Place, Place)>, Failure> {
    if args.listen.len() != args.to.len() {
        return Err(Failure::Usage(format!(
            "{} --listen and {} --to: give one --to for each --listen, in their order",
            args.listen.len(),
            args.to.len()
        )));
    }
    let pairs = args.listen.iter().copied().zip(args.to.iter().copied());
    pairs.map(|(listen, to)| checked(listen, to)).collect()
}

fn checked(listen: Place, to: Place) -> Result<(Place, Place), Failure> {
    if listen.is_kernel() == to.is_kernel() {
        let owner = if to.is_kernel() { "the kernel's: write one of them without `kernel:`" } else { HEDDLES };
        return Err(Failure::Usage(format!("--listen {listen} --to {to}: both ends are {owner}")));
    }
    if to.address().port() == 0 || to.address().ip().is_unspecified() {
        return Err(Failure::Usage(format!("--to {to}: not an address and port that can be connected to")));
    }
    Ok((listen, to))
}

const HEDDLES: &str = "Heddle's: write `kernel:` before the one that belongs to this machine's programs";

/// Raises the limit of open files as far as that many connections need and the hard limit allows.
fn raise_descriptors(connections: u64) {
    let wanted = connections + SPARE_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        // If the limit cannot be raised, the caller notices: it counts the available descriptors.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// The number of connections for which descriptors are left once the device is open and `listeners` more are reserved.
fn room_for_connections(listeners: u64) -> u64 {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return u64::MAX };
    // Without /proc, assume the three standard descriptors.
    let open = std::fs::read_dir("/proc/self/fd").map_or(3, |entries| entries.count() as u64);
    limit.saturating_sub(open + listeners + LATER_DESCRIPTORS)
}

/// How many connections are relayed at a time if `wanted` were requested and `room` have descriptors.
fn admitted(wanted: u32, room: u64) -> Result<u32, Failure> {
    match u32::try_from(room).unwrap_or(u32::MAX).min(wanted) {
        0 => Err(Failure::Failed(
            "no file is left for a connection: raise the limit of open files (`ulimit -n 1024`)".to_owned(),
        )),
        connections => Ok(connections),
    }
}

/// Says that fewer connections than wanted are relayed at a time, and the remedy.
fn fewer(connections: u32, wanted: u32) -> String {
    let limit = u64::from(wanted) + SPARE_DESCRIPTORS;
    format!(
        "{connections} connections are relayed at a time, not {wanted}, and others wait to be accepted: for more, raise \
         the limit of open files (`ulimit -n {limit}`)"
    )
}

impl Relay {
    /// At most `connections` at a time.
    fn new(network: Network, args: &Args, connections: u32) -> Relay {
        Relay {
            network,
            timeout: args.timeout,
            verbose: args.verbose,
            connections,
            slots: Arc::new(Semaphore::new(connections as usize)),
            totals: Totals::default(),
            log: RateLimitedLog::default(),
        }
    }

    /// Carries connections until a signal arrives or the device is removed.
    async fn run(self: Arc<Self>, routes: &[(Place, Place)], json: bool) -> Result<(), Failure> {
        let started = Instant::now();
        let mut stop = Stop::listen()?;
        let mut accepting = JoinSet::new();
        let mut places = Vec::new();
        for (listen, to) in routes {
            let listener = Listener::open(*listen, &self.network.stack).await.map_err(Failure::Failed)?;
            places.push((listener.address(listen.is_kernel())?, *to));
            accepting.spawn(self.clone().accept(listener, *to));
        }
        self.announce(&places, json);
        let ending = tokio::select! {
            () = stop.wait() => Ending::Signal,
            () = self.network.gone.notified() => Ending::DeviceGone,
        };
        if ending == Ending::Signal {
            let finish = async { self.totals.none_open().await };
            // A second signal, or the end of the grace period, resets them.
            let _ = tokio::time::timeout(GRACE, stop.or(finish)).await;
        }
        accepting.shutdown().await;
        self.totals.print(&self.network.stack, ending, started.elapsed(), json);
        match ending {
            Ending::Signal => Ok(()),
            Ending::DeviceGone => Err(self.network.vanished()),
        }
    }

    /// Accepts at one listener for ever. Its connections end with it.
    async fn accept(self: Arc<Self>, listener: Listener, to: Place) {
        let mut tasks = JoinSet::new();
        loop {
            // It is never closed.
            let Ok(slot) = self.slots.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok(accepted) => {
                    let relay = self.clone();
                    tasks.spawn(async move {
                        carry::connection(&relay, accepted, to).await;
                        drop(slot);
                    });
                }
                Err(problem) => {
                    self.log.print(&problem);
                    // An exhausted resource, usually descriptors, may be available again when a connection has ended.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            // Finished tasks are removed, so that a relay may run for ever.
            while tasks.try_join_next().is_some() {}
        }
    }

    fn announce(&self, places: &[(Place, Place)], json: bool) {
        let (device, arch) = (&self.network.device, self.network.stack.architecture().to_string());
        if json {
            let routes: Vec<_> = places
                .iter()
                .map(|(listen, to)| serde_json::json!({"listen": listen.to_string(), "to": to.to_string()}))
                .collect();
            let own = self.network.stack.addresses();
            let ready = serde_json::json!({
                "event": "listening", "service": "relay", "device": device, "arch": arch, "addresses": own,
                "routes": routes, "max_connections": self.connections,
            });
            println!("{ready}");
            return;
        }
        for (listen, to) in places {
            println!("Relaying {listen} to {to} over {device} under {arch}.");
        }
        println!("{} connections at a time; others wait. Ctrl-C ends it.", self.connections);
    }
}

#[cfg(test)]
mod scarce;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::broken;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: Args,
    }

    fn place(text: &str) -> Place {
        text.parse().unwrap()
    }

    #[test]
    fn one_end_is_the_kernels_and_one_is_ours() {
        assert!(checked(place("kernel:127.0.0.1:0"), place("10.0.0.2:80")).is_ok());
        assert!(checked(place("[::]:80"), place("kernel:[::1]:80")).is_ok());
        for (listen, to, remedy) in [
            ("kernel:127.0.0.1:1", "kernel:127.0.0.1:2", "without `kernel:`"),
            ("10.0.0.2:1", "10.0.0.1:2", "`kernel:` before"),
            ("kernel:127.0.0.1:1", "10.0.0.2:0", "--to 10.0.0.2:0"),
            ("kernel:127.0.0.1:1", "[::]:2", "--to [::]:2"),
        ] {
            let Err(Failure::Usage(message)) = checked(place(listen), place(to)) else { panic!("{listen} {to}") };
            assert!(message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn a_device_that_is_given_up_ends_the_relay_with_the_failures_sentence() {
        for arch in heddle::ALL_ARCHITECTURES {
            let words = "relay --json --listen kernel:127.0.0.1:0 --to 10.0.0.9:80 --addr 10.0.0.1/24 --arch";
            let Words { args } = Words::parse_from(words.split(' ').chain([arch]));
            let (network, breaker) = broken::network(&args.network);
            let relay = Arc::new(Relay::new(network, &args, CONNECTIONS));
            let routes = routes(&args).expect("a route");
            let broken = async { breaker.panic_now() };
            let ran = async { tokio::join!(relay.clone().run(&routes, true), broken).0 };
            let failure = runtime::new().expect("threads").block_on(ran).expect_err("the device is given up");
            let Failure::Failed(sentence) = &failure else { panic!("{arch}: {failure:?}") };
            let expected = "mem-a: thread heddle-rx0 panicked (planted): device 0 is given up";
            assert!(sentence.starts_with(expected), "{arch}: {sentence}");
        }
    }

    #[test]
    fn as_many_connections_are_relayed_as_files_can_be_opened() {
        assert_eq!(admitted(CONNECTIONS, u64::MAX), Ok(CONNECTIONS));
        assert_eq!(admitted(CONNECTIONS, 200), Ok(200));
        assert_eq!(admitted(7, 200), Ok(7));
        let Err(Failure::Failed(sentence)) = admitted(CONNECTIONS, 0) else { panic!("there is room for none") };
        assert!(sentence.contains("ulimit -n"), "{sentence}");
        let sentence = fewer(200, 2000);
        assert!(sentence.starts_with("200 connections are relayed at a time, not 2000"), "{sentence}");
        assert!(sentence.contains("ulimit -n 2256"), "{sentence}");
    }
}
