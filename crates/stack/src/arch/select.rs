//! The list of process architectures, and everything derived from their declarations: parsing and printing of names,
//! help texts, tables for the documents, and construction.
//!
//! A new architecture is one file with a `DECLARATION` and a constructor `new`, and its line in the list below. Nothing
//! else in this file names one. An architecture outside this crate is added at run time ([`registered`]).

use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use sync::Platform;

use super::RunningArchitecture;
use super::declaration::{Declaration, Declared, Properties, TableRow};
use super::registered::{self, Constructor, NameTaken, Registered};
use crate::place::Contents;
use crate::shared::Shared;

pub use super::declaration::ThreadConfig;

/// Makes [`Family`], [`ALL`] and [`build`] from the modules of the architectures.
macro_rules! architectures {
    ($($module:ident),* $(,)?) => {
        /// An architecture without its options, under the name of its module.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types)]
        enum Family {
            $($module,)*
            /// One of another crate.
            Registered(Registered),
        }

        const FAMILIES: &[Family] = &[$(Family::$module),*];

        impl Family {
            fn declared(self) -> &'static dyn Declared {
                match self {
                    $(Family::$module => &super::$module::DECLARATION,)*
                    Family::Registered(registered) => registered.declared(),
                }
            }
        }

        const LISTED: usize = 0 $(+ super::$module::DECLARATION.variants.len())*;

        /// The names of the variants that `#[every_arch]` tests and `--list` shows, in the order of the list.
        pub const ALL: [&str; LISTED] = {
            let (mut names, mut at) = ([""; LISTED], 0);
            $(
                let (variants, mut index) = (super::$module::DECLARATION.variants, 0);
                while index < variants.len() {
                    names[at] = variants[index].name;
                    (at, index) = (at + 1, index + 1);
                }
            )*
            names
        };

        /// Makes the architecture that `arch` names, with `contents` in it.
        ///
        /// # Panics
        /// If `arch` is of another crate, and has not been registered for this platform.
        pub fn build<P: Platform>(
            arch: Architecture,
            shared: &Arc<Shared<P>>,
            thread_config: ThreadConfig,
            contents: Box<Contents<P>>,
        ) -> Arc<dyn RunningArchitecture<P>> {
            match arch.family {
                $(Family::$module => {
                    let parameter = super::$module::DECLARATION.parameter(arch.option);
                    super::$module::new(shared, parameter, thread_config, contents)
                })*
                Family::Registered(registered) => registered.build(arch.option, shared, thread_config, contents),
            }
        }
    };
}

architectures! {
    up,
    giant,
    msgp,
    msgp_pool,
    connp_t,
    connp_l,
    squeue,
    backlog,
    conn_thread,
    netisr,
    shared_nothing,
    steal,
    softint,
    layer,
    adaptive,
}

/// The architectures of this crate, and then those that have been registered.
fn families() -> impl Iterator<Item = Family> {
    FAMILIES.iter().copied().chain(registered::all().map(Family::Registered))
}

/// The architecture of a stack for which none was chosen.
const DEFAULT: Family = Family::adaptive;

/// A process architecture with its options. It is read from a name and printed as one; code that treats architectures
/// differently reads [`Architecture::properties`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Architecture {
    family: Family,
    /// See [`Declared`].
    option: u16,
}

/// Adds an architecture of another crate, for stacks on the platform `P`. Once it returns, [`Architecture`] reads its
/// names. A second call for the same declaration changes nothing but adds a platform. Any thread.
///
/// # Errors
/// [`NameTaken`]: another architecture has the name.
pub fn register<P: Platform, T: Copy + Sync + 'static>(
    declaration: &'static Declaration<T>,
    new: Constructor<P, T>,
) -> Result<(), NameTaken> {
    if FAMILIES.iter().any(|family| family.declared().name() == declaration.name) {
        return Err(NameTaken(declaration.name));
    }
    registered::add(declaration, new)
}

impl Architecture {
    /// The architecture of this name, for names that are constants in a program.
    ///
    /// # Panics
    /// If there is no such architecture.
    #[track_caller]
    pub fn named(name: &str) -> Architecture {
        name.parse().unwrap_or_else(|unknown: UnknownArchitecture| panic!("{unknown}"))
    }

    /// Reads a list of architectures: one name on each line. Empty lines, and lines that begin with `#`, are comments.
    ///
    /// # Errors
    /// The first name that is no architecture's.
    pub fn read_list(text: &str) -> Result<Vec<Architecture>, UnknownArchitecture> {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::parse).collect()
    }

    /// Every variant of [`ALL`], in that order.
    pub fn all() -> impl Iterator<Item = Architecture> + Clone {
        ALL.into_iter().map(Architecture::named)
    }

    /// The least complex of all variants that `wanted` accepts.
    pub fn simplest(wanted: impl Fn(&Properties) -> bool) -> Option<Architecture> {
        Architecture::all().filter(|arch| wanted(arch.properties())).min_by_key(|arch| arch.properties().complexity)
    }

    /// The architecture that others are compared with: the simplest, with one thread and no lock if there is one.
    pub fn reference() -> Architecture {
        Architecture::simplest(|properties| properties.single_thread).unwrap_or_default()
    }

    /// The architecture's name without its options: `msgp`.
    pub fn family(&self) -> &'static str {
        self.family.declared().name()
    }

    /// The number in the name, where the architecture's option is one: 128 of `connp-l:128`.
    pub fn parameter(&self) -> Option<u16> {
        self.family.declared().number(self.option)
    }

    /// Its properties, for other code.
    pub fn properties(&self) -> &'static Properties {
        self.family.declared().properties(self.option)
    }

    /// A description in one line, for help texts and reports.
    pub fn describe(&self) -> &'static str {
        self.family.declared().about(self.option)
    }

    /// One line for each variant, for each numeric option and for each fault: the name and a description.
    pub fn catalogue() -> String {
        let listed = Architecture::all().map(|arch| (arch.to_string(), arch.describe().to_owned()));
        let numbered = FAMILIES.iter().filter_map(|family| family.declared().numbered());
        let faults = FAMILIES.iter().flat_map(|family| family.declared().faults());
        let faults = faults.map(|(name, about)| (name, format!("a fault, off by default: {about}")));
        let mut text = String::new();
        for (name, about) in listed.chain(numbered).chain(faults) {
            let _ = writeln!(text, "{name:<18} {about}");
        }
        text
    }

    /// The table of architectures in ARCHITECTURE.md, in Markdown.
    pub fn table() -> String {
        let head =
            "| name | one cell is | exclusive use by | thread that runs it | table | order kept by | handlers run |";
        let mut text = format!("{head}\n|---|---|---|---|---|---|---|\n");
        for family in FAMILIES {
            let handlers = family.declared().properties(0).handlers;
            for TableRow { names, cell, exclusive_use, thread, table, order } in family.declared().rows() {
                let _ = writeln!(
                    text,
                    "| {names} | {cell} | {exclusive_use} | {thread} | {table} | {order} | {handlers} |"
                );
            }
        }
        text
    }
}

impl Default for Architecture {
    fn default() -> Architecture {
        Architecture::named(DEFAULT.declared().name())
    }
}

impl FromStr for Architecture {
    type Err = UnknownArchitecture;

    fn from_str(name: &str) -> Result<Self, UnknownArchitecture> {
        let mut architectures = families().filter_map(|family| {
            let option = family.declared().parse(name)?;
            Some(Architecture { family, option })
        });
        architectures.next().ok_or_else(|| UnknownArchitecture(name.to_owned()))
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.family.declared().print(self.option))
    }
}

impl TryFrom<&str> for Architecture {
    type Error = UnknownArchitecture;

    fn try_from(name: &str) -> Result<Architecture, UnknownArchitecture> {
        name.parse()
    }
}

impl TryFrom<&String> for Architecture {
    type Error = UnknownArchitecture;

    fn try_from(name: &String) -> Result<Architecture, UnknownArchitecture> {
        name.parse()
    }
}

impl From<std::convert::Infallible> for UnknownArchitecture {
    fn from(never: std::convert::Infallible) -> UnknownArchitecture {
        match never {}
    }
}

impl fmt::Debug for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({self})")
    }
}

/// There is no architecture of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownArchitecture(String);

impl fmt::Display for UnknownArchitecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usages: Vec<String> = families().map(|family| family.declared().usage()).collect();
        let (last, others) = usages.split_last().ok_or(fmt::Error)?;
        write!(f, "unknown architecture {:?}: use {}, or {last}", self.0, others.join(", "))
    }
}

impl std::error::Error for UnknownArchitecture {}

#[cfg(test)]
mod tests;
