//! Changes that a benchmark makes to a router in memory between packets.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use millrace_classify::Filter;
use millrace_packet::FlowKey;
use millrace_pipeline::{FlowCommand, FlowTreatment, Piece, PluginCommand, ScheduleChange, SchedulerCommand};
use millrace_plugin::{CallLimits, Succession, Successor};
use millrace_plugin_abi::{Message, Plugin};
use millrace_schedule::{FlowQueuesSettings, LinkOverhead, LinkRate, NodeKind, Rate, Share};
use millrace_units::{InstanceId, QueueId};

use super::gates::{COUNTING, bind};
use super::{Pipeline, failed};
use crate::BenchError;

/// Leaf of the port's scheduler.
const LEAF: QueueId = QueueId(1);
/// Bytes that a port with a rate may send late: a batch of packets.
const SLACK: u32 = 1 << 15;

impl Pipeline {
    /// Gives the output port a scheduler with one leaf.
    pub fn schedule(&mut self, kind: NodeKind) -> Result<(), BenchError> {
        self.change_schedule(ScheduleChange::Add { node: LEAF, parent: None, share: Share::Only, kind })
    }

    /// Gives the output port a queue per flow, and reserves the rate `rate` of the port's rate `port` for one
    /// flow.
    pub fn reserve(&mut self, flow: FlowKey, rate: Rate, port: Rate) -> Result<(), BenchError> {
        let settings = FlowQueuesSettings { capacity: Some(port), ..FlowQueuesSettings::default() };
        self.schedule(NodeKind::FlowQueues(settings))?;
        self.change_schedule(ScheduleChange::Flow(LEAF, flow, FlowTreatment::Reserved(rate, None)))?;
        self.tell(FlowCommand::Reserve(vec![flow]));
        Ok(())
    }

    /// Limits the output port, which has a scheduler, to a rate on the wire.
    pub fn limit_rate(&mut self, rate: Rate) -> Result<(), BenchError> {
        let link = LinkRate { rate: Some(rate), slack: SLACK };
        self.change_schedule(ScheduleChange::Link(link, LinkOverhead::default()))
    }

    fn change_schedule(&mut self, change: ScheduleChange) -> Result<(), BenchError> {
        let (reply, answer) = sync_channel(1);
        self.tell(SchedulerCommand::Change(self.out.port, vec![change], Piece::WHOLE, reply));
        let made = answer.try_recv().map_err(failed)?;
        made.map_err(failed)
    }

    /// Adds an instance of a plugin, bound to a filter.
    pub fn add_instance(
        &mut self,
        plugin: Arc<dyn Plugin>,
        name: &str,
        gate: &str,
        filter: &str,
    ) -> Result<InstanceId, BenchError> {
        let filter: Filter = filter.parse().map_err(failed)?;
        let compiled = filter.compile(|_| None).map_err(failed)?.into();
        let kind = plugin.name();
        self.unit.add_plugin(plugin).map_err(failed)?;
        let (id, mut changes) =
            self.unit.create_instance(kind, name, serde_json::Map::new()).map_err(failed)?;
        let call_limits = CallLimits::default();
        let (_, bound) =
            self.unit.register_instance(name, gate, filter, compiled, 0, call_limits).map_err(failed)?;
        changes.push(bound);
        let told = self.tables.publish(changes);
        self.tell(PluginCommand::Change(told));
        Ok(id)
    }

    /// Sends the command to upgrade an instance. The worker executes the command in its next iteration. The
    /// returned receiver gets the result.
    pub fn begin_succession(&mut self, id: InstanceId, successor: Successor) -> Receiver<Option<Succession>> {
        let (reply, answer) = sync_channel(1);
        // The command only waits in the ring here. The worker executes it later, so its cost is measured.
        let _ = self.link.commands.push(PluginCommand::Replace(id, successor, reply).into());
        answer
    }

    /// Sends a message without arguments to an instance, and returns the instance's reply.
    pub fn control(&mut self, id: InstanceId, message: &str) -> Result<serde_json::Value, BenchError> {
        let message = Message { name: message.to_owned(), arguments: serde_json::Map::new() };
        let (reply, answer) = sync_channel(1);
        let _ = self.link.commands.push(PluginCommand::Control(id, message, reply).into());
        for _ in 0..1000 {
            self.sent += self.worker.iterate(self.now, || self.now).received as u64;
            if let Ok(answer) = answer.try_recv() {
                // The benchmarks read instances with one context.
                let reply = answer.and_then(|replies| replies.into_iter().next());
                let reply = reply.ok_or_else(|| BenchError::measurement("plugins", "no such instance"))?;
                return reply.map_err(failed);
            }
        }
        Err(BenchError::measurement("plugins", "an instance did not answer"))
    }

    /// Adds a filter bound to the gate's instance. The filter is active from the next packet on.
    pub fn add_filter(&mut self, filter: &str) -> Result<(), BenchError> {
        let filter: Filter = filter.parse().map_err(failed)?;
        let (_, change) = bind(&mut self.unit, COUNTING, &filter, 0)?;
        let told = self.tables.publish(vec![change]);
        // The command only waits in the ring here. The worker executes it later, so its cost is measured.
        let _ = self.link.commands.push(PluginCommand::Change(told).into());
        Ok(())
    }
}
