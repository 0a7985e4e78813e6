//! Token buckets that programs and workers share (bpf/policer.h).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use aya::Ebpf;

use super::layout::{POLICERS, Policer};
use crate::OffloadError;
use crate::bpf::mapped_map::MappedMap;

const BUCKET: usize = size_of::<Policer>();
const PAID: usize = std::mem::offset_of!(Policer, paid);
const BYTE: usize = std::mem::offset_of!(Policer, byte);
const DEPTH: usize = std::mem::offset_of!(Policer, depth);

/// All token buckets that programs and workers share.
#[derive(Debug)]
pub(super) struct Policers {
    map: MappedMap,
    taken: Vec<AtomicBool>,
    /// Index at which the next search for a free bucket starts.
    next: AtomicUsize,
}

impl Policers {
    pub fn new(object: &mut Ebpf) -> Result<Arc<Self>, OffloadError> {
        let map = MappedMap::new(object, "policers", POLICERS, BUCKET)?;
        let taken = (0..POLICERS).map(|_| AtomicBool::new(false)).collect();
        Ok(Arc::new(Self { map, taken, next: AtomicUsize::new(0) }))
    }

    /// Takes a full bucket; `None` when all are in use. Buckets are assigned in turn, so that a released
    /// bucket is reused late: a program that has just read an old entry may still take tokens from it.
    /// `byte`: cost of a byte, in 65,536ths of a tick (a sixteenth of a nanosecond). `depth`: number of ticks
    /// in which an empty bucket becomes full.
    pub fn take(self: &Arc<Self>, byte: u64, depth: u64) -> Option<PolicerPlace> {
        let is_free =
            |place: &usize| self.taken.get(*place).is_some_and(|taken| !taken.swap(true, Ordering::AcqRel));
        let start = self.next.load(Ordering::Relaxed);
        let place = (start..POLICERS).chain(0..start).find(is_free)?;
        self.next.store((place + 1) % POLICERS, Ordering::Relaxed);
        let bucket = PolicerPlace { all: Arc::clone(self), place: place as u16 };
        for (field, value) in [(PAID, 0), (BYTE, byte), (DEPTH, depth)] {
            self.map.word64(place * BUCKET + field).store(value, Ordering::Relaxed);
        }
        Some(bucket)
    }
}

/// Token bucket that programs and workers share. Dropping it frees the bucket.
#[derive(Debug)]
pub struct PolicerPlace {
    all: Arc<Policers>,
    place: u16,
}

impl PolicerPlace {
    /// Returns the number by which flow cache entries refer to the bucket.
    pub fn number(&self) -> u16 {
        self.place
    }

    /// Returns the state of the bucket, in ticks: the time up to which passed packets have used the rate.
    #[inline]
    pub fn paid(&self) -> &AtomicU64 {
        self.all.map.word64(usize::from(self.place) * BUCKET + PAID)
    }
}

impl Drop for PolicerPlace {
    fn drop(&mut self) {
        if let Some(taken) = self.all.taken.get(usize::from(self.place)) {
            taken.store(false, Ordering::Release);
        }
    }
}
