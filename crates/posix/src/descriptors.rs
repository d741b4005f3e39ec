//! A process's table of descriptors: numbers, and the open file description that each refers to.
//!
//! Several descriptors may refer to one description (`dup`), and a call holds a reference to its description until it
//! returns. So a descriptor that is closed while another thread blocks in a call on it is removed from the table at
//! once, and its description ends with that call: "the blocking I/O system call holds a reference to the underlying
//! open file description, and this reference keeps the description open until the I/O system call completes"
//! (close(2)).
//!
//! The table is in parts, each under a lock of its own that is held for one look-up, so threads that use different
//! descriptors seldom contend. What may never happen: a description ends while a lock of the table is held.

use std::collections::BTreeSet;
use std::sync::Arc;

use sync::{CachePadded, Lock, LockClass, LockKind, Platform};

use crate::Errno;
use crate::description::Description;

/// Parts of the table; a power of two.
const PARTS: usize = 16;
/// The place of the numbers in the order of the table's locks.
const OF_NUMBERS: u32 = PARTS as u32;

/// The source of descriptor numbers: this table only ([`LowestFree`]), or a kernel, which reserves each number in its
/// own table too, so that no kernel file gets the same number. Any thread.
pub trait DescriptorNumbers: Send + Sync {
    /// Takes the lowest free number that is not below `from`.
    ///
    /// # Errors
    /// `EMFILE`, `EINVAL` for a `from` that no descriptor can have.
    fn take(&self, from: i32) -> Result<i32, Errno>;

    /// Takes the number `fd`, which no descriptor of this table has.
    ///
    /// # Errors
    /// `EBADF` for a number that no descriptor can have.
    fn take_this(&self, fd: i32) -> Result<(), Errno>;

    /// Returns a number.
    fn give_back(&self, fd: i32);
}

/// Numbers of this table only, the lowest free one first, as open(2) guarantees.
pub struct LowestFree<P: Platform> {
    lowest: i32,
    end: i32,
    free: Lock<Free, P>,
}

struct Free {
    /// Below `next`.
    holes: BTreeSet<i32>,
    /// Every number from here on is free.
    next: i32,
}

impl<P: Platform> LowestFree<P> {
    /// At most `most` numbers from `lowest` (3, if a program has its first three already).
    pub fn new(lowest: i32, most: i32) -> Self {
        let free = Free { holes: BTreeSet::new(), next: lowest };
        let free = Lock::new(LockKind::Blocking, LockClass::Descriptors, free);
        LowestFree { lowest, end: lowest.saturating_add(most), free }
    }

    /// Takes out `fd`, which is free.
    fn take_out(free: &mut Free, fd: i32) {
        if fd >= free.next {
            free.holes.extend(free.next..fd);
            free.next = fd + 1;
        } else {
            free.holes.remove(&fd);
        }
    }
}

impl<P: Platform> DescriptorNumbers for LowestFree<P> {
    fn take(&self, from: i32) -> Result<i32, Errno> {
        if !(0..self.end).contains(&from) {
            return Err(Errno::EINVAL);
        }
        let mut free = self.free.lock_nested(OF_NUMBERS);
        let from = from.max(self.lowest);
        let fd = free.holes.range(from..).next().copied().unwrap_or(free.next.max(from));
        if fd >= self.end {
            return Err(Errno::EMFILE);
        }
        Self::take_out(&mut free, fd);
        Ok(fd)
    }

    fn take_this(&self, fd: i32) -> Result<(), Errno> {
        if !(self.lowest..self.end).contains(&fd) {
            return Err(Errno::EBADF);
        }
        Self::take_out(&mut self.free.lock_nested(OF_NUMBERS), fd);
        Ok(())
    }

    fn give_back(&self, fd: i32) {
        self.free.lock_nested(OF_NUMBERS).holes.insert(fd);
    }
}

/// The entry of a number.
struct Descriptor<P: Platform> {
    description: Arc<Description<P>>,
    /// `FD_CLOEXEC`.
    close_on_exec: bool,
}

/// The previous description of a number.
type PreviousDescription<P> = Option<Arc<Description<P>>>;

/// Descriptors whose numbers have the same remainder, by their quotient.
type Part<P> = Vec<Option<Descriptor<P>>>;

/// The table. Any thread.
pub(crate) struct DescriptorTable<P: Platform> {
    numbers: Box<dyn DescriptorNumbers>,
    parts: [CachePadded<Lock<Part<P>, P>>; PARTS],
}

/// The part of `fd`, and its index there.
fn place_of(fd: i32) -> Result<(usize, usize), Errno> {
    let fd = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
    Ok((fd % PARTS, fd / PARTS))
}

impl<P: Platform> DescriptorTable<P> {
    pub(crate) fn new(numbers: Box<dyn DescriptorNumbers>) -> Self {
        let part = |_| CachePadded::new(Lock::new(LockKind::Blocking, LockClass::Descriptors, Vec::new()));
        DescriptorTable { numbers, parts: std::array::from_fn(part) }
    }

    /// Calls `use_it` with the entry of `fd`, if it is in use.
    fn with<R>(&self, fd: i32, use_it: impl FnOnce(&mut Descriptor<P>) -> R) -> Result<R, Errno> {
        let (part, place) = place_of(fd)?;
        let mut part = self.parts[part].lock_nested(part as u32);
        part.get_mut(place).and_then(Option::as_mut).map(use_it).ok_or(Errno::EBADF)
    }

    /// The description that `fd` refers to.
    pub(crate) fn get(&self, fd: i32) -> Result<Arc<Description<P>>, Errno> {
        self.with(fd, |descriptor| descriptor.description.clone())
    }

    /// A new descriptor for `description`, not below `from`.
    pub(crate) fn add(&self, description: Arc<Description<P>>, close_on_exec: bool, from: i32) -> Result<i32, Errno> {
        let fd = self.numbers.take(from)?;
        match self.put(fd, Descriptor { description, close_on_exec }) {
            // A number that the kernel has reused without our knowledge: its old entry is stale.
            Ok(stale) => drop(stale),
            Err(error) => {
                self.numbers.give_back(fd);
                return Err(error);
            }
        }
        Ok(fd)
    }

    /// Makes `fd` refer to `description` (`dup2`); returns the previous description, if it was open.
    pub(crate) fn replace(
        &self,
        fd: i32,
        description: Arc<Description<P>>,
        close_on_exec: bool,
    ) -> Result<PreviousDescription<P>, Errno> {
        if self.get(fd).is_err() {
            self.numbers.take_this(fd)?;
        }
        let before = self.put(fd, Descriptor { description, close_on_exec })?;
        Ok(before.map(|before| before.description))
    }

    fn put(&self, fd: i32, descriptor: Descriptor<P>) -> Result<Option<Descriptor<P>>, Errno> {
        let (part, place) = place_of(fd)?;
        let mut part = self.parts[part].lock_nested(part as u32);
        if part.len() <= place {
            part.resize_with(place + 1, || None);
        }
        Ok(part[place].replace(descriptor))
    }

    /// Takes `fd` out. The description ends with the last reference to it, which may be the one returned.
    pub(crate) fn remove(&self, fd: i32) -> Result<Arc<Description<P>>, Errno> {
        let (part, place) = place_of(fd)?;
        let taken = self.parts[part].lock_nested(part as u32).get_mut(place).and_then(Option::take);
        let Descriptor { description, .. } = taken.ok_or(Errno::EBADF)?;
        self.numbers.give_back(fd);
        Ok(description)
    }

    pub(crate) fn close_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        self.with(fd, |descriptor| descriptor.close_on_exec)
    }

    pub(crate) fn set_close_on_exec(&self, fd: i32, on: bool) -> Result<(), Errno> {
        self.with(fd, |descriptor| descriptor.close_on_exec = on)
    }

    /// Every descriptor that is open, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<(i32, Arc<Description<P>>)> {
        let mut all = Vec::new();
        for (remainder, part) in self.parts.iter().enumerate() {
            let part = part.lock_nested(remainder as u32);
            for (quotient, place) in part.iter().enumerate() {
                if let Some(descriptor) = place {
                    all.push(((quotient * PARTS + remainder) as i32, descriptor.description.clone()));
                }
            }
        }
        all.sort_by_key(|(fd, _)| *fd);
        all
    }
}
