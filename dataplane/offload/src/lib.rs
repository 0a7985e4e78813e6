//! Offload level: the programs that run in the kernel for each port, and their maps.
//!
//! A port's program decides about every frame. It leaves some frames to the kernel (ARP, the router's own
//! addresses, multicast, …). It forwards others itself, by the [`FlowCache`], or sends them to user space.
//!
//! - [`PortPrograms`] loads and attaches the programs of a port.
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

mod bpf;
#[cfg(any(test, feature = "fuzzing"))]
mod classifier;
mod counters;
mod device;
mod error;
mod flow_cache;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host_output;
#[cfg(test)]
mod host_output_test;
mod injector;
mod port_programs;
mod probe;
#[cfg(test)]
mod test_support;
mod vlan;

pub use bpf::leftover::own_program_ids;
pub use bpf::longest_path::LongestPath;
pub use counters::{CacheCounters, FallbackCounters, KeptCounters, ProgramCounters};
pub use device::ethtool::{link_speed, receive_queues, takes_tags_out};
pub use device::facts::{DeviceFacts, why_no_redirects};
pub use device::genetlink::FeatureNews;
pub use error::{InjectError, OffloadError};
pub use flow_cache::{
    FlowCache, FlowCacheWriter, FlowSlot, KEY_BYTES, LoadedVariant, OffloadSent, PolicerPlace, RX_QUEUES,
    VARIANTS, VariantMaps, VariantObject,
};
pub use host_output::{HostCatch, HostRedirect, Mark};
pub use injector::{BatchSender, Flows, FrameSink, FrameSource, KernelHandback};
pub use millrace_packet::CONTROL_CLASSES;
pub use port_programs::{Attachment, ClassRate, Mode, OnDeath, PortPrograms};
pub use probe::{AttachedProgram, DeviceReport, Support};
pub use vlan::{VlanStack, VlanTag};
