//! Packets that wait inside an iteration for another pass through the stages.

pub(crate) mod control_work;
pub(crate) mod core_functions;
pub(crate) mod core_settings;
pub(crate) mod core_time;
pub(crate) mod driver_time;
pub(crate) mod extracted;
pub(crate) mod for_processor;
pub(crate) mod from_plugins;
mod grants;
pub(crate) mod known_principal;
pub(crate) mod loads;
mod overload;
pub(crate) mod principal_counts;
pub(crate) mod principals;

use std::sync::Arc;

use millrace_packet::Packet;
use millrace_units::Cycles;

use crate::pending::core_functions::{CoreUse, Reception};
use crate::pending::driver_time::DriverTime;
use crate::pending::from_plugins::FromPlugins;
use crate::pending::loads::PrincipalLoads;
use crate::pending::principals::Principals;
use crate::ports::DeviceId;

/// Maximum number of times that a packet is classified again.
const MOST_PASSES: u8 = 4;

/// Packets that wait for a further pass through the stages in this iteration: packets that were made or
/// released, and packets to be classified again.
#[derive(Default)]
pub(crate) struct Pending {
    /// Packets made by the router, which start at the parse stage.
    pub made: Vec<Packet>,
    /// Copies and packets with a changed route, to be parsed and routed next.
    pub resumed: Vec<Packet>,
    /// Packets that were held for a neighbour, which is now resolved. They have passed all gates.
    pub waited: Vec<Packet>,
    /// Packets that instances want to be classified again.
    pub again: Vec<Packet>,
    /// Packets that instances have made.
    pub from_plugins: FromPlugins,
    /// Packets that wait for their principal to get the processor.
    pub for_processor: Principals,
    /// Time of eBPF variants that principals will be charged for.
    pub driver: DriverTime,
    /// Work of the principals, for control.
    pub loads: Arc<PrincipalLoads>,
}

impl Pending {
    /// Returns whether no packet is left for the next pass. Packets made by instances do not count: each
    /// iteration takes a limited number of them.
    pub fn is_done(&self) -> bool {
        [&self.waited, &self.made, &self.resumed, &self.again].iter().all(|packets| packets.is_empty())
    }

    /// Returns the number of waiting packets.
    pub fn held(&self) -> usize {
        let packets = [&self.waited, &self.made, &self.resumed, &self.again];
        let for_processor = self.for_processor.get().map_or(0, |waiting| waiting.len());
        packets.iter().map(|packets| packets.len()).sum::<usize>() + self.from_plugins.len() + for_processor
    }

    /// Whether core has used more than its share while overloaded.
    #[inline]
    pub fn must_shed(&self) -> bool {
        self.for_processor.active().is_some_and(|waiting| waiting.core.must_shed())
    }

    /// Returns the treatment of a batch of a device.
    #[inline]
    pub fn reception_of(&self, device: DeviceId) -> Reception {
        self.for_processor.active().map_or(Reception::Whole, |waiting| waiting.core.reception_of(device))
    }

    /// Charges the part of a reception's time to control that its packets need. Returns the time of core.
    #[inline]
    pub fn charge_reception(&mut self, time: Cycles, packets: usize) -> Cycles {
        let Some(waiting) = self.for_processor.active_mut() else { return time };
        waiting.control.charge_reception(time, packets)
    }

    /// Counts a packet that goes to the kernel.
    #[inline]
    pub fn count_punt(&mut self) {
        if let Some(waiting) = self.for_processor.get_mut() {
            waiting.control.count_punt();
        }
    }

    /// Whether core measures its time by function.
    #[inline]
    pub fn measures_core(&self) -> bool {
        self.for_processor.active().is_some_and(|waiting| waiting.core.measures_functions())
    }

    /// Counts work of core for packets of a device. Returns the part of its time that forwarding took, if core
    /// measures it.
    #[inline]
    pub fn count_core(&mut self, device: DeviceId, used: CoreUse) -> Cycles {
        self.for_processor.active_mut().map_or(Cycles(0), |waiting| waiting.core.count_input(device, used))
    }

    /// Returns the number of further batches to take where a batch was full.
    #[inline]
    pub fn further_batches(&self) -> u32 {
        self.for_processor.active().map_or(0, |waiting| waiting.core.further_batches())
    }

    /// Notes whether the first batch from a device or worker was full, and whether the latest one was.
    #[inline]
    pub fn note_batches(&mut self, was_full: bool, is_full: bool) {
        if was_full {
            self.for_processor.note_full(is_full);
        }
    }

    /// Queues a packet to be classified again.
    ///
    /// # Errors
    /// Returns a packet that was classified again [`MOST_PASSES`] times.
    pub fn classify_again(&mut self, mut packet: Packet) -> Result<(), Packet> {
        if packet.passes == MOST_PASSES {
            return Err(packet);
        }
        packet.passes += 1;
        self.again.push(packet);
        Ok(())
    }
}
