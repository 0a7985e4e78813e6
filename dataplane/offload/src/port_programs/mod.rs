//! Programs of one port: load, attach, configure and detach.

pub(crate) mod attach;
mod control_plane;
#[cfg(test)]
mod control_plane_test;
mod local_address;
mod mode;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapError, XskMap};

use self::attach::Hold;
pub use self::attach::OnDeath;
pub use self::control_plane::ClassRate;
use self::local_address::difference;
use self::mode::Target;
pub use self::mode::{Attachment, Mode};
use crate::bpf::object::{self, map_error, map_mut, write_config};
use crate::counters::read_counters;
use crate::device::rtnetlink::Device;
use crate::device::{ethtool, genetlink, rtnetlink};
use crate::flow_cache::{FlowCache, FlowPlaces, Place};
use crate::{CONTROL_CLASSES, OffloadError, ProgramCounters, VlanStack};

const XDP_DROP: u8 = 1;
const XDP_PASS: u8 = 2;
/// Number of device queues that the map `sockets` has room for.
const QUEUES: u32 = 256;

/// Attached programs of one port. Dropping this value detaches the programs. A drop during a panic counts as
/// the death of the router: see [`OnDeath`].
#[derive(Debug)]
pub struct PortPrograms {
    ifindex: u32,
    queues: u32,
    object: Ebpf,
    program: OwnedFd,
    filter: Option<OwnedFd>,
    hold: Option<Hold>,
    attachment: Attachment,
    on_death: OnDeath,
    why: Option<String>,
    local: HashSet<IpAddr>,
    vlans: HashSet<VlanStack>,
    sockets: HashSet<u32>,
    /// Hash table parameters of the flow cache.
    places: FlowPlaces,
}

impl PortPrograms {
    /// Loads the offload program and attaches it to `ifindex` of the calling thread's network namespace.
    /// Until [`Self::set_own_mac`] is called, the kernel gets all frames, because no unicast frame matches
    /// the port's MAC address. But if the program replaces one left by [`OnDeath::Drop`], that program's
    /// addresses and VLANs stay in force until then.
    ///
    /// `frags` accepts frames of several buffers. Set it only if the MTU needs it (on a veth, above about
    /// 3,506 bytes at the peer). With `frags`, the peer of a veth keeps its segmentation offload, and
    /// GSO packets of 64 KB arrive. Without `frags`, the kernel turns the peer's segmentation offload off.
    /// XDP does not see VLAN tags that the device removes from the frame. So turn `rxvlan` (on a veth also
    /// the peer's `txvlan`) off before forwarding for VLANs.
    ///
    /// # Errors
    /// See [`OffloadError`]. The call replaces a program that an earlier Millrace left behind, and no other
    /// program. The caller must know that no other Millrace runs on this device.
    pub fn attach_xdp(
        ifindex: u32,
        mode: Mode,
        frags: bool,
        on_death: OnDeath,
    ) -> Result<Self, OffloadError> {
        Self::attach_xdp_with(object::level0()?, ifindex, mode, frags, on_death)
    }

    /// Attaches as [`Self::attach_xdp`] does, for a port whose flows can use the flow cache: see
    /// [`Self::cache_flows`].
    pub fn attach_xdp_cached(
        ifindex: u32,
        mode: Mode,
        frags: bool,
        on_death: OnDeath,
        cache: &FlowCache,
    ) -> Result<Self, OffloadError> {
        let object = object::level0_in(&cache.directory().path(), cache.sizes())?;
        let mut programs = Self::attach_xdp_with(object, ifindex, mode, frags, on_death)?;
        programs.places = cache.table();
        Ok(programs)
    }

    fn attach_xdp_with(
        mut object: Ebpf,
        ifindex: u32,
        mode: Mode,
        frags: bool,
        on_death: OnDeath,
    ) -> Result<Self, OffloadError> {
        let device = attach::find_device(ifindex)?;
        let leftover = attach::xdp_leftover(&device)?;
        if let Some((old, _)) = leftover.as_ref().filter(|_| on_death == OnDeath::Drop) {
            old.bequeath(&mut object);
        }
        set_fallback(&mut object, on_death)?;
        let program = object::load(&mut object, if frags { "millrace_xdp_sg" } else { "millrace_xdp" })?;
        let target = Target { device: &device, ifindex, on_death, leftover };
        let (hold, attachment, why) = target.attach(program.as_fd(), mode)?;
        Ok(Self::new((ifindex, &device), object, program, hold, (attachment, on_death, why)))
    }

    /// Loads and attaches the tcx ingress program for an AF_PACKET port, whose sockets must carry
    /// [`Self::socket_filter_fd`]. Until [`Self::set_own_mac`] is called, the kernel gets all frames. From
    /// then on, the kernel no longer gets frames for user space, even if no socket receives them. Needs Linux
    /// 6.6.
    pub fn attach_tcx(ifindex: u32, on_death: OnDeath) -> Result<Self, OffloadError> {
        let device = attach::find_device(ifindex)?;
        let mut object = object::level0()?;
        set_fallback(&mut object, on_death)?;
        let program = object::load(&mut object, "millrace_tcx")?;
        let filter = object::load(&mut object, "millrace_filter")?;
        let hold = attach::tcx(program.as_fd(), &device, ifindex, on_death, &mut object)?;
        let mut programs =
            Self::new((ifindex, &device), object, program, hold, (Attachment::Tcx, on_death, None));
        programs.filter = Some(filter);
        Ok(programs)
    }

    fn new(
        (ifindex, device): (u32, &Device),
        object: Ebpf,
        program: OwnedFd,
        hold: Hold,
        (attachment, on_death, why): (Attachment, OnDeath, Option<String>),
    ) -> Self {
        let mut programs = Self {
            ifindex,
            queues: ethtool::queues(&device.name).map_or(device.rx_queues, |(rx, _)| rx).max(1),
            object,
            program,
            filter: None,
            hold: Some(hold),
            attachment,
            on_death,
            why,
            local: HashSet::new(),
            vlans: HashSet::new(),
            sockets: HashSet::new(),
            places: FlowPlaces::default(),
        };
        programs.read_inheritance();
        programs
    }

    /// Reads the map entries that were copied from an earlier program, so that the port can remove them
    /// later.
    fn read_inheritance(&mut self) {
        if let Ok(map) = self.hash_map::<u32>("local4") {
            let found: Vec<_> = map.keys().flatten().map(|key| IpAddr::from(key.to_ne_bytes())).collect();
            self.local.extend(found);
        }
        if let Ok(map) = self.hash_map::<[u8; 16]>("local6") {
            let found: Vec<_> = map.keys().flatten().map(IpAddr::from).collect();
            self.local.extend(found);
        }
        if let Ok(map) = self.hash_map::<[u16; 4]>("vlans") {
            let found: Vec<_> = map.keys().flatten().map(VlanStack::from_key).collect();
            self.vlans.extend(found);
        }
    }

    /// Returns the program for `SO_ATTACH_BPF`, which limits an AF_PACKET socket to frames for user space.
    /// The caller attaches it before it binds the socket. `None` for XDP ports.
    pub fn socket_filter_fd(&self) -> Option<BorrowedFd<'_>> {
        self.filter.as_ref().map(AsFd::as_fd)
    }

    /// Returns the kernel's id of the attached program, as `ip link` and `bpftool` show it.
    pub fn program_id(&self) -> Option<u32> {
        object::id_of(self.program.as_fd())
    }

    /// Redirects frames of the device queue `queue` to the AF_XDP socket `fd`, which must be bound to that
    /// queue.
    ///
    /// # Errors
    /// [`OffloadError::Queue`] when the kernel refuses, or the queue index is 256 or more.
    pub fn register_socket(&mut self, queue: u32, fd: RawFd) -> Result<(), OffloadError> {
        if queue >= QUEUES {
            let detail = format!("an AF_XDP socket needs a queue from 0 to {}", QUEUES - 1);
            return Err(OffloadError::Queue { queue, detail });
        }
        let set = |error: MapError| OffloadError::Queue { queue, detail: object::chain(&error) };
        self.socket_map("sockets")?.set(queue, fd, 0).map_err(set)?;
        self.sockets.insert(queue);
        self.set_witness(fd)
    }

    /// Sets the witness: the AF_XDP socket whose end counts as the end of the process. Without a live
    /// witness, the port's frames fall back as [`OnDeath`] defines, even if the port has sockets. By default
    /// the witness is the socket registered last.
    ///
    /// When a process is killed, its sockets close one after the other, the highest descriptor first, and
    /// each close takes some milliseconds. If all ports have the same witness, they all fall back at the same
    /// time.
    pub fn set_witness(&mut self, fd: RawFd) -> Result<(), OffloadError> {
        self.socket_map("witness")?.set(0, fd, 0).map_err(|error| map_error("witness", &error))
    }

    /// Ends the redirection of `queue`. From then on, frames of this queue are treated as [`OnDeath`]
    /// defines.
    ///
    /// # Errors
    /// [`OffloadError::Queue`] when no socket was registered. A registered socket that was closed meanwhile
    /// is no error.
    pub fn unregister_socket(&mut self, queue: u32) -> Result<(), OffloadError> {
        if !self.sockets.remove(&queue) {
            return Err(OffloadError::Queue { queue, detail: "no AF_XDP socket is registered".to_owned() });
        }
        // The kernel removes a closed socket itself.
        let _ = self.socket_map("sockets")?.unset(queue);
        Ok(())
    }

    fn socket_map(&mut self, name: &'static str) -> Result<XskMap<&mut aya::maps::MapData>, OffloadError> {
        let map = map_mut(&mut self.object, name)?;
        XskMap::try_from(map).map_err(|error| map_error(name, &error))
    }

    /// Sets the MAC address of the port. The program leaves unicast frames to other addresses to the kernel.
    pub fn set_own_mac(&mut self, mac: [u8; 6]) -> Result<(), OffloadError> {
        write_config(&mut self.object, |config| config[..6].copy_from_slice(&mac))
    }

    /// Sets the addresses whose packets the kernel keeps: those of all interfaces in the namespace, and the
    /// subnet broadcasts. The call writes only differences. It adds addresses before it removes others, as
    /// far as the map has room. It skips loopback addresses: on a wire they are martians, which user space
    /// counts.
    ///
    /// # Errors
    /// [`OffloadError::Map`] when there are more than 16,384 addresses of one family.
    pub fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), OffloadError> {
        let difference = difference(&self.local, addresses);
        let (mut add, mut full) = (difference.add.into_iter().peekable(), Ok(()));
        while let Some(address) = add.peek()
            && full.is_ok()
        {
            full = self.add_local(*address);
            if full.is_ok() {
                add.next();
            }
        }
        for address in difference.remove {
            self.write_local(address, false)?;
            self.local.remove(&address);
        }
        // Removals may have made room for the remaining additions.
        add.try_for_each(|address| self.add_local(address))
    }

    fn add_local(&mut self, address: IpAddr) -> Result<(), OffloadError> {
        self.write_local(address, true)?;
        self.local.insert(address);
        Ok(())
    }

    fn write_local(&mut self, address: IpAddr, present: bool) -> Result<(), OffloadError> {
        match address {
            IpAddr::V4(address) => {
                let key = u32::from_ne_bytes(address.octets());
                self.write_key("local4", key, present, &address)
            }
            IpAddr::V6(address) => self.write_key("local6", address.octets(), present, &address),
        }
    }

    fn write_key<K: aya::Pod>(
        &mut self,
        name: &'static str,
        key: K,
        present: bool,
        what: &dyn std::fmt::Display,
    ) -> Result<(), OffloadError> {
        let mut map = self.hash_map::<K>(name)?;
        let written = if present { map.insert(key, 1, 0) } else { map.remove(&key) };
        written.map_err(|error| OffloadError::Map {
            map: name,
            detail: format!("{what}: {}", object::chain(&error)),
        })
    }

    fn hash_map<K: aya::Pod>(
        &mut self,
        name: &'static str,
    ) -> Result<HashMap<&mut aya::maps::MapData, K, u8>, OffloadError> {
        HashMap::try_from(map_mut(&mut self.object, name)?).map_err(|error| map_error(name, &error))
    }

    /// Sets the VLANs of the router's sub-interfaces. All frames in these VLANs that are broadcast, multicast
    /// or for the port's MAC address go to user space, including ARP and neighbour discovery. The kernel
    /// keeps other tagged frames.
    ///
    /// # Errors
    /// [`OffloadError::Map`] when there are more than 8,192.
    pub fn set_vlans(&mut self, vlans: &[VlanStack]) -> Result<(), OffloadError> {
        let wanted: HashSet<VlanStack> = vlans.iter().copied().collect();
        for vlan in wanted.difference(&self.vlans.clone()) {
            self.write_key("vlans", vlan.key(), true, vlan)?;
            self.vlans.insert(*vlan);
        }
        for vlan in self.vlans.clone().difference(&wanted) {
            self.write_key("vlans", vlan.key(), false, vlan)?;
            self.vlans.remove(vlan);
        }
        Ok(())
    }

    /// Sets the rate limits of packets for the router itself, by class. Initially there are no limits. Each
    /// port has its own token buckets; the call fills those of this port.
    pub fn set_control_plane(
        &mut self,
        rates: &[Option<ClassRate>; CONTROL_CLASSES],
    ) -> Result<(), OffloadError> {
        control_plane::set(&mut self.object, rates)
    }

    /// Sets whether the programs look up flows in the flow cache with which they were attached. Initially
    /// they don't. `port`: the router's number of the port.
    pub fn cache_flows(&mut self, port: u16, cached: bool) -> Result<(), OffloadError> {
        let failed = |error: MapError| map_error("place", &error);
        let mut map = Array::<_, Place>::try_from(map_mut(&mut self.object, "place")?).map_err(failed)?;
        map.set(0, FlowCache::place(self.places, port, cached), 0).map_err(failed)
    }

    /// Returns whether the device accepts frames that a program redirects to it, as its driver reports now. A
    /// veth accepts them while its other end has an XDP program or receive offload (GRO). False before Linux
    /// 6.3, where no driver reports it.
    ///
    /// The second value tells whether the device accepts redirected frames of several buffers.
    pub fn takes_redirects(&self) -> (bool, bool) {
        let features = genetlink::xdp_features(self.ifindex).unwrap_or_default();
        (features.contains(&"ndo-xmit"), features.contains(&"ndo-xmit-sg"))
    }

    /// Returns the length of the longest redirected packet that the other end of the device accepts, in bytes
    /// without link header. The other end of a veth may have a smaller MTU than the device itself. That end
    /// drops a longer packet, and up to 15 packets redirected after it. `None` for a device without another
    /// end, or if the MTU of that end is unknown.
    pub fn longest_at_far_end(&self) -> Option<u32> {
        rtnetlink::far_mtu(self.ifindex).map(|mtu| mtu + rtnetlink::VETH_ROOM)
    }

    /// Returns the counters of the program.
    pub fn counters(&self) -> Result<ProgramCounters, OffloadError> {
        read_counters(&self.object)
    }

    /// Returns the attachment of the programs.
    pub fn mode(&self) -> Attachment {
        self.attachment
    }

    /// Returns the reason why [`Mode::Auto`] fell back to generic mode, in the kernel's words.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Returns the number of receive queues that were in use when the programs were attached. Each of these
    /// queues needs a socket. The number may be smaller than rtnetlink's `IFLA_NUM_RX_QUEUES`: a veth has
    /// room for one queue per processor and uses one.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Returns the index of the device.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Detaches the programs, whatever [`OnDeath`] is set.
    pub fn detach(mut self) -> Result<(), OffloadError> {
        let Some(hold) = self.hold.take() else { return Ok(()) };
        let device = self.ifindex.to_string();
        hold.release(self.ifindex).map_err(|source| OffloadError::Kernel {
            device,
            call: "detaching",
            source,
        })
    }

    /// Detaches the programs of a router that has crashed. With [`OnDeath::Drop`], the programs stay
    /// attached.
    pub fn leave(mut self) -> Result<(), OffloadError> {
        if self.on_death == OnDeath::Drop {
            // Without `hold`, the drop leaves the program attached.
            self.hold = None;
        }
        self.detach()
    }

    pub(crate) fn object_mut(&mut self) -> &mut Ebpf {
        &mut self.object
    }
}

impl Drop for PortPrograms {
    fn drop(&mut self) {
        if std::thread::panicking() && self.on_death == OnDeath::Drop {
            return;
        }
        if let Some(hold) = self.hold.take() {
            // There is no caller to report an error to.
            let _ = hold.release(self.ifindex);
        }
    }
}

fn set_fallback(object: &mut Ebpf, on_death: OnDeath) -> Result<(), OffloadError> {
    let action = if on_death == OnDeath::Drop { XDP_DROP } else { XDP_PASS };
    write_config(object, |config| config[6] = action)
}
