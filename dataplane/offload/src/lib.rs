//! Offload level: the programs that run in the kernel for each port, and their maps.
//!
//! A port's program decides about every frame. The kernel keeps some frames (ARP, the router's own addresses,
//! multicast, …). The program forwards others itself, by the [`FlowCache`], or sends them to user space.
//!
//! - [`PortPrograms`] loads and attaches that program.
//! - [`KernelHandback`] punts frames to the kernel as if the port had just received them.
//! - [`FrameSource`] generates traffic at rates no socket reaches; [`FrameSink`] receives it.
//! - [`HostCatch`] redirects the kernel's own output to the router.
//! - [`DeviceReport`] reports the capabilities of a device.
#![deny(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    any(test, feature = "fuzzing"),
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod attach;
mod bpf_syscall;
#[cfg(test)]
mod classifier_test;
#[cfg(any(test, feature = "fuzzing"))]
mod classifier_twin;
mod control_plane;
#[cfg(test)]
mod control_plane_test;
mod counters;
#[cfg(any(test, feature = "fuzzing"))]
mod dry_runs;
mod error;
mod ethtool;
mod facts;
mod flow_cache;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod genetlink;
mod host_output;
#[cfg(test)]
mod host_output_test;
mod injector;
mod leftover;
mod local_address;
mod longest_way;
mod mapped_map;
mod object;
mod port_programs;
#[cfg(test)]
mod port_programs_test;
mod probe;
mod rtnetlink;
#[cfg(test)]
mod test_support;
mod vlan;

pub use attach::OnDeath;
pub use control_plane::ClassRate;
pub use counters::{CONTROL_CLASSES, Level0Counters};
pub use error::{InjectError, OffloadError};
pub use ethtool::{link_speed, receive_queues, takes_tags_out};
pub use facts::{DeviceFacts, why_no_redirects};
pub use flow_cache::{
    DriverSent, FlowCache, FlowCacheWriter, FlowSlot, FormMemory, FormObject, KEY_BYTES, LoadedForm,
    PolicerPlace, RX_QUEUES,
};
pub use genetlink::FeatureNews;
pub use host_output::HostCatch;
pub use injector::{BatchSender, Flows, FrameSink, FrameSource, KernelHandback};
pub use leftover::own_program_ids;
pub use longest_way::LongestWay;
pub use port_programs::{Attachment, Mode, PortPrograms};
pub use probe::{AttachedProgram, DeviceReport, Support};
pub use vlan::{VlanStack, VlanTag};
