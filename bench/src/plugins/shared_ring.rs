//! Ring in memory shared by two processes. It measures the minimum cost of a plugin in another process. One
//! process sends the window of a packet (its first bytes), the other returns the verdict. Both poll: on two
//! processors without system calls, on a common one they yield it to each other.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as Clock};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::BenchError;
use crate::testbed::process::Running;

/// Size of a packet's window, in words of 8 bytes.
pub(crate) const WINDOW: usize = 16;
/// Prefix of the benchmark name that starts the other process. The name of the [`Idle`] and the path of the shared
/// file follow.
const OTHER_SIDE: &str = "plugin-call/other-side:";

const SLOTS: u64 = 64;
/// Words per slot: the window, the verdict, and padding to full cache lines.
const STRIDE: usize = WINDOW + 8;
/// Index of the word with the request number. The response number is in the next cache line.
const THERE: usize = 0;
const BACK: usize = 8;
const FIRST_SLOT: usize = 16;
const WORDS: usize = FIRST_SLOT + SLOTS as usize * STRIDE;

/// Request number that ends the other process.
const END: u64 = u64::MAX;
/// Verdict that lets the packet pass.
const PASS: u64 = 1;
/// Maximum time for which the other process waits for a request. After this time, the other process assumes
/// that the first process has ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of polls between two readings of the clock.
const LOOKS: u64 = 1 << 20;

/// Wait between two polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Idle {
    /// The processor waits for some cycles.
    Spin,
    /// The other process may use the processor.
    Yield,
}

impl Idle {
    const ALL: [(Self, &str); 2] = [(Self::Spin, "spin:"), (Self::Yield, "yield:")];

    fn prefix(self) -> &'static str {
        Self::ALL.iter().find(|(idle, _)| *idle == self).map_or("", |(_, prefix)| prefix)
    }

    #[inline]
    fn wait(self) {
        match self {
            Self::Spin => std::hint::spin_loop(),
            Self::Yield => std::thread::yield_now(),
        }
    }
}

/// Mapping of the shared memory in one process.
struct Ring {
    start: NonNull<c_void>,
    bytes: NonZeroUsize,
}

impl Ring {
    fn map(file: &File) -> Result<Self, BenchError> {
        let bytes = NonZeroUsize::new(WORDS * size_of::<u64>())
            .ok_or_else(|| BenchError::measurement("plugin-call", "the shared ring is empty"))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: this is a new mapping at an address that the kernel chooses, so it replaces no existing
        // one.
        let start = unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, file.as_fd(), 0) };
        Ok(Self { start: start.map_err(BenchError::system("map shared memory"))?, bytes })
    }

    #[inline]
    fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: the mapping has this number of words, is page-aligned, and lives as long as `self`. Both
        // processes access it only by atomic operations.
        unsafe { self.start.cast::<[AtomicU64; WORDS]>().as_ref() }
    }

    #[inline]
    fn slot(&self, number: u64) -> &[AtomicU64] {
        &self.words()[FIRST_SLOT + (number % SLOTS) as usize * STRIDE..][..STRIDE]
    }

    /// Waits until a word changes from `last`; returns `None` after [`PATIENCE`] without a change.
    #[inline]
    fn wait(&self, place: usize, last: u64, idle: Idle) -> Option<u64> {
        let word = &self.words()[place];
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                let number = word.load(Ordering::Acquire);
                if number != last {
                    return Some(number);
                }
                idle.wait();
            }
            if since.get_or_insert_with(Clock::now).elapsed() > PATIENCE {
                return None;
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` created exactly this mapping, and no reference to it exists any more.
        let _ = unsafe { munmap(self.start, self.bytes.get()) };
    }
}

/// Handle of the other process, with the ring through which it is reached. The other process lets every
/// packet pass.
pub(crate) struct OtherSide {
    ring: Ring,
    idle: Idle,
    number: u64,
    process: Running,
}

impl OtherSide {
    /// Starts the other process as a run of `binary`.
    pub fn start(binary: &Path, idle: Idle) -> Result<Self, BenchError> {
        let memory = memfd_create(c"ring", MFdFlags::MFD_CLOEXEC)
            .map_err(BenchError::system("make a file in memory"))?;
        let memory = File::from(memory);
        memory
            .set_len((WORDS * size_of::<u64>()) as u64)
            .map_err(BenchError::system("size shared memory"))?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        let mut command = Command::new(binary);
        command.arg("bench").arg(format!("{OTHER_SIDE}{}{path}", idle.prefix()));
        let process = Running::start(&mut command)?;
        let mut other = Self { ring: Ring::map(&memory)?, idle, number: 0, process };
        // The first response shows that the process has opened the ring.
        other.ask(&[0; WINDOW])?;
        Ok(other)
    }

    /// Sends a packet's window to the other process, and waits for the verdict.
    #[inline]
    pub fn ask(&mut self, window: &[u64; WINDOW]) -> Result<(), BenchError> {
        let (last, number) = (self.number, self.number + 1);
        let slot = self.ring.slot(number);
        for (word, value) in slot.iter().zip(window) {
            word.store(*value, Ordering::Relaxed);
        }
        self.ring.words()[THERE].store(number, Ordering::Release);
        self.number = number;
        let back = self.ring.wait(BACK, last, self.idle);
        let verdict = slot[WINDOW].load(Ordering::Relaxed);
        if back == Some(number) && verdict == PASS { Ok(()) } else { Err(self.process.failure("no answer")) }
    }
}

impl Drop for OtherSide {
    fn drop(&mut self) {
        self.ring.words()[THERE].store(END, Ordering::Release);
    }
}

/// Runs the other process's side of the ring. Returns `None` if `name` is not the name of such a run.
pub(crate) fn run_other_side(name: &str) -> Option<Result<(), BenchError>> {
    let rest = name.strip_prefix(OTHER_SIDE)?;
    let (idle, path) =
        Idle::ALL.iter().find_map(|(idle, prefix)| Some((*idle, rest.strip_prefix(prefix)?)))?;
    let path = PathBuf::from(path);
    let opened = File::options().read(true).write(true).open(&path);
    let opened = opened.map_err(|error| {
        let text = format!("{}: {error}; only `bench plugin-call` starts this process", path.display());
        BenchError::measurement("plugin-call", text)
    });
    Some(opened.and_then(|memory| Ring::map(&memory)).map(|ring| answer(&ring, idle)))
}

/// Answers requests with [`PASS`] until [`END`] arrives, or until no request has come for [`PATIENCE`].
fn answer(ring: &Ring, idle: Idle) {
    let mut last = 0;
    while let Some(number) = ring.wait(THERE, last, idle)
        && number != END
    {
        let slot = ring.slot(number);
        let (window, verdict) = slot.split_at(WINDOW);
        let seen = window.iter().fold(0, |all, word| all | word.load(Ordering::Relaxed));
        std::hint::black_box(seen);
        verdict[0].store(PASS, Ordering::Relaxed);
        ring.words()[BACK].store(number, Ordering::Release);
        last = number;
    }
}
