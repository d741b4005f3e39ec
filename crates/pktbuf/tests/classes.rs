//! Small blocks beside those of frames in a bounded pool.
//!
//! The limit applies to the whole process, so everything here is one test in a binary of its own.

use std::thread;

use pktbuf::{PktBuf, footprint, set_limit, substitutes};

/// Bytes that the block of a frame takes: 2 KiB and a header of one cache line.
const FRAME: usize = 2048 + 64;
/// Bytes that the smallest block takes.
const TINY: usize = 320 + 64;
/// An eighth of the limit is for small blocks: 40 of them.
const LIMIT: usize = 8 * 40 * TINY;
const FRAMES: usize = (LIMIT - LIMIT / 8) / FRAME;

#[test]
fn small_blocks_and_those_of_frames_share_a_limit() {
    set_limit(LIMIT);
    user_data_leaves_buffers_for_frames([64, 1400]);
    a_frames_block_serves_where_small_ones_end();
    // More, of which nothing is taken yet: a slab of frames, and a few that small blocks may take.
    set_limit(footprint() + 70 * FRAME);
    user_data_leaves_buffers_for_frames([1400, 64]);
    set_limit(usize::MAX);
    let before = substitutes();
    let held: Vec<PktBuf> = (0..1000).map(|_| PktBuf::alloc(0).unwrap()).collect();
    assert!(held.iter().all(|packet| packet.memory() == TINY), "without a limit each has a block of its size");
    assert_eq!(substitutes(), before);
}

fn all(allocate: impl FnMut() -> Option<PktBuf>) -> Vec<PktBuf> {
    std::iter::from_fn(allocate).collect()
}

fn of_size(held: &[PktBuf], size: usize) -> usize {
    held.iter().filter(|packet| packet.memory() == size).count()
}

/// Data of users never takes the last buffers for frames, whichever size is allocated first: not as small blocks, and not by
/// memory for small blocks that is taken later.
fn user_data_leaves_buffers_for_frames(order: [usize; 2]) {
    const RESERVE: usize = 10;
    let data: Vec<PktBuf> = order.into_iter().flat_map(|len| all(|| PktBuf::alloc_leaving(len, RESERVE))).collect();
    assert!(of_size(&data, TINY) >= 40 - RESERVE && of_size(&data, FRAME) >= FRAMES - RESERVE);
    let acknowledgements: Vec<PktBuf> = (0..of_size(&all(small), TINY)).map_while(|_| small()).collect();
    let frames = all(|| PktBuf::alloc(1514));
    assert!((RESERVE..RESERVE + 2).contains(&frames.len()), "{} frames", frames.len());
    drop(acknowledgements);
}

fn small() -> Option<PktBuf> {
    PktBuf::alloc(0)
}

/// Where small blocks end those of frames are used, and return to their own kind.
fn a_frames_block_serves_where_small_ones_end() {
    for _ in 0..3 {
        let before = substitutes();
        let held = all(small);
        assert_eq!((of_size(&held, TINY), of_size(&held, FRAME)), (40, FRAMES));
        assert_eq!(substitutes() - before, FRAMES as u64, "each is counted");
        assert!(footprint() <= LIMIT && PktBuf::alloc(1514).is_none());
        thread::spawn(move || drop(held)).join().expect("no panic");
        let frames = all(|| PktBuf::alloc(1514));
        assert_eq!((frames.len(), of_size(&frames, FRAME)), (FRAMES, FRAMES), "frames can use them again");
    }
}
