//! Link layer: Ethernet, VLAN tags, MAC addresses and ARP.

pub mod arp;
pub mod ethernet;
pub mod mac_addr;
pub mod vlan;
