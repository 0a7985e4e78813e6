//! Socket options as plain values.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Value that the kernel may fill in byte by byte.
///
/// # Safety
/// Every pattern of bytes must be a valid value, also all zeros.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for libc::c_int {}
// SAFETY: a C structure of integers.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: a C structure of integers.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: a C structure of integers.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: a C structure of integers.
unsafe impl Plain for libc::tpacket_stats {}

/// Calls `setsockopt`.
pub(crate) fn set<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let pointer: *const T = value;
    // SAFETY: `value` is readable for the given size; the kernel only reads it.
    let answer = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, pointer.cast(), size_of::<T>() as libc::socklen_t)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Calls `getsockopt`. Fields that an older kernel does not fill in are zero.
pub(crate) fn get<T: Plain>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for `length` bytes, and the kernel writes no more.
    let answer =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, then partly or wholly overwritten; every pattern of bytes is valid for a `Plain` type.
    Ok(unsafe { value.assume_init() })
}
