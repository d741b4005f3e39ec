//! Checksums that are checked after the connection has been released, before the user has the data
//! ([`ChecksumPlacement::After`]).

use sync::Platform;
use tcp::config::ChecksumPlacement;

use super::Stack;
use crate::call::{Call, Reply};
use crate::charge;
use crate::flow::Target;

impl<P: Platform> Stack<P> {
    /// Whether data that is taken may have to be checked.
    #[inline]
    pub(super) fn checks_later(&self) -> bool {
        self.core.shared.control().tcp().checksum_placement == ChecksumPlacement::After
    }

    /// Checks data that was taken from a connection. False: some is damaged, and the connection has ended for that reason.
    #[cold]
    pub(super) fn check_received(&self, target: &Target, received: &mut tcp::Received) -> bool {
        received.data.iter().for_each(charge::checked_later::<P>);
        let holds = received.check();
        if !holds {
            self.active().call(target, &mut Call::Damaged(tcp::DamagedData), &mut Reply::Gone);
        }
        holds
    }

    /// The same for the data in an answer. If none of it is good, the answer is the one of a connection that has ended.
    #[cold]
    pub(super) fn check_answer(&self, target: &Target, reply: &mut Reply) {
        let (received, mut again) = match reply {
            Reply::Received(Ok(received)) => (received, Call::Receive(tcp::Receive { max: 1 })),
            Reply::ReceivedInOrder(Ok(taken)) => {
                (&mut taken.received, Call::ReceiveInOrder(tcp::ReceiveInOrder { max: 1 }))
            }
            _ => return,
        };
        if !self.check_received(target, received) && received.data.is_empty() {
            self.active().call(target, &mut again, reply);
        }
    }
}
