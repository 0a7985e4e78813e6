//! Lookup: the steps and the verdict of a packet that a request describes. The stages' own functions decide
//! them. A lookup sends, counts and changes nothing.

mod example;
mod journey;

use std::net::IpAddr;

use millrace_classify::Candidate;
use millrace_forward::IcmpError;
use millrace_packet::{DropReason, Exceptions, Family, FlowKey};
use millrace_plugin::{BindingId, BindingTreatment, Standing};
use millrace_units::{GateId, Instant, PortId, QueueId};
use millrace_wire::{MacAddr, Protocol};

use crate::egress::errors::ErrorSender;
use crate::observe::trace::RouteTaken;
use crate::offloaded_flows::StaysUp;
use crate::router::Router;

/// Packet of a lookup. Its link header is the usual one: addressed to the port, without errors.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Fields that filters match.
    pub candidate: Candidate,
    /// Length in bytes, from the network header on.
    pub length: u16,
    /// Whether IPv4 routers must not fragment the packet.
    pub dont_fragment: bool,
}

impl Question {
    /// Returns the flow key.
    pub fn key(&self) -> &FlowKey {
        &self.candidate.key
    }

    /// Returns whether the IPv6 extension headers can't be read up to the transport header. In that case,
    /// `protocol` is the header at which reading ended.
    pub fn hides_transport(&self) -> bool {
        let Candidate { key, exceptions, .. } = &self.candidate;
        let is_extension = matches!(
            Protocol(key.protocol),
            Protocol::HOP_BY_HOP
                | Protocol::ROUTING
                | Protocol::FRAGMENT
                | Protocol::AH
                | Protocol::DESTINATION_OPTIONS
        );
        key.family() == Family::V6 && is_extension && exceptions.contains(Exceptions::CUT)
    }
}

/// Steps and verdict of a packet.
#[derive(Clone, PartialEq, Debug)]
pub struct Lookup {
    /// Fields of the packet that filters match.
    pub candidate: Candidate,
    /// Steps in their order.
    pub steps: Vec<LookupStep>,
    /// End of the journey.
    pub verdict: Verdict,
}

impl Lookup {
    /// Returns the egress port and the queue that the packet names there, if it is sent.
    pub fn queue(&self) -> Option<(PortId, QueueId)> {
        self.steps.iter().find_map(|step| match step {
            LookupStep::Queued { port, queue } => Some((*port, *queue)),
            _ => None,
        })
    }
}

/// Decision of a stage about the packet of a lookup.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LookupStep {
    /// The headers describe the packet.
    Parsed,
    /// A worker owns the flow.
    Owner {
        /// Number of the worker.
        worker: usize,
        /// Number of workers.
        workers: usize,
    },
    /// The flow has a record, and is offloaded, or stays at the worker for a reason.
    Offload(Option<StaysUp>),
    /// No filter of a gate matches.
    NoMatch {
        /// Gate.
        gate: GateId,
        /// Number of bindings at the gate.
        bindings: u32,
    },
    /// A binding wins at a gate, but has no effect.
    NoEffect {
        /// Gate.
        gate: GateId,
        /// Winning binding.
        binding: BindingId,
        /// Reason.
        standing: Standing,
    },
    /// A binding wins at a gate and replaces the route.
    Redirected {
        /// Gate.
        gate: GateId,
        /// Winning binding.
        binding: BindingId,
        /// Whether the route drops the packet, after the gates at `late`.
        drops: bool,
    },
    /// A binding wins at a gate and treats the packet.
    Bound {
        /// Gate.
        gate: GateId,
        /// Winning binding.
        binding: BindingId,
        /// Treatment of the packet.
        treatment: BindingTreatment,
        /// Whether the binding treats copies only.
        copies: bool,
    },
    /// The route is determined.
    Routed(RouteTaken),
    /// The packet is longer than the MTU of its egress port, and leaves in fragments.
    Fragmented {
        /// Egress port.
        port: PortId,
        /// Length of the packet in bytes.
        length: u16,
        /// MTU of the port in bytes.
        mtu: u16,
    },
    /// The packet gets a link header.
    Link {
        /// Source link address.
        source: MacAddr,
        /// Destination link address.
        destination: MacAddr,
        /// Neighbour with the destination link address.
        neighbour: IpAddr,
    },
    /// The packet is refused with an ICMP error.
    Refused {
        /// Error.
        error: IcmpError,
        /// Sender of the error.
        sender: ErrorSender,
    },
    /// The packet is queued.
    Queued {
        /// Egress port.
        port: PortId,
        /// Queue that the packet names; 0 for the default queue.
        queue: QueueId,
    },
}

/// End of the journey of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet leaves by this port.
    Sent(PortId),
    /// The packet waits until the link address of a neighbour at a port is known, and then leaves.
    Held(PortId, IpAddr),
    /// The packet is dropped.
    Dropped(DropReason),
    /// The packet is punted to the kernel.
    Host,
    /// The router's own stack takes the packet.
    Own,
}

/// Returns the steps and the verdict of a packet.
pub(crate) fn look_up(router: &Router, question: &Question, now: Instant) -> Lookup {
    journey::Journey::new(router, question, now).run()
}
