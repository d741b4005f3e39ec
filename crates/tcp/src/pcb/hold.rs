//! The user's settings that hold back partial segments: the cork, and the flags for the end of the newest data. One
//! byte of the send window.

/// The user's flags for the end of the newest data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// The data is complete: the segment that empties the queue carries PSH.
    Asked,
    /// More will follow, in another call (`MSG_MORE`): no PSH, but the data is sent as usual.
    Open,
    /// The call is not finished: no PSH, and a partial segment waits.
    Held,
}

impl Push {
    /// The flag that remains at the end of the call.
    #[inline]
    pub(crate) fn after_call(self) -> Push {
        if self == Push::Asked { Push::Asked } else { Push::Open }
    }
}

const CORK: u8 = 1;
const UNPUSHED: u8 = 2;
const IN_CALL: u8 = 4;

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold(u8);

impl Hold {
    /// All data so far is pushed.
    pub(crate) fn new(cork: bool) -> Hold {
        Hold(if cork { CORK } else { 0 })
    }

    /// Whether the connection is corked.
    pub(crate) fn cork(self) -> bool {
        self.0 & CORK != 0
    }

    pub(crate) fn set_cork(&mut self, cork: bool) {
        self.0 = self.0 & !CORK | if cork { CORK } else { 0 };
    }

    /// Whether the user has pushed the newest data.
    #[inline]
    pub(crate) fn is_pushed(self) -> bool {
        self.0 & UNPUSHED == 0
    }

    #[inline]
    pub(crate) fn set_push(&mut self, push: Push) {
        let bits = match push {
            Push::Asked => 0,
            Push::Open => UNPUSHED,
            Push::Held => UNPUSHED | IN_CALL,
        };
        self.0 = self.0 & CORK | bits;
    }

    /// Whether partial segments are held back.
    #[inline]
    pub(crate) fn holds(self) -> bool {
        self.0 & (CORK | IN_CALL) != 0
    }
}
