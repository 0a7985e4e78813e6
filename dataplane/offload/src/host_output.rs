//! Host output: redirects the kernel's own packets to the router, so that the router's scheduler sends them.
//!
//! A tcx egress program redirects the packets to a TAP device that the router reads. The router's own packets
//! don't reach the program, because AF_XDP in copy mode and AF_PACKET with `PACKET_QDISC_BYPASS` skip tcx
//! egress.
//!
//! A packet of a process in a control group with a queue carries a [`Mark`] in place of its source MAC address.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapError};
use millrace_units::QueueId;
use millrace_wire::MacAddr;

use crate::OffloadError;
use crate::bpf::object::{self, map_mut};
use crate::bpf::syscall::{Hook, create_link, renumber};
use crate::port_programs::attach::{find_device, tcx_error};

/// Attached program that redirects host output. Dropping it, or the death of the process, detaches the
/// program.
#[derive(Debug)]
pub struct HostCatch {
    ifindex: u32,
    /// Holds the maps of the program.
    object: Ebpf,
    queues: BTreeMap<u64, QueueId>,
    _link: OwnedFd,
}

/// Four bytes that stand before the number of a queue in a marked packet: 2, as in MAC addresses that no vendor has given
/// to a device, and a random number.
pub type Mark = [u8; 4];

/// Where a program redirects packets, and how it marks them.
#[derive(Clone, Copy, Debug)]
pub struct HostRedirect {
    /// Interface index of the TAP device.
    pub catcher: u32,
    /// MAC address of the port's device.
    pub mac: MacAddr,
    /// Mark of packets with a queue.
    pub mark: Mark,
}

impl HostCatch {
    /// Redirects packets that the kernel sends out of the device `ifindex` to a TAP device. Both are in the calling
    /// thread's network namespace. While the TAP device does not exist, the kernel sends
    /// the packets itself. Needs Linux 6.6.
    ///
    /// `above`: descriptors that must stay open until the program is detached, if the process is killed.
    /// Linux closes the highest descriptor first, so the program gets a higher number than these descriptors.
    pub fn attach(ifindex: u32, redirect: HostRedirect, above: &[RawFd]) -> Result<Self, OffloadError> {
        let device = find_device(ifindex)?;
        let mut object = object::host_output()?;
        write_settings(&mut object, redirect)?;
        let program = object::load(&mut object, "millrace_host")?;
        let least = above.iter().max().map_or(0, |highest| highest + 1);
        let link = create_link(program.as_fd(), ifindex, Hook::TcxEgress)
            .and_then(|link| renumber(&link, least))
            .map_err(|error| tcx_error(&device, ifindex, error))?;
        Ok(Self { ifindex, queues: BTreeMap::new(), _link: link, object })
    }

    /// Sets the queues of the control groups: each group's id in the hierarchy of version 2, and its queue.
    ///
    /// # Errors
    /// The kernel refuses an entry. Some groups then have no queue.
    pub fn set_queues(&mut self, queues: &BTreeMap<u64, QueueId>) -> Result<(), OffloadError> {
        if self.queues == *queues {
            return Ok(());
        }
        let refused = |error: MapError| OffloadError::Map { map: "queues", detail: object::chain(&error) };
        let map = map_mut(&mut self.object, "queues")?;
        let mut map = HashMap::<_, u64, u16>::try_from(map).map_err(refused)?;
        let gone: Vec<u64> =
            self.queues.keys().filter(|group| !queues.contains_key(group)).copied().collect();
        for group in gone {
            map.remove(&group).map_err(refused)?;
            self.queues.remove(&group);
        }
        for (group, queue) in queues {
            map.insert(group, queue.0, 0).map_err(refused)?;
            self.queues.insert(*group, *queue);
        }
        Ok(())
    }

    /// Returns the index of the device.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
}

/// Writes the settings as `struct settings` of the program.
pub(crate) fn write_settings(object: &mut Ebpf, redirect: HostRedirect) -> Result<(), OffloadError> {
    let HostRedirect { catcher, mac: MacAddr(mac), mark } = redirect;
    let mut settings = [0_u8; 16];
    settings[..4].copy_from_slice(&catcher.to_ne_bytes());
    settings[4..10].copy_from_slice(&mac);
    settings[10..14].copy_from_slice(&mark);
    let refused = |error: MapError| OffloadError::Map { map: "settings", detail: object::chain(&error) };
    let map = map_mut(object, "settings")?;
    Array::<_, [u8; 16]>::try_from(map).and_then(|mut map| map.set(0, settings, 0)).map_err(refused)
}
