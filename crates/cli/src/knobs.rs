//! `heddle knobs`: the parameters of TCP by the names that Linux gives them.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use heddle::config::Profile;
use heddle::config::knobs::{self, KNOBS};

use crate::failure::Failure;

/// List the parameters of TCP with their values and descriptions.
///
/// The options --sysctl NAME=VALUE and --sysctl-dir DIR of serve, get, ping, relay and drill set them.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  heddle knobs
  heddle knobs --profile freebsd tcp_rmem tcp_rto_min_us
  heddle knobs --sysctl-dir knobs                   a copy of /proc/sys/net/ipv4, or a few files of that form")]
pub struct Args {
    /// Parameters to list [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Profile to take the values from: linux, freebsd or rfc
    #[arg(long, value_name = "NAME", default_value = "linux")]
    profile: Profile,
    /// Directory of files that set parameters; the list shows the values that result
    #[arg(long, value_name = "DIR")]
    sysctl_dir: Option<PathBuf>,
    /// Print the parameters as one JSON array
    #[arg(short, long)]
    json: bool,
}

/// Runs `heddle knobs`.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut config = args.profile.config();
    if let Some(directory) = &args.sysctl_dir {
        heddle::knob_files::read(directory, &mut config).map_err(Failure::usage)?;
    }
    let chosen =
        args.names.iter().map(|name| knobs::find(name)).collect::<Result<Vec<_>, _>>().map_err(Failure::usage)?;
    let listed = if chosen.is_empty() { KNOBS.iter().collect() } else { chosen };
    let rows = listed.into_iter().map(|knob| (knob, knob.value(&config)));
    if args.json {
        let rows: Vec<_> = rows
            .map(|(knob, value)| {
                serde_json::json!({
                    "name": knob.name, "value": value, "meaning": knob.meaning, "takes": knob.expects(), "idle": knob.idle,
                })
            })
            .collect();
        println!("{}", serde_json::Value::from(rows));
        return Ok(());
    }
    for (knob, value) in rows {
        println!("{} = {}", knob.name, value.replace('\t', " "));
        println!("    {}; takes {}", knob.meaning, knob.expects());
        if let Some(why) = knob.idle {
            println!("    has no effect: {why}");
        }
    }
    Ok(())
}
