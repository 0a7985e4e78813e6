//! Calls of the operating system: mapping of the shared memory, sleep, and number of the processor.

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use millrace_plugin_abi::process::{ASLEEP, BELL, PROCESSOR};

#[cfg(target_arch = "x86_64")]
const SYS_FUTEX: c_long = 202;
#[cfg(not(target_arch = "x86_64"))]
const SYS_FUTEX: c_long = 98;
const FUTEX_WAIT: c_int = 0;
const SEEK_END: c_int = 2;
const PROT_READ_WRITE: c_int = 1 | 2;
const MAP_SHARED: c_int = 1;
const MAP_POPULATE: c_int = 0x8000;

// Functions of the C library, with which the Rust standard library is linked.
unsafe extern "C" {
    fn mmap(
        address: *mut c_void,
        bytes: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn lseek(file: c_int, offset: i64, from: c_int) -> i64;
    fn syscall(number: c_long, ...) -> c_long;
    safe fn sched_getcpu() -> c_int;
}

/// Mapping of the shared memory. It stays until the process ends.
#[derive(Debug)]
pub(crate) struct Region {
    address: NonNull<AtomicU64>,
    words: usize,
}

impl Region {
    /// Maps the whole file of the memory.
    pub fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        // A confined executable may neither read the metadata of a file nor duplicate a descriptor.
        // SAFETY: the call has no pointers.
        let length = unsafe { lseek(file.as_raw_fd(), 0, SEEK_END) };
        let words = usize::try_from(length).unwrap_or(0) / 8;
        if words <= BELL {
            return Err(io::Error::other("it is no memory of the router"));
        }
        let flags = MAP_SHARED | MAP_POPULATE;
        // SAFETY: the kernel chooses an unused address; the router has sealed the size of the file.
        let address = unsafe { mmap(null_mut(), words * 8, PROT_READ_WRITE, flags, file.as_raw_fd(), 0) };
        if address.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { address, words })
    }

    /// Returns the memory as words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this length, is never removed, and is aligned to a page. The worker and the
        // plugin access it, too, but their accesses can't break an atomic word.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.words) }
    }

    /// Returns the address of the memory in this process.
    pub fn address(&self) -> u64 {
        self.address.as_ptr() as u64
    }

    /// Whether this process has the processor from which the worker has sent the last request.
    #[inline]
    pub fn shares_processor(&self) -> bool {
        is_processor(self.words().get(PROCESSOR), sched_getcpu())
    }

    /// Sleeps until the worker wakes this process, unless `has_work` holds.
    pub fn sleep(&self, has_work: impl FnOnce() -> bool) {
        // SAFETY: the mapping has this word, and only this function accesses it here.
        let bell: &AtomicU32 = unsafe { self.address.add(BELL).cast().as_ref() };
        bell.store(ASLEEP, Ordering::Relaxed);
        // The fence orders the write of the bell before the look for work. The worker does the opposite: it
        // writes a request, and then reads the bell.
        fence(Ordering::SeqCst);
        if !has_work() {
            // SAFETY: the word is mapped; the call waits while it has this value, without a time limit. A
            // spurious wake-up is harmless.
            unsafe { syscall(SYS_FUTEX, bell.as_ptr(), FUTEX_WAIT, ASLEEP, null::<c_void>()) };
        }
        bell.store(0, Ordering::Relaxed);
    }
}

/// Whether a word of the worker names a processor. `number` is negative if the system has no numbers.
fn is_processor(word: Option<&AtomicU64>, number: c_int) -> bool {
    let own = u64::try_from(number).map_or(0, |number| number + 1);
    own != 0 && word.is_some_and(|word| word.load(Ordering::Relaxed) == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_shares_the_processor_that_it_has_named() {
        let words = [0, 1, 3].map(AtomicU64::new);
        let shared = |number| words.each_ref().map(|word| is_processor(Some(word), number));
        assert_eq!(shared(0), [false, true, false]);
        assert_eq!(shared(2), [false, false, true]);
        assert_eq!(shared(-1), [false; 3]);
        assert!(!is_processor(None, 0));
    }
}
