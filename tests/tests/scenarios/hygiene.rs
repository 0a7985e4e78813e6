//! What a router takes of its machine, before and after something.

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
    /// What a router takes now.
    pub fn by(router: &Millrace) -> Self {
        let count =
            |what: &str| fs::read_dir(format!("/proc/{}/{what}", router.pid())).map_or(0, Iterator::count);
        Self {
            bytes: resident(router.pid().unsigned_abs()),
            descriptors: count("fd"),
            threads: count("task"),
        }
    }

    /// Checks that a router takes no more than this: as many descriptors, two threads for files more at most, which stay once there is
    /// work for them at one time, and `percent` more memory at most.
    ///
    /// # Panics
    /// When it does, or when it has panicked or ended.
    pub fn assert_kept(&self, router: &mut Millrace, percent: u64, what: &str) {
        let now = Self::by(router);
        println!("{what}: {self:?}, then {now:?}");
        assert!(now.bytes <= self.bytes * (100 + percent) / 100, "{what}: {self:?}, then {now:?}");
        assert_eq!(now.descriptors, self.descriptors, "{what}");
        assert!(now.threads <= self.threads + 2, "{what}: {self:?}, then {now:?}");
        assert!(router.is_running() && !router.log().contains("panicked"), "{what}: {}", router.log());
    }
}
