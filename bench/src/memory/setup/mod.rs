//! A router between ports in memory, with routes and a neighbour, and the packets that go through it.

mod asked;
mod gates;
mod packets;
mod pipeline;
mod place;
mod routes;
mod source;

pub(crate) use self::packets::{Chosen, flow, frame, frames, network};
pub(crate) use self::pipeline::{Pipeline, SEED};
pub(crate) use self::place::Place;
pub(crate) use self::routes::RouteWriter;
pub(crate) use self::source::Source;

use std::time::Duration;

use super::traffic::{Distribution, Size};
use crate::BenchError;

/// The port that packets come by, and the one that they leave by, unless there are several workers.
const IN: Place = Place::numbered(0);
const OUT: Place = Place::numbered(1);
pub(crate) const IN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const OUT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const MTU: u16 = 1500;
/// Routes in the table unless it is said otherwise.
const ROUTES: u32 = 1000;
/// Flows whose packets come between each other's.
pub(crate) const ABREAST: usize = 64;
/// How far the virtual clock moves on with each round.
const STEP: Duration = Duration::from_micros(10);

/// What the packets of a case meet on their way, and how they follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    /// The gates.
    pub gates: GatesSetup,
    /// Packets of a flow that come in one go, with those of [`ABREAST`] others.
    pub flow_packets: u32,
    /// Flows that the router remembers at most; 0 for none.
    pub flows_max: u32,
    /// Further flows, which have every fourth packet.
    pub established: u32,
    /// New flows that are classified in a batch when much comes.
    pub new_flows: u16,
    /// Routes in the table, of 24 bits (IPv6: 64): all over one next hop, and flows go to all of them.
    pub routes: u32,
    /// Where packets wait before they leave.
    pub queue: QueueSetup,
    /// One in so many packets is traced; 0 for none.
    pub traced: u32,
    /// How often each flow comes.
    pub distribution: Distribution,
    /// How long packets are.
    pub size: Size,
}

/// The queue of the port that packets leave by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueSetup {
    /// That of the port: first in, first out.
    Fifo,
    /// A scheduler with a queue for each flow, by deficit round robin.
    PerFlow,
}

/// The gates of a router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GatesSetup {
    /// None at all.
    None,
    /// Three, at which nothing is bound.
    Empty,
    /// Three, at each of which every flow is bound to an instance of `null`.
    Null,
    /// Three, each with so many filters in the style of access lists, bound to `null`.
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
        }
    }
}

impl Setup {
    /// A word that [`of_word`](Self::of_word) reads: gates, packets of a flow, most flows, routes, queue,
    /// traces, distribution and size.
    /// Floods have none.
    pub fn word(self) -> String {
        let gates = match self.gates {
            GatesSetup::None => "none".to_owned(),
            GatesSetup::Empty => "empty".to_owned(),
            GatesSetup::Null => "null".to_owned(),
            GatesSetup::Filters(count) => count.to_string(),
        };
        let queue = if self.queue == QueueSetup::Fifo { "fifo" } else { "perflow" };
        let Self { flow_packets, flows_max, routes, traced, distribution, size, .. } = self;
        format!("{gates}-{flow_packets}-{flows_max}-{routes}-{queue}-{traced}-{distribution}-{size}")
    }

    /// The setup of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        let mut words = word.split('-');
        let gates = match words.next()? {
            "none" => GatesSetup::None,
            "empty" => GatesSetup::Empty,
            "null" => GatesSetup::Null,
            count => GatesSetup::Filters(count.parse().ok()?),
        };
        let (flow_packets, flows_max) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let routes = words.next()?.parse().ok()?;
        let queue = match words.next()? {
            "fifo" => QueueSetup::Fifo,
            "perflow" => QueueSetup::PerFlow,
            _ => return None,
        };
        let traced = words.next()?.parse().ok()?;
        let (distribution, size) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let setup = Self {
            gates,
            flow_packets,
            flows_max,
            routes,
            queue,
            traced,
            distribution,
            size,
            ..Self::default()
        };
        words.next().is_none().then_some(setup)
    }
}

fn failed(error: impl std::error::Error) -> BenchError {
    BenchError::measurement("gates", error.to_string())
}
