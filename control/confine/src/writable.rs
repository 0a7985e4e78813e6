//! Where threads may write: nowhere in the kernel's own file systems, for a thread that is root writes `core_pattern` without any capability.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError,
};

use crate::ConfineError;

/// Directories of the root in which a thread makes or changes no file: the kernel's settings, and devices.
const KERNELS: [&str; 3] = ["/dev", "/proc", "/sys"];
/// The device that stands for nothing, which programs get as their input and output.
const NOTHING: &str = "/dev/null";

/// Files that a thread may open to write, make, rename or remove. What is open already stays so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writable {
    /// None.
    Nothing,
    /// All in directories of the root but those of the kernel.
    Files,
}

impl Writable {
    /// Leaves these to the calling thread, and to those that it starts (Landlock). A kernel without Landlock leaves all.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn leave_to_thread(self) -> Result<(), ConfineError> {
        self.restrict().map_err(ConfineError::of("restrict where files are written (Landlock)"))
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

/// Allows accesses below a path; one that is gone needs none.
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

/// The directories of the root but those of the kernel.
fn directories() -> Vec<PathBuf> {
    let root = fs::read_dir("/").into_iter().flatten().flatten().map(|entry| entry.path());
    root.filter(|path| path.is_dir() && KERNELS.iter().all(|kernels| path != Path::new(kernels))).collect()
}
