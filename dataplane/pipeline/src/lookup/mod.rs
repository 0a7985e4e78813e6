//! Lookup: the steps and the verdict of a packet that the user describes. The lookup calls the same functions
//! as the stages. It sends, counts and changes nothing.

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

/// Packet that a lookup describes. Its link header is valid, and addressed to the ingress port.
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

    /// Returns whether the IPv6 extension headers can't be parsed up to the transport header. In that case,
    /// `protocol` is the header at which parsing ended.
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

/// Result of a lookup: the packet's steps and verdict.
#[derive(Clone, PartialEq, Debug)]
pub struct Lookup {
    /// Fields of the packet that filters match.
    pub candidate: Candidate,
    /// Steps in their order.
    pub steps: Vec<LookupStep>,
    /// Final fate of the packet.
    pub verdict: Verdict,
}

impl Lookup {
    /// Returns the egress port, and the packet's queue there; `None` if the packet is not sent.
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
    /// The parse stage has read the headers.
    Parsed,
    /// The flow belongs to this worker.
    Owner {
        /// Number of the worker.
        worker: usize,
        /// Total number of workers.
        workers: usize,
    },
    /// The flow has a record. It is offloaded (`None`), or stays at the worker for the given reason.
    Offload(Option<StaysUp>),
    /// No filter at a gate matches the packet.
    NoMatch {
        /// Gate.
        gate: GateId,
        /// Number of bindings at the gate.
        bindings: u32,
    },
    /// A binding wins at a gate, but does nothing to the packet.
    NoEffect {
        /// Gate.
        gate: GateId,
        /// Winning binding.
        binding: BindingId,
        /// Reason why the binding does nothing.
        standing: Standing,
    },
    /// A binding wins at a gate and replaces the route.
    Redirected {
        /// Gate.
        gate: GateId,
        /// Winning binding.
        binding: BindingId,
        /// Whether the new route drops the packet, which happens after the gates of position `late`.
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
        /// Source MAC address.
        source: MacAddr,
        /// Destination MAC address.
        destination: MacAddr,
        /// Neighbour with the destination MAC address.
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
        /// Queue number in the packet's annotations; 0 for the default queue.
        queue: QueueId,
    },
}

/// Final fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet leaves by this port.
    Sent(PortId),
    /// The packet waits for the MAC address of this neighbour at this port, and is then sent.
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
