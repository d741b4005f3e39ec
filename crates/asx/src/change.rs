//! Changing the modules of a stream in use: push, pop, replace.
//!
//! A module that is removed first processes all earlier messages: no message enters the stream at either end, the
//! messages on their way to the module pass through it, then its queues are closed, and the messages that they held
//! follow. Only then do messages enter again. So every message passes either the old modules or the new ones,
//! completely, and the order is kept. A message that the bottom delivers meanwhile counts as a later one.
//!
//! The thread that makes the change helps: it runs the queues that it waits for, past the water marks, so that it never
//! waits for the application to read or for the bottom to send, but only for a queue that another thread runs.

use sync::Platform;

use crate::chain::{Chain, Claimant, PlaceId};
use crate::error::ChangeError;
use crate::queue::{Module, Passed, Side};
use crate::stream::Stream;

impl<P: Platform> Stream<P> {
    /// Puts a module at the top.
    ///
    /// # Errors
    /// Its name is in use, or the stream has failed.
    pub fn push(&self, module: Module) -> Result<(), ChangeError> {
        let shared = &*self.shared;
        let mut chain = shared.chain.lock();
        while chain.held_off && chain.failure.is_none() {
            chain = shared.changed.wait(chain);
        }
        if let Some(reason) = &chain.failure {
            return Err(reason.clone().into());
        }
        let name = module.name().to_owned();
        if chain.named(&name).is_some() {
            return Err(ChangeError::NameInUse(name));
        }
        let place = chain.push(module);
        drop(chain);
        shared.changed.notify_all();
        if self.architecture().has_owners() {
            self.spawn_owner(place, &name);
        }
        Ok(())
    }

    /// Removes and returns the topmost module, after it has processed all messages that came before the change.
    ///
    /// # Errors
    /// There is none, or the stream has failed.
    pub fn pop(&self) -> Result<Module, ChangeError> {
        self.take_out(|chain| chain.topmost().ok_or(ChangeError::NoModules), None)
    }

    /// Removes the module of this name, and returns it as [`pop`](Stream::pop) does.
    ///
    /// # Errors
    /// There is none, or the stream has failed.
    pub fn remove(&self, name: &str) -> Result<Module, ChangeError> {
        self.take_out(|chain| chain.named(name).ok_or_else(|| ChangeError::NoSuchModule(name.to_owned())), None)
    }

    /// Puts `module` in the place of the module with this name, which it returns as [`pop`](Stream::pop) does.
    ///
    /// # Errors
    /// There is no such module, another module has the new one's name, or the stream has failed.
    pub fn replace(&self, name: &str, module: Module) -> Result<Module, ChangeError> {
        let new = module.name().to_owned();
        let place = |chain: &Chain| {
            if new != name && chain.named(&new).is_some() {
                return Err(ChangeError::NameInUse(new.clone()));
            }
            chain.named(name).ok_or_else(|| ChangeError::NoSuchModule(name.to_owned()))
        };
        self.take_out(place, Some(module))
    }

    fn take_out(
        &self,
        find: impl FnOnce(&Chain) -> Result<PlaceId, ChangeError>,
        replacement: Option<Module>,
    ) -> Result<Module, ChangeError> {
        let (id, mut module) = self.let_pass(find)?;
        let name_of_old = module.name().to_owned();
        let mut closed = [Passed::default(), Passed::default()];
        for (side, passed) in Side::BOTH.into_iter().zip(&mut closed) {
            self.shared.guarded(&name_of_old, || module.queue(side).close(passed));
        }
        let name = replacement.as_ref().map(|module| module.name().to_owned());
        let mut chain = self.shared.chain.lock();
        let place = match replacement {
            Some(new) => chain.exchange(id, closed, new),
            None => {
                chain.unlink::<P>(id, closed);
                None
            }
        };
        chain.held_off = false;
        drop(chain);
        self.shared.changed.notify_all();
        if self.architecture().has_owners() {
            self.join_owner(id);
            place.zip(name).into_iter().for_each(|(place, name)| self.spawn_owner(place, &name));
        }
        self.take_along();
        Ok(module)
    }

    /// Holds off new messages until [`Chain::held_off`] is reset, lets the messages on their way to a module pass
    /// through it, and takes its queues out.
    fn let_pass(
        &self,
        find: impl FnOnce(&Chain) -> Result<PlaceId, ChangeError>,
    ) -> Result<(PlaceId, Module), ChangeError> {
        let shared = &*self.shared;
        let mut chain = shared.chain.lock();
        while chain.held_off && chain.failure.is_none() {
            chain = shared.changed.wait(chain);
        }
        let id = find(&chain)?;
        chain.held_off = true;
        loop {
            if let Some(reason) = chain.failure.clone() {
                chain.held_off = false;
                return Err(reason.into());
            }
            if let Some(module) = chain.take_queues(id) {
                return Ok((id, module));
            }
            chain = match chain.claim(Claimant::Changer(id)) {
                Some(job) => shared.run(chain, job),
                None => shared.changed.wait(chain),
            };
        }
    }

    /// Runs the queues for messages that the change has moved and that no thread carries, as far as possible now. A
    /// thread that makes room for the rest runs them then.
    fn take_along(&self) {
        let shared = &*self.shared;
        for claimant in Side::BOTH.into_iter().filter_map(|side| shared.moved(side)) {
            let mut chain = shared.chain.lock();
            while let Some(job) = chain.claim(claimant) {
                chain = shared.run(chain, job);
            }
        }
    }
}
