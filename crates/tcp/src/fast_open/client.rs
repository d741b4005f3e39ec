//! The active side, as values: what a SYN may carry, and what its answer teaches.

use wire::SeqNumber;
use wire::tcp::FastOpen;

/// What the SYN of an active open may carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// A cookie that the peer gave before, or the request for one.
    pub option: Option<FastOpen>,
    /// Bytes of data on the SYN at most; 0 unless there is a cookie, or the peer is known to want none.
    pub max_data: u16,
}

/// How a peer has dealt with an [`Offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took data of the SYN.
    Taken,
    /// It answered, and took none, or there was none.
    Answered,
    /// It answered the first SYN, which asked for a cookie, and gave none.
    Ignored {
        /// The SYN asked in the experimental form.
        experimental: bool,
    },
    /// It did not answer in time: perhaps a device on the path drops such SYNs (RFC 7413 section 7.1).
    Silent,
}

/// What an active open has learnt of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// The cookie to show next time.
    pub cookie: Option<FastOpen>,
    /// The MSS that the peer announced; `None` if it has not answered.
    pub mss: Option<u16>,
    /// What became of the offer.
    pub outcome: Outcome,
}

/// Why data did not go with the SYN, numbered as `tcpi_fastopen_client_fail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FastOpenFailure {
    /// There was no cookie to show, so that the SYN only asked for one.
    NoCookie = 1,
    /// The peer acknowledged the SYN without its data.
    NotTaken = 2,
    /// The SYN had to be sent again, without data.
    SentAgain = 3,
}

/// What a connection remembers of its offer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) option: Option<FastOpen>,
    pub(crate) more: bool,
    pub(crate) news: Option<News>,
    pub(crate) failure: Option<FastOpenFailure>,
    /// Where the data ends that left with the SYN and must leave again.
    pub(crate) again: Option<SeqNumber>,
}
