//! What an architecture in front of another one, which keeps the connections, passes on to it.

/// The methods of [`RunningArchitecture`](super::RunningArchitecture) for users' calls, changes, memory and statistics:
/// `passes_on!(self => self.kept)`. The stage in front adds what differs: arrivals, timers, rest and the end.
macro_rules! passes_on {
    ($self:ident => $kept:expr) => {
        fn call(&$self, target: &$crate::flow::Target, call: &mut $crate::call::Call<P>, reply: &mut $crate::call::Reply) {
            $kept.call(target, call, reply);
        }

        fn open(
            &$self,
            request: &mut $crate::call::OpenRequest<P>,
        ) -> Result<$crate::flow::Key, $crate::call::OpenRefused> {
            $kept.open(request)
        }

        fn is_home(&$self, hash: u32) -> bool {
            $kept.is_home(hash)
        }

        fn send(&$self, target: &$crate::flow::Target, send: &mut tcp::Send) -> Option<Result<u32, tcp::Error>> {
            $kept.send(target, send)
        }

        fn receive(
            &$self,
            target: &$crate::flow::Target,
            event: tcp::Receive,
            received: &mut tcp::Received,
        ) -> Option<Result<(), tcp::Error>> {
            $kept.receive(target, event, received)
        }

        fn has_channels(&$self) -> bool {
            $kept.has_channels()
        }

        fn tell(
            &$self,
            target: &$crate::flow::Target,
            message: $crate::handoff::CellMessage<P>,
        ) -> Result<(), $crate::handoff::CellMessage<P>> {
            $kept.tell(target, message)
        }

        fn use_tables(&$self, work: &mut dyn FnMut()) -> bool {
            $kept.use_tables(work)
        }

        fn ask_tables(&$self, job: $crate::handoff::TableJob) -> $crate::call::Reply {
            $kept.ask_tables(job)
        }

        fn tell_tables(&$self, job: Box<dyn FnOnce() + Send>) {
            $kept.tell_tables(job);
        }

        fn udp(&$self, call: &mut $crate::udp_call::UdpCall<P>) -> $crate::udp_call::UdpReply {
            $kept.udp(call)
        }

        fn control(&$self, change: $crate::call::ControlRequest<P>) {
            $kept.control(change);
        }

        fn trim(&$self) -> bool {
            $kept.trim()
        }

        fn retire(&$self) {
            $kept.retire();
        }

        fn next_deadline(&$self) -> Option<observe::Time> {
            $kept.next_deadline()
        }

        fn timer_is_due(&$self, now: observe::Time) -> bool {
            $kept.timer_is_due(now)
        }

        fn stats(&$self) -> $crate::stats::StackStats {
            $kept.stats()
        }
    };
}

pub(super) use passes_on;
