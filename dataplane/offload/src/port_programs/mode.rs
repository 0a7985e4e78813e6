//! Modes of the XDP program, and its attachment in a mode.

use std::os::fd::BorrowedFd;

use super::attach::{self, Hold, OnDeath};
use crate::OffloadError;
use crate::bpf::leftover::Loaded;
use crate::device::rtnetlink::{DRV_MODE, Device, SKB_MODE};

/// Requested mode of the XDP program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// XDP in the driver; an error if the driver does not support it.
    Native,
    /// XDP in the kernel's generic hook, after the allocation of a socket buffer. This works on every device,
    /// and costs a copy.
    Generic,
    /// Native mode if possible, otherwise generic mode; [`PortPrograms::why`](super::PortPrograms::why) then
    /// returns the reason.
    #[default]
    Auto,
}

/// Hook at which a port's programs are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// XDP in the driver.
    Native,
    /// XDP in the kernel's generic hook.
    Generic,
    /// tcx ingress with a socket filter, for AF_PACKET ports.
    Tcx,
}

/// Device and options of an attachment.
pub(super) struct Target<'a> {
    pub device: &'a Device,
    pub ifindex: u32,
    pub on_death: OnDeath,
    pub leftover: Option<(Loaded, u32)>,
}

impl Target<'_> {
    /// Attaches a program in a mode. Returns the attachment, and the reason for a fallback to generic mode.
    pub fn attach(
        mut self,
        program: BorrowedFd<'_>,
        mode: Mode,
    ) -> Result<(Hold, Attachment, Option<String>), OffloadError> {
        if mode == Mode::Generic {
            return Ok((self.attach_in(program, SKB_MODE)?, Attachment::Generic, None));
        }
        match self.attach_in(program, DRV_MODE) {
            Ok(hold) => Ok((hold, Attachment::Native, None)),
            Err(error) if mode == Mode::Auto && attach::may_fall_back(&error) => {
                // The native attempt may have detached the leftover program.
                self.leftover = attach::xdp_leftover(&attach::find_device(self.ifindex)?)?;
                Ok((self.attach_in(program, SKB_MODE)?, Attachment::Generic, Some(error.to_string())))
            }
            Err(error) => Err(error),
        }
    }

    fn attach_in(&self, program: BorrowedFd<'_>, mode: u32) -> Result<Hold, OffloadError> {
        attach::xdp(program, self.ifindex, mode, self.on_death, self.leftover.as_ref())
            .map_err(|refusal| attach::xdp_error(self.device, self.ifindex, mode, refusal))
    }
}
