//! The capacity of the send buffer when it is counted as memory, as on Linux: in runs of half of the peer's largest
//! window, each with its overhead; waking a writer; growth of the buffer; and `MSG_MORE`, which ends a call without a
//! push.

mod support;

use pktbuf::Chunk;
use support::endpoint::Setup;
use support::ms;
use support::script::{Script, peer};
use tcp::{Error, Readiness, Send, SendChunk, SendMore, SetOption, Shutdown, SocketOption};

/// A peer with a window of 32 896 bytes: a run is 16 segments.
fn connected(send_buffer: Option<u32>) -> Script {
    let mut setup = Setup::default();
    setup.options.send_buffer = send_buffer;
    let mut t = Script::connected(setup, |syn| syn.scale(7).win(32_792));
    t.inject(peer(".").ack(1).win(257));
    t.take();
    t.us.ready = Readiness::NONE;
    t
}

static DATA: [u8; 4096] = [7; 4096];
static LONG: [u8; 100_000] = {
    let mut bytes = [0; 100_000];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (at / 251) as u8;
        at += 1;
    }
    bytes
};

fn send_more(t: &mut Script, len: usize) -> usize {
    let chunks = tcp::Chunks::from_iter([Chunk::Static(&DATA[..len])]);
    t.run(SendMore(Send { chunks })).expect("it is open").accepted
}

#[test]
fn a_run_that_was_begun_is_filled_and_what_leaves_meanwhile_makes_room() {
    let mut t = connected(Some(50_000));
    // 16 segments, ten of which are sent; ten more fill the rest; then two runs: 58 000 and four times the overhead.
    assert_eq!(t.send(59_000), 58_000);
    assert_eq!(t.take().len(), 10);
    assert_eq!(t.send(1), 0);
}

#[test]
fn a_buffer_of_any_size_takes_one_run_and_its_writer_waits_for_a_third_of_it() {
    let mut t = connected(Some(6_000));
    assert_eq!(t.send(100_000), 26_000);
    t.take();
    t.inject(peer(".").ack(10_001).win(257));
    // All is sent; 16 000 bytes and the overhead of their run.
    assert_eq!(t.take().len(), 16);
    t.inject(peer(".").ack(23_001).win(257));
    assert!(
        !t.us.ready.contains(Readiness::WRITABLE),
        "3000 bytes and their overhead are more than two thirds of 6000"
    );
    t.inject(peer(".").ack(24_001).win(257));
    assert!(t.us.ready.contains(Readiness::WRITABLE));
    assert_eq!(
        t.send(100_000),
        16_000,
        "one run more, though it leaves at once: the buffer is full of what is in flight"
    );
}

#[test]
fn runs_of_a_small_window_are_single_segments() {
    let mut setup = Setup::default();
    setup.options.send_buffer = Some(4608);
    let mut t = Script::connected(setup, |syn| syn.win(2000));
    // As long as less than 4608 bytes are used: 1000 and 1280, twice.
    assert_eq!(t.send(10_000), 3000);
}

#[test]
fn the_mark_of_unsent_data_stops_new_runs_and_wakes_at_half() {
    let mut t = connected(None);
    t.run(SetOption(SocketOption::NotSentLowWater(4000))).expect("any value is good");
    assert_eq!(t.send(59_000), 26_000);
    assert_eq!(t.take().len(), 10);
    for acked in [2001, 4001, 6001] {
        t.inject(peer(".").ack(acked).win(257));
        assert_eq!(t.take().len(), 4);
        assert!(!t.us.ready.contains(Readiness::WRITABLE), "2000 bytes or more are unsent");
    }
    t.inject(peer(".").ack(8001).win(257));
    assert!(t.us.ready.contains(Readiness::WRITABLE));
}

#[test]
fn the_buffer_grows_when_it_is_what_limits() {
    let mut t = connected(None);
    t.us.setup.config.send_buffer.max = 500_000;
    let before = t.us.status().send_buffer;
    let mut acked = 1;
    for _ in 0..6 {
        t.send(1_000_000);
        acked += 1000 * t.take().len() as u32;
        t.pass(ms(1));
        t.inject(peer(".").ack(acked).win(20_000));
        acked += 1000 * t.take().len() as u32;
        t.inject(peer(".").ack(acked).win(20_000));
    }
    let status = t.us.status();
    assert!(status.send_buffer > before, "{} of {before}", status.send_buffer);
    assert!(u64::from(status.send_buffer) <= u64::from(status.cwnd / 1000) * 2 * 2304 + u64::from(before));
}

#[test]
fn a_buffer_that_is_too_small_for_the_beginning_grows_at_once() {
    let mut setup = Setup::default();
    setup.config.send_buffer.initial = 4096;
    let mut t = Script::connected(setup, |syn| syn.win(2000));
    // Ten segments of 1000 bytes cost 2304 each, and there may be twice as many: 46 080.
    assert_eq!(t.send(100_000), 21_000);
    assert_eq!(t.us.status().send_buffer, 46_080);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//= type=test
//# A TCP endpoint MAY implement PUSH flags on SEND calls (MAY-15).
#[test]
fn data_that_is_not_pushed_waits_in_its_own_call_and_leaves_without_psh() {
    let mut t = connected(None);
    t.run(SetOption(SocketOption::NoDelay(true))).expect("any value is good");
    assert_eq!(send_more(&mut t, 2100), 2100);
    t.expect(&[". 1:1001(1000) ack 1 win 512", ". 1001:2001(1000) ack 1 win 512"]);
    t.pass(ms(10));
    t.inject(peer(".").ack(1001).win(257));
    t.expect(&[". 2001:2101(100) ack 1 win 512"]);
    assert_eq!(send_more(&mut t, 10), 10);
    t.expect(&[]);
    assert_eq!(t.send(5), 5);
    t.expect(&["P. 2101:2116(15) ack 1 win 512"]);
}

#[test]
fn data_that_is_never_pushed_leaves_with_psh_when_its_time_is_over() {
    let mut t = connected(None);
    assert_eq!(send_more(&mut t, 40), 40);
    let waited = t.until_sent(ms(1000)).expect("it is not held for ever");
    assert!((ms(200)..=ms(260)).contains(&waited), "{waited:?}");
    t.expect(&["P. 1:41(40) ack 1 win 512"]);
}

/// RFC 9293 section 3.10.2: what the send buffer has no room for is the caller's still. It is the end of the chunk, and
/// nothing of a chunk that finds no room.
#[test]
fn the_rest_of_a_chunk_stays_with_the_caller() {
    let mut t = connected(Some(6_000));
    let mut chunk = Some(Chunk::Static(&LONG));
    assert_eq!(t.run(SendChunk(&mut chunk)), Ok(26_000));
    assert_eq!(chunk.as_ref().map(Chunk::as_slice), Some(&LONG[26_000..]));
    assert_eq!(t.run(SendChunk(&mut chunk)), Ok(0));
    assert_eq!(chunk.as_ref().map(Chunk::len), Some(74_000));
    let _ = t.run(Shutdown::Write);
    assert_eq!(t.run(SendChunk(&mut chunk)), Err(Error::Shutdown));
    assert_eq!(chunk.map(|rest| rest.len()), Some(74_000), "a refusal takes nothing");
}
