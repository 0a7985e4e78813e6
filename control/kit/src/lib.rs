//! Creation and build of plugins: projects from templates, and compilation with the tools of this machine.
//!
//! [`new`] writes a self-contained project, with the SDK in its folder `millrace`. [`build`] compiles the
//! project into a WebAssembly module, a shared object or an executable. Neither needs a router. A router checks a built
//! plugin when it loads it.
#![forbid(unsafe_code)]

mod archive;
mod build;
mod create;
mod error;
mod machine;
mod run;

use std::fmt;
use std::str::FromStr;

pub use build::{Built, Options, build};
pub use create::new;
pub use error::KitError;
pub use machine::Machine;

/// Programming language of a plugin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// Rust.
    Rust,
    /// C.
    C,
}

/// Format of a built plugin; `--runtime` selects it by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Sandboxed: a WebAssembly module, `NAME.wasm`.
    Wasm,
    /// Trusted, or in a process of its own: a shared object, `NAME.so`.
    Native,
    /// In a process of its own only: an executable without shared libraries, `NAME.elf`.
    Executable,
}

/// Progress report of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress<'a> {
    /// Next step, with its tools.
    Step(&'a str),
    /// Line of a compiler, unchanged.
    Output(&'a str),
}

impl Language {
    /// All languages with their names.
    pub const NAMES: [(&'static str, Self); 2] = [("rust", Self::Rust), ("c", Self::C)];
}

impl Format {
    /// All formats with the names of their runtimes.
    pub const NAMES: [(&'static str, Self); 3] =
        [("wasm", Self::Wasm), ("native", Self::Native), ("executable", Self::Executable)];

    /// Returns the extension of plugin files, without the dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Native => "so",
            Self::Executable => "elf",
        }
    }
}

macro_rules! named {
    ($($kind:ty: $what:literal),*) => {$(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let name = Self::NAMES.into_iter().find(|(_, known)| known == self);
                f.write_str(name.map_or("", |(name, _)| name))
            }
        }

        impl FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::NAMES.into_iter().find(|(name, _)| *name == text);
                found.map(|(_, known)| known).ok_or_else(|| {
                    let names = Self::NAMES.map(|(name, _)| name).join(" or ");
                    format!("unknown {} {text:?}; give {names}", $what)
                })
            }
        }
    )*};
}
named! { Language: "language", Format: "runtime" }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_resolve_to_plugins() {
        assert_eq!(("c".parse(), "wasm".parse()), (Ok(Language::C), Ok(Format::Wasm)));
        assert_eq!(
            (Language::Rust.to_string(), Format::Native.to_string()),
            ("rust".into(), "native".into())
        );
        assert_eq!(
            "so".parse::<Format>().unwrap_err(),
            "unknown runtime \"so\"; give wasm or native or executable"
        );
    }
}
