//! What happens when the system gives this process no more memory.
//!
//! Rust's own answer is an abort, wherever something is allocated. Here every allocation goes by [`Guarded`]. Before the router
//! forwards, one that fails ends the process with one line and the code [`CODE`]: the kernel forwards, as it did before. A router
//! that forwards keeps some room back, and gives it up then: what was begun is finished with it, the interface refuses what
//! takes memory ([`has_room`]), and packets, which take none, go on. Once a second it is tried to keep that room back again
//! ([`recover`]). Only a router that has used it up ends.
//!
//! Nothing here allocates, locks or unwinds where memory has given out.
#![allow(unsafe_code)]

mod group;
mod line;

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::PanicHookInfo;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use millrace_config::Config;
use millrace_controller::{MemoryGuard, Overrides};

use crate::output::Failure;

use group::group;
use line::Line;
use millrace_units::count;

/// The exit code of a process that memory gave out for.
const CODE: i32 = 4;
/// Bytes that a router keeps back: the answers of some clients, and of workers, at one time.
const KEPT: usize = 16 << 20;
/// Bytes that must be free for anything to be begun that takes memory: a thread's stack and its arena's first pages.
const LEAST: usize = 4 << 20;

/// Bytes from which on a piece of memory has a mapping of its own.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 1 << 20;

/// What is kept back, unless it was given up.
static RESERVE: AtomicPtr<libc::c_void> = AtomicPtr::new(null_mut());
/// Whether the router forwards, and so something was kept back.
static FORWARDS: AtomicBool = AtomicBool::new(false);

/// The system's allocator, which doesn't say that there is no memory.
#[derive(Debug)]
pub struct Guarded;

// SAFETY: all is handed to the system's allocator, with what the caller promised; what it gives is given on.
unsafe impl GlobalAlloc for Guarded {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_again(layout.size(), || unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        or_again(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; the old memory is there still when there is no new one.
        or_again(size, || unsafe { System.realloc(memory, layout, size) })
    }
}

/// Memory, or once more with what was kept back.
#[inline(always)]
fn or_again(bytes: usize, try_it: impl Fn() -> *mut u8) -> *mut u8 {
    let memory = try_it();
    if memory.is_null() { again(bytes, try_it) } else { memory }
}

/// Tries it again with what was kept back, and ends the process if that is not enough.
#[cold]
#[inline(never)]
fn again(bytes: usize, try_it: impl Fn() -> *mut u8) -> *mut u8 {
    give_up_reserve();
    // Somebody else may have given it up just now, so it is tried in any case.
    let memory = try_it();
    if memory.is_null() {
        end(bytes);
    }
    memory
}

/// Ends the process with a line that says why; nothing else of it is run.
fn end(bytes: usize) -> ! {
    let mut line = Line::default();
    line.put("millrace: no memory: the system refuses ");
    line.number(bytes);
    line.put(match FORWARDS.load(Ordering::Relaxed) {
        true => " more bytes, and what was kept back is used up: the router ends\n",
        false => " bytes (see ulimit -v, the limit of the control group and vm.overcommit_memory)\n",
    });
    line.write();
    // SAFETY: it ends the process, and runs nothing of it.
    unsafe { libc::_exit(CODE) }
}

/// Gives what is kept back to whoever needs it.
fn give_up_reserve() {
    let reserve = RESERVE.swap(null_mut(), Ordering::AcqRel);
    if !reserve.is_null() {
        unmap(reserve, KEPT);
    }
}

/// Bytes of a frame with what is noted of it.
const FRAME: u64 = 2048 + 64 + 4;
/// Bytes that a router takes beside its packets, with no route, filter or flow.
const ELSE: u64 = 48 << 20;

/// Whether the control group of this process has room for the packets of a router: the kernel would kill it without a word.
///
/// # Errors
/// Where it has not.
pub fn check_group(config: &Config, overrides: &Overrides) -> Result<(), Failure> {
    let mut config = config.clone();
    overrides.put_into(&mut config);
    let (workers, frames) = (config.router.workers.max(1), config.router.frames);
    let needed = workers as u64 * u64::from(frames) * FRAME + ELSE;
    let Some(group) = group().filter(|group| group.left() < needed) else { return Ok(()) };
    let mebibytes = |bytes: u64| bytes >> 20;
    let message = format!(
        "no memory for packets: {} with {} each, and all else, take {} MiB, and of the {} MiB that the \
         control group may have {} are left: ask for fewer frames (`frames` under [router]), or raise its limit",
        count(workers, "worker"),
        count(frames, "frame"),
        mebibytes(needed),
        mebibytes(group.limit()),
        mebibytes(group.left())
    );
    Err(Failure { code: CODE as u8, ..Failure::new(message) })
}

/// Has all threads take memory from two places, which give large pieces back to the system when they are freed: a place for each thread
/// would keep what the thread once needed, for as long as the router runs.
pub fn share() {
    #[cfg(target_env = "gnu")]
    for (what, value) in
        [(libc::M_ARENA_MAX, 2), (libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, 2 * LARGE)]
    {
        // SAFETY: it sets a number that the allocator goes by, and touches no memory of ours.
        unsafe { libc::mallopt(what, value) };
    }
}

/// Keeps room back from now on, for the router forwards.
pub fn keep_back() -> MemoryGuard {
    FORWARDS.store(true, Ordering::Relaxed);
    recover();
    MemoryGuard { has_room, recover }
}

/// Whether so many bytes can be had, beside what is kept back.
fn has_room(bytes: usize) -> bool {
    let bytes = bytes.saturating_add(LEAST);
    !RESERVE.load(Ordering::Acquire).is_null()
        && can_map(bytes)
        && group().is_none_or(|group| group.has(bytes))
}

/// Keeps back again what was given up. Returns whether there is room.
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

/// Memory that nobody has written to yet, so it costs room and no page.
fn map(bytes: usize) -> Option<*mut libc::c_void> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: an anonymous mapping at an address that the kernel chooses touches no existing memory.
    let memory = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    (memory != libc::MAP_FAILED).then_some(memory)
}

fn unmap(memory: *mut libc::c_void, bytes: usize) {
    // SAFETY: `map` made it, of this length, and nobody refers to it.
    unsafe { libc::munmap(memory, bytes) };
}

/// Called before Rust's own start, which panics as well where there is no memory for what it needs.
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

/// Whether a panic is for lack of memory: threads that can't be started are one, for instance. Before the router forwards, and where
/// nothing can go on, the process ends of it; else what is given up is what panics.
fn is_lack(panic: &PanicHookInfo<'_>) -> bool {
    if can_map(LEAST) {
        return false;
    }
    // A thread that gets no stack for signals can't unwind.
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
    fn what_can_never_be_had_is_no_room() {
        let guard = keep_back();
        assert!((guard.recover)() && (guard.has_room)(1 << 20));
        assert!(!(guard.has_room)(usize::MAX) && !(guard.has_room)(1 << 60));
        give_up_reserve();
        assert!(!(guard.has_room)(0), "nothing is begun while nothing is kept back");
        assert!((guard.recover)() && (guard.has_room)(0));
    }
}
