//! Packets that instances make: they wait here until a round takes them up, as those of ports wait in the rings of devices.

use std::collections::VecDeque;

use millrace_packet::{Packet, Pool};

use crate::ports::QUEUE_LIMIT;

/// Packets that wait for a round, and how many the present one still takes.
#[derive(Debug, Default)]
pub(crate) struct FromPlugins {
    waiting: VecDeque<Packet>,
    left: usize,
}

impl FromPlugins {
    /// A round begins that takes so many at most.
    pub fn begin(&mut self, weight: u16) {
        self.left = weight.into();
    }

    /// Lets a packet wait: as many as wait at a port, at most, and no more than leave three quarters of the packet memory.
    ///
    /// # Errors
    /// The packet, when there are so many already.
    pub fn push(&mut self, packet: Packet, pool: &Pool) -> Result<(), Packet> {
        if self.waiting.len() >= QUEUE_LIMIT.min(pool.capacity() as usize / 4) {
            return Err(packet);
        }
        self.waiting.push_back(packet);
        Ok(())
    }

    /// The next one of this round, the oldest first.
    pub fn take(&mut self) -> Option<Packet> {
        self.left = self.left.checked_sub(1)?;
        self.waiting.pop_front()
    }

    /// Packets that wait.
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
    fn a_round_takes_so_many_and_those_behind_wait_in_order() {
        let pool = Pool::new(64).unwrap();
        let mut all = FromPlugins::default();
        let packet = |number: u8| pool.packet_from(&[number; 60]).unwrap();
        (0..5).for_each(|number| all.push(packet(number), &pool).unwrap());
        assert_eq!(taken(&mut all), [0; 0]);
        all.begin(3);
        assert_eq!(taken(&mut all), [0, 1, 2]);
        // What comes later in the same round waits as well, behind the others.
        all.push(packet(5), &pool).unwrap();
        assert_eq!(taken(&mut all), [0; 0]);
        all.begin(256);
        assert_eq!(taken(&mut all), [3, 4, 5]);
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn what_waits_leaves_memory_to_others() {
        let pool = Pool::new(64).unwrap();
        let mut all = FromPlugins::default();
        let fits = |_| all.push(pool.packet_from(&[0; 60]).unwrap(), &pool).is_ok();
        assert_eq!((0..20).map(fits).filter(|fits| *fits).count(), 16);
    }
}
