//! Forwarding switches: the sysctls `forwarding`, `force_forwarding`, `rp_filter` and `mc_forwarding` of the
//! namespace and of each device.

use std::collections::BTreeMap;

use crate::HostChange;
use crate::address::Family;

/// Forwarding switches of one device or of the whole namespace, for one address family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceSwitches {
    /// Sysctl `forwarding`: the kernel forwards packets that arrive here.
    pub forwarding: bool,
    /// `force_forwarding` (IPv6, Linux 6.17 and up): the device forwards even if forwarding is off in the
    /// namespace.
    pub force_forwarding: bool,
    /// `rp_filter` (IPv4): 0 off, 1 strict, 2 loose.
    pub rp_filter: u8,
    /// `mc_forwarding`: a multicast routing daemon is active.
    pub multicast_forwarding: bool,
}

impl DeviceSwitches {
    fn forwards(&self) -> bool {
        self.forwarding || self.force_forwarding
    }
}

/// Forwarding switches in a netlink message; `None` for a switch that the message omits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchesUpdate {
    /// `forwarding`.
    pub forwarding: Option<bool>,
    /// `force_forwarding`.
    pub force_forwarding: Option<bool>,
    /// `rp_filter`.
    pub rp_filter: Option<u8>,
    /// `mc_forwarding`.
    pub multicast_forwarding: Option<bool>,
}

impl SwitchesUpdate {
    /// Update that turns all switches off.
    pub(crate) const ALL_OFF: Self = Self {
        forwarding: Some(false),
        force_forwarding: Some(false),
        rp_filter: Some(0),
        multicast_forwarding: Some(false),
    };

    /// Returns the switches that `self` or `other` contains. If both contain a switch, the value in `self`
    /// counts.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            forwarding: self.forwarding.or(other.forwarding),
            force_forwarding: self.force_forwarding.or(other.force_forwarding),
            rp_filter: self.rp_filter.or(other.rp_filter),
            multicast_forwarding: self.multicast_forwarding.or(other.multicast_forwarding),
        }
    }

    /// Returns the switches that `self` contains and `other` does not.
    pub(crate) fn without(self, other: &Self) -> Self {
        Self {
            forwarding: self.forwarding.filter(|_| other.forwarding.is_none()),
            force_forwarding: self.force_forwarding.filter(|_| other.force_forwarding.is_none()),
            rp_filter: self.rp_filter.filter(|_| other.rp_filter.is_none()),
            multicast_forwarding: self.multicast_forwarding.filter(|_| other.multicast_forwarding.is_none()),
        }
    }
}

/// Forwarding switches of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forwarding {
    /// Switches of the whole namespace (`conf.all`), by family.
    pub all: BTreeMap<Family, DeviceSwitches>,
    /// Switches of each device (`conf.DEVICE`), by device index and family.
    pub devices: BTreeMap<(u32, Family), DeviceSwitches>,
}

impl Forwarding {
    /// Whether the kernel would forward a packet that arrived on the device.
    ///
    /// For IPv4, only the switch of the device counts; for IPv6, only that of the namespace.
    pub fn enabled(&self, ifindex: u32, family: Family) -> bool {
        let device = self.devices.get(&(ifindex, family)).copied().unwrap_or_default();
        match family {
            Family::Ipv4 => device.forwarding,
            Family::Ipv6 => {
                device.force_forwarding || self.all.get(&family).is_some_and(|all| all.forwarding)
            }
        }
    }

    /// Whether forwarding is off at this device alone: the namespace forwards, the device does not.
    ///
    /// Always false for IPv6. There, a device's `forwarding` tells whether the kernel acts as a host on the
    /// link.
    pub fn is_off_at_device(&self, ifindex: u32, family: Family) -> bool {
        let namespace = self.all.get(&family).is_some_and(|all| all.forwarding);
        let device = self.devices.get(&(ifindex, family));
        family == Family::Ipv4 && namespace && device.is_some_and(|device| !device.forwarding)
    }

    /// Applies the switches of a message and appends the resulting changes.
    pub(crate) fn update(
        &mut self,
        ifindex: Option<u32>,
        family: Family,
        update: SwitchesUpdate,
        changes: &mut Vec<HostChange>,
    ) {
        let switches = match ifindex {
            None => self.all.entry(family).or_default(),
            Some(ifindex) => self.devices.entry((ifindex, family)).or_default(),
        };
        let before = switches.forwards();
        switches.forwarding = update.forwarding.unwrap_or(switches.forwarding);
        switches.force_forwarding = update.force_forwarding.unwrap_or(switches.force_forwarding);
        switches.rp_filter = update.rp_filter.unwrap_or(switches.rp_filter);
        switches.multicast_forwarding = update.multicast_forwarding.unwrap_or(switches.multicast_forwarding);
        let enabled = switches.forwards();
        if enabled != before {
            changes.push(HostChange::Forwarding { ifindex, family, enabled });
        }
    }

    pub(crate) fn remove(&mut self, ifindex: u32, family: Family, changes: &mut Vec<HostChange>) {
        let gone = self.devices.remove(&(ifindex, family));
        if gone.is_some_and(|switches| switches.forwards()) {
            changes.push(HostChange::Forwarding { ifindex: Some(ifindex), family, enabled: false });
        }
    }

    pub(crate) fn remove_device(&mut self, ifindex: u32, changes: &mut Vec<HostChange>) {
        for family in [Family::Ipv4, Family::Ipv6] {
            self.remove(ifindex, family, changes);
        }
    }

    pub(crate) fn as_changes(&self) -> impl Iterator<Item = HostChange> + '_ {
        let all = self.all.iter().map(|(family, switches)| (None, *family, switches));
        let devices =
            self.devices.iter().map(|((ifindex, family), switches)| (Some(*ifindex), *family, switches));
        all.chain(devices).map(|(ifindex, family, switches)| HostChange::Forwarding {
            ifindex,
            family,
            enabled: switches.forwards(),
        })
    }
}
