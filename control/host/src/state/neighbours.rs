//! Effects of neighbour messages on the state.

use std::net::IpAddr;

use super::{HostState, Stamped};
use crate::{HostChange, HostNeighbour};

impl HostState {
    pub(super) fn set_neighbour(&mut self, neighbour: HostNeighbour, changes: &mut Vec<HostChange>) {
        let stamped = Stamped { value: neighbour, generation: self.generation };
        let before = self.neighbours.insert((neighbour.ifindex, neighbour.ip), stamped);
        if before.is_none_or(|before| before.value != neighbour) {
            let (ifindex, ip) = (neighbour.ifindex, neighbour.ip);
            changes.push(HostChange::Neighbour { ifindex, ip, neighbour: Some(neighbour) });
        }
    }

    pub(super) fn remove_neighbour(&mut self, ifindex: u32, ip: IpAddr, changes: &mut Vec<HostChange>) {
        if self.neighbours.remove(&(ifindex, ip)).is_some() {
            changes.push(HostChange::Neighbour { ifindex, ip, neighbour: None });
        }
    }
}
