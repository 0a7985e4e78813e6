//! Transmission by all devices of a worker, and the time of core for each of them.

use millrace_packet::{Batch, Pool};
use millrace_units::{Cycles, Instant};

use crate::egress::transmit::{for_each_queue, most_waiting, transmit};
use crate::pending::core_functions::CoreUse;
use crate::ports::{DeviceId, PortCoreTime};
use crate::router::Router;
use crate::tsc::cycles;
use crate::worker::devices::Devices;

/// Scratch memory of transmissions.
pub(super) struct Outputs {
    outgoing: Batch,
    /// Device, time and packets of each transmission that core measures.
    measured: Vec<(DeviceId, Cycles, usize)>,
}

impl Default for Outputs {
    fn default() -> Self {
        Self { outgoing: Batch::new(), measured: Vec::new() }
    }
}

impl Outputs {
    /// Moves packets from all queues to their devices, and flushes the devices.
    pub fn transmit_all(&mut self, router: &mut Router, devices: &mut Devices, at: (&Pool, Instant)) {
        self.send_all((router, devices), at, |_, _| {});
    }

    /// Transmits as [`transmit_all`](Self::transmit_all) does, and counts the time of each device.
    #[cold]
    pub fn transmit_all_measured(
        &mut self,
        router: &mut Router,
        devices: &mut Devices,
        at: (&Pool, Instant),
    ) {
        let mut measured = std::mem::take(&mut self.measured);
        let mut reading = cycles();
        self.send_all((router, devices), at, |device, packets| {
            let before = std::mem::replace(&mut reading, cycles());
            let time = before.zip(reading).map_or(0, |(before, now)| now.saturating_sub(before));
            measured.push((device, Cycles(time), packets));
        });
        for (device, time, packets) in measured.drain(..) {
            let weight = router.ports.output_weight(device);
            router.ports.count_core(device, PortCoreTime { output: time, ..PortCoreTime::default() });
            if let Some(waiting) = router.pending.for_processor.get_mut() {
                waiting.core.count_output(device, CoreUse { weight, time, packets });
            }
        }
        self.measured = measured;
    }

    /// Transmits as [`transmit_all`](Self::transmit_all) does. Calls `ended` after each step of a device, with the
    /// number of packets that left its queue.
    #[inline(always)]
    fn send_all(
        &mut self,
        (router, devices): (&mut Router, &mut Devices),
        (pool, now): (&Pool, Instant),
        mut ended: impl FnMut(DeviceId, usize),
    ) {
        let most = most_waiting(pool, router.ports.iter().count());
        for_each_queue(&mut router.queueing(), now, |device, queue, departures| {
            let port = devices.get_mut(device)?;
            let before = queue.len();
            let dropped = transmit(port.as_mut(), (pool, now), (queue, most), departures, &mut self.outgoing);
            ended(device, before.saturating_sub(queue.len()));
            Some(dropped)
        });
        for (index, device) in devices.all.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            device.flush(pool, now);
            ended(DeviceId(index as u16), 0);
        }
        router.ports.note_room(|device| devices.get_mut(device).map_or(0, |device| device.room()));
    }
}
