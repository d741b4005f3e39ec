//! Sets of ports, which are combined word by word: finding the ports by which a frame is flooded takes some instructions for
//! each 64 ports of the bridge, and does not visit ports that are in none of the sets.

use core::fmt;

/// The number of a bridge's port: small, given by the caller when it adds the port, and the index of its bit in sets.
/// At most [`PortNumber::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNumber(u16);

impl PortNumber {
    /// The largest: a port number of spanning tree has twelve bits, and 0 is none (IEEE 802.1D-2004 section 9.2.7).
    pub const MAX: u16 = 4094;

    /// The port of this number; `None` above [`PortNumber::MAX`].
    #[inline]
    pub const fn new(number: u16) -> Option<PortNumber> {
        if number <= PortNumber::MAX { Some(PortNumber(number)) } else { None }
    }

    /// The port with this number, which must come from [`PortNumber::get`].
    #[inline]
    pub(crate) const fn from_bits(bits: u16) -> PortNumber {
        PortNumber(bits)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PortNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Ports in a word.
pub(crate) const WORD: usize = u64::BITS as usize;

/// A set of ports. Grows when a port is inserted; words that it does not have are empty.
#[derive(Clone, Debug, Default)]
pub struct PortSet {
    words: Vec<u64>,
}

impl PortSet {
    /// No ports.
    pub const fn new() -> PortSet {
        PortSet { words: Vec::new() }
    }

    /// Adds a port.
    pub fn insert(&mut self, port: PortNumber) {
        let word = port.index() / WORD;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (port.index() % WORD);
    }

    /// Takes a port out.
    pub fn remove(&mut self, port: PortNumber) {
        if let Some(word) = self.words.get_mut(port.index() / WORD) {
            *word &= !(1 << (port.index() % WORD));
        }
    }

    /// Adds a port, or takes it out.
    pub fn set(&mut self, port: PortNumber, member: bool) {
        if member { self.insert(port) } else { self.remove(port) }
    }

    /// Whether a port is in it.
    #[inline]
    pub fn contains(&self, port: PortNumber) -> bool {
        self.word(port.index() / WORD) >> (port.index() % WORD) & 1 != 0
    }

    /// Whether no port is in it.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Bit `b` of word `w` stands for port `64 w + b`.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// Words that are not all empty by construction.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }

    /// The ports in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = PortNumber> + '_ {
        let of_word = |(at, word): (usize, &u64)| {
            let word = *word;
            (0..WORD).filter(move |bit| word >> bit & 1 != 0).map(move |bit| PortNumber((at * WORD + bit) as u16))
        };
        self.words.iter().enumerate().flat_map(of_word)
    }
}

impl PartialEq for PortSet {
    fn eq(&self, other: &PortSet) -> bool {
        (0..self.words().max(other.words())).all(|at| self.word(at) == other.word(at))
    }
}

impl Eq for PortSet {}

impl FromIterator<PortNumber> for PortSet {
    fn from_iter<I: IntoIterator<Item = PortNumber>>(ports: I) -> PortSet {
        let mut set = PortSet::new();
        ports.into_iter().for_each(|port| set.insert(port));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_many_words_have_a_bit_each() {
        let numbers = [0, 1, 63, 64, 127, 128, 1000, 4094];
        let mut set: PortSet = numbers.iter().filter_map(|n| PortNumber::new(*n)).collect();
        assert_eq!(set.iter().map(PortNumber::get).collect::<Vec<_>>(), numbers);
        assert!((0..=4094).all(|n| set.contains(PortNumber(n)) == numbers.contains(&n)));
        numbers.iter().for_each(|n| set.remove(PortNumber(*n)));
        assert!(set.is_empty() && set == PortSet::new());
        assert_eq!(PortNumber::new(4095), None);
    }
}
