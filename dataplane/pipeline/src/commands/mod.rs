//! Commands of control to a worker, one enum for each receiver.
//!
//! Control names the receiver ([`Command`]) and one of its commands (such as [`RouteCommand`]). Each receiver
//! matches its enum without a catch-all arm, and each enum has two exhaustive methods. `invalidation`
//! declares the flow records and offloaded flows that the command makes stale; `is_small` declares whether it
//! is cheap. So a new command compiles only once it is carried out and both declarations exist.

mod connections;
mod counters;
mod devices;
mod filters;
mod flows;
mod neighbours;
mod observation;
mod offload;
mod options;
mod plugins;
mod ports;
mod principals;
mod routes;
mod schedulers;

use std::fmt;
use std::sync::mpsc::SyncSender;

pub use self::connections::ConnectionCommand;
pub use self::counters::CounterCommand;
pub use self::devices::{DeviceCommand, DeviceReport, OpenDevice, OpenedDevice};
pub use self::filters::FilterCommand;
pub use self::flows::FlowCommand;
pub use self::neighbours::NeighbourCommand;
pub use self::observation::ObservationCommand;
pub use self::offload::OffloadCommand;
pub(crate) use self::options::set_options;
pub use self::plugins::PluginCommand;
pub use self::ports::PortCommand;
pub(crate) use self::ports::set_port;
pub use self::principals::PrincipalCommand;
pub use self::routes::RouteCommand;
pub use self::schedulers::SchedulerCommand;
use crate::offloaded_flows::Invalidation;
use crate::options::Options;

/// Channel on which a worker answers a command. The worker never waits: if nobody receives the answer, it is
/// lost.
pub type ReplyTo<T> = SyncSender<T>;

/// Sends the answer to a command. If control has stopped waiting, the answer is lost.
pub(crate) fn answer<T>(reply: &ReplyTo<T>, answer: T) {
    let _ = reply.try_send(answer);
}

/// Maximum number of routes, neighbours or filters in a small command. A worker may carry out further
/// commands after a small one before the next batch.
const FEW: usize = 4;

/// Command that a worker carries out between two batches. Each variant is a receiver, and holds one of its
/// commands.
pub enum Command {
    /// Devices of the worker.
    Devices(DeviceCommand),
    /// Ports of the router.
    Ports(PortCommand),
    /// Routes by their numbers.
    Routes(RouteCommand),
    /// Table of neighbours.
    Neighbours(NeighbourCommand),
    /// Tables and counters of filters.
    Filters(FilterCommand),
    /// Gates, bindings and instances of plugins.
    Plugins(PluginCommand),
    /// Principals, and their shares of the processor.
    Principals(PrincipalCommand),
    /// Schedulers of ports.
    Schedulers(SchedulerCommand),
    /// Flow table.
    Flows(FlowCommand),
    /// Connections.
    Connections(ConnectionCommand),
    /// Offload of flows.
    Offload(OffloadCommand),
    /// Captures, traces and questions about packets.
    Observation(ObservationCommand),
    /// Counters of the worker.
    Counters(CounterCommand),
    /// Options of the whole router.
    Options(Options),
    /// Barrier: answered once all commands before it are in force.
    Barrier(ReplyTo<()>),
    /// Ends the worker after it has sent or dropped the packets that it holds.
    Stop,
}

impl Command {
    /// Returns the flow records and offloaded flows that the command makes stale.
    pub(crate) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            Self::Devices(command) => command.invalidation(),
            Self::Ports(command) => command.invalidation(),
            Self::Routes(command) => command.invalidation(),
            Self::Neighbours(command) => command.invalidation(),
            Self::Filters(command) => command.invalidation(),
            Self::Plugins(command) => command.invalidation(),
            Self::Principals(command) => command.invalidation(),
            Self::Schedulers(command) => command.invalidation(),
            Self::Flows(command) => command.invalidation(),
            Self::Connections(command) => command.invalidation(),
            Self::Offload(command) => command.invalidation(),
            Self::Observation(command) => command.invalidation(),
            // Martians, route priority and the size of the flow table affect every flow.
            Self::Options(_) => Invalidation::Records,
            Self::Counters(_) | Self::Barrier(_) | Self::Stop => Invalidation::Nothing,
        }
    }

    /// Returns whether the command takes a few microseconds at most, so that further commands may follow
    /// before the next batch. Larger commands are bounded too, by the time that packets may wait.
    pub(crate) fn is_small(&self) -> bool {
        match self {
            Self::Ports(command) => command.is_small(),
            Self::Routes(command) => command.is_small(),
            Self::Neighbours(command) => command.is_small(),
            Self::Filters(command) => command.is_small(),
            Self::Plugins(command) => command.is_small(),
            Self::Principals(command) => command.is_small(),
            Self::Schedulers(command) => command.is_small(),
            Self::Offload(command) => command.is_small(),
            Self::Observation(command) => command.is_small(),
            Self::Devices(_)
            | Self::Flows(_)
            | Self::Connections(_)
            | Self::Counters(_)
            | Self::Options(_) => false,
            Self::Barrier(_) | Self::Stop => true,
        }
    }
}

/// Implements `From` for each receiver's commands, and [`Debug`](fmt::Debug), which writes the receiver's
/// name.
macro_rules! receivers {
    ($($receiver:ident($command:ty)),* $(,)?) => {
        $(
            impl From<$command> for Command {
                fn from(command: $command) -> Self {
                    Self::$receiver(command)
                }
            }
        )*

        impl fmt::Debug for Command {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$receiver(_) => stringify!($receiver),)*
                    Self::Barrier(_) => "Barrier",
                    Self::Stop => "Stop",
                })
            }
        }
    };
}

receivers!(
    Devices(DeviceCommand),
    Ports(PortCommand),
    Routes(RouteCommand),
    Neighbours(NeighbourCommand),
    Filters(FilterCommand),
    Plugins(PluginCommand),
    Principals(PrincipalCommand),
    Schedulers(SchedulerCommand),
    Flows(FlowCommand),
    Connections(ConnectionCommand),
    Offload(OffloadCommand),
    Observation(ObservationCommand),
    Counters(CounterCommand),
    Options(Options),
);
