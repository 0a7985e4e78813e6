//! Record of the memory frames that the kernel holds for a port.

use millrace_packet::{FRAME_SIZE, Packet, Pool};

use super::ring::Address;

/// Memory frames of one pool that are lent to the kernel. Whatever the kernel writes into its rings, the port
/// takes back only memory frames that are lent.
#[derive(Debug)]
pub(super) struct LentFrames {
    pool: Pool,
    start: usize,
    length: usize,
    lent: Box<[u64]>,
}

impl LentFrames {
    pub(super) fn new(pool: &Pool) -> Self {
        let (start, length) = pool.region();
        let words = pool.capacity().div_ceil(64) as usize;
        Self { pool: pool.clone(), start: start.addr(), length, lent: vec![0; words].into_boxed_slice() }
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the offset of the packet's first byte in the pool's memory; `None` for a packet of another
    /// pool.
    #[inline]
    fn address(&self, packet: &Packet) -> Option<usize> {
        Some(packet.data().as_ptr().addr().wrapping_sub(self.start)).filter(|address| *address < self.length)
    }

    /// Returns whether all memory frames of the packet belong to this pool.
    pub(super) fn owns(&self, packet: &Packet) -> bool {
        let frames = packet.frames();
        frames
            .map(|bytes| bytes.as_ptr().addr().wrapping_sub(self.start))
            .all(|address| address < self.length)
    }

    /// Lends a packet of one memory frame to the kernel. Returns a packet of another pool, or of several
    /// memory frames, as an error.
    #[inline]
    pub(super) fn lend(&mut self, packet: Packet) -> Result<Address, Packet> {
        let Some(address) = self.address(&packet) else { return Err(packet) };
        let index = packet.into_raw()? as usize;
        debug_assert_eq!(index, address / FRAME_SIZE);
        if let Some(word) = self.lent.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
        Ok(address as Address)
    }

    /// Lends an empty memory frame to the kernel for reception; `None` when the pool has none.
    #[inline]
    pub(super) fn lend_empty(&mut self) -> Option<Address> {
        let address = self.lend(self.pool.allocate()?).ok()?;
        Some(address - address % FRAME_SIZE as Address)
    }

    /// Takes a memory frame back from the kernel, as a packet of `length` bytes from `address` on. `None` if
    /// this memory frame was not lent.
    #[inline]
    pub(super) fn take_back(&mut self, address: Address, length: u32) -> Option<Packet> {
        let (index, offset) = (address / FRAME_SIZE as u64, (address % FRAME_SIZE as u64) as u16);
        let word = self.lent.get_mut((index / 64) as usize)?;
        let bit = 1 << (index % 64);
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        let length = (length as usize).min(FRAME_SIZE - usize::from(offset)) as u16;
        // SAFETY: the bit was set, so `lend` gave this frame away by `into_raw`, and the frame has not come
        // back since.
        unsafe { self.pool.packet_from_raw(index as u32, offset, length) }
    }

    /// Returns the number of memory frames that the kernel holds.
    pub(super) fn count(&self) -> u32 {
        self.lent.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns all lent memory frames to the pool. The caller ensures that the kernel no longer touches them.
    pub(super) fn take_back_all(&mut self) {
        for index in 0..self.pool.capacity() {
            drop(self.take_back(u64::from(index) * FRAME_SIZE as u64, 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_once() {
        let pool = Pool::new(70).unwrap();
        let mut lent = LentFrames::new(&pool);
        let packet = pool.packet_from(b"hello").unwrap();
        let address = lent.lend(packet).unwrap();
        assert_eq!((lent.count(), pool.in_use()), (1, 1));
        assert_eq!(lent.take_back(address, 5).unwrap().data(), b"hello");
        assert!(lent.take_back(address, 5).is_none());
        assert!(lent.take_back(u64::MAX, 5).is_none());
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn packets_of_another_pool_are_not_lent() {
        let (pool, other) = (Pool::new(4).unwrap(), Pool::new(4).unwrap());
        let mut lent = LentFrames::new(&pool);
        let packet = other.packet_from(b"foreign").unwrap();
        assert!(!lent.owns(&packet));
        assert_eq!(lent.lend(packet).unwrap_err().data(), b"foreign");
    }

    #[test]
    fn everything_lent_returns_at_the_end() {
        let pool = Pool::new(100).unwrap();
        let mut lent = LentFrames::new(&pool);
        while lent.lend_empty().is_some() {}
        assert_eq!((lent.count(), pool.available()), (100, 0));
        lent.take_back_all();
        assert_eq!((lent.count(), pool.in_use()), (0, 0));
    }
}
