//! RED, random early detection (Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", 1993),
//! with the gentle part above the upper threshold (Floyd, 2000) and with ECN (RFC 3168, 7).

use millrace_units::Instant;

use crate::DropCause;
use crate::arena::Load;
use crate::random::Random;
use crate::rate::Rate;

/// What RED counts a queue in. Bytes are what a link's time is made of; packets are, where what is behind a queue has a cost for
/// each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RedUnit {
    /// Bytes.
    #[default]
    Bytes,
    /// Packets.
    Packets,
}

/// How RED decides. Lengths are in its unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RedSettings {
    /// What lengths are counted in.
    pub unit: RedUnit,
    /// Below this average nothing is dropped.
    pub minimum: u32,
    /// At this average the probability reaches `probability`.
    pub maximum: u32,
    /// The probability of a drop at `maximum`, above 0 and up to 1; 0.1 is usual.
    pub probability: f64,
    /// Weight of the newest length in the average, above 0 and up to 1; 0.002 is usual.
    pub weight: f64,
    /// Above `maximum`, lets the probability grow to 1 at twice `maximum` instead of dropping all.
    pub gentle: bool,
    /// Marks instead of dropping below `maximum`, where the sender understands it.
    pub ecn: bool,
    /// Rate at which the queue is expected to be served: while it is empty, the average falls as if that many packets
    /// of `mean_packet` bytes had gone.
    pub rate: Rate,
    /// Bytes of a usual packet, at least 1.
    pub mean_packet: u32,
    /// Begins the sequence of random numbers.
    pub seed: u64,
}

impl Default for RedSettings {
    /// Thresholds of 30 and 90 packets of 1,000 bytes at 100 Mb/s, at most 10 %, gentle, with marks.
    fn default() -> Self {
        Self {
            unit: RedUnit::Bytes,
            minimum: 30_000,
            maximum: 90_000,
            probability: 0.1,
            weight: 0.002,
            gentle: true,
            ecn: true,
            rate: Rate::from_megabits(100),
            mean_packet: 1000,
            seed: 1,
        }
    }
}

impl RedSettings {
    /// What is wrong with them, if anything.
    pub(crate) fn objection(&self) -> Option<String> {
        let Self { minimum, maximum, probability, weight, .. } = *self;
        if minimum >= maximum {
            return Some(format!("minimum {minimum} >= maximum {maximum}: the minimum must be lower"));
        }
        if !(probability > 0.0 && probability <= 1.0) {
            return Some(format!("probability {probability}: it must be above 0 and at most 1"));
        }
        if !(weight > 0.0 && weight <= 1.0) {
            return Some(format!("weight {weight}: it must be above 0 and at most 1"));
        }
        (self.mean_packet == 0 || self.rate.0 == 0)
            .then(|| "mean packet and rate must be above 0: the average ages by them".to_owned())
    }
}

/// What becomes of an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RedVerdict {
    Pass,
    /// Mark it if its sender understands, else drop it.
    Mark,
    Drop(DropCause),
}

/// The state of one queue. `count` is the paper's: packets since the last one chosen, -1 below the minimum.
#[derive(Clone, Debug)]
pub(crate) struct Red {
    pub settings: RedSettings,
    average: f64,
    count: i64,
    /// Since when the queue is empty.
    idle_since: Option<Instant>,
    random: Random,
}

impl Red {
    /// That of the queue of a number, which draws lots of its own.
    pub fn new(settings: RedSettings, queue: u32) -> Self {
        let random = Random::new(settings.seed.wrapping_add(u64::from(queue) << 32));
        Self { settings, average: 0.0, count: -1, idle_since: Some(Instant::ZERO), random }
    }

    /// Takes other settings. The average stays, in another unit as so many usual packets.
    pub fn set(&mut self, settings: RedSettings) {
        let (before, packet) = (self.settings.unit, f64::from(settings.mean_packet));
        match (before, settings.unit) {
            (RedUnit::Bytes, RedUnit::Packets) => self.average /= packet,
            (RedUnit::Packets, RedUnit::Bytes) => self.average *= packet,
            _ => {}
        }
        self.settings = settings;
    }

    /// A packet arrives at a queue that holds so much.
    pub fn arrival(&mut self, held: Load, now: Instant) -> RedVerdict {
        self.update_average(held, now);
        let RedSettings { minimum, maximum, probability, gentle, .. } = self.settings;
        let (low, high) = (f64::from(minimum), f64::from(maximum));
        if self.average < low {
            self.count = -1;
            return RedVerdict::Pass;
        }
        if self.average < high {
            let chance = probability * (self.average - low) / (high - low);
            return if self.chosen(chance) { RedVerdict::Mark } else { RedVerdict::Pass };
        }
        if gentle && self.average < 2.0 * high {
            let chance = probability + (1.0 - probability) * (self.average - high) / high;
            return if self.chosen(chance) { RedVerdict::Drop(DropCause::Early) } else { RedVerdict::Pass };
        }
        self.count = 0;
        RedVerdict::Drop(DropCause::Forced)
    }

    /// The last packet left the queue.
    #[inline]
    pub fn emptied(&mut self, now: Instant) {
        self.idle_since = Some(now);
    }

    fn update_average(&mut self, held: Load, now: Instant) {
        let weight = self.settings.weight;
        let length = match self.settings.unit {
            RedUnit::Bytes => held.bytes(),
            RedUnit::Packets => held.packets(),
        };
        let Some(since) = self.idle_since.filter(|_| length == 0) else {
            self.average += weight * (f64::from(length) - self.average);
            return;
        };
        let per_packet = self.settings.rate.time_for(self.settings.mean_packet.into()).max(1);
        let packets = now.since(since).as_nanos() as f64 / per_packet as f64;
        self.average *= (1.0 - weight).powf(packets);
        self.idle_since = Some(now);
    }

    /// Spreads the choices evenly: the chance grows with the packets since the last one chosen.
    fn chosen(&mut self, chance: f64) -> bool {
        self.count += 1;
        let spread = 1.0 - self.count as f64 * chance;
        let chosen = spread <= 0.0 || self.random.fraction() < chance / spread;
        if chosen {
            self.count = 0;
        }
        chosen
    }
}
