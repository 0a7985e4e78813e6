//! RED, random early detection (Floyd and Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance", 1993). It has the gentle range above the upper threshold (Floyd, 2000) and ECN (RFC 3168, 7).

use millrace_units::Instant;

use crate::DropCause;
use crate::arena::Load;
use crate::random::Random;
use crate::rate::Rate;

/// Unit in which RED measures a queue. Bytes suit a link, whose transmission time depends on bytes. Packets
/// suit a receiver whose cost depends on packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RedUnit {
    /// Bytes.
    #[default]
    Bytes,
    /// Packets.
    Packets,
}

/// Settings of RED. Queue lengths are in `unit`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RedSettings {
    /// Unit of queue lengths.
    pub unit: RedUnit,
    /// Average queue length below which RED drops nothing.
    pub minimum: u32,
    /// Average queue length at which the drop probability reaches `probability`.
    pub maximum: u32,
    /// Drop probability at `maximum`, above 0 and up to 1; 0.1 is usual.
    pub probability: f64,
    /// Weight of the newest length in the average, above 0 and up to 1; 0.002 is usual.
    pub weight: f64,
    /// Whether the drop probability grows to 1 between `maximum` and twice `maximum`. Otherwise RED drops all
    /// packets above `maximum`.
    pub gentle: bool,
    /// Whether RED marks packets of ECN-capable senders instead of dropping them. Above `maximum`, RED never
    /// marks.
    pub ecn: bool,
    /// Expected service rate of the queue. While the queue is empty, the average falls as if packets of
    /// `mean_packet` bytes left at this rate.
    pub rate: Rate,
    /// Mean packet length in bytes, at least 1.
    pub mean_packet: u32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for RedSettings {
    /// Returns default settings: thresholds of 30 and 90 packets of 1,000 bytes at 100 Mb/s, a probability of
    /// 10 %, gentle mode and ECN marks.
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
    /// Returns the reason why the settings are invalid, or `None`.
    pub(crate) fn objection(&self) -> Option<String> {
        let Self { minimum, maximum, probability, weight, .. } = *self;
        if minimum >= maximum {
            return Some(format!("red: minimum {minimum} >= maximum {maximum}: the minimum must be lower"));
        }
        if !(probability > 0.0 && probability <= 1.0) {
            return Some(format!("red: probability {probability} must be above 0 and at most 1"));
        }
        if !(weight > 0.0 && weight <= 1.0) {
            return Some(format!("red: weight {weight} must be above 0 and at most 1"));
        }
        (self.mean_packet == 0 || self.rate.0 == 0)
            .then(|| "red: mean packet size and rate must be above 0".to_owned())
    }
}

/// Decision of RED about an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RedVerdict {
    Pass,
    /// Marks the packet if its sender is ECN-capable; drops it otherwise.
    Mark,
    Drop(DropCause),
}

/// RED state of one queue. `count` is the variable of this name in the RED paper: the number of packets since
/// the last marked or dropped packet, -1 while the average is below the minimum.
#[derive(Clone, Debug)]
pub(crate) struct Red {
    pub settings: RedSettings,
    average: f64,
    count: i64,
    /// Time at which the queue became empty; `None` while it holds packets.
    idle_since: Option<Instant>,
    random: Random,
}

impl Red {
    /// Creates the RED state of queue number `queue`. Each queue draws its own random numbers.
    pub fn new(settings: RedSettings, queue: u32) -> Self {
        let random = Random::new(settings.seed.wrapping_add(u64::from(queue) << 32));
        Self { settings, average: 0.0, count: -1, idle_since: Some(Instant::ZERO), random }
    }

    /// Changes the settings. The average stays. If the unit changes, the average is converted by the mean
    /// packet length.
    pub fn set(&mut self, settings: RedSettings) {
        let (before, packet) = (self.settings.unit, f64::from(settings.mean_packet));
        match (before, settings.unit) {
            (RedUnit::Bytes, RedUnit::Packets) => self.average /= packet,
            (RedUnit::Packets, RedUnit::Bytes) => self.average *= packet,
            _ => {}
        }
        self.settings = settings;
    }

    /// Decides whether an arriving packet passes, is marked or is dropped. `held`: load of the queue before
    /// the packet.
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

    /// Records the time at which the last packet left the queue.
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

    /// Decides at random whether to drop or mark this packet. The chance grows with the number of packets
    /// since the last chosen packet, which spaces choices evenly.
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
