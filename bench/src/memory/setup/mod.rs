//! Setup of a router with ports in memory, routes and a neighbour, and of its packets.

mod asked;
mod gates;
mod packets;
mod pipeline;
mod principals;
mod routes;
mod source;

pub(crate) use self::packets::{Chosen, first_flow, flow, frame, frame_of, frames, network};
pub(crate) use self::pipeline::{Pipeline, SEED};
pub(crate) use self::principals::CAPACITY;
pub(crate) use self::routes::RouteWriter;
pub(crate) use self::source::Source;

use std::time::Duration;

use millrace_pipeline::DeviceId;
use millrace_units::PortId;
use serde::{Deserialize, Serialize};

use super::traffic::{Distribution, Size};
use crate::BenchError;

/// Numbers of a device in memory and of its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub device: DeviceId,
    pub port: PortId,
}

impl Place {
    pub const fn numbered(number: u16) -> Self {
        Self { device: DeviceId(number), port: PortId(number) }
    }
}

/// Input port of a router with one worker.
const IN: Place = Place::numbered(0);
const OUT: Place = Place::numbered(1);
pub(crate) const IN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const OUT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const MTU: u16 = 1500;
/// Default number of routes.
const ROUTES: u32 = 1000;
/// Number of flows whose packets are interleaved.
pub(crate) const ABREAST: usize = 64;
/// Advance of the virtual clock per iteration.
const STEP: Duration = Duration::from_micros(10);

/// Router setup of a case, and the order of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Gates of the router.
    pub gates: GatesSetup,
    /// Number of packets that a flow sends before it ends. Packets of [`ABREAST`] flows at a time are
    /// interleaved.
    pub flow_packets: u32,
    /// Maximum number of flow records; 0 disables the flow table.
    pub flows_max: u32,
    /// Number of further flows, which together send every fourth packet.
    pub established: u32,
    /// Maximum number of new flows that the router classifies per batch under load.
    pub new_flows: u16,
    /// Number of routes, with 24-bit prefixes (IPv6: 64 bits). All use one next hop. Flows are distributed
    /// over all routes.
    pub routes: u32,
    /// Output queue of the packets.
    pub queue: QueueSetup,
    /// Tracing interval: one packet in this number is traced; 0 disables tracing.
    pub traced: u32,
    /// Frequency of each flow among the packets.
    pub distribution: Distribution,
    /// Packet size.
    pub size: Size,
    /// Maximum number of packets that the router receives per iteration, 1 to 256.
    pub batch: u16,
    /// Number of principals without packets; 0: the worker has no CPU scheduler.
    pub principals: u32,
}

/// Kind of queue at the output port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum QueueSetup {
    /// FIFO queue of the port.
    Fifo,
    /// Scheduler with a queue per flow, by deficit round robin.
    PerFlow,
}

/// Gates of the router, and their bindings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum GatesSetup {
    /// No gates.
    None,
    /// Three gates without bindings.
    Empty,
    /// Three gates that each bind every flow to an instance of `null`.
    Null,
    /// Three gates. Each has this number of filters in the style of access lists, bound to `null`.
    Filters(usize),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            gates: GatesSetup::None,
            flow_packets: 1,
            flows_max: 1 << 20,
            established: 0,
            new_flows: u16::MAX,
            routes: ROUTES,
            queue: QueueSetup::Fifo,
            traced: 0,
            distribution: Distribution::Uniform,
            size: Size::Shortest,
            batch: 256,
            principals: 0,
        }
    }
}

fn failed(error: impl std::error::Error) -> BenchError {
    BenchError::measurement("gates", error.to_string())
}
