//! How plugins are created and built: projects from templates, and the way to compile that this machine has.
//!
//! [`new`] writes a project that needs nothing else: what it is written with lies in its folder `millrace`. [`build`] makes
//! a WebAssembly module or a shared object of it. Neither looks at the router; what was built is checked when it is loaded.
#![forbid(unsafe_code)]

mod build;
mod create;
mod error;
mod machine;
mod run;

use std::fmt;
use std::str::FromStr;

pub use build::{Built, Options, build, build_with};
pub use create::new;
pub use error::KitError;
pub use machine::Machine;

/// What a plugin is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// Rust.
    Rust,
    /// C.
    C,
}

/// Where a plugin lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// Contained: a WebAssembly module, `NAME.wasm`.
    Wasm,
    /// Trusted: a shared object, `NAME.so`.
    Native,
}

/// What is told while something is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress<'a> {
    /// What is done next, and with which tools.
    Step(&'a str),
    /// A line of a compiler, as it is.
    Output(&'a str),
}

impl Language {
    /// Every language with its name.
    pub const NAMES: [(&'static str, Self); 2] = [("rust", Self::Rust), ("c", Self::C)];
}

impl Home {
    /// Every home with its name.
    pub const NAMES: [(&'static str, Self); 2] = [("wasm", Self::Wasm), ("native", Self::Native)];

    /// How the names of its files end, without the dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Native => "so",
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
                    format!("there is no {} {text:?}; give {names}", $what)
                })
            }
        }
    )*};
}
named! { Language: "language", Home: "home" }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_what_they_name() {
        assert_eq!(("c".parse(), "wasm".parse()), (Ok(Language::C), Ok(Home::Wasm)));
        assert_eq!((Language::Rust.to_string(), Home::Native.to_string()), ("rust".into(), "native".into()));
        assert_eq!("so".parse::<Home>().unwrap_err(), "there is no home \"so\"; give wasm or native");
    }
}
