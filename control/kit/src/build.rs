//! Build of a plugin project into a WebAssembly module, a shared object or an executable.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::RustWay;
use crate::run::run;
use crate::{Format, KitError, Language, Machine, Progress, archive, create};

/// Plugin file that a build has written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Built {
    /// File of the plugin.
    pub file: PathBuf,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// Options of a build, beyond the defaults.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folder for the compilers' intermediate files; by default CARGO_TARGET_DIR, or `target` in the project.
    pub target: Option<PathBuf>,
    /// Folder for the result; by default the project.
    pub result: Option<PathBuf>,
    /// Machine whose compilers are used; by default this machine, with the programs in PATH.
    pub machine: Option<Machine>,
}

/// Builds the project in a folder into `NAME.wasm`, `NAME.so` or `NAME.elf`. With a Rust compiler of a distribution, the
/// first build for WebAssembly takes a minute and downloads some sources from crates.io.
///
/// # Errors
/// There is no project, a tool is missing, or the compiler fails.
pub fn build(
    directory: &Path,
    format: Format,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Built, KitError> {
    let directory = directory.canonicalize().map_err(KitError::io(directory))?;
    let target = options.target.clone().or_else(|| env::var_os("CARGO_TARGET_DIR").map(PathBuf::from));
    let job = Job {
        machine: options.machine.clone().unwrap_or_else(Machine::here),
        target: target.map_or_else(|| directory.join("target"), |target| directory.join(target)),
        result: options.result.clone().unwrap_or_else(|| directory.clone()),
        directory,
        format,
    };
    job.run(progress)
}

/// Build of one project: its folders, options and format.
struct Job {
    machine: Machine,
    directory: PathBuf,
    target: PathBuf,
    result: PathBuf,
    format: Format,
}

impl Job {
    fn run(&self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Built, KitError> {
        if self.directory.join("Cargo.toml").is_file() {
            return self.rust(progress);
        }
        let sources = self.c_sources()?;
        if sources.is_empty() {
            return Err(KitError::NoProject(self.directory.clone()));
        }
        self.c(&sources, progress)
    }

    fn rust(&self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Built, KitError> {
        let package = Package::read(&self.directory.join("Cargo.toml"))?;
        let (mut command, step, folder) = match self.format {
            Format::Native => (self.cargo(None)?, "cargo build --release".to_owned(), "release"),
            Format::Executable => return self.rust_executable(&package, progress),
            Format::Wasm => {
                let (command, step) = self.cargo_for_wasm(&package)?;
                (command, step, "wasm32-unknown-unknown/release")
            }
        };
        progress(Progress::Step(&step));
        run(&mut command, progress)?;
        let prefix = if self.format == Format::Native { "lib" } else { "" };
        let file = format!("{prefix}{}.{}", package.library, self.format.extension());
        self.finish(&package.name, &self.target.join(folder).join(file))
    }

    fn cargo(&self, rustc: Option<&Path>) -> Result<Command, KitError> {
        let mut command = Command::new(self.machine.cargo(rustc)?);
        command.current_dir(&self.directory).args(["build", "--release", "--lib", "--target-dir"]);
        command.arg(&self.target);
        Ok(command)
    }

    /// Builds the program of the package, without shared libraries.
    fn rust_executable(
        &self,
        package: &Package,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Built, KitError> {
        let mut command = Command::new(self.machine.cargo(None)?);
        command.current_dir(&self.directory).args(["rustc", "--release", "--bin", &package.name]);
        command.arg("--target-dir").arg(&self.target).args(["--", "-Ctarget-feature=+crt-static"]);
        progress(Progress::Step("cargo rustc --release, without shared libraries"));
        run(&mut command, progress)?;
        self.finish(&package.name, &self.target.join("release").join(&package.name))
    }

    fn cargo_for_wasm(&self, package: &Package) -> Result<(Command, String), KitError> {
        let way = self.machine.rust_way(&self.directory)?;
        let (RustWay::Target { rustc } | RustWay::Sources { rustc, .. }) = &way;
        let mut command = self.cargo(Some(rustc))?;
        command.env("RUSTC", rustc).args(["--target", "wasm32-unknown-unknown"]);
        let mut step =
            format!("cargo build --release --target wasm32-unknown-unknown, with {}", rustc.display());
        if let RustWay::Sources { linker, .. } = &way {
            // Building the standard library is an unstable cargo feature. The variable enables it in a stable
            // compiler.
            let crates = if package.uses_std { "std,panic_abort" } else { "core,alloc,panic_abort" };
            command.env("RUSTC_BOOTSTRAP", "1").arg(format!("-Zbuild-std={crates}"));
            step += ", after its library";
            if let Some(linker) = linker {
                command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
                step += &format!(", and {}", linker.display());
            }
        }
        Ok((command, step))
    }

    fn c(&self, sources: &[PathBuf], progress: &mut dyn FnMut(Progress<'_>)) -> Result<Built, KitError> {
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = self.target.join("millrace").join(&name);
        // Write the SDK's headers, in case the project has no copies of its own.
        for file in archive::files(Language::C).iter().filter(|file| file.place.ends_with(".h")) {
            create::write(&folder.join("include").join(&file.place), &file.text)?;
        }
        let built = folder.join(format!("{name}.{}", self.format.extension()));
        let (mut command, step) = match self.format {
            Format::Native | Format::Executable => {
                let cc = self.machine.cc()?;
                let step = cc.display().to_string();
                let mut command = Command::new(cc);
                command.args(match self.format {
                    Format::Executable => ["-static-pie", "-fPIE", "-s", "-DMILLRACE_EXECUTABLE"].as_slice(),
                    _ => &["-shared", "-fPIC", "-s"],
                });
                (command, step)
            }
            Format::Wasm => {
                let (clang, linker) = self.machine.clang()?;
                let step = format!("{} and {}", clang.display(), linker.display());
                let mut command = Command::new(clang);
                command.args(["--target=wasm32", "-nostdlib", "-ffreestanding"]);
                command.arg(format!("-fuse-ld={}", linker.display()));
                command.args(["-Wl,--no-entry", "-Wl,--strip-all"]);
                (command, step)
            }
        };
        command.current_dir(&self.directory);
        command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-I"]);
        command.arg(folder.join("include")).arg("-o").arg(&built).args(sources);
        progress(Progress::Step(&step));
        run(&mut command, progress)?;
        self.finish(&name, &built)
    }

    /// Returns the `.c` files in the folder and in its folder `src`, by name.
    fn c_sources(&self) -> Result<Vec<PathBuf>, KitError> {
        let mut sources = Vec::new();
        for folder in [self.directory.clone(), self.directory.join("src")] {
            let Ok(files) = fs::read_dir(&folder) else { continue };
            for file in files {
                let path = file.map_err(KitError::io(&folder))?.path();
                if path.extension().is_some_and(|extension| extension == "c") {
                    // With relative paths here, the compiler's messages have relative paths, too.
                    sources.push(path.strip_prefix(&self.directory).unwrap_or(&path).to_owned());
                }
            }
        }
        sources.sort();
        Ok(sources)
    }

    /// Renames the built file to its final name, so that readers see either the old or the new file.
    fn finish(&self, name: &str, built: &Path) -> Result<Built, KitError> {
        if !built.is_file() {
            return Err(KitError::NotBuilt(built.to_owned()));
        }
        let file = self.result.join(format!("{name}.{}", self.format.extension()));
        let part = self.result.join(format!(".{name}.{}.part", self.format.extension()));
        let bytes = fs::copy(built, &part).map_err(KitError::io(&part))?;
        fs::rename(&part, &file).map_err(KitError::io(&file))?;
        Ok(Built { file, bytes })
    }
}

/// Parts of a Cargo.toml that a build needs.
#[derive(Debug)]
struct Package {
    name: String,
    library: String,
    /// Whether the plugin needs Rust's standard library in WebAssembly, too: `std = true` under
    /// `[package.metadata.millrace]`.
    uses_std: bool,
}

impl Package {
    fn read(file: &Path) -> Result<Self, KitError> {
        let text = fs::read_to_string(file).map_err(KitError::io(file))?;
        Self::parse(&text).map_err(|problem| KitError::Manifest { file: file.to_owned(), problem })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let text = |section: &str, key: &str| {
            table.get(section)?.as_table()?.get(key)?.as_str().map(ToOwned::to_owned)
        };
        let name = text("package", "name").ok_or(
            "no package name; set `name` in [package], or run the command in the folder of a plugin",
        )?;
        let library = text("lib", "name").unwrap_or_else(|| name.replace('-', "_"));
        let metadata =
            table.get("package").and_then(|package| package.get("metadata")?.get("millrace")?.get("std"));
        let uses_std = metadata.and_then(toml::Value::as_bool).unwrap_or(false);
        Ok(Self { name, library, uses_std })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_selects_the_build() {
        let package = Package::parse("[package]\nname = \"a-b\"\n").unwrap();
        assert_eq!((&*package.name, &*package.library, package.uses_std), ("a-b", "a_b", false));
        let text = "[package]\nname = \"a\"\nmetadata.millrace.std = true\n[lib]\nname = \"c\"\n";
        let package = Package::parse(text).unwrap();
        assert_eq!((&*package.library, package.uses_std), ("c", true));
        assert!(Package::parse("[workspace]").unwrap_err().contains("no package"));
        assert!(Package::parse("=").is_err());
    }

    #[test]
    fn an_empty_directory_has_no_plugin() {
        let folder = env::temp_dir().join(format!("millrace-kit-empty-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let error = build(&folder, Format::Wasm, &Options::default(), &mut |_| {}).unwrap_err();
        fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(error, KitError::NoProject(_)));
        assert!(matches!(
            build(&folder, Format::Wasm, &Options::default(), &mut |_| {}),
            Err(KitError::Io { .. })
        ));
    }
}
