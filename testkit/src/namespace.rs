//! A network namespace of a test's own.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_lab::within;

/// Seconds after which a command that a test runs is ended.
const PATIENCE: &str = "60";

/// A network namespace, removed when this is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A namespace that nobody else has: `label` is the last part of its name. Its loopback device is up, and IPv6
    /// addresses are usable as soon as they are there.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn new(label: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = Self { name: format!("mr{}-{number}-{label}", std::process::id()) };
        let made = Command::new("ip").args(["netns", "add", &namespace.name]).status();
        assert!(made.is_ok_and(|status| status.success()), "ip netns add {}", namespace.name);
        namespace.sysctl("ipv6/conf/all/accept_dad", "0");
        namespace.sysctl("ipv6/conf/default/accept_dad", "0");
        namespace.sysctl("ipv6/conf/default/accept_ra", "0");
        namespace.sysctl("ipv6/conf/default/router_solicitations", "0");
        namespace.ip("link set lo up");
        namespace
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A program that will run inside. What it starts is the caller's to end.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).stdin(Stdio::null());
        command
    }

    /// Runs a shell command inside, for at most a minute.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn try_run(&self, line: &str) -> Output {
        let mut command = self.command("timeout");
        command.args(["-k", "1", PATIENCE, "sh", "-c", line]);
        command.output().unwrap_or_else(|error| panic!("{}: {line}: {error}", self.name))
    }

    /// Runs a shell command inside; returns what it printed.
    ///
    /// # Panics
    /// When it fails, with what it printed.
    pub fn run(&self, line: &str) -> String {
        let output = self.try_run(line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: `{line}` {}:\n{text}{errors}", self.name, output.status);
        text
    }

    /// Whether a shell command inside succeeds.
    pub fn succeeds(&self, line: &str) -> bool {
        self.try_run(line).status.success()
    }

    /// Runs `ip LINE` inside, for each line.
    ///
    /// # Panics
    /// When one fails.
    pub fn ip(&self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut command = Command::new("ip");
            command.args(["-n", &self.name]).args(line.split_ascii_whitespace());
            let output = command.output().unwrap_or_else(|error| panic!("ip {line}: {error}"));
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: ip {line}: {errors}", self.name);
        }
    }

    /// Runs `work` on a thread inside; what it opens stays there.
    ///
    /// # Panics
    /// When the namespace is gone.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(&self.name, work).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Writes below `/proc/sys/net`.
    ///
    /// # Panics
    /// When there is no such key.
    pub fn sysctl(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/net/{key}");
        let written = self.within(|| std::fs::write(&path, value));
        written.unwrap_or_else(|error| panic!("{}: write {value} to {path}: {error}", self.name));
    }

    /// The kernel's index of a device.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn index_of(&self, device: &str) -> u32 {
        let index = self.within(|| nix::net::if_::if_nametoindex(device));
        index.unwrap_or_else(|error| panic!("{}: device {device}: {error}", self.name))
    }

    /// The MAC address of a device.
    ///
    /// # Panics
    /// When there is no such device.
    pub fn mac_of(&self, device: &str) -> [u8; 6] {
        let text = self.run(&format!("cat /sys/class/net/{device}/address"));
        let mut bytes = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap_or(0));
        std::array::from_fn(|_| bytes.next().unwrap_or(0))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let mut command = Command::new("ip");
        command.args(["netns", "delete", &self.name]);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
