//! Outputs of instances other than verdicts.

use millrace_units::PortId;

use crate::binary::REQUEST_CAPABILITIES;

/// Output of an instance, other than a verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Log line.
    Log(LogLevel, String),
    /// Packet that the instance has made. The router forwards it as if `port` had received it.
    Packet {
        /// Bytes of the packet, from the network header on.
        bytes: Vec<u8>,
        /// Ingress port of the packet.
        port: PortId,
        /// Number of passes: how often the packets that led to this packet were classified again or made by
        /// plugins. If the call that made this packet had several packets, the one with the most passes
        /// counts. In a call without packets, those count that the instance processed lately.
        passes: u8,
    },
    /// Message from an instance to its host companion, or back.
    Message(Vec<u8>),
    /// Request for a change, which control carries out later.
    Request(Request),
}

/// Request of an instance for a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Requested change, as JSON.
    pub json: String,
    /// Kinds of changes that the plugin may request.
    pub granted: RequestKinds,
}

/// Set of the kinds of changes that a plugin may request.
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
    /// Principals, and reservations for flows. They change limits that protect the router itself, so only the
    /// capability of this kind permits them.
    pub const PRINCIPALS: Self = Self(16);
    /// Capability that permits requests of all kinds except [`PRINCIPALS`](Self::PRINCIPALS).
    pub const ALL: &str = "request";
    /// Capabilities that permit requests of one kind each.
    pub const CAPABILITIES: [(&str, Self); 5] = [
        (REQUEST_CAPABILITIES[0], Self::FILTERS),
        (REQUEST_CAPABILITIES[1], Self::ROUTES),
        (REQUEST_CAPABILITIES[2], Self::QUEUES),
        (REQUEST_CAPABILITIES[3], Self::INSTANCES),
        (REQUEST_CAPABILITIES[4], Self::PRINCIPALS),
    ];

    /// Returns the kinds that the capabilities permit.
    pub fn of(capabilities: &[&str]) -> Self {
        let allowed = |name: &str, kind: Self| {
            let by_all = |own: &str| own == Self::ALL && kind != Self::PRINCIPALS;
            capabilities.iter().any(|own| *own == name || by_all(own))
        };
        let kinds = Self::CAPABILITIES.iter().filter(|(name, kind)| allowed(name, *kind));
        Self(kinds.fold(0, |all, (_, kind)| all | kind.0))
    }

    /// Returns whether the set contains all kinds in `kind`.
    pub fn contains(self, kind: Self) -> bool {
        self.0 & kind.0 == kind.0
    }

    /// Returns the capability that permits a single kind.
    pub fn capability(self) -> &'static str {
        Self::CAPABILITIES.iter().find(|(_, kind)| *kind == self).map_or(Self::ALL, |(name, _)| name)
    }
}

/// Severity of a log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Failure.
    Error,
    /// Possible problem.
    Warning,
    /// Normal event.
    Information,
    /// Details for the author of the plugin.
    Debug,
}

impl LogLevel {
    /// Returns the log level of a number in the binary interface; numbers above 3 mean
    /// [`Debug`](Self::Debug).
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Error,
            1 => Self::Warning,
            2 => Self::Information,
            _ => Self::Debug,
        }
    }
}
