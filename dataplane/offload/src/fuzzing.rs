//! Entrance of the fuzz targets: the programs run dry in the kernel, against their twin.

use crate::classifier_twin::classify;
use crate::dry_runs::Programs;
use crate::object;

/// The programs of a port, loaded into the kernel and attached to nothing.
pub struct DryRuns(Programs);

impl std::fmt::Debug for DryRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DryRuns").finish_non_exhaustive()
    }
}

impl DryRuns {
    /// Loads the programs.
    ///
    /// # Errors
    /// Why this can't be done here: it needs root.
    ///
    /// # Panics
    /// When the kernel refuses a program as root.
    pub fn load() -> Result<Self, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("not root".to_owned());
        }
        object::level0().map_err(|error| error.to_string())?;
        Ok(Self(Programs::load()))
    }

    /// Classifies a frame of 15 bytes or more by all programs and by the twin.
    ///
    /// # Panics
    /// When two of them disagree.
    pub fn check(&self, frame: &[u8]) {
        assert_eq!(self.0.verdict(frame), classify(frame, &self.0.knowledge), "program, twin: {frame:02x?}");
    }
}
