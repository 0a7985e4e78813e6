//! Mirror of the kernel's links, addresses, routes and neighbours, and requests to the kernel.
//!
//! [`HostState`] is pure: decoded kernel messages go in, [`HostChange`]s come out. [`Mirror`] keeps one such
//! state equal to the kernel's by netlink, in the network namespace of the thread that started it. It reads
//! notifications of single changes, and lists: netlink dumps of all objects of a type. [`Actions`] asks the
//! kernel to resolve neighbours and to keep Millrace's configured routes. [`policy`] finds kernel policies
//! beyond routing. No code in this crate forwards packets.

mod actions;
mod address;
mod change;
mod device_counters;
mod error;
mod forwarding;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link;
mod mirror;
mod neighbour;
mod netlink;
pub mod policy;
mod prefix_range;
mod route;
pub mod state;
#[cfg(test)]
mod test_namespace;

pub use actions::{Actions, OwnRoute, PROTOCOL_MILLRACE};
pub use address::{Family, HostAddress};
pub use change::HostChange;
pub use device_counters::transmit_drops;
pub use error::HostError;
pub use forwarding::{DeviceSwitches, Forwarding};
pub use link::{HostLink, LinkPeer};
pub use mirror::{Mirror, MirrorOptions, MirrorStatistics};
pub use neighbour::{HostNeighbour, NeighbourState};
pub use policy::{ForwardingAdvice, SwitchUse, forwarding_advice};
pub use prefix_range::{PrefixRange, merged};
pub use route::{HostNextHop, HostRoute, RouteKind};
pub use state::{HostState, local_addresses};
