//! The file of `heddle bridge run --config`: a bridge with its ports, VLANs and addresses, in TOML.
//!
//! An error in it is one sentence that names the file, the line and the remedy, and is reported before any device is
//! opened.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use switch::{BridgeExclusion, InterruptKind, Work};
use toml::Spanned;

use super::KIND;
use super::request::{self, PortChange};
use crate::control;
use crate::failure::Failure;

/// The content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    name: Option<Spanned<String>>,
    exclusion: Option<Spanned<String>>,
    workers: Option<Spanned<u16>>,
    queues: Option<Spanned<u16>>,
    work: Option<Spanned<WorkText>>,
    interrupts: Option<Spanned<String>>,
    max_addresses: Option<Spanned<u32>>,
    ageing: Option<Spanned<u64>>,
    vlan_filtering: Option<bool>,
    stp: Option<Spanned<String>>,
    control: Option<PathBuf>,
    mode: Option<Spanned<String>>,
    pcap: Option<PathBuf>,
    #[serde(default)]
    port: Vec<PortTable>,
    #[serde(default)]
    fdb: Vec<FdbTable>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum WorkText {
    Frames(u64),
    Word(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PortTable {
    device: Spanned<String>,
    /// As in `heddle bridge set`: `["isolated=on", "max_addresses=100"]`.
    #[serde(default)]
    set: Vec<Spanned<String>>,
    pvid: Option<Spanned<u16>>,
    #[serde(default)]
    tagged: Vec<Spanned<u16>>,
    #[serde(default)]
    untagged: Vec<Spanned<u16>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FdbTable {
    address: Spanned<String>,
    port: Spanned<String>,
    vlan: Option<Spanned<u16>>,
    #[serde(default)]
    sticky: bool,
}

/// A bridge as the file describes it; `None` for a key that is absent.
#[derive(Debug, Default)]
pub struct BridgeFile {
    pub name: Option<String>,
    pub exclusion: Option<BridgeExclusion>,
    pub workers: Option<u16>,
    pub queues: Option<u16>,
    pub work: Option<Work>,
    pub interrupts: Option<InterruptKind>,
    pub max_addresses: Option<u32>,
    pub ageing: Option<u64>,
    pub vlan_filtering: bool,
    pub stp: Option<String>,
    pub control: Option<PathBuf>,
    pub mode: Option<u32>,
    pub pcap: Option<PathBuf>,
    pub ports: Vec<PortPlan>,
    pub addresses: Vec<AddressPlan>,
}

/// A port of the file.
#[derive(Debug)]
pub struct PortPlan {
    pub device: String,
    pub changes: Vec<PortChange>,
    /// For each VLAN: its number, whether it is the PVID, whether its frames are untagged.
    pub vlans: Vec<(u16, bool, bool)>,
}

/// A static address of the file.
#[derive(Debug)]
pub struct AddressPlan {
    pub address: String,
    pub port: String,
    pub vlan: Option<u16>,
    pub sticky: bool,
}

/// Reads a file.
///
/// # Errors
/// The file cannot be read, or is invalid: the message names the line.
pub fn read(path: &Path) -> Result<BridgeFile, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("{}: {error}; name a TOML file", path.display())))?;
    of_text(&text).map_err(|wrong| {
        let line = wrong.at.map_or(String::new(), |at| format!(", line {}", line_of(&text, at)));
        Failure::Usage(format!("{}{line}: {}", path.display(), wrong.what))
    })
}

/// The number of the line that contains a byte.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// An error, and its byte in the file.
#[derive(Debug)]
struct Wrong {
    at: Option<usize>,
    what: String,
}

/// The value, or its error with the value's position.
fn checked<T, R>(value: &Spanned<T>, check: impl FnOnce(&T) -> Result<R, String>) -> Result<R, Wrong> {
    check(value.get_ref()).map_err(|what| Wrong { at: Some(value.span().start), what })
}

fn optional<T, R>(value: Option<&Spanned<T>>, check: impl FnOnce(&T) -> Result<R, String>) -> Result<Option<R>, Wrong> {
    value.map(|value| checked(value, check)).transpose()
}

fn in_range<N: PartialOrd + Copy + std::fmt::Display>(
    name: &str,
    least: N,
    most: N,
) -> impl Fn(&N) -> Result<N, String> {
    move |number| {
        let fits = *number >= least && *number <= most;
        if fits { Ok(*number) } else { Err(format!("{name} is {least} to {most}, not {number}")) }
    }
}

fn of_text(text: &str) -> Result<BridgeFile, Wrong> {
    let file: File = toml::from_str(text).map_err(|error| {
        let what = format!("{}; docs/bridge.md shows the format of the file", error.message().replace('\n', " "));
        Wrong { at: error.span().map(|span| span.start), what }
    })?;
    let mut names: Vec<String> = Vec::new();
    let mut ports = Vec::new();
    for table in &file.port {
        let plan = of_port(table)?;
        let name = checked(&table.device, |device| {
            let name = request::tap_name(device)?.to_owned();
            if names.contains(&name) { Err(format!("{name} is a port already: remove one")) } else { Ok(name) }
        })?;
        names.push(name);
        ports.push(plan);
    }
    let addresses = file.fdb.iter().map(|table| of_address(table, &names)).collect::<Result<_, _>>()?;
    Ok(BridgeFile {
        name: optional(file.name.as_ref(), |name| control::check_name(&KIND, name).map(|()| name.clone()))?,
        exclusion: optional(file.exclusion.as_ref(), |name| {
            name.parse().map_err(|error| format!("{error}, not `{name}`"))
        })?,
        workers: optional(file.workers.as_ref(), in_range("workers", 1, 256))?,
        queues: optional(file.queues.as_ref(), in_range("queues", 1, 256))?,
        work: optional(file.work.as_ref(), |work| match work {
            WorkText::Frames(frames) => super::work(&frames.to_string()),
            WorkText::Word(word) => super::work(word),
        })?,
        interrupts: optional(file.interrupts.as_ref(), |name| {
            name.parse().map_err(|error| format!("{error}, not `{name}`"))
        })?,
        max_addresses: optional(file.max_addresses.as_ref(), in_range("max-addresses", 1, 1 << 24))?,
        ageing: optional(file.ageing.as_ref(), |seconds| request::ageing(*seconds).map(|_| *seconds))?,
        vlan_filtering: file.vlan_filtering.unwrap_or(false),
        stp: optional(file.stp.as_ref(), |protocol| match protocol.as_str() {
            "rstp" | "stp" => Ok(protocol.clone()),
            _ => Err(format!("stp is \"rstp\" or \"stp\", not `{protocol}`; leave the line out for none")),
        })?,
        control: file.control,
        mode: optional(file.mode.as_ref(), |mode| control::octal(mode))?,
        pcap: file.pcap,
        ports,
        addresses,
    })
}

fn of_port(table: &PortTable) -> Result<PortPlan, Wrong> {
    let changes = table.set.iter().map(|option| checked(option, |option| PortChange::of(option)));
    let changes = changes.collect::<Result<Vec<_>, _>>()?;
    let vid = |id: &Spanned<u16>| checked(id, |id| request::vid(*id).map(|_| *id));
    let pvid = table.pvid.as_ref().map(vid).transpose()?;
    let mut vlans = Vec::new();
    for (list, untagged) in [(&table.tagged, false), (&table.untagged, true)] {
        for id in list {
            let id = vid(id)?;
            vlans.push((id, pvid == Some(id), untagged));
        }
    }
    if let Some(pvid) = &table.pvid
        && !vlans.iter().any(|(id, ..)| id == pvid.get_ref())
    {
        let what = format!("pvid {0} is not a VLAN of the port: add {0} to its `untagged`", pvid.get_ref());
        return Err(Wrong { at: Some(pvid.span().start), what });
    }
    Ok(PortPlan { device: table.device.get_ref().clone(), changes, vlans })
}

fn of_address(table: &FdbTable, names: &[String]) -> Result<AddressPlan, Wrong> {
    let vlan = optional(table.vlan.as_ref(), |id| request::vid(*id).map(|_| *id))?;
    checked(&table.address, |address| request::key(address, vlan).map(|_| ()))?;
    let port = checked(&table.port, |port| {
        let name = port.strip_prefix("tap:").unwrap_or(port);
        let known = names.iter().any(|known| known == name);
        if known {
            Ok(name.to_owned())
        } else {
            Err(format!("{name} is not a port of this file: add a [[port]] with device = \"tap:{name}\""))
        }
    })?;
    Ok(AddressPlan { address: table.address.get_ref().clone(), port, vlan, sticky: table.sticky })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
name = "br7"
exclusion = "rcu"
workers = 4
queues = 4
work = "drain"
interrupts = "msi"
max-addresses = 100
ageing = 60
vlan-filtering = true
stp = "rstp"
control = "/run/br7.sock"
mode = "660"
pcap = "all.pcapng"

[[port]]
device = "tap:vm1"
set = ["isolated=on", "max_addresses=7"]
pvid = 10
untagged = [10]
tagged = [20, 30]

[[port]]
device = "tap:vm2"

[[fdb]]
address = "02:00:00:00:00:01"
port = "vm1"
vlan = 10
sticky = true
"#;

    #[test]
    fn a_whole_file_is_read() {
        let file = of_text(WHOLE).expect("it is right");
        assert_eq!((file.name.as_deref(), file.exclusion), (Some("br7"), Some(BridgeExclusion::Rcu)));
        assert_eq!((file.workers, file.queues, file.work), (Some(4), Some(4), Some(Work::Drain)));
        assert_eq!((file.interrupts, file.mode), (Some(InterruptKind::Msi), Some(0o660)));
        assert_eq!((file.ports.len(), file.ports[0].changes.len(), file.addresses.len()), (2, 2, 1));
        assert_eq!(file.ports[0].vlans, [(20, false, false), (30, false, false), (10, true, true)]);
        assert!(of_text("").expect("nothing is said").ports.is_empty());
    }

    /// Each mistake is reported with its line and the remedy.
    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("br0.toml");
        let mistakes = [
            ("workers = 0", 1, "1 to 256"),
            ("\n\nexclusion = \"fast\"", 3, "generic, mpsafe and rcu"),
            ("exclusoin = \"rcu\"", 1, "exclusion"),
            ("workers = \"two\"", 1, "docs/bridge.md"),
            ("workers = 2\nworkers = 3", 2, "docs/bridge.md"),
            ("work = 0", 1, "drain"),
            ("stp = \"mstp\"", 1, "leave the line out"),
            ("mode = \"9\"", 1, "octal"),
            ("ageing = 1", 1, "10 to 1000000"),
            ("name = \"a/b\"", 1, "letters"),
            ("interrupts = \"apic\"", 1, "msix"),
            ("[[port]]\ndevice = \"vm1\"", 2, "tap:vm1"),
            ("[[port]]\nset = []", 1, "device"),
            ("[[port]]\ndevice = \"tap:a\"\n[[port]]\ndevice = \"tap:a\"", 4, "remove one"),
            ("[[port]]\ndevice = \"tap:a\"\nset = [\"isolated\"]", 3, "take on"),
            ("[[port]]\ndevice = \"tap:a\"\npvid = 5", 3, "untagged"),
            ("[[port]]\ndevice = \"tap:a\"\ntagged = [1,\n4095]", 4, "1 to 4094"),
            ("[[fdb]]\naddress = \"02:00:00:00:00:01\"\nport = \"b\"", 3, "[[port]]"),
            ("[[fdb]]\naddress = \"ff:ff:ff:ff:ff:ff\"\nport = \"b\"", 2, "stations"),
            ("[[port", 1, "docs/bridge.md"),
        ];
        for (text, line, remedy) in mistakes {
            fs::write(&path, text).expect("a file");
            let Err(Failure::Usage(sentence)) = read(&path) else { panic!("{text}: it is accepted") };
            assert!(sentence.contains(&format!("br0.toml, line {line}:")), "{text}: {sentence}");
            assert!(sentence.contains(remedy) && !sentence.contains('\n'), "{text}: {sentence}");
        }
        let absent = read(&directory.path().join("none.toml"));
        assert!(matches!(absent, Err(Failure::Usage(sentence)) if sentence.contains("none.toml")));
    }
}
