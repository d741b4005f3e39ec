//! The declaration of an architecture: its name, its options, the variants that are tested, its properties.
//!
//! Each architecture's file has one `DECLARATION`. `select.rs` collects them. They are the only source for parsing and
//! printing names, for the generated tests, for the command line's list and for the tables in the documents. Code that
//! treats architectures differently reads a [`Properties`] field and never a name.

use crate::socket::HandlersRun;

/// The parameters of an architecture besides its name.
#[derive(Clone, Copy, Debug)]
pub struct ThreadConfig {
    /// CPUs to spread cells and threads over, at least 1.
    pub cpus: usize,
    /// Whether an architecture with threads of its own starts them. Otherwise the ticking thread does their work: the
    /// same code on one thread, in a repeatable order.
    pub own_threads: bool,
}

/// The declaration of one architecture. `T` is the argument of its constructor, which distinguishes its variants.
#[derive(Debug)]
pub struct Declaration<T: 'static> {
    /// The name, without options: `msgp`.
    pub name: &'static str,
    /// The syntax of its options, as help texts print it: `[:1|2|6][+coupled]`.
    pub options: &'static str,
    /// The variants that `#[every_arch]` tests and `--list` shows, at least one.
    pub variants: &'static [Variant<T>],
    /// Variants that are selected by their names alone: no list has them.
    pub unlisted: &'static [Variant<T>],
    /// The index of the variant that the name alone selects.
    pub default: usize,
    /// If the option is a number: the range accepted besides the variants.
    pub numbers: Option<NumericOption<T>>,
    /// Faults of measured systems, each an option of every variant and off by default; at most [`MOST_FAULTS`].
    pub faults: &'static [NamedFault<T>],
    /// Properties that other code may read; the same for all variants but the `exceptions`.
    pub properties: Properties,
    /// Variants with other properties, by their names.
    pub exceptions: &'static [(&'static str, Properties)],
    /// Its rows in the table of ARCHITECTURE.md.
    pub rows: &'static [TableRow],
}

/// One set of options.
#[derive(Debug)]
pub struct Variant<T> {
    /// The full name as it is printed: `msgp:2+coupled`.
    pub name: &'static str,
    /// Another spelling that is accepted.
    pub also: Option<&'static str>,
    /// A description in one line, for help texts and reports.
    pub about: &'static str,
    /// The argument of the constructor.
    pub parameter: T,
}

impl<T> Variant<T> {
    /// One with these fields, in their order.
    pub const fn new(name: &'static str, also: Option<&'static str>, about: &'static str, parameter: T) -> Self {
        Variant { name, also, about, parameter }
    }
}

/// An option that is a number: `connp-l:128`.
#[derive(Debug)]
pub struct NumericOption<T> {
    /// The counted things, in the plural.
    pub unit: &'static str,
    /// The smallest that is accepted.
    pub least: u16,
    /// The largest that is accepted.
    pub most: u16,
    /// Converts the number into the constructor's argument.
    pub parameter: fn(u16) -> T,
}

/// A fault of a system that the papers measured, kept so that their numbers can be reproduced and explained. It is an
/// option at the end of the name: `msgp:1+coupled+routes`. No list of variants has it.
#[derive(Debug)]
pub struct NamedFault<T> {
    /// The option, without its `+`.
    pub name: &'static str,
    /// A description in one line, for help texts.
    pub about: &'static str,
    /// The constructor's argument with the fault, from one without.
    pub with: fn(T) -> T,
}

/// Faults that one architecture can have.
pub const MOST_FAULTS: usize = 4;
/// The bits of an option below those of its faults.
const FAULTS_FROM: u32 = u16::BITS - MOST_FAULTS as u32;
/// The part of an option that is a number or an index.
const CHOICE: u16 = (1 << FAULTS_FROM) - 1;

/// The properties of an architecture that code outside `arch/` may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// One thread runs everything: no lock is contended, and further receive threads would have nothing to do.
    pub single_thread: bool,
    /// A thread that polls owns what it polls: its own calls are plain function calls, and those of other threads are
    /// messages to it.
    pub polling_thread_owns: bool,
    /// Connections are behind locks of the configured kind, so the choice of a lock kind has an effect.
    pub has_locks: bool,
    /// Its number counts groups of connections.
    pub groups: bool,
    /// It has threads of its own besides receive threads and callers.
    pub own_threads: bool,
    /// The segments of one flow that a thread posts from one batch run in the order in which it posted them. Only then
    /// may the last segment acknowledge all of them.
    pub keeps_batches_together: bool,
    /// Where the handlers of connections run, and so which outbox their answers join.
    pub handlers: HandlersRun,
    /// Rank by complexity: 0 is the simplest. Where measurements show no difference between two, the lab recommends the
    /// simpler.
    pub complexity: u8,
}

/// One row of the table of architectures; a cell of the table is what one runner at a time may touch.
#[derive(Debug)]
pub struct TableRow {
    /// The names that it describes, in Markdown.
    pub names: &'static str,
    /// The content of one cell.
    pub cell: &'static str,
    /// How a thread gets exclusive use of a cell.
    pub exclusive_use: &'static str,
    /// Which thread runs it.
    pub thread: &'static str,
    /// The kind of connection table.
    pub table: &'static str,
    /// The mechanism that keeps the events of one connection in order.
    pub order: &'static str,
}

impl<T: Copy> Declaration<T> {
    /// The constructor's argument for `option`, which [`Declared::parse`] returned.
    pub(super) fn parameter(&self, option: u16) -> T {
        let faultless = match &self.numbers {
            Some(numbers) => (numbers.parameter)(option & CHOICE),
            None => self.variant(option).parameter,
        };
        self.faults_in(option).fold(faultless, |parameter, fault| (fault.with)(parameter))
    }

    /// The variant of this index, counted through both lists.
    fn variant(&self, option: u16) -> &Variant<T> {
        let index = usize::from(option & CHOICE);
        self.variants.get(index).unwrap_or_else(|| &self.unlisted[index - self.variants.len()])
    }

    /// The faults that `option` has, in the order in which they are declared.
    fn faults_in(&self, option: u16) -> impl Iterator<Item = &NamedFault<T>> {
        let faults = self.faults.iter().enumerate();
        faults.filter(move |(index, _)| (option >> FAULTS_FROM >> index) & 1 != 0).map(|(_, fault)| fault)
    }

    /// Divides a name into its part before the faults, and the bits of the faults. `None`: a fault is named twice.
    fn split_faults<'n>(&self, mut name: &'n str) -> Option<(&'n str, u16)> {
        let mut bits = 0;
        while let Some((before, last)) = name.rsplit_once('+')
            && let Some(index) = self.faults.iter().position(|fault| fault.name == last)
        {
            let bit = 1 << FAULTS_FROM << index;
            if bits & bit != 0 {
                return None;
            }
            (name, bits) = (before, bits | bit);
        }
        Some((name, bits))
    }

    /// The option that a name without faults denotes.
    fn choice(&self, name: &str) -> Option<u16> {
        let name = if name == self.name { self.variants[self.default].name } else { name };
        if let Some(numbers) = &self.numbers {
            let number = name.strip_prefix(self.name)?.strip_prefix(':')?.parse().ok()?;
            return (numbers.least..=numbers.most).contains(&number).then_some(number);
        }
        let mut variants = self.variants.iter().chain(self.unlisted);
        let index = variants.position(|variant| variant.name == name || variant.also == Some(name))?;
        u16::try_from(index).ok()
    }
}

/// A declaration, for any type of its option. An *option* is the number in the name where the architecture has
/// [`NumericOption`], and otherwise an index into its variants, the unlisted ones last; its highest bits are the faults.
pub(super) trait Declared: Sync {
    fn name(&self) -> &'static str;
    /// `msgp[:1|2|6][+coupled][+routes]`
    fn usage(&self) -> String;
    /// Those of the variant that `option` selects.
    fn properties(&self, option: u16) -> &Properties;
    fn rows(&self) -> &'static [TableRow];
    /// The option that `name` denotes.
    fn parse(&self, name: &str) -> Option<u16>;
    /// The full name with `option`.
    fn print(&self, option: u16) -> String;
    /// A description of the variant in one line; all numbers share one.
    fn about(&self, option: u16) -> &'static str;
    /// `connp-l:N` and the meaning of `N`, if the option is a number.
    fn numbered(&self) -> Option<(String, String)>;
    /// The number that is the option, if it is one.
    fn number(&self, option: u16) -> Option<u16>;
    /// `msgp+routes` and what the fault is, for each.
    fn faults(&self) -> Vec<(String, &'static str)>;
}

impl<T: Copy + Sync> Declared for Declaration<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn usage(&self) -> String {
        let faults: String = self.faults.iter().map(|fault| format!("[+{}]", fault.name)).collect();
        format!("{}{}{faults}", self.name, self.options)
    }

    fn properties(&self, option: u16) -> &Properties {
        let differs =
            |name: &str| self.exceptions.iter().find(|(other, _)| *other == name).map(|(_, differing)| differing);
        let variant = if self.numbers.is_some() { None } else { differs(self.variant(option).name) };
        variant.unwrap_or(&self.properties)
    }

    fn rows(&self) -> &'static [TableRow] {
        self.rows
    }

    fn parse(&self, name: &str) -> Option<u16> {
        let (name, faults) = self.split_faults(name)?;
        Some(self.choice(name)? | faults)
    }

    fn print(&self, option: u16) -> String {
        let mut name = match self.numbers {
            Some(_) => format!("{}:{}", self.name, option & CHOICE),
            None => self.variant(option).name.to_owned(),
        };
        self.faults_in(option).for_each(|fault| name.extend(["+", fault.name]));
        name
    }

    fn about(&self, option: u16) -> &'static str {
        if self.numbers.is_some() { self.variants[self.default].about } else { self.variant(option).about }
    }

    fn numbered(&self) -> Option<(String, String)> {
        let NumericOption { unit, least, most, .. } = self.numbers.as_ref()?;
        Some((format!("{}:N", self.name), format!("with N {unit}, {least} to {most}")))
    }

    fn number(&self, option: u16) -> Option<u16> {
        self.numbers.is_some().then_some(option & CHOICE)
    }

    fn faults(&self) -> Vec<(String, &'static str)> {
        self.faults.iter().map(|fault| (format!("{}+{}", self.name, fault.name), fault.about)).collect()
    }
}
