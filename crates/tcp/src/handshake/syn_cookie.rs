//! SYN cookies (RFC 4987 section 3.6): a SYN-ACK with all the state of the handshake in its sequence number, so that no
//! memory is needed.
//!
//! ```text
//! sequence number   epoch mod 2 (1 bit) | MSS class (3 bits) | keyed hash (28 bits)
//! timestamp         clock (26 bits) | ECN (1 bit) | SACK (1 bit) | window shift, 15: none (4 bits)
//! ```
//!
//! The hash covers the tuple, the peer's sequence number, the epoch and the MSS class; the key is in [`HandshakeSecrets`], and
//! each epoch of 64 s acts as a new one: one bit selects one of the last two epochs, and the hash rejects others.
//! Without timestamps the options that have no room are not granted. What may never happen: a connection from an
//! acknowledgement with a wrong hash, or with one older than two epochs.

use core::time::Duration;

use observe::{Counter, DropReason, Time};
use wire::tcp::TcpFlags;
use wire::{FourTuple, SeqNumber};

use crate::config::{Config, Ecn, ListenParams};
use crate::ecn::{self, EcnMode};
use crate::event::Negotiation;
use crate::isn::Isn;
use crate::outbox::Outbox;
use crate::pcb::Pcb;
use crate::segment::Segment;

use super::half_open::{HalfOpen, Progress, agreement};
use super::listen;
use super::secrets::HandshakeSecrets;

/// Longest validity of a cookie.
pub const LIFE: Duration = Duration::from_secs(128);

/// An epoch in nanoseconds.
const EPOCH_NS: u64 = 64_000_000_000;
/// Classes of the announced MSS: the largest class not above it is used.
const MSS: [u16; 8] = [216, 536, 1220, 1300, 1400, 1440, 1460, 8940];

/// Low bits of the timestamp that hold options.
const STAMP_BITS: u32 = 0x3f;
const STAMP_NO_SHIFT: u32 = 0xf;
const STAMP_SACK: u32 = 0x10;
const STAMP_ECN: u32 = 0x20;

/// Bits of the sequence number that are hash.
const MAC_BITS: u32 = 0x0fff_ffff;

fn epoch(now: Time) -> u32 {
    (now.as_nanos() / EPOCH_NS) as u32
}

fn encode((tuple, irs): (&FourTuple, SeqNumber), mss: u16, secrets: &HandshakeSecrets, now: Time) -> SeqNumber {
    let (epoch, class) = (epoch(now), MSS.iter().rposition(|&class| class <= mss).unwrap_or(0) as u32);
    SeqNumber(epoch << 31 | class << 28 | secrets.mac(tuple, irs, epoch, class) & MAC_BITS)
}

/// The MSS in a cookie that we made at most two epochs ago.
fn decode(
    (tuple, irs): (&FourTuple, SeqNumber),
    cookie: SeqNumber,
    secrets: &HandshakeSecrets,
    now: Time,
) -> Option<u16> {
    let class = cookie.0 >> 28 & 7;
    let made = [0, 1].into_iter().filter_map(|age| epoch(now).checked_sub(age)).find(|made| made & 1 == cookie.0 >> 31);
    let expected = secrets.mac(tuple, irs, made?, class) & MAC_BITS;
    (expected == cookie.0 & MAC_BITS).then(|| MSS[class as usize])
}

/// Answers a SYN with a cookie, without keeping state. The sequence number of `isn` is not used.
///
/// # Errors
/// The reason for which there is no answer, counted already.
pub fn answer(
    params: &ListenParams<'_>,
    segment: &Segment,
    isn: Isn,
    secrets: &HandshakeSecrets,
    out: &mut Outbox<'_>,
    now: Time,
) -> Result<(), DropReason> {
    listen::admit_syn(segment, out)?;
    let header = &segment.header;
    let mut agreed = agreement(header, &segment.tuple, out.config);
    // Accurate ECN needs more state; a request for it is granted classic ECN.
    let ecn = if out.config.ecn.accepts() { Ecn::Accept } else { Ecn::Off };
    let classic = ecn::grant(header.flags, segment.ecn(), ecn);
    let stamp = agreed.timestamps.map(|_| {
        let flag = |condition, bit| if condition { bit } else { 0 };
        let options = agreed.shift.map_or(STAMP_NO_SHIFT, u32::from)
            | flag(agreed.sack, STAMP_SACK)
            | flag(classic == EcnMode::Classic, STAMP_ECN);
        let clock = (now.as_millis() as u32).wrapping_add(isn.ts_offset);
        let stamp = clock & !STAMP_BITS | options;
        // The timestamp must not be ahead of our clock.
        if stamp.wrapping_sub(clock) as i32 > 0 { stamp.wrapping_sub(STAMP_BITS + 1) } else { stamp }
    });
    if stamp.is_none() {
        agreed = Negotiation { shift: None, sack: false, ..agreed };
    }
    let isn = Isn { iss: encode((&segment.tuple, header.seq), agreed.peer_mss, secrets, now), ..isn };
    let half_open = HalfOpen::new(segment.tuple, header.seq, isn, params, &agreed, (out.config, now));
    let half_open = half_open.with_ecn(if stamp.is_some() { classic } else { EcnMode::Off }, segment.ecn());
    half_open.send(params, (stamp, None), out, now);
    out.count(Counter::SynCookiesOut, 1);
    Ok(())
}

/// An acknowledgement for a listener that belongs to no connection: the half-open connection encoded in its cookie,
/// `None` if it has no cookie of ours. `isn`: offset and hash as they were for the SYN; its sequence number is not
/// used.
pub fn accept(
    params: &ListenParams<'_>,
    segment: &Segment,
    isn: Isn,
    secrets: &HandshakeSecrets,
    config: &Config,
    now: Time,
) -> Option<HalfOpen> {
    let header = &segment.header;
    let others = TcpFlags::SYN | TcpFlags::RST;
    if !header.flags.contains(TcpFlags::ACK) || header.flags.intersects(others) || !segment.checksum_holds() {
        return None;
    }
    let (irs, iss) = (header.seq + u32::MAX, header.ack + u32::MAX);
    let peer_mss = decode((&segment.tuple, irs), iss, secrets, now)?;
    let stamps = header.options.timestamps.filter(|_| config.timestamps);
    let options = stamps.map_or(STAMP_NO_SHIFT, |stamps| stamps.echo & STAMP_BITS);
    let shift = (options & STAMP_NO_SHIFT != STAMP_NO_SHIFT).then_some((options & STAMP_NO_SHIFT) as u8);
    let agreed = Negotiation {
        peer_mss: peer_mss.max(config.min_mss),
        shift: shift.filter(|_| config.window_scaling),
        timestamps: stamps.map(|stamps| stamps.value),
        sack: options & STAMP_SACK != 0 && config.sack,
    };
    let classic = stamps.is_some() && options & STAMP_ECN != 0 && config.ecn.accepts();
    let half_open = HalfOpen::new(segment.tuple, irs, Isn { iss, ..isn }, params, &agreed, (config, now));
    Some(half_open.with_ecn(if classic { EcnMode::Classic } else { EcnMode::Off }, 0).untimed())
}

/// Completes the handshake of a half-open connection made by [`accept`], with the same segment, and leaves the connection
/// in `child`. Returns whether there is one.
pub fn complete(
    mut half_open: HalfOpen,
    params: &ListenParams<'_>,
    arrival: &mut Option<Segment>,
    (child, out): (&mut Option<Pcb>, &mut Outbox<'_>),
    now: Time,
) -> bool {
    // Without stored state nothing can wait for payload.
    let params = ListenParams { defer_accept: 0, ..*params };
    match half_open.segment_arrives((&params, None), arrival, (child, out), now) {
        Progress::Established => {
            out.count(Counter::SynCookiesIn, 1);
            true
        }
        Progress::Waiting | Progress::Ended => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: HandshakeSecrets = HandshakeSecrets { syn_cookie: (3, 4), fast_open: [0; 16] };

    fn tuple() -> FourTuple {
        let ends = [10, 0, 0, 1].into();
        FourTuple { local_addr: ends, remote_addr: ends, local_port: 80, remote_port: 2000 }
    }

    #[test]
    fn a_cookie_is_good_for_its_epoch_and_the_next() {
        for start in [0, 63, 64, 64 * 31, 64 * 32, 1 << 30] {
            let made = Time::from_secs(start);
            let (tuple, irs) = (&tuple(), SeqNumber(77));
            let cookie = encode((tuple, irs), 1460, &SECRETS, made);
            let decode = |irs, now| decode((tuple, irs), cookie, &SECRETS, now);
            assert_eq!(decode(irs, made), Some(1460));
            assert_eq!(decode(irs, made + Duration::from_secs(64)), Some(1460));
            assert_eq!(decode(irs, made + LIFE), None);
            assert_eq!(decode(irs, made + Duration::from_secs(64 * 32)), None, "the epoch's bits are the same");
            assert_eq!(decode(irs + 1, made), None);
        }
    }

    #[test]
    fn the_mss_is_rounded_down() {
        let classes = [(0, 216), (216, 216), (1000, 536), (1459, 1440), (1460, 1460), (u16::MAX, 8940)];
        for (announced, used) in classes {
            let syn = (&tuple(), SeqNumber(1));
            let cookie = encode(syn, announced, &SECRETS, Time::ZERO);
            assert_eq!(decode(syn, cookie, &SECRETS, Time::ZERO), Some(used));
        }
    }
}
