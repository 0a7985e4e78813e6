//! Processor time that the scheduler counts for a principal.

use std::time::Duration;

use millrace_units::{Cycles, Instant};

use super::limit::Limit;
use super::settings::CpuPrincipal;

/// Processor time of a principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuAccount {
    /// Cycles charged.
    pub used: Cycles,
    /// Time during which the principal had work.
    pub backlogged: Duration,
    /// Number of times that the principal began to have work.
    pub periods: u64,
    /// Times that the limit stopped the principal.
    pub throttled: u64,
}

/// Reason why a packet may not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuDrop {
    /// The flow's queue at the stage would exceed the principal's threshold.
    Threshold,
    /// The principal has used up its part of the memory or of the queues for several stages, which all principals
    /// share.
    Part,
    /// No such principal.
    Principal,
}

/// Account of a flow's queue since the queue began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuFlowAccount {
    /// Cycles charged to the flow.
    pub used: Cycles,
    /// Packets that wait.
    pub packets: u32,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that were refused.
    pub dropped: u64,
}

/// Principal of a scheduler, in two cache lines.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Principal {
    pub settings: CpuPrincipal,
    pub limit: Option<Limit>,
    /// Time since which the principal has work.
    pub work_since: Option<Instant>,
    pub is_throttled: bool,
    pub account: CpuAccount,
}

const _: () = assert!(size_of::<Option<Principal>>() == 128);
