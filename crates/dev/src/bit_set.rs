//! A set of small numbers: queues, ports, cells.
//!
//! Numbers below 64 are in one word, so that a set costs as much as a mask; larger ones are in an array of words that
//! is allocated when the first of them is inserted. There is no largest number, and no two numbers share a bit: a
//! recorded wake-up is neither lost nor misdirected. Belongs to one thread.

/// A set of numbers. Free of allocation while all of them are below 64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BitSet {
    low: u64,
    /// Bit `b` of word `w` represents number `64 + 64 w + b`; cleared, but not freed, by [`BitSet::clear`].
    high: Option<Box<[u64]>>,
}

/// Numbers in a word.
const WORD: usize = u64::BITS as usize;

impl BitSet {
    /// Nothing.
    #[inline]
    pub const fn new() -> BitSet {
        BitSet { low: 0, high: None }
    }

    /// Adds a number.
    #[inline]
    pub fn insert(&mut self, number: usize) {
        if number < WORD { self.low |= 1 << number } else { self.insert_high(number - WORD) }
    }

    #[cold]
    fn insert_high(&mut self, number: usize) {
        let words = number / WORD + 1;
        if self.words().len() < words {
            let mut larger = self.words().to_vec();
            larger.resize(words.next_power_of_two(), 0);
            self.high = Some(larger.into());
        }
        if let Some(word) = self.high.as_mut().and_then(|high| high.get_mut(words - 1)) {
            *word |= 1 << (number % WORD);
        }
    }

    fn words(&self) -> &[u64] {
        self.high.as_deref().unwrap_or_default()
    }

    /// Whether a number is in it.
    #[inline]
    pub fn contains(&self, number: usize) -> bool {
        let (word, bit) = (number / WORD, number % WORD);
        let word = if word == 0 { self.low } else { self.words().get(word - 1).copied().unwrap_or(0) };
        word >> bit & 1 != 0
    }

    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.low == 0 && (self.high.is_none() || self.is_empty_high())
    }

    #[cold]
    fn is_empty_high(&self) -> bool {
        self.words().iter().all(|word| *word == 0)
    }

    /// Whether it has no memory of its own, so that dropping it does nothing.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.high.is_none()
    }

    /// The set as a mask, if no number in it has ever been 64 or more.
    #[inline]
    pub fn as_mask(&self) -> Option<u64> {
        self.high.is_none().then_some(self.low)
    }

    /// The only number, if there is one and none has ever been 64 or more.
    #[inline]
    pub fn single(&self) -> Option<usize> {
        let is_single = self.high.is_none() && self.low != 0 && self.low & (self.low - 1) == 0;
        is_single.then(|| self.low.trailing_zeros() as usize)
    }

    /// Takes the numbers below 64 out.
    #[inline]
    pub fn clear_low(&mut self) {
        self.low = 0;
    }

    /// Takes all numbers out.
    #[inline]
    pub fn clear(&mut self) {
        self.low = 0;
        if self.high.is_some() {
            self.clear_high();
        }
    }

    #[cold]
    fn clear_high(&mut self) {
        if let Some(high) = &mut self.high {
            high.fill(0);
        }
    }

    /// Moves all numbers into `into`; nothing is left here.
    #[inline]
    pub fn move_to(&mut self, into: &mut BitSet) {
        into.low |= std::mem::take(&mut self.low);
        if self.high.is_some() {
            self.move_high(into);
        }
    }

    #[cold]
    fn move_high(&mut self, into: &mut BitSet) {
        self.for_each(|number| into.insert(number));
        self.clear();
    }

    /// Takes the smallest number out.
    #[inline]
    pub fn pop(&mut self) -> Option<usize> {
        if let Some(bit) = first_bit(self.low) {
            self.low &= self.low - 1;
            return Some(bit);
        }
        if self.high.is_some() { self.pop_high() } else { None }
    }

    #[cold]
    fn pop_high(&mut self) -> Option<usize> {
        let high = self.high.as_mut()?;
        let (index, word) = high.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = first_bit(*word)?;
        *word &= *word - 1;
        Some(WORD * (index + 1) + bit)
    }

    /// Calls `f` with each number, smallest first.
    #[inline]
    pub fn for_each(&self, mut f: impl FnMut(usize)) {
        each(self.low, 0, &mut f);
        if self.high.is_some() {
            self.for_each_high(&mut f);
        }
    }

    #[cold]
    fn for_each_high(&self, f: &mut dyn FnMut(usize)) {
        self.words().iter().enumerate().for_each(|(index, word)| each(*word, WORD * (index + 1), f));
    }
}

/// Calls `f` with the numbers of a word whose first is `base`.
#[inline]
fn each(mut word: u64, base: usize, f: &mut (impl FnMut(usize) + ?Sized)) {
    while word != 0 {
        f(base + word.trailing_zeros() as usize);
        word &= word - 1;
    }
}

#[inline]
fn first_bit(word: u64) -> Option<usize> {
    (word != 0).then(|| word.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[usize]) -> BitSet {
        let mut set = BitSet::new();
        numbers.iter().for_each(|number| set.insert(*number));
        set
    }

    fn numbers(set: &BitSet) -> Vec<usize> {
        let mut numbers = Vec::new();
        set.for_each(|number| numbers.push(number));
        numbers
    }

    const NUMBERS: [usize; 8] = [0, 5, 63, 64, 69, 127, 128, 300];

    #[test]
    fn every_number_has_a_bit_of_its_own() {
        for number in NUMBERS {
            let one = set(&[number]);
            let found: Vec<usize> = (0..512).filter(|other| one.contains(*other)).collect();
            assert_eq!(found, [number]);
        }
    }

    #[test]
    fn numbers_come_out_once_each_in_order() {
        let mut all = set(&NUMBERS);
        assert_eq!(numbers(&all), NUMBERS);
        let popped: Vec<usize> = std::iter::from_fn(|| all.pop()).collect();
        assert_eq!(popped, NUMBERS);
        assert!(all.is_empty() && numbers(&all).is_empty());
    }

    #[test]
    fn what_is_moved_joins_what_is_there_and_is_gone_here() {
        let (mut from, mut to) = (set(&[1, 70, 200]), set(&[1, 2, 71]));
        from.move_to(&mut to);
        assert!(from.is_empty());
        assert_eq!(numbers(&to), [1, 2, 70, 71, 200]);
    }

    #[test]
    fn a_single_number_is_known_while_the_set_is_a_word() {
        for number in NUMBERS {
            assert_eq!(set(&[number]).single(), (number < 64).then_some(number));
        }
        let mut set = set(&[3, 5]);
        assert_eq!((set.single(), BitSet::new().single()), (None, None));
        set.clear_low();
        assert!(set.is_empty());
    }

    #[test]
    fn small_numbers_need_no_memory() {
        let mut small = set(&[0, 63]);
        assert!(small.is_inline() && !set(&[64]).is_inline());
        small.clear();
        assert_eq!(small, BitSet::new());
        assert_eq!(set(&[0, 63]).as_mask(), Some(1 << 63 | 1));
        let mut large = set(&[3, 64]);
        assert_eq!(large.as_mask(), None, "a mask has no room for 64");
        large.clear();
        assert!(large.is_empty() && !large.contains(64));
    }
}
