//! Views: the objects that control reports, in their JSON form.

mod admission;
mod configuration;
mod connections;
mod control_plane;
mod counters;
mod flows;
mod hardware;
mod placement;
mod plugins;
mod ports;
mod principals;
mod routes;
mod schedulers;
mod status;
mod tokens;
mod trace;

pub use admission::{
    AdmissionView, AllowanceView, ClaimView, ComponentView, HoldingView, ServicePlaceView, TrialView,
};
pub use configuration::{
    AppliedView, ConfigurationView, ConfirmTime, Confirmed, DifferenceView, Pending, RevisionTextView,
    RevisionView, Saved,
};
pub use connections::{ConnectionCountsView, ConnectionView, ConnectionsView};
pub use control_plane::{ControlClassView, ControlPlaneView, PortClassView};
pub use counters::{CountersView, PortCountersView};
pub use flows::{FlowLevelView, FlowPaymentView, FlowView, FlowsView, Flushed, LookupView, StepView};
pub use hardware::{CpuView, HardwarePortView, HardwareView, ProcessorView, SwitchView};
pub use placement::{OffloadBudgetView, PlacementView, PlacementsView};
pub use plugins::{
    AmbiguousView, BindingView, CallCountsView, CallsView, CandidateView, DeclaredCyclesView,
    EbpfVariantView, GateCheckView, GateExplanationView, GateLinksView, GateView, HeldView,
    HostCompanionView, InstancePlaceView, InstanceView, MapEntryView, MapShapeView, MapView, MessagesView,
    NamedFilterView, PacketCyclesView, PluginDetailView, PluginInterfaceView, PluginView, ReleaseView,
    ShadowView, ShadowedView, UpgradeView,
};
pub use ports::{NeighbourView, PortView};
pub use principals::{
    CoreFunctionView, CoreInputView, CoreInputWindowView, DeadlineView, DeadlinesView, LeftView,
    LinkPromiseView, LinkView, LinkWindowView, PrincipalDropsView, PrincipalGroupView, PrincipalUsageView,
    PrincipalView, ProcessPromiseView, ProcessWindowView, PromiseView, PromiseWindowView, PromisesView,
    ReservationView, ThreadGroupView,
};
pub use routes::{NextHopView, QueuesView, RouteView};
pub use schedulers::{
    FlowQueueView, HostOutputView, QueueView, RemovedNodeView, SchedulerNodeView, SchedulerView,
};
pub use status::{
    ApplyingView, Cleared, CrashView, DropView, FlowStatesView, FlowTableView, IterationsView, MemoryView,
    MirrorView, MissingRouteView, MissingRoutesView, OffloadedFlowsView, OnDeathView, StatusView,
    SummaryView,
};
pub use tokens::{CreatedTokenView, TokenView};
pub use trace::{DroppedView, RawFrame, TraceStepView, TraceView};
