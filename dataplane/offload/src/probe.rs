//! Capabilities of a device for a port, queried from the kernel and tested by trials, for `doctor`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;

use crate::bpf::leftover::Loaded;
use crate::bpf::object;
use crate::bpf::syscall::{Hook, create_link};
use crate::device::rtnetlink::{self, DRV_MODE, Device};
use crate::device::{ethtool, genetlink};
use crate::port_programs::attach;
use crate::{OffloadError, OnDeath};

/// Support of a feature by a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Support {
    /// The feature was tried, and works.
    Yes,
    /// The feature was tried, and failed for this reason.
    No(String),
    /// The feature could not be tried, for this reason.
    Unknown(String),
}

/// Program attached to a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachedProgram {
    /// Id in the kernel.
    pub id: u32,
    /// Name, at most 15 characters.
    pub name: String,
    /// Whether the program runs in the driver; `false` in generic mode.
    pub native: bool,
    /// Whether Millrace loaded the program.
    pub ours: bool,
}

/// Report on one device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceReport {
    /// Index of the device.
    pub ifindex: u32,
    /// Name of the device.
    pub name: String,
    /// Name of the driver, as ethtool reports it; empty if the driver reports none.
    pub driver: String,
    /// MTU in bytes, without link header.
    pub mtu: u32,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// XDP features that the driver announces (`basic`, `redirect`, `rx-sg`, …), empty before Linux 6.3.
    pub xdp_features: Vec<&'static str>,
    /// Support of XDP in the driver.
    pub native_xdp: Support,
    /// Support of tcx ingress.
    pub tcx: Support,
    /// Support of tcx egress. With it, schedulers also send the kernel's own output.
    pub tcx_egress: Support,
    /// XDP program attached now.
    pub attached: Option<AttachedProgram>,
}

impl DeviceReport {
    /// Probes the device `name` of the calling thread's namespace. Attaches and detaches a program that
    /// passes all frames, but only at hooks without a program.
    pub fn of(name: &str) -> Result<Self, OffloadError> {
        let failed = |call| move |source| OffloadError::Kernel { device: name.to_owned(), call, source };
        let index = nix::net::if_::if_nametoindex(name).map_err(io::Error::from);
        let ifindex = index.map_err(failed("if_nametoindex"))?;
        let device = rtnetlink::device(ifindex).map_err(failed("RTM_GETLINK"))?;
        let (rx_queues, tx_queues) = ethtool::queues(name).unwrap_or((device.rx_queues, device.tx_queues));
        Ok(Self {
            ifindex,
            driver: ethtool::driver(name).unwrap_or_default(),
            mtu: device.mtu,
            rx_queues,
            tx_queues,
            xdp_features: genetlink::xdp_features(ifindex).unwrap_or_default(),
            native_xdp: try_native(ifindex, &device),
            tcx: try_tcx(ifindex, &device, harmless("millrace_tcx"), Hook::TcxIngress),
            tcx_egress: try_tcx(ifindex, &device, catching_nothing(), Hook::TcxEgress),
            attached: device.xdp.map(|(id, mode)| {
                let program = Loaded::find(id);
                AttachedProgram {
                    id,
                    name: program.as_ref().map(Loaded::name).unwrap_or_default(),
                    native: mode == DRV_MODE,
                    ours: program.is_some_and(|program| program.is_ours()),
                }
            }),
            name: device.name,
        })
    }
}

/// Loads an offload program for frames of one buffer. Without a MAC address, the program passes every frame.
fn harmless(program: &'static str) -> Result<(Ebpf, OwnedFd), OffloadError> {
    let mut object = object::level0()?;
    let program = object::load(&mut object, program)?;
    Ok((object, program))
}

/// Loads a host output program. Without a target device, the program leaves all packets to the kernel.
fn catching_nothing() -> Result<(Ebpf, OwnedFd), OffloadError> {
    let mut object = object::host_output()?;
    let program = object::load(&mut object, "millrace_host")?;
    Ok((object, program))
}

fn try_native(ifindex: u32, device: &Device) -> Support {
    match device.xdp {
        // A program that is attached already proves support, without a trial.
        Some((_, DRV_MODE)) => return Support::Yes,
        Some(_) => {
            let why = "a generic XDP program is attached, so native XDP was not tried";
            return Support::Unknown(why.to_owned());
        }
        None => {}
    }
    let (_maps, program) = match harmless("millrace_xdp") {
        Ok(loaded) => loaded,
        Err(error) => return Support::Unknown(error.to_string()),
    };
    match attach::xdp(program.as_fd(), ifindex, DRV_MODE, OnDeath::Kernel, None) {
        Ok(hold) => release(hold.release(ifindex)),
        Err(refusal) => answer(&attach::xdp_error(device, ifindex, DRV_MODE, refusal)),
    }
}

fn try_tcx(
    ifindex: u32,
    device: &Device,
    loaded: Result<(Ebpf, OwnedFd), OffloadError>,
    hook: Hook,
) -> Support {
    let (_maps, program) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return Support::Unknown(error.to_string()),
    };
    match create_link(program.as_fd(), ifindex, hook) {
        Ok(link) => {
            drop(link);
            Support::Yes
        }
        Err(error) => answer(&attach::tcx_error(device, ifindex, error)),
    }
}

fn release(released: io::Result<()>) -> Support {
    match released {
        Ok(()) => Support::Yes,
        Err(error) => Support::Unknown(format!("attaching worked, but detaching failed: {error}")),
    }
}

fn answer(error: &OffloadError) -> Support {
    match error {
        OffloadError::Permission { .. } | OffloadError::Busy { .. } | OffloadError::Occupied { .. } => {
            Support::Unknown(error.to_string())
        }
        _ => Support::No(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{Wire, ip};
    use crate::{Mode, PortPrograms};

    #[test]
    fn veth_is_described_and_unchanged() {
        let Some(wire) = Wire::loadable() else { return };
        let report = wire.near(|| DeviceReport::of("port").unwrap());
        assert_eq!((report.driver.as_str(), report.mtu, report.rx_queues), ("veth", 1500, 1));
        assert_eq!(
            (&report.native_xdp, &report.tcx, &report.tcx_egress, &report.attached),
            (&Support::Yes, &Support::Yes, &Support::Yes, &None)
        );
        assert!(report.xdp_features.contains(&"redirect"), "{:?}", report.xdp_features);
        assert!(!wire.show().contains("xdp"), "{}", wire.show());
        // Every veth reports this speed, whatever its real speed.
        assert_eq!(wire.near(|| crate::link_speed("port")), Some(10_000_000_000));
        assert_eq!(wire.near(|| crate::link_speed("none")), None);
        ip(&format!("-n {} link set peer mtu 9000", wire.far));
        let report = wire.near(|| DeviceReport::of("port").unwrap());
        assert!(matches!(&report.native_xdp, Support::No(why) if why.contains("MTU")), "{report:?}");
    }

    #[test]
    fn attached_program_is_named_and_a_missing_device_driver_reported() {
        let Some(wire) = Wire::loadable() else { return };
        let port = wire.port();
        wire.near(|| {
            let programs = PortPrograms::attach_xdp(port, Mode::Native, false, OnDeath::Kernel).unwrap();
            let report = DeviceReport::of("port").unwrap();
            let attached = report.attached.unwrap();
            assert_eq!((attached.name.as_str(), attached.native), ("millrace_xdp", true));
            assert_eq!(Some(attached.id), programs.program_id());
            assert_eq!(report.native_xdp, Support::Yes, "it is there");
            assert!(attached.ours);
            programs.detach().unwrap();
            let programs = PortPrograms::attach_xdp(port, Mode::Generic, false, OnDeath::Kernel).unwrap();
            assert!(matches!(DeviceReport::of("port").unwrap().native_xdp, Support::Unknown(_)));
            programs.detach().unwrap();
            assert!(matches!(DeviceReport::of("lo").unwrap().native_xdp, Support::No(_)));
            assert!(matches!(DeviceReport::of("nothing0"), Err(OffloadError::Kernel { .. })));
        });
    }
}
