//! Positions of gates in the pipeline. At a gate, instances are bound to flows.

use std::fmt;
use std::str::FromStr;

/// Position of gates in the pipeline. Each position may have any number of gates, in a configured order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Position {
    /// Before the route is determined.
    Early,
    /// When the route is determined.
    Route,
    /// After the route is determined, before queueing.
    Late,
    /// When the queue is chosen.
    Queue,
    /// On copies of the packet.
    Copy,
}

impl Position {
    /// All positions, in the order in which packets pass them.
    pub const ALL: [Self; 5] = [Self::Early, Self::Route, Self::Late, Self::Queue, Self::Copy];

    /// Returns the position's name in commands and configuration files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Route => "route",
            Self::Late => "late",
            Self::Queue => "queue",
            Self::Copy => "copy",
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|position| position.name() == name)
            .ok_or_else(|| format!("unknown position {name:?}: give early, route, late, queue or copy"))
    }
}

/// Predefined gates, in the order in which packets pass them.
pub const DEFAULT_GATES: [(&str, Position); 9] = [
    ("options", Position::Early),
    ("security-in", Position::Early),
    ("firewall", Position::Early),
    ("route", Position::Route),
    ("process", Position::Late),
    ("monitor", Position::Late),
    ("security-out", Position::Late),
    ("schedule", Position::Queue),
    ("tap", Position::Copy),
];
