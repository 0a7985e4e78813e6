//! Files that threads may write (Landlock). The kernel's own file systems are excluded: a thread of root
//! could write `core_pattern` there without any capability.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError,
};

use crate::{ConfineError, libraries};

/// Top-level folders in which no thread may create or change files: kernel settings and devices.
const KERNELS: [&str; 3] = ["/dev", "/proc", "/sys"];
/// Step that errors of [`only_read_libraries`] and [`reach_no_files`] name.
const FILES: &str = "restrict access to files (Landlock)";
/// Null device, which started programs get as input and output.
const NOTHING: &str = "/dev/null";

/// Set of files that a thread may open for writing, create, rename or remove. Files that are already open
/// stay usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writable {
    /// No files.
    Nothing,
    /// Files in all top-level folders except [`KERNELS`].
    Files,
}

impl Writable {
    /// Restricts the calling thread, and the threads that it starts, to this set of files (Landlock). On a
    /// kernel without Landlock, the threads may write all files.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn leave_to_thread(self) -> Result<(), ConfineError> {
        self.restrict().map_err(ConfineError::of("restrict file writes (Landlock)"))
    }

    fn restrict(self) -> Result<(), RulesetError> {
        let writes = AccessFs::from_write(ABI::V3);
        let handled = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(writes)?;
        let mut rules = handled.create()?;
        if self == Self::Files {
            for directory in directories() {
                rules = allow(rules, &directory, writes)?;
            }
            rules = allow(rules, Path::new(NOTHING), AccessFs::WriteFile | AccessFs::Truncate)?;
        }
        rules.restrict_self().map(drop)
    }
}

/// Keeps the calling thread, and the threads that it starts, from opening and executing any file (Landlock).
/// Files in memory stay usable. On a kernel without Landlock, this has no effect.
///
/// # Errors
/// The kernel refuses.
pub fn reach_no_files() -> Result<(), ConfineError> {
    let restrict = || {
        let handled = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V3))?;
        handled.create()?.restrict_self().map(drop)
    };
    restrict().map_err(|error: RulesetError| ConfineError::of(FILES)(error))
}

/// Keeps the calling thread, and the threads that it starts, from opening any file except shared libraries of the
/// system and the lists by which a loader finds them. These can only be read (Landlock). Files in memory stay usable. On
/// a kernel without Landlock, this has no effect.
///
/// # Errors
/// The kernel refuses.
pub fn only_read_libraries() -> Result<(), ConfineError> {
    let restrict = || {
        let reads = AccessFs::ReadFile | AccessFs::ReadDir;
        let handled = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_write(ABI::V3) | reads)?;
        let mut rules = handled.create()?;
        for folder in libraries::folders() {
            rules = allow(rules, &folder, reads)?;
        }
        for list in libraries::LISTS {
            rules = allow(rules, Path::new(list), AccessFs::ReadFile.into())?;
        }
        rules.restrict_self().map(drop)
    };
    restrict().map_err(|error: RulesetError| ConfineError::of(FILES)(error))
}

/// Adds a rule that allows accesses below a path; a missing path needs no rule.
fn allow(
    rules: landlock::RulesetCreated,
    path: &Path,
    accesses: BitFlags<AccessFs>,
) -> Result<landlock::RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(opened) => rules.add_rule(PathBeneath::new(opened, accesses)),
        Err(_) => Ok(rules),
    }
}

/// Returns all top-level folders except [`KERNELS`].
fn directories() -> Vec<PathBuf> {
    let root = fs::read_dir("/").into_iter().flatten().flatten().map(|entry| entry.path());
    root.filter(|path| path.is_dir() && KERNELS.iter().all(|kernels| path != Path::new(kernels))).collect()
}
