//! Classes of services (VERA, table 4.2).

use std::collections::BTreeMap;

use crate::hardware::Packet;
use crate::random::Random;
use crate::request::{Class, Cycles, Needs, Request, Stream};

/// Class of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceClass {
    /// Global services, such as counters and filters.
    Tiny,
    /// Services of flows that see headers only, such as header editors.
    Small,
    /// Services of flows such as proxies; half of them see whole packets.
    Medium,
    /// Services of flows that see whole packets, such as servers.
    Large,
}

/// All classes, in the order of a mix.
pub const CLASSES: [ServiceClass; 4] =
    [ServiceClass::Tiny, ServiceClass::Small, ServiceClass::Medium, ServiceClass::Large];

/// Bounded normal distribution of cycles per packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution {
    /// Mean before bounding.
    pub mean: f64,
    /// Standard deviation before bounding.
    pub deviation: f64,
    /// Smallest value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
}

/// Standard deviation of rates and of packet sizes, as a share of their mean. VERA leaves both open.
const RATE_DEVIATION: f64 = 0.3;
const SIZE_DEVIATION: f64 = 0.25;
/// Means of packet sizes in bytes, equally probable.
const SIZES: [f64; 2] = [128.0, 1000.0];

impl ServiceClass {
    /// Returns the name in VERA's tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    /// Returns the distribution of cycles per packet.
    #[must_use]
    pub const fn cycles(self) -> Distribution {
        let (mean, deviation, least, most) = match self {
            Self::Tiny => (50.0, 25.0, 10.0, 100.0),
            Self::Small => (300.0, 75.0, 150.0, 500.0),
            Self::Medium => (3_500.0, 500.0, 1_000.0, 5_000.0),
            Self::Large => (50_000.0, 15_000.0, 5_000.0, 100_000.0),
        };
        Distribution { mean, deviation, least, most }
    }

    /// Returns the mean of cycles per second and port. Rates are inversely proportional to cycles per packet
    /// (VERA, section 4.3.2), which leaves the factor open; with these, the ports fill as in tables 4.5 and 4.8.
    #[must_use]
    pub const fn cycles_per_second(self) -> f64 {
        match self {
            Self::Tiny => 0.0,
            Self::Small => 90_000.0,
            Self::Medium | Self::Large => 170_000.0,
        }
    }

    /// Draws a service.
    pub(super) fn request(self, number: usize, ports: f64, packet: &Packet, random: &mut Random) -> Request {
        let cycles = self.cycles().draw(random);
        let whole_packet = match self {
            Self::Tiny | Self::Small => false,
            Self::Medium => random.below(2) == 0,
            Self::Large => true,
        };
        let mean = SIZES.get(random.below(SIZES.len())).copied().unwrap_or_default();
        let bytes = random.normal(mean, mean * SIZE_DEVIATION).clamp(packet.minimum, packet.maximum);
        let rate = self.cycles_per_second() / cycles;
        let rate = positive_normal(rate, rate * RATE_DEVIATION, random);
        let class = if self == Self::Tiny { Class::Global } else { Class::PerFlow };
        let on_any = Cycles { packet: cycles, ..Cycles::default() };
        let input = match class {
            Class::Global => Stream::default(),
            Class::PerFlow => Stream { packets_per_second: rate * ports, bytes, bytes_maximum: None },
        };
        Request {
            name: format!("{}-{number}", self.name()),
            class,
            port: None,
            plugin: None,
            on: Vec::new(),
            user: None,
            needs: Needs {
                cycles: BTreeMap::from([("any".to_owned(), on_any)]),
                whole_packet,
                ..Needs::default()
            },
            input,
            output: None,
        }
    }
}

impl Distribution {
    /// Draws a value; a value beyond the bounds becomes the bound.
    pub fn draw(&self, random: &mut Random) -> f64 {
        random.normal(self.mean, self.deviation).clamp(self.least, self.most)
    }
}

/// Draws from a normal distribution until the value is positive.
fn positive_normal(mean: f64, deviation: f64, random: &mut Random) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    loop {
        let value = random.normal(mean, deviation);
        if value > 0.0 {
            return value;
        }
    }
}
