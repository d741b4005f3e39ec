//! [`pair`]: two bottoms that are each other's peer, in memory. For tests, examples, and streams within one process.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use sync::{Condvar, Lock, LockClass, LockKind, Platform, Real};

use crate::bottom::Bottom;
use crate::message::Message;

/// One end. Each receives the messages that the other sends; dropping the stream over one ends the other's input.
pub struct MemoryBottom<P: Platform = Real> {
    sends: Arc<MemoryPipe<P>>,
    receives: Arc<MemoryPipe<P>>,
}

struct MemoryPipe<P: Platform> {
    state: Lock<MemoryPipeState, P>,
    changed: Condvar<P>,
    /// The maximum number of messages in flight.
    room: usize,
}

#[derive(Default)]
struct MemoryPipeState {
    messages: VecDeque<Message>,
    ended: bool,
}

/// Two ends, with room for this many messages in flight in each direction (at least 1).
pub fn pair(room: usize) -> (MemoryBottom, MemoryBottom) {
    pair_over(room)
}

/// The same on any platform.
pub fn pair_over<P: Platform>(room: usize) -> (MemoryBottom<P>, MemoryBottom<P>) {
    let [one, other] = [(); 2].map(|()| {
        let state = Lock::new(LockKind::Blocking, LockClass::SocketBuffer, MemoryPipeState::default());
        Arc::new(MemoryPipe { state, changed: Condvar::new(), room: room.max(1) })
    });
    (MemoryBottom { sends: one.clone(), receives: other.clone() }, MemoryBottom { sends: other, receives: one })
}

impl<P: Platform> MemoryPipe<P> {
    fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

impl<P: Platform> Bottom for MemoryBottom<P> {
    fn send(&self, message: Message) -> io::Result<()> {
        let pipe = &self.sends;
        let full = |state: &mut MemoryPipeState| state.messages.len() >= pipe.room && !state.ended;
        let mut state = pipe.changed.wait_while(pipe.state.lock(), full);
        if state.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.messages.push_back(message);
        drop(state);
        pipe.changed.notify_all();
        Ok(())
    }

    fn receive(&self) -> io::Result<Option<Message>> {
        let pipe = &self.receives;
        let empty = |state: &mut MemoryPipeState| state.messages.is_empty() && !state.ended;
        let message = pipe.changed.wait_while(pipe.state.lock(), empty).messages.pop_front();
        pipe.changed.notify_all();
        Ok(message)
    }

    fn end(&self) -> io::Result<()> {
        self.sends.end();
        Ok(())
    }

    fn close(&self) {
        self.sends.end();
        self.receives.end();
    }
}
