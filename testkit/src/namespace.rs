//! Network namespace of a test.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_lab::within;

/// Time limit of a command in a namespace, in seconds.
const PATIENCE: &str = "60";

/// Network namespace. Dropping it removes the namespace.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace with a unique name that ends in `label`. Its loopback device is up. IPv6 addresses
    /// skip duplicate address detection.
    ///
    /// # Panics
    /// The namespace can't be created.
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

    /// Returns the name of the namespace, as in `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that runs inside the namespace. The caller must end the started process.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).stdin(Stdio::null());
        command
    }

    /// Runs a shell command inside the namespace for at most a minute.
    ///
    /// # Panics
    /// The command can't be started.
    pub fn try_run(&self, line: &str) -> Output {
        let mut command = self.command("timeout");
        command.args(["-k", "1", PATIENCE, "sh", "-c", line]);
        command.output().unwrap_or_else(|error| panic!("{}: {line}: {error}", self.name))
    }

    /// Runs a shell command inside the namespace; returns its output.
    ///
    /// # Panics
    /// The command fails; the message has its output.
    pub fn run(&self, line: &str) -> String {
        let output = self.try_run(line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: `{line}` {}:\n{text}{errors}", self.name, output.status);
        text
    }

    /// Whether a shell command inside the namespace succeeds.
    pub fn succeeds(&self, line: &str) -> bool {
        self.try_run(line).status.success()
    }

    /// Runs `ip LINE` in the namespace for each line of `lines`.
    ///
    /// # Panics
    /// A command fails.
    pub fn ip(&self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut command = Command::new("ip");
            command.args(["-n", &self.name]).args(line.split_ascii_whitespace());
            let output = command.output().unwrap_or_else(|error| panic!("ip {line}: {error}"));
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: ip {line}: {errors}", self.name);
        }
    }

    /// Runs `work` on a thread inside the namespace. Sockets that `work` opens belong to the namespace.
    ///
    /// # Panics
    /// The namespace is gone.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(&self.name, work).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Writes a value below `/proc/sys/net`.
    ///
    /// # Panics
    /// No such key exists.
    pub fn sysctl(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/net/{key}");
        let written = self.within(|| std::fs::write(&path, value));
        written.unwrap_or_else(|error| panic!("{}: write {value} to {path}: {error}", self.name));
    }

    /// Returns the kernel's index of a device.
    ///
    /// # Panics
    /// No such device exists.
    pub fn index_of(&self, device: &str) -> u32 {
        let index = self.within(|| nix::net::if_::if_nametoindex(device));
        index.unwrap_or_else(|error| panic!("{}: device {device}: {error}", self.name))
    }

    /// Returns the MAC address of a device.
    ///
    /// # Panics
    /// No such device exists.
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
