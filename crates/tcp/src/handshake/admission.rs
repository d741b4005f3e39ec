//! How a listener answers a SYN, as a function of the occupancy of its queues, the configuration, and the SYN.
//!
//! A full accept queue drops the SYN; the peer sends it again. With a full SYN cache the answer is a cookie (RFC 4987
//! section 3.6), if the configuration enables them. A SYN with a valid Fast Open cookie opens its connection at once
//! (RFC 7413 section 4.2), but never while the SYN cache is full.

use observe::DropReason;
use wire::tcp::FastOpen;

use crate::config::{Config, SynCookies};
use crate::fast_open::{CookieDecision, CookieKeys};
use crate::scarcity::Scarcity;
use crate::segment::Segment;

/// Retransmissions of a SYN-ACK while a listener is crowded.
const RETRIES_WHEN_CROWDED: u8 = 2;

/// How full a bounded queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Places taken.
    pub used: usize,
    /// Places that there are.
    pub limit: usize,
}

impl Occupancy {
    /// Whether there is no place left.
    pub fn is_full(self) -> bool {
        self.used >= self.limit
    }
}

/// How full the queues of a listener are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Connections that wait to be accepted.
    pub accept_queue: Occupancy,
    /// Other handshakes in progress.
    pub handshakes: Occupancy,
}

impl Backlog {
    /// Whether more than half of the places for handshakes are taken: incomplete ones are then given up earlier.
    pub fn is_crowded(&self) -> bool {
        self.handshakes.used > self.handshakes.limit / 2
    }

    /// How many times the SYN-ACK of a half-open connection is sent again.
    pub fn syn_ack_retries(&self, config: &Config) -> u8 {
        let limit = config.syn_ack_retries;
        if self.is_crowded() { limit.min(RETRIES_WHEN_CROWDED) } else { limit }
    }

    /// Whether a handshake without stored state may be completed: its cookie has come back.
    ///
    /// # Errors
    /// The reason for which it is refused. The peer considers the connection established; its next segment brings the
    /// cookie again.
    pub fn admit_cookie(&self) -> Result<(), DropReason> {
        if self.accept_queue.is_full() { Err(DropReason::AcceptQueueFull) } else { Ok(()) }
    }
}

/// A listener's answer to a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynResponse {
    /// A SYN-ACK, with this Fast Open cookie if there is one; the handshake is stored and counts as one in progress.
    HalfOpen {
        /// For the client to present next time.
        cookie: Option<FastOpen>,
    },
    /// A SYN-ACK that is a SYN cookie; no state is kept.
    SynCookie,
    /// A SYN-ACK that acknowledges the SYN's payload: the connection is open at once. It counts as a handshake in
    /// progress and as a pending Fast Open request.
    Early {
        /// A new cookie for the client, if its cookie was made with the backup key.
        cookie: Option<FastOpen>,
    },
}

impl SynResponse {
    /// The answer when no more Fast Open requests may be pending: as to a SYN without the option (RFC 7413 section
    /// 5.1).
    pub fn without_fast_open(self) -> SynResponse {
        match self {
            SynResponse::Early { .. } => SynResponse::HalfOpen { cookie: None },
            other => other,
        }
    }

    /// Whether the handshake counts as one in progress.
    pub fn is_remembered(&self) -> bool {
        !matches!(self, SynResponse::SynCookie)
    }
}

/// Decides the listener's answer to `syn`. `fast_open`: the keys of a listener that takes Fast Open requests.
///
/// # Errors
/// The reason for which the SYN is dropped; nothing has been counted.
pub fn admit(
    syn: &Segment,
    backlog: &Backlog,
    fast_open: Option<&CookieKeys>,
    (config, scarcity): (&Config, Scarcity),
) -> Result<SynResponse, DropReason> {
    if scarcity.is_severe() {
        // Open connections come first; the peer retransmits.
        return Err(DropReason::MemoryShort);
    }
    if backlog.accept_queue.is_full() {
        return Err(DropReason::AcceptQueueFull);
    }
    match (config.syn_cookies, backlog.handshakes.is_full()) {
        (SynCookies::Always, _) | (SynCookies::WhenFull, true) => return Ok(SynResponse::SynCookie),
        (SynCookies::Never, true) => return Err(DropReason::SynQueueFull),
        (_, false) => {}
    }
    let verdict = fast_open.map_or(CookieDecision::Regular, |keys| keys.classify(syn, config.fast_open));
    Ok(match verdict {
        CookieDecision::Regular => SynResponse::HalfOpen { cookie: None },
        CookieDecision::Cookie(cookie) => SynResponse::HalfOpen { cookie: Some(cookie) },
        CookieDecision::Open(cookie) => SynResponse::Early { cookie },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::config::{FastOpenKeys, FastOpenMode};
    use pktbuf::PktBuf;
    use wire::SeqNumber;
    use wire::tcp::{Header, Options, TcpFlags};

    fn syn(payload: &[u8]) -> Segment {
        let mut buf = PktBuf::from_slice(payload).unwrap();
        let header = Header {
            src_port: 4000,
            dst_port: 80,
            seq: SeqNumber(1),
            ack: SeqNumber(0),
            flags: TcpFlags::SYN,
            window: 1000,
            urgent: 0,
            header_len: 0,
            options: Options::NONE,
        };
        let len = header.emitted_len();
        header.emit(buf.push_front(len));
        Segment::parse_unverified([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), buf).unwrap()
    }

    fn answer(accept_queue: usize, handshakes: usize, syn_cookies: SynCookies) -> Result<SynResponse, DropReason> {
        let occupancy = |used| Occupancy { used, limit: 4 };
        let backlog = Backlog { accept_queue: occupancy(accept_queue), handshakes: occupancy(handshakes) };
        admit(&syn(&[]), &backlog, None, (&Config { syn_cookies, ..Config::default() }, Scarcity::NONE))
    }

    #[test]
    fn a_listener_with_room_remembers_the_handshake() {
        for syn_cookies in [SynCookies::Never, SynCookies::WhenFull] {
            assert_eq!(answer(3, 3, syn_cookies), Ok(SynResponse::HalfOpen { cookie: None }));
        }
        assert_eq!(answer(0, 0, SynCookies::Always), Ok(SynResponse::SynCookie));
    }

    #[test]
    fn a_full_syn_cache_answers_with_cookies_if_it_may() {
        assert_eq!(answer(0, 4, SynCookies::WhenFull), Ok(SynResponse::SynCookie));
        assert_eq!(answer(0, 4, SynCookies::Always), Ok(SynResponse::SynCookie));
        assert_eq!(answer(0, 4, SynCookies::Never), Err(DropReason::SynQueueFull));
    }

    #[test]
    fn a_full_accept_queue_drops_every_syn_and_every_cookie_that_comes_back() {
        for syn_cookies in [SynCookies::Never, SynCookies::WhenFull, SynCookies::Always] {
            assert_eq!(answer(4, 0, syn_cookies), Err(DropReason::AcceptQueueFull));
        }
        let occupancy = |used| Occupancy { used, limit: 4 };
        let cookie = |used| Backlog { accept_queue: occupancy(used), handshakes: occupancy(9) }.admit_cookie();
        assert_eq!((cookie(3), cookie(4)), (Ok(()), Err(DropReason::AcceptQueueFull)));
    }

    /// The payload of a SYN is accepted where the configuration requires no cookie, unless the SYN cache is full or the
    /// limit of pending requests is reached.
    #[test]
    fn fast_open_opens_no_door_that_is_shut() {
        let fast_open = FastOpenMode(FastOpenMode::SERVER | FastOpenMode::SERVER_WITHOUT_COOKIE);
        let config = Config { fast_open, syn_cookies: SynCookies::WhenFull, ..Config::default() };
        let keys = CookieKeys::new(FastOpenKeys::default(), &[7; 16]);
        let answer = |payload: &[u8], handshakes, keys| {
            let occupancy = |used| Occupancy { used, limit: 4 };
            let backlog = Backlog { accept_queue: occupancy(0), handshakes: occupancy(handshakes) };
            admit(&syn(payload), &backlog, keys, (&config, Scarcity::NONE)).unwrap()
        };
        let regular = SynResponse::HalfOpen { cookie: None };
        assert_eq!(answer(b"GET", 3, Some(&keys)), SynResponse::Early { cookie: None });
        assert_eq!(answer(b"GET", 3, Some(&keys)).without_fast_open(), regular);
        assert_eq!(answer(b"GET", 4, Some(&keys)), SynResponse::SynCookie);
        assert_eq!(answer(b"GET", 3, None), regular, "a listener that does not take part");
        assert_eq!(answer(b"", 3, Some(&keys)), regular);
    }

    #[test]
    fn a_crowded_listener_gives_up_earlier() {
        let config = Config { syn_ack_retries: 5, ..Config::default() };
        let retries = |used| {
            let accept_queue = Occupancy { used: 0, limit: 1 };
            Backlog { accept_queue, handshakes: Occupancy { used, limit: 8 } }.syn_ack_retries(&config)
        };
        assert_eq!([retries(0), retries(4), retries(5), retries(8)], [5, 5, 2, 2]);
    }
}
