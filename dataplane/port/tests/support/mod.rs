//! Helpers for tests with real devices: private network namespaces, veths, raw sockets, and a small XDP
//! program.
#![allow(clippy::disallowed_methods, reason = "real devices take real time")]
#![allow(dead_code, reason = "each test uses its part")]

pub mod redirect;
pub mod stream;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_port::af_xdp::Options;
use millrace_wire::MacAddr;

/// Moves this thread into its own network namespace, which vanishes with the thread. If that isn't possible,
/// prints the reason and returns `false`, or panics under CI.
pub fn enter_namespace(test: &str) -> bool {
    match nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
        Ok(()) => true,
        Err(error) => {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "{test} needs a network namespace: {error}"
            );
            println!("skipped: {test} needs a network namespace of its own ({error})");
            false
        }
    }
}

/// Runs a command, which must succeed.
pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Creates a veth pair in this namespace and sets both devices up.
pub fn veth(near: &str, far: &str, mtu: u32, queues: u32) {
    run(&format!(
        "ip link add {near} mtu {mtu} numrxqueues {queues} numtxqueues {queues} type veth peer {far} mtu {mtu} \
         numrxqueues {queues} numtxqueues {queues}"
    ));
    for device in [near, far] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1");
        run(&format!("ip link set {device} up"));
    }
}

/// Returns index and MAC address of a device of this namespace.
pub fn device(name: &str) -> (u32, MacAddr) {
    let output = Command::new("ip").args(["-o", "link", "show", name]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mac = text.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
    let mut octets = [0; 6];
    for (octet, text) in octets.iter_mut().zip(mac.split(':')) {
        *octet = u8::from_str_radix(text, 16).unwrap();
    }
    (nix::net::if_::if_nametoindex(name).unwrap(), MacAddr(octets))
}

/// Returns options for an AF_XDP port on a device of this namespace.
pub fn options(name: &str, mtu: u16) -> Options {
    let (ifindex, mac) = device(name);
    Options::new(name, ifindex, mac, mtu)
}

/// Returns a numbered frame of an unknown EtherType.
pub fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    bytes.extend(number.to_be_bytes());
    bytes.extend((bytes.len()..length).map(|n| (n as u32 ^ number) as u8));
    bytes
}

/// Raw socket on a device: sends and receives whole frames.
pub struct Raw(OwnedFd);

impl Raw {
    pub fn open(name: &str) -> Self {
        let (ifindex, _) = device(name);
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: just created, with no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        for (level, option, value) in [
            (libc::SOL_PACKET, 23, 1), // PACKET_IGNORE_OUTGOING
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 256 << 20),
            (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 64 << 20),
            (libc::SOL_PACKET, 8, 1), // PACKET_AUXDATA
        ] {
            let pointer: *const i32 = &value;
            // SAFETY: the value is four readable bytes.
            unsafe { libc::setsockopt(fd, level, option, pointer.cast(), 4) };
        }
        // SAFETY: a C structure of integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = ifindex as i32;
        let pointer: *const libc::sockaddr_ll = &address;
        // SAFETY: the address is readable for its size.
        let answer = unsafe { libc::bind(fd, pointer.cast(), size_of_val(&address) as u32) };
        assert_eq!(answer, 0, "{}", io::Error::last_os_error());
        Self(socket)
    }

    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame is readable for its length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent == frame.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the next frame that has arrived, with VLAN tags as the kernel delivers them; `None` without a
    /// frame.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 1 << 17];
        // SAFETY: the buffer is writable for its length.
        let length = unsafe {
            libc::recv(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
        };
        (length >= 0).then(|| {
            bytes.truncate(length as usize);
            bytes
        })
    }
}

/// Waits up to five seconds until `done` returns true. Returns whether it did.
pub fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if done() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Host: a thread in its own network namespace.
pub struct Host {
    thread: i32,
    start: mpsc::Sender<()>,
    handle: JoinHandle<()>,
}

impl Host {
    /// Creates the namespace and a thread that runs `work` in it once [`start`](Self::start) is called.
    /// Before that call, move devices to the namespace.
    pub fn new(work: impl FnOnce() + Send + 'static) -> Self {
        let (say, hear) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let handle = std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            say.send(nix::unistd::gettid().as_raw()).unwrap();
            if started.recv().is_ok() {
                work();
            }
        });
        Self { thread: hear.recv().unwrap(), start, handle }
    }

    /// Moves a device of the calling thread's namespace to the host.
    pub fn take(&self, device: &str) {
        run(&format!("ip link set {device} netns {}", self.thread));
    }

    pub fn start(&self) {
        self.start.send(()).unwrap();
    }

    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    pub fn join(self) {
        self.handle.join().unwrap();
    }
}
