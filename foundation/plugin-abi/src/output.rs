//! What instances give beside verdicts.

use millrace_units::PortId;

use crate::binary::REQUEST_CAPABILITIES;

/// Something that an instance gives to the router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// A line for the log.
    Log(LogLevel, String),
    /// A packet to be forwarded as if it came in by the port.
    Packet {
        /// From the network header on.
        bytes: Vec<u8>,
        /// The port.
        port: PortId,
        /// How often those were sent back to classification, or made, that the instance made it of: the most of any packet of
        /// its call.
        passes: u8,
    },
    /// A message to the other half of its plugin.
    Message(Vec<u8>),
    /// A change that it wants. Control makes it later.
    Request(Request),
}

/// A change that an instance wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What, as JSON.
    pub json: String,
    /// What its plugin may ask for.
    pub granted: RequestKinds,
}

/// Kinds of changes that plugins ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestKinds(u8);

impl RequestKinds {
    /// Filters, and bindings of instances.
    pub const FILTERS: Self = Self(1);
    /// Routes.
    pub const ROUTES: Self = Self(2);
    /// Queues, and nodes of schedulers.
    pub const QUEUES: Self = Self(4);
    /// Instances, and messages to them.
    pub const INSTANCES: Self = Self(8);
    /// The capability of all of them.
    pub const ALL: &str = "request";
    /// Capabilities of one kind each.
    pub const CAPABILITIES: [(&str, Self); 4] = [
        (REQUEST_CAPABILITIES[0], Self::FILTERS),
        (REQUEST_CAPABILITIES[1], Self::ROUTES),
        (REQUEST_CAPABILITIES[2], Self::QUEUES),
        (REQUEST_CAPABILITIES[3], Self::INSTANCES),
    ];

    /// The kinds that these capabilities allow.
    pub fn of(capabilities: &[&str]) -> Self {
        let allowed = |name: &str| capabilities.iter().any(|own| *own == name || *own == Self::ALL);
        let kinds = Self::CAPABILITIES.iter().filter(|(name, _)| allowed(name));
        Self(kinds.fold(0, |all, (_, kind)| all | kind.0))
    }

    /// Whether all of `kind` are among them.
    pub fn contains(self, kind: Self) -> bool {
        self.0 & kind.0 == kind.0
    }

    /// The capability that allows a single kind.
    pub fn capability(self) -> &'static str {
        Self::CAPABILITIES.iter().find(|(_, kind)| *kind == self).map_or(Self::ALL, |(name, _)| name)
    }
}

/// How much a line of the log matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warning,
    /// Something happened.
    Information,
    /// For who writes the plugin.
    Debug,
}

impl LogLevel {
    /// The level of a number of the binary interface; those above 3 are [`Debug`](Self::Debug) too.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Error,
            1 => Self::Warning,
            2 => Self::Information,
            _ => Self::Debug,
        }
    }
}
