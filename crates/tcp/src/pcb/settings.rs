//! State that few connections need: their own settings, keep-alive and timer lengths, and soft errors. Boxed by the
//! header-in part, so that other connections do not need memory for it.

use core::time::Duration;

use observe::Time;

use super::{AdvertisedTimeouts, milliseconds};
use crate::config::{Config, ConnectionOptions, KeepAlive};
use crate::error::Error;
use crate::fast_open::SentOffer;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct UserSettings {
    /// Keep-alive probes are on.
    pub(crate) keeps_alive: bool,
    pub(crate) timing: KeepAlive,
    /// Probes sent since the last segment arrived.
    pub(crate) sent: u8,
    /// When the last segment had arrived before the first of them was sent.
    pub(crate) probed: Time,
    /// When to check whether the peer is silent; `MAX` unless `keeps_alive`.
    pub(crate) deadline: Time,
    /// How long close waits for unsent data; `Some(0)` resets.
    pub(crate) linger: Option<Duration>,
    /// Longest stay in FIN-WAIT-2; `None`: the stack's.
    pub(crate) fin_wait_2: Option<Duration>,
    /// Give up after this long without progress, in ms; 0: only the retry limit.
    pub(crate) user_timeout: u32,
    /// The user time-outs that the two ends advertise.
    pub(crate) exchange: AdvertisedTimeouts,
    /// Retransmissions of the SYN; `None`: the stack's.
    pub(crate) syn_retries: Option<u8>,
    /// The user has disabled reports of soft errors.
    pub(crate) silent: bool,
    /// The soft error; see `HeaderIn::soft_error`.
    pub(crate) soft_error: Option<Error>,
    /// When the last soft error was noted, in units of 2^20 ns modulo 2^32.
    pub(crate) soft_error_at: u32,
    /// The offer of our SYN, if it used Fast Open.
    pub(crate) fast_open: Option<SentOffer>,
}

impl UserSettings {
    /// Nothing set.
    pub(crate) fn new(config: &Config) -> Box<UserSettings> {
        Box::new(UserSettings {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
            //# and they MUST default to off (MUST-25).
            keeps_alive: false,
            timing: config.keep_alive,
            sent: 0,
            probed: Time::ZERO,
            deadline: Time::MAX,
            linger: None,
            fin_wait_2: None,
            user_timeout: 0,
            exchange: AdvertisedTimeouts::default(),
            syn_retries: None,
            silent: false,
            soft_error: None,
            soft_error_at: 0,
            fast_open: None,
        })
    }

    /// The settings in `options`; `None` if there are none.
    #[inline]
    pub(crate) fn of(options: &ConnectionOptions, config: &Config, now: Time) -> Option<Box<UserSettings>> {
        let ConnectionOptions { keep_alive, linger, fin_wait_2, syn_retries, user_timeout, .. } = *options;
        // Without branches: nearly all connections have none of them.
        let timers = fin_wait_2.is_some() | syn_retries.is_some() | user_timeout.is_some();
        let others = keep_alive.is_some() | linger.is_some() | options.announced_user_timeout.is_some();
        if timers | others { UserSettings::stated(options, config, now) } else { None }
    }

    /// The same for options of which at least one is stated.
    #[cold]
    fn stated(options: &ConnectionOptions, config: &Config, now: Time) -> Option<Box<UserSettings>> {
        let ConnectionOptions { keep_alive, linger, fin_wait_2, syn_retries, user_timeout, .. } = *options;
        let timers = fin_wait_2.is_some() || syn_retries.is_some() || user_timeout.is_some();
        let exchange = AdvertisedTimeouts::of(options);
        // The option cannot express every time.
        if keep_alive.is_none() && linger.is_none() && !timers && !exchange.is_on() {
            return None;
        }
        let user_timeout = user_timeout.map_or(0, milliseconds);
        let mut settings =
            UserSettings { linger, fin_wait_2, syn_retries, user_timeout, exchange, ..*UserSettings::new(config) };
        settings.keep_alive(keep_alive, now);
        Some(Box::new(settings))
    }

    /// Probe from now on with this timing, or stop.
    pub(crate) fn keep_alive(&mut self, timing: Option<KeepAlive>, now: Time) {
        self.keeps_alive = timing.is_some();
        self.timing = timing.unwrap_or(self.timing);
        self.sent = 0;
        self.restart(now);
    }

    /// The peer has been silent since `heard`: check again when the idle time is over.
    pub(crate) fn restart(&mut self, heard: Time) {
        self.deadline = if self.keeps_alive { heard + self.idle() } else { Time::MAX };
    }

    /// Silence before the first probe.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-4.2
    //# Therefore, if a connection that enables keep-alives is also using the TCP User Timeout Option, then the
    //# keep-alive timer MUST be set to a value larger than that of the adopted USER TIMEOUT.
    pub(crate) fn idle(&self) -> Duration {
        let adopted = Duration::from_millis(self.user_timeout.into()) + Duration::from_secs(1);
        if self.exchange.is_adopted() { self.timing.idle.max(adopted) } else { self.timing.idle }
    }
}
