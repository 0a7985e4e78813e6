//! Cases of link headers, ARP and neighbour discovery.

mod arp;
mod ethernet;
mod nd;
