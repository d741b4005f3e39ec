//! The user time-outs that the two ends have advertised to each other (RFC 5482). The rules are in
//! [`crate::user_timeout`].

use core::time::Duration;

use wire::tcp::UserTimeout;

use crate::config::ConnectionOptions;

/// The advertised values, and whether they may be applied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AdvertisedTimeouts {
    pub(crate) advertised: Option<UserTimeout>,
    pub(crate) received: Option<UserTimeout>,
    /// The user has set the user time-out.
    pub(crate) fixed: bool,
}

impl AdvertisedTimeouts {
    /// Before the peer has advertised one.
    pub(crate) fn of(options: &ConnectionOptions) -> AdvertisedTimeouts {
        let advertised = options.announced_user_timeout.and_then(UserTimeout::new);
        AdvertisedTimeouts { advertised, received: None, fixed: options.user_timeout.is_some() }
    }

    /// ENABLED.
    pub(crate) fn is_on(&self) -> bool {
        self.advertised.is_some()
    }

    /// Whether the user time-out was negotiated by the two ends.
    pub(crate) fn is_adopted(&self) -> bool {
        self.is_on() && self.received.is_some() && !self.fixed
    }

    /// The value advertised to the peer.
    pub(crate) fn advertised(&self) -> Option<Duration> {
        self.advertised.map(UserTimeout::duration)
    }

    /// The value that the peer advertised last.
    pub(crate) fn received(&self) -> Option<Duration> {
        self.received.map(UserTimeout::duration)
    }

    /// The user has set or cleared a user time-out.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3
    //# If an application explicitly sets the USER_TIMEOUT, CHANGEABLE MUST become false in order to prevent UTO options
    //# (from the other end) from overriding local application requests.
    pub(crate) fn set_fixed(&mut self, fixed: bool) {
        self.fixed = fixed;
    }
}
