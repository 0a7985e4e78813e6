//! Receivers for measurements: programs that drop all received frames, or pass them on to another device.

use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::xdp::XdpMapError;
use aya::maps::{DevMap, MapError, PerCpuArray};

use crate::OffloadError;
use crate::bpf::object::{self, map_mut, missing};
use crate::bpf::syscall::{Hook, create_link};
use crate::device::rtnetlink::DRV_MODE;
use crate::flow_cache::OffloadSent;

/// Program on a device that takes all received frames. Dropping it detaches the program.
#[derive(Debug)]
pub struct FrameSink {
    object: Ebpf,
    _link: OwnedFd,
}

impl FrameSink {
    /// Drops and counts all frames received by a device of the calling thread's namespace, in its driver,
    /// before a socket buffer is allocated. A veth with this program on its other end accepts redirected
    /// frames.
    ///
    /// # Errors
    /// [`OffloadError`] without the privileges, or when the device has another program, or cannot have one.
    pub fn dropping(ifindex: u32) -> Result<Self, OffloadError> {
        Self::attach(object::source()?, "millrace_sink", ifindex)
    }

    /// Sends frames received by the device `ifindex`, unchanged, out of the device `to`: the minimum work of
    /// a forwarding program.
    pub fn passing(ifindex: u32, to: u32) -> Result<Self, OffloadError> {
        let mut object = object::source()?;
        let devices = DevMap::try_from(map_mut(&mut object, "pass_to")?);
        let set = devices.map_err(XdpMapError::from).and_then(|mut map| map.set(0, to, None, 0));
        set.map_err(|error| OffloadError::Map { map: "pass_to", detail: object::chain(&error) })?;
        Self::attach(object, "millrace_pass", ifindex)
    }

    fn attach(mut object: Ebpf, program: &'static str, ifindex: u32) -> Result<Self, OffloadError> {
        let program = object::load(&mut object, program)?;
        let link = create_link(program.as_fd(), ifindex, Hook::Xdp { flags: DRV_MODE });
        let link = link.map_err(|source| OffloadError::Kernel {
            device: ifindex.to_string(),
            call: "attaching a program that takes all",
            source,
        })?;
        Ok(Self { object, _link: link })
    }

    /// Returns the frames dropped so far.
    pub fn dropped(&self) -> Result<OffloadSent, OffloadError> {
        let failed = |error: MapError| OffloadError::Map { map: "arrived", detail: object::chain(&error) };
        let map = self.object.map("arrived").ok_or_else(|| missing("arrived"))?;
        let map = PerCpuArray::<_, crate::flow_cache::Sent>::try_from(map).map_err(failed)?;
        let each = map.get(&0, 0).map_err(failed)?;
        Ok(each.iter().fold(OffloadSent::default(), |sum, one| OffloadSent {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
        }))
    }
}
