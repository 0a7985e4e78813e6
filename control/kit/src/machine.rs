//! Search for the compilers of this machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{KitError, run};

const WASM: &str = "wasm32-unknown-unknown";
const RUST_ADVICE: &str = "Run: rustup target add wasm32-unknown-unknown. \
    Or with the compiler of Debian 12: apt-get install rustc-web rust-web-src lld-19";
const C_ADVICE: &str = "On Debian: apt-get install clang lld, or clang-19 lld-19";
const NATIVE_C_ADVICE: &str = "On Debian: apt-get install gcc";
const CARGO_ADVICE: &str = "Install Rust: https://rustup.rs";

/// Machine with compilers: the folders to search for programs, in order.
#[derive(Clone, Debug)]
pub struct Machine {
    path: Vec<PathBuf>,
}

/// Way to compile Rust to WebAssembly with an installed compiler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RustWay {
    /// The compiler has a precompiled standard library for WebAssembly.
    Target {
        /// Path of the compiler.
        rustc: PathBuf,
    },
    /// The compiler has only the sources of the standard library, which are compiled first.
    Sources {
        /// Path of the compiler.
        rustc: PathBuf,
        /// Path of the linker; `None` for the compiler's own linker.
        linker: Option<PathBuf>,
    },
}

impl Machine {
    /// Returns this machine, with the folders of PATH.
    #[must_use]
    pub fn here() -> Self {
        Self::with_path(env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default())
    }

    /// Returns a machine with the given folders.
    #[must_use]
    pub fn with_path(path: Vec<PathBuf>) -> Self {
        Self { path }
    }

    /// Returns the paths of all programs with a name, in search order.
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
        self.path.iter().map(move |folder| folder.join(name)).filter(|file| file.is_file())
    }

    /// Returns the first program with this name. If there is none, returns the newest program whose name has
    /// a version suffix, such as `clang-19`.
    fn find(&self, name: &str) -> Option<PathBuf> {
        self.all(name).next().or_else(|| self.newest(name))
    }

    /// Returns the newest program whose name has a version suffix, such as `clang-19`.
    fn newest(&self, name: &str) -> Option<PathBuf> {
        let files = self.path.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let versions = files.filter_map(|file| Some((version(&file.file_name(), name)?, file.path())));
        versions.max_by_key(|(version, _)| *version).map(|(_, file)| file)
    }

    /// Returns the newest linker for WebAssembly, since an older linker can't read the output of newer
    /// compilers.
    fn linker(&self) -> Option<PathBuf> {
        let plain = self.all("wasm-ld").next();
        let newest = self.newest("wasm-ld");
        let said = |linker: &PathBuf| lld_version(&run::ask(Command::new(linker).arg("--version"))?);
        plain.into_iter().chain(newest).max_by_key(|linker| said(linker))
    }

    /// Returns cargo: the program beside `rustc`, or else the first one in PATH.
    pub(crate) fn cargo(&self, rustc: Option<&Path>) -> Result<PathBuf, KitError> {
        let beside = rustc.map(|rustc| rustc.with_file_name("cargo")).filter(|cargo| cargo.is_file());
        beside.or_else(|| self.all("cargo").next()).ok_or_else(|| KitError::Missing {
            what: "compile Rust",
            missing: "there is no cargo in the PATH".into(),
            advice: CARGO_ADVICE,
        })
    }

    /// Returns the way to compile the Rust project in a folder to WebAssembly. Uses the first compiler in
    /// PATH with a precompiled standard library; if there is none, the first compiler with the sources of the
    /// standard library.
    pub(crate) fn rust_way(&self, directory: &Path) -> Result<RustWay, KitError> {
        let compilers: Vec<_> =
            self.all("rustc").filter_map(|rustc| Some((sysroot(&rustc, directory)?, rustc))).collect();
        if let Some((_, rustc)) = compilers.iter().find(|(sysroot, _)| has_target(sysroot)) {
            return Ok(RustWay::Target { rustc: rustc.clone() });
        }
        let missing = match compilers.iter().find(|(sysroot, _)| has_sources(sysroot)) {
            Some((sysroot, rustc)) => {
                let linker = if has_linker(sysroot) { None } else { self.linker() };
                if linker.is_some() || has_linker(sysroot) {
                    return Ok(RustWay::Sources { rustc: rustc.clone(), linker });
                }
                format!(
                    "{} has the sources of the standard library, but there is no wasm-ld in the PATH",
                    rustc.display()
                )
            }
            None if compilers.is_empty() => "there is no rustc in the PATH".into(),
            None => {
                format!("no rustc in the PATH has the target {WASM} or the sources of the standard library")
            }
        };
        Err(KitError::Missing { what: "compile Rust to WebAssembly", missing, advice: RUST_ADVICE })
    }

    /// Returns the compiler and the linker for C to WebAssembly.
    pub(crate) fn clang(&self) -> Result<(PathBuf, PathBuf), KitError> {
        let missing = match (self.find("clang"), self.linker()) {
            (Some(clang), Some(linker)) => return Ok((clang, linker)),
            (None, Some(_)) => "there is no clang in the PATH",
            (Some(_), None) => "there is no wasm-ld in the PATH",
            (None, None) => "there is neither clang nor wasm-ld in the PATH",
        };
        Err(KitError::Missing { what: "compile C to WebAssembly", missing: missing.into(), advice: C_ADVICE })
    }

    /// Returns the compiler that builds a shared object from C.
    pub(crate) fn cc(&self) -> Result<PathBuf, KitError> {
        ["cc", "gcc", "clang"].into_iter().find_map(|name| self.find(name)).ok_or_else(|| KitError::Missing {
            what: "compile C",
            missing: "there is no cc, gcc or clang in the PATH".into(),
            advice: NATIVE_C_ADVICE,
        })
    }
}

/// Returns the version in a file name: 19 for `clang-19`.
fn version(file: &std::ffi::OsStr, name: &str) -> Option<u32> {
    file.to_str()?.strip_prefix(name)?.strip_prefix('-')?.parse().ok()
}

/// Returns the major version of LLD from its output: 19 for `Debian LLD 19.1.7 (compatible with GNU
/// linkers)`.
fn lld_version(said: &str) -> Option<u32> {
    said.split("LLD ").nth(1)?.split('.').next()?.parse().ok()
}

/// Returns the sysroot of a compiler. Runs the compiler in the project's folder, because a file there may
/// select the toolchain.
fn sysroot(rustc: &Path, directory: &Path) -> Option<PathBuf> {
    run::ask(Command::new(rustc).args(["--print", "sysroot"]).current_dir(directory)).map(PathBuf::from)
}

fn has_target(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib").join(WASM).join("lib").is_dir()
}

fn has_sources(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file()
}

/// Whether a compiler includes a linker for WebAssembly. Compilers of rustup do, those of distributions
/// don't.
fn has_linker(sysroot: &Path) -> bool {
    let Ok(hosts) = fs::read_dir(sysroot.join("lib/rustlib")) else { return false };
    hosts.flatten().any(|host| host.path().join("bin/rust-lld").is_file())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Folder of programs that is removed at the end of the test.
    struct Programs(PathBuf);

    impl Programs {
        fn new(test: &str) -> Self {
            let folder = env::temp_dir().join(format!("millrace-kit-{test}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn add(&self, name: &str, text: &str) {
            let file = self.0.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }

        /// Adds a compiler that reports this sysroot.
        fn add_rustc(&self, sysroot: &str) {
            self.add("rustc", &format!("#!/bin/sh\necho {}\n", self.0.join(sysroot).display()));
        }

        fn machine(&self) -> Machine {
            Machine::with_path(vec![self.0.join("absent"), self.0.clone()])
        }

        fn way(&self) -> Result<RustWay, KitError> {
            self.machine().rust_way(&self.0)
        }
    }

    impl Drop for Programs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn programs_with_versions_are_found_the_newest_first() {
        let programs = Programs::new("versions");
        for name in ["clang-9", "clang-19", "clang-cpp-20", "clang-format", "wasm-ld-14"] {
            programs.add(name, "");
        }
        let (clang, linker) = programs.machine().clang().unwrap();
        assert!(clang.ends_with("clang-19") && linker.ends_with("wasm-ld-14"));
        programs.add("clang", "");
        assert!(programs.machine().clang().unwrap().0.ends_with("clang"));
        assert!(programs.machine().cc().unwrap().ends_with("clang"));
    }

    #[test]
    fn the_newest_linker_is_taken() {
        let programs = Programs::new("linker");
        programs.add("wasm-ld", "#!/bin/sh\necho Debian LLD 14.0.6\n");
        programs.add("wasm-ld-19", "#!/bin/sh\necho 'Debian LLD 19.1.7 (compatible with GNU linkers)'\n");
        assert_eq!(programs.machine().linker(), Some(programs.0.join("wasm-ld-19")));
        programs.add("wasm-ld", "#!/bin/sh\necho LLD 21.1.0\n");
        assert_eq!(programs.machine().linker(), Some(programs.0.join("wasm-ld")));
    }

    #[test]
    fn missing_tools_for_c_are_named() {
        let programs = Programs::new("c");
        let text = programs.machine().clang().unwrap_err().to_string();
        assert!(text.contains("neither clang nor wasm-ld"), "{text}");
        programs.add("clang-19", "");
        let text = programs.machine().clang().unwrap_err().to_string();
        assert!(text.contains("no wasm-ld in the PATH") && text.contains("apt-get install"), "{text}");
        assert!(Machine::with_path(Vec::new()).cc().unwrap_err().to_string().contains("there is no cc"));
    }

    #[test]
    fn rust_is_compiled_by_an_installed_target() {
        let programs = Programs::new("target");
        programs.add_rustc("root");
        programs.add("root/lib/rustlib/src/rust/library/core/src/lib.rs", "");
        programs.add("root/lib/rustlib/wasm32-unknown-unknown/lib/libcore.rlib", "");
        assert_eq!(programs.way().unwrap(), RustWay::Target { rustc: programs.0.join("rustc") });
    }

    #[test]
    fn rust_is_compiled_from_sources_with_a_linker() {
        let programs = Programs::new("sources");
        assert!(programs.way().unwrap_err().to_string().contains("there is no rustc in the PATH"));
        programs.add_rustc("root");
        assert!(programs.way().unwrap_err().to_string().contains("rustup target add"));
        programs.add("root/lib/rustlib/src/rust/library/core/src/lib.rs", "");
        assert!(programs.way().unwrap_err().to_string().contains("there is no wasm-ld"));
        programs.add("wasm-ld-19", "");
        let rustc = programs.0.join("rustc");
        let linker = Some(programs.0.join("wasm-ld-19"));
        assert_eq!(programs.way().unwrap(), RustWay::Sources { rustc: rustc.clone(), linker });
        programs.add("root/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld", "");
        assert_eq!(programs.way().unwrap(), RustWay::Sources { rustc, linker: None });
    }

    #[test]
    fn cargo_is_that_beside_the_compiler() {
        let programs = Programs::new("cargo");
        assert!(programs.machine().cargo(None).unwrap_err().to_string().contains("rustup.rs"));
        programs.add("cargo", "");
        programs.add("other/cargo", "");
        assert_eq!(programs.machine().cargo(None).unwrap(), programs.0.join("cargo"));
        let beside = programs.machine().cargo(Some(&programs.0.join("other/rustc"))).unwrap();
        assert_eq!(beside, programs.0.join("other/cargo"));
    }
}
