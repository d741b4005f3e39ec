//! The user time-outs that the two ends have advertised to each other (RFC 5482). The rules are in
//! [`crate::user_timeout`].

use core::time::Duration;

use wire::tcp::UserTimeout;

use crate::config::ConnectionOptions;

/// The advertised values, and whether they may be applied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) told: Option<UserTimeout>,
    pub(crate) heard: Option<UserTimeout>,
    /// The user has set the user time-out.
    pub(crate) fixed: bool,
}

impl Exchange {
    /// Before the peer has advertised one.
    pub(crate) fn of(options: &ConnectionOptions) -> Exchange {
        let told = options.announced_user_timeout.and_then(UserTimeout::new);
        Exchange { told, heard: None, fixed: options.user_timeout.is_some() }
    }

    /// ENABLED.
    pub(crate) fn is_on(&self) -> bool {
        self.told.is_some()
    }

    /// Whether the user time-out was negotiated by the two ends.
    pub(crate) fn is_adopted(&self) -> bool {
        self.is_on() && self.heard.is_some() && !self.fixed
    }

    /// The value advertised to the peer.
    pub(crate) fn told(&self) -> Option<Duration> {
        self.told.map(UserTimeout::duration)
    }

    /// The value that the peer advertised last.
    pub(crate) fn heard(&self) -> Option<Duration> {
        self.heard.map(UserTimeout::duration)
    }

    /// The user has set or cleared a user time-out.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3
    //# If an application explicitly sets the USER_TIMEOUT, CHANGEABLE MUST become false in order to prevent UTO options
    //# (from the other end) from overriding local application requests.
    pub(crate) fn set_fixed(&mut self, fixed: bool) {
        self.fixed = fixed;
    }
}
