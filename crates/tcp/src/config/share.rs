//! How `tcp_rmem` counts: bytes of memory, of which a share is for data.

/// The part of a receive buffer's memory that is for data, as `tcp_adv_win_scale` of Linux states it: for n above 0 all
/// but the part 1/2^n, else the part 1/2^-n. Values are clamped to -31..=31.
///
/// The knob `tcp_rmem` and `SO_RCVBUF` are in bytes of memory; [`super::BufferSizes`] and the sizes that connections
/// set are in bytes of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataShare(pub i8);

impl DataShare {
    /// All of it.
    pub const ALL: DataShare = DataShare(0);
    /// A half, as Linux assumes.
    pub const HALF: DataShare = DataShare(1);

    /// Bytes of data, at least 1, for which there is room in `memory` bytes.
    pub const fn data(self, memory: u32) -> u32 {
        let data = match self.bounded() {
            overhead @ 1.. => memory - (memory >> overhead),
            share => memory >> -share,
        };
        if data == 0 { 1 } else { data }
    }

    /// The memory in bytes of which `data` bytes are the share: [`DataShare::data`] of it is `data` again, unless it is
    /// capped at 2^32 - 1. Of two such amounts it is the larger, rounder one.
    #[inline]
    pub const fn memory(self, data: u32) -> u32 {
        // Nearly always, and without a division.
        if self.0 == DataShare::HALF.0 {
            return data.saturating_mul(2);
        }
        let data = data as u64;
        let memory = match self.bounded() {
            overhead @ 1.. => data + data / ((1 << overhead) - 1),
            share => data << -share,
        };
        if memory > u32::MAX as u64 { u32::MAX } else { memory as u32 }
    }

    const fn bounded(self) -> i8 {
        match self.0 {
            ..-31 => -31,
            32.. => 31,
            share => share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_linux_s() {
        for (scale, data) in [(0, 6000), (1, 3000), (2, 4500), (-1, 3000), (-2, 1500), (31, 6000), (-31, 1)] {
            assert_eq!(DataShare(scale).data(6000), data, "{scale}");
        }
        assert_eq!((DataShare(i8::MIN), DataShare(i8::MAX)).0.data(u32::MAX), 1);
    }

    #[test]
    fn memory_has_room_for_its_data_and_round_numbers_come_back() {
        for scale in -31..=31 {
            let share = DataShare(scale);
            for data in [1, 2, 3, 1000, 65_535, 131_072, 3 << 20] {
                let memory = share.memory(data);
                assert!(memory == u32::MAX || share.data(memory) == data, "{scale} {data}");
            }
        }
        for scale in -12..=12 {
            let share = DataShare(scale);
            for memory in [4096, 131_072, 6 << 20, 15 << 20] {
                assert_eq!(share.memory(share.data(memory)), memory, "{scale}");
            }
        }
    }
}
