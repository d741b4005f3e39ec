//! Complete sets of parameters: how a stack behaves on the wire.
//!
//! A profile decides everything that a peer, a packet script or a fingerprinting tool can distinguish. It is a starting
//! point: every value can be set afterwards, by field or by [`crate::knobs`].

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use wire::tcp::OptionOrder;

use crate::config::{BufferSizes, Config, DataShare, Ecn, FastOpenMode, KeepAlive, SendAccounting, WindowRule};
use crate::rtt::{RtoFloor, RttConfig};

/// The stack whose behaviour on the wire is imitated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// Linux 6.x: RTO at least 200 ms above the smoothed round trip, quick acknowledgements at the beginning, buffers
    /// that grow to 6 and 4 MiB (window scale 7), half of the first for data: windows from 64 KiB to 3 MiB.
    #[default]
    Linux,
    /// FreeBSD 14: its order of options, minimum RTO 30 ms on top of the smoothed round trip, every second segment
    /// acknowledged, 64 KiB buffers that grow to 2 MiB (window scale 6).
    FreeBsd,
    /// The letter of the standards-track RFCs: minimum RTO 1 s (6298), initial window of 2 to 4 segments (5681), delay
    /// 200 ms and no quick acknowledgements, TIME-WAIT of 4 minutes, R2 of a SYN beyond 3 minutes (9293), ECN requested
    /// (9293 SHLD-8), hard ICMP errors accepted on established connections (9293 SHLD-26).
    Rfc,
}

impl Profile {
    /// Every profile, for tables and option parsers.
    pub const ALL: &'static [Profile] = &[Profile::Linux, Profile::FreeBsd, Profile::Rfc];

    /// The name in configuration, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::Linux => "linux",
            Profile::FreeBsd => "freebsd",
            Profile::Rfc => "rfc",
        }
    }

    /// The parameters.
    pub fn config(self) -> Config {
        match self {
            Profile::Linux => Config::default(),
            Profile::FreeBsd => freebsd(),
            Profile::Rfc => rfc(),
        }
    }
}

impl From<Profile> for Config {
    fn from(profile: Profile) -> Self {
        profile.config()
    }
}

fn freebsd() -> Config {
    Config {
        receive_buffer: BufferSizes { min: 4 << 10, initial: 64 << 10, max: 2 << 20 },
        receive_share: DataShare::ALL,
        send_buffer: BufferSizes { min: 4 << 10, initial: 32 << 10, max: 2 << 20 },
        send_accounting: SendAccounting::Bytes,
        rto: RttConfig { min_rto: Duration::from_millis(30), max_rto: Duration::from_secs(64), ..RttConfig::default() },
        delayed_ack_max: Duration::ZERO,
        quick_acks: 0,
        delay_fin_acks: false,
        initial_window_bytes: 14_600,
        retries: 12,
        syn_retries: 12,
        syn_ack_retries: 3,
        keep_alive: KeepAlive { probes: 8, ..KeepAlive::default() },
        paws_window: 0,
        option_order: OptionOrder::FreeBsd,
        window_rule: WindowRule::FreeBsd,
        trust_route_mtu: false,
        fast_open: FastOpenMode(0),
        reset_on_timeout: true,
        ..Config::default()
    }
}

fn rfc() -> Config {
    Config {
        receive_buffer: BufferSizes { min: 4 << 10, initial: 64 << 10, max: 4 << 20 },
        receive_share: DataShare::ALL,
        send_buffer: BufferSizes { min: 4 << 10, initial: 64 << 10, max: 4 << 20 },
        send_accounting: SendAccounting::Bytes,
        rto: RttConfig { min_rto: Duration::from_secs(1), floor: RtoFloor::Total, ..RttConfig::default() },
        initial_window: 4,
        initial_window_bytes: 4380,
        window_rule: WindowRule::Rfc,
        trust_route_mtu: false,
        delayed_ack: Duration::from_millis(200),
        delayed_ack_max: Duration::ZERO,
        quick_acks: 0,
        delay_fin_acks: false,
        time_wait: Duration::from_secs(240),
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
        //# In particular, R2 for a SYN segment MUST be set large enough to provide retransmission of the segment for at
        //# least 3 minutes (MUST-23).
        syn_retries: 7,
        syn_ack_retries: 7,
        ecn: Ecn::Request,
        strict_timestamps: true,
        paws_window: 0,
        reset_on_timeout: true,
        hard_errors_abort: true,
        cubic_cuts_window: false,
        fast_open: FastOpenMode(0),
        ..Config::default()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProfile(String);

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown profile `{}`: choose `linux`, `freebsd` or `rfc`", self.0)
    }
}

impl std::error::Error for UnknownProfile {}

impl FromStr for Profile {
    type Err = UnknownProfile;

    /// Parses a name, ignoring case.
    fn from_str(name: &str) -> Result<Profile, UnknownProfile> {
        let lower = name.to_ascii_lowercase();
        Profile::ALL
            .iter()
            .copied()
            .find(|profile| profile.name() == lower)
            .ok_or_else(|| UnknownProfile(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_refused_with_the_remedy() {
        for &profile in Profile::ALL {
            assert_eq!(profile.name().to_uppercase().parse(), Ok(profile));
        }
        let error = "openbsd".parse::<Profile>().expect_err("there is none");
        assert_eq!(error.to_string(), "unknown profile `openbsd`: choose `linux`, `freebsd` or `rfc`");
    }

    #[test]
    fn linux_alone_takes_a_timestamp_that_is_a_tick_too_old() {
        let windows: Vec<_> = Profile::ALL.iter().map(|profile| profile.config().paws_window).collect();
        assert_eq!(windows, [1, 0, 0]);
    }

    #[test]
    fn linux_alone_lets_the_acknowledgement_of_a_fin_wait() {
        let waits: Vec<_> = Profile::ALL.iter().map(|profile| profile.config().delay_fin_acks).collect();
        assert_eq!(waits, [true, false, false]);
    }

    #[test]
    fn profiles_show_different_window_scales() {
        let shifts: Vec<_> = Profile::ALL.iter().map(|profile| profile.config().window_shift()).collect();
        assert_eq!(shifts, [7, 6, 7]);
    }
}
