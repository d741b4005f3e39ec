//! The user time-out as the two ends advertise it to each other (RFC 5482): the option on our SYN, on the first segment
//! after it and whenever the user changes the value; and the use of the peer's.
//!
//! The RFC's variables: ADV_UTO is [`AdvertisedTimeouts::advertised`], ENABLED is true if there is one, CHANGEABLE if
//! the user has not set a user time-out, and USER_TIMEOUT is `UserSettings::user_timeout`. The option is advisory, and
//! may be lost: nothing waits for it. What may never happen: a peer that changes a time-out set by our user, or exceeds
//! the limits of the configuration.

use core::time::Duration;

use observe::Time;
use wire::tcp::{ExtraOptions, UserTimeout};

use crate::access::PcbMut;
use crate::config::Config;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{AdvertisedTimeouts, HeaderIn, SendWindow, milliseconds};
use crate::segment::Segment;

fn advertised(header_in: &HeaderIn) -> Option<UserTimeout> {
    header_in.settings.as_ref().and_then(|settings| settings.exchange.advertised)
}

/// The option of our SYN.
pub(crate) fn of_syn(header_in: &HeaderIn) -> ExtraOptions {
    ExtraOptions { user_timeout: advertised(header_in), ..ExtraOptions::NONE }
}

/// Advertises it in a separate acknowledgement, if it has changed. The option is not sent reliably.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.2
//# Consequently, implementations MUST NOT assume that UTO options are transmitted reliably.
pub(crate) fn advertise(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> bool {
    let Some(user_timeout) = advertised(parts.header_in) else { return false };
    output::advertise_user_timeout(parts.send_window, user_timeout, parts.header_out, out, now);
    true
}

/// Sets the advertised user time-out to `time`.
///
/// # Errors
/// [`Error::InvalidOption`]: the option cannot express it.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//# A host that supports the UTO option SHOULD include one in the next possible outgoing segment whenever it starts using a
//# new user timeout for the connection.
pub(crate) fn announce(
    time: Option<Duration>,
    parts: &mut PcbMut<'_>,
    out: &mut Outbox<'_>,
    now: Time,
) -> Result<(), Error> {
    let advertised = match time {
        Some(time) => Some(UserTimeout::new(time).ok_or(Error::InvalidOption)?),
        None => None,
    };
    parts.header_in.settings(out.config).exchange.advertised = advertised;
    parts.header_in.set_exchanges(advertised.is_some());
    if parts.header_in.state.is_synchronised() {
        advertise(parts, out, now);
    }
    Ok(())
}

/// Takes the peer's user time-out from an accepted segment, and computes the one for both.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//# Under the RECOMMENDED scheme, and when CHANGEABLE is true, each end SHOULD compute the local USER TIMEOUT for a
//# connection according to this formula:
pub(crate) fn receive(segment: &Segment, parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3
    //# A TCP implementation that does not support the UTO option MUST silently ignore it [RFC1122], thus ensuring
    //# interoperability.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //# Connections in other states MUST use the default timeout values defined in [RFC0793] and [RFC1122].
    if !parts.header_in.exchanges() || !parts.header_in.state.is_synchronised() {
        return;
    }
    let Some(theirs) = segment.rare_options().user_timeout else { return };
    let exchange = &mut parts.header_in.settings(out.config).exchange;
    exchange.received = Some(theirs);
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
    //# If the CHANGEABLE flag is false, USER_TIMEOUT MUST NOT be changed, regardless of the received UTO option.
    let AdvertisedTimeouts { advertised: Some(ours), fixed: false, .. } = *exchange else { return };
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
    //# To protect against these effects, implementations MUST impose limits on the user timeout values they accept and use.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3
    //# Hosts MUST impose upper and lower limits on the user timeouts they use for a connection.
    let (least, longest) = out.config.user_timeout_limits;
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
    //# Therefore, the lower limit (L_LIMIT) MUST be larger than the current retransmission timeout (RTO) for the connection.
    let least = least.max(2 * parts.send_window.rtt.rto());
    let adopted = ours.duration().max(theirs.duration()).max(least).min(longest);
    adopt(milliseconds(adopted), parts.header_in, parts.send_window, out.config);
    // The idle time of keep-alive is longer now, and waiting data may have less time.
    let heard_at = now - parts.header_in.silence(now);
    parts.header_in.settings(out.config).restart(heard_at);
    parts.header_in.arm(out);
    out.wake_by(now);
}

/// Give up after `limit` milliseconds without progress; 0: only the retry limit.
pub(crate) fn adopt(limit: u32, header_in: &mut HeaderIn, sw: &mut SendWindow, config: &Config) {
    header_in.settings(config).user_timeout = limit;
    sw.shaping(config).user_timeout = limit;
}
