//! [`PktBuf`]: the unique owner of a packet.
//!
//! Used by all crates above. What may never happen: a `PktBuf` that is cloned (duplicates are new blocks with copied
//! bytes; see [`SharedBuf`](crate::SharedBuf) for shared ownership), or a window outside its block: every method that
//! moves an end checks it against the length in the block's header, which is trusted wherever the bytes are.

use core::fmt;
use core::ops::{Deref, DerefMut, Range};

use crate::block::{Block, BlockHeader, FRAME_CAPACITY, Home, LINE, SizeClass};
use crate::meta::Meta;
use crate::pool;
use crate::region::{self, Access, RegionId};

/// Bytes left free in front of the data of a fresh buffer: enough for the largest TCP, IPv6 and tagged Ethernet
/// headers.
pub const HEADROOM: usize = 128;

/// What debug builds write into bytes with unspecified contents.
const POISON: u8 = 0xA5;

/// Unique owner of the bytes `start..end` of a block.
///
/// Dereferences to those bytes. Dropping it gives the block to the dropping thread's cache, or back to its region. 16
/// bytes, and `Option` of it is no larger.
pub struct PktBuf {
    block: Block,
    window: PacketBounds,
}

/// Where the packet begins and ends in its block: 32 bits each, the beginning in the lower half. One word, because a
/// buffer is often moved right after one of its ends: two half-word stores that are read back as one word would stall
/// each move.
#[derive(Clone, Copy)]
pub(crate) struct PacketBounds(u64);

impl PktBuf {
    /// Asks the processor for the header of the block, which is read and written when the buffer is dropped.
    #[inline(always)]
    pub fn prefetch_header(&self) {
        sync::prefetch(self.block.header());
    }
}

/// Where a packet is in memory that will be used soon. It is for the processor alone and no way to the packet, which may
/// have gone meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketPlace(
    /// The address of the block's header. The low bits, which it does not need, count the lines from there to the packet's
    /// first byte; 0 if that is not near.
    usize,
);

impl PacketPlace {
    /// That of no packet.
    pub const NONE: PacketPlace = PacketPlace(0);

    /// Where this packet is now.
    #[inline(always)]
    pub fn of(buffer: &PktBuf) -> PacketPlace {
        let header = core::ptr::from_ref(buffer.block.header()).addr();
        let lines = buffer.as_ptr().addr().wrapping_sub(header) / LINE;
        PacketPlace(header | if lines < LINE { lines } else { 0 })
    }

    /// Asks the processor for the header of the block, and for the first line of the packet.
    #[inline(always)]
    pub fn prefetch(self) {
        let header = core::ptr::without_provenance::<u8>(self.0 & !(LINE - 1));
        if !header.is_null() {
            sync::prefetch(header);
            sync::prefetch(header.wrapping_add(self.0 % LINE * LINE));
        }
    }
}

impl PacketBounds {
    #[inline]
    pub(crate) const fn new(start: u32, end: u32) -> PacketBounds {
        PacketBounds(start as u64 | (end as u64) << 32)
    }

    #[inline]
    pub(crate) const fn start(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) const fn end(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Moves the beginning forward by `n`, which the caller has checked against the length.
    #[inline]
    pub(crate) fn advance(&mut self, n: u32) {
        self.0 += u64::from(n);
    }

    /// Moves the beginning back by `n`, which the caller has checked against the beginning.
    #[inline]
    fn retreat(&mut self, n: u32) {
        self.0 -= u64::from(n);
    }

    /// Moves the end forward by `n`.
    #[inline]
    fn extend(&mut self, n: u32) {
        self.0 += u64::from(n) << 32;
    }

    /// Bytes between the ends.
    #[inline]
    pub(crate) const fn len(self) -> usize {
        (self.end() - self.start()) as usize
    }

    /// Moves the end to `len` bytes after the beginning, if that shortens the window.
    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        if len < self.len() {
            *self = PacketBounds::new(self.start(), self.start() + len as u32);
        }
    }

    /// The bytes of the window in a block whose data begins at `data`.
    ///
    /// # Safety
    /// The window lies inside the block, whose bytes are initialised and not written for as long as the result lives.
    #[inline]
    pub(crate) unsafe fn slice<'a>(self, data: *const u8) -> &'a [u8] {
        // SAFETY: by the caller's promise.
        unsafe { core::slice::from_raw_parts(data.add(self.start() as usize), self.len()) }
    }
}

const _: () = assert!(size_of::<PktBuf>() == 16 && size_of::<Option<PktBuf>>() == 16);

// SAFETY: a shared `PktBuf` only gives out shared references to plain bytes and to `Meta`.
unsafe impl Sync for PktBuf {}

impl PktBuf {
    /// An empty buffer for at least `capacity` bytes after [`HEADROOM`] bytes of headroom. `None` if `capacity` exceeds
    /// [`MAX_CAPACITY`](crate::MAX_CAPACITY), the pool's limit is reached or the system has no memory.
    ///
    /// The block's bytes are left by its last user: see [`append`](Self::append).
    #[inline]
    pub fn alloc(capacity: usize) -> Option<PktBuf> {
        PktBuf::alloc_with_headroom(HEADROOM, capacity)
    }

    /// Like [`alloc`](Self::alloc), with `headroom` bytes of headroom instead of [`HEADROOM`].
    #[inline]
    pub fn alloc_with_headroom(headroom: usize, capacity: usize) -> Option<PktBuf> {
        let mut block = pool::allocate(SizeClass::fitting(headroom, capacity)?)?;
        // SAFETY: the pool has just returned this block; there is no other reference to it.
        unsafe { block.header_mut() }.meta = Meta::default();
        Some(PktBuf { block, window: PacketBounds::new(headroom as u32, headroom as u32) })
    }

    /// As [`alloc`](Self::alloc), in a region instead of the heap: `None` if the region has ended, is one that another
    /// party writes ([`Access::Foreign`]), has no free chunk, or its chunks are smaller.
    pub fn alloc_in(region: RegionId, capacity: usize) -> Option<PktBuf> {
        PktBuf::alloc_with_access(region, Access::Exclusive, HEADROOM, capacity)
    }

    /// As [`alloc`](Self::alloc), where a device prefers it: in its region, if it has one with a free chunk, otherwise
    /// in the heap, from which the device copies.
    #[inline]
    pub fn alloc_near(region: Option<RegionId>, capacity: usize) -> Option<PktBuf> {
        match region {
            None => PktBuf::alloc(capacity),
            Some(region) => PktBuf::alloc_in_or_heap(region, capacity),
        }
    }

    /// As [`alloc_near`](Self::alloc_near), with `len` bytes in the packet already, and a header of `front` bytes before
    /// them. All of them must be written: see [`append`](Self::append).
    ///
    /// # Panics
    /// If `front` exceeds [`HEADROOM`].
    #[inline(always)]
    pub fn alloc_around(region: Option<RegionId>, front: usize, len: usize) -> Option<PktBuf> {
        assert!(front <= HEADROOM, "a header of {front} bytes in a headroom of {HEADROOM}");
        let mut buf = PktBuf::alloc_near(region, len)?;
        // The class that was chosen has room for both.
        buf.window = PacketBounds::new(buf.window.start() - front as u32, buf.window.end() + len as u32);
        if cfg!(debug_assertions) {
            buf.fill(POISON);
        }
        Some(buf)
    }

    #[cold]
    #[inline(never)]
    fn alloc_in_or_heap(region: RegionId, capacity: usize) -> Option<PktBuf> {
        PktBuf::alloc_in(region, capacity).or_else(|| PktBuf::alloc(capacity))
    }

    pub(crate) fn alloc_with_access(
        region: RegionId,
        access: Access,
        headroom: usize,
        capacity: usize,
    ) -> Option<PktBuf> {
        let block = region::allocate(region, access, headroom.checked_add(capacity)?)?;
        pool::count(1);
        Some(PktBuf { block, window: PacketBounds::new(headroom as u32, headroom as u32) })
    }

    /// The owner of a block. The previous owner must have released it.
    #[inline]
    pub(crate) fn of_parts(block: Block, window: PacketBounds) -> PktBuf {
        PktBuf { block, window }
    }

    /// The parts of the buffer, for an owner that is not dropped.
    #[inline]
    pub(crate) fn parts(&self) -> (Block, PacketBounds) {
        (self.block, self.window)
    }

    pub(crate) fn block(&self) -> Block {
        self.block
    }

    pub(crate) fn window(&self) -> PacketBounds {
        self.window
    }

    /// Lengthens the packet by `n` bytes, which the caller has checked against the tailroom.
    pub(crate) fn extend_window(&mut self, n: usize) {
        debug_assert!(n <= self.tailroom());
        self.window.extend(n as u32);
    }

    /// The region of the packet; `None`: the heap.
    #[inline]
    pub fn region(&self) -> Option<RegionId> {
        self.block.header().region
    }

    /// The offset of the packet from the first byte of its region, as in a descriptor. `None` in the heap.
    pub fn offset_in_region(&self) -> Option<usize> {
        self.region().map(|region| region::offset_of(region, self.block, self.window))
    }

    /// As [`alloc`](Self::alloc), for data that can wait: also `None` if the pool is bounded and fewer than about
    /// `reserve` such buffers would be left. User data must not take the buffers that the stack needs for progress.
    pub fn alloc_leaving(capacity: usize, reserve: usize) -> Option<PktBuf> {
        pool::leaves(SizeClass::fitting(HEADROOM, capacity)?, reserve).then(|| PktBuf::alloc(capacity)).flatten()
    }

    /// A buffer with `len` bytes in the packet already, for data that can wait, as by [`alloc_leaving`](Self::alloc_leaving).
    /// All bytes must be written: see [`append`](Self::append). `spare`, a buffer of no more use, becomes it, if its block
    /// is of the kind that would be allocated: a block that is used again at once need not go through the pool.
    #[inline(always)]
    pub fn alloc_from(spare: Option<PktBuf>, len: usize, reserve: usize) -> Option<PktBuf> {
        let class = SizeClass::fitting(HEADROOM, len)?;
        if !pool::leaves(class, reserve) {
            return None;
        }
        let mut buf = match spare {
            Some(mut spare) if spare.block.header().home == class.home() => {
                *spare.meta_mut() = Meta::default();
                spare
            }
            _ => PktBuf::alloc(len)?,
        };
        buf.window = PacketBounds::new(HEADROOM as u32, (HEADROOM + len) as u32);
        if cfg!(debug_assertions) {
            buf.fill(POISON);
        }
        Some(buf)
    }

    /// A buffer with a copy of `bytes`; `None` as for [`alloc`](Self::alloc).
    pub fn from_slice(bytes: &[u8]) -> Option<PktBuf> {
        let mut buf = PktBuf::alloc_around(None, 0, bytes.len())?;
        buf.copy_from_slice(bytes);
        Some(buf)
    }

    /// Whether a copy of the packet would take a smaller block than this one: code that keeps the packet for long
    /// should make one.
    pub fn is_oversized(&self) -> bool {
        let fitting = SizeClass::fitting(HEADROOM, self.len());
        fitting.is_some_and(|class| class.data_len() < self.block.header().data_len as usize)
    }

    /// Whether the block is smaller than one for a frame.
    #[inline]
    pub fn is_narrow(&self) -> bool {
        self.block.header().home == Home::Tiny
    }

    /// The packet in a block with room for a frame's worth of data, if it is in a smaller one: for code that will append
    /// more packets of its kind, each of which would otherwise have a block. Unchanged if there is no such block, or fewer than
    /// about `reserve` would be left; see [`alloc_leaving`](Self::alloc_leaving).
    #[inline(never)]
    pub fn widened(self, reserve: usize) -> PktBuf {
        if !self.is_narrow() {
            return self;
        }
        let Some(mut wide) = PktBuf::alloc_leaving(FRAME_CAPACITY, reserve) else { return self };
        wide.append(self.len()).copy_from_slice(&self);
        *wide.meta_mut() = Meta { l3: 0, ..*self.meta() };
        wide
    }

    /// Bytes in the packet.
    #[inline]
    pub fn len(&self) -> usize {
        self.window.len()
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.window.start() == self.window.end()
    }

    /// Free bytes in front of the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.window.start() as usize
    }

    /// Free bytes behind the packet.
    #[inline]
    pub fn tailroom(&self) -> usize {
        (self.block.header().data_len - self.window.end()) as usize
    }

    /// Bytes of memory that the buffer occupies: its whole block, however little of it the packet fills.
    #[inline]
    pub fn memory(&self) -> usize {
        self.block.header().data_len as usize + size_of::<BlockHeader>()
    }

    /// Extends the packet by `n` bytes of headroom and returns them, to be filled: their contents are unspecified, and
    /// debug builds overwrite them. To read a pulled header again, use [`restore_front`](Self::restore_front).
    ///
    /// # Panics
    /// If `n` exceeds the headroom.
    #[inline(always)]
    pub fn push_front(&mut self, n: usize) -> &mut [u8] {
        self.restore_front(n);
        let front = &mut self[..n];
        if cfg!(debug_assertions) {
            front.fill(POISON);
        }
        front
    }

    /// Extends the packet by `n` bytes of headroom, unchanged: undoes [`pull_front`](Self::pull_front).
    ///
    /// # Panics
    /// If `n` exceeds the headroom.
    #[inline(always)]
    pub fn restore_front(&mut self, n: usize) {
        assert!(n <= self.headroom(), "{n} bytes wanted in front of a packet with {} of headroom", self.headroom());
        self.window.retreat(n as u32);
    }

    /// The `n` bytes of headroom in front of the packet: those that [`pull_front`](Self::pull_front) removed, if they
    /// were not overwritten since. `None` if there are fewer.
    #[inline]
    pub fn before(&self, n: usize) -> Option<&[u8]> {
        let start = self.window.start();
        (n <= self.headroom()).then(|| self.slice(start - n as u32, start))
    }

    /// Removes `n` bytes from the front. They stay in the headroom until it is overwritten.
    ///
    /// # Panics
    /// If the packet has fewer.
    #[inline(always)]
    pub fn pull_front(&mut self, n: usize) {
        assert!(n <= self.len(), "{n} bytes pulled from a packet of {}", self.len());
        self.window.advance(n as u32);
    }

    /// Narrows a frame to the `data` behind its headers, as [`truncate`](Self::truncate) and
    /// [`pull_front`](Self::pull_front) do, and marks the network header, which is `network` bytes behind its first
    /// byte. One check instead of one for each step.
    ///
    /// # Panics
    /// If `data` does not lie in the packet, or begins before the network header.
    #[inline(always)]
    pub fn narrow(&mut self, network: usize, data: Range<usize>) {
        let Range { start: from, end: to } = data;
        assert!(network <= from && from <= to && to <= self.len(), "{from}..{to} of a packet of {}", self.len());
        self.mark_network_header_after(network);
        let start = self.window.start();
        self.window = PacketBounds::new(start + from as u32, start + to as u32);
    }

    /// Shortens the packet to `len` bytes; does nothing if it is no longer than that.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.window.truncate(len);
    }

    /// Empties the packet and restores `headroom` bytes of headroom; metadata stays.
    ///
    /// # Panics
    /// If the block is smaller than `headroom`.
    #[inline]
    pub fn reset(&mut self, headroom: usize) {
        assert!(headroom <= self.block.header().data_len as usize, "headroom of {headroom} bytes exceeds the block");
        self.window = PacketBounds::new(headroom as u32, headroom as u32);
    }

    /// Lengthens the packet by `n` bytes and returns them, to be filled. They contain data of the block's last user
    /// (debug builds overwrite them): a byte that the caller does not write would leak from one packet into another.
    ///
    /// # Panics
    /// If `n` exceeds the tailroom.
    #[inline]
    pub fn append(&mut self, n: usize) -> &mut [u8] {
        assert!(n <= self.tailroom(), "{n} bytes appended to a packet with {} of tailroom", self.tailroom());
        let len = self.len();
        self.window.extend(n as u32);
        let back = &mut self[len..];
        if cfg!(debug_assertions) {
            back.fill(POISON);
        }
        back
    }

    /// Appends a copy of `bytes`; false, with the packet unchanged, if the tailroom is too small.
    #[inline]
    #[must_use = "false means that nothing was appended"]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.tailroom();
        if fits {
            self.append(bytes.len()).copy_from_slice(bytes);
        }
        fits
    }

    /// The packet's metadata.
    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.block.header().meta
    }

    /// The packet's metadata, for writing.
    #[inline]
    pub fn meta_mut(&mut self) -> &mut Meta {
        // SAFETY: we own the block, and `&mut self` excludes every other reference to its header.
        &mut unsafe { self.block.header_mut() }.meta
    }

    /// Records in [`Meta::l3`] that the network header is in front now. (Not beyond the first 64 KiB of the block,
    /// where no header is.)
    #[inline]
    pub fn mark_network_header(&mut self) {
        self.mark_network_header_after(0);
    }

    /// The same where `link` bytes stand before it.
    #[inline]
    pub fn mark_network_header_after(&mut self, link: usize) {
        self.meta_mut().l3 = u16::try_from(self.window.start() as usize + link).unwrap_or(0);
    }

    /// Everything from the network header to the end, if [`mark_network_header`](Self::mark_network_header) was called
    /// and nothing was written over the headroom since.
    #[inline]
    pub fn network_packet(&self) -> Option<&[u8]> {
        let l3 = u32::from(self.meta().l3);
        (l3 != 0 && l3 <= self.window.start()).then(|| self.slice(l3, self.window.end()))
    }

    /// A new buffer with the same bytes (back to a marked network header), headroom and metadata; `None` as for
    /// [`alloc`](Self::alloc).
    pub fn duplicate(&self) -> Option<PktBuf> {
        let mut copy = PktBuf::alloc_with_headroom(self.headroom(), self.len())?;
        *copy.meta_mut() = *self.meta();
        let (start, end) = (self.window.start(), self.window.end());
        let from = self.network_packet().map_or(start, |_| u32::from(self.meta().l3));
        copy.window = PacketBounds::new(from, end);
        copy.copy_from_slice(self.slice(from, end));
        copy.window = PacketBounds::new(start, end);
        Some(copy)
    }

    #[inline]
    fn slice(&self, start: u32, end: u32) -> &[u8] {
        debug_assert!(start <= end && end <= self.block.header().data_len);
        // SAFETY: every method keeps `start <= end <= data_len`, `l3` is checked against `start` by its reader, and all
        // bytes of a block are initialised; `&self` keeps writers out.
        unsafe { PacketBounds::new(start, end).slice(self.block.data()) }
    }
}

impl Deref for PktBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.slice(self.window.start(), self.window.end())
    }
}

impl DerefMut for PktBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `slice`; `&mut self` excludes every other reference to the bytes.
        unsafe { core::slice::from_raw_parts_mut(self.block.data().add(self.headroom()), self.len()) }
    }
}

impl AsRef<[u8]> for PktBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PktBuf {
    #[inline]
    fn drop(&mut self) {
        pool::release(self.block);
    }
}

impl fmt::Debug for PktBuf {
    /// Prints length, room and the first bytes: a whole packet would be too long for a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PktBuf({} bytes, {} before, {} behind:", self.len(), self.headroom(), self.tailroom())?;
        self.iter().take(16).try_for_each(|byte| write!(f, " {byte:02x}"))?;
        f.write_str(if self.len() > 16 { " ..)" } else { ")" })
    }
}

impl PartialEq for PktBuf {
    /// Equal bytes; headroom and metadata do not count.
    fn eq(&self, other: &PktBuf) -> bool {
        **self == **other
    }
}

impl Eq for PktBuf {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checksum, MAX_CAPACITY};

    fn counting(n: usize) -> Vec<u8> {
        (0..n).map(|i| i as u8).collect()
    }

    #[test]
    fn a_fresh_buffer_has_the_promised_room() {
        for capacity in [0, 1, 192, 193, 1514, 1920, 1921, 9000, 16 * 1024 - 128, 65_536, MAX_CAPACITY] {
            let buf = PktBuf::alloc(capacity).unwrap();
            assert_eq!((buf.len(), buf.headroom()), (0, HEADROOM));
            assert!(buf.tailroom() >= capacity, "{} < {capacity}", buf.tailroom());
            assert_eq!(buf.meta(), &Meta::default());
        }
        assert!(PktBuf::alloc(MAX_CAPACITY + 1).is_none());
        assert!(PktBuf::alloc(usize::MAX).is_none());
    }

    /// A block has the size of its packet: header, headroom and data of a short segment are 384 bytes.
    #[test]
    fn a_block_is_not_much_larger_than_its_packet() {
        const BLOCKS: [usize; 4] = [384, 2112, 16_448, 73_792];
        let sizes = [(0, 0), (64, 0), (192, 0), (193, 1), (1920, 1), (1921, 2), (16_256, 2), (16_257, 3), (65_536, 3)];
        for (capacity, class) in sizes {
            let segment = PktBuf::alloc_around(None, 32, capacity).unwrap();
            let copy = PktBuf::from_slice(&counting(capacity)).unwrap();
            assert_eq!([segment.memory(), copy.memory()], [BLOCKS[class]; 2], "{capacity} bytes");
        }
        for (len, memory) in [(1, 384), (64, 384), (192, 384), (193, 2112), (1920, 2112), (1921, 16_448)] {
            let kept = [PktBuf::alloc_from(None, len, 0), PktBuf::alloc_leaving(len, 0)].map(Option::unwrap);
            assert_eq!(kept.map(|kept| (kept.headroom(), kept.memory())), [(HEADROOM, memory); 2], "{len} bytes");
        }
        let mut large = PktBuf::alloc(1514).unwrap();
        assert!(large.is_oversized() && !large.is_narrow(), "an empty one");
        large.append(192);
        assert!(large.is_oversized(), "a copy would have a smaller block");
        large.append(1);
        assert!(!large.is_oversized());
    }

    /// What one visit to a small block touches is near: a frame with 64 bytes of data ends with the second pair of lines.
    #[test]
    fn a_visit_to_a_small_block_touches_adjacent_lines() {
        let mut held = Vec::new();
        for _ in 0..3 {
            let mut frame = PktBuf::alloc_around(None, 32, 64).unwrap();
            frame.push_front(40);
            frame.push_front(14);
            let header = core::ptr::from_ref(frame.block.header()).addr();
            let offset = frame.as_ptr().addr() - header;
            assert_eq!((header % (2 * LINE), offset / LINE, offset + frame.len()), (0, 1, 4 * LINE), "IPv6");
            held.push(frame);
        }
    }

    #[test]
    fn a_packet_is_widened_once() {
        let mut packet = PktBuf::from_slice(&counting(60)).unwrap();
        *packet.meta_mut() = Meta { stamp: 1, l3: 5, ..Meta::default() };
        packet.pull_front(20);
        assert!(packet.is_narrow());
        let wide = packet.widened(0);
        assert_eq!((&wide[..], wide.memory(), wide.is_narrow()), (&counting(60)[20..], 2112, false));
        assert_eq!(*wide.meta(), Meta { stamp: 1, ..Meta::default() }, "there is no network header before it");
        assert!(wide.tailroom() >= 1800);
        let address = wide.as_ptr();
        assert_eq!(wide.widened(0).as_ptr(), address);
        pool::refuse(1, 1);
        let packet = PktBuf::from_slice(b"abc").unwrap();
        let address = packet.as_ptr();
        assert_eq!(packet.widened(0).as_ptr(), address, "there is no larger one");
    }

    #[test]
    fn ends_move_and_bytes_stay() {
        let mut buf = PktBuf::from_slice(&counting(100)).unwrap();
        buf.push_front(4).copy_from_slice(&[9, 8, 7, 6]);
        assert_eq!((&buf[..5], buf.len()), (&[9, 8, 7, 6, 0][..], 104));
        buf.pull_front(14);
        assert_eq!((buf[0], buf.len(), buf.headroom()), (10, 90, HEADROOM + 10));
        buf.restore_front(14);
        assert_eq!(&buf[..5], &[9, 8, 7, 6, 0], "pulled bytes are still there");
        buf.truncate(6);
        buf.truncate(60);
        assert_eq!(&buf[..], &[9, 8, 7, 6, 0, 1]);
        assert!(buf.extend_from_slice(&[5, 5]));
        assert_eq!(&buf[4..], &[0, 1, 5, 5]);
        buf.reset(0);
        assert_eq!((buf.len(), buf.headroom(), buf.tailroom()), (0, 0, 320));
    }

    #[test]
    fn extending_beyond_the_tailroom_changes_nothing() {
        let mut buf = PktBuf::from_slice(b"abc").unwrap();
        let room = buf.tailroom();
        assert!(!buf.extend_from_slice(&vec![0; room + 1]));
        assert_eq!(&buf[..], b"abc");
        assert!(buf.extend_from_slice(&vec![1; room]));
        assert_eq!((buf.tailroom(), buf.len()), (0, room + 3));
    }

    #[test]
    #[should_panic(expected = "129 bytes wanted in front of a packet with 128 of headroom")]
    fn pushing_beyond_the_headroom_panics() {
        PktBuf::alloc(10).unwrap().push_front(HEADROOM + 1);
    }

    #[test]
    #[should_panic(expected = "4 bytes pulled from a packet of 3")]
    fn pulling_beyond_the_end_panics() {
        PktBuf::from_slice(b"abc").unwrap().pull_front(4);
    }

    #[test]
    fn narrowing_is_the_same_as_each_step() {
        let (mut steps, mut once) =
            (PktBuf::from_slice(&counting(60)).unwrap(), PktBuf::from_slice(&counting(60)).unwrap());
        steps.truncate(55);
        steps.pull_front(14);
        steps.mark_network_header();
        steps.pull_front(20);
        once.narrow(14, 34..55);
        assert_eq!((&once[..], once.headroom(), once.meta()), (&counting(60)[34..55], steps.headroom(), steps.meta()));
        assert_eq!(once.network_packet(), steps.network_packet());
        once.narrow(0, 21..21);
        assert!(once.is_empty(), "an end may be a beginning");
    }

    #[test]
    fn narrowing_keeps_inside_the_packet() {
        for (network, data) in [(0, 0..4), (0, Range { start: 2, end: 1 }), (2, 1..3), (0, 4..4)] {
            let mut buf = PktBuf::from_slice(b"abc").unwrap();
            let narrowed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buf.narrow(network, data.clone())));
            assert!(narrowed.is_err(), "{network} {data:?}");
            assert_eq!(&buf[..], b"abc");
        }
    }

    #[test]
    #[should_panic(expected = "of tailroom")]
    fn appending_beyond_the_tailroom_panics() {
        let mut buf = PktBuf::alloc(10).unwrap();
        let room = buf.tailroom();
        buf.append(room + 1);
    }

    #[test]
    fn a_duplicate_is_equal_and_separate() {
        let mut buf = PktBuf::from_slice(&counting(60)).unwrap();
        buf.pull_front(14);
        buf.mark_network_header();
        buf.pull_front(20);
        buf.meta_mut().checksum = Checksum::Partial { start: 0, offset: 16 };
        buf.meta_mut().flow_hash = Some(7);
        let mut copy = buf.duplicate().unwrap();
        assert_eq!((&copy, copy.meta(), copy.headroom()), (&buf, buf.meta(), buf.headroom()));
        assert_eq!(copy.network_packet().unwrap(), &counting(60)[14..]);
        copy[0] = 0xFF;
        assert_eq!(buf[0], 34);
        assert_ne!(copy, buf);
    }

    #[test]
    fn metadata_is_reset_by_allocation() {
        let mut buf = PktBuf::alloc(10).unwrap();
        *buf.meta_mut() = Meta { stamp: 1, flow_hash: Some(2), segment_size: 3, queue: 4, l3: 5, ..Meta::default() };
        drop(buf);
        // The cache is last in, first out: the same block is returned.
        let again = PktBuf::alloc(10).unwrap();
        assert_eq!((again.meta(), again.network_packet()), (&Meta::default(), None));
    }

    #[test]
    fn a_place_has_the_header_and_the_first_line_of_the_packet() {
        for (front, line) in [(0, 3), (63, 3), (64, 4), (1000, 18)] {
            let mut buf = PktBuf::from_slice(&counting(1200)).unwrap();
            let header = core::ptr::from_ref(buf.block.header()).addr();
            buf.pull_front(front);
            assert_eq!(PacketPlace::of(&buf), PacketPlace(header + line), "{front} bytes in front");
            PacketPlace::of(&buf).prefetch();
        }
        let mut far = PktBuf::from_slice(&counting(16_000)).unwrap();
        far.pull_front(15_000);
        assert_eq!(PacketPlace::of(&far).0 % LINE, 0, "the header alone");
        PacketPlace::NONE.prefetch();
    }

    #[test]
    fn the_last_released_block_is_the_next_allocated() {
        let first = PktBuf::alloc(10).unwrap();
        let address = first.as_ptr();
        drop(first);
        let second = PktBuf::alloc(10).unwrap();
        assert_eq!(second.as_ptr(), address);
    }

    #[test]
    fn a_spare_buffer_of_the_same_kind_is_as_a_fresh_one() {
        let mut spare = PktBuf::from_slice(&counting(110)).unwrap();
        spare.pull_front(100);
        *spare.meta_mut() = Meta { stamp: 1, flow_hash: Some(2), segment_size: 3, queue: 4, l3: 5, ..Meta::default() };
        let address = spare.as_ptr().addr();
        let mut again = PktBuf::alloc_from(Some(spare), 60, 0).unwrap();
        again.copy_from_slice(&counting(60));
        assert_eq!((again.as_ptr().addr(), again.headroom()), (address - 100, HEADROOM), "in the same block");
        assert_eq!((&again[..], again.meta(), again.network_packet()), (&counting(60)[..], &Meta::default(), None));
        let fresh = PktBuf::alloc_from(None, 60, 0).unwrap();
        assert_eq!((fresh.len(), fresh.headroom(), fresh.tailroom()), (60, HEADROOM, again.tailroom()));
    }

    #[test]
    fn a_spare_buffer_of_another_kind_is_not_used() {
        for (spare, wanted) in [(100, 3000), (3000, 100), (100, 1000), (1000, 100)] {
            let spare = PktBuf::alloc_from(None, spare, 0).unwrap();
            let (address, memory) = (spare.as_ptr(), spare.memory());
            let other = PktBuf::alloc_from(Some(spare), wanted, 0).unwrap();
            assert!(other.as_ptr() != address && other.memory() != memory, "{wanted} bytes have a block of their own");
        }
    }

    #[test]
    fn debug_shows_the_first_bytes() {
        let buf = PktBuf::from_slice(&counting(20)).unwrap();
        let shown = format!("{buf:?}");
        assert!(shown.starts_with("PktBuf(20 bytes, 128 before, 172 behind: 00 01"), "{shown}");
        assert!(shown.ends_with("0f ..)"), "{shown}");
    }
}
