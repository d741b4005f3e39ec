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

/// Run packet scripts (packetdrill's language) against the stack, in virtual time.
///
/// Says one line for each script that fails: file, line, what was expected and what came. With several architectures
/// the packets must be the same under each, byte by byte and at the same virtual time.
#[derive(ClapArgs)]
#[command(after_help = include_str!("help/drill.txt").trim_end())]
pub struct Args {
    /// Scripts, and directories in which every *.pkt is one
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Architectures by name, or all
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = "all")]
    arch: Vec<String>,
    /// TCP's parameters to begin with: linux, freebsd, rfc
    #[arg(long, default_value = "linux")]
    profile: Profile,
    /// Directory whose files set knobs, named as in /proc/sys/net/ipv4; set after --profile
    #[arg(long, value_name = "DIR")]
    sysctl_dir: Option<PathBuf>,
    /// A knob by its sysctl's name, set after --sysctl-dir and before the script's own; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    sysctl: Vec<String>,
    /// A name that scripts use, as their --define does
    #[arg(short = 'D', long, value_name = "NAME=VALUE")]
    define: Vec<String>,
    /// Address families for scripts that do not say theirs: ipv4, ipv6, mapped (sockets of IPv6, packets of IPv4), or
    /// all
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", default_value = "ipv4", conflicts_with = "ipv6")]
    family: Vec<String>,
    /// The same as --family ipv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// MTU of the link of scripts that do not say it, bytes [default: 1500; over IPv6 1520]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(68..))]
    mtu: Option<u16>,
    /// Write a capture of every script into this directory
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Scripts to run at the same time [default: one for each processor]
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
    /// Name the scripts that went through, too
    #[arg(short, long)]
    verbose: bool,
}

/// Runs the scripts; fails if one does.
pub fn run(args: Args) -> Result<(), Failure> {
    let architectures = architectures(&args.arch)?;
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
    println!("{} of {} scripts went through", outcomes.len() - failed, outcomes.len());
    if failed == 0 { Ok(()) } else { Err(Failure::Reported) }
}

fn architectures(names: &[String]) -> Result<Vec<Architecture>, Failure> {
    match names {
        [all] if all == "all" => Ok(Architecture::all().collect()),
        names => names.iter().map(|name| name.parse().map_err(Failure::usage)).collect(),
    }
}

fn families(names: &[String]) -> Result<Vec<Family>, Failure> {
    match names {
        [all] if all == "all" => Ok(Family::ALL.to_vec()),
        names => names.iter().map(|name| name.parse().map_err(Failure::usage)).collect(),
    }
}

/// The knobs of the directory and of the command line, in the order in which they are set. Errors are found here once,
/// not for every script.
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
            .ok_or_else(|| Failure::usage(format!("`{text}` defines nothing: write it as NAME=VALUE")))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    texts.iter().map(pair).collect()
}
