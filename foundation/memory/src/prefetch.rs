//! Prefetching of memory into the processor's cache.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches the cache line that contains the start of `value`. The processor does not wait for it.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    fetch(std::ptr::from_ref(value));
}

/// Prefetches the cache line that contains the start of element `index` of `slice`. The index is not checked;
/// an index out of range does no harm.
#[inline(always)]
pub fn prefetch_slice_element<T>(slice: &[T], index: usize) {
    fetch(slice.as_ptr().wrapping_add(index));
}

/// Prefetches all cache lines of element `index` of `slice`. The index is not checked; an index out of range does no
/// harm.
#[inline(always)]
pub fn prefetch_whole_element<T>(slice: &[T], index: usize) {
    let (start, last) = (slice.as_ptr().wrapping_add(index), size_of::<T>().saturating_sub(1));
    for offset in (0..last).step_by(LINE) {
        fetch(start.wrapping_byte_add(offset));
    }
    fetch(start.wrapping_byte_add(last));
}

/// Prefetches the cache line of part `number` of a slice divided into parts of `size` bytes. The number is
/// not checked; a part out of range does no harm.
#[inline(always)]
pub fn prefetch_at<T>(slice: &[T], number: usize, size: usize) {
    fetch(slice.as_ptr().wrapping_byte_add(number.wrapping_mul(size)));
}

#[inline(always)]
fn fetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of every x86-64 processor, and a prefetch never faults, whatever its address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_out_of_range_is_left_alone() {
        let words = [1_u64, 2, 3];
        prefetch(&words);
        for index in [0, 2, 3, usize::MAX] {
            prefetch_slice_element(&words, index);
            prefetch_whole_element(&words, index);
        }
        prefetch_slice_element::<u64>(&[], 0);
        prefetch_whole_element::<[u8; 200]>(&[], 1);
        prefetch_whole_element::<()>(&[], 0);
        [0, 2, usize::MAX].into_iter().for_each(|number| prefetch_at(&words, number, 12));
        assert_eq!(words, [1, 2, 3]);
    }
}
