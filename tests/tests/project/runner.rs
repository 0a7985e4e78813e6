//! Tests of the test runner of `make test`, with fake test programs.

use std::process::Command;

use millrace_testkit::repository;

#[test]
fn the_test_runner_hides_no_failure() {
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "runner.test_runner"]).current_dir(repository().join("tools"));
    let output = python.output().expect("python3, which tools/setup installs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
