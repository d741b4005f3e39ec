//! The requests to a running bridge and its answers, as JSON.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge::{EntryFlags, FdbKey, FloodKind, PortConfig, PortNumber, PortState, StormRate, Vid};
use heddle::device::Device;
use heddle::device::pcap::{CaptureDevice, Recording};
use heddle::tap::{Offloads, Tap, TapOptions};
use observe::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use switch::{Configure, PortReport, Switch, Work};
use sync::{Platform, Real};
use wire::ethernet::MacAddr;

use super::config::PortPlan;
use super::intrctl;

/// A request, as it is sent over the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// The ports.
    Show,
    /// Add a port.
    Add { device: String },
    /// Remove a port.
    Del { device: String },
    /// Change a port's configuration: `option=value`.
    Set { device: String, options: Vec<String> },
    /// The forwarding database.
    Fdb,
    /// Add an address.
    FdbAdd { address: String, device: String, vlan: Option<u16>, sticky: bool },
    /// Remove an address.
    FdbDel { address: String, vlan: Option<u16> },
    /// Remove the learned addresses.
    FdbFlush { device: Option<String>, vlan: Option<u16> },
    /// The VLANs.
    Vlan,
    /// Begin a membership.
    VlanAdd { device: String, vid: u16, pvid: bool, untagged: bool },
    /// End a membership.
    VlanDel { device: String, vid: u16 },
    /// Distinguish VLANs, or not.
    VlanFiltering { on: bool },
    /// Spanning tree.
    Stp,
    /// Counters.
    Stats,
    /// The interrupt vectors.
    IntrList,
    /// Move a vector.
    IntrAffinity { vector: String, cpu: usize },
    /// Keep interrupts away from a processor, or allow them again.
    IntrShield { cpu: usize, shielded: bool },
    /// Spread the vectors.
    IntrDistribute,
    /// Work per interrupt; `None`: all frames in the ring.
    IntrWork { frames: Option<usize> },
}

/// A running bridge.
pub struct Running {
    /// The bridge.
    pub switch: Switch<Real>,
    /// How devices are opened.
    pub queues: usize,
    /// The capture of all ports.
    pub capture: Option<Capture>,
}

/// A file that the frames of all ports are recorded in.
pub struct Capture {
    path: PathBuf,
    /// Made with the first port.
    recording: Mutex<Option<Arc<Recording>>>,
}

impl Capture {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn to(path: &Path) -> Result<Capture, String> {
        File::create(path).map_err(|error| format!("{}: {error}; name another file with --pcap", path.display()))?;
        Ok(Capture { path: path.to_owned(), recording: Mutex::new(None) })
    }

    /// The device, recorded.
    fn around(&self, device: Box<dyn Device>) -> Result<CaptureDevice, String> {
        // The data under this lock is always consistent.
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(recording) = &*recording {
            return Ok(CaptureDevice::join(device, recording));
        }
        let file = File::create(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
        let recorder = CaptureDevice::new(device, file);
        *recording = Some(recorder.recording());
        Ok(recorder)
    }

    /// Writes the buffered frames: at the end of the bridge, and now and then.
    ///
    /// # Errors
    /// The recording has ended early; the message has the reason.
    pub fn flush(&self) -> Result<(), String> {
        let recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(recording) = &*recording else { return Ok(()) };
        recording.flush();
        match recording.take_error() {
            Some(error) => Err(format!("{}: recording ended: {error}; free some space", self.path.display())),
            None => Ok(()),
        }
    }
}

/// The platform's time.
pub fn now() -> Time {
    Time::from_nanos(Real::now())
}

type Answer = Result<Value, String>;

impl Running {
    /// Opens a device, named as in `tap:vm1`, and makes it a port under the name `vm1`.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn add(&self, device: &str) -> Result<PortNumber, String> {
        let name = tap_name(device)?;
        self.check_is_new(name)?;
        // Checksums only: a super-segment would have to be cut for the other ports.
        let options = TapOptions { queues: self.queues, offloads: Offloads::Checksum, ..TapOptions::default() };
        let tap = Tap::open(name, options).map_err(|error| error.to_string())?;
        self.attach(name, Box::new(tap))
    }

    /// Makes a device a port under this name.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn attach(&self, name: &str, mut device: Box<dyn Device>) -> Result<PortNumber, String> {
        self.check_is_new(name)?;
        if let Some(capture) = &self.capture {
            device = Box::new(capture.around(device)?);
        }
        self.switch
            .add_port(name, &mut *device, PortConfig { mtu: bridge::LONGEST_FRAME, ..PortConfig::default() }, now())
            .map_err(|error| format!("{name}: {error}"))
    }

    fn check_is_new(&self, name: &str) -> Result<(), String> {
        if self.number(name).is_ok() { Err(format!("{name} is a port already")) } else { Ok(()) }
    }

    /// Adds a port of a file, with its options and VLANs.
    ///
    /// # Errors
    /// As [`Running::add`].
    pub fn add_planned(&self, plan: &PortPlan) -> Result<(), String> {
        let port = self.add(&plan.device)?;
        self.switch.configure(|bridge| {
            if !plan.vlans.is_empty() {
                // The file lists all VLANs of the port, so the default VLAN of a new port is removed.
                bridge.leave(Vid::DEFAULT, port);
                bridge.configure(port, &mut |config| config.pvid = None);
            }
            for &(id, pvid, untagged) in &plan.vlans {
                let Some(id) = Vid::new(id) else { continue };
                bridge.join(id, port, untagged);
                if pvid {
                    bridge.configure(port, &mut |config| config.pvid = Some(id));
                }
            }
            plan.changes.iter().for_each(|change| change.make(bridge, port));
        });
        Ok(())
    }

    /// Answers a request.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn answer(&self, request: Request) -> Answer {
        match request {
            Request::Show => Ok(self.show()),
            Request::Add { device } => self.add(&device).map(|number| json!({ "number": number.get() })),
            Request::Del { device } => {
                let number = self.number(&device)?;
                if self.switch.remove_port(number, now()) { Ok(json!({})) } else { Err(no_port(&device)) }
            }
            Request::Set { device, options } => self.set(&device, &options),
            Request::Fdb => Ok(self.fdb()),
            Request::FdbAdd { address, device, vlan, sticky } => {
                let (key, port) = (key(&address, vlan)?, self.number(&device)?);
                let done = self.switch.configure(|bridge| bridge.set_fixed(key, port, sticky, now()));
                if done { Ok(json!({})) } else { Err("the table has the maximum number of static entries".to_owned()) }
            }
            Request::FdbDel { address, vlan } => {
                let key = key(&address, vlan)?;
                let done = self.switch.configure(|bridge| bridge.remove(key));
                if done { Ok(json!({})) } else { Err(format!("{address} is not in the forwarding database")) }
            }
            Request::FdbFlush { device, vlan } => {
                let port = device.as_deref().map(|device| self.number(device)).transpose()?;
                let vlan = vlan.map(vid).transpose()?;
                let gone = move |key: FdbKey, entry: bridge::FdbEntry| {
                    port.is_none_or(|port| entry.port() == port) && (vlan.is_none() || key.vlan() == vlan)
                };
                Ok(json!({ "flushed": self.switch.configure(|bridge| bridge.flush(&gone)) }))
            }
            Request::Vlan => Ok(self.vlans()),
            Request::VlanAdd { device, vid: id, pvid, untagged } => {
                let (port, id) = (self.number(&device)?, vid(id)?);
                self.switch.configure(|bridge| {
                    bridge.join(id, port, untagged);
                    if pvid {
                        bridge.configure(port, &mut |config| config.pvid = Some(id));
                    }
                });
                Ok(json!({}))
            }
            Request::VlanDel { device, vid: id } => {
                let (port, id) = (self.number(&device)?, vid(id)?);
                let was = self.switch.configure(|bridge| {
                    bridge.configure(port, &mut |config| config.pvid = config.pvid.filter(|pvid| *pvid != id));
                    bridge.leave(id, port)
                });
                if was { Ok(json!({})) } else { Err(format!("{device} is not a member of VLAN {}", id.get())) }
            }
            Request::VlanFiltering { on } => {
                self.switch.configure(|bridge| bridge.set_filtering(on));
                Ok(json!({}))
            }
            Request::Stp => Ok(self.tree()),
            Request::Stats => Ok(self.stats()),
            Request::IntrList => Ok(intrctl::list(self)),
            Request::IntrAffinity { vector, cpu } => intrctl::affinity(self, &vector, cpu),
            Request::IntrShield { cpu, shielded } => intrctl::moved(self.switch.shield(cpu, shielded)),
            Request::IntrDistribute => intrctl::moved(self.switch.distribute()),
            Request::IntrWork { frames } => {
                self.switch.set_work(frames.map_or(Work::Drain, Work::Frames));
                Ok(json!({}))
            }
        }
    }

    /// The number of a port, named with or without `tap:`.
    fn number(&self, device: &str) -> Result<PortNumber, String> {
        let name = device.strip_prefix("tap:").unwrap_or(device);
        let find = |ports: &[Option<PortReport>]| {
            ports.iter().flatten().find(|port| port.name == name).map(|port| port.number)
        };
        self.switch.look(|_, ports| find(ports)).ok_or_else(|| no_port(device))
    }

    fn show(&self) -> Value {
        self.switch.look(|bridge, ports| {
            let rows = ports.iter().flatten().filter_map(|port| {
                let member = bridge.members().get(port.number)?;
                let config = member.config();
                Some(json!({
                    "ifname": port.name, "number": port.number.get(), "state": state(member.state()), "mtu": config.mtu,
                    "learning": config.learning, "flood": config.flood, "mcast_flood": config.multicast_flood,
                    "bcast_flood": config.broadcast_flood, "isolated": config.isolated, "hairpin": config.hairpin,
                    "max_addresses": config.max_addresses,
                    "storm_bcast": shown_rate(config.storm.0[FloodKind::Broadcast.index()]),
                    "storm_mcast": shown_rate(config.storm.0[FloodKind::Multicast.index()]),
                    "storm_unknown": shown_rate(config.storm.0[FloodKind::UnknownUnicast.index()]),
                }))
            });
            let ports: Vec<Value> = rows.collect();
            json!({
                "exclusion": self.switch.exclusion().name(), "workers": self.switch.workers(),
                "vlan_filtering": bridge.members().is_filtering(), "ageing_time": bridge.ageing_time().as_secs(),
                "ports": ports,
            })
        })
    }

    fn fdb(&self) -> Value {
        let now = now();
        self.switch.look(|bridge, ports| {
            let mut entries = bridge.entries();
            entries.retain(|(_, entry)| !entry.is_expired(now, bridge.ageing_time()));
            entries.sort_by_key(|(key, _)| *key);
            let rows = entries.into_iter().map(|(key, entry)| {
                let EntryFlags { fixed, sticky } = entry.flags();
                json!({
                    "mac": key.address().to_string(), "ifname": name_of(ports, entry.port()),
                    "vlan": key.vlan().map(Vid::get), "state": if fixed { "static" } else { "learned" }, "sticky": sticky,
                    "used": if fixed { Value::Null } else { entry.age(now).as_secs().into() },
                })
            });
            rows.collect()
        })
    }

    fn vlans(&self) -> Value {
        self.switch.look(|bridge, ports| {
            let members = bridge.members();
            let rows = ports.iter().flatten().map(|port| {
                let pvid = members.get(port.number).and_then(|member| member.config().pvid);
                let of = members.vlans().iter().filter(|(_, vlan)| vlan.members().contains(port.number));
                let vlans: Vec<Value> = of
                    .map(|(id, vlan)| {
                        let untagged = vlan.untagged().contains(port.number);
                        json!({ "vlan": id.get(), "pvid": pvid == Some(id), "untagged": untagged })
                    })
                    .collect();
                json!({ "ifname": port.name, "vlans": vlans })
            });
            rows.collect()
        })
    }

    fn tree(&self) -> Value {
        self.switch.look(|bridge, ports| {
            let Some(tree) = bridge.tree() else { return json!({ "protocol": "none" }) };
            let rows = ports.iter().flatten().filter_map(|port| {
                let status = tree.status(port.number)?;
                let protocol = if status.rapid { "rstp" } else { "stp" };
                Some(json!({
                    "ifname": port.name, "role": format!("{:?}", status.role).to_lowercase(), "state": state(status.state),
                    "edge": status.edge, "protocol": protocol,
                }))
            });
            let rows: Vec<Value> = rows.collect();
            json!({
                "protocol": "rstp", "bridge": identifier(tree.id()), "root": identifier(tree.root()),
                "root_cost": tree.root_cost(), "root_port": tree.root_port().map(|port| name_of(ports, port)), "ports": rows,
            })
        })
    }

    fn stats(&self) -> Value {
        let counters = self.switch.counters();
        let drops = counters.drops().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.name().to_owned(), n.into()));
        let events = counters.counters().filter(|(_, n)| *n > 0).map(|(name, n)| (name.name().to_owned(), n.into()));
        let (drops, events): (serde_json::Map<_, _>, serde_json::Map<_, _>) = (drops.collect(), events.collect());
        let ports: Vec<Value> = self.switch.look(|_, ports| {
            let row = |port: &PortReport| {
                let traffic = port.traffic;
                let drops = port.device_drops.iter().map(|(reason, n)| ((*reason).to_owned(), (*n).into()));
                json!({
                    "ifname": port.name, "rx_frames": traffic.rx_frames, "rx_bytes": traffic.rx_bytes,
                    "tx_frames": traffic.tx_frames, "tx_bytes": traffic.tx_bytes,
                    "device_drops": drops.collect::<serde_json::Map<String, Value>>(),
                })
            };
            ports.iter().flatten().map(row).collect()
        });
        json!({ "ports": ports, "drops": drops, "events": events })
    }

    fn set(&self, device: &str, options: &[String]) -> Answer {
        let port = self.number(device)?;
        let changes = options.iter().map(|option| PortChange::of(option)).collect::<Result<Vec<_>, _>>()?;
        self.switch.configure(|bridge| changes.iter().for_each(|change| change.make(bridge, port)));
        Ok(json!({}))
    }
}

/// The name of the TAP interface behind a device.
///
/// # Errors
/// A sentence for the user.
pub fn tap_name(device: &str) -> Result<&str, String> {
    match device.split_once(':') {
        Some(("tap", name)) if !name.is_empty() => Ok(name),
        _ => Err(format!("`{device}` is not a device for a bridge: name a TAP interface, as in tap:vm1")),
    }
}

/// One `option=value` of a port.
#[derive(Clone, Copy, Debug)]
pub enum PortChange {
    Flag(fn(&mut PortConfig) -> &mut bool, bool),
    MaxAddresses(Option<u32>),
    Storm(FloodKind, Option<StormRate>),
    Up(bool),
}

impl PortChange {
    /// Parses the text.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn of(option: &str) -> Result<PortChange, String> {
        let wrong = || {
            format!(
                "`{option}` is not an option of a port: learning, flood, mcast_flood, bcast_flood, isolated and hairpin take on \
                 or off, max_addresses a number or none, storm_bcast, storm_mcast and storm_unknown frames a second (as in 1000 \
                 or 1000/50, with a burst) or none, state up or down"
            )
        };
        let (name, value) = option.split_once('=').ok_or_else(wrong)?;
        let on = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(wrong()),
        };
        match name {
            "learning" => Ok(PortChange::Flag(|config| &mut config.learning, on()?)),
            "flood" => Ok(PortChange::Flag(|config| &mut config.flood, on()?)),
            "mcast_flood" => Ok(PortChange::Flag(|config| &mut config.multicast_flood, on()?)),
            "bcast_flood" => Ok(PortChange::Flag(|config| &mut config.broadcast_flood, on()?)),
            "isolated" => Ok(PortChange::Flag(|config| &mut config.isolated, on()?)),
            "hairpin" => Ok(PortChange::Flag(|config| &mut config.hairpin, on()?)),
            "max_addresses" if value == "none" => Ok(PortChange::MaxAddresses(None)),
            "max_addresses" => Ok(PortChange::MaxAddresses(Some(value.parse().map_err(|_| wrong())?))),
            "storm_bcast" => Ok(PortChange::Storm(FloodKind::Broadcast, storm_rate(value).ok_or_else(wrong)?)),
            "storm_mcast" => Ok(PortChange::Storm(FloodKind::Multicast, storm_rate(value).ok_or_else(wrong)?)),
            "storm_unknown" => Ok(PortChange::Storm(FloodKind::UnknownUnicast, storm_rate(value).ok_or_else(wrong)?)),
            "state" if value == "up" || value == "down" => Ok(PortChange::Up(value == "up")),
            _ => Err(wrong()),
        }
    }

    fn make(self, bridge: &mut dyn Configure, port: PortNumber) {
        let _ = match self {
            PortChange::Flag(flag, on) => bridge.configure(port, &mut |config| *flag(config) = on),
            PortChange::MaxAddresses(most) => bridge.configure(port, &mut |config| config.max_addresses = most),
            PortChange::Storm(kind, rate) => bridge.configure(port, &mut |config| config.storm.0[kind.index()] = rate),
            PortChange::Up(up) => {
                bridge.set_up(port, up, now());
                true
            }
        };
    }
}

/// A rate of storm control: frames a second, and the burst, without which it is a tenth of a second's. `None`: it is none.
#[expect(clippy::option_option, reason = "there may be no limit")]
fn storm_rate(text: &str) -> Option<Option<StormRate>> {
    if text == "none" {
        return Some(None);
    }
    let (rate, burst) = text.split_once('/').map_or((text, None), |(rate, burst)| (rate, Some(burst)));
    let per_second: u32 = rate.parse().ok().filter(|rate| *rate > 0)?;
    let burst = burst.map_or(Some((per_second / 10).max(1)), |burst| burst.parse().ok().filter(|burst| *burst > 0))?;
    Some(Some(StormRate { per_second, burst }))
}

/// A rate as [`storm_rate`] reads it.
fn shown_rate(rate: Option<StormRate>) -> Value {
    rate.map_or(Value::Null, |StormRate { per_second, burst }| format!("{per_second}/{burst}").into())
}

fn no_port(device: &str) -> String {
    format!("{device} is not a port of this bridge; `heddle bridge show` lists them")
}

/// A VLAN's number.
///
/// # Errors
/// A sentence for the user.
pub fn vid(id: u16) -> Result<Vid, String> {
    Vid::new(id).ok_or_else(|| format!("{id} is not a VLAN: use 1 to 4094"))
}

/// The key of a station's address.
///
/// # Errors
/// A sentence for the user.
pub fn key(address: &str, vlan: Option<u16>) -> Result<FdbKey, String> {
    let parsed: MacAddr = address.parse().map_err(|error| format!("{address}: {error}"))?;
    if !parsed.is_unicast() {
        return Err(format!("{address} is a group or zero: the forwarding database has addresses of stations"));
    }
    Ok(FdbKey::new(parsed, vlan.map(vid).transpose()?))
}

fn state(state: PortState) -> &'static str {
    match state {
        PortState::Discarding => "blocking",
        PortState::Learning => "learning",
        PortState::Forwarding => "forwarding",
    }
}

fn name_of(ports: &[Option<PortReport>], number: PortNumber) -> String {
    let port = ports.get(number.index()).and_then(Option::as_ref);
    port.map_or_else(|| format!("port {number}"), |port| port.name.clone())
}

fn identifier(id: wire::stp::BridgeId) -> String {
    format!("{:04x}.{}", id.0 >> 48, id.address())
}

/// The ageing time of a command line.
pub fn ageing(seconds: u64) -> Result<Duration, String> {
    let allowed = (10..=1_000_000).contains(&seconds);
    if allowed { Ok(Duration::from_secs(seconds)) } else { Err("the ageing time is 10 to 1000000 seconds".to_owned()) }
}
