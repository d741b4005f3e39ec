//! `heddle bridge`: an Ethernet bridge between TAP interfaces, and the commands that show and change it while it runs.
//!
//! | file | owns |
//! |---|---|
//! | `bridge.rs` | the command line |
//! | `bridge/run.rs` | the bridge of a process: devices, threads, signals; also that of `--dev bridge:NAME` |
//! | `bridge/config.rs` | the file of `bridge run --config` |
//! | `bridge/request.rs` | the requests to a running bridge, and its answers |
//! | `bridge/intrctl.rs` | `heddle intrctl`: interrupts and the workers that take them |
//! | `bridge/show.rs` | answers as lines, in the format of iproute2's `bridge` |

mod config;
pub mod intrctl;
mod request;
mod run;
mod show;

use clap::{Args as ClapArgs, Subcommand};

use self::request::Request;
pub use self::run::{LocalBridge, random_address, work};
use crate::control::{self, Kind};
use crate::failure::Failure;

/// The process of `heddle bridge run`.
const KIND: Kind = Kind { what: "bridge", start: "heddle bridge run" };
/// The bridge that a command addresses if none is named.
const DEFAULT_NAME: &str = "br0";

/// Switch Ethernet frames between TAP interfaces: a learning bridge with VLANs and spanning tree.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples, as root:
  heddle bridge run --port tap:vm1 --port tap:vm2 --exclusion mpsafe
  heddle bridge show                        in a second terminal
  heddle bridge fdb add 02:00:00:00:00:01 vm1
  heddle bridge add tap:vm3                 adds a port while the bridge runs
  heddle bridge vlan add vm1 10 --pvid --untagged
  heddle bridge stats -j

Without root: the administrator makes the interfaces beforehand, with
  ip tuntap add mode tap multi_queue user ALICE name vm1")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Args>),
    /// List the ports, their state and their options
    Show(Target),
    /// Add a port: a device, as in tap:vm3
    Add(PortArgs),
    /// Remove a port, and close its device
    Del(PortArgs),
    /// Set options of a port, as in: set vm1 isolated=on learning=off
    Set(SetArgs),
    /// Show or change the forwarding database
    Fdb(FdbArgs),
    /// Show or change which ports belong to which VLAN
    Vlan(VlanArgs),
    /// Show spanning tree
    Stp(Target),
    /// Show the traffic of the ports, and drops by reason
    Stats(Target),
}

/// The bridge that a command addresses.
#[derive(ClapArgs)]
struct Target {
    /// Name of the bridge
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, global = true)]
    name: String,
    /// Path of the bridge's control socket, if it is not the default one
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<std::path::PathBuf>,
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
}

#[derive(ClapArgs)]
struct PortArgs {
    /// The device: tap:NAME to add, NAME or tap:NAME to remove
    device: String,
    #[command(flatten)]
    target: Target,
}

#[derive(ClapArgs)]
struct SetArgs {
    /// The port
    device: String,
    /// learning, flood, mcast_flood, bcast_flood, isolated and hairpin take on or off; max_addresses takes a number or none;
    /// storm_bcast, storm_mcast and storm_unknown take the frames a second that the port may flood, with a burst if that is not a
    /// tenth of them, as in 1000/50, or none; state takes up or down
    #[arg(value_name = "OPTION=VALUE", required = true)]
    options: Vec<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(ClapArgs)]
struct FdbArgs {
    #[command(subcommand)]
    command: Option<FdbCommand>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum FdbCommand {
    /// List the entries
    Show,
    /// Add an address that does not age
    Add {
        /// The station's address
        address: String,
        /// The port of the station
        device: String,
        /// Its VLAN
        #[arg(long, value_name = "VID")]
        vlan: Option<u16>,
        /// Keep it there even if frames from it arrive by another port
        #[arg(long)]
        sticky: bool,
    },
    /// Remove an entry
    Del {
        /// The station's address
        address: String,
        /// Its VLAN
        #[arg(long, value_name = "VID")]
        vlan: Option<u16>,
    },
    /// Remove the learned addresses
    Flush {
        /// Only those of this port
        #[arg(long, value_name = "PORT")]
        dev: Option<String>,
        /// Only those of this VLAN
        #[arg(long, value_name = "VID")]
        vlan: Option<u16>,
    },
}

#[derive(ClapArgs)]
struct VlanArgs {
    #[command(subcommand)]
    command: Option<VlanCommand>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum VlanCommand {
    /// List VLANs and their ports
    Show,
    /// Make a port a member of a VLAN
    Add {
        /// The port
        device: String,
        /// The VLAN, 1 to 4094
        vid: u16,
        /// Frames without a tag that arrive at the port belong to this VLAN
        #[arg(long)]
        pvid: bool,
        /// Frames of this VLAN leave the port without a tag
        #[arg(long)]
        untagged: bool,
    },
    /// End a membership
    Del {
        /// The port
        device: String,
        /// The VLAN
        vid: u16,
    },
    /// Distinguish VLANs: on or off
    Filtering {
        /// on or off
        #[arg(value_parser = ["on", "off"])]
        state: String,
    },
}

/// Runs `heddle bridge`.
pub fn run(args: Args) -> Result<(), Failure> {
    let (request, target) = match args.command {
        Command::Run(args) => return run::run(*args),
        Command::Show(target) => (Request::Show, target),
        Command::Add(PortArgs { device, target }) => (Request::Add { device }, target),
        Command::Del(PortArgs { device, target }) => (Request::Del { device }, target),
        Command::Set(SetArgs { device, options, target }) => (Request::Set { device, options }, target),
        Command::Fdb(FdbArgs { command, target }) => (of_fdb(command), target),
        Command::Vlan(VlanArgs { command, target }) => (of_vlan(command), target),
        Command::Stp(target) => (Request::Stp, target),
        Command::Stats(target) => (Request::Stats, target),
    };
    ask_and_print(&target, &request)
}

/// Sends a request to the bridge that the command addresses, and prints the answer.
///
/// # Errors
/// As [`control::ask`].
fn ask_and_print(target: &Target, request: &Request) -> Result<(), Failure> {
    let path = match &target.control {
        Some(path) => path.clone(),
        None => control::usual_place(&KIND, &target.name)?,
    };
    let answer = control::ask(&KIND, &path, request)?;
    if target.json {
        println!("{answer}");
    } else {
        print!("{}", show::lines(request, &answer));
    }
    Ok(())
}

fn of_fdb(command: Option<FdbCommand>) -> Request {
    match command {
        None | Some(FdbCommand::Show) => Request::Fdb,
        Some(FdbCommand::Add { address, device, vlan, sticky }) => Request::FdbAdd { address, device, vlan, sticky },
        Some(FdbCommand::Del { address, vlan }) => Request::FdbDel { address, vlan },
        Some(FdbCommand::Flush { dev, vlan }) => Request::FdbFlush { device: dev, vlan },
    }
}

fn of_vlan(command: Option<VlanCommand>) -> Request {
    match command {
        None | Some(VlanCommand::Show) => Request::Vlan,
        Some(VlanCommand::Add { device, vid, pvid, untagged }) => Request::VlanAdd { device, vid, pvid, untagged },
        Some(VlanCommand::Del { device, vid }) => Request::VlanDel { device, vid },
        Some(VlanCommand::Filtering { state }) => Request::VlanFiltering { on: state == "on" },
    }
}
