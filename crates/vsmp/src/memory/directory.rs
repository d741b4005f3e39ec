//! Which CPUs have which line, and in which state: the directory of a machine whose caches keep a line modified in one
//! place or shared in several (MSI).
//!
//! The state of a line is a few words at its number: the CPU that has it modified, and a bit for each CPU that has it
//! at all. The cost of an access depends on nothing else.

use super::cache::Cache;
use super::{LINE, Zone};
use crate::costs::Costs;

/// The state of every line: `1 + words` words each, in memory that the kernel fills with zeros when it is first used.
struct Lines {
    words: *mut u64,
    stride: usize,
}

impl Lines {
    fn bytes(stride: usize) -> usize {
        (Zone::LINES + Zone::IMAGINED) * stride * size_of::<u64>()
    }

    fn new(cpus: usize) -> Lines {
        let stride = 1 + cpus.div_ceil(64);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at no address in particular.
        let words = unsafe {
            libc::mmap(std::ptr::null_mut(), Self::bytes(stride), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert!(words != libc::MAP_FAILED, "no address space is left for the directory: raise `ulimit -v`");
        Lines { words: words.cast(), stride }
    }

    /// The owner (plus one) and the sharers of a line.
    #[inline(always)]
    fn at(&mut self, line: usize) -> (&mut u64, &mut [u64]) {
        assert!(line < Zone::LINES + Zone::IMAGINED);
        // SAFETY: the mapping has `stride` words for each line, initialised by the kernel; `&mut self` is the only
        // way to them.
        let words = unsafe { std::slice::from_raw_parts_mut(self.words.add(line * self.stride), self.stride) };
        let (owner, sharers) = words.split_at_mut(1);
        (&mut owner[0], sharers)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; no reference into it is left.
        unsafe { libc::munmap(self.words.cast(), Self::bytes(self.stride)) };
    }
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The CPU had the line.
    Hit,
    /// It had the line, and others had it too, which a write ends.
    Upgrade,
    /// Memory had it.
    Memory,
    /// Another CPU's cache had changed it: this CPU's.
    Transfer(usize),
}

impl Access {
    /// Cycles beyond the cost of a hit; `cpu` makes the access.
    pub(crate) fn cost(self, costs: &Costs, cpu: usize) -> u64 {
        let socket = |cpu| cpu / costs.cpus_per_socket;
        match self {
            Access::Hit => 0,
            Access::Upgrade => costs.upgrade,
            Access::Memory => costs.memory,
            Access::Transfer(from) if socket(from) == socket(cpu) => costs.near,
            Access::Transfer(_) => costs.far,
        }
    }

    pub(crate) fn is_miss(self) -> bool {
        matches!(self, Access::Memory | Access::Transfer(_))
    }
}

/// Directory and caches of a machine.
pub(crate) struct Memory {
    lines: Lines,
    caches: Vec<Cache>,
}

impl Memory {
    pub(crate) fn new(cpus: usize, (sets, ways): (usize, usize)) -> Memory {
        Memory { lines: Lines::new(cpus), caches: (0..cpus).map(|_| Cache::new(sets, ways)).collect() }
    }

    /// Whether the CPU has the line.
    pub(crate) fn has(&mut self, cpu: usize, line: usize) -> bool {
        self.lines.at(line).1[cpu / 64] & 1 << (cpu % 64) != 0
    }

    /// A device writes a line: no cache has it any more.
    pub(crate) fn written_by_device(&mut self, line: usize) {
        let (owner, sharers) = self.lines.at(line);
        *owner = 0;
        sharers.fill(0);
    }

    /// An access of one CPU. `invalidated` is called with each other CPU that loses the line by it.
    #[inline]
    pub(crate) fn access(&mut self, cpu: usize, line: usize, write: bool, invalidated: impl FnMut(usize)) -> Access {
        let (owner, sharers) = self.lines.at(line);
        let (word, bit, me) = (cpu / 64, 1 << (cpu % 64), cpu as u64 + 1);
        let present = sharers[word] & bit != 0;
        if present && (!write || *owner == me) {
            return Access::Hit;
        }
        let found = match *owner {
            _ if present => Access::Upgrade,
            0 => Access::Memory,
            other => Access::Transfer(other as usize - 1),
        };
        if write {
            let alone = each_but(sharers, cpu, invalidated);
            sharers.fill(0);
            *owner = me;
            sharers[word] = bit;
            if present {
                return if alone { Access::Hit } else { found };
            }
        } else {
            *owner = 0;
            sharers[word] |= bit;
        }
        if let Some(evicted) = self.caches[cpu].fill(line) {
            let (owner, sharers) = self.lines.at(evicted);
            sharers[word] &= !bit;
            if *owner == me {
                *owner = 0;
            }
        }
        found
    }
}

/// Calls `lost` with each CPU of a mask but one; true if there is none.
#[inline]
fn each_but(sharers: &[u64], but: usize, mut lost: impl FnMut(usize)) -> bool {
    let mut alone = true;
    for (word, &bits) in sharers.iter().enumerate() {
        let mut left = if word == but / 64 { bits & !(1 << (but % 64)) } else { bits };
        while left != 0 {
            alone = false;
            lost(word * 64 + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
    alone
}

/// The lines of `length` bytes at an address of the arena.
pub(crate) fn lines_of(first: usize, address: usize, length: usize) -> std::ops::Range<usize> {
    first..first + (address % LINE + length).div_ceil(LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states of MSI, on 2 CPUs and on 256.
    #[test]
    fn a_line_is_modified_in_one_place_or_shared_in_several() {
        for (cpus, other) in [(2, 1), (256, 255)] {
            let mut memory = Memory::new(cpus, (2, 2));
            let lost = |_| panic!("no CPU has the line");
            assert_eq!(memory.access(0, 8, false, lost), Access::Memory);
            assert_eq!(memory.access(0, 8, true, lost), Access::Hit, "nobody has to be told");
            assert_eq!(memory.access(other, 8, false, lost), Access::Transfer(0));
            assert_eq!(memory.access(0, 8, false, lost), Access::Hit, "a read leaves it where it was");
            let mut told = Vec::new();
            assert_eq!(memory.access(other, 8, true, |cpu| told.push(cpu)), Access::Upgrade);
            assert_eq!((told, memory.has(0, 8)), (vec![0], false));
            assert_eq!(memory.access(0, 8, true, |_| ()), Access::Transfer(other));
        }
    }

    #[test]
    fn a_full_set_gives_up_its_oldest_line() {
        let mut memory = Memory::new(1, (1, 2));
        for line in [1, 2] {
            assert_eq!(memory.access(0, line, true, |_| ()), Access::Memory);
        }
        assert_eq!(memory.access(0, 1, false, |_| ()), Access::Hit);
        assert_eq!(memory.access(0, 3, false, |_| ()), Access::Memory);
        assert_eq!(memory.access(0, 1, false, |_| ()), Access::Memory, "it was the oldest, and is written back");
    }

    #[test]
    fn an_object_has_the_lines_that_it_lies_on() {
        assert_eq!(lines_of(10, 64 * 10, 64), 10..11);
        assert_eq!(lines_of(10, 64 * 10 + 63, 2), 10..12);
        assert_eq!(lines_of(10, 64 * 10, 0), 10..10);
    }
}
