//! The programs of one port: loaded, attached, told what the router knows, and detached again.

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};

use crate::{Level0Counters, OffloadError, VlanStack};

/// Where the XDP program is to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// In the driver; an error where the driver can't.
    Native,
    /// In the kernel's generic hook, after a socket buffer was made: works on every device, costs a copy.
    Generic,
    /// Native if possible, else generic; [`PortPrograms::why`] then says why.
    #[default]
    Auto,
}

/// What becomes of frames meant for user space while no socket is registered, also after the daemon's death.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnDeath {
    /// The kernel forwards on. The program vanishes with the process.
    #[default]
    Kernel,
    /// They are dropped: the program stays attached after the process's death, until a later start replaces it. What
    /// is the kernel's own (ARP, the router's addresses, …) goes on reaching the kernel.
    Drop,
}

/// How a port's programs are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// XDP in the driver.
    Native,
    /// XDP in the kernel's generic hook.
    Generic,
    /// tcx ingress with a socket filter, for AF_PACKET ports.
    Tcx,
}

/// The attached programs of one port. Dropping detaches them.
#[derive(Debug)]
pub struct PortPrograms {
    ifindex: u32,
}

impl PortPrograms {
    /// Loads the level-0 program and attaches it to `ifindex` of the calling thread's network namespace. Until
    /// [`Self::set_own_mac`] is called every unicast frame is somebody else's, so the kernel gets all.
    ///
    /// `frags` admits frames of several buffers; set it only where the MTU needs it (on a veth, above about 3,506
    /// bytes at the peer). A veth trap: with `frags` the peer keeps its segmentation offload and super-frames of 64 KB
    /// arrive; without it the kernel turns the peer's off.
    ///
    /// # Errors
    /// See [`OffloadError`]. A program that an earlier Millrace left behind is replaced, no other is touched.
    pub fn attach_xdp(
        ifindex: u32,
        _mode: Mode,
        _frags: bool,
        _on_death: OnDeath,
    ) -> Result<Self, OffloadError> {
        Err(OffloadError::DeviceGone { ifindex })
    }

    /// Loads and attaches the tcx ingress program for an AF_PACKET port, whose sockets must carry
    /// [`Self::socket_filter_fd`]. Needs Linux 6.6.
    ///
    /// # Errors
    /// See [`OffloadError`].
    pub fn attach_tcx(ifindex: u32, _on_death: OnDeath) -> Result<Self, OffloadError> {
        Err(OffloadError::DeviceGone { ifindex })
    }

    /// The program for `SO_ATTACH_BPF`: with it an AF_PACKET socket receives only what user space takes. Attach it
    /// before the socket is bound. None for XDP ports.
    pub fn socket_filter_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Redirects the frames of device queue `queue` to the AF_XDP socket `fd`, which must be bound to that queue.
    ///
    /// # Errors
    /// [`OffloadError::Queue`] when the kernel refuses, or the queue index is 64 or more.
    pub fn register_socket(&mut self, queue: u32, _fd: RawFd) -> Result<(), OffloadError> {
        Err(OffloadError::Queue { queue, detail: String::new() })
    }

    /// Ends the redirection of `queue`; its frames fall back as [`OnDeath`] says.
    ///
    /// # Errors
    /// [`OffloadError::Queue`] when no socket was registered.
    pub fn unregister_socket(&mut self, queue: u32) -> Result<(), OffloadError> {
        Err(OffloadError::Queue { queue, detail: String::new() })
    }

    /// Sets the MAC address whose unicast frames this port forwards.
    ///
    /// # Errors
    /// [`OffloadError::Map`].
    pub fn set_own_mac(&mut self, _mac: [u8; 6]) -> Result<(), OffloadError> {
        Ok(())
    }

    /// Sets the addresses whose packets the kernel keeps: those of all interfaces in the namespace, and the subnet
    /// broadcasts. Only differences are written, additions before removals.
    ///
    /// # Errors
    /// [`OffloadError::Map`] when there are more than 16,384 of one family.
    pub fn set_local_addresses(&mut self, _addresses: &[IpAddr]) -> Result<(), OffloadError> {
        Ok(())
    }

    /// Sets the VLANs that are sub-interfaces of ours. All their frames to our MAC, broadcast or multicast go to user
    /// space, ARP and neighbour discovery included; other tagged frames are the kernel's.
    ///
    /// # Errors
    /// [`OffloadError::Map`].
    pub fn set_vlans(&mut self, _vlans: &[VlanStack]) -> Result<(), OffloadError> {
        Ok(())
    }

    /// What the program has counted.
    ///
    /// # Errors
    /// [`OffloadError::Map`].
    pub fn counters(&self) -> Result<Level0Counters, OffloadError> {
        Ok(Level0Counters::default())
    }

    /// How the programs are attached.
    pub fn mode(&self) -> Attachment {
        Attachment::Generic
    }

    /// Why [`Mode::Auto`] fell back to generic mode, in the kernel's words.
    pub fn why(&self) -> Option<&str> {
        None
    }

    /// The device's index.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Removes everything, also with [`OnDeath::Drop`].
    ///
    /// # Errors
    /// The kernel's, if it refuses; a device that is gone is no error.
    pub fn detach(self) -> Result<(), OffloadError> {
        Ok(())
    }
}
