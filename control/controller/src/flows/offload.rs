//! Offload of flows: the flow cache and the eBPF variants of plugins.

use millrace_offload::FlowCache;

use crate::plugins::driver_forms::Forms;

/// Offload of the router.
pub(crate) struct Offload {
    /// Flow cache of offloaded flows, or the reason why there is none.
    pub flow_cache: Result<FlowCache, &'static str>,
    /// Loaded eBPF variants of plugins.
    pub forms: Forms,
}
