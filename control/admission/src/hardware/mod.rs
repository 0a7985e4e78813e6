//! Hardware of a router as a graph of processors, switches and ports (VERA, sections 2.2 and 4.2).

mod check;
mod error;
mod file;
mod known;
mod measured;
mod routes;

use std::collections::BTreeSet;

use crate::component::{Component, Role};

pub use error::{Fault, HardwareError};
pub use file::{Modes, Transfer};
pub use known::{KNOWN, known};
pub use measured::{Line, Measured, MeasuredPort, Offload};

/// Checked description of a router's hardware.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// Name of the hardware.
    pub name: String,
    /// Sizes of packets.
    pub packet: Packet,
    /// Processors, in the order of the file.
    pub processors: Vec<Processor>,
    /// Groups of equal ports.
    pub ports: Vec<Port>,
    /// Switches between processors and ports.
    pub switches: Vec<Switch>,
    /// Paths between neighbours in the graph.
    pub paths: Vec<Path>,
    /// Everything that can run out, with its limit.
    pub components: Vec<Component>,
    /// For each port and processor, the paths from the port to the processor; `None` where there are none.
    routes: Vec<Vec<Option<Vec<usize>>>>,
}

/// Sizes of packets in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Smallest packet.
    pub minimum: f64,
    /// Largest packet.
    pub maximum: f64,
    /// Part of a packet that a service sees which asks only for headers.
    pub header: f64,
    /// Bytes that each transfer over a path carries beside the packet.
    pub overhead: f64,
}

/// Processor.
#[derive(Clone, Debug)]
pub struct Processor {
    /// Name.
    pub name: String,
    /// Kind, by which services declare their cycles.
    pub kind: String,
    /// Machine or line card that the processor belongs to.
    pub machine: String,
    /// Budget of cycles.
    pub cycles: Cycles,
    /// Cycles of the router itself per packet that enters the processor.
    pub environment: f64,
    /// Memory for services in bytes; `None` where it is no limit.
    pub memory: Option<f64>,
    /// Slots for services' code; `None` where they are no limit.
    pub code: Option<f64>,
    /// Index of the component `memory`, and of `code`.
    pub(crate) stores: [Option<usize>; 2],
}

/// Budget of a processor's cycles, with the index of its component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cycles {
    /// Cycles for each packet, in the worst case: all global services, and the dearest service of a flow.
    Static {
        /// Cycles per packet.
        per_packet: f64,
        /// Index of the sum of global services; the maximum of flows' services and the total follow it.
        global: usize,
    },
    /// Cycles per second, by averages.
    Dynamic {
        /// Cycles per second.
        per_second: f64,
        /// Index of the component.
        used: usize,
    },
    /// Cycles per second: global services in their worst case at line rate, services of flows by averages.
    Mixed {
        /// Cycles per second.
        per_second: f64,
        /// Packets per second at which global services run.
        line_rate: f64,
        /// Index of the component.
        used: usize,
    },
}

/// Group of equal ports.
#[derive(Clone, Debug)]
pub struct Port {
    /// Name.
    pub name: String,
    /// Number of ports.
    pub count: f64,
    /// Whether input and output have the line each to itself.
    pub full_duplex: bool,
    /// Nanoseconds on the line per packet.
    pub packet_ns: f64,
    /// Nanoseconds on the line per byte.
    pub byte_ns: f64,
    /// Index of the component of input; that of output follows it if the port is full duplex.
    pub(crate) input: usize,
}

/// Switch: a bus, a network or shared memory.
#[derive(Clone, Debug)]
pub struct Switch {
    /// Name.
    pub name: String,
    /// Bits per second; `None` where nothing limits them.
    pub bits: Option<f64>,
    /// Packets per second; `None` where nothing limits them.
    pub packets: Option<f64>,
    /// Index of the components of time, bits and packets.
    pub(crate) used: [Option<usize>; 3],
}

/// Path between two neighbours: from a port or a lower processor to a processor, and back.
#[derive(Clone, Debug)]
pub struct Path {
    /// Lower end.
    pub from: End,
    /// Index of the processor at the upper end.
    pub to: usize,
    /// Switches that each transfer crosses: index, and factor of the time there.
    pub switches: Vec<(usize, f64)>,
    /// Bytes that a packet needs on the path.
    pub transfer: Transfer,
    /// Modes of transfers towards the upper end, by size.
    pub up: Vec<Modes>,
    /// Modes of transfers towards the lower end, by size.
    pub down: Vec<Modes>,
}

/// Lower end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Index of a group of ports.
    Port(usize),
    /// Index of a processor.
    Processor(usize),
}

impl Path {
    /// Returns the seconds on the switches for a transfer of `bytes` there and one back; `None` where no mode carries
    /// them.
    #[must_use]
    pub fn seconds(&self, bytes: f64) -> Option<f64> {
        let seconds = |modes: &[Modes]| Some(modes.iter().find(|mode| mode.carries(bytes))?.seconds(bytes));
        Some(seconds(&self.up)? + seconds(&self.down)?)
    }
}

impl Processor {
    /// Whether a place is this processor or its machine, by name.
    #[must_use]
    pub fn is_in(&self, place: &str) -> bool {
        self.name == place || self.machine == place
    }
}

impl Hardware {
    /// Reads and checks a description in TOML.
    ///
    /// # Errors
    /// The first fault, with its line and key: unknown or missing keys, numbers that are negative, infinite or
    /// zero where they must not be, unknown names, names used twice, processors that no path reaches.
    pub fn parse(text: &str) -> Result<Self, HardwareError> {
        check::hardware(text)
    }

    /// Returns the paths from a group of ports to a processor; `None` where the processor can't be reached.
    #[must_use]
    pub fn route(&self, port: usize, processor: usize) -> Option<&[usize]> {
        self.routes.get(port)?.get(processor)?.as_deref()
    }

    /// Returns the index of a processor.
    #[must_use]
    pub fn processor(&self, name: &str) -> Option<usize> {
        self.processors.iter().position(|processor| processor.name == name)
    }

    /// Whether a machine or processor has this name.
    #[must_use]
    pub fn has_place(&self, place: &str) -> bool {
        self.processors.iter().any(|processor| processor.is_in(place))
    }

    /// Returns the names of all machines and processors.
    #[must_use]
    pub fn places(&self) -> BTreeSet<&str> {
        self.processors.iter().flat_map(|one| [one.machine.as_str(), one.name.as_str()]).collect()
    }

    /// Returns the index of a component.
    #[must_use]
    pub fn component(&self, name: &str) -> Option<usize> {
        self.components.iter().position(|component| component.name == name)
    }

    /// Returns a weight for each component: 0 for ports, `factor` for the component `scaled`, else 1
    /// (VERA, section 4.5.3).
    #[must_use]
    pub fn weights(&self, scaled: &str, factor: f64) -> Vec<f64> {
        let weight = |component: &Component| match component.role {
            Role::Port => 0.0,
            _ if component.name == scaled => factor,
            _ => 1.0,
        };
        self.components.iter().map(weight).collect()
    }
}
