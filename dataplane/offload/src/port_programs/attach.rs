//! Attachment of programs to a device, by a link or without one, and their detachment.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::Ebpf;

use crate::OffloadError;
use crate::bpf::leftover::Loaded;
use crate::bpf::syscall::{self, Hook};
use crate::device::netlink::Refusal;
use crate::device::rtnetlink::{self, DRV_MODE, Device, UPDATE_IF_NOEXIST};

/// Treatment of frames for user space while no socket is registered, also after the death of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDeath {
    /// The kernel forwards the frames. The program vanishes with the process.
    #[default]
    Kernel,
    /// The program drops the frames. It stays attached after the process's death, until a later start
    /// replaces it. Frames for the kernel (ARP, the router's addresses, …) continue to reach the kernel.
    Drop,
}

/// Handle that keeps a program attached.
#[derive(Debug)]
pub(crate) enum Hold {
    /// Link: closing it detaches the program.
    Link(#[expect(dead_code, reason = "held for its closing")] OwnedFd),
    /// XDP program without a link, attached in the mode that `flags` gives.
    Xdp { program: OwnedFd, flags: u32 },
    /// tcx ingress without a link.
    Tcx { program: OwnedFd },
}

impl Hold {
    /// Detaches the program. A removed device is no error, because the kernel has detached its program.
    pub(crate) fn release(self, ifindex: u32) -> io::Result<()> {
        let released = match self {
            Self::Link(_) => Ok(()),
            Self::Xdp { program, flags } => rtnetlink::set_xdp(ifindex, None, flags, Some(program.as_fd()))
                .map_err(|refusal| refusal.error),
            Self::Tcx { program } => syscall::detach_tcx(program.as_fd(), ifindex),
        };
        match released {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            other => other,
        }
    }
}

/// Queries a device. Returns [`OffloadError::DeviceGone`] if it doesn't exist.
pub(crate) fn find_device(ifindex: u32) -> Result<Device, OffloadError> {
    rtnetlink::device(ifindex).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => OffloadError::DeviceGone { ifindex },
        _ => OffloadError::Kernel { device: ifindex.to_string(), call: "RTM_GETLINK", source: error },
    })
}

/// Returns the XDP program that an earlier Millrace left on the device, with its mode. Another program is an
/// error.
pub(crate) fn xdp_leftover(device: &Device) -> Result<Option<(Loaded, u32)>, OffloadError> {
    let Some((id, mode)) = device.xdp else { return Ok(None) };
    match Loaded::find(id) {
        Some(program) if program.is_ours() => Ok(Some((program, mode))),
        other => {
            let name = other.map_or_else(|| "unknown".to_owned(), |program| program.name());
            Err(OffloadError::Occupied { device: device.name.clone(), id, name })
        }
    }
}

/// Attaches an XDP program in `mode` (DRV or SKB). Replaces a program that an earlier Millrace left.
pub(crate) fn xdp(
    program: BorrowedFd<'_>,
    ifindex: u32,
    mode: u32,
    on_death: OnDeath,
    leftover: Option<&(Loaded, u32)>,
) -> Result<Hold, Refusal> {
    let old = leftover.and_then(|(program, old_mode)| Some((program.fd()?, *old_mode)));
    let in_place = old.as_ref().filter(|(_, old_mode)| *old_mode == mode && on_death == OnDeath::Drop);
    if let Some((old, _)) = in_place {
        rtnetlink::set_xdp(ifindex, Some(program), mode, Some(old.as_fd()))?;
        return Ok(Hold::Xdp { program: program.try_clone_to_owned()?, flags: mode });
    }
    // A link cannot replace a program, and both modes exclude each other, so the old program is detached
    // first.
    if let Some((old, old_mode)) = &old {
        rtnetlink::set_xdp(ifindex, None, *old_mode, Some(old.as_fd()))?;
    }
    match on_death {
        OnDeath::Drop => {
            rtnetlink::set_xdp(ifindex, Some(program), mode | UPDATE_IF_NOEXIST, None)?;
            Ok(Hold::Xdp { program: program.try_clone_to_owned()?, flags: mode })
        }
        OnDeath::Kernel => syscall::create_link(program, ifindex, Hook::Xdp { flags: mode })
            .map(Hold::Link)
            .map_err(|error| explain(program, ifindex, mode, error)),
    }
}

/// Adds the kernel's message to an error of attaching a link. That call reports no message, so this function
/// repeats the attachment without a link.
fn explain(program: BorrowedFd<'_>, ifindex: u32, mode: u32, error: io::Error) -> Refusal {
    match rtnetlink::set_xdp(ifindex, Some(program), mode | UPDATE_IF_NOEXIST, None) {
        Err(refusal) => Refusal { error, words: refusal.words },
        Ok(()) => {
            let _ = rtnetlink::set_xdp(ifindex, None, mode, Some(program));
            error.into()
        }
    }
}

/// Converts a refused XDP attachment to a typed error.
pub(crate) fn xdp_error(device: &Device, ifindex: u32, mode: u32, refusal: Refusal) -> OffloadError {
    let name = device.name.clone();
    let detail = refusal.to_string();
    let says_mtu = refusal.words.to_ascii_lowercase().contains("mtu");
    match refusal.error.raw_os_error() {
        Some(libc::ENODEV) => OffloadError::DeviceGone { ifindex },
        Some(libc::EPERM | libc::EACCES) => {
            OffloadError::Permission { what: format!("attaching XDP to {name}"), source: refusal.error }
        }
        Some(libc::EBUSY | libc::EEXIST) => match rtnetlink::device(ifindex).ok().and_then(|now| now.xdp) {
            Some((id, _)) => {
                let other = Loaded::find(id).map_or_else(|| "unknown".to_owned(), |program| program.name());
                OffloadError::Occupied { device: name, id, name: other }
            }
            None => OffloadError::Busy { device: name, detail },
        },
        Some(libc::ERANGE) => OffloadError::MtuTooLarge { device: name, detail },
        _ if says_mtu => OffloadError::MtuTooLarge { device: name, detail },
        Some(libc::EOPNOTSUPP | libc::EINVAL) => {
            let what = if mode == DRV_MODE { "native XDP" } else { "generic XDP" };
            OffloadError::NotSupported { device: name, what, detail }
        }
        _ => OffloadError::Kernel { device: name, call: "attaching XDP", source: refusal.error },
    }
}

/// Returns whether a failed native attachment may be retried in generic mode.
pub(crate) fn may_fall_back(error: &OffloadError) -> bool {
    matches!(error, OffloadError::NotSupported { .. } | OffloadError::Kernel { .. })
}

/// Attaches a tcx ingress program, then detaches the programs that an earlier Millrace left.
pub(crate) fn tcx(
    program: BorrowedFd<'_>,
    device: &Device,
    ifindex: u32,
    on_death: OnDeath,
    heir: &mut Ebpf,
) -> Result<Hold, OffloadError> {
    let leftovers = tcx_leftovers(ifindex);
    leftovers.iter().for_each(|old| old.bequeath(heir));
    let attached = match on_death {
        OnDeath::Kernel => syscall::create_link(program, ifindex, Hook::TcxIngress).map(Hold::Link),
        OnDeath::Drop => syscall::attach_tcx(program, ifindex)
            .and_then(|()| Ok(Hold::Tcx { program: program.try_clone_to_owned()? })),
    };
    let hold = attached.map_err(|error| tcx_error(device, ifindex, error))?;
    for old in leftovers.iter().filter_map(Loaded::fd) {
        let _ = syscall::detach_tcx(old.as_fd(), ifindex);
    }
    Ok(hold)
}

fn tcx_leftovers(ifindex: u32) -> Vec<Loaded> {
    let programs = syscall::query_tcx(ifindex).unwrap_or_default();
    let unlinked = programs.into_iter().filter(|(_, linked)| !linked);
    unlinked.filter_map(|(id, _)| Loaded::find(id)).filter(Loaded::is_ours).collect()
}

pub(crate) fn tcx_error(device: &Device, ifindex: u32, error: io::Error) -> OffloadError {
    let name = device.name.clone();
    match error.raw_os_error() {
        Some(libc::ENODEV) => OffloadError::DeviceGone { ifindex },
        Some(libc::EPERM | libc::EACCES) => {
            OffloadError::Permission { what: format!("attaching tcx to {name}"), source: error }
        }
        Some(libc::EINVAL | libc::EOPNOTSUPP) => {
            let detail = format!("tcx needs Linux 6.6 ({error})");
            OffloadError::NotSupported { device: name, what: "tcx", detail }
        }
        _ => OffloadError::Kernel { device: name, call: "attaching tcx", source: error },
    }
}
