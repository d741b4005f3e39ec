//! The verdict step before IP: frames for the stack stay in the vector, others go to a bridge.

use observe::{Counters, DropReason};
use path::{Consume, Emitter, Inspection, Vector};
use sync::Platform;

use crate::deferred::DeferredEffects;
use crate::flow::Target;
use crate::interface::Ports;

/// A verdict step, and the bridge for the frames that are not for the stack.
pub(crate) struct Inspected<P: Platform> {
    pub inspection: Inspection<P>,
    pub bridge: Option<Box<dyn Consume<P, Target>>>,
    /// Frames for the bridge; empty between vectors.
    pub bridged: Vector,
}

impl<P: Platform> Inspected<P> {
    /// Keeps in `vector` the frames for the stack, and gives the others to the bridge.
    #[inline(never)]
    pub(crate) fn inspect(
        &mut self,
        port: usize,
        vector: &mut Vector,
        ports: &Ports<P>,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let bridged = &mut self.bridged;
        self.inspection.inspect(port, vector, bridged, counters);
        match &mut self.bridge {
            _ if bridged.is_empty() => {}
            Some(bridge) => bridge.consume(port, bridged, &mut Emitter::new(ports, counters, deferred.dirty())),
            None => {
                counters.count_drops(DropReason::NotForUs, bridged.len() as u64);
                bridged.clear();
            }
        }
    }
}
