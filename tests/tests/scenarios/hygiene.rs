//! Resources that a router uses on its machine, before and after an operation.

use std::fs;

use millrace_testkit::{Millrace, resident};

/// Memory, descriptors and threads of a router's process.
#[derive(Debug)]
pub struct Taken {
    bytes: u64,
    descriptors: usize,
    threads: usize,
}

impl Taken {
    /// Returns the current resources of a router.
    pub fn by(router: &Millrace) -> Self {
        let count =
            |what: &str| fs::read_dir(format!("/proc/{}/{what}", router.pid())).map_or(0, Iterator::count);
        Self {
            bytes: resident(router.pid().unsigned_abs()),
            descriptors: count("fd"),
            threads: count("task"),
        }
    }

    /// Checks that a router uses no more than these resources: the same number of descriptors, and at most
    /// `percent` more memory. It may have two more threads for files, which stay once there was work for them
    /// at the same time.
    ///
    /// # Panics
    /// When the router uses more, or when it has panicked or ended.
    pub fn assert_kept(&self, router: &mut Millrace, percent: u64, what: &str) {
        let now = Self::by(router);
        println!("{what}: {self:?}, then {now:?}");
        assert!(now.bytes <= self.bytes * (100 + percent) / 100, "{what}: {self:?}, then {now:?}");
        assert_eq!(now.descriptors, self.descriptors, "{what}");
        assert!(now.threads <= self.threads + 2, "{what}: {self:?}, then {now:?}");
        assert!(router.is_running() && !router.log().contains("panicked"), "{what}: {}", router.log());
    }
}
