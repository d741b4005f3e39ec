//! The PCB that a listener's handshakes have in common. A server's connections mostly have the same options, path and
//! peers' SYNs; then all but the values that name a connection, and times, is the same in each PCB. It is computed once,
//! by [`HalfOpen::revive`], and copied for the next ones.
//!
//! What may never happen: a copy that differs from what [`HalfOpen::revive`] would make of the same half-open connection.
//! Each part copies itself in an expression that names all of its fields, so a new field cannot be forgotten.

use core::net::IpAddr;

use observe::Time;
use wire::FourTuple;

use super::half_open::HalfOpen;
use crate::config::{Config, ListenParams};
use crate::isn::ChildIdentity;
use crate::pcb::{Pcb, Reassembly};

/// What half-open connections must have in common for their PCBs to be alike, beside the options of the listener and
/// the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandshakeKind {
    /// See [`HalfOpen`] for these.
    pub(super) mss: u16,
    pub(super) peer_mss: u16,
    pub(super) shift: u8,
    pub(super) features: u8,
    pub(super) ipv6: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub struct ChildPrototype {
    kind: HandshakeKind,
    pcb: Pcb,
}

impl ChildPrototype {
    /// The prototype of connections like this one, with these options of their listener and this configuration. `None`:
    /// there is something rare about it.
    pub fn of(half_open: &HalfOpen, params: &ListenParams<'_>, config: &Config, now: Time) -> Option<ChildPrototype> {
        let kind = half_open.kind()?;
        let mut child = None;
        half_open.revive(&mut child, params, config, now);
        let pcb = child.filter(Pcb::is_plain)?;
        Some(ChildPrototype { kind, pcb })
    }

    /// Whether the PCB of this half-open connection is a copy, if its listener has the same options and the configuration
    /// is the same.
    #[inline]
    pub fn serves(&self, half_open: &HalfOpen) -> bool {
        half_open.kind() == Some(self.kind)
    }

    /// The PCB for this identity.
    #[inline(always)]
    pub(super) fn child(&self, identity: &ChildIdentity<'_>) -> Pcb {
        let pcb = &self.pcb;
        // In one expression, so that each part is made where it stays.
        Pcb {
            retransmit_queue: pcb.retransmit_queue.like(identity),
            receive_window: pcb.receive_window.like(identity),
            header_in: pcb.header_in.like(identity),
            reassembly: Reassembly::new(),
            send_window: pcb.send_window.like(identity),
            header_out: pcb.header_out.like(identity),
        }
    }
}

/// Whether a connection with this tuple is one of IPv6.
#[inline]
pub(super) fn is_ipv6(tuple: &FourTuple) -> bool {
    matches!(tuple.remote_addr, IpAddr::V6(_))
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use observe::Counters;
    use wire::SeqNumber;

    use super::*;
    use crate::config::{ConnectionOptions, KeepAlive};
    use crate::congestion::Kind;
    use crate::ecn::EcnMode;
    use crate::event::Negotiation;
    use crate::isn::Isn;
    use crate::outbox::Outbox;
    use crate::profile::Profile;

    const SYN_AT: Time = Time::from_millis(86_400_123);
    const NOW: Time = Time::from_millis(86_400_177);

    fn params(options: &ConnectionOptions, mss: u16) -> ListenParams<'_> {
        ListenParams { mss, options, defer_accept: 0 }
    }

    fn tuple(ipv6: bool, n: u16) -> FourTuple {
        let ends = if ipv6 { ("fd00::1", "fd00::7:2") } else { ("10.0.0.1", "10.1.0.2") };
        FourTuple {
            local_addr: ends.0.parse().unwrap(),
            remote_addr: ends.1.parse().unwrap(),
            local_port: 80 + n,
            remote_port: 40_000 + n,
        }
    }

    /// The half-open connection of client number `n`, which differs from others in all that is not `agreed`.
    fn half_open(
        (ipv6, n): (bool, u16),
        agreed: &Negotiation,
        params: &ListenParams<'_>,
        config: &Config,
        hashed: bool,
    ) -> HalfOpen {
        let n32 = u32::from(n);
        let iss = SeqNumber(0xffff_ff00) + 77 * n32;
        let isn = Isn { iss, ts_offset: 5_000_000 * n32, flow_hash: hashed.then_some(99 + n32) };
        let agreed = Negotiation { timestamps: agreed.timestamps.map(|_| 1_000_000 * n32), ..*agreed };
        let irs = SeqNumber(0x7fff_fff0) + 13 * n32;
        let at = SYN_AT + Duration::from_micros(1500 * u64::from(n));
        HalfOpen::new(tuple(ipv6, n), irs, isn, params, &agreed, (config, at))
    }

    /// Whether a prototype was made of the connection of one client and agrees with what `revive` makes for another.
    fn agrees(options: &ConnectionOptions, config: &Config, ipv6: bool, agreed: &Negotiation, hashed: bool) -> bool {
        let params = params(options, 1460);
        let made_of = half_open((ipv6, 1), agreed, &params, config, hashed);
        let Some(prototype) = ChildPrototype::of(&made_of, &params, config, SYN_AT) else { return false };
        for n in [1, 2, 9] {
            let other = half_open((ipv6, n), agreed, &params, config, hashed);
            assert!(prototype.serves(&other));
            let (mut revived, mut copied) = (None, None);
            other.revive(&mut revived, &params, config, NOW);
            other.copy(&prototype, &mut copied, NOW);
            assert_eq!(format!("{copied:#?}"), format!("{revived:#?}"), "{options:?} {agreed:?}");
        }
        true
    }

    fn negotiations() -> impl Iterator<Item = Negotiation> {
        let shifts = [None, Some(0), Some(7), Some(14)];
        let each = [false, true].into_iter().flat_map(move |on| shifts.map(|shift| (on, shift)));
        each.flat_map(|(timestamps, shift)| {
            [(536, true), (1460, false), (8960, true)].map(|(peer_mss, sack)| Negotiation {
                peer_mss,
                shift,
                timestamps: timestamps.then_some(0),
                sack,
            })
        })
    }

    /// Every option that a PCB stores where a prototype can have it.
    fn plain_options() -> Vec<ConnectionOptions> {
        let none = ConnectionOptions::default;
        vec![
            none(),
            ConnectionOptions { no_delay: true, cork: true, congestion: Some(Kind::NewReno), ..none() },
            ConnectionOptions { send_buffer: Some(9000), receive_buffer: Some(7000), ..none() },
            ConnectionOptions { max_segment: Some(900), announced_mss: Some(700), ..none() },
            ConnectionOptions { initial_receive_window: Some(2), window_clamp: Some(5000), ..none() },
            ConnectionOptions { receive_low_water: Some(3), traffic_class: 0xb8, hop_limit: Some(9), ..none() },
        ]
    }

    #[test]
    fn a_copy_is_what_the_half_open_connection_is_revived_to() {
        for config in Profile::ALL.iter().map(|profile| profile.config()) {
            for (options, agreed) in
                plain_options().iter().flat_map(|options| negotiations().map(move |it| (options, it)))
            {
                for (ipv6, hashed) in [(false, true), (true, true), (false, false)] {
                    assert!(agrees(options, &config, ipv6, &agreed, hashed), "{options:?}");
                }
            }
        }
    }

    /// What a PCB keeps on the heap is not copied.
    #[test]
    fn there_is_no_prototype_of_a_pcb_with_memory_of_its_own() {
        let none = ConnectionOptions::default;
        let rare = [
            ConnectionOptions { keep_alive: Some(KeepAlive::default()), ..none() },
            ConnectionOptions { not_sent_low_water: Some(1), ..none() },
            ConnectionOptions { max_pacing_rate: Some(1_000_000), ..none() },
            ConnectionOptions { user_timeout: Some(Duration::from_secs(9)), ..none() },
            ConnectionOptions { initial_window: Some(3), ..none() },
        ];
        for (options, agreed) in rare.iter().flat_map(|options| negotiations().map(move |agreed| (options, agreed))) {
            assert!(!agrees(options, &Config::default(), false, &agreed, true), "{options:?}");
        }
    }

    #[test]
    fn a_prototype_serves_its_own_kind_alone() {
        let (config, options) = (Config::default(), ConnectionOptions::default());
        let params = params(&options, 1460);
        let agreed = Negotiation { peer_mss: 1460, shift: Some(7), timestamps: Some(0), sack: true };
        let like = |agreed: &Negotiation| half_open((false, 2), agreed, &params, &config, true);
        let prototype = ChildPrototype::of(&like(&agreed), &params, &config, NOW).expect("nothing is rare");
        assert!(prototype.serves(&like(&agreed)));
        let others = [
            Negotiation { peer_mss: 1459, ..agreed },
            Negotiation { shift: Some(8), ..agreed },
            Negotiation { shift: None, ..agreed },
            Negotiation { timestamps: None, ..agreed },
            Negotiation { sack: false, ..agreed },
        ];
        assert!(others.iter().all(|other| !prototype.serves(&like(other))));
        assert!(!prototype.serves(&half_open((true, 2), &agreed, &params, &config, true)), "IPv6");
        assert!(!prototype.serves(&half_open((false, 2), &agreed, &params, &config, false)), "without a flow hash");
        let narrow = ListenParams { mss: 1400, ..params };
        assert!(!prototype.serves(&half_open((false, 2), &agreed, &narrow, &config, true)), "another path");
    }

    /// The round trip of these is not timed, their PCB counts time-outs, or has a record of ECN.
    #[test]
    fn rare_handshakes_have_no_prototype_and_are_served_by_none() {
        let (config, options, counters) = (Config::default(), ConnectionOptions::default(), Counters::new());
        let params = params(&options, 1460);
        let agreed = Negotiation { peer_mss: 1460, shift: Some(7), timestamps: Some(0), sack: true };
        let usual = || half_open((false, 2), &agreed, &params, &config, true);
        let prototype = ChildPrototype::of(&usual(), &params, &config, NOW).expect("nothing is rare");
        let mut again = usual();
        assert!(again.timed_out(&params, 5, &mut Outbox::new(&config, &counters), NOW));
        let ecn = |mode| usual().with_ecn(mode, 0);
        for rare in [again, usual().untimed(), ecn(EcnMode::Classic), ecn(EcnMode::Accurate)] {
            assert!(!prototype.serves(&rare), "{rare:?}");
            assert!(ChildPrototype::of(&rare, &params, &config, NOW).is_none());
        }
    }
}
