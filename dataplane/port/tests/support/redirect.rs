//! Minimal XDP program for AF_XDP sockets: five instructions, without a compiler or loader.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const BPF_MAP_CREATE: i64 = 0;
const BPF_MAP_UPDATE_ELEM: i64 = 2;
const BPF_PROG_LOAD: i64 = 5;
const BPF_LINK_CREATE: i64 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Program that redirects every frame of a device to the socket of its queue. Dropping it detaches the
/// program.
#[derive(Debug)]
pub struct Redirect {
    map: OwnedFd,
    _program: OwnedFd,
    _link: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Redirect {
    /// Attaches to `ifindex` of the calling thread's namespace.
    pub fn attach(ifindex: u32, native: bool, frags: bool) -> io::Result<Self> {
        // type, key size, value size, entries, flags
        let map = bpf(BPF_MAP_CREATE, &[BPF_MAP_TYPE_XSKMAP, 4, 4, 64, 0])?;
        let code = |code, registers, immediate| Instruction { code, registers, offset: 0, immediate };
        let program = [
            Instruction { code: 0x61, registers: 0x12, offset: 16, immediate: 0 }, // r2 = context->rx_queue_index
            code(0x18, 0x11, map.as_raw_fd()),                                     // r1 = map
            code(0, 0, 0),
            code(0xb7, 0x03, 2),  // r3 = XDP_PASS
            code(0x85, 0x00, 51), // bpf_redirect_map
            code(0x95, 0x00, 0),
        ];
        let flags = if frags { BPF_F_XDP_HAS_FRAGS } else { 0 };
        let program = load(BPF_PROG_TYPE_XDP, &program, flags)?;
        let mode = if native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
        let link = bpf(BPF_LINK_CREATE, &[program.as_raw_fd() as u32, ifindex, BPF_XDP, mode])?;
        Ok(Self { map, _program: program, _link: link })
    }

    /// Redirects the frames of `queue` to the socket.
    pub fn register(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        let value = socket as u32;
        let pointer = |address: *const u32| [address.addr() as u32, (address.addr() >> 32) as u32];
        let (key, value) = (pointer(&queue), pointer(&value));
        let words = [self.map.as_raw_fd() as u32, 0, key[0], key[1], value[0], value[1], 0, 0];
        call(BPF_MAP_UPDATE_ELEM, &words).map(drop)
    }
}

/// Generator of frames inside the kernel: test runs of an XDP program with live frames send them out of a
/// device.
#[derive(Debug)]
pub struct Generator {
    program: OwnedFd,
    _link: OwnedFd,
    frame: Vec<u8>,
}

impl Generator {
    /// Creates a generator of copies of `frame` on the device `ifindex`.
    pub fn new(ifindex: u32, frame: &[u8]) -> io::Result<Self> {
        let code = |code, registers, immediate| Instruction { code, registers, offset: 0, immediate };
        let redirect = [
            code(0xb7, 0x01, ifindex as i32), // r1 = device
            code(0xb7, 0x02, 0),              // r2 = flags
            code(0x85, 0x00, 23),             // bpf_redirect
            code(0x95, 0x00, 0),
        ];
        let program = load(BPF_PROG_TYPE_XDP, &redirect, 0)?;
        // A run of an unattached program takes 24 ms. So the program is attached to the loopback device,
        // where it does no harm.
        const LOOPBACK: u32 = 1;
        let link =
            bpf(BPF_LINK_CREATE, &[program.as_raw_fd() as u32, LOOPBACK, BPF_XDP, XDP_FLAGS_SKB_MODE])?;
        Ok(Self { program, _link: link, frame: frame.to_vec() })
    }

    /// Sends `count` frames.
    pub fn send(&self, count: u32) -> io::Result<()> {
        const BPF_PROG_TEST_RUN: i64 = 10;
        const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
        let data = self.frame.as_ptr().addr();
        let mut words = [0; 20];
        words[0] = self.program.as_raw_fd() as u32;
        words[2] = self.frame.len() as u32;
        (words[4], words[5]) = (data as u32, (data >> 32) as u32);
        words[8] = count;
        (words[16], words[18]) = (BPF_F_TEST_XDP_LIVE_FRAMES, count.min(64));
        call(BPF_PROG_TEST_RUN, &words).map(drop)
    }
}

/// Drops all frames that a device receives, in its driver. Dropping the returned descriptors ends this.
pub fn sink(ifindex: u32) -> io::Result<[OwnedFd; 2]> {
    const XDP_DROP: i32 = 1;
    let code = |code, immediate| Instruction { code, registers: 0, offset: 0, immediate };
    let program = load(BPF_PROG_TYPE_XDP, &[code(0xb7, XDP_DROP), code(0x95, 0)], 0)?;
    let link = bpf(BPF_LINK_CREATE, &[program.as_raw_fd() as u32, ifindex, BPF_XDP, XDP_FLAGS_DRV_MODE])?;
    Ok([program, link])
}

/// Loads a socket filter that accepts no frame.
pub fn refuse_all() -> io::Result<OwnedFd> {
    const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
    let code = |code| Instruction { code, registers: 0, offset: 0, immediate: 0 };
    load(BPF_PROG_TYPE_SOCKET_FILTER, &[code(0xb7), code(0x95)], 0)
}

fn load(kind: u32, program: &[Instruction], flags: u32) -> io::Result<OwnedFd> {
    let pointer = |address: *const u8| [address.addr() as u32, (address.addr() >> 32) as u32];
    let (code, license) = (pointer(program.as_ptr().cast()), pointer(c"GPL".as_ptr().cast()));
    // Fields: type, instructions, their address, licence, log level, log size, log address, kernel version,
    // flags.
    let count = program.len() as u32;
    bpf(BPF_PROG_LOAD, &[kind, count, code[0], code[1], license[0], license[1], 0, 0, 0, 0, 0, flags])
}

fn bpf(command: i64, words: &[u32]) -> io::Result<OwnedFd> {
    let fd = call(command, words)?;
    // SAFETY: the kernel just created this descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn call(command: i64, words: &[u32]) -> io::Result<RawFd> {
    let mut attributes = [0u64; 16];
    for (n, word) in words.iter().enumerate() {
        attributes[n / 2] |= u64::from(*word) << (32 * (n % 2));
    }
    // SAFETY: the attributes are readable for the given size, and the addresses in them belong to live
    // values.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(&attributes)) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as RawFd) }
}
