//! Errors of the creation and the build of plugins.

use std::io;
use std::path::PathBuf;

/// Reason why a plugin could not be created or built.
#[derive(Debug, thiserror::Error)]
pub enum KitError {
    /// Invalid name of a plugin.
    #[error("invalid plugin name {name:?}: {problem}")]
    Name {
        /// Name.
        name: String,
        /// Problem, and the valid form.
        problem: &'static str,
    },
    /// Existing file or folder.
    #[error("{} exists already; give another name, or remove it", .0.display())]
    Exists(PathBuf),
    /// Folder without a plugin project.
    #[error(
        "{} has no plugin project (no Cargo.toml and no .c file): create one with `millrace plugin new`",
        .0.display()
    )]
    NoProject(PathBuf),
    /// Cargo.toml without a package that can be built.
    #[error("{}: {problem}", file.display())]
    Manifest {
        /// Path of the file.
        file: PathBuf,
        /// Problem, and the valid form.
        problem: String,
    },
    /// Missing tool.
    #[error("this machine can't {what}: {missing}. {advice}")]
    Missing {
        /// Task that needs the tool.
        what: &'static str,
        /// Missing tool or part.
        missing: String,
        /// Packages to install.
        advice: &'static str,
    },
    /// Failed compiler: it found errors, or could not run. Its lines were reported while it ran.
    #[error("{program} failed ({status}); its output is above")]
    Compiler {
        /// Name of the program.
        program: String,
        /// Exit status of the program.
        status: String,
        /// Lines of the program, unchanged.
        output: String,
    },
    /// Missing output file of a compiler that reported success.
    #[error("{} was not built; the project's Cargo.toml needs [lib] with crate-type = [\"cdylib\"]", .0.display())]
    NotBuilt(PathBuf),
    /// Refusal of the system.
    #[error("can't use {}: {error}", path.display())]
    Io {
        /// Path of the file or program.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

impl KitError {
    /// Returns a function that makes errors about a path.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }
}
