//! Network namespace for a test, which belongs to one thread and ends with the thread.

use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};

/// Runs a test in a new namespace, on a new thread and runtime; skips the test without root or `ip`.
pub(crate) fn in_namespace<F>(test: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = ()>,
{
    let missing = if !nix::unistd::geteuid().is_root() {
        Some("needs root")
    } else if Command::new("ip").arg("-V").output().is_err() {
        Some("needs iproute2")
    } else {
        None
    };
    if let Some(why) = missing {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{why}");
        println!("skipped: {why}");
        return;
    }
    // A failed test shows this output, with RUST_LOG=debug.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        ip("link set lo up");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a command line, which must succeed, and returns its output.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `ip`.
pub(crate) fn ip(arguments: &str) -> String {
    run("ip", arguments)
}

/// Creates a veth pair `lan`, `far` with `lan` at 10.0.0.1/24 and fd00::1/64, both up.
pub(crate) fn veth_pair() {
    ip("link add lan type veth peer name far");
    ip("addr add 10.0.0.1/24 brd + dev lan");
    ip("addr add fd00::1/64 dev lan nodad");
    ip("link set lan up");
    ip("link set far up");
}

/// Runs the commands of a script by `ip -batch`.
pub(crate) fn ip_batch(script: &str) {
    use std::io::Write;
    let mut child =
        Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip -batch");
    child.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("writing the batch");
    assert!(child.wait().expect("ip -batch").success());
}
