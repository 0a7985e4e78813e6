//! `tools/advisories` without an advisory database: the packages that its record covers, and the packages
//! that have changed since the record was made.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const RECORD: &str = "# The latest check.\nchecked = 2026-01-02\ndatabase = 2026-01-01 (abc)\naccepted = none\n\
    uncovered = none\npackage = old 1.0.0\n";

fn package(name: &str, version: &str, from: &str) -> String {
    let source = if from.is_empty() { String::new() } else { format!("source = \"{from}\"\n") };
    format!(
        "[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n{source}dependencies = [\n \"x\",\n]\n\n"
    )
}

/// Project folder with a copy of the tool, a record and a lock file; the tool runs without network.
struct Project(PathBuf);

impl Project {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("millrace-advisories-{}", std::process::id()));
        for part in ["tools", "bin"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/advisories");
        fs::copy(tool, folder.join("tools/advisories")).unwrap();
        let git = folder.join("bin/git");
        fs::write(&git, "#!/bin/sh\nexit 128\n").unwrap();
        fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
        let project = Self(folder);
        project.write("tools/advisories.txt", RECORD);
        project
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }

    /// Runs the tool. Returns whether it succeeds, and its output.
    fn run(&self, arguments: &[&str], ci: &str) -> (bool, String) {
        let path = format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap());
        let mut tool = Command::new("bash");
        tool.arg(self.0.join("tools/advisories")).args(arguments);
        tool.env("PATH", path).env("CI", ci).env("ADVISORY_DB", self.0.join("none"));
        let output = tool.output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn packages_missing_in_the_record_fail_until_listed_as_uncovered() {
    let project = Project::new();
    let registry = "registry+https://example.org";
    let own = package("ours", "0.1.0", "");
    project.write(
        "Cargo.lock",
        &(own + &package("new", "2.0.0", registry) + &package("old", "1.0.0", registry)),
    );
    let (passed, said) = project.run(&[], "true");
    assert!(!passed && said.contains("did not see: new 2.0.0\n"), "{said}");
    assert!(
        said.contains("latest check: 2026-01-02") && said.contains("tools/advisories --record"),
        "{said}"
    );
    assert!(project.run(&[], "").0, "only with CI=true");
    let (passed, said) = project.run(&["--record"], "true");
    assert!(passed && said.contains("no check") && said.contains("not covered: new 2.0.0"), "{said}");
    let record = fs::read_to_string(project.0.join("tools/advisories.txt")).unwrap();
    // The record keeps the date of the check and its results.
    for line in
        ["checked = 2026-01-02", "uncovered = new 2.0.0", "package = old 1.0.0", "# The latest check."]
    {
        assert!(record.lines().any(|one| one == line), "{line}: {record}");
    }
    assert!(!record.contains("package = new"), "{record}");
    let (passed, said) = project.run(&[], "true");
    assert!(passed && said.contains("not covered: new 2.0.0"), "{said}");
    // A new dependency between workspace crates doesn't count as a change of packages.
    let all = package("ours", "0.2.0", "")
        + &package("new", "2.0.0", registry)
        + &package("old", "1.0.0", registry);
    project.write("Cargo.lock", &all);
    assert!(project.run(&[], "true").0);
    // One version of a package replaces another.
    project.write("Cargo.lock", &package("old", "1.0.1", registry));
    let (passed, said) = project.run(&[], "true");
    assert!(!passed && said.contains("did not see: old 1.0.1\n"), "{said}");
}
