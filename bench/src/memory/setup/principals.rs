//! Principals of a router in memory, instances that they pay for, and further input ports.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use millrace_classify::Filter;
use millrace_pipeline::{
    CoreSettings, PluginCommand, PortCommand, PrincipalCommand, PrincipalCounts, PrincipalSettings,
};
use millrace_plugin::CallLimits;
use millrace_plugin_abi::Plugin;
use millrace_port::Port;
use millrace_schedule::cpu::{CpuPrincipal, CpuSchedulerKind, CpuSchedulerSettings, CpuShare};
use millrace_units::{Cycles, PrincipalId, QueueId};
use serde_json::Map;

use super::pipeline::settings;
use super::routes::in_subnet;
use super::{IN_MAC, Pipeline, Place, failed};
use crate::BenchError;
use crate::family::Family;

/// Maximum number of bytes that wait in a flow queue of a principal.
const QUEUE: u32 = 1 << 18;
/// Slice of an idle principal, which never runs.
const QUANTUM: Cycles = Cycles(50_000);
/// Processor time that core leaves at its ceiling, in parts per million.
pub(crate) const CAPACITY: u32 = 800_000;

impl Pipeline {
    /// Sets the CPU scheduler of the worker. Core comes first.
    pub fn schedule_cpu(&mut self, settings: CpuSchedulerSettings) -> Result<(), BenchError> {
        self.schedule_core(settings, CoreSettings::default())
    }

    /// Sets the CPU scheduler of the worker, and the place of core in it.
    pub fn schedule_core(
        &mut self,
        settings: CpuSchedulerSettings,
        core: CoreSettings,
    ) -> Result<(), BenchError> {
        let (reply, answer) = sync_channel(1);
        self.tell(PrincipalCommand::Configure(settings, core, reply));
        answer.try_recv().map_err(failed)?.map_err(failed)
    }

    /// Adds a principal without limit and deadline.
    pub fn add_principal(&mut self, id: PrincipalId, share: CpuShare) -> Result<(), BenchError> {
        self.add_limited_principal(id, CpuPrincipal { share, limit: None, deadline: None })
    }

    /// Adds a principal.
    pub fn add_limited_principal(&mut self, id: PrincipalId, cpu: CpuPrincipal) -> Result<(), BenchError> {
        let (reply, answer) = sync_channel(1);
        self.tell(PrincipalCommand::Set(
            id,
            PrincipalSettings { cpu, queue: QUEUE, link_queue: QueueId(0) },
            reply,
        ));
        answer.try_recv().map_err(failed)?.map_err(failed)
    }

    /// Adds a CPU scheduler with `number` principals that have no packets.
    pub(super) fn add_idle_principals(&mut self, number: u32) -> Result<(), BenchError> {
        let kind = CpuSchedulerKind::default();
        self.schedule_cpu(CpuSchedulerSettings {
            kind,
            quantum: QUANTUM,
            frequency: 1_000_000_000,
            capacity: CAPACITY,
        })?;
        (0..number).try_for_each(|id| self.add_principal(PrincipalId(id), CpuShare::Weight(1)))
    }

    /// Returns the counters of all principals, in ascending order of ids.
    pub fn principals(&mut self) -> Vec<(PrincipalId, PrincipalCounts)> {
        self.snapshot().principals
    }

    /// Returns the cycles of core for the packets of each port that has received any, in the order of ports.
    pub fn core_by_port(&mut self) -> Vec<u64> {
        let ports = self.snapshot().ports;
        ports
            .iter()
            .filter(|(_, count)| count.rx_packets > 0)
            .map(|(_, count)| count.core.received.0)
            .collect()
    }

    /// Returns the cycles of core for sending at each port that core has measured, in the order of ports.
    pub fn output_by_port(&mut self) -> Vec<u64> {
        let ports = self.snapshot().ports;
        ports.iter().filter(|(_, count)| count.tx_packets > 0).map(|(_, count)| count.core.output.0).collect()
    }

    /// Creates an instance of a plugin, without binding it. Adds the plugin first, unless it is there.
    pub fn create_instance(&mut self, plugin: Arc<dyn Plugin>, name: &str) -> Result<(), BenchError> {
        let kind = plugin.name();
        if self.unit.plugin_named(kind).is_err() {
            self.unit.add_plugin(plugin).map_err(failed)?;
        }
        let (_, changes) = self.unit.create_instance(kind, name, Map::new()).map_err(failed)?;
        let changes = self.tables.publish(changes);
        self.tell(PluginCommand::Change(changes));
        Ok(())
    }

    /// Binds an instance to a filter. With a payer, the packets wait until the payer gets the processor.
    pub fn bind_instance(
        &mut self,
        name: &str,
        gate: &str,
        filter: &str,
        payer: Option<PrincipalId>,
    ) -> Result<(), BenchError> {
        let call = match payer {
            Some(_) => CallLimits::DEFAULT_PAID_CALL,
            None => CallLimits::DEFAULT_CALL,
        };
        self.bind_limited(
            (name, gate),
            filter,
            CallLimits { call, principal: payer, ..CallLimits::default() },
        )
    }

    /// Binds an instance to a filter at a gate, with all limits of its calls.
    pub fn bind_limited(
        &mut self,
        (name, gate): (&str, &str),
        filter: &str,
        limits: CallLimits,
    ) -> Result<(), BenchError> {
        let filter: Filter = filter.parse().map_err(failed)?;
        let compiled = filter.compile(|_| None).map_err(failed)?.into();
        let (_, bound) =
            self.unit.register_instance(name, gate, filter, compiled, 0, limits).map_err(failed)?;
        let changes = self.tables.publish(vec![bound]);
        self.tell(PluginCommand::Change(changes));
        Ok(())
    }

    /// Adds an IPv4 input port of a further device.
    pub fn add_input(&mut self, place: Place, input: Box<dyn Port>) {
        let port = settings("in", (place, IN_MAC), Family::V4, in_subnet(usize::from(place.device.0)));
        self.tell(PortCommand::Set(place.port, port));
        self.worker.add_device(place.device, input);
    }
}
