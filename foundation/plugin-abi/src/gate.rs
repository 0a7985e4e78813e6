//! Gates: positions in the packet's journey at which instances are bound.

use std::fmt;
use std::str::FromStr;

/// Position in the packet's journey. Each position may have any number of gates in a configured order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Position {
    /// Before the route lookup.
    Early,
    /// At the choice of the route.
    Route,
    /// After the choice of the route, before queueing.
    Late,
    /// At the choice of the queue.
    Queue,
    /// On copies of the packet.
    Copy,
}

impl Position {
    /// Every position, in the order of the journey.
    pub const ALL: [Self; 5] = [Self::Early, Self::Route, Self::Late, Self::Queue, Self::Copy];

    /// Returns the position's name in commands and files.
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

/// Predefined gates, in the order of the journey.
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
