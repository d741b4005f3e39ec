//! BPDUs: parsing returns the written BPDU, and no bytes make the parser panic.

use proptest::prelude::*;
use wire::ethernet::MacAddr;
use wire::stp::{Bpdu, BridgeId, ConfigBpdu, PortRole, PriorityVector, Rapid, Times};

prop_compose! {
    fn priority()(root: u64, cost: u32, bridge: u64, port: u16) -> PriorityVector {
        PriorityVector { root: BridgeId(root), cost, bridge: BridgeId(bridge), port }
    }
}

prop_compose! {
    fn times()(message_age in 0..u16::MAX, more in 1..=u16::MAX, hello: u16, forward_delay: u16) -> Times {
        Times { message_age, max_age: message_age.saturating_add(more), hello, forward_delay }
    }
}

prop_compose! {
    fn rapid()(flags: [bool; 6], role in 0..4usize, priority in priority(), times in times()) -> Rapid {
        let [topology_change, proposal, learning, forwarding, agreement, acknowledgement] = flags;
        let role = [PortRole::Unknown, PortRole::AlternateOrBackup, PortRole::Root, PortRole::Designated][role];
        Rapid {
            topology_change, proposal, role, learning, forwarding, agreement, acknowledgement, priority, times,
        }
    }
}

prop_compose! {
    fn config()(topology_change: bool, acknowledgement: bool, priority in priority(), times in times()) -> ConfigBpdu {
        ConfigBpdu { topology_change, acknowledgement, priority, times }
    }
}

fn bpdu() -> impl Strategy<Value = Bpdu> {
    prop_oneof![Just(Bpdu::Notification), config().prop_map(Bpdu::Config), rapid().prop_map(Bpdu::Rapid)]
}

proptest! {
    #[test]
    fn bpdu_round_trip(bpdu in bpdu(), from: [u8; 6]) {
        prop_assert_eq!(Bpdu::of_frame(&bpdu.emit(MacAddr(from))), Ok(bpdu));
    }

    #[test]
    fn no_damaged_bpdu_makes_the_parser_panic(
        bpdu in bpdu(), damage in proptest::collection::vec((0..60usize, any::<u8>()), 0..5), len in 0..=60usize,
    ) {
        let mut frame = bpdu.emit(MacAddr([2; 6]));
        damage.iter().for_each(|(at, byte)| frame[*at] = *byte);
        let _ = Bpdu::of_frame(&frame[..len]);
    }
}
