//! What the interface needs of a router.

use millrace_controller::view::{
    BindingView, DropView, GateView, InstanceView, LookupView, NeighbourView, PluginView, PortView,
    RouteView, StatusView, SummaryView,
};
use millrace_controller::{CaptureRequest, ControlError};
use serde_json::{Map, Value};

/// A result of control.
pub type Controlled<T> = Result<T, ControlError>;

/// A router as the interface sees it. All calls are quick: they run between two requests on the daemon's one control
/// thread. Their errors say what was wrong and what would be right.
#[allow(missing_docs, reason = "each is what millrace_controller::Router documents under the same name")]
pub trait Control: Clone + Send + Sync + 'static {
    /// A capture that goes on.
    type Recording: Recording;

    fn status(&self) -> Controlled<StatusView>;
    fn summary(&self) -> Controlled<SummaryView>;
    fn ports(&self) -> Controlled<Vec<PortView>>;
    fn routes(&self) -> Controlled<Vec<RouteView>>;
    fn neighbours(&self) -> Controlled<Vec<NeighbourView>>;
    fn plugins(&self) -> Controlled<Vec<PluginView>>;
    fn instances(&self) -> Controlled<Vec<InstanceView>>;
    fn gates(&self) -> Controlled<Vec<GateView>>;
    fn bindings(&self) -> Controlled<Vec<BindingView>>;
    fn drops(&self) -> Controlled<Vec<DropView>>;
    fn create_instance(
        &self,
        plugin: &str,
        name: &str,
        settings: &Map<String, Value>,
    ) -> Controlled<InstanceView>;
    fn free_instance(&self, name: &str) -> Controlled<InstanceView>;
    fn create_gate(&self, name: &str, position: &str) -> Controlled<GateView>;
    fn remove_gate(&self, name: &str) -> Controlled<GateView>;
    fn bind(&self, instance: &str, gate: &str, filter: &str, priority: i32) -> Controlled<BindingView>;
    fn unbind(&self, instance: &str, gate: &str, filter: &str) -> Controlled<BindingView>;
    fn control(&self, instance: &str, message: &str, arguments: &Map<String, Value>) -> Controlled<Value>;
    fn lookup(&self, packet: &str) -> Controlled<LookupView>;
    fn clear_counters(&self) -> Controlled<()>;
    fn capture(&self, request: &CaptureRequest) -> Controlled<Self::Recording>;
}

/// A capture that goes on until it is dropped.
pub trait Recording: Send + 'static {
    /// The pcapng bytes since the last call, in whole blocks; how many frames are in them; whether it has ended.
    fn take(&mut self) -> (Vec<u8>, u64, bool);
}
