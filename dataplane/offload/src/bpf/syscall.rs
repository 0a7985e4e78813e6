//! Parts of bpf(2) that aya does not offer: links with the kernel's errors, tcx without links, live test
//! runs, and map entries by descriptor. Also file systems without a mount point.
//!
//! Layouts are those of `union bpf_attr` in <linux/bpf.h>. The kernel accepts a shorter structure and reads
//! the rest as zero.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_long, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null;
use std::time::Duration;

const BPF_MAP_DELETE_ELEM: c_uint = 3;
const BPF_PROG_ATTACH: c_uint = 8;
const BPF_PROG_DETACH: c_uint = 9;
const BPF_PROG_TEST_RUN: c_uint = 10;
const BPF_PROG_QUERY: c_uint = 16;
const BPF_LINK_CREATE: c_uint = 28;
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
const FSOPEN_CLOEXEC: c_uint = 1;
const FSCONFIG_CMD_CREATE: c_uint = 6;
const FSMOUNT_CLOEXEC: c_uint = 1;

/// Hook of a device to which a program can be attached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    /// XDP, with the mode in `XDP_FLAGS_*`.
    Xdp { flags: u32 },
    /// tcx ingress, after the programs already attached.
    TcxIngress,
    /// tcx egress, after the programs already attached.
    TcxEgress,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative_fd: u32,
    reserved: u32,
    expected_revision: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgAttach {
    target_ifindex: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
    replace_bpf_fd: u32,
    relative_fd: u32,
    expected_revision: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgQuery {
    target_ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    count: u32,
    reserved: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

#[repr(C)]
struct MapElement {
    map_fd: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Lengths and addresses of the input and the output of a test run.
#[repr(C)]
#[derive(Default)]
struct Buffers {
    size_in: u32,
    size_out: u32,
    address_in: u64,
    address_out: u64,
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data: Buffers,
    repeat: u32,
    duration: u32,
    context: Buffers,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    reserved: u32,
}

/// `struct xdp_md`: context of a frame for the program.
#[repr(C)]
#[derive(Default)]
struct XdpContext {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

fn fd_number(fd: BorrowedFd<'_>) -> u32 {
    // A borrowed descriptor is never negative.
    fd.as_raw_fd().cast_unsigned()
}

/// # Safety
/// Every address inside `attributes` must be valid for the reads and writes of `command`.
unsafe fn bpf<T>(command: c_uint, attributes: &mut T) -> io::Result<c_long> {
    // SAFETY: the pointer and the size describe `attributes`; the caller ensures that the addresses inside
    // are valid.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Mounts a file system of this type without a mount point. Only the returned descriptor of its root gives
/// access to it. The file system ends when the descriptor is closed.
pub(crate) fn detached_mount(file_system: &CStr) -> io::Result<OwnedFd> {
    let opened = |result: c_long| match result {
        // SAFETY: the kernel has just opened this descriptor for us; a descriptor fits an int.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(result as i32) }),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the name ends with a zero byte, as fsopen(2) wants.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, file_system.as_ptr(), FSOPEN_CLOEXEC) };
    let context = opened(context)?;
    let (number, create) = (context.as_raw_fd(), FSCONFIG_CMD_CREATE);
    // SAFETY: this command of fsconfig(2) takes neither key nor value.
    match unsafe { libc::syscall(libc::SYS_fsconfig, number, create, null::<u8>(), null::<u8>(), 0) } {
        // SAFETY: fsmount(2) takes no address.
        0 => opened(unsafe { libc::syscall(libc::SYS_fsmount, number, FSMOUNT_CLOEXEC, 0) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Deletes an entry of the map `map`, whose keys have the size of `K`.
pub(crate) fn delete_key<K>(map: &OwnedFd, key: &K) -> io::Result<()> {
    let mut attributes = MapElement {
        map_fd: fd_number(map.as_fd()),
        reserved: 0,
        key: std::ptr::from_ref(key) as u64,
        value: 0,
        flags: 0,
    };
    // SAFETY: the kernel only reads the key, which is as long as the map's keys and outlives the call.
    unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut attributes).map(drop) }
}

/// Attaches `program` by a link. The program is detached when the link is closed or the process ends.
pub(crate) fn create_link(program: BorrowedFd<'_>, ifindex: u32, hook: Hook) -> io::Result<OwnedFd> {
    let (attach_type, flags) = match hook {
        Hook::Xdp { flags } => (BPF_XDP, flags),
        Hook::TcxIngress => (BPF_TCX_INGRESS, 0),
        Hook::TcxEgress => (BPF_TCX_EGRESS, 0),
    };
    let mut attributes = LinkCreate {
        prog_fd: fd_number(program),
        target_ifindex: ifindex,
        attach_type,
        flags,
        ..LinkCreate::default()
    };
    // SAFETY: the attributes hold no address.
    let fd = unsafe { bpf(BPF_LINK_CREATE, &mut attributes)? };
    // SAFETY: the kernel has just opened this descriptor for us; a descriptor fits an int.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Duplicates a descriptor. The new descriptor's number is at least `least`.
pub(crate) fn renumber(fd: &OwnedFd, least: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let number = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Attaches `program` to tcx ingress without a link: it stays until it is detached.
pub(crate) fn attach_tcx(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    tcx(BPF_PROG_ATTACH, program, ifindex)
}

/// Detaches a `program` that [`attach_tcx`] attached, in this process or an earlier one.
pub(crate) fn detach_tcx(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    tcx(BPF_PROG_DETACH, program, ifindex)
}

fn tcx(command: c_uint, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    let mut attributes = ProgAttach {
        target_ifindex: ifindex,
        attach_bpf_fd: fd_number(program),
        attach_type: BPF_TCX_INGRESS,
        ..ProgAttach::default()
    };
    // SAFETY: the attributes hold no address.
    unsafe { bpf(command, &mut attributes).map(drop) }
}

/// Returns the ids of the programs at tcx ingress in the order of their execution. Each boolean tells whether
/// the program is attached by a link.
pub(crate) fn query_tcx(ifindex: u32) -> io::Result<Vec<(u32, bool)>> {
    let (mut programs, mut links) = ([0_u32; 64], [0_u32; 64]);
    let mut attributes = ProgQuery {
        target_ifindex: ifindex,
        attach_type: BPF_TCX_INGRESS,
        prog_ids: programs.as_mut_ptr() as u64,
        link_ids: links.as_mut_ptr() as u64,
        count: 64,
        ..ProgQuery::default()
    };
    // SAFETY: both arrays have room for `count` ids and outlive the call.
    unsafe { bpf(BPF_PROG_QUERY, &mut attributes)? };
    let count = (attributes.count as usize).min(programs.len());
    Ok(programs.iter().zip(&links).take(count).map(|(&program, &link)| (program, link != 0)).collect())
}

/// Runs `program` on `repeat` frames that begin with `data`, `batch` frames at a time, as if `ifindex` had
/// received them. The kernel carries out the verdicts.
pub(crate) fn run_live(
    program: BorrowedFd<'_>,
    ifindex: u32,
    data: &[u8],
    repeat: u32,
    batch: u32,
) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let context = XdpContext { data_end: length, ingress_ifindex: ifindex, ..XdpContext::default() };
    let mut attributes = TestRun {
        prog_fd: fd_number(program),
        data: Buffers { size_in: length, address_in: data.as_ptr() as u64, ..Buffers::default() },
        repeat,
        context: Buffers {
            size_in: size_of::<XdpContext>() as u32,
            address_in: std::ptr::from_ref(&context) as u64,
            ..Buffers::default()
        },
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: batch,
        ..TestRun::default()
    };
    // SAFETY: the kernel only reads `data` and `context`, and both outlive the call.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attributes).map(drop) }
}

/// Runs `program` `repeat` times on `data`, and returns the mean time of a run. The kernel does not carry out the
/// verdicts.
pub(crate) fn time_of_run(program: BorrowedFd<'_>, data: &[u8], repeat: u32) -> io::Result<Duration> {
    let length = u32::try_from(data.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut attributes = TestRun {
        prog_fd: fd_number(program),
        data: Buffers { size_in: length, address_in: data.as_ptr() as u64, ..Buffers::default() },
        repeat,
        ..TestRun::default()
    };
    // SAFETY: the kernel only reads `data`, which outlives the call.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attributes)? };
    Ok(Duration::from_nanos(attributes.duration.into()))
}

/// Runs `program` once on `data` and returns the verdict. The kernel does not carry out the verdict.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn run_dry(program: BorrowedFd<'_>, data: &[u8]) -> io::Result<u32> {
    run_dry_to(program, data, &mut []).map(|(verdict, _)| verdict)
}

/// Runs `program` once on `data`. Returns the verdict, and the frame as the program left it. The kernel does
/// not carry out the verdict.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn run_dry_through(program: BorrowedFd<'_>, data: &[u8]) -> io::Result<(u32, Vec<u8>)> {
    let mut out = vec![0; data.len()];
    let (verdict, length) = run_dry_to(program, data, &mut out)?;
    out.truncate(length);
    Ok((verdict, out))
}

#[cfg(any(test, feature = "fuzzing"))]
fn run_dry_to(program: BorrowedFd<'_>, data: &[u8], out: &mut [u8]) -> io::Result<(u32, usize)> {
    let mut attributes = TestRun {
        prog_fd: fd_number(program),
        data: Buffers {
            size_in: u32::try_from(data.len()).unwrap(),
            size_out: u32::try_from(out.len()).unwrap(),
            address_in: data.as_ptr() as u64,
            address_out: if out.is_empty() { 0 } else { out.as_mut_ptr() as u64 },
        },
        repeat: 1,
        ..TestRun::default()
    };
    // SAFETY: the kernel only reads `data`, `out` has room for the given length, and both outlive the call.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attributes)? };
    Ok((attributes.retval, attributes.data.size_out as usize))
}

/// Opens an unbound AF_XDP socket, which a map accepts.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn xdp_socket() -> OwnedFd {
    // SAFETY: socket(2) takes no address; the descriptor it returns is ours.
    unsafe {
        let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}
