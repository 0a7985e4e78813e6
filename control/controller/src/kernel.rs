//! Netlink connections to the kernel: the mirror of its tables, and requests to it.

use ipnet::IpNet;
use millrace_host::{Actions, HostChange, HostRoute, Mirror, PROTOCOL_MILLRACE};

/// Batches of changes that the mirror reports.
pub(crate) type Changes = tokio::sync::mpsc::Receiver<Vec<HostChange>>;

/// Connections to the kernel; all fields are `None` if no port is a kernel port.
#[derive(Default)]
pub(crate) struct Kernel {
    /// Mirror of the kernel's tables.
    pub mirror: Option<Mirror>,
    /// Changes that the mirror reports.
    pub changes: Option<Changes>,
    /// Requests to the kernel.
    pub actions: Option<Actions>,
}

impl Kernel {
    /// Returns the kernel's route to exactly this prefix; `None` if there is no such route, or if there is no
    /// mirror.
    pub fn route_to(&self, prefix: IpNet) -> Option<HostRoute> {
        self.mirror.as_ref()?.state().effective(prefix)
    }

    /// Whether the kernel has a route of this router to exactly this prefix.
    pub fn has_own_route(&self, prefix: IpNet) -> bool {
        let mirror = self.mirror.as_ref();
        mirror.is_some_and(|mirror| mirror.state().has_route_of(prefix, PROTOCOL_MILLRACE))
    }
}
