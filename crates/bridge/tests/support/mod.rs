//! A bridge with ports, and frames for it.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod lans;

use bridge::{Bridge, Decision, FdbConfig, ForwardedFrame, PortConfig, PortNumber, PortState, Vid};
use frames::Frame;
use observe::{Counters, DropReason, Time};
use wire::ethernet::{MacAddr, VlanTag};

pub fn port(number: u16) -> PortNumber {
    PortNumber::new(number).expect("a port number")
}

pub fn vid(id: u16) -> Vid {
    Vid::new(id).expect("a VLAN identifier")
}

/// A station's address.
pub fn station(n: u32) -> MacAddr {
    let [a, b, c, d] = n.to_be_bytes();
    MacAddr([0x02, 0, a, b, c, d])
}

pub fn tag(id: u16) -> Option<VlanTag> {
    Some(VlanTag { priority: 5, drop_eligible: true, id })
}

pub fn frame(src: MacAddr, dst: MacAddr, tag: Option<VlanTag>, payload: usize) -> Vec<u8> {
    let payload = vec![0; payload];
    Frame { tags: tag.as_slice(), ..Frame::experiment(src, dst, &payload) }.bytes()
}

pub struct World {
    pub bridge: Bridge,
    pub counters: Counters,
    pub now: Time,
}

impl World {
    /// With `ports` ports, all forwarding.
    pub fn new(ports: u16) -> World {
        World::with(ports, FdbConfig::default())
    }

    pub fn with(ports: u16, fdb: FdbConfig) -> World {
        let mut bridge = Bridge::new(fdb);
        (0..ports).for_each(|n| bridge.add_port(port(n), PortConfig::default(), PortState::Forwarding));
        World { bridge, counters: Counters::new(), now: Time::from_secs(1000) }
    }

    pub fn decide(&mut self, from: u16, bytes: &[u8]) -> Decision {
        self.bridge.receive(port(from), bytes, &self.counters, self.now)
    }

    /// The copies that leave, or the reason of the drop.
    pub fn send(&mut self, from: u16, bytes: &[u8]) -> Result<Vec<ForwardedFrame>, DropReason> {
        match self.decide(from, bytes) {
            Decision::Forward(egress) => Ok(vec![egress]),
            Decision::Flood(flood) => Ok(flood.egress(self.bridge.members(), &self.counters).collect()),
            Decision::Bpdu => panic!("not a BPDU"),
            Decision::Drop(reason) => Err(reason),
        }
    }

    /// The ports by which a frame of 46 bytes of data leaves.
    pub fn ports(&mut self, from: u16, src: MacAddr, dst: MacAddr) -> Result<Vec<u16>, DropReason> {
        let copies = self.send(from, &frame(src, dst, None, 46))?;
        Ok(copies.iter().map(|egress| egress.port.get()).collect())
    }
}
