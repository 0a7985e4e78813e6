//! Queue of packets made by instances. Each iteration takes a limited number of them, as it does of received
//! packets.

use std::collections::VecDeque;

use millrace_packet::{Packet, Pool};

use crate::ports::QUEUE_LIMIT;

/// Queue of packets made by instances, and the number that the current iteration may still take.
#[derive(Debug, Default)]
pub(crate) struct FromPlugins {
    waiting: VecDeque<Packet>,
    left: usize,
}

impl FromPlugins {
    /// Starts an iteration that takes at most `weight` packets.
    pub fn begin(&mut self, weight: u16) {
        self.left = weight.into();
    }

    /// Queues a packet. The queue is limited to [`QUEUE_LIMIT`] packets, and to a quarter of the packet
    /// memory.
    ///
    /// # Errors
    /// Returns the packet if the queue is full.
    pub fn push(&mut self, packet: Packet, pool: &Pool) -> Result<(), Packet> {
        if self.waiting.len() >= QUEUE_LIMIT.min(pool.capacity() as usize / 4) {
            return Err(packet);
        }
        self.waiting.push_back(packet);
        Ok(())
    }

    /// Takes the oldest packet, if the iteration may still take one.
    pub fn take(&mut self) -> Option<Packet> {
        self.left = self.left.checked_sub(1)?;
        self.waiting.pop_front()
    }

    /// Returns the number of waiting packets.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(all: &mut FromPlugins) -> Vec<u8> {
        std::iter::from_fn(|| all.take()).map(|packet| packet.data()[0]).collect()
    }

    #[test]
    fn iteration_takes_its_limit_and_later_packets_wait_in_order() {
        let pool = Pool::new(64).unwrap();
        let mut all = FromPlugins::default();
        let packet = |number: u8| pool.packet_from(&[number; 60]).unwrap();
        (0..5).for_each(|number| all.push(packet(number), &pool).unwrap());
        assert_eq!(taken(&mut all), [0; 0]);
        all.begin(3);
        assert_eq!(taken(&mut all), [0, 1, 2]);
        // A packet added during the iteration is queued behind the others.
        all.push(packet(5), &pool).unwrap();
        assert_eq!(taken(&mut all), [0; 0]);
        all.begin(256);
        assert_eq!(taken(&mut all), [3, 4, 5]);
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn waiting_packets_leave_memory_to_others() {
        let pool = Pool::new(64).unwrap();
        let mut all = FromPlugins::default();
        let fits = |_| all.push(pool.packet_from(&[0; 60]).unwrap(), &pool).is_ok();
        assert_eq!((0..20).map(fits).filter(|fits| *fits).count(), 16);
    }
}
