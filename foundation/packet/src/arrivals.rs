//! Record of the batch that a worker processed last, for a report after a panic.
//!
//! The record holds one pointer per packet; the bytes stay in their memory frames. Frames that return to the
//! pool keep their contents until the pool allocates them again. So the report shows the last contents of the
//! packets. Of packets that another thread has lent, it shows the bytes that were copied.
#![allow(unsafe_code)]

use crate::frame::{BORROWED, Frame};
use crate::{BATCH_SIZE, Packet, Pool};

/// Maximum number of memory frames read per packet. A packet of 65,535 bytes has 33 frames.
const LONGEST_CHAIN: usize = 40;

/// Record of the last batch: a pointer to the first memory frame of each packet.
#[derive(Debug)]
pub struct Arrivals {
    heads: Box<[*const Frame; BATCH_SIZE]>,
    count: usize,
    /// Handle of the pool, which keeps the frames mapped.
    _pool: Pool,
}

impl Arrivals {
    /// Returns an empty record for packets of `pool`.
    pub fn new(pool: Pool) -> Self {
        Self { heads: Box::new([std::ptr::null(); BATCH_SIZE]), count: 0, _pool: pool }
    }

    /// Records the packets of a batch, and replaces the record of the previous batch. The packets must be of
    /// this pool.
    #[inline]
    pub fn note(&mut self, packets: &[Packet]) {
        self.count = packets.len().min(BATCH_SIZE);
        for (head, packet) in self.heads.iter_mut().zip(packets) {
            *head = packet.head_address();
        }
    }

    /// Returns the current bytes of each recorded packet. To be called only after a panic, when no other code
    /// uses the packets.
    pub fn frames(&self) -> impl Iterator<Item = Vec<u8>> {
        self.heads.iter().take(self.count).map(|head| bytes_of(*head))
    }
}

/// Returns the bytes of a chain of frames.
fn bytes_of(head: *const Frame) -> Vec<u8> {
    let (mut bytes, mut frame) = (Vec::new(), head);
    for _ in 0..LONGEST_CHAIN {
        // SAFETY: the pool's metadata of frames lives as long as the pool, which the caller holds, and the metadata
        // of borrowed frames for ever. Both belong to this thread, and no other code writes them while this runs.
        let Some(current) = (unsafe { frame.as_ref() }) else { break };
        if current.index & BORROWED != 0 {
            // The bytes belong to another thread, which may write them.
            break;
        }
        bytes.extend_from_slice(current.bytes());
        frame = current.next;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_readable_after_their_packets_were_dropped() {
        let pool = Pool::new(8).unwrap();
        let mut arrivals = Arrivals::new(pool.clone());
        let long: Vec<u8> = (0..5000_u32).map(|byte| byte as u8).collect();
        let packets = [&[1, 2, 3][..], &long].map(|bytes| pool.packet_from(bytes).unwrap());
        arrivals.note(&packets);
        drop(packets);
        assert_eq!(pool.in_use(), 0);
        assert_eq!(arrivals.frames().collect::<Vec<_>>(), [vec![1, 2, 3], long]);
        arrivals.note(&[]);
        assert_eq!(arrivals.frames().count(), 0);
    }

    #[test]
    fn bytes_that_another_thread_has_lent_are_left_out() {
        let (pool, other) = (Pool::new(8).unwrap(), Pool::new(8).unwrap());
        let (mut lender, mut borrower) = (crate::Lender::new(1), crate::Borrower::new(1));
        let packet = other.packet_from(&[7; 1000]).unwrap();
        let front = lender.front_of(&packet).unwrap();
        let loan = lender.lend(packet, front).unwrap();
        let packet = borrower.borrow(&pool, &vec![7; front], loan).unwrap();
        let mut arrivals = Arrivals::new(pool.clone());
        arrivals.note(&[packet]);
        assert_eq!(arrivals.frames().collect::<Vec<_>>(), [vec![7; front]]);
    }
}
