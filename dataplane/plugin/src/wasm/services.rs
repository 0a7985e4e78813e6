//! What the router does for a plugin beyond its packets: the functions that need more than the call.

use millrace_units::PortId;

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
    /// The level of a number of the interface; those above 3 are [`Debug`](Self::Debug) too.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Error,
            1 => Self::Warning,
            2 => Self::Information,
            _ => Self::Debug,
        }
    }
}

/// What an instance may ask of the router. Only what its manifest names is ever called, and it is called in the worker:
/// nothing here waits.
pub trait Services: Send {
    /// A line for the log. At most ten a second get here.
    fn log(&mut self, level: LogLevel, text: &str);

    /// Makes a packet of `bytes`, from the network header on, as if it came in by `port`. Returns whether there was memory.
    fn make_packet(&mut self, bytes: &[u8], port: PortId) -> bool;

    /// Packets of a flow that wait to be sent.
    fn flow_backlog(&mut self, flow: u32) -> u32;

    /// Takes a change up that control makes later: JSON. Returns whether it was accepted.
    fn request(&mut self, json: &str) -> bool;
}

/// A router that does nothing: logs go nowhere, packets and changes are refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServices;

impl Services for NoServices {
    fn log(&mut self, _level: LogLevel, _text: &str) {}

    fn make_packet(&mut self, _bytes: &[u8], _port: PortId) -> bool {
        false
    }

    fn flow_backlog(&mut self, _flow: u32) -> u32 {
        0
    }

    fn request(&mut self, _json: &str) -> bool {
        false
    }
}
