//! Zeroed slice in a memory mapping of its own, in huge pages if it is large.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use crate::Zeroable;

/// Size of a huge page in bytes, and alignment of a [`HugeSlice`] that fills at least one.
pub const HUGE_PAGE: usize = 2 << 20;
/// Size of a page in bytes, and alignment of smaller mappings.
const PAGE: usize = 4096;

/// Error returned if the kernel has no memory for a table.
#[derive(Debug, thiserror::Error)]
#[error("no memory for {what}: {length} elements of {element} bytes: {source}")]
pub struct MemoryError {
    /// Name of the table, as its owner gave it.
    pub what: &'static str,
    /// Number of elements requested.
    pub length: usize,
    /// Bytes of an element.
    pub element: usize,
    /// Error of the kernel.
    pub source: std::io::Error,
}

/// Slice of fixed length, mapped from the kernel and zeroed.
///
/// From [`HUGE_PAGE`] bytes on, the slice is aligned to huge pages and requests them from the kernel. The
/// kernel allocates a page (or huge page) at its first write, so unused parts of a large slice take no
/// memory. A drop returns the memory at once.
pub struct HugeSlice<T> {
    elements: NonNull<T>,
    length: usize,
    /// Length of the mapping in bytes, which begins at `elements`; 0 if there is no mapping.
    mapped: usize,
    _owned: PhantomData<T>,
}

impl<T: Zeroable> HugeSlice<T> {
    /// Maps `length` elements of zeros. `what` names the table in errors.
    pub fn new(what: &'static str, length: usize) -> Result<Self, MemoryError> {
        const { assert!(align_of::<T>() <= PAGE, "an element's alignment exceeds a page's") };
        let error = |source| MemoryError { what, length, element: size_of::<T>(), source };
        let too_much = || error(std::io::Error::from_raw_os_error(libc::ENOMEM));
        let bytes = length.checked_mul(size_of::<T>()).ok_or_else(too_much)?;
        if bytes == 0 {
            return Ok(Self { elements: NonNull::dangling(), length, mapped: 0, _owned: PhantomData });
        }
        let page = if bytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let mapped = bytes.checked_next_multiple_of(page).ok_or_else(too_much)?;
        let start = if page == HUGE_PAGE { map_huge(mapped) } else { map(mapped) }.map_err(error)?;
        Ok(Self { elements: start.cast(), length, mapped, _owned: PhantomData })
    }
}

impl<T> HugeSlice<T> {
    /// Allocates the memory of all elements now, so that no later access waits for the kernel to clear a
    /// page. This takes a few tenths of a millisecond for a huge page. The contents stay the same. `what`
    /// names the table in errors.
    pub fn populate(&mut self, what: &'static str) -> Result<(), MemoryError> {
        if self.mapped == 0 {
            return Ok(());
        }
        // SAFETY: exactly this range is mapped; populating it changes no contents.
        let result =
            unsafe { libc::madvise(self.elements.as_ptr().cast(), self.mapped, libc::MADV_POPULATE_WRITE) };
        let source = std::io::Error::last_os_error();
        match result {
            0 => Ok(()),
            // Linux before 5.14 lacks this advice. It allocates the memory at the first write.
            _ if source.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            _ => Err(MemoryError { what, length: self.length, element: size_of::<T>(), source }),
        }
    }

    /// Returns a slice of no elements and no memory.
    pub const fn empty() -> Self {
        Self { elements: NonNull::dangling(), length: 0, mapped: 0, _owned: PhantomData }
    }
}

impl<T> Deref for HugeSlice<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has `length` elements, initially zeros, which are valid values. `self` owns the
        // mapping, so a borrow of `self` is the only access to it.
        unsafe { std::slice::from_raw_parts(self.elements.as_ptr(), self.length) }
    }
}

impl<T> DerefMut for HugeSlice<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.elements.as_ptr(), self.length) }
    }
}

impl<T> Drop for HugeSlice<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            // SAFETY: all elements are valid values, and no code uses them afterwards.
            unsafe { ptr::drop_in_place(ptr::from_mut::<[T]>(self)) };
        }
        if self.mapped > 0 {
            // SAFETY: `new` mapped exactly this range, and no reference to it is left.
            unsafe { libc::munmap(self.elements.as_ptr().cast(), self.mapped) };
        }
    }
}

// SAFETY: the slice owns its elements as a boxed slice does.
unsafe impl<T: Send> Send for HugeSlice<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for HugeSlice<T> {}

impl<T> fmt::Debug for HugeSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HugeSlice").field("length", &self.length).field("mapped", &self.mapped).finish()
    }
}

/// Maps `bytes` bytes of zeros. `bytes` must be a multiple of the page size.
fn map(bytes: usize) -> Result<NonNull<u8>, std::io::Error> {
    // SAFETY: an anonymous mapping at an address that the kernel chooses touches no existing memory.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Maps `bytes` bytes of zeros, aligned to [`HUGE_PAGE`], and requests huge pages. `bytes` must be a multiple
/// of [`HUGE_PAGE`].
fn map_huge(bytes: usize) -> Result<NonNull<u8>, std::io::Error> {
    let whole =
        bytes.checked_add(HUGE_PAGE).ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOMEM))?;
    let start = map(whole)?;
    let before = start.as_ptr().align_offset(HUGE_PAGE);
    // SAFETY: fewer than `HUGE_PAGE` bytes are before the aligned address, so the `bytes` from it on are
    // inside the mapping. The unmapped ends are multiples of the page size, and no code refers to them. The
    // advice doesn't change the contents.
    unsafe {
        let aligned = start.add(before);
        if before > 0 {
            libc::munmap(start.as_ptr().cast(), before);
        }
        if before < HUGE_PAGE {
            libc::munmap(aligned.add(bytes).as_ptr().cast(), HUGE_PAGE - before);
        }
        libc::madvise(aligned.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
        Ok(aligned)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn slice_holds_zeros_then_written_values() {
        for length in [0, 1, 1000, HUGE_PAGE / 8 - 1, HUGE_PAGE / 8, HUGE_PAGE / 8 + 1, 3_000_000] {
            let mut slice = HugeSlice::<u64>::new("words", length).unwrap();
            assert_eq!(slice.len(), length);
            assert!(slice.iter().all(|&word| word == 0));
            slice.iter_mut().zip(1..).for_each(|(word, number)| *word = number);
            assert!(slice.iter().zip(1..).all(|(&word, number)| word == number));
        }
    }

    #[test]
    fn a_large_slice_begins_at_a_huge_page() {
        let slices: Vec<_> = (0..8).map(|_| HugeSlice::<[u8; 100]>::new("rows", 50_000).unwrap()).collect();
        assert!(slices.iter().all(|slice| slice.as_ptr().addr() % HUGE_PAGE == 0));
    }

    #[test]
    fn atomics_are_shared_between_threads() {
        let slice = HugeSlice::<AtomicU64>::new("counters", 10).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| _ = slice[9].fetch_add(1, Ordering::Relaxed)));
            }
        });
        assert_eq!(slice[9].load(Ordering::Relaxed), 2000);
    }

    #[test]
    fn excessive_memory_is_refused_with_its_name_and_size() {
        for length in [1 << 60, usize::MAX / 4, usize::MAX] {
            let error = HugeSlice::<u64>::new("the flow table", length).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("no memory for the flow table: {length} elements of 8"))
            );
        }
    }

    #[test]
    fn populated_memory_keeps_its_content() {
        for length in [0, 1000, HUGE_PAGE] {
            let mut slice = HugeSlice::<u32>::new("words", length).unwrap();
            if let Some(word) = slice.get_mut(length / 2) {
                *word = 7;
            }
            slice.populate("words").unwrap();
            assert_eq!(slice.iter().map(|&word| u64::from(word)).sum::<u64>(), 7 * u64::from(length > 0));
        }
    }

    #[test]
    fn elements_without_size_need_no_memory() {
        let slice = HugeSlice::<[u64; 0]>::new("nothing", 7).unwrap();
        assert_eq!((slice.len(), slice.mapped), (7, 0));
        assert_eq!(HugeSlice::<u64>::empty().len(), 0);
    }
}
