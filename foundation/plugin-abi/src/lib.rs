//! Interface between plugins and the router, the same for every runtime.
//!
//! A [`Plugin`] is a plugin type; an [`Instance`] is a configured instance of it, bound to flows at gates.
//! The router calls an instance with packets of its flows, and the instance writes a [`Verdict`] for each
//! packet.
//!
//! [`binary`] is the equivalent interface for plugin files, and [`process`] the memory that workers share with
//! the processes of plugins. Without the crate feature `host`, only these and [`Features`] are available.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "host"), no_std)]

extern crate alloc;

pub mod binary;
mod features;
pub mod process;

#[cfg(feature = "host")]
mod backlog;
#[cfg(feature = "host")]
mod connection;
#[cfg(feature = "host")]
mod declared;
#[cfg(feature = "host")]
mod ebpf_variant;
#[cfg(feature = "host")]
mod error;
#[cfg(feature = "host")]
mod gate;
#[cfg(feature = "host")]
mod instance;
#[cfg(feature = "host")]
mod memory_account;
#[cfg(feature = "host")]
mod output;
#[cfg(feature = "host")]
mod packets;
#[cfg(feature = "host")]
mod reading;
#[cfg(feature = "host")]
mod shared_map;

pub use features::Features;

#[cfg(feature = "host")]
pub use {
    backlog::{Backlog, Backlogs, Known, NoQueues, PayerBacklog, QueueBacklog},
    binary::{MOST_MAP_KEY, MOST_MAP_VALUE},
    connection::{ConnectionStatus, PacketConnection, StateScope},
    declared::manual_of,
    ebpf_variant::{EbpfVariant, VariantCounts, VariantMemory},
    error::PluginError,
    features::NotOffered,
    gate::{DEFAULT_GATES, Position},
    instance::{
        DeclaredCycles, DeclaredNeeds, Fault, FlowEnd, Instance, Message, Plugin, Progress, Reply, Runtime,
        merged,
    },
    memory_account::{MemoryAccount, MemoryUse},
    millrace_packet::{Exceptions, Family, FlowKey, Packet},
    millrace_units::Instant,
    output::{LogLevel, Output, Request, RequestKinds},
    packets::{FlowStates, Packets, Verdict},
    process::ProcessWork,
    reading::{SettingsReader, merged_but, name_of, restored, settings_of},
    shared_map::{
        MOST_MAP_ENTRIES, MOST_MAP_MEMORY, MOST_MAPS, MapCounts, MapHandle, MapProblem, MapShape, SharedMap,
    },
};
