//! Gates, paths and the instances bound to them.
//!
//! The crate has two sides. The **control side**, [`PluginControlUnit`], knows the types of plugins, the
//! names of instances and gates, and all bindings. It checks each request and returns the resulting
//! [`PluginChange`]s.
//!
//! The **worker side**, [`WorkerPlugins`], owns the instances. Only these changes modify it, between two
//! batches; applying a change can't fail. The worker side finds a flow's *path*, the list of the flow's
//! bindings, and passes groups of packets along the path.
//!
//! This crate defines neither the syntax of filters nor the search for them: the worker side is generic over
//! a [`BindingTable`], the control side over the filter as written and as compiled.
#![deny(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod call_limits;
mod connection_state;
mod control_error;
mod declaration;
mod execution;
mod fault;
mod flow_state;
mod gate;
mod offload_steps;
mod path;
mod plugin_control_unit;
mod policer;
mod principal_memory;
mod runtime;
mod slab;

pub use call_limits::{CallLimits, OnFault, ProcessorWait};
pub use connection_state::{ConnectionEnd, ConnectionStates, PackedConnection};
pub use control_error::PluginControlError;
pub use declaration::limits::Limits;
pub use declaration::manifest::{
    ANY_KIND, Cost, DeclaredCalls, DeclaredState, KindCost, MOST_CONTEXTS, MOST_FLOW_STATE, MOST_MANIFEST,
    MOST_NAME, MOST_SERVICE_STATE, Manifest, ManifestError,
};
pub use declaration::settings::{instances_named, without_router};
pub use declaration::with_companion::WithCompanion;
pub use execution::binding::{Action, BindingCounts, BindingCountsPage, BindingId, BindingTable, Way};
pub use execution::bindings::{Bindings, WorkerGate};
pub use execution::calls::{
    CycleClock, DriverCharge, Grant, Group, InLineCharge, Stop, TrackConnections, TrackedPacket, Tracking,
    Watch,
};
pub use execution::change::{PluginChange, Remains};
pub use execution::classify::{Classified, GateResult, Standing};
pub use execution::direction::Direction;
pub use execution::ended_stages::EndedStages;
pub use execution::health::{FaultHistory, Health};
pub use execution::instances::{
    CostHistogram, Failure, Given, InstanceReport, Instances, MessageCounts, Reported, ShadowReport,
};
pub use execution::paid_stages::{Intake, PaidStage, PaidStages};
pub use execution::payers::{Paid, Payers};
pub use execution::pulse::{Calling, Pulse};
pub use execution::succession::{Claim, Inheritance, Inherited, Successed, Succession, Successor};
pub use execution::waiting::{
    Answer, AwaitedContext, End, Kept, PassedOn, Place, Released, Served, Taken, Ticket, Waiting,
};
pub use execution::worker_plugins::{BindingTreatment, ConnectionKeepers, WorkerPlugins};
pub use flow_state::{FlowStateBlocks, FlowStateCounts, StateRef};
pub use gate::{Gate, GateOrder};
pub use offload_steps::{LoadedVariant, MOST_OFFLOAD_STEPS, OffloadRefusal, OffloadStep, OffloadSteps};
pub use path::{EMPTY_PATH, Paths, Refusal};
pub use plugin_control_unit::{
    BindingDescription, BindingRegistry, Bound, CreationOrder, GateDescription, HeldMaps, HostCompanion,
    InstanceDescription, InstanceNames, InstanceRegistry, PluginCode, PluginControlUnit, PluginDescription,
    PluginRegistry, PluginStatement, Successors, cycle_error,
};
pub use policer::{Policer, SharedBucket};
pub use principal_memory::PrincipalMemory;
pub use runtime::{native, process, wasm};

/// Returns the manifest of a plugin file without running its code. The first bytes tell whether the file is a
/// WebAssembly module or a shared object.
pub fn manifest_of(plugin: &[u8]) -> Result<Manifest, String> {
    if native::is_object(plugin) {
        return native::manifest(plugin).map_err(|error| error.to_string());
    }
    wasm::inspect(plugin).map(|inspected| inspected.manifest).map_err(|error| error.to_string())
}
