//! The `--name=value` lines of a script.

use std::net::IpAddr;
use std::num::NonZeroU16;

use crate::error::ScriptError;
use crate::family::Family;
use crate::host::Addresses;
use crate::script::{Nanos, Setting};

use super::Ran;

/// Their values.
pub(super) struct ScriptSettings {
    /// Least tolerance of times.
    pub tolerance: Nanos,
    /// The tick of the timestamp clock, if timestamps are to be checked.
    pub tick: Option<Nanos>,
    /// A scripted segment is one segment, not several in a row.
    pub strict_segments: bool,
    /// A packet that was not compared is an error at the end of the script.
    pub no_leftovers: bool,
    pub addresses: Addresses,
    /// IPv6 sockets with IPv4-mapped addresses.
    pub mapped: bool,
    pub mtu: usize,
    /// Injected packets with more data than this were merged by the device from segments of this size.
    pub segment: Option<NonZeroU16>,
    /// The device does not merge: such segments arrive one after the other, at once.
    pub unmerged: bool,
    pub bind_port: u16,
    pub connect_port: u16,
}

/// Settings of packetdrill that have no meaning in virtual time.
const IGNORED: [&str; 21] = [
    "tcp_ts_ecr_scaled",
    "define",
    "D",
    "verbose",
    "debug",
    "dry_run",
    "speed",
    "persistent_tun_dev",
    "init_scripts",
    "non_fatal",
    "so_filename",
    "so_flags",
    "wire_client",
    "wire_server",
    "netmask_ip",
    "gateway_ip",
    "send_omit_free",
    "code_sockopt",
    "code_command",
    "code_format",
    "is_anyip",
];

impl ScriptSettings {
    pub(super) fn read(options: &[Setting], family: Family, mtu: Option<u16>) -> Ran<ScriptSettings> {
        let mut settings = ScriptSettings {
            tolerance: 4_000_000,
            tick: None,
            strict_segments: false,
            no_leftovers: false,
            addresses: Addresses::V4,
            mapped: false,
            mtu: 1500,
            segment: None,
            unmerged: false,
            bind_port: 8080,
            connect_port: 8080,
        };
        // The version first: it chooses the addresses that other settings change.
        let version = options.iter().rev().find(|option| option.name == "ip_version");
        let said = match version {
            None => None,
            Some(Setting { line, value, .. }) => Some(
                value
                    .parse::<Family>()
                    .map_err(|_| ScriptError::unsupported(*line, format!("--ip_version={value}")))?,
            ),
        };
        match family.with(said) {
            Family::V4 => {}
            Family::Mapped => settings.mapped = true,
            Family::V6 => {
                settings.addresses = if said.is_none() { Addresses::V6 } else { Addresses::V6_OF_SCRIPTS };
                // So that a segment carries as much as in IPv4.
                settings.mtu = 1520;
            }
        }
        settings.mtu = mtu.map_or(settings.mtu, usize::from);
        for option in options {
            settings.take(option)?;
        }
        Ok(settings)
    }

    fn take(&mut self, option: &Setting) -> Ran<()> {
        let Setting { line, name, value } = option;
        let wrong = || ScriptError::new(*line, format!("--{name}={value} cannot be read"));
        let within = |least: i64, most: i64| {
            value.parse::<i64>().ok().filter(|number| (least..=most).contains(number)).ok_or_else(wrong)
        };
        let port = || value.parse::<u16>().map_err(|_| wrong());
        let address = || {
            let address = value.split('/').next().unwrap_or_default().parse::<IpAddr>().map_err(|_| wrong())?;
            if address.is_ipv4() == self.addresses.local.is_ipv4() {
                return Ok(address);
            }
            Err(ScriptError::new(*line, format!("--{name}={value} is of another family than --ip_version")))
        };
        match name.as_str() {
            "ip_version" => {}
            "tolerance_usecs" => self.tolerance = within(1, i64::MAX / 1000)? * 1000,
            "tcp_ts_tick_usecs" => self.tick = Some(within(0, 1_000_000)? * 1000).filter(|tick| *tick > 0),
            "strict_segments" => self.strict_segments = true,
            "unmerged" => self.unmerged = true,
            "no_leftovers" => self.no_leftovers = true,
            "local_ip" => self.addresses = self.addresses.at(address()?),
            "remote_ip" => self.addresses.remote = address()?,
            "mtu" => self.mtu = within(68, 65_535)? as usize,
            "mss" => self.segment = Some(value.parse().map_err(|_| wrong())?),
            "bind_port" => self.bind_port = port()?,
            "connect_port" => self.connect_port = port()?,
            _ if IGNORED.contains(&name.as_str()) => {}
            _ => return Err(ScriptError::unsupported(*line, format!("the setting --{name}"))),
        }
        Ok(())
    }
}
