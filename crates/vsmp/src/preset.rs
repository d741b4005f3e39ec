//! Machines of the papers, as files in which each value names its origin.
//!
//! A preset is a table of values, each `{ value = .., origin = ".." }` with a reason where the origin does not say it.
//! Origins: *paper* (stated there), *measured* (on the machine itself, by a calibration), *derived* (computed from a
//! paper's figures), *fitted* (to reproduce a paper's figure, or rates of the machine itself), *assumed*. Fitted and assumed
//! values describe the model, not a machine. A missing or an unknown value is an error: no value has a default.
//!
//! In `footprint` the word `shared` instead of a number says that the lines of an object are among those that all CPUs write at
//! a step (`shared`), so that Heddle's are not charged besides.
//!
//! The footprint and the habits belong to the paper's kernel, not to its hardware. A run with [`Kernel::Heddle`] uses
//! the hardware alone.

use std::collections::BTreeMap;
use std::fmt;

use pktbuf::Caching;
use serde::Deserialize;
use sync::{LockKind, Object, Step, ThreadClass};

use crate::card::CardConfig;
use crate::costs::{Costs, Footprint};

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Stated by a paper.
    Paper,
    /// Measured on the machine itself.
    Measured,
    /// Computed from statements of a paper or a data sheet.
    Derived,
    /// Fitted to reproduce a figure of a paper, or rates of the machine itself.
    Fitted,
    /// Assumed, without a source.
    Assumed,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Origin::Paper => "paper",
            Origin::Measured => "measured",
            Origin::Derived => "derived",
            Origin::Fitted => "fitted",
            Origin::Assumed => "assumed",
        })
    }
}

/// A value with its origin.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The value: a number, or the name of a lock kind.
    value: toml::Value,
    /// Its origin.
    pub origin: Origin,
    /// The paper, the computation, or the reason.
    #[serde(default)]
    pub why: String,
}

impl Value {
    /// The value, if it is a number.
    pub fn number(&self) -> Option<u64> {
        self.value.as_integer().and_then(|number| u64::try_from(number).ok())
    }

    /// The value as text.
    pub fn text(&self) -> String {
        self.value.as_str().map_or_else(|| self.value.as_integer().unwrap_or_default().to_string(), str::to_owned)
    }
}

/// Which kernel runs on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Heddle, with its own memory and its own habits.
    Heddle,
    /// Heddle's exclusion, with the footprint and the habits of the paper's kernel.
    OfThePaper,
}

/// Properties of the paper's kernel that determine its operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Habits {
    /// The kind of its locks.
    pub lock_kind: LockKind,
    /// Frames that an interrupt thread takes before it wakes their receivers.
    pub receive_batch: usize,
    /// Free space in a send buffer at which a writer is woken.
    pub low_water: Option<u32>,
    /// Whether a page is appended to a send buffer whole as soon as the low-water mark is free, and refused before it
    /// reaches TCP where it is not, as BSD's sendfile does. Otherwise what fits is appended.
    pub whole_pages: bool,
    /// Whether ports are chosen so that receive queues and CPUs have equal shares of the connections, as in the papers'
    /// measurements. Otherwise ports are random.
    pub even_spread: bool,
}

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: String,
    /// The machine that it models, in a sentence.
    pub describes: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Cards of the machine.
    pub cards: usize,
    /// Each of them.
    pub card: CardConfig,
    /// Bytes of all send buffers together, from [`LEAST_SEND_MEMORY`] up. Many connections share them evenly
    /// ([`senders`](crate::workload::senders)), under both kernels.
    pub send_memory: usize,
    /// The habits of the paper's kernel.
    pub habits: Habits,
    /// The paper's measurements on it.
    pub points: Vec<Point>,
    costs: Costs,
    values: BTreeMap<String, Value>,
    /// As it was read.
    file: toml::Table,
}

/// A measurement of the paper. Values that the paper does not have are absent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The architecture, or the papers' UP, by its name on the command line.
    pub arch: String,
    /// Connections.
    pub connections: usize,
    /// Payload, in megabits a second.
    pub megabits: Option<f64>,
    /// Cache misses for each kilobyte of payload.
    pub misses: Option<f64>,
    /// Cycles of the scheduler for each kilobyte.
    pub scheduler: Option<f64>,
    /// Acquisitions of the shared lock, or of a group's lock, that did not succeed at the first try, in percent.
    pub failures: Option<f64>,
    /// Whether values of the preset were fitted to it. The other points are held out, to validate the model.
    #[serde(default)]
    pub fitted: bool,
}

/// A value of a machine that was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Section and name (`machine.memory`).
    pub name: String,
    /// The number.
    pub number: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// The measurement and its uncertainty, or the reason.
    pub why: String,
}

/// Why a preset cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetError(String);

impl fmt::Display for PresetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PresetError {}

/// The least that a machine may have for send buffers, in bytes: two pages for one connection.
pub const LEAST_SEND_MEMORY: usize = 8192;

/// The presets that come with the crate, by name.
const BUILT_IN: [(&str, &str); 5] = [
    ("opteron-275", include_str!("../presets/opteron-275.toml")),
    ("sparccenter-2000", include_str!("../presets/sparccenter-2000.toml")),
    ("sgi-challenge", include_str!("../presets/sgi-challenge.toml")),
    ("atom-c2758", include_str!("../presets/atom-c2758.toml")),
    ("server-64", include_str!("../presets/server-64.toml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    describes: String,
    machine: BTreeMap<String, Value>,
    work: BTreeMap<String, Value>,
    scheduler: BTreeMap<String, Value>,
    priorities: BTreeMap<String, Value>,
    card: BTreeMap<String, Value>,
    footprint: BTreeMap<String, Value>,
    shared: BTreeMap<String, Value>,
    descriptors: BTreeMap<String, Value>,
    habits: BTreeMap<String, Value>,
    #[serde(default)]
    point: Vec<Point>,
}

/// Takes values out of a table, and reports those that are left as unknown.
struct Table<'a> {
    section: &'a str,
    left: BTreeMap<String, Value>,
    taken: &'a mut BTreeMap<String, Value>,
}

impl Table<'_> {
    fn take(&mut self, name: &str) -> Result<toml::Value, PresetError> {
        let found = self.left.remove(name);
        let value = found.ok_or_else(|| PresetError(format!("`{name}` is missing in [{}]", self.section)))?;
        let inner = value.value.clone();
        self.taken.insert(format!("{}.{name}", self.section), value);
        Ok(inner)
    }

    fn number(&mut self, name: &str) -> Result<u64, PresetError> {
        let value = self.take(name)?;
        let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
        number
            .ok_or_else(|| PresetError(format!("`{name}` in [{}] is not a number from 0 up: {value:?}", self.section)))
    }

    /// `None`: it is not there.
    fn number_if_any(&mut self, name: &str) -> Result<Option<u64>, PresetError> {
        if self.left.contains_key(name) { self.number(name).map(Some) } else { Ok(None) }
    }

    /// `None`: it is the word `shared`.
    fn number_or_shared(&mut self, name: &str) -> Result<Option<u64>, PresetError> {
        let is_shared = |value: &Value| value.value.as_str() == Some("shared");
        if self.left.get(name).is_some_and(is_shared) {
            self.take(name).map(|_| None)
        } else {
            self.number(name).map(Some)
        }
    }

    fn text(&mut self, name: &str) -> Result<String, PresetError> {
        let value = self.take(name)?;
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| PresetError(format!("`{name}` in [{}] is not a name: {value:?}", self.section)))
    }

    fn done(self) -> Result<(), PresetError> {
        match self.left.keys().next() {
            Some(unknown) => Err(PresetError(format!("`{unknown}` in [{}] is not a known name", self.section))),
            None => Ok(()),
        }
    }
}

/// One number for each step, by name.
fn by_step(mut table: Table<'_>) -> Result<[u64; Step::ALL.len()], PresetError> {
    let mut numbers = [0; Step::ALL.len()];
    for step in Step::ALL {
        numbers[step as usize] = table.number(step.name())?;
    }
    table.done()?;
    Ok(numbers)
}

impl Preset {
    /// The names of the presets that come with the crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A preset that comes with the crate.
    ///
    /// # Errors
    /// There is no preset of this name.
    pub fn named(name: &str) -> Result<Preset, PresetError> {
        let known = || Preset::names().collect::<Vec<_>>().join(", ");
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        let (_, text) =
            found.ok_or_else(|| PresetError(format!("no machine is called `{name}`; there are {}", known())))?;
        Preset::parse(text)
    }

    /// Reads a preset.
    ///
    /// # Errors
    /// The text is not a preset: a value is missing, unknown, or out of range.
    pub fn parse(text: &str) -> Result<Preset, PresetError> {
        Preset::read(toml::from_str(text).map_err(|error| PresetError(error.to_string()))?)
    }

    fn read(whole: toml::Table) -> Result<Preset, PresetError> {
        let file: File = whole.clone().try_into().map_err(|error| PresetError(error.to_string()))?;
        let mut values = BTreeMap::new();
        let work = by_step(Table { section: "work", left: file.work, taken: &mut values })?;
        let shared = by_step(Table { section: "shared", left: file.shared, taken: &mut values })?;
        let descriptors = by_step(Table { section: "descriptors", left: file.descriptors, taken: &mut values })?;
        let lines = |numbers: [u64; Step::ALL.len()]| numbers.map(|number| number as usize);
        let mut footprint = footprint(Table { section: "footprint", left: file.footprint, taken: &mut values })?;
        (footprint.shared, footprint.descriptors) = (lines(shared), lines(descriptors));
        let priorities = priorities(Table { section: "priorities", left: file.priorities, taken: &mut values })?;
        let (cards, card) = card(Table { section: "card", left: file.card, taken: &mut values })?;
        let habits = habits(Table { section: "habits", left: file.habits, taken: &mut values })?;
        let mut machine = Table { section: "machine", left: file.machine, taken: &mut values };
        let cpus = machine.number("cpus")? as usize;
        let send_memory = send_memory(machine.number("send_memory")?)?;
        let mut costs = Costs {
            megahertz: machine.number("megahertz")?.max(1),
            cpus_per_socket: machine.number("cpus_per_socket")?.max(1) as usize,
            work,
            read_modify_write: machine.number("read_modify_write")?,
            memory: machine.number("memory")?,
            near: machine.number("near")?,
            far: machine.number("far")?,
            upgrade: machine.number("upgrade")?,
            following: machine.number_if_any("following")?.unwrap_or(100).min(100),
            together: machine.number_if_any("together")?.unwrap_or(100).clamp(1, 100),
            relax: machine.number("relax")?.max(1),
            cache: (machine.number("cache_sets")? as usize, machine.number("cache_ways")? as usize),
            payload_line: machine.number("payload_line")?,
            bus_line: machine.number_if_any("bus_line")?.unwrap_or(0),
            priorities,
            footprint,
            ..Costs::opteron_275()
        };
        machine.done()?;
        if !costs.cache.0.is_power_of_two() || !(1..=255).contains(&costs.cache.1) {
            return Err(PresetError("a cache has a power of two of sets, and 1 to 255 ways".to_owned()));
        }
        schedule(Table { section: "scheduler", left: file.scheduler, taken: &mut values }, &mut costs)?;
        let File { name, describes, point: points, .. } = file;
        Ok(Preset { name, describes, cpus, cards, card, send_memory, habits, points, costs, values, file: whole })
    }

    /// The same machine with one value changed, by section and name (`machine.memory`). Its origin stays.
    ///
    /// # Errors
    /// There is no such value, it is not a number, or the number is out of range.
    pub fn with(&self, name: &str, number: u64) -> Result<Preset, PresetError> {
        let unknown = || PresetError(format!("no value is called `{name}`: --values lists them"));
        let (section, key) = name.split_once('.').ok_or_else(unknown)?;
        let mut file = self.file.clone();
        let place = file.get_mut(section).and_then(|table| table.get_mut(key)).and_then(|value| value.get_mut("value"));
        let place = place.ok_or_else(unknown)?;
        if !place.is_integer() {
            return Err(PresetError(format!("`{name}` is not a number")));
        }
        let number = i64::try_from(number).map_err(|_| PresetError(format!("`{name}` cannot be {number}")))?;
        *place = toml::Value::Integer(number);
        Preset::read(file)
    }

    /// A machine with these values instead of this preset's, and without its points. The values that are left are the
    /// preset's, as assumed ones.
    ///
    /// # Errors
    /// There is no such value, or a number is out of range.
    pub fn measured(&self, name: &str, describes: &str, values: &[Measured]) -> Result<Preset, PresetError> {
        let mut file = self.file.clone();
        file.remove("point");
        file.insert("name".to_owned(), name.into());
        file.insert("describes".to_owned(), describes.into());
        for Measured { name, number, origin, why } in values {
            let unknown = || PresetError(format!("no value is called `{name}`"));
            let (section, key) = name.split_once('.').ok_or_else(unknown)?;
            let table = file.get_mut(section).and_then(toml::Value::as_table_mut).ok_or_else(unknown)?;
            let number = i64::try_from(*number).map_err(|_| PresetError(format!("`{name}` cannot be {number}")))?;
            let mut value = toml::Table::new();
            value.insert("value".to_owned(), number.into());
            value.insert("origin".to_owned(), origin.to_string().into());
            value.insert("why".to_owned(), why.as_str().into());
            table.insert(key.to_owned(), value.into());
        }
        Preset::read(file)
    }

    /// As a file that [`Preset::parse`] reads.
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| format!("{:?}", text.replace(|letter: char| letter.is_control(), " "));
        let mut text = format!("name = {}\ndescribes = {}\n", quoted(&self.name), quoted(&self.describes));
        let mut section = "";
        for (name, value) in &self.values {
            let Some((of, key)) = name.split_once('.') else { continue };
            if of != section {
                text += &format!("\n[{of}]\n");
                section = of;
            }
            let shown = value.number().map_or_else(|| quoted(&value.text()), |number| number.to_string());
            text += &format!(
                "{key} = {{ value = {shown}, origin = \"{}\", why = {} }}\n",
                value.origin,
                quoted(&value.why)
            );
        }
        text
    }

    /// Reads a preset from a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a preset; the message names it.
    pub fn load(path: &std::path::Path) -> Result<Preset, PresetError> {
        let named = |error: &dyn fmt::Display| PresetError(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
        Preset::parse(&text).map_err(|error| named(&error))
    }

    /// The paper's measurement of an architecture with a number of connections.
    pub fn point(&self, arch: &str, connections: usize) -> Option<&Point> {
        self.points.iter().find(|point| point.arch == arch && point.connections == connections)
    }

    /// Its costs.
    pub fn costs(&self, kernel: Kernel) -> Costs {
        let mut costs = self.costs.clone();
        if kernel == Kernel::Heddle {
            costs.footprint = Footprint { descriptors: costs.footprint.descriptors, ..Footprint::default() };
            costs.caching = Caching::PerThread;
        }
        costs
    }

    /// Its values, by section and name, with their origins.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// How many of its values have an origin.
    pub fn count(&self, origin: Origin) -> usize {
        self.values.values().filter(|value| value.origin == origin).count()
    }
}

fn footprint(mut table: Table<'_>) -> Result<Footprint, PresetError> {
    let mut footprint = Footprint::default();
    for object in Object::ALL {
        let total = table.number_or_shared(object.name())?;
        footprint.objects[object as usize] = total.unwrap_or(0) as usize;
        footprint.within_shared[object as usize] = total.is_none();
    }
    footprint.application = table.number("application")? as usize;
    footprint.completion = table.number("completion")? as usize;
    footprint.zero_copy = table.number("zero_copy")? != 0;
    table.done()?;
    Ok(footprint)
}

fn priorities(mut table: Table<'_>) -> Result<[u8; ThreadClass::ALL.len()], PresetError> {
    let mut priorities = [0; ThreadClass::ALL.len()];
    for class in ThreadClass::ALL {
        priorities[class as usize] = table.number(class.name())?.min(255) as u8;
    }
    table.done()?;
    Ok(priorities)
}

/// From the least that IPv6 asks of a link (RFC 8200 section 5) to the largest packet.
fn mtu(bytes: u64) -> Result<usize, PresetError> {
    let fits = (1280..=65_535).contains(&bytes);
    fits.then_some(bytes as usize)
        .ok_or_else(|| PresetError(format!("`card.mtu` is {bytes}, and not 1280 to 65535 bytes")))
}

fn send_memory(bytes: u64) -> Result<usize, PresetError> {
    usize::try_from(bytes).ok().filter(|bytes| *bytes >= LEAST_SEND_MEMORY).ok_or_else(|| {
        PresetError(format!("`machine.send_memory` is {bytes}, and not {LEAST_SEND_MEMORY} bytes or more"))
    })
}

fn card(mut table: Table<'_>) -> Result<(usize, CardConfig), PresetError> {
    let cards = table.number("cards")? as usize;
    let card = CardConfig {
        queues: table.number("queues")?.max(1) as usize,
        ring: table.number("ring")?.max(1) as usize,
        megabits: table.number("megabits")?.max(1),
        dma: table.number("dma")?,
        latency: table.number("latency")?,
        interrupt_gap: table.number("interrupt_gap")?,
        client_delay: table.number("client_delay")?,
        mtu: mtu(table.number("mtu")?)?,
        segmentation: Some(table.number("segmentation")? as usize).filter(|bytes| *bytes > 0),
    };
    table.done()?;
    Ok((cards, card))
}

fn habits(mut table: Table<'_>) -> Result<Habits, PresetError> {
    let kind = table.text("lock_kind")?;
    let lock_kind = kind.parse().map_err(|unknown: sync::UnknownLockKind| PresetError(unknown.to_string()))?;
    let receive_batch = table.number("receive_batch")?.max(1) as usize;
    let low_water = Some(table.number("low_water")? as u32).filter(|mark| *mark > 0);
    let whole_pages = table.number("whole_pages")? != 0;
    let even_spread = table.number("even_spread")? != 0;
    table.done()?;
    Ok(Habits { lock_kind, receive_batch, low_water, whole_pages, even_spread })
}

fn schedule(mut table: Table<'_>, costs: &mut Costs) -> Result<(), PresetError> {
    costs.system_call = table.number("system_call")?;
    costs.wake = table.number("wake")?;
    costs.wake_idle = table.number_if_any("wake_idle")?.unwrap_or(0);
    costs.wake_lines = table.number("wake_lines")? as usize;
    costs.turnstile = table.number("turnstile")?;
    costs.switch = table.number("switch")?;
    costs.switch_lines = table.number("switch_lines")? as usize;
    costs.idle_exit = table.number("idle_exit")?;
    costs.slice = table.number("slice")?.max(1);
    costs.interrupt = table.number("interrupt")?;
    table.done()
}
