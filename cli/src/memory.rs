//! Behaviour of the process when the system refuses memory.
//!
//! By default, Rust aborts at any failed allocation. Here [`Guarded`] handles every allocation.
//!
//! - Before the router forwards, a failed allocation ends the process with one line and the exit code
//!   [`CODE`]. The kernel continues to forward.
//! - A forwarding router holds a memory reserve, and releases it at the first failed allocation. Running work
//!   finishes with this memory. The API refuses requests that take memory ([`has_room`]). Forwarding
//!   allocates nothing, and continues.
//! - Once a second the router tries to restore the reserve ([`recover`]). The router ends only if the reserve
//!   is used up, too.
//!
//! While memory is exhausted, the code here neither allocates, locks nor unwinds.
#![allow(unsafe_code)]

mod group;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Cursor, Write as _};
use std::panic::PanicHookInfo;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use millrace_config::Config;
use millrace_controller::{MemoryGuard, Overrides};

use crate::output::Failure;

use group::group;
use millrace_units::count;

/// Exit code of a process that ran out of memory.
const CODE: i32 = 4;
/// Size of the reserve in bytes: enough for some concurrent answers to clients and from workers.
const KEPT: usize = 16 << 20;
/// Minimum free memory in bytes for new work: a thread's stack and the first pages of its arena.
const LEAST: usize = 4 << 20;

/// Size in bytes from which an allocation gets its own mapping.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 1 << 20;

/// Mapping that holds the reserve; null if there is none.
static RESERVE: AtomicPtr<libc::c_void> = AtomicPtr::new(null_mut());
/// Whether the router forwards, and so has a reserve.
static FORWARDS: AtomicBool = AtomicBool::new(false);

/// System allocator that never reports a failure.
#[derive(Debug)]
pub struct Guarded;

// SAFETY: each method passes its arguments to `System`, and returns the result of `System` unchanged.
unsafe impl GlobalAlloc for Guarded {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        or_again(layout.size(), || unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `System` allocated the memory.
        unsafe { System.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        or_again(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`. If it fails, the old memory remains valid for
        // the second attempt.
        or_again(size, || unsafe { System.realloc(memory, layout, size) })
    }
}

/// Allocates. If that fails, releases the reserve and tries again.
#[inline(always)]
fn or_again(bytes: usize, try_it: impl Fn() -> *mut u8) -> *mut u8 {
    let memory = try_it();
    if memory.is_null() { again(bytes, try_it) } else { memory }
}

/// Releases the reserve and tries again; ends the process if that fails.
#[cold]
#[inline(never)]
fn again(bytes: usize, try_it: impl Fn() -> *mut u8) -> *mut u8 {
    give_up_reserve();
    // Try again in any case: another thread may have just released the reserve.
    let memory = try_it();
    if memory.is_null() {
        end(bytes);
    }
    memory
}

/// Prints a line with the reason, and ends the process without running any other code.
fn end(bytes: usize) -> ! {
    let rest = match FORWARDS.load(Ordering::Relaxed) {
        true => "more bytes, and the memory reserve is used up: the router ends",
        false => "bytes (see ulimit -v, the limit of the control group and vm.overcommit_memory)",
    };
    let mut line = Cursor::new([0; 256]);
    // Formatting numbers and texts allocates nothing. A failed write can't be reported.
    let _ = writeln!(line, "millrace: no memory: the system refuses {bytes} {rest}");
    // SAFETY: the buffer is initialised and alive, and the position is within it.
    unsafe { libc::write(libc::STDERR_FILENO, line.get_ref().as_ptr().cast(), line.position() as usize) };
    // SAFETY: `_exit` ends the process without running further code of it.
    unsafe { libc::_exit(CODE) }
}

/// Releases the reserve.
fn give_up_reserve() {
    let reserve = RESERVE.swap(null_mut(), Ordering::AcqRel);
    if !reserve.is_null() {
        unmap(reserve, KEPT);
    }
}

/// Size of a memory frame with its metadata, in bytes.
const FRAME: u64 = 2048 + 64 + 4;
/// Estimated memory of a router in bytes, apart from packets, routes, filters and flows.
const ELSE: u64 = 48 << 20;

/// Checks that this process's control group has room for the router's packet memory. Without room, the kernel
/// would kill the router without a message.
///
/// # Errors
/// The control group lacks room.
pub fn check_group(config: &Config, overrides: &Overrides) -> Result<(), Failure> {
    let mut config = config.clone();
    overrides.put_into(&mut config);
    let (workers, frames) = (config.router.workers.max(1), config.router.frames);
    let needed = workers as u64 * u64::from(frames) * FRAME + ELSE;
    let Some(group) = group().filter(|group| group.left() < needed) else { return Ok(()) };
    let mebibytes = |bytes: u64| bytes >> 20;
    let message = format!(
        "no memory for packets: {} with {} each need {} MiB in total, and of the {} MiB of the control \
         group {} are left: configure fewer frames (`frames` under [router]), or raise the limit",
        count(workers, "worker"),
        count(frames, "frame"),
        mebibytes(needed),
        mebibytes(group.limit()),
        mebibytes(group.left())
    );
    Err(Failure { code: CODE as u8, ..Failure::new(message) })
}

/// Limits the allocator to two arenas, and lets it return large blocks to the system. With an arena per
/// thread, the peak memory of each thread would stay allocated.
pub fn share() {
    #[cfg(target_env = "gnu")]
    for (what, value) in
        [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, 2 * LARGE)]
    {
        // SAFETY: mallopt sets a parameter of the allocator, and accesses no memory of this process.
        unsafe { libc::mallopt(what, value) };
    }
}

/// Sets up the reserve. Called when the router begins to forward.
pub fn keep_back() -> MemoryGuard {
    FORWARDS.store(true, Ordering::Relaxed);
    recover();
    MemoryGuard { has_room, recover }
}

/// Whether `bytes` bytes can be allocated without the reserve.
fn has_room(bytes: usize) -> bool {
    let bytes = bytes.saturating_add(LEAST);
    !RESERVE.load(Ordering::Acquire).is_null()
        && can_map(bytes)
        && group().is_none_or(|group| group.has(bytes))
}

/// Restores the reserve if it was released. Returns whether there is memory for new work beyond the reserve
/// ([`has_room`]).
fn recover() -> bool {
    if RESERVE.load(Ordering::Acquire).is_null()
        && can_map(KEPT + LEAST)
        && let Some(reserve) = map(KEPT)
        && RESERVE.compare_exchange(null_mut(), reserve, Ordering::AcqRel, Ordering::Acquire).is_err()
    {
        unmap(reserve, KEPT);
    }
    has_room(0)
}

fn can_map(bytes: usize) -> bool {
    map(bytes).map(|memory| unmap(memory, bytes)).is_some()
}

/// Maps memory without writing to it, so that it takes address space, but no pages.
fn map(bytes: usize) -> Option<*mut libc::c_void> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: an anonymous mapping at an address that the kernel chooses touches no existing memory.
    let memory = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    (memory != libc::MAP_FAILED).then_some(memory)
}

fn unmap(memory: *mut libc::c_void, bytes: usize) {
    // SAFETY: `map` created this mapping with this length, and no reference to it exists.
    unsafe { libc::munmap(memory, bytes) };
}

/// Sets the panic hook before Rust's start code runs, since that code also panics if memory is lacking.
#[used]
#[unsafe(link_section = ".init_array")]
static FIRST: extern "C" fn() = {
    extern "C" fn first() {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !is_lack(panic) {
                usual(panic);
            }
        }));
    }
    first
};

/// Returns whether lack of memory caused a panic, for example because a thread can't be started. If so,
/// releases the reserve, and only the panicking work fails. Ends the process if the router doesn't forward
/// yet, or if the thread can't unwind.
fn is_lack(panic: &PanicHookInfo<'_>) -> bool {
    if can_map(LEAST) {
        return false;
    }
    // Rust failed to allocate the thread's signal stack; such a thread can't unwind.
    let is_thread = panic.location().is_some_and(|place| place.file().contains("stack_overflow"));
    if is_thread || !FORWARDS.load(Ordering::Relaxed) {
        end(LEAST);
    }
    give_up_reserve();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_allocation_is_refused() {
        let guard = keep_back();
        assert!((guard.recover)() && (guard.has_room)(1 << 20));
        assert!(!(guard.has_room)(usize::MAX) && !(guard.has_room)(1 << 60));
        give_up_reserve();
        assert!(!(guard.has_room)(0), "nothing is begun while nothing is kept back");
        assert!((guard.recover)() && (guard.has_room)(0));
    }
}
