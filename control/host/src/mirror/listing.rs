//! Asking the kernel for everything, one kind after the other.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::Family;
use crate::netlink::request::{DUMP, Request};
use crate::netlink::rtm;
use crate::state::Scope;

/// Why a list is made.
#[derive(Debug)]
pub(super) enum Reason {
    /// The mirror starts.
    Start,
    /// Notifications were lost.
    Overrun,
    /// To see whether we are right; who asked is told how many differences there were.
    Comparison(Vec<oneshot::Sender<u64>>),
    /// Something happened on a device along with which the kernel drops routes silently.
    Device,
}

/// A list under way.
#[derive(Debug)]
pub(super) struct Listing {
    pub scope: Scope,
    pub reason: Reason,
    /// What remains to be asked.
    pub steps: VecDeque<Request>,
    /// Sequence number of the step now being answered.
    pub sequence: u32,
    /// Something was lost or skipped: what was not named need not be gone.
    pub incomplete: bool,
    /// The state's count of differences at the start.
    pub differences: u64,
    /// How often it was begun again.
    pub attempts: u32,
}

impl Listing {
    pub fn new(scope: Scope, reason: Reason) -> Self {
        let steps = steps(scope);
        Self { scope, reason, steps, sequence: 0, incomplete: false, differences: 0, attempts: 0 }
    }

    /// Starts over with the same purpose.
    pub fn again(mut self) -> Self {
        self.steps = steps(self.scope);
        self.incomplete = false;
        self.attempts += 1;
        self
    }
}

/// Requests in an order in which each entry's prerequisites come before it: devices, then what is on them.
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
