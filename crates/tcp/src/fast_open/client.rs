//! The active side, as values: the Fast Open parts of a SYN, and the information from its answer.

use wire::SeqNumber;
use wire::tcp::FastOpen;

/// The Fast Open parts of an active open's SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// A cookie that the peer gave before, or the request for one.
    pub option: Option<FastOpen>,
    /// Most bytes of data on the SYN; 0 unless there is a cookie, or the peer is known to require none.
    pub max_data: u16,
}

/// How a peer has dealt with an [`Offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferOutcome {
    /// It accepted data of the SYN.
    Taken,
    /// It answered, and accepted no data, or there was none.
    Answered,
    /// It answered the first SYN, which requested a cookie, and gave none.
    Ignored {
        /// The request had the experimental form.
        experimental: bool,
    },
    /// It did not answer in time: perhaps a device on the path drops such SYNs (RFC 7413 section 7.1).
    Silent,
}

/// The information of an active open about its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DestinationUpdate {
    /// The cookie to show next time.
    pub cookie: Option<FastOpen>,
    /// The MSS that the peer announced; `None` if it has not answered.
    pub mss: Option<u16>,
    /// The result of the offer.
    pub outcome: OfferOutcome,
}

/// Why data did not go with the SYN, numbered as `tcpi_fastopen_client_fail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FastOpenFailure {
    /// There was no cookie, so the SYN only requested one.
    NoCookie = 1,
    /// The peer acknowledged the SYN without its data.
    NotTaken = 2,
    /// The SYN had to be sent again, without data.
    SentAgain = 3,
}

/// A connection's record of its offer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentOffer {
    pub(crate) option: Option<FastOpen>,
    pub(crate) more: bool,
    pub(crate) update: Option<DestinationUpdate>,
    pub(crate) failure: Option<FastOpenFailure>,
    /// End of the data that was sent with the SYN and must be sent again.
    pub(crate) again: Option<SeqNumber>,
}
