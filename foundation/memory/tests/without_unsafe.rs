//! Test: a crate that forbids unsafe code declares zeroable elements.
#![forbid(unsafe_code)]

use std::sync::atomic::AtomicU32;

use millrace_memory::{HugeSlice, zeroable};

zeroable! {
    #[derive(Debug, Default)]
    #[repr(C, align(64))]
    struct Bucket {
        tags: [u8; 16],
        slots: [AtomicU32; 12],
    }
}

zeroable! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Index(u32);
}

#[test]
fn own_structs_are_elements() {
    let mut buckets = HugeSlice::<Bucket>::new("buckets", 1 << 16).unwrap();
    buckets[65_535].tags[15] = 7;
    *buckets[65_535].slots[11].get_mut() = 9;
    assert_eq!(buckets[65_535].tags[15], 7);
    assert_eq!(buckets[0].tags, [0; 16]);
    assert_eq!(buckets.as_ptr().addr() % 64, 0);
    assert_eq!(HugeSlice::<Index>::new("indices", 3).unwrap()[..], [Index(0); 3]);
}
