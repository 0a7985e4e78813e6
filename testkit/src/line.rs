//! Network of most scenarios: two hosts, and a router between them.

use std::path::{Path, PathBuf};

use crate::namespace::Namespace;

/// Two hosts and a router between them, each in its own namespace.
///
/// ```text
///   h1  eth0 ──────── r1  r  r2 ──────── eth0  h2
///     10.1.0.2   10.1.0.1    10.2.0.1   10.2.0.2
///    fd00:1::2  fd00:1::1    fd00:2::1  fd00:2::2
/// ```
///
/// By default the hosts have Linux's default offloads. The router's kernel forwards.
#[derive(Debug)]
pub struct Line {
    /// Host behind `r1`.
    pub h1: Namespace,
    /// Router.
    pub r: Namespace,
    /// Host behind `r2`.
    pub h2: Namespace,
    /// Directory for files of this test.
    pub directory: Directory,
}

/// Options of a [`Line`].
#[derive(Clone, Copy, Debug)]
pub struct LineOptions {
    /// MTU of both links in bytes.
    pub mtu: u32,
    /// Whether the hosts' devices keep their offloads.
    pub offloads: bool,
}

impl Default for LineOptions {
    fn default() -> Self {
        Self { mtu: 1500, offloads: true }
    }
}

impl Line {
    /// Creates a line with 1,500 byte links and default offloads.
    ///
    /// # Panics
    /// The line can't be created.
    pub fn new() -> Self {
        Self::with(LineOptions::default())
    }

    /// Creates a line with given options.
    ///
    /// # Panics
    /// The line can't be created.
    pub fn with(options: LineOptions) -> Self {
        let [h1, r, h2] = ["h1", "r", "h2"].map(Namespace::new);
        let line = Self { h1, r, h2, directory: Directory::new() };
        line.r.sysctl("ipv4/ip_forward", "1");
        line.r.sysctl("ipv6/conf/all/forwarding", "1");
        for (number, host) in [(1, &line.h1), (2, &line.h2)] {
            line.connect(host, "eth0", number, options.mtu);
            if !options.offloads {
                host.run("ethtool -K eth0 rx off tx off tso off gso off gro off");
            }
            host.ip(&format!(
                "route add default via 10.{number}.0.1\nroute add default via fd00:{number}::1"
            ));
        }
        line
    }

    /// Links `device` of `host` (10.N.0.2 and fd00:N::2) to the router's `rN` (10.N.0.1 and fd00:N::1).
    ///
    /// # Panics
    /// The link can't be created.
    pub fn connect(&self, host: &Namespace, device: &str, number: u8, mtu: u32) {
        let (router, name) = (format!("r{number}"), host.name());
        self.r.ip(&format!(
            "link add {router} mtu {mtu} type veth peer name {device} mtu {mtu} netns {name}
             link set {router} up
             address add 10.{number}.0.1/24 dev {router}
             address add fd00:{number}::1/64 dev {router} nodad"
        ));
        host.ip(&format!(
            "link set {device} up
             address add 10.{number}.0.2/24 dev {device}
             address add fd00:{number}::2/64 dev {device} nodad"
        ));
    }

    /// Returns the path of a file in the test's own directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.0.join(name)
    }

    /// Writes a file in the test's own directory; returns its path.
    ///
    /// # Panics
    /// The file can't be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

/// Directory. Dropping it removes the directory with all contents.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("millrace-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
