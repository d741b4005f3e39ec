//! `heddle drill`: packet scripts in virtual time.

use std::path::PathBuf;

use ::drill::Family;
use ::drill::batch::{self, Batch};
use ::drill::run::Options;
use clap::Args as ClapArgs;
use heddle::Architecture;
use heddle::config::{Profile, knobs};

use crate::failure::Failure;
use crate::headroom;
use crate::listed::{Listed, listed};

/// Run packet scripts (packetdrill's language) against the stack, in virtual time.
///
/// Prints one line for each script that fails: file, line, the expected and the actual packet or result. With several
/// architectures the packets must be the same under each of them, byte by byte and at the same virtual time.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/drill.txt").trim_end())]
pub struct Args {
    /// Scripts, or directories; every file *.pkt in a directory is a script
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Architectures to test, by name, or `all`
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = "all")]
    arch: Vec<Listed>,
    /// Profile with the initial parameters of TCP: linux, freebsd or rfc
    #[arg(long, value_name = "NAME", default_value = "linux")]
    profile: Profile,
    /// Directory of files that set parameters of TCP, named as in /proc/sys/net/ipv4; applied after --profile
    #[arg(long, value_name = "DIR")]
    sysctl_dir: Option<PathBuf>,
    /// Parameter of TCP, such as tcp_sack=0; applied after --sysctl-dir and before the parameters of the script; may be
    /// given several times
    #[arg(long, value_name = "NAME=VALUE")]
    sysctl: Vec<String>,
    /// Define a name for the scripts, as the option --define in a script does
    #[arg(short = 'D', long, value_name = "NAME=VALUE")]
    define: Vec<String>,
    /// Address families for scripts that name none: ipv4, ipv6, mapped (IPv6 sockets, IPv4 packets), or `all`
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = "ipv4", conflicts_with = "ipv6")]
    family: Vec<String>,
    /// The same as --family ipv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// MTU of the link in bytes, for scripts that do not set it [default: 1500; over IPv6 1520]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    mtu: Option<u16>,
    /// Write a capture of each script to this directory
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Number of scripts to run at the same time [default: one for each processor]
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
    /// Also print the scripts that pass
    #[arg(short, long)]
    verbose: bool,
}

/// Runs the scripts; fails if one does.
pub fn run(args: Args) -> Result<(), Failure> {
    let architectures = listed(&args.arch);
    let families = if args.ipv6 { vec![Family::V6] } else { families(&args.family)? };
    let mut options = Options::new(architectures.first().copied().unwrap_or_else(Architecture::reference));
    options.profile = args.profile;
    options.mtu = args.mtu;
    options.knobs = knobs(&args)?;
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let paths = batch::find(&args.files).map_err(Failure::usage)?;
    headroom::check(jobs.min(paths.len()))?;
    let batch = Batch { architectures, families, options, defines: pairs(&args.define)?, jobs, captures: args.pcap };
    let outcomes = batch.run(&paths);
    let mut failed = 0;
    for outcome in &outcomes {
        match outcome.line() {
            Some(line) => {
                failed += 1;
                println!("{line}");
            }
            None if args.verbose => println!("{}: ok", outcome.path.display()),
            None => {}
        }
    }
    println!("{} of {} scripts passed", outcomes.len() - failed, outcomes.len());
    if failed == 0 { Ok(()) } else { Err(Failure::Reported) }
}

fn families(names: &[String]) -> Result<Vec<Family>, Failure> {
    match names {
        [all] if all == "all" => Ok(Family::ALL.to_vec()),
        names => names.iter().map(|name| name.parse().map_err(Failure::usage)).collect(),
    }
}

/// The knobs of the directory and of the command line, in the order in which they are set. Errors are reported here
/// once, not for every script.
fn knobs(args: &Args) -> Result<Vec<(String, String)>, Failure> {
    let mut config = args.profile.config();
    let mut set = Vec::new();
    if let Some(directory) = &args.sysctl_dir {
        for name in heddle::knob_files::read(directory, &mut config).map_err(Failure::usage)? {
            let knob = knobs::find(name).map_err(Failure::usage)?;
            set.push((name.to_owned(), knob.value(&config)));
        }
    }
    for assignment in &args.sysctl {
        knobs::assign(&mut config, assignment).map_err(Failure::usage)?;
    }
    set.extend(pairs(&args.sysctl)?);
    Ok(set)
}

fn pairs(texts: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pair = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("`{text}` is not a definition: write NAME=VALUE")))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    texts.iter().map(pair).collect()
}
