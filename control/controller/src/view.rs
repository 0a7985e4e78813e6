//! Views of control: the nouns of the interface, as they stand in JSON.

mod configuration;
mod control_plane;
mod counters;
mod flows;
mod gates;
mod halves;
mod hardware;
mod instances;
mod maps;
mod placement;
mod plugins;
mod ports;
mod routes;
mod schedulers;
mod status;
mod tokens;
mod trace;
mod upgrade;

pub use configuration::{
    AppliedView, ConfigurationView, ConfirmTime, DifferenceView, Pending, RevisionTextView, RevisionView,
};
pub use control_plane::{ControlClassView, ControlPlaneView, PortClassView};
pub use counters::{CountersView, PortCountersView};
pub use flows::{FlowView, FlowsView, LookupView, StepView};
pub use gates::{
    AmbiguousView, BindingView, CandidateView, GateCheckView, GateExplanationView, GateLinksView, GateView,
    NamedFilterView, ShadowedView,
};
pub use halves::{HostCompanionView, MessagesView};
pub use hardware::{CpuView, HardwarePortView, HardwareView, ProcessorView, SwitchView};
pub use instances::{HeldView, InstanceView, ReleaseView};
pub use maps::{MapEntryView, MapView};
pub use placement::{DriverBudgetView, PlacementView, PlacementsView};
pub use plugins::{DriverFormView, MapShapeView, PluginDetailView, PluginInterfaceView, PluginView};
pub use ports::{NeighbourView, PortView};
pub use routes::{NextHopView, QueuesView, RouteView};
pub use schedulers::{
    FlowQueueView, HostOutputView, QueueView, RemovedNodeView, SchedulerNodeView, SchedulerView,
};
pub use status::{
    ApplyingView, CrashView, DriverFlowsView, DropView, FlowStatesView, FlowTableView, MemoryView,
    MirrorView, MissingRouteView, MissingRoutesView, OnDeathView, StatusView, SummaryView, TurnsView,
};
pub use tokens::{CreatedTokenView, TokenView};
pub use trace::{DroppedView, RawFrame, TraceStepView, TraceView};
pub use upgrade::{ShadowView, UpgradeView};
