//! Forward stage over a batch.

use millrace_wire::MacAddr;

use crate::forward::Forwarder;
use crate::work::Work;

impl Forwarder<'_> {
    /// Decides the fates of open packets, and sets their egress ports and MAC addresses.
    #[inline]
    pub fn decide_all(&mut self, work: &mut Work) {
        let Work { packets, keys, fates, destinations, .. } = work;
        let each = packets.iter_mut().zip(fates.all_mut()).enumerate();
        for (index, (packet, fate)) in each.filter(|(_, (_, fate))| fate.is_open()) {
            let decision = self.decide(packet, &keys[index]);
            *fate = decision.fate;
            destinations[index] = decision.destination;
        }
    }

    /// Decides the fates of packets that an instance at a `queue` gate held and has released. Skips a packet
    /// whose neighbour was already resolved before the instance took the packet.
    pub fn decide_late(&mut self, work: &mut Work) {
        for index in 0..work.packets.len() {
            let packet = work.packets.at_mut(index);
            let is_decided = packet.is_framed || work.destinations[index] != MacAddr::ZERO;
            if is_decided || !work.fates[index].is_open() {
                continue;
            }
            let decision = self.decide(packet, &work.keys[index]);
            (work.fates[index], work.destinations[index]) = (decision.fate, decision.destination);
        }
    }
}
