//! A value that is read all the time and hardly ever replaced: configuration.
//!
//! A read is one load and a plain reference that lives as long as the [`Versioned`] itself: no lock, no count, no grace
//! period. The price is that every version is kept until the whole is dropped. A value that was published before is
//! reused and not kept twice, so switching back and forth costs nothing, and the number of versions is bounded
//! ([`Versioned::MOST`]).
//!
//! *What may never happen.* A version freed, moved or written while the `Versioned` lives.

use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{Lock, LockClass, LockKind, Platform, Real};

/// See the head of this file.
///
/// The pointer is a plain atomic: it orders nothing but the version's own initialisation, and no version is ever
/// reclaimed, so there is no race for a checker to explore.
pub struct Versioned<T, P: Platform = Real> {
    current: AtomicPtr<T>,
    /// Every version, each from `Box::into_raw`; freed by drop alone.
    versions: Lock<Vec<StoredVersion<T>>, P>,
}

struct StoredVersion<T>(*mut T);

// SAFETY: a version is a box that its `Versioned` owns; it is reached by shared reference only (`T: Sync`) and freed on
// whatever thread drops the whole (`T: Send`).
unsafe impl<T: Send + Sync> Send for StoredVersion<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, P: Platform> Sync for Versioned<T, P> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, P: Platform> Send for Versioned<T, P> {}

/// Too many different values were published; each is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyVersions;

impl fmt::Display for TooManyVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many different configurations were set in one run: build a new stack")
    }
}

impl std::error::Error for TooManyVersions {}

impl<T: PartialEq, P: Platform> Versioned<T, P> {
    /// The most values that one `Versioned` keeps.
    pub const MOST: usize = 65_536;

    /// `value` is current.
    pub fn new(value: T) -> Self {
        let first = Box::into_raw(Box::new(value));
        let versions = Lock::new(LockKind::Blocking, LockClass::Control, vec![StoredVersion(first)]);
        Versioned { current: AtomicPtr::new(first), versions }
    }

    /// The current version. It stays readable, if no longer current, as long as the borrow lasts.
    #[inline(always)]
    pub fn get(&self) -> &T {
        // SAFETY: `current` always points to one of the boxes in `versions`, which live until drop; Acquire pairs with
        // the Release that published it, and a version is not written after that.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Publishes a new version, made from the current one by `change`. Changes exclude each other; readers keep the
    /// version that they have. Nothing is published if `change` fails.
    ///
    /// # Errors
    /// The error of `change`; or `TooManyVersions`, converted.
    pub fn update<E: From<TooManyVersions>>(&self, change: impl FnOnce(&mut T) -> Result<(), E>) -> Result<(), E>
    where
        T: Clone,
    {
        let mut versions = self.versions.lock();
        let mut next = self.get().clone();
        change(&mut next)?;
        // SAFETY: as in `get`.
        let known = versions.iter().map(|version| version.0).find(|version| unsafe { &**version } == &next);
        let version = match known {
            Some(version) => version,
            None if versions.len() >= Self::MOST => return Err(TooManyVersions.into()),
            None => {
                let fresh = Box::into_raw(Box::new(next));
                versions.push(StoredVersion(fresh));
                fresh
            }
        };
        self.current.store(version, Ordering::Release);
        Ok(())
    }
}

impl<T, P: Platform> Drop for Versioned<T, P> {
    fn drop(&mut self) {
        for version in self.versions.get_mut().drain(..) {
            // SAFETY: each came from `Box::into_raw`, is in the list once, and no reference outlives `self`.
            drop(unsafe { Box::from_raw(version.0) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(versioned: &Versioned<u32>, value: u32) {
        versioned
            .update(|old| {
                *old = value;
                Ok::<_, TooManyVersions>(())
            })
            .expect("there is room");
    }

    #[test]
    fn an_old_version_stays_readable_and_is_found_again() {
        let versioned = Versioned::<u32>::new(1);
        let first = versioned.get();
        set(&versioned, 2);
        assert_eq!((*first, *versioned.get()), (1, 2));
        set(&versioned, 1);
        assert!(std::ptr::eq(first, versioned.get()), "the same value is the same version");
        assert_eq!(versioned.versions.lock().len(), 2);
    }

    #[test]
    fn a_failed_change_publishes_nothing() {
        #[derive(Debug, PartialEq)]
        enum Why {
            Full,
            Refused,
        }
        impl From<TooManyVersions> for Why {
            fn from(_: TooManyVersions) -> Why {
                Why::Full
            }
        }
        let versioned = Versioned::<u32>::new(1);
        let refused = versioned.update(|value| {
            *value = 9;
            Err(Why::Refused)
        });
        assert_eq!((refused, *versioned.get()), (Err(Why::Refused), 1));
        for value in 0..Versioned::<u32>::MOST as u32 {
            let done = versioned.update(|old| {
                *old = value;
                Ok::<_, Why>(())
            });
            assert_eq!(done, Ok(()));
            if value > 300 {
                break;
            }
        }
        assert_eq!(versioned.versions.lock().len(), 302, "0 to 301, of which 1 was there");
    }

    #[test]
    fn all_versions_are_dropped_once() {
        let value = std::sync::Arc::new(());
        let versioned = Versioned::<(u32, std::sync::Arc<()>)>::new((0, value.clone()));
        for number in [1, 2, 1] {
            let done = versioned.update(|version| {
                version.0 = number;
                Ok::<_, TooManyVersions>(())
            });
            done.expect("there is room");
        }
        assert_eq!(std::sync::Arc::strong_count(&value), 4);
        drop(versioned);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }

    #[test]
    fn readers_see_whole_versions() {
        let versioned = Versioned::<(u64, u64)>::new((0, 0));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for n in 1..200 {
                    let done = versioned.update(|value| {
                        *value = (n, n * 3);
                        Ok::<_, TooManyVersions>(())
                    });
                    done.expect("there is room");
                }
            });
            for _ in 0..2 {
                threads.spawn(|| {
                    for _ in 0..10_000 {
                        let (n, three) = *versioned.get();
                        assert_eq!(three, n * 3);
                    }
                });
            }
        });
        assert_eq!(*versioned.get(), (199, 597));
    }
}
