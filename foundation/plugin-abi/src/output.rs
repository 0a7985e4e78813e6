//! What instances give beside verdicts.

use millrace_units::PortId;

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
    /// A change that it wants: JSON. Control makes it later.
    Request(String),
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
