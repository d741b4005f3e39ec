//! Options that few segments carry: the Fast Open cookie (RFC 7413 section 4.1.1, with its experimental form of RFC
//! 6994), the counters of accurate ECN (RFC 9768 section 3.2.3), and the user time-out (RFC 5482 section 3.3).
//!
//! They are separate from [`Options`](super::Options) so that the header of a data segment stays small: callers that
//! need them parse the option bytes a second time. What may never happen: a malformed option that is parsed as a cookie
//! or counters.

use core::time::Duration;

const END: u8 = 0;
const NOP: u8 = 1;
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//# This MUST be 28, i.e., the TCP option number [RFC0793] that has been assigned by IANA (see Section 7).
const USER_TIMEOUT: u8 = 28;
const FAST_OPEN: u8 = 34;
const ACCURATE_ECN_0: u8 = 172;
const ACCURATE_ECN_1: u8 = 174;
const EXPERIMENT: u8 = 254;
/// The experiment identifier of Fast Open (RFC 7413 section 4.1.1, RFC 6994).
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];

/// A user time-out as encoded in the option: 1 to 32 767 seconds or minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UserTimeout(u16);

impl UserTimeout {
    /// The bit for a number of minutes.
    const MINUTES: u16 = 0x8000;

    /// The shortest time that the field can express and that is not shorter than `time`: in seconds up to nine hours,
    /// in minutes beyond. `None` for zero, and for more than 32 767 minutes.
    pub fn new(time: Duration) -> Option<UserTimeout> {
        let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
        match seconds {
            0 => None,
            1..=0x7fff => Some(UserTimeout(seconds as u16)),
            _ => u16::try_from(seconds.div_ceil(60))
                .ok()
                .filter(|minutes| *minutes < Self::MINUTES)
                .map(|minutes| UserTimeout(minutes | Self::MINUTES)),
        }
    }

    /// The field of the option; zero, whether of seconds or of minutes, is reserved.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.4
    //# Current TCP implementations MUST NOT send it and MUST ignore it upon reception.
    fn read(field: u16) -> Option<UserTimeout> {
        (field & !Self::MINUTES != 0).then_some(UserTimeout(field))
    }

    /// The time.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //# When set (G = 1), the time interval in the "User Timeout" field MUST be interpreted as minutes.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //# Otherwise (G = 0), the time interval in the "User Timeout" field MUST be interpreted as seconds.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //# It MUST be interpreted as a 15-bit unsigned integer.
    pub const fn duration(self) -> Duration {
        let number = (self.0 & !Self::MINUTES) as u64;
        Duration::from_secs(if self.0 & Self::MINUTES == 0 { number } else { 60 * number })
    }
}

/// A Fast Open cookie: none (a request for one), or an even number of bytes from 4 to 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cookie {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

impl Cookie {
    /// Bytes of the longest cookie.
    pub const MAX_LEN: usize = 16;
    /// Asks the server for a cookie.
    pub const REQUEST: Cookie = Cookie { bytes: [0; Self::MAX_LEN], len: 0 };

    /// A cookie of these bytes; `None` for an invalid length.
    pub fn new(bytes: &[u8]) -> Option<Cookie> {
        let fits = bytes.is_empty() || (4..=Self::MAX_LEN).contains(&bytes.len()) && bytes.len().is_multiple_of(2);
        let mut cookie = Cookie { len: bytes.len() as u8, ..Cookie::REQUEST };
        cookie.bytes.get_mut(..bytes.len()).filter(|_| fits)?.copy_from_slice(bytes);
        Some(cookie)
    }

    /// The cookie's bytes; empty for a request.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether it is a request for a cookie.
    pub const fn is_request(&self) -> bool {
        self.len == 0
    }
}

/// The Fast Open option of a SYN or SYN-ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FastOpen {
    /// The cookie, or the request for one.
    pub cookie: Cookie,
    /// Received or sent as experiment 0xF989 under kind 254; an answer has the same form as its request.
    pub experimental: bool,
}

/// The three byte counters of accurate ECN, modulo 2^24, as many as the option has: 0 to 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EcnCounters {
    /// In the order of the option.
    fields: [u32; 3],
    len: u8,
    /// Order 1 (kind 174): ECT(1) first. Order 0 (kind 172): ECT(0) first. CE is between them.
    ect1_first: bool,
}

impl EcnCounters {
    /// The first `len` counters (at most 3) of the order that begins with ECT(1), or that with ECT(0).
    pub fn new(ect0: u32, ce: u32, ect1: u32, len: u8, ect1_first: bool) -> EcnCounters {
        let mut fields = if ect1_first { [ect1, ce, ect0] } else { [ect0, ce, ect1] };
        let len = len.min(3);
        for (index, field) in fields.iter_mut().enumerate() {
            *field = if index < usize::from(len) { *field & 0x00ff_ffff } else { 0 };
        }
        EcnCounters { fields, len, ect1_first }
    }

    fn field(&self, index: usize) -> Option<u32> {
        self.fields.get(index).copied().filter(|_| index < usize::from(self.len))
    }

    /// Bytes of data that arrived marked ECT(0).
    pub fn ect0(&self) -> Option<u32> {
        self.field(if self.ect1_first { 2 } else { 0 })
    }

    /// Bytes of data that arrived marked CE.
    pub fn ce(&self) -> Option<u32> {
        self.field(1)
    }

    /// Bytes of data that arrived marked ECT(1).
    pub fn ect1(&self) -> Option<u32> {
        self.field(if self.ect1_first { 0 } else { 2 })
    }

    /// How many counters there are, 0 to 3.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the option has no counter; it then only shows that it passes the path.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtraOptions {
    /// Fast Open.
    pub fast_open: Option<FastOpen>,
    /// Accurate ECN.
    pub ecn: Option<EcnCounters>,
    /// The sender's user time-out.
    pub user_timeout: Option<UserTimeout>,
}

/// Rounds up to whole words.
const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

impl ExtraOptions {
    /// No such option.
    pub const NONE: ExtraOptions = ExtraOptions { fast_open: None, ecn: None, user_timeout: None };

    /// Reads the option bytes of a header. If one appears twice, the last counts; malformed ones are skipped, and a
    /// length that overruns ends the walk, as in [`Options::parse`](super::Options::parse).
    pub fn parse(mut rest: &[u8]) -> ExtraOptions {
        let mut options = ExtraOptions::NONE;
        loop {
            rest = match *rest {
                [] | [END, ..] | [_] => return options,
                [NOP, ref after @ ..] => after,
                [kind, len, ref after @ ..] => {
                    let Some((body, after)) = usize::from(len).checked_sub(2).and_then(|n| after.split_at_checked(n))
                    else {
                        return options;
                    };
                    options.take(kind, body);
                    after
                }
            };
        }
    }

    fn take(&mut self, kind: u8, body: &[u8]) {
        match kind {
            FAST_OPEN => self.take_cookie(body, false),
            USER_TIMEOUT => {
                let field = body.try_into().ok().map(u16::from_be_bytes);
                self.user_timeout = field.and_then(UserTimeout::read).or(self.user_timeout);
            }
            EXPERIMENT if body.starts_with(&FAST_OPEN_EXPERIMENT) => {
                self.take_cookie(body.get(2..).unwrap_or_default(), true)
            }
            ACCURATE_ECN_0 | ACCURATE_ECN_1 if body.len().is_multiple_of(3) && body.len() <= 9 => {
                let mut counters = EcnCounters { ect1_first: kind == ACCURATE_ECN_1, ..EcnCounters::default() };
                for (field, bytes) in counters.fields.iter_mut().zip(body.chunks_exact(3)) {
                    *field = bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte));
                    counters.len += 1;
                }
                self.ecn = Some(counters);
            }
            _ => {}
        }
    }

    fn take_cookie(&mut self, bytes: &[u8], experimental: bool) {
        if let Some(cookie) = Cookie::new(bytes) {
            self.fast_open = Some(FastOpen { cookie, experimental });
        }
    }

    /// Bytes that they take in a header, each padded to whole words.
    pub fn emitted_len(&self) -> usize {
        let ecn = self.ecn.map_or(0, |counters| padded(2 + 3 * counters.len()));
        let fast_open = self
            .fast_open
            .map_or(0, |option| padded(2 + option.cookie.as_slice().len() + if option.experimental { 2 } else { 0 }));
        let user_timeout = if self.user_timeout.is_some() { 4 } else { 0 };
        ecn + fast_open + user_timeout
    }

    /// Writes the user time-out to the front of `out`; returns the rest of `out`.
    pub(super) fn put_user_timeout<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        let Some(UserTimeout(field)) = self.user_timeout else { return out };
        //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
        //# Length of the TCP option in octets [RFC0793]; its value MUST be 4.
        put([USER_TIMEOUT, 4].into_iter().chain(field.to_be_bytes()), 4, out)
    }

    /// Writes the counters to the front of `out`; returns the rest of `out`.
    pub(super) fn put_ecn<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        let Some(counters) = self.ecn else { return out };
        let kind = if counters.ect1_first { ACCURATE_ECN_1 } else { ACCURATE_ECN_0 };
        let len = 2 + 3 * counters.len();
        let fields =
            counters.fields.iter().take(counters.len()).flat_map(|field| field.to_be_bytes().into_iter().skip(1));
        put([kind, len as u8].into_iter().chain(fields), len, out)
    }

    /// Writes the cookie to the front of `out`; returns the rest of `out`.
    pub(super) fn put_fast_open<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        let Some(option) = &self.fast_open else { return out };
        let experiment = if option.experimental { FAST_OPEN_EXPERIMENT.as_slice() } else { &[] };
        let cookie = option.cookie.as_slice();
        let len = 2 + experiment.len() + cookie.len();
        let kind = if option.experimental { EXPERIMENT } else { FAST_OPEN };
        put([kind, len as u8].into_iter().chain(experiment.iter().chain(cookie).copied()), len, out)
    }
}

/// Writes `bytes`, `len` of them, and no-operations up to the next word.
fn put(bytes: impl Iterator<Item = u8>, len: usize, out: &mut [u8]) -> &mut [u8] {
    let Some((front, rest)) = out.split_at_mut_checked(padded(len)) else { return &mut [] };
    front.fill(NOP);
    for (to, byte) in front.iter_mut().zip(bytes) {
        *to = byte;
    }
    rest
}
