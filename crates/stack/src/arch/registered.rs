//! Architectures that are declared in other crates: an experiment, a lecture, a product that has one of its own.
//!
//! [`register`](super::select::register) adds one before stacks are built; from then on its name is read like any other.
//! It is in no list of variants. The constructor is generic over the platform, and a program registers it once for each platform that it uses.
//! `crates/stack/examples/cpu_groups` is an architecture of this kind; CONTRIBUTING.md says how to add one.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use sync::Platform;

use super::RunningArchitecture;
use super::declaration::{Declaration, Declared, ThreadConfig};
use crate::place::Contents;
use crate::shared::Shared;

/// The constructor of an architecture: the stack, the option as the declaration gives it, CPUs and threads, and what the
/// stack has before: connections, listeners and sockets.
pub type Constructor<P, T> = fn(&Arc<Shared<P>>, T, ThreadConfig, Box<Contents<P>>) -> Arc<dyn RunningArchitecture<P>>;

/// Not of the platform: registration is over before what a checker or a simulator looks at begins, and a name has one
/// meaning on all platforms.
static LIST: RwLock<Vec<Entry>> = RwLock::new(Vec::new());

struct Entry {
    declared: &'static dyn Declared,
    /// An `Arc<dyn Constructs<P>>` for each platform `P`.
    constructors: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

/// An architecture that has been registered: its place in the list.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Registered(u16);

/// A constructor with its declaration, for any type of the option.
trait Constructs<P: Platform>: Send + Sync {
    fn make(
        &self,
        option: u16,
        shared: &Arc<Shared<P>>,
        thread_config: ThreadConfig,
        contents: Box<Contents<P>>,
    ) -> Arc<dyn RunningArchitecture<P>>;
}

struct ConstructorOf<P: Platform, T: 'static> {
    declaration: &'static Declaration<T>,
    new: Constructor<P, T>,
}

impl<P: Platform, T: Copy + Sync> Constructs<P> for ConstructorOf<P, T> {
    fn make(
        &self,
        option: u16,
        shared: &Arc<Shared<P>>,
        thread_config: ThreadConfig,
        contents: Box<Contents<P>>,
    ) -> Arc<dyn RunningArchitecture<P>> {
        (self.new)(shared, self.declaration.parameter(option), thread_config, contents)
    }
}

/// The name is that of another architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameTaken(pub(super) &'static str);

impl fmt::Display for NameTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is an architecture {:?} already: give this one another name", self.0)
    }
}

impl std::error::Error for NameTaken {}

/// Adds one; see [`register`](super::select::register), which has compared its name with those of this crate.
pub(super) fn add<P: Platform, T: Copy + Sync + 'static>(
    declaration: &'static Declaration<T>,
    new: Constructor<P, T>,
) -> Result<(), NameTaken> {
    let maker: Arc<dyn Constructs<P>> = Arc::new(ConstructorOf { declaration, new });
    let mut list = LIST.write().unwrap_or_else(PoisonError::into_inner);
    let known = list.iter().position(|entry| entry.declared.name() == declaration.name);
    let is_same = |entry: &Entry| std::ptr::addr_eq(entry.declared, declaration);
    let place = match known {
        None => {
            list.push(Entry { declared: declaration, constructors: HashMap::new() });
            list.len() - 1
        }
        Some(place) if is_same(&list[place]) => place,
        Some(_) => return Err(NameTaken(declaration.name)),
    };
    list[place].constructors.insert(TypeId::of::<P>(), Box::new(maker));
    Ok(())
}

/// All that have been registered.
pub(super) fn all() -> impl Iterator<Item = Registered> {
    let count = LIST.read().unwrap_or_else(PoisonError::into_inner).len();
    (0..count).map(|place| Registered(place as u16))
}

impl Registered {
    /// Its declaration.
    pub(super) fn declared(self) -> &'static dyn Declared {
        LIST.read().unwrap_or_else(PoisonError::into_inner)[usize::from(self.0)].declared
    }

    /// Constructs it.
    ///
    /// # Panics
    /// If it has not been registered for this platform.
    pub(super) fn build<P: Platform>(
        self,
        option: u16,
        shared: &Arc<Shared<P>>,
        thread_config: ThreadConfig,
        contents: Box<Contents<P>>,
    ) -> Arc<dyn RunningArchitecture<P>> {
        let list = LIST.read().unwrap_or_else(PoisonError::into_inner);
        let Entry { declared, constructors } = &list[usize::from(self.0)];
        let maker =
            constructors.get(&TypeId::of::<P>()).and_then(|maker| maker.downcast_ref::<Arc<dyn Constructs<P>>>());
        let maker = maker.cloned().unwrap_or_else(|| {
            panic!("{} is not registered for the platform {}", declared.name(), std::any::type_name::<P>())
        });
        drop(list);
        maker.make(option, shared, thread_config, contents)
    }
}
