//! Treatments of packets, each written once for all flows that share it.

use std::collections::{HashMap, VecDeque};

use aya::Ebpf;
use millrace_packet::{OffloadAction, OffloadedFlow};

use super::layout::{TREATMENTS, Treatment};
use crate::OffloadError;
use crate::bpf::mapped_map::MappedMap;

const TREATMENT: usize = size_of::<Treatment>();
const OUT: usize = std::mem::offset_of!(Treatment, out);
const MTU: usize = std::mem::offset_of!(Treatment, mtu);
const LINK: usize = std::mem::offset_of!(Treatment, link);
const WORKER: usize = std::mem::offset_of!(Treatment, worker);
const DROPS: usize = std::mem::offset_of!(Treatment, drops);
const POLICER: usize = std::mem::offset_of!(Treatment, policer);
const VARIANT: usize = std::mem::offset_of!(Treatment, variant);
/// Number of released treatment numbers that are kept out of use; the oldest is reused first. So a program
/// that has just read a number still finds its treatment.
const RESTING: usize = 1024;

/// Treatments in a worker's part of the map.
#[derive(Debug)]
pub(super) struct Treatments {
    map: MappedMap,
    worker: u16,
    numbers: HashMap<OffloadedFlow, u16>,
    /// For each treatment number, the treatment and the number of flows with it.
    known: Vec<Option<(OffloadedFlow, u32)>>,
    /// First treatment number of this worker's part.
    first: usize,
    most: usize,
    resting: VecDeque<u16>,
}

impl Treatments {
    pub fn new(object: &mut Ebpf, (worker, workers): (u16, u16)) -> Result<Self, OffloadError> {
        let map = MappedMap::new(object, "treatments", TREATMENTS, TREATMENT)?;
        let part = |worker: u16| TREATMENTS * usize::from(worker) / usize::from(workers);
        let (first, most) = (part(worker), part(worker + 1) - part(worker));
        let (numbers, known, resting) = (HashMap::new(), Vec::new(), VecDeque::new());
        Ok(Self { map, worker, numbers, known, first, most, resting })
    }

    /// Returns the number of a flow's treatment, and counts one more flow with this treatment. `None` when
    /// all numbers of this worker's part are in use.
    pub fn take(&mut self, flow: &OffloadedFlow) -> Option<u16> {
        if let Some(number) = self.numbers.get(flow).copied() {
            if let Some(Some((_, flows))) = self.known.get_mut(usize::from(number) - self.first) {
                *flows += 1;
            }
            return Some(number);
        }
        let number = if self.known.len() < self.most {
            self.known.push(None);
            (self.first + self.known.len() - 1) as u16
        } else if self.resting.len() > RESTING {
            self.resting.pop_front()?
        } else {
            return None;
        };
        self.write(number, flow);
        *self.known.get_mut(usize::from(number) - self.first)? = Some((*flow, 1));
        self.numbers.insert(*flow, number);
        Some(number)
    }

    /// Counts one flow less with a treatment. When no flow has the treatment, its number is released.
    pub fn give_back(&mut self, number: u16) {
        let Some(place) = self.known.get_mut(usize::from(number) - self.first) else { return };
        let Some((flow, flows)) = place else { return };
        *flows -= 1;
        if *flows == 0 {
            self.numbers.remove(flow);
            *place = None;
            self.resting.push_back(number);
        }
    }

    fn write(&mut self, number: u16, flow: &OffloadedFlow) {
        let at = usize::from(number) * TREATMENT;
        self.map.write(at, &[0; TREATMENT]);
        self.map.write(at + WORKER, &self.worker.to_ne_bytes());
        let policer = flow.policer.map_or(0, |place| place + 1);
        self.map.write(at + POLICER, &policer.to_ne_bytes());
        let variant = flow.variant.map_or(0, |place| place + 1);
        self.map.write(at + VARIANT, &variant.to_ne_bytes());
        let (drops, mtu) = match flow.action {
            OffloadAction::Send(way) => (0_u16, way.mtu),
            OffloadAction::Drop { mtu } => (1, mtu),
        };
        self.map.write(at + DROPS, &drops.to_ne_bytes());
        self.map.write(at + MTU, &mtu.to_ne_bytes());
        if let OffloadAction::Send(way) = flow.action {
            self.map.write(at + OUT, &way.out.0.to_ne_bytes());
            self.map.write(at + LINK, &way.destination.0);
            self.map.write(at + LINK + way.destination.0.len(), &way.source.0);
        }
    }
}
