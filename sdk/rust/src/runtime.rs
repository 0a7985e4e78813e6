//! Runtime of a WebAssembly module without the standard library: an allocator and a panic handler.
//!
//! Block sizes are powers of two, 16 bytes or more. The allocator keeps a list of free blocks for each size,
//! and takes new blocks from the end of the memory. Allocation and release take a few instructions. Free
//! blocks are never merged. Rounding to block sizes wastes at most half of the memory.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32;
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use core::ptr;

use crate::host;
use crate::json::decimal;

const PAGE: usize = 65_536;
/// Binary logarithm of the smallest block: 16 bytes.
const SMALLEST: u32 = 4;

/// Lists of free blocks, by the binary logarithm of their size, and the bounds of the unused memory.
struct Pieces {
    free: [*mut u8; 32],
    next: usize,
    end: usize,
}

struct Allocator(UnsafeCell<Pieces>);

// SAFETY: a module has one thread.
unsafe impl Sync for Allocator {}

#[global_allocator]
static ALLOCATOR: Allocator =
    Allocator(UnsafeCell::new(Pieces { free: [ptr::null_mut(); 32], next: 0, end: 0 }));

/// Returns the binary logarithm of the size of the block for `layout`; `None` if no block suits. A block is
/// aligned to its size, or to a page if it is larger than a page.
fn class(layout: Layout) -> Option<u32> {
    let bytes = layout.size().max(layout.align()).checked_next_power_of_two()?;
    (layout.align() <= PAGE).then_some(bytes.trailing_zeros().max(SMALLEST))
}

impl Pieces {
    fn take(&mut self, class: u32) -> *mut u8 {
        let place = &mut self.free[class as usize];
        if place.is_null() {
            return self.take_new(1 << class);
        }
        let piece = *place;
        // SAFETY: a free block begins with the address of the next one (`dealloc`).
        *place = unsafe { piece.cast::<*mut u8>().read() };
        piece
    }

    fn take_new(&mut self, bytes: usize) -> *mut u8 {
        let start = self.next.next_multiple_of(bytes.min(PAGE));
        let end = match start.checked_add(bytes) {
            Some(end) if end <= self.end => end,
            _ => return self.grow(bytes),
        };
        self.next = end;
        ptr::without_provenance_mut(start)
    }

    /// Adds pages to the memory, and returns the block at their beginning; null if there is no more memory.
    fn grow(&mut self, bytes: usize) -> *mut u8 {
        let pages = bytes.div_ceil(PAGE);
        let before = wasm32::memory_grow(0, pages);
        if before == usize::MAX {
            return ptr::null_mut();
        }
        let start = before * PAGE;
        (self.next, self.end) = (start + bytes, start + pages * PAGE);
        ptr::without_provenance_mut(start)
    }
}

// SAFETY: blocks are at least as large as requested, aligned to their size or a page, and used once.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class(layout).filter(|class| *class < 31) else { return ptr::null_mut() };
        // SAFETY: a module has one thread, and nothing here calls back.
        unsafe { &mut *self.0.get() }.take(class)
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        let Some(class) = class(layout) else { return };
        // SAFETY: a module has one thread. The block has 16 bytes or more, and is no longer used.
        unsafe {
            let place = &mut (*self.0.get()).free[class as usize];
            piece.cast::<*mut u8>().write(*place);
            *place = piece;
        }
    }
}

/// Reports the location of a panic to the router, and ends the call. The panic's text is left out, because
/// the code to format it is several times larger than a small plugin.
#[panic_handler]
fn panicked(about: &PanicInfo<'_>) -> ! {
    if let Some(place) = about.location() {
        let mut digits = [0; 20];
        host::fail(&["panicked at ", place.file(), ":", decimal(place.line().into(), &mut digits)].concat());
    }
    wasm32::unreachable()
}
