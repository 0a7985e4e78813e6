//! Lists: netlink dumps of the kernel's whole state, one object type after the other.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::Family;
use crate::netlink::request::{DUMP, Request};
use crate::netlink::rtm;
use crate::state::Scope;

/// Reason why the mirror lists the kernel's state.
#[derive(Debug)]
pub(super) enum Reason {
    /// Start of the mirror.
    Start,
    /// Loss of notifications.
    Overrun,
    /// Comparison with the kernel. Each sender reports the number of differences to one requester.
    Comparison(Vec<oneshot::Sender<u64>>),
    /// Device event at which the kernel drops routes without a notification.
    Device,
}

/// List in progress, and its remaining requests.
#[derive(Debug)]
pub(super) struct Listing {
    pub scope: Scope,
    pub reason: Reason,
    /// Remaining requests.
    pub steps: VecDeque<Request>,
    /// Sequence number of the request in progress.
    pub sequence: u32,
    /// Whether the kernel lost or skipped entries, so that an unlisted entry may still exist.
    pub incomplete: bool,
    /// Value of `HostState::differences` when the list began.
    pub differences: u64,
    /// Number of times that this list was started again.
    pub attempts: u32,
}

impl Listing {
    pub fn new(scope: Scope, reason: Reason) -> Self {
        let steps = steps(scope);
        Self { scope, reason, steps, sequence: 0, incomplete: false, differences: 0, attempts: 0 }
    }

    /// Restarts the list for the same reason.
    pub fn again(mut self) -> Self {
        self.steps = steps(self.scope);
        self.incomplete = false;
        self.attempts += 1;
        self
    }
}

/// Returns the requests in an order in which prerequisites come first: devices, then objects on devices.
fn steps(scope: Scope) -> VecDeque<Request> {
    let routes = [Family::Ipv4, Family::Ipv6].map(|family| routes(family, scope));
    match scope {
        Scope::RoutesOf(_) => [vec![next_hop_objects()], routes.into()].concat().into(),
        Scope::All => {
            let switches = [Family::Ipv4, Family::Ipv6].map(switches);
            let devices = vec![links(), addresses()];
            [devices, switches.into(), vec![next_hop_objects()], routes.into(), vec![neighbours()]]
                .concat()
                .into()
        }
    }
}

fn links() -> Request {
    const SKIP_STATISTICS: u32 = 8;
    Request::new(rtm::GETLINK, DUMP, &[0; 16]).number(libc::IFLA_EXT_MASK, SKIP_STATISTICS)
}

fn addresses() -> Request {
    Request::new(rtm::GETADDR, DUMP, &[0; 8])
}

fn switches(family: Family) -> Request {
    Request::new(rtm::GETNETCONF, DUMP, &[family.number(), 0, 0, 0])
}

fn next_hop_objects() -> Request {
    Request::new(rtm::GETNEXTHOP, DUMP, &[0; 8])
}

fn routes(family: Family, scope: Scope) -> Request {
    let request = Request::new(rtm::GETROUTE, DUMP, &[family.number(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    match scope {
        Scope::All => request,
        Scope::RoutesOf(ifindex) => request.number(libc::RTA_OIF, ifindex),
    }
}

fn neighbours() -> Request {
    Request::new(rtm::GETNEIGH, DUMP, &[0; 12])
}
