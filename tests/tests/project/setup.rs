//! Tests of `tools/setup space`, with temporary directories and a disk that claims to be full.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_testkit::repository;

/// Home directory that doesn't exist yet, in a folder that is removed at the end of the test.
struct Machine(PathBuf);

impl Machine {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("millrace-setup-{}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).expect("a folder");
        Self(folder)
    }

    fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// Writes a script that replaces a program of the machine, in the first folder of `PATH`.
    fn replace(&self, program: &str, script: &str) {
        let path = self.0.join("bin").join(program);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    /// Simulates a disk without free space on which every directory uses 20 GiB.
    fn fill(&self) {
        self.replace("df", "echo Avail; echo 0");
        self.replace("du", "echo 20");
    }

    /// Returns the output of `tools/setup space` with this home, and with a target directory if one is given.
    ///
    /// # Panics
    /// When the tool fails.
    fn space(&self, target: Option<&Path>) -> String {
        let mut setup = Command::new(repository().join("tools/setup"));
        let path = std::env::var("PATH").unwrap_or_default();
        setup.arg("space").env("HOME", self.home()).env_remove("CARGO_TARGET_DIR");
        setup.env("PATH", format!("{}:{path}", self.0.join("bin").display()));
        setup.envs(target.map(|target| ("CARGO_TARGET_DIR", target)));
        let output = setup.output().expect("tools/setup");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes a target directory with files of both build profiles, and the target directory of fuzzing beside it.
fn built(target: &Path) -> [PathBuf; 3] {
    let beside = format!("{}-fuzz", target.display());
    let files = [target.join("debug/a"), target.join("release/b"), PathBuf::from(beside).join("debug/c")];
    for file in &files {
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, "built").expect("a file");
    }
    files
}

fn is_ready(said: &str) -> bool {
    said.lines().next_back() == Some("setup: ready")
}

#[test]
fn a_machine_on_which_nothing_was_built_gets_ready() {
    let machine = Machine::new();
    let absent = machine.0.join("absent/target");
    for target in [None, Some(&*absent)] {
        let said = machine.space(target);
        assert!(is_ready(&said), "{target:?}: {said}");
        assert!(!machine.home().exists() && !absent.exists(), "it makes no directory");
    }
}

#[test]
fn a_disk_with_space_for_a_whole_build_is_enough() {
    let machine = Machine::new();
    machine.replace("df", "echo Avail; echo 16");
    assert!(!machine.space(None).contains("GiB"), "16 GiB are enough");
    machine.replace("df", "echo Avail; echo 15");
    let said = machine.space(None);
    assert!(is_ready(&said) && said.contains("only 15 GiB free") && said.contains("needs 16 GiB"), "{said}");
}

#[test]
fn a_full_disk_costs_no_file_in_a_directory_that_cargo_target_dir_names() {
    let machine = Machine::new();
    machine.fill();
    let target = machine.0.join("target");
    let files = built(&target);
    let said = machine.space(Some(&target));
    assert!(is_ready(&said) && said.contains("only 0 GiB free"), "{said}");
    assert!(said.contains("needs 6 GiB there"), "most is built: {said}");
    assert!(files.iter().all(|file| file.exists()), "{said}");
}

#[test]
fn full_disk_removes_earlier_builds_in_the_own_directory_only() {
    let machine = Machine::new();
    machine.fill();
    let files = built(&machine.home().join(".cache/millrace-target"));
    let said = machine.space(None);
    assert!(is_ready(&said) && said.contains("removing what earlier builds left"), "{said}");
    assert!(files.iter().all(|file| !file.exists()), "{said}");
}
