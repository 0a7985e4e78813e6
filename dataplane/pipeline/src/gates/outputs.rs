//! Outputs of instances other than verdicts: packets, messages, requests and log lines.

use millrace_packet::{DropReason, Packet};
use millrace_plugin::Given;
use millrace_plugin_abi::Output;
use millrace_units::{Instant, PortId};

use super::GateRun;
use crate::observe::event::Event;
use crate::pending::from_plugins::Maker;

/// Maximum number of packets, made by instances of one principal, that the worker sends on in a turn of the principal.
const PACKETS_IN_TURN: usize = 32;

impl GateRun<'_> {
    /// Handles all outputs of instances except verdicts. Packets are queued; messages, requests and log lines go to
    /// control.
    #[inline]
    pub fn take_given(&mut self, now: Instant) {
        while let Some(given) = self.gates.plugins_mut().instances_mut().take_given() {
            self.take_output(given, now);
        }
    }

    /// Handles one output of an instance.
    fn take_output(&mut self, given: Given, now: Instant) {
        let Given { instance, context, payer, output } = given;
        match output {
            Output::Packet { bytes, port, passes } => {
                if !self.begin_made(&bytes, port, passes, payer) {
                    self.gates.plugins_mut().instances_mut().fail_for_port((instance, context), port, now);
                }
            }
            Output::Log(level, line) => {
                _ = self.observation.report_event(Event::InstanceSays(instance, level, line))
            }
            Output::Message(bytes) => {
                if !self.observation.report_event(Event::InstanceSends(instance, bytes)) {
                    self.gates
                        .plugins_mut()
                        .instances_mut()
                        .count_messages(instance, |messages| messages.unsent += 1);
                }
            }
            Output::Request(request) => {
                _ = self.observation.report_event(Event::InstanceRequests(instance, request))
            }
        }
    }

    /// Queues a packet that an instance made for the pipeline, as if `port` had received it. `bytes` start at
    /// the network header. `passes`: number of times that the packet's original was classified again or made
    /// by a plugin; its limit ends loops in which packets multiply. `maker`: principal that pays for the call that
    /// made the packet. Returns `false` for an unknown port, because no stage checks packets without an ingress port.
    pub fn begin_made(&mut self, bytes: &[u8], port: PortId, passes: u8, maker: Maker) -> bool {
        if self.ports.get(port).is_none() {
            return false;
        }
        self.observation.totals.created.plugins += 1;
        let Some(mut packet) = self.pool.packet_from(bytes) else {
            self.observation.totals.dropped += 1;
            self.ports.count_drop(port, DropReason::NoMemory);
            return true;
        };
        packet.port = port;
        packet.passes = passes;
        packet.set_network(0);
        if let Err(packet) = self.pending.from_plugins.push(packet, maker, self.pool) {
            self.drop_packet(packet, DropReason::QueueFull);
        }
        true
    }

    /// Moves packets of a maker into the pipeline: the packets of a turn, and no more than an iteration may take. Drops
    /// a packet that has been classified too often. Returns whether any packet has left the queue.
    pub fn take_made(&mut self, maker: Maker) -> bool {
        for number in 0..PACKETS_IN_TURN {
            let Some(packet) = self.pending.from_plugins.take(maker) else { return number > 0 };
            if let Err(packet) = self.pending.classify_again(packet) {
                self.drop_packet(packet, DropReason::PluginLoop);
            }
        }
        true
    }

    /// Drops a packet that an instance made.
    fn drop_packet(&mut self, packet: Packet, reason: DropReason) {
        self.observation.drop_packet(packet, reason, self.ports, self.gates.plugins());
    }
}
