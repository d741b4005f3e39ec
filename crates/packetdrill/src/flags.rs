//! `--so_flags`: assignments separated by commas.

use std::net::IpAddr;
use std::path::PathBuf;

use drill::host::{Addresses, HostConfig};
use stack::Architecture;
use tcp::Profile;

/// With these the MSS is the same over both versions of IP.
const MTU_V4: usize = 1500;
const MTU_V6: usize = 1520;

/// Their values.
pub(crate) struct Flags {
    pub terms: HostConfig,
    /// Directory of knob files.
    pub sysctls: Option<PathBuf>,
}

impl Flags {
    /// Reads `text`.
    ///
    /// # Errors
    /// A sentence with the flag and its allowed values.
    pub(crate) fn read(text: &str) -> Result<Flags, String> {
        // The stack is called from several threads.
        let simplest = Architecture::simplest(|properties| !properties.single_thread).unwrap_or_default();
        let (mut arch, mut profile, mut sysctls) = (simplest, Profile::Linux, None);
        let (mut local, mut gateway, mut mtu, mut super_segments) = (None, None, None, true);
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not NAME=VALUE"))?;
            match name {
                "arch" => arch = value.parse().map_err(|error| format!("{error}"))?,
                "profile" => profile = value.parse().map_err(|error| format!("{error}"))?,
                "local" => local = Some(network(value)?),
                "gateway" => gateway = Some(address(value)?),
                "mtu" => mtu = Some(size(value)?),
                "gso" => super_segments = switch(value)?,
                "sysctls" => sysctls = Some(PathBuf::from(value)),
                _ => return Err(format!("{name:?} is none of arch, profile, local, gateway, mtu, gso and sysctls")),
            }
        }
        let mut addresses = match local {
            Some((IpAddr::V6(_), _)) => Addresses::V6,
            _ => Addresses::V4,
        };
        if let Some((local, prefix)) = local {
            addresses = addresses.at(local);
            addresses.prefix = prefix.unwrap_or(addresses.prefix);
        }
        if let Some(gateway) = gateway {
            addresses.gateway = gateway;
        }
        if addresses.gateway.is_ipv4() != addresses.local.is_ipv4() {
            return Err("local and gateway are of different versions of IP".into());
        }
        let mtu = mtu.unwrap_or(if addresses.local.is_ipv4() { MTU_V4 } else { MTU_V6 });
        let mut tcp = profile.config();
        // Scripts use `tcpi_busy_time` and related fields.
        tcp.measure_limits = true;
        tcp.push_super_segments = profile == Profile::Linux;
        Ok(Flags { terms: HostConfig { arch, tcp, addresses, mtu, super_segments }, sysctls })
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IP address"))
}

/// `ADDRESS` or `ADDRESS/PREFIX`.
fn network(text: &str) -> Result<(IpAddr, Option<u8>), String> {
    let Some((head, prefix)) = text.split_once('/') else { return Ok((address(text)?, None)) };
    let local = address(head)?;
    let longest = if local.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= longest);
    Ok((local, Some(prefix.ok_or_else(|| format!("{text:?}: a prefix has 0 to {longest} bits"))?)))
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("gso={text}: it is on or off")),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let mtu = text.parse().ok().filter(|mtu| (68..=65_535).contains(mtu));
    mtu.ok_or_else(|| format!("mtu={text} is not a number of bytes from 68 to 65535"))
}
