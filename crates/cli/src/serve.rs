//! `heddle serve`: one of four services on Heddle's own stack, until Ctrl-C.
//!
//! This file owns the life of a service: the device is opened, the port bound, connections are accepted and each served
//! by a task of its own; a signal or the removal of the device stops it, open requests get a moment to finish, and the
//! totals are printed. The services themselves are in `serve/`.

mod clients;
mod http;
mod simple;
pub mod totals;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args as Arguments, Subcommand};
use heddle::tokio::{TcpListener, TcpStream, UdpSocket};
use heddle::{Architecture, Stack};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::arch::{self, ControlArgs};
use crate::failure::Failure;
use crate::network::{DeviceName, Network, NetworkArgs};
use crate::runtime::{self, ReportSignal, Stop};

use self::clients::{Clients, Limits};
use self::http::Site;
use self::totals::{Ending, Totals};

/// Time for open connections after a signal before they are reset.
const GRACE: Duration = Duration::from_secs(1);

/// Serve HTTP files, or one of the classic test services, from Heddle's own stack.
///
/// The service runs until Ctrl-C and then prints what it has done; SIGUSR1 has it print that to standard error
/// meanwhile. The service needs a TAP interface; the kernel of this machine is at its other end, so programs of this
/// machine can be clients.
#[derive(Arguments)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Args {
    /// Print the names of all process architectures, with one line about each
    #[arg(long)]
    list_arch: bool,

    #[command(subcommand)]
    service: Option<Service>,
}

const EXAMPLES: &str = "\
Example, as root:
  heddle serve http --dev tap:heddle0 --addr 10.0.0.2/24 --addr fd00::2/64 --root .
  ip addr add 10.0.0.1/24 dev heddle0; ip addr add fd00::1/64 dev heddle0 nodad      (in a second terminal)
  curl http://10.0.0.2/        curl 'http://[fd00::2]/'
  heddle serve http --dev tap:heddle0 --addr 10.0.0.2/24 --user nobody --max-per-client 100 --rate-per-client 50/s
  kill -USR1 $(pidof heddle)                    prints counters to the service's standard error

To run without root, create the interface beforehand:
  sudo ip tuntap add mode tap user $USER multi_queue vnet_hdr name heddle0
  sudo ip link set heddle0 up";

#[derive(Subcommand)]
enum Service {
    /// Files over HTTP/1.1: GET, HEAD, ranges, directories, and uploads by POST
    ///
    /// Files are sent from memory that is shared with the stack, without a copy. The answer to POST and PUT is the length and
    /// the SHA-256 of the received data; with --upload the data is stored, too.
    #[command(after_help = include_str!("help/serve_http.txt").trim_end())]
    Http(HttpArgs),

    /// Echo all received data (RFC 862), over TCP and UDP
    #[command(after_help = "\
Example, as root:
  heddle serve echo --dev tap:heddle0 --addr 10.0.0.2/24
  nc 10.0.0.2 7                                 (after `ip addr add 10.0.0.1/24 dev heddle0`)")]
    Echo(ServiceArgs),

    /// Discard all received data (RFC 863), over TCP and UDP
    #[command(after_help = "\
Example, as root:
  heddle serve discard --dev tap:heddle0 --addr 10.0.0.2/24
  head -c 1G /dev/zero | nc -N 10.0.0.2 9       (after `ip addr add 10.0.0.1/24 dev heddle0`)")]
    Discard(ServiceArgs),

    /// Send an endless stream of characters (RFC 864), over TCP and UDP
    #[command(after_help = "\
Example, as root:
  heddle serve chargen --dev tap:heddle0 --addr 10.0.0.2/24
  nc 10.0.0.2 19 | head -c 1G | wc -c           (after `ip addr add 10.0.0.1/24 dev heddle0`)")]
    Chargen(ServiceArgs),
}

#[derive(Arguments)]
struct ServiceArgs {
    /// Port to listen on [default: the service's own: http 80, echo 7, discard 9, chargen 19]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Most connections that one client may have at a time; further ones are reset. A client is an IPv4 address or an IPv6
    /// /64 network [default: no limit, because many people may share one address]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_per_client: Option<u32>,

    /// Most connections that one client may open in a second, as N or N/s; further ones are reset. After a pause a client
    /// may open that many at once [default: no limit]
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate_per_client: Option<u32>,

    /// Print one JSON object when the service is ready and one when it has ended
    #[arg(short, long)]
    json: bool,

    #[command(flatten)]
    control: ControlArgs,

    #[command(flatten)]
    network: NetworkArgs,
}

#[derive(Arguments)]
struct HttpArgs {
    /// Directory with the files to serve
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,

    /// Directory in which uploads are stored under the last component of their path [default: they are only counted]
    #[arg(long, value_name = "DIR")]
    upload: Option<PathBuf>,

    /// Print one line per request to standard error
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    service: ServiceArgs,
}

/// Reads a number of connections in a second.
fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "give a number of connections per second, such as 50/s".to_owned())
}

/// The service offered.
enum Offer {
    Http(Arc<Site>),
    Simple(simple::Protocol),
}

/// Runs the command.
///
/// # Errors
/// The service could not start, or its device was removed.
pub fn run(args: Args) -> Result<(), Failure> {
    let Some(service) = args.service else {
        print!("{}", Architecture::catalogue());
        return Ok(());
    };
    let totals = Arc::new(Totals::default());
    let (offer, args) = match service {
        Service::Http(args) => {
            let site = Site::open(&args.root, args.upload.as_deref(), args.verbose, totals.clone())?;
            (Offer::Http(Arc::new(site)), args.service)
        }
        Service::Echo(args) => (Offer::Simple(simple::Protocol::Echo), args),
        Service::Discard(args) => (Offer::Simple(simple::Protocol::Discard), args),
        Service::Chargen(args) => (Offer::Simple(simple::Protocol::Chargen), args),
    };
    if args.network.dev == DeviceName::Mem {
        return Err(Failure::usage(
            "with --dev mem no client can reach the service, because both ends are in this process: use --dev tap:NAME, or \
             try `heddle get http://10.0.0.1/`, which brings its own server",
        ));
    }
    args.network.check_headroom()?;
    // Before --user is applied.
    let mut control = args.control.open()?;
    let network = args.network.open()?;
    arch::answer_for(&network.stack, control.as_mut())?;
    let served = runtime::new()?.block_on(serve(&network, &offer, &args, &totals));
    served.and(network.finish())
}

impl Offer {
    fn name(&self) -> &'static str {
        match self {
            Offer::Http(_) => "http",
            Offer::Simple(protocol) => protocol.name(),
        }
    }

    fn port(&self) -> u16 {
        match self {
            Offer::Http(_) => 80,
            Offer::Simple(protocol) => protocol.port(),
        }
    }
}

/// Serves until a signal arrives or the device is removed.
async fn serve(network: &Network, offer: &Offer, args: &ServiceArgs, totals: &Arc<Totals>) -> Result<(), Failure> {
    let started = Instant::now();
    let (mut stop, mut asked) = (Stop::listen()?, ReportSignal::listen()?);
    let port = args.port.unwrap_or(offer.port());
    let (quit, quitting) = watch::channel(());
    let mut tasks = JoinSet::new();
    let accepting = listen(&network.stack, port, offer, quitting, totals)?;
    let limits = Limits { connections: args.max_per_client, rate: args.rate_per_client };
    let accepting = Accepting { clients: Clients::new(limits), ..accepting };
    if let Offer::Simple(protocol) = offer {
        let socket = UdpSocket::bind(&network.stack, everywhere(&network.stack, port)).map_err(Failure::failed)?;
        tasks.spawn(simple::datagrams(*protocol, socket, totals.clone()));
    }
    announce(network, offer, port, args.json);
    let report = async {
        loop {
            asked.wait().await;
            totals.report(&network.stack, started.elapsed(), args.json);
        }
    };
    let ending = tokio::select! {
        () = report => Ending::Signal,
        () = stop.wait() => Ending::Signal,
        () = network.gone.notified() => Ending::DeviceGone,
        () = accepting.run(&mut tasks) => Ending::Signal,
    };
    drop(quit);
    if ending == Ending::Signal {
        // A report that was requested before the end is printed, however late both are noticed.
        if asked.was_sent_before().await {
            totals.report(&network.stack, started.elapsed(), args.json);
        }
        let finish = async { while tasks.join_next().await.is_some() {} };
        // A second signal, or the end of the grace period, resets them.
        let _ = tokio::time::timeout(GRACE, stop.or(finish)).await;
    }
    tasks.shutdown().await;
    totals.print(&network.stack, ending, started.elapsed(), args.json)?;
    match ending {
        Ending::Signal => Ok(()),
        Ending::DeviceGone => Err(network.vanished()),
    }
}

/// A listening port and the service of its connections.
struct Accepting<F> {
    listener: TcpListener,
    clients: Arc<Clients>,
    totals: Arc<Totals>,
    serve: F,
}

impl<F, T> Accepting<F>
where
    F: Fn(TcpStream) -> T,
    T: Future<Output = ()> + Send + 'static,
{
    async fn run(self, tasks: &mut JoinSet<()>) {
        loop {
            // A failed listener accepts no more connections.
            let Ok((stream, peer)) = self.listener.accept().await else { return };
            match self.clients.admit(peer.ip(), Instant::now()) {
                Ok(admitted) => {
                    self.totals.connected();
                    let served = (self.serve)(stream);
                    tasks.spawn(async move {
                        served.await;
                        drop(admitted);
                    });
                }
                Err(refusal) => {
                    self.totals.refused(refusal);
                    // Dropping it then resets it, so that no state is kept. It may have been reset already.
                    let _ = stream.get_ref().set_linger(Some(Duration::ZERO));
                }
            }
            // Finished tasks are removed, so that a service may run for ever.
            while tasks.try_join_next().is_some() {}
        }
    }
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn listen(
    stack: &Stack,
    port: u16,
    offer: &Offer,
    quitting: watch::Receiver<()>,
    totals: &Arc<Totals>,
) -> Result<Accepting<impl Fn(TcpStream) -> Task + use<>>, Failure> {
    let listener = TcpListener::bind(stack, everywhere(stack, port)).map_err(Failure::failed)?;
    let (totals, counted) = (totals.clone(), totals.clone());
    let site = match offer {
        Offer::Http(site) => {
            site.served_by(stack);
            Ok(site.clone())
        }
        Offer::Simple(protocol) => Err(*protocol),
    };
    let serve = move |stream: TcpStream| -> Task {
        match &site {
            Ok(site) => Box::pin(http::connection(stream, site.clone(), quitting.clone())),
            Err(protocol) => Box::pin(simple::connection(*protocol, stream, counted.clone())),
        }
    };
    Ok(Accepting { listener, clients: Clients::new(Limits::default()), totals, serve })
}

/// Serves files of the directory `root` on port `port` of `stack`, for as long as the future lives.
///
/// # Errors
/// The directory cannot be read, or the port is in use.
pub fn http_peer(
    stack: &Stack,
    port: u16,
    root: &std::path::Path,
) -> Result<impl Future<Output = ()> + use<>, Failure> {
    let totals = Arc::new(Totals::default());
    let site = Site::open(root, None, false, totals.clone())?;
    let (quit, quitting) = watch::channel(());
    let accepting = listen(stack, port, &Offer::Http(Arc::new(site)), quitting, &totals)?;
    Ok(async move {
        let _running = quit;
        accepting.run(&mut JoinSet::new()).await;
    })
}

/// The address that takes connections to every address of the stack.
fn everywhere(stack: &Stack, port: u16) -> SocketAddr {
    let v6 = stack.addresses().iter().any(IpAddr::is_ipv6);
    let any = if v6 { IpAddr::V6([0; 16].into()) } else { IpAddr::V4([0; 4].into()) };
    SocketAddr::new(any, port)
}

fn announce(network: &Network, offer: &Offer, port: u16, json: bool) {
    let addresses: Vec<SocketAddr> =
        network.stack.addresses().into_iter().map(|address| SocketAddr::new(address, port)).collect();
    let arch = network.stack.architecture().to_string();
    if json {
        let ready = serde_json::json!({
            "event": "listening", "service": offer.name(), "device": network.device, "arch": arch, "addresses": addresses,
        });
        println!("{ready}");
        return;
    }
    let scheme = if offer.name() == "http" { "http://" } else { "" };
    // A link-local address is omitted: a client must also name its interface.
    let reached = addresses.iter().filter(|address| !is_link_local(address.ip()));
    let places: Vec<String> = reached.map(|address| format!("{scheme}{address}")).collect();
    println!("Serving {} on {} at {} under {arch}; Ctrl-C ends it.", offer.name(), network.device, places.join(" "));
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::broken;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: ServiceArgs,
    }

    #[test]
    fn a_device_that_is_given_up_ends_the_service_with_the_failures_sentence() {
        for arch in heddle::ALL_ARCHITECTURES {
            let Words { args } = Words::parse_from(["serve", "--json", "--addr", "10.0.0.1/24", "--arch", arch]);
            let (network, breaker) = broken::network(&args.network);
            let (offer, totals) = (Offer::Simple(simple::Protocol::Echo), Arc::new(Totals::default()));
            let broken = async { breaker.panic_now() };
            let served = async { tokio::join!(serve(&network, &offer, &args, &totals), broken).0 };
            let failure = runtime::new().expect("threads").block_on(served).expect_err("the device is given up");
            let Failure::Failed(sentence) = &failure else { panic!("{arch}: {failure:?}") };
            let expected = "mem-a: thread heddle-rx0 panicked (planted): device 0 is given up";
            assert!(sentence.starts_with(expected), "{arch}: {sentence}");
        }
    }
}
