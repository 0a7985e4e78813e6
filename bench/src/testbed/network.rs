//! Test network of the benchmarks: two hosts and a router between them, each in its own namespace.
//!
//! ```text
//!   g  g0 ──── r1  r  r2 ──── s0  s
//!     10.1.0.1  10.1.0.254  10.2.0.254  10.2.0.1
//! ```
//!
//! All four devices have their offloads off, so that every system forwards the packets as they are on the
//! wire. A benchmark may connect `r` and `s` by a second link ([`Network::connect_beside`]). [`SINK`] is an
//! address behind `s0` whose MAC address belongs to no device: the kernel of `s` counts its packets and drops
//! them.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_lab::within;
use millrace_port::create_output;
use millrace_wire::MacAddr;
use nix::net::if_::if_nametoindex;

use crate::BenchError;
use crate::testbed::process::run;

/// Address of the first host.
pub(crate) const GENERATOR: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// Address of the second host.
pub(crate) const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
/// Destination of packets that are only counted.
pub(crate) const SINK: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 99);
/// IPv6 address of the first host.
pub(crate) const GENERATOR6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
/// IPv6 counterpart of [`SINK`].
pub(crate) const SINK6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0x99);
/// Destination of packets that are only counted. It is behind a device of the router's machine that is no
/// port of Millrace, so only the kernel sends to it.
pub(crate) const BESIDE: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 99);
/// MAC address of [`SINK`], which belongs to no device.
pub(crate) const SINK_MAC: [u8; 6] = [2, 0, 0, 0, 2, 0x99];
/// MAC address of `g0`.
pub(crate) const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// MAC address of `r1`.
pub(crate) const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];

/// Options for a device with one queue: a single socket then receives all packets.
const QUEUES: &str = "numrxqueues 1 numtxqueues 1";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Network namespace. Dropping it removes the namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    fn new(name: String) -> Result<Self, BenchError> {
        run("ip", &["netns", "add", &name])?;
        Ok(Self { name })
    }

    /// Returns the name of the namespace, as in `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens the file that stands for the namespace.
    pub fn open(&self) -> Result<File, BenchError> {
        let path = PathBuf::from("/run/netns").join(&self.name);
        File::open(&path).map_err(BenchError::system(format!("open {}", path.display())))
    }

    /// Runs `work` on a thread inside the namespace.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, BenchError> {
        Ok(within(&self.name, work)?)
    }

    /// Returns the kernel's index of a device.
    pub fn index(&self, device: &str) -> Result<u32, BenchError> {
        let index = self.within(|| if_nametoindex(device))?;
        index.map_err(BenchError::system(format!("find device {device}")))
    }

    /// Returns the number of packets that a device has received.
    pub fn received(&self, device: &str) -> Result<u64, BenchError> {
        Ok(self.carried(device)?.1)
    }

    /// Returns the numbers of bytes and packets that a device has received.
    pub fn carried(&self, device: &str) -> Result<(u64, u64), BenchError> {
        let table = self.read("/proc/thread-self/net/dev")?;
        let column = |number| column(&table, device, number);
        column(0)
            .zip(column(1))
            .ok_or_else(|| BenchError::measurement(device, "no such device in /proc/net/dev"))
    }

    /// Returns the number of packets that the kernel has forwarded.
    pub fn forwarded(&self) -> Result<u64, BenchError> {
        let table = self.read("/proc/thread-self/net/snmp")?;
        forwarded(&table).ok_or_else(|| BenchError::measurement("kernel forwarding", "not in /proc/net/snmp"))
    }

    fn read(&self, path: &'static str) -> Result<String, BenchError> {
        self.within(|| fs::read_to_string(path))?.map_err(BenchError::system(format!("read {path}")))
    }

    /// Runs a shell command in the namespace. `/sys` shows the namespace's devices to the command.
    pub fn shell(&self, text: &str) -> Result<String, BenchError> {
        run("ip", &["netns", "exec", &self.name, "sh", "-c", text])
    }

    /// Runs a batch of `ip` commands.
    pub fn ip(&self, lines: &str) -> Result<(), BenchError> {
        let directory = std::env::temp_dir();
        let file = directory.join(format!("{}.ip", self.name));
        let written = create_output(&file).and_then(|mut file| file.write_all(lines.as_bytes()));
        written.map_err(BenchError::system(format!("write {}", file.display())))?;
        let path = file.to_string_lossy().into_owned();
        let result = run("ip", &["-n", &self.name, "-batch", &path]);
        let _ = fs::remove_file(&file);
        result.map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let mut command = Command::new("ip");
        command.args(["netns", "del", &self.name]);
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn column(table: &str, device: &str, number: usize) -> Option<u64> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(number)?.parse().ok()
}

fn forwarded(table: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let column = lines.next()?.split_ascii_whitespace().position(|name| name == "ForwDatagrams")?;
    lines.next()?.split_ascii_whitespace().nth(column)?.parse().ok()
}

/// Test network: two hosts and a router between them.
#[derive(Debug)]
pub(crate) struct Network {
    /// Sending host.
    pub g: Namespace,
    /// Router; its kernel forwards.
    pub r: Namespace,
    /// Receiving host.
    pub s: Namespace,
}

impl Network {
    /// Creates the namespaces under unique names and connects them.
    pub fn new() -> Result<Self, BenchError> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |node| format!("millrace-bench-{}-{number}-{node}", std::process::id());
        let namespace = |node| Namespace::new(name(node));
        let network = Self { g: namespace("g")?, r: namespace("r")?, s: namespace("s")? };
        network.connect()?;
        Ok(network)
    }

    /// Enables IPv6 forwarding in the router and adds the IPv6 addresses.
    pub fn connect6(&self) -> Result<(), BenchError> {
        self.r.shell("echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")?;
        self.r.ip(&format!(
            "address add fd00:1::254/64 dev r1 nodad\naddress add fd00:2::254/64 dev r2 nodad\n\
             neigh add {SINK6} lladdr {} dev r2 nud permanent\n",
            MacAddr(SINK_MAC)
        ))
    }

    /// Adds a second link, from the router's `r3` to the receiving host's `s1`. Only the router's kernel
    /// sends on this link.
    pub fn connect_beside(&self) -> Result<(), BenchError> {
        self.s.ip(&format!(
            "link add s1 address 02:00:00:00:03:01 {QUEUES} type veth peer name r3 address 02:00:00:00:03:02 {QUEUES} \
             netns {}\nlink set s1 up\n",
            self.r.name()
        ))?;
        self.r.ip(&format!(
            "link set r3 up\naddress add 10.3.0.254/24 dev r3\nneigh add {BESIDE} lladdr {} dev r3 nud permanent\n",
            MacAddr(SINK_MAC)
        ))?;
        for (namespace, device) in [(&self.r, "r3"), (&self.s, "s1")] {
            namespace.shell(&format!("ethtool -K {device} tx off tso off gso off gro off"))?;
        }
        Ok(())
    }

    fn connect(&self) -> Result<(), BenchError> {
        let link = |host, address, device| {
            format!(
                "link set lo up\nlink add {host} address {address}1 {QUEUES} type veth peer name {device} \
                 address {address}2 {QUEUES} netns {}\nlink set {host} up\n",
                self.r.name()
            )
        };
        self.g.ip(&link("g0", "02:00:00:00:01:0", "r1"))?;
        self.s.ip(&link("s0", "02:00:00:00:02:0", "r2"))?;
        self.r.shell("echo 1 >/proc/sys/net/ipv4/ip_forward")?;
        self.r.ip(&format!(
            "link set lo up\nlink set r1 up\nlink set r2 up\naddress add 10.1.0.254/24 dev r1\n\
             address add 10.2.0.254/24 dev r2\nneigh add {SINK} lladdr {} dev r2 nud permanent\n",
            MacAddr(SINK_MAC)
        ))?;
        self.g.ip("address add 10.1.0.1/24 dev g0\nroute add default via 10.1.0.254\n")?;
        self.s.ip("address add 10.2.0.1/24 dev s0\nroute add default via 10.2.0.254\n")?;
        for (namespace, device) in [(&self.g, "g0"), (&self.r, "r1"), (&self.r, "r2"), (&self.s, "s0")] {
            namespace.shell(&format!("ethtool -K {device} tx off tso off gso off gro off"))?;
        }
        Ok(())
    }
}

/// Whether tests that create namespaces must be skipped here; prints the reason. With CI=true, a skip is a
/// failure.
#[cfg(test)]
pub(crate) fn is_skipped() -> bool {
    let skipped = !nix::unistd::geteuid().is_root();
    if skipped {
        skip("network namespaces need root");
    }
    skipped
}

/// Prints that a test is skipped; fails if the environment variable `CI` is `true`.
#[cfg(test)]
pub(crate) fn skip(why: &str) {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{why}");
    println!("skipped: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_the_kernels_tables() {
        let devices = "Inter-| Receive\n face |bytes packets\n    lo:  10 1 0\n   s0: 6000 100 0 0 0\n";
        assert_eq!(column(devices, "s0", 1), Some(100));
        assert_eq!(column(devices, "s", 1), None);
        let snmp = "Ip: Forwarding DefaultTTL ForwDatagrams\nIp: 1 64 77\nIcmp: InMsgs\nIcmp: 1\n";
        assert_eq!(forwarded(snmp), Some(77));
    }
}
