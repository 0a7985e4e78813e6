//! Port for benches: it receives copies of the same frames repeatedly, and counts transmitted frames.

use millrace_memory::prefetch_slice_element;
use millrace_packet::{Batch, DropReason, HEADROOM, Packet, Pool};
use millrace_units::Instant;
use millrace_wire::MacAddr;

use super::capabilities;
use crate::{Capabilities, Port, PortCounters};

/// Distance in bytes from the template being copied to the template being prefetched.
const AHEAD: usize = 1024;

/// Port that fills each batch with copies of template frames, in turn, and drops transmitted frames.
///
/// The templates are contiguous and prefetched. So even a million templates put little load on caches and
/// memory, which a bench should not measure.
///
/// The port makes no system call. A 60-byte frame is allocated, copied from its template, received,
/// transmitted, counted and freed. That takes 110 instructions, 20 to 30 ns on a busy virtual AMD EPYC.
/// Subtract the time from a measured cost to get the cost of the pipeline.
#[derive(Debug)]
pub struct Generator {
    /// Bytes of all templates, one after the other.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Number of the next template.
    position: usize,
    begin: usize,
    left: u64,
    counters: PortCounters,
    capabilities: Capabilities,
}

impl Generator {
    /// Creates a port that receives `frames` frames in total, from `templates` in turn; `u64::MAX` means no
    /// end. Without templates it receives none.
    pub fn new(mac: MacAddr, mtu: u16, templates: Vec<Vec<u8>>, frames: u64) -> Self {
        let left = if templates.is_empty() { 0 } else { frames };
        let capabilities = capabilities(mac, mtu);
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(templates.len()));
        for template in templates {
            bytes.extend(template);
            ends.push(bytes.len());
        }
        Self { bytes, ends, position: 0, begin: 0, left, counters: PortCounters::default(), capabilities }
    }

    #[inline]
    fn give(&mut self, pool: &Pool, batch: &mut Batch) {
        let end = self.ends[self.position];
        let template = &self.bytes[self.begin..end];
        prefetch_slice_element(&self.bytes, end + AHEAD);
        (self.position, self.begin) = (self.position + 1, end);
        if self.position == self.ends.len() {
            (self.position, self.begin) = (0, 0);
        }
        self.counters.received += 1;
        match copied(pool, template) {
            Some(packet) => {
                self.counters.received_bytes += template.len() as u64;
                // The caller ensures that `batch` has room.
                let _ = batch.push(packet);
            }
            None => self.counters.drops.add(DropReason::NoMemory, 1),
        }
    }
}

/// Creates a packet with the bytes of `template`. A template of at most half the headroom is written into the
/// headroom, and the other half stays free. For 128 bytes that takes 120 instructions, while appending the
/// bytes takes 197.
#[inline]
fn copied(pool: &Pool, template: &[u8]) -> Option<Packet> {
    if template.len() > HEADROOM / 2 {
        return pool.packet_from(template);
    }
    let mut packet = pool.allocate()?;
    packet.prepend(template.len())?.copy_from_slice(template);
    Some(packet)
}

impl Port for Generator {
    fn receive(&mut self, pool: &Pool, _now: Instant, batch: &mut Batch) {
        let count = self.left.min(batch.room() as u64);
        self.left -= count;
        for _ in 0..count {
            self.give(pool, batch);
        }
    }

    fn transmit(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
        self.counters.transmitted += batch.len() as u64;
        self.counters.transmitted_bytes += batch.iter().map(|packet| packet.len() as u64).sum::<u64>();
        batch.clear();
    }

    fn flush(&mut self, _pool: &Pool, _now: Instant) {}

    fn counters(&mut self) -> PortCounters {
        self.counters.clone()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn descriptor(&self) -> Option<i32> {
        None
    }

    fn is_finished(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    #[test]
    fn templates_are_sent_in_turn_until_the_end() {
        let pool = Pool::new(16).unwrap();
        let mut port = Generator::new(MAC, 1500, vec![vec![1; 60], vec![2; 3000]], 3);
        let mut batch = Batch::new();
        port.receive(&pool, Instant::ZERO, &mut batch);
        let frames: Vec<_> = batch.iter().map(|packet| packet.to_vec()).collect();
        assert_eq!(frames, [vec![1; 60], vec![2; 3000], vec![1; 60]]);
        assert!(port.is_finished());
        port.transmit(&pool, Instant::ZERO, &mut batch);
        assert_eq!((port.counters().transmitted, port.counters().transmitted_bytes), (3, 3120));
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn without_templates_nothing_arrives() {
        let port = Generator::new(MAC, 1500, Vec::new(), u64::MAX);
        assert!(port.is_finished());
    }

    #[test]
    fn frames_without_packet_memory_are_counted() {
        let pool = Pool::new(2).unwrap();
        let mut port = Generator::new(MAC, 1500, vec![vec![1; 60]], u64::MAX);
        let mut batch = Batch::new();
        port.receive(&pool, Instant::ZERO, &mut batch);
        let counters = port.counters();
        let lost = counters.drops.get(DropReason::NoMemory);
        assert_eq!((batch.len(), counters.received, lost), (2, 256, 254));
    }
}
