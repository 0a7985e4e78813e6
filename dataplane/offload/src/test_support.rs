//! Frames and private network namespaces for the tests of this crate.
#![allow(unsafe_code)]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike, bind, recv, sendto,
    socket,
};

use crate::bpf::object;
use crate::classifier::dry_runs::ones_complement;
use crate::{Mode, OnDeath, PortPrograms};

/// Returns whether programs can be loaded here. If not, prints the reason, and panics in CI, which must be
/// able to load programs.
pub(crate) fn can_load() -> bool {
    let root = nix::unistd::geteuid().is_root();
    let problem =
        if root { object::level0().err().map(|error| error.to_string()) } else { Some("not root".into()) };
    let Some(problem) = problem else { return true };
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must be able to load programs: {problem}");
    println!("skipped: {problem}");
    false
}

/// Returns a frame to `mac` from 02:00:00:00:00:99.
pub(crate) fn frame_to(mac: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&mac[..], &[2, 0, 0, 0, 0, 0x99], &ethertype.to_be_bytes(), payload].concat()
}

/// Inserts tags (TPID, TCI) after the addresses, outermost first.
pub(crate) fn with_tags(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let tags: Vec<u8> =
        tags.iter().flat_map(|(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()].concat()).collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

/// Returns a UDP packet from port 4000 to port 9, with correct checksums.
pub(crate) fn ipv4_packet(from: &str, to: &str, payload: usize) -> Vec<u8> {
    let (from, to): (Ipv4Addr, Ipv4Addr) = (from.parse().unwrap(), to.parse().unwrap());
    let length = (28 + payload) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = !ones_complement(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(udp(&[&from.octets()[..], &to.octets()].concat(), payload));
    packet
}

/// Returns a UDP packet from port 4000 to port 9, with a correct checksum.
pub(crate) fn ipv6_packet(from: &str, to: &str, payload: usize) -> Vec<u8> {
    let (from, to): (Ipv6Addr, Ipv6Addr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(((8 + payload) as u16).to_be_bytes());
    packet.extend([17, 64]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(udp(&[&from.octets()[..], &to.octets()].concat(), payload));
    packet
}

fn udp(addresses: &[u8], payload: usize) -> Vec<u8> {
    let length = ((8 + payload) as u16).to_be_bytes();
    let mut udp =
        [&4000_u16.to_be_bytes()[..], &9_u16.to_be_bytes(), &length, &[0, 0], &vec![0; payload]].concat();
    let pseudo = [addresses, &[0, 17], &length, &udp].concat();
    udp[6..8].copy_from_slice(&(!ones_complement(&pseudo)).to_be_bytes());
    udp
}

/// Two network namespaces joined by a veth pair: `port` (inside `near`, 02:…:01, 10.0.0.1/24) and `peer`
/// (inside `far`, 02:…:02, 10.0.0.2/24). Dropping removes both.
pub(crate) struct Wire {
    pub(crate) near: String,
    pub(crate) far: String,
}

impl Wire {
    /// Returns a wire; `None` if programs can't be loaded here.
    pub(crate) fn loadable() -> Option<Self> {
        can_load().then(Self::new)
    }

    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("mr-offload-{}-{number}{side}", std::process::id());
        let wire = Self { near: name("n"), far: name("f") };
        let (near, far) = (&wire.near, &wire.far);
        ip(&format!("netns add {near}"));
        ip(&format!("netns add {far}"));
        ip(&format!(
            "-n {near} link add port address 02:00:00:00:00:01 type veth peer name peer netns {far} address 02:00:00:00:00:02"
        ));
        for (namespace, device, address) in [(near, "port", "10.0.0.1/24"), (far, "peer", "10.0.0.2/24")] {
            // Without IPv6, the kernel sends no frames of its own.
            in_namespace(namespace, move || {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1").unwrap();
            });
            ip(&format!("-n {namespace} addr add {address} dev {device}"));
            ip(&format!("-n {namespace} link set {device} up"));
            ip(&format!("-n {namespace} link set lo up"));
        }
        // Without this entry, the kernel would resolve the neighbour's address before its answer to a packet
        // for the router.
        ip(&format!("-n {near} neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev port nud permanent"));
        wire
    }

    /// Runs `work` on a thread inside the router's namespace.
    pub(crate) fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.near, work)
    }

    /// Runs `work` on a thread inside the neighbour's namespace.
    pub(crate) fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.far, work)
    }

    pub(crate) fn port(&self) -> u32 {
        self.near(|| nix::net::if_::if_nametoindex("port").unwrap())
    }

    pub(crate) fn peer(&self) -> u32 {
        self.far(|| nix::net::if_::if_nametoindex("peer").unwrap())
    }

    /// Attaches the offload program to the port, in native mode.
    pub(crate) fn attach_native(&self, on_death: OnDeath) -> PortPrograms {
        let port = self.port();
        self.near(|| PortPrograms::attach_xdp(port, Mode::Native, false, on_death).unwrap())
    }

    /// Returns the output of `ip -d link show port` in the router's namespace.
    pub(crate) fn show(&self) -> String {
        let output =
            Command::new("ip").args(["-n", &self.near, "-d", "link", "show", "port"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for namespace in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {arguments}: {status}");
}

pub(crate) fn in_namespace<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            setns(&file, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn link_address(ifindex: u32) -> LinkAddr {
    let mut bytes = [0_u8; 20];
    bytes[0..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&(libc::ETH_P_ALL as u16).to_be_bytes());
    bytes[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    // SAFETY: the bytes are a whole `struct sockaddr_ll` of the family AF_PACKET.
    unsafe { LinkAddr::from_raw(bytes.as_ptr().cast(), Some(20)) }.unwrap()
}

/// Opens a raw packet socket on `ifindex` of the calling thread's namespace.
pub(crate) fn packet_socket(ifindex: u32) -> OwnedFd {
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll).unwrap();
    bind(socket.as_raw_fd(), &link_address(ifindex)).unwrap();
    socket
}

/// Sends whole frames out of `ifindex`.
pub(crate) fn send_frames(ifindex: u32, frames: &[&[u8]]) {
    let socket = packet_socket(ifindex);
    for frame in frames {
        sendto(socket.as_raw_fd(), frame, &link_address(ifindex), MsgFlags::empty()).unwrap();
    }
}

/// Returns the frames that wait at a packet socket, and those that arrive within the next 200 ms.
pub(crate) fn receive_all(socket: &OwnedFd) -> Vec<Vec<u8>> {
    let patience = nix::sys::time::TimeVal::new(0, 200_000);
    nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::ReceiveTimeout, &patience).unwrap();
    let mut buffer = vec![0; 70_000];
    std::iter::from_fn(|| {
        let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).ok()?;
        Some(buffer[..length].to_vec())
    })
    .collect()
}

/// Attaches a filter to a socket (`SO_ATTACH_BPF`).
pub(crate) fn attach_filter(socket: &OwnedFd, filter: std::os::fd::BorrowedFd<'_>) {
    let (level, option, filter) = (libc::SOL_SOCKET, libc::SO_ATTACH_BPF, filter.as_raw_fd());
    // SAFETY: the option reads one int, which outlives the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const filter).cast(), 4) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Returns the time, which only tests read in this crate.
#[expect(clippy::disallowed_methods, reason = "a test waits for the kernel in real time")]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}
