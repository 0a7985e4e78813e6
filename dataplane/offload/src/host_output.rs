//! Host output: redirects the kernel's own packets to the router, so that the router's scheduler sends them.
//!
//! A tcx egress program redirects the packets to a TAP device that the router reads. The router's own packets
//! don't reach the program, because AF_XDP in copy mode and AF_PACKET with `PACKET_QDISC_BYPASS` skip tcx
//! egress.

use std::os::fd::{AsFd, OwnedFd, RawFd};

use aya::Ebpf;
use aya::maps::{Array, MapError};

use crate::OffloadError;
use crate::bpf::object::{self, map_mut};
use crate::bpf::syscall::{Hook, create_link, renumber};
use crate::port_programs::attach::{find_device, tcx_error};

/// Attached program that redirects host output. Dropping it, or the death of the process, detaches the
/// program.
#[derive(Debug)]
pub struct HostCatch {
    ifindex: u32,
    _link: OwnedFd,
}

impl HostCatch {
    /// Redirects packets that the kernel sends out of the device `ifindex` to the TAP device `catcher`. Both
    /// are in the calling thread's network namespace. While the TAP device does not exist, the kernel sends
    /// the packets itself. Needs Linux 6.6.
    ///
    /// `above`: descriptors that must stay open until the program is detached, if the process is killed.
    /// Linux closes the highest descriptor first, so the program gets a higher number than these descriptors.
    pub fn attach(ifindex: u32, catcher: u32, above: &[RawFd]) -> Result<Self, OffloadError> {
        let device = find_device(ifindex)?;
        let mut object = object::host_output()?;
        let program = object::load(&mut object, "millrace_host")?;
        write_catcher(&mut object, catcher)?;
        let least = above.iter().max().map_or(0, |highest| highest + 1);
        let link = create_link(program.as_fd(), ifindex, Hook::TcxEgress)
            .and_then(|link| renumber(&link, least))
            .map_err(|error| tcx_error(&device, ifindex, error))?;
        Ok(Self { ifindex, _link: link })
    }

    /// Returns the index of the device.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
}

pub(crate) fn write_catcher(object: &mut Ebpf, catcher: u32) -> Result<(), OffloadError> {
    let refused = |error: MapError| OffloadError::Map { map: "catcher", detail: object::chain(&error) };
    let map = map_mut(object, "catcher")?;
    Array::<_, u32>::try_from(map).and_then(|mut map| map.set(0, catcher, 0)).map_err(refused)
}
