//! Punt to kernel: returns frames to the kernel at the devices that received them.

use std::collections::HashMap;

use millrace_offload::KernelHandback;
use millrace_pipeline::{DeviceCommand, Handover, HostPath};

use crate::ControlError;
use crate::ports::devices::Devices;
use crate::workers::Workers;

/// Programs that punt frames to the kernel, by the index of the receiving device.
struct KernelPath(HashMap<u32, KernelHandback>);

impl HostPath for KernelPath {
    fn hand_back(&mut self, ifindex: u32, frames: &[&[u8]]) -> usize {
        let Some(path) = self.0.get_mut(&ifindex) else { return 0 };
        path.hand_back_batch(ifindex, frames).unwrap_or(0)
    }
}

/// Makes one socket the witness of all ports: the socket that a dying process closes first. See
/// [`PortPrograms::set_witness`](millrace_offload::PortPrograms::set_witness).
pub(crate) fn set_witness(devices: &mut Devices) -> Result<(), ControlError> {
    let sockets = devices.kernel.values().flat_map(|device| &device.sockets);
    let Some(first) = sockets.map(|own| own.socket).max() else { return Ok(()) };
    for device in devices.kernel.values_mut().filter(|device| !device.sockets.is_empty()) {
        let set = device.programs.set_witness(first);
        set.map_err(|error| {
            ControlError::system("set the socket by which the XDP programs detect the router's death", error)
        })?;
    }
    Ok(())
}

/// Gives each worker the programs for punting frames at the devices that it owns.
pub(crate) fn set_host_path(devices: &mut Devices, workers: &mut Workers) -> Result<(), ControlError> {
    let count = workers.len();
    let mut paths: Vec<HashMap<u32, KernelHandback>> = (0..count).map(|_| HashMap::new()).collect();
    for device in devices.kernel.values_mut() {
        let path = KernelHandback::through(&mut device.programs)
            .map_err(|error| ControlError::system("set up the punt path to the kernel", error))?;
        paths[Handover::owner(device.device, count)].insert(device.ifindex, path);
    }
    let set = |paths| DeviceCommand::SetHostPath(Box::new(KernelPath(paths)));
    workers.tell_each(paths.into_iter().map(set).collect())
}
