//! Threads of a process with network privileges that have none, or fewer.

use caps::{CapSet, Capability, CapsHashSet};

use crate::ConfineError;

/// What a process may do to files and to processes of its own: no device, no route and no program of the kernel is reached by it.
const FILES: [Capability; 8] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_KILL,
    Capability::CAP_SETGID,
    Capability::CAP_SETUID,
];

/// What packet memory takes that the kernel shares.
const MEMORY: [Capability; 1] = [Capability::CAP_IPC_LOCK];

/// What is done where something is done apart.
const APART: &str = "begin a thread with fewer privileges";

/// What is left to a thread, of the capabilities that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privileges {
    /// What it may do to files and to processes of its own.
    Files,
    /// That, and what packet memory takes that the kernel shares.
    Memory,
}

impl Privileges {
    /// Takes all other capabilities away from the calling thread, and from those that it starts. Without privileges nothing changes.
    ///
    /// # Errors
    /// When the kernel refuses: the thread has what it had before, or less.
    pub fn leave_to_thread(self) -> Result<(), ConfineError> {
        let failed = ConfineError::of("give up capabilities");
        let memory: &[Capability] = if self == Self::Memory { &MEMORY } else { &[] };
        let allowed: CapsHashSet = FILES.iter().chain(memory).copied().collect();
        for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
            let had = caps::read(None, set).map_err(&failed)?;
            let left: CapsHashSet = had.intersection(&allowed).copied().collect();
            if left != had {
                caps::set(None, set, &left).map_err(&failed)?;
            }
        }
        Ok(())
    }

    /// Does something on a thread of its own that has these alone, so that threads that it begins have no more.
    ///
    /// # Errors
    /// When there is no thread, it can't be confined, or what is done panics.
    pub fn apart<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T, ConfineError> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("apart".to_owned());
            let thread = thread.spawn_scoped(scope, || self.leave_to_thread().map(|()| work()));
            let done = thread.map_err(ConfineError::of(APART))?.join();
            done.map_err(|_| ConfineError::of(APART)("it panicked"))?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted() -> CapsHashSet {
        caps::read(None, CapSet::Permitted).unwrap()
    }

    #[test]
    fn a_thread_and_those_that_it_starts_keep_what_is_left_to_them_and_others_keep_theirs() {
        let before = permitted();
        for left in [Privileges::Files, Privileges::Memory] {
            let allowed: CapsHashSet = match left {
                Privileges::Files => FILES.into_iter().collect(),
                Privileges::Memory => FILES.into_iter().chain(MEMORY).collect(),
            };
            let (own, started) = left.apart(|| (permitted(), std::thread::spawn(permitted).join())).unwrap();
            // Without privileges all of these are empty.
            let expected: CapsHashSet = before.intersection(&allowed).copied().collect();
            assert_eq!((&own, &started.unwrap()), (&expected, &expected), "{left:?}");
        }
        assert_eq!(permitted(), before);
    }

    #[test]
    fn what_panics_apart_is_an_error() {
        let error = Privileges::Files.apart(|| panic!("as it should")).unwrap_err();
        assert_eq!(error.to_string(), "can't begin a thread with fewer privileges: it panicked");
    }
}
