//! The declaration of an architecture: its name, its options, the variants that are tested, its properties.
//!
//! Each architecture's file has one `DECLARATION`. `select.rs` collects them. They are the only source for parsing and
//! printing names, for the generated tests, for the command line's list and for the tables in the documents. Code that
//! treats architectures differently reads a [`Properties`] field and never a name.

use crate::socket::HandlersRun;

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
    /// Properties that other code may read; the same for all variants.
    pub properties: Properties,
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
        match &self.numbers {
            Some(numbers) => (numbers.parameter)(option),
            None => self.variant(option).parameter,
        }
    }

    /// The variant of this index, counted through both lists.
    fn variant(&self, option: u16) -> &Variant<T> {
        let index = usize::from(option);
        self.variants.get(index).unwrap_or_else(|| &self.unlisted[index - self.variants.len()])
    }
}

/// A declaration, for any type of its option. An *option* is the number in the name where the architecture has
/// [`NumericOption`], and otherwise an index into its variants, the unlisted ones last.
pub(super) trait Declared: Sync {
    fn name(&self) -> &'static str;
    /// `msgp[:1|2|6][+coupled]`
    fn usage(&self) -> String;
    fn properties(&self) -> &Properties;
    fn rows(&self) -> &'static [TableRow];
    /// The option that `name` denotes.
    fn parse(&self, name: &str) -> Option<u16>;
    /// The full name with `option`.
    fn print(&self, option: u16) -> String;
    /// A description of the variant in one line; all numbers share one.
    fn about(&self, option: u16) -> &'static str;
    /// `connp-l:N` and the meaning of `N`, if the option is a number.
    fn numbered(&self) -> Option<(String, String)>;
    /// Whether the option is a number.
    fn is_numbered(&self) -> bool;
}

impl<T: Copy + Sync> Declared for Declaration<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn usage(&self) -> String {
        format!("{}{}", self.name, self.options)
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn rows(&self) -> &'static [TableRow] {
        self.rows
    }

    fn parse(&self, name: &str) -> Option<u16> {
        let name = if name == self.name { self.variants[self.default].name } else { name };
        if let Some(numbers) = &self.numbers {
            let number = name.strip_prefix(self.name)?.strip_prefix(':')?.parse().ok()?;
            return (numbers.least..=numbers.most).contains(&number).then_some(number);
        }
        let mut variants = self.variants.iter().chain(self.unlisted);
        let index = variants.position(|variant| variant.name == name || variant.also == Some(name))?;
        u16::try_from(index).ok()
    }

    fn print(&self, option: u16) -> String {
        match self.numbers {
            Some(_) => format!("{}:{option}", self.name),
            None => self.variant(option).name.to_owned(),
        }
    }

    fn about(&self, option: u16) -> &'static str {
        if self.numbers.is_some() { self.variants[self.default].about } else { self.variant(option).about }
    }

    fn numbered(&self) -> Option<(String, String)> {
        let NumericOption { unit, least, most, .. } = self.numbers.as_ref()?;
        Some((format!("{}:N", self.name), format!("with N {unit}, {least} to {most}")))
    }

    fn is_numbered(&self) -> bool {
        self.numbers.is_some()
    }
}
