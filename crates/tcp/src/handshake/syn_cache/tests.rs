use std::collections::HashMap;
use std::time::Duration;

use wire::SeqNumber;

use super::*;
use crate::config::{ConnectionOptions, ListenParams};
use crate::event::Negotiation;
use crate::isn::Isn;

fn tuple(port: u16) -> FourTuple {
    let address = |last: u16| IpAddr::from([10, 0, 0, last as u8]);
    FourTuple { local_addr: address(port % 3), remote_addr: address(9), local_port: 80, remote_port: port }
}

fn half_open(port: u16, config: &Config, now: Time) -> HalfOpen {
    let agreed = Negotiation { peer_mss: 1000, shift: None, timestamps: None, sack: false };
    let isn = Isn { iss: SeqNumber(1), ts_offset: 0, flow_hash: None };
    let params = ListenParams { mss: 1460, options: &ConnectionOptions::default(), defer_accept: 0 };
    HalfOpen::new(tuple(port), SeqNumber(100), isn, &params, &agreed, (config, now))
}

/// Memory per SYN of a flood, beside its share of the buckets: 4 to 8 bytes.
#[test]
fn an_entry_is_small() {
    assert!(size_of::<SynCacheSlot<[Box<u64>; 5]>>() <= 128, "{} bytes", size_of::<SynCacheSlot<[Box<u64>; 5]>>());
}

/// The cache compared with a map, through random insertions and removals. Eight hashes for all tuples, so that the
/// chains of buckets are long.
#[test]
fn what_was_put_in_is_found_until_it_is_taken_out() {
    let (config, mut cache, mut model) = (Config::default(), SynCache::default(), HashMap::new());
    let mut state = 1_u32;
    for round in 0..4000_u64 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let port = (state >> 16) as u16 % 200;
        let hash = u32::from(port % 8);
        // What was recalled last is found first: this one, another one of the same bucket, or one that has gone since.
        let _ = cache.recall(&tuple(if round % 2 == 0 { port } else { port ^ 8 }), 0);
        let found = cache.find(&tuple(port), hash);
        assert_eq!(found.is_some(), model.contains_key(&port));
        match found {
            Some(slot) => {
                assert_eq!(cache.get_mut(slot).map(|(_, beside)| *beside), model.get(&port).copied());
                assert_eq!(cache.remove(slot), model.remove(&port));
            }
            None => {
                let now = Time::from_nanos(round);
                cache.insert(half_open(port, &config, now), round, hash, &config, now);
                model.insert(port, round);
            }
        }
        assert_eq!((cache.len(), cache.is_empty()), (model.len(), model.is_empty()));
    }
    assert!(!model.is_empty());
    let mut abandoned = Vec::new();
    cache.abandon([10, 0, 0, 1].into(), |_, beside| abandoned.push(beside));
    assert!(abandoned.iter().all(|beside| model.values().any(|other| other == beside)));
    model.retain(|port, _| port % 3 != 1);
    assert_eq!(cache.len(), model.len());
    assert!(model.keys().all(|port| cache.find(&tuple(*port), u32::from(port % 8)).is_some()));
}

/// A half-open connection with the hash of its flow.
fn hashed(port: u16, flow_hash: u32, config: &Config) -> HalfOpen {
    let agreed = Negotiation { peer_mss: 1000, shift: None, timestamps: None, sack: false };
    let isn = Isn { iss: SeqNumber(1), ts_offset: 0, flow_hash: Some(flow_hash) };
    let params = ListenParams { mss: 1460, options: &ConnectionOptions::default(), defer_accept: 0 };
    HalfOpen::new(tuple(port), SeqNumber(100), isn, &params, &agreed, (config, Time::ZERO))
}

/// By the hash of its flow the later of two is found first; a third takes the place of the earlier. What has gone, or is concealed,
/// is not recalled, and found by its own hash.
#[test]
fn the_latest_two_of_a_flow_hash_are_recalled() {
    let (config, mut cache) = (Config::default(), SynCache::default());
    assert_eq!(cache.recall(&tuple(1), 7), None);
    for port in 1..=3 {
        cache.insert(hashed(port, 7, &config), (), 100 + u32::from(port), &config, Time::ZERO);
    }
    let recalled = |cache: &mut SynCache<()>| [1, 2, 3, 4].map(|port| cache.recall(&tuple(port), 7));
    assert_eq!(recalled(&mut cache), [None, Some(102), Some(103), None]);
    let slot = cache.find(&tuple(3), 103).expect("it was put in");
    assert!(cache.remove(slot).is_some());
    assert_eq!(recalled(&mut cache), [None, Some(102), None, None]);
    cache.insert(hashed(4, 7, &config), (), 104, &config, Time::ZERO);
    assert_eq!(recalled(&mut cache)[3], Some(104));
    cache.conceal(7);
    assert_eq!(recalled(&mut cache), [None; 4]);
    cache.insert(hashed(5, 7, &config), (), 105, &config, Time::ZERO);
    assert_eq!(cache.recall(&tuple(5), 7), Some(105));
    cache.conceal_all();
    assert_eq!(cache.recall(&tuple(5), 7), None);
    assert!(
        [(1, 101), (2, 102), (4, 104), (5, 105)]
            .into_iter()
            .all(|(port, hash)| cache.find(&tuple(port), hash).is_some())
    );
}

#[test]
fn memory_of_the_entries_that_left_is_used_again() {
    let (config, mut cache) = (Config::default(), SynCache::default());
    for _ in 0..3 {
        (0..100)
            .for_each(|port| cache.insert(half_open(port, &config, Time::ZERO), (), port.into(), &config, Time::ZERO));
        (0..100_u16).for_each(|port| {
            let slot = cache.find(&tuple(port), port.into()).expect("it was put in");
            assert_eq!(cache.remove(slot), Some(()));
        });
    }
    assert_eq!((cache.slots, cache.buckets.len()), (100, 128));
    assert_eq!(cache.cached_deadline(), u64::MAX, "nothing is due when there is nothing");
}

/// Each entry is due at its own time, regardless of the entries before it.
#[test]
fn time_outs_come_in_the_order_of_their_deadlines() {
    let config = Config::default();
    let (mut cache, second) = (SynCache::default(), Duration::from_secs(1));
    let start = Time::from_secs(1);
    for port in 0..50_u16 {
        let now = start + Duration::from_millis(port.into());
        cache.insert(half_open(port, &config, now), port, port.into(), &config, now);
    }
    let gone = cache.find(&tuple(7), 7).expect("it was put in");
    assert_eq!(cache.remove(gone), Some(7));
    let out = |half_open: &mut HalfOpen, limit, now| {
        let counters = observe::Counters::new();
        let mut out = crate::outbox::Outbox::new(&config, &counters);
        let params = ListenParams { mss: 1460, options: &ConnectionOptions::default(), defer_accept: 0 };
        half_open.timed_out(&params, limit, &mut out, now)
    };
    let mut now = start;
    let mut sequence = Vec::new();
    while !cache.is_empty() {
        let next = Time::from_nanos(cache.cached_deadline());
        assert!(next >= now && next < start + 8 * second, "{next:?} after {now:?}");
        now = next;
        while let Some(slot) = cache.due(&config, now) {
            let (half_open, port) = cache.get_mut(slot).expect("it is due");
            assert_eq!(half_open.deadline(&config, now), now, "it waits for no other");
            sequence.push((half_open.retries(), *port));
            let kept = cache.time_out(slot, &config, now, |half_open, _| out(half_open, 2, now));
            assert_eq!(kept.is_some(), sequence.last().is_some_and(|(retries, _)| *retries == 2));
        }
    }
    let all = (0..3).flat_map(|retries| (0..50).filter(|port| *port != 7).map(move |port| (retries, port)));
    assert_eq!(sequence, all.collect::<Vec<_>>());
}
