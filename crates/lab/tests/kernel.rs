//! The kernel's TCP as a contender: delivery, idle periods, and errors.

use std::time::Duration;

use lab::kernel::{Ends, KernelBench, KernelError, Params, SendMode, most_connections};
use lab::sampling::{Contender, Runner, Samples, Schedule, Slice};

const SHORT: Duration = Duration::from_millis(20);

fn params() -> Params {
    Params { connections: 5, threads: 2, message: 16_384, ..Params::default() }
}

/// A slice with some work: on a busy machine a short one may pass without any.
fn busy_slice(bench: &mut KernelBench) -> Slice {
    let mut slices = (0..500).map(|_| bench.run_slice(SHORT).unwrap());
    slices.find(|slice| slice.operations > 0).expect("ten seconds are enough to do something")
}

#[test]
fn bulk_delivers_in_every_mode() {
    for send in [SendMode::Sendfile, SendMode::Write] {
        for ends in [Ends::Together, Ends::Apart] {
            let mut bench = KernelBench::open(&Params { send, ends, ..params() }).unwrap();
            for _ in 0..2 {
                let slice = busy_slice(&mut bench);
                assert!(slice.bytes > 0 && !slice.cpu.is_zero(), "{send:?} {ends:?}");
                assert!(slice.bytes <= slice.operations * 16_384);
                assert!(slice.wall >= SHORT);
            }
            bench.close();
        }
    }
}

#[test]
fn request_response_counts_whole_transactions() {
    let mut bench = KernelBench::open_rpc(&params()).unwrap();
    let (mut bytes, mut operations) = (0, 0);
    let mut slices = 0;
    while slices < 3 || (operations == 0 && slices < 500) {
        slices += 1;
        let slice = bench.run_slice(SHORT).unwrap();
        bytes += slice.bytes;
        operations += slice.operations;
    }
    assert!(operations > 0);
    // Two messages of 64 bytes are a transaction; on each of the 5 connections at most one is in progress.
    assert!((operations * 128..=operations * 128 + 5 * 128).contains(&bytes), "{bytes} bytes, {operations} done");
}

#[test]
fn connections_are_set_up_and_closed() {
    let mut bench = KernelBench::open_connect(&params()).unwrap();
    assert!(busy_slice(&mut bench).operations > 0);
    assert!(bench.name().contains("connection rate"));
}

#[test]
fn notes_name_the_mtu_and_the_granted_buffers() {
    let bench = KernelBench::open(&Params { send_buffer: Some(32_768), ..params() }).unwrap();
    let note = &bench.notes()[0];
    assert!(note.contains("loopback MTU") && note.contains("send buffer 32768 bytes"), "{note}");
    assert!(note.contains("receive buffer autotuned"), "{note}");
}

#[test]
fn nonsense_and_too_many_descriptors_are_refused_in_one_sentence() {
    let none = KernelBench::open(&Params { connections: 0, ..params() }).unwrap_err();
    assert_eq!(none.to_string(), "the kernel benchmark needs at least one connection");
    let large = KernelBench::open_rpc(&Params { request: 4097, ..params() }).unwrap_err();
    assert!(matches!(large, KernelError::Parameter(_)));
    let many = KernelBench::open(&Params { connections: u32::MAX, ..params() }).unwrap_err();
    assert!(matches!(many, KernelError::FileLimit { .. }), "{many}");
    assert_eq!(most_connections(5, 2), 5);
    assert!((5..u32::MAX).contains(&most_connections(u32::MAX, 2)));
}

#[test]
fn it_takes_part_in_a_comparison() {
    let mut sendfile = KernelBench::open(&params()).unwrap();
    let mut write = KernelBench::open(&Params { send: SendMode::Write, ..params() }).unwrap();
    let schedule = Schedule { warmup_slices: 1, repetitions: 2, slice_ms: 100 };
    // As with a slice: on a busy machine a contender may do nothing in a comparison, and then there is no ratio.
    let mut comparisons = (0..50).map(|_| Runner::new(schedule).run(&mut [&mut sendfile, &mut write], || None, |_| {}));
    let did = |samples: &Samples| samples.failed.is_some() || samples.slices.iter().all(|slice| slice.bytes > 0);
    let samples = comparisons.find(|samples| samples.iter().all(did)).expect("half a minute is enough to do something");
    assert!(samples.iter().all(|s| s.slices.len() == 2 && s.failed.is_none()));
    let ratio = samples[0].ratio_to(&samples[1], Slice::gbps).unwrap();
    assert!(ratio.mean > 0.0 && ratio.ci95.is_some());
}
