//! All that control can say to a worker, and all that a worker says back by itself.

use std::fmt;
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use ipnet::IpNet;
use millrace_classify::CompiledExpression;
use millrace_forward::Route;
use millrace_packet::{Exceptions, Family, FlowKey, Pool};
use millrace_plugin::{
    BindingCountsPage, BindingId, Failure, LoadedForm, PluginChange, ShadowReport, Succession, Successor,
};
use millrace_plugin_abi::{Instance, LogLevel, Message, Reply, Request};
use millrace_port::{Port, PortError};
use millrace_schedule::ScheduleError;
use millrace_units::{GateId, InstanceId, NextHopIndex, PortId, QueueAccount, QueueId};
use millrace_wire::Protocol;
use millrace_wire::mac_addr::MacAddr;

use crate::capture::CaptureSink;
use crate::driver_flows::{DriverCache, DriverPort, Placement, StaysUp};
use crate::drop_log::{DropQuery, DroppedPacket};
use crate::explain::Explanation;
use crate::gate_tables::{Published, WorkerTable};
use crate::host_output::HostSettings;
use crate::host_path::HostPath;
use crate::port_scheduler::{FlowQueueReport, NodesPage, Piece, ScheduleChange};
use crate::ports::{DeviceId, PortSettings};
use crate::snapshot::Snapshot;
use crate::trace::TraceSink;

/// Where the answer to a command goes. A worker never waits: an answer that nobody takes is lost.
pub type ReplyTo<T> = SyncSender<T>;

/// Opens a device, on the worker's thread and with its packet memory.
pub type OpenDevice = Box<dyn FnOnce(&Pool) -> Result<OpenedDevice, PortError> + Send>;

/// A device that was opened, with what control wants to know of it.
pub struct OpenedDevice {
    /// The device.
    pub port: Box<dyn Port>,
    /// Sockets by device queue, for the level-0 program.
    pub sockets: Vec<(u32, i32)>,
}

impl OpenedDevice {
    /// What is said of it to control.
    pub(crate) fn report(&self) -> DeviceReport {
        DeviceReport { capabilities: self.port.capabilities().clone(), sockets: self.sockets.clone() }
    }
}

/// A change, or a question, that a worker takes up between two batches.
pub enum Command {
    /// Opens a device under this id.
    AddDevice(DeviceId, OpenDevice, ReplyTo<Result<DeviceReport, PortError>>),
    /// Closes a device; packets that wait for it are dropped.
    RemoveDevice(DeviceId, ReplyTo<()>),
    /// Opens a device where what the kernel itself sends by a port is caught.
    AddHostOutput(PortId, HostSettings, OpenDevice, ReplyTo<Result<DeviceReport, PortError>>),
    /// Changes how that is taken.
    SetHostOutput(PortId, HostSettings),
    /// Closes that device, once all that waits there is taken.
    RemoveHostOutput(PortId, ReplyTo<()>),
    /// Adds a port or changes its settings.
    SetPort(PortId, PortSettings),
    /// Says what numbers of routes mean. No prefix has them before this is answered.
    SetRoutes(NumberedRoutes, ReplyTo<NumberedRoutes>),
    /// Says what numbers of routes mean that mean nothing any more: no prefix has had them since every worker has answered.
    ForgetRoutes(NumberedRoutes, ReplyTo<NumberedRoutes>),
    /// Asks of which routes packets wait in queues, a bounded number of them, from one on.
    WaitingRoutes(NextHopIndex, ReplyTo<WaitingRoutes>),
    /// Asks what routes gave to queues, and what became of it, in the order of their numbers here: a bounded number of them.
    CountRoutes(Vec<NextHopIndex>, ReplyTo<Vec<QueueAccount>>),
    /// Asks what was counted at bindings, a bounded number of them, from one on.
    CountFilters(BindingId, ReplyTo<BindingCountsPage>),
    /// Sets what routes sent to zero, of a bounded number of them, from one on; says where the next ones begin.
    ClearRoutes(NextHopIndex, ReplyTo<Option<NextHopIndex>>),
    /// The same of what went through bindings.
    ClearFilters(BindingId, ReplyTo<Option<BindingId>>),
    /// Says that the routes to these prefixes have changed, in the table that workers read.
    RoutesChanged(Vec<RouteChange>),
    /// Says what the kernel knows of neighbours.
    SetNeighbours(Vec<NeighbourChange>),
    /// Asks which neighbours of kernel ports, and of those whose devices are other workers', were used since they were last told, a
    /// bounded number of them.
    TakeUsedNeighbours(ReplyTo<UsedNeighbours>),
    /// Changes instances, gates and bindings, all of it before the next packet.
    Plugins(Vec<PluginChange<Published>>),
    /// Gives a gate another table with the same filters.
    SetTable(GateId, WorkerTable),
    /// Sends a control message to an instance.
    Control(InstanceId, Message, ReplyTo<Option<Reply>>),
    /// Hands an instance a message of the other half of its plugin.
    Message(InstanceId, Vec<u8>),
    /// Puts another instance in the place of one.
    Succeed(InstanceId, Successor, ReplyTo<Option<Succession>>),
    /// Tries an instance out on copies of so many packets of one.
    Shadow(InstanceId, Box<dyn Instance>, u64, ReplyTo<Option<ShadowReport>>),
    /// Changes the scheduler of a port, one change after the other until one is refused, if this worker has its device. A long list
    /// comes in pieces, each of which is answered: packets wait for one of them at most.
    Schedule(PortId, Vec<ScheduleChange>, Piece, ReplyTo<Result<(), ScheduleError>>),
    /// Says which flows something is reserved for, in place of those before: their records are displaced by no other flow's.
    ReserveFlows(Vec<FlowKey>),
    /// Asks for the nodes of a port's scheduler, a bounded part of them, from a number on.
    ShowNodes(PortId, u32, ReplyTo<NodesPage>),
    /// Asks for the queues of flows of a leaf of a port, a bounded part of them, from one on.
    ShowQueues(PortId, QueueId, usize, ReplyTo<Result<Vec<FlowQueueReport>, ScheduleError>>),
    /// Asks in which leaf of a port's scheduler packets wait that name a queue; none where the port has no scheduler, or is
    /// another worker's.
    FindLeaf(PortId, QueueId, ReplyTo<Option<QueueId>>),
    /// Ends such a trial; what came of it is the answer to its beginning.
    EndShadow(InstanceId),
    /// Starts a capture.
    StartCapture(Box<CaptureSink>),
    /// Ends the capture of that number.
    StopCapture(u32),
    /// Starts a trace, in the place of one that goes on.
    StartTrace(Box<TraceSink>),
    /// Ends the trace of that number.
    StopTrace(u32),
    /// Asks for the last packets that were dropped.
    LastDrops(DropQuery, ReplyTo<Vec<DroppedPacket>>),
    /// Asks what would happen to a packet of that key.
    Explain(Question, ReplyTo<Explanation>),
    /// Asks for flow records, a bounded part of the table at a time.
    ScanFlows(FlowScan, ReplyTo<FlowPage>),
    /// Forgets flows, a bounded part of the table at a time. Their next packets are classified anew.
    FlushFlows(FlowScan, ReplyTo<FlowPage>),
    /// Has what the driver did so far told to flows, routes and filters, a bounded number of entries, from one on; says where the next
    /// ones begin. What is cleared after that has nothing of it.
    TellDriven(u32, ReplyTo<Option<u32>>),
    /// Asks for all counters.
    Snapshot(ReplyTo<Snapshot>),
    /// The same without schedulers, EtherTypes and neighbours, which may be long: what can be asked for every moment.
    Counters(ReplyTo<Snapshot>),
    /// Sets all counters to zero, but for those of routes and bindings, of which there may be many.
    ClearCounters,
    /// Sets the worker's part of the flow cache that the driver forwards by.
    SetDriverCache(Box<dyn DriverCache>),
    /// Says what the driver can do at a port.
    SetDriverPort(PortId, DriverPort),
    /// Says where flows are wanted: the first that concerns a flow counts.
    PlaceFlows(Vec<Placement>),
    /// Says what form for the driver an instance has.
    SetDriverForm(InstanceId, Option<LoadedForm>),
    /// Sets the way back to the kernel.
    SetHostPath(Box<dyn HostPath + Send>),
    /// Changes what holds for the whole router.
    SetOptions(crate::options::Options),
    /// Ends the worker once what it holds is sent or dropped.
    Stop,
}

/// Which part of the flow table is to be looked at, and for which flows.
#[derive(Clone, Debug)]
pub struct FlowScan {
    /// Where the part before ended; 0 at first.
    pub from: u32,
    /// How many records are looked at, at most, whether they are of such flows or not.
    pub records: u32,
    /// The flows: those of which some packet may match.
    pub filter: CompiledExpression,
}

/// The flows in a part of the table.
#[derive(Clone, Debug, Default)]
pub struct FlowPage {
    /// The flows that were found (or, by [`Command::FlushFlows`], forgotten).
    pub flows: Vec<FlowReport>,
    /// Where the next part begins; `None` at the end.
    pub next: Option<u32>,
}

/// What is known of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowReport {
    /// Its six-tuple.
    pub key: FlowKey,
    /// The fields that vary inside the flow, as filters tell its packets apart; 0 where none does.
    pub varying: u32,
    /// Those fields: the bits of `varying` that filters look at.
    pub varying_mask: u32,
    /// Packets since the record was made.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
    /// How long the record has been there.
    pub age: Duration,
    /// How long ago the last packet came.
    pub idle: Duration,
    /// Whether it is new, and may be displaced by other new flows.
    pub probation: bool,
    /// Whether something is reserved for it, so that no other displaces it.
    pub reserved: bool,
    /// What it is bound to, in the order of the journey.
    pub bindings: Vec<BindingId>,
    /// Where it goes, in words with names of ports.
    pub route: String,
    /// The hash by which queues know it.
    pub hash: u32,
    /// Why it is not in the driver; `None` when it is there.
    pub stays_up: Option<StaysUp>,
    /// Whether somebody has said where it is to be.
    pub placed: bool,
}

/// A packet of which control asks what would become of it.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Its flow key.
    pub key: FlowKey,
    /// Its TCP flags.
    pub tcp_flags: Option<u8>,
    /// Its differentiated services code point.
    pub dscp: u8,
    /// Its plugin tag.
    pub tag: u8,
    /// What is exceptional about it.
    pub exceptions: Exceptions,
    /// Its length from the network header on.
    pub length: u16,
}

impl Question {
    /// Whether its IPv6 extension headers can't be read up to its transport header: the header where the walk ended stands for the
    /// protocol.
    pub fn hides_transport(&self) -> bool {
        let is_extension = matches!(
            Protocol(self.key.protocol),
            Protocol::HOP_BY_HOP
                | Protocol::ROUTING
                | Protocol::FRAGMENT
                | Protocol::AH
                | Protocol::DESTINATION_OPTIONS
        );
        self.key.family() == Family::V6 && is_extension && self.exceptions.contains(Exceptions::CUT)
    }
}

/// What a worker says of a device that it opened.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// What the device is and can do.
    pub capabilities: millrace_port::Capabilities,
    /// Sockets by device queue, for the level-0 program.
    pub sockets: Vec<(u32, i32)>,
}

/// A prefix whose route has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteChange {
    /// The prefix.
    pub prefix: IpNet,
    /// Whether it is now one of the router's own addresses, or a broadcast address: no packet may come from there.
    pub own: bool,
}

/// What became known of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourChange {
    /// The port it is behind.
    pub port: PortId,
    /// Its address.
    pub address: IpAddr,
    /// What is known.
    pub state: NeighbourKnowledge,
}

/// Neighbours that were used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsedNeighbours {
    /// Their ports and addresses.
    pub used: Vec<(PortId, IpAddr)>,
    /// Whether there are more to be asked for.
    pub more: bool,
}

/// What is known of a neighbour's link address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourKnowledge {
    /// It has this address.
    Known(MacAddr),
    /// It does not answer.
    Failed,
    /// It has this address for good: only for ports without a kernel.
    Static(MacAddr),
    /// Nothing any more.
    Forgotten,
    /// Packets wait for it at another worker: who has the port's device finds out. Only for ports without a kernel.
    Wanted,
    /// Another worker has sent packets to it. Only for ports without a kernel, and for who has their device.
    Used,
}

/// What a worker tells control without being asked.
#[derive(Clone, Debug)]
pub enum Event {
    /// Packets wait for this neighbour of a kernel port, or of one whose device is another worker's.
    Resolve(PortId, IpAddr),
    /// What became known of a neighbour of a port without a kernel, for control and the other workers.
    Neighbour(NeighbourChange),
    /// Another station claims an address of an own-stack port.
    AddressConflict(PortId, IpAddr, MacAddr),
    /// An instance of a plugin has a line for the log.
    InstanceSays(InstanceId, LogLevel, String),
    /// An instance of a plugin wants something changed.
    InstanceRequests(InstanceId, Request),
    /// An instance of a plugin has a message for the other half of it.
    InstanceSends(InstanceId, Vec<u8>),
    /// An instance of a plugin failed.
    InstanceFailed(Failure),
}

/// Routes with their numbers. Workers put those that were there before in the place of new ones, and give them back: memory
/// is freed where it was taken, and no packet waits for that.
pub type NumberedRoutes = Vec<(NextHopIndex, Route)>;

/// The routes of which packets wait, and where to go on asking.
pub type WaitingRoutes = (Vec<NextHopIndex>, Option<NextHopIndex>);

/// Routes or neighbours that are changed before the next command is taken up without a batch between.
const FEW: usize = 4;

impl Command {
    /// Whether it takes no more than a few microseconds, so that others may follow before the next batch. All others are bounded too: none
    /// takes longer than packets may wait.
    pub(crate) fn is_small(&self) -> bool {
        match self {
            Self::SetRoutes(routes, _) | Self::ForgetRoutes(routes, _) => routes.len() <= FEW,
            Self::RoutesChanged(changes) => changes.len() <= FEW,
            Self::SetNeighbours(changes) => changes.len() <= FEW,
            Self::Plugins(changes) => changes.len() <= FEW,
            Self::SetTable(..)
            | Self::FindLeaf(..)
            | Self::SetHostOutput(..)
            | Self::SetDriverPort(..)
            | Self::EndShadow(_)
            | Self::StopCapture(_)
            | Self::StopTrace(_)
            | Self::Stop => true,
            _ => false,
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddDevice(..) => "AddDevice",
            Self::RemoveDevice(..) => "RemoveDevice",
            Self::AddHostOutput(..) => "AddHostOutput",
            Self::SetHostOutput(..) => "SetHostOutput",
            Self::RemoveHostOutput(..) => "RemoveHostOutput",
            Self::SetPort(..) => "SetPort",
            Self::SetRoutes(..) => "SetRoutes",
            Self::ForgetRoutes(..) => "ForgetRoutes",
            Self::WaitingRoutes(..) => "WaitingRoutes",
            Self::CountRoutes(..) => "CountRoutes",
            Self::CountFilters(..) => "CountFilters",
            Self::ClearRoutes(..) => "ClearRoutes",
            Self::ClearFilters(..) => "ClearFilters",
            Self::TellDriven(..) => "TellDriven",
            Self::RoutesChanged(..) => "RoutesChanged",
            Self::SetNeighbours(..) => "SetNeighbours",
            Self::TakeUsedNeighbours(..) => "TakeUsedNeighbours",
            Self::Plugins(..) => "Plugins",
            Self::SetTable(..) => "SetTable",
            Self::Control(..) => "Control",
            Self::Message(..) => "Message",
            Self::Succeed(..) => "Succeed",
            Self::Shadow(..) => "Shadow",
            Self::FindLeaf(..) => "FindLeaf",
            Self::EndShadow(..) => "EndShadow",
            Self::Schedule(..) => "Schedule",
            Self::ReserveFlows(..) => "ReserveFlows",
            Self::ShowNodes(..) => "ShowNodes",
            Self::ShowQueues(..) => "ShowQueues",
            Self::StartCapture(..) => "StartCapture",
            Self::StopCapture(..) => "StopCapture",
            Self::StartTrace(..) => "StartTrace",
            Self::StopTrace(..) => "StopTrace",
            Self::LastDrops(..) => "LastDrops",
            Self::Explain(..) => "Explain",
            Self::ScanFlows(..) => "ScanFlows",
            Self::FlushFlows(..) => "FlushFlows",
            Self::Snapshot(..) => "Snapshot",
            Self::Counters(..) => "Counters",
            Self::ClearCounters => "ClearCounters",
            Self::SetDriverCache(..) => "SetDriverCache",
            Self::SetDriverPort(..) => "SetDriverPort",
            Self::PlaceFlows(..) => "PlaceFlows",
            Self::SetDriverForm(..) => "SetDriverForm",
            Self::SetHostPath(..) => "SetHostPath",
            Self::SetOptions(..) => "SetOptions",
            Self::Stop => "Stop",
        })
    }
}
