//! Resources that a router uses on its machine, compared before and after an operation.

use std::time::Duration;
use std::{fs, thread};

use millrace_testkit::{Millrace, resident};

/// How often descriptors are counted, and the time between two counts. A router closes the connection of a
/// command shortly after the command has ended. So the smallest count is that of the router at rest.
const COUNTS: (usize, Duration) = (20, Duration::from_millis(50));

/// Memory, descriptors and threads of a router's process.
#[derive(Debug)]
pub struct Taken {
    bytes: u64,
    descriptors: usize,
    threads: usize,
}

impl Taken {
    /// Returns the current resources of a router. No command may be in progress.
    pub fn by(router: &Millrace) -> Self {
        let count =
            |what: &str| fs::read_dir(format!("/proc/{}/{what}", router.pid())).map_or(0, Iterator::count);
        let (counts, pause) = COUNTS;
        let descriptors = (0..counts).map(|_| {
            thread::sleep(pause);
            count("fd")
        });
        Self {
            descriptors: descriptors.min().unwrap_or_default(),
            bytes: resident(router.pid().unsigned_abs()),
            threads: count("task"),
        }
    }

    /// Whether a router uses at most `percent` more memory than this.
    pub fn has_memory(&self, router: &Millrace, percent: u64) -> bool {
        Self::by(router).bytes <= self.with(percent)
    }

    /// Returns the memory, and `percent` more.
    fn with(&self, percent: u64) -> u64 {
        self.bytes * (100 + percent) / 100
    }

    /// Checks that a router uses no more than these resources: no more descriptors, and at most `percent`
    /// more memory. Two more threads for files are allowed, because the router keeps threads that it once
    /// needed at the same time.
    ///
    /// # Panics
    /// When the router uses more, or when it has panicked or ended.
    pub fn assert_kept(&self, router: &mut Millrace, percent: u64, what: &str) {
        let now = Self::by(router);
        println!("{what}: {self:?}, then {now:?}");
        assert!(now.bytes <= self.with(percent), "{what}: {self:?}, then {now:?}");
        assert!(now.descriptors <= self.descriptors, "{what}: {self:?}, then {now:?}");
        assert!(now.threads <= self.threads + 2, "{what}: {self:?}, then {now:?}");
        assert!(router.is_running() && !router.log().contains("panicked"), "{what}: {}", router.log());
    }
}
