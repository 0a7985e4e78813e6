//! Why a plugin could not be created or built.

use std::io;
use std::path::PathBuf;

/// Why a plugin could not be created or built.
#[derive(Debug, thiserror::Error)]
pub enum KitError {
    /// It can't be a plugin's name.
    #[error("{name:?} can't be the name of a plugin: {problem}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
    /// There is something already.
    #[error("{} exists already; give another name, or remove it", .0.display())]
    Exists(PathBuf),
    /// There is no plugin in the directory.
    #[error("{} has no plugin project, neither a Cargo.toml nor a .c file: create one with `millrace plugin new`", .0.display())]
    NoProject(PathBuf),
    /// Its Cargo.toml says nothing that can be built.
    #[error("{}: {problem}", file.display())]
    Manifest {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A tool is missing.
    #[error("this machine can't {what}: {missing}. {advice}")]
    Missing {
        /// What can't be done.
        what: &'static str,
        /// What is missing.
        missing: String,
        /// What to install.
        advice: &'static str,
    },
    /// The compiler has found mistakes, or could not work. Its lines were told while it ran.
    #[error("{program} failed ({status}); its output is above")]
    Compiler {
        /// The program.
        program: String,
        /// How it ended.
        status: String,
        /// Its lines, as they were.
        output: String,
    },
    /// The compiler was content, but what it should have made is not there.
    #[error("{} was not built; the project's Cargo.toml needs [lib] with crate-type = [\"cdylib\"]", .0.display())]
    NotBuilt(PathBuf),
    /// The system has refused something.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or program.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl KitError {
    /// Makes errors about a path.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }
}
