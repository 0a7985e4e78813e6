//! Commands to gates, bindings and instances of plugins.

use millrace_plugin::{EndedStages, PluginChange, ShadowReport, Succession, Successor};
use millrace_plugin_abi::{Instance, Message, Reply};
use millrace_units::{InstanceId, Instant};

use super::{FEW, ReplyTo, answer};
use crate::gate_tables::Published;
use crate::offloaded_flows::Invalidation;
use crate::router::Router;
use crate::router::slices::Slices;

/// Command to gates, bindings and instances of plugins.
pub enum PluginCommand {
    /// Changes instances, gates and bindings. All changes are in force before the next packet.
    Change(Vec<PluginChange<Published>>),
    /// Sends a control message to each context of an instance. The answer has their replies.
    Control(InstanceId, Message, ReplyTo<Option<Vec<Reply>>>),
    /// Delivers a message from a host companion to each context of its instance.
    Message(InstanceId, Vec<u8>),
    /// Replaces an instance.
    Replace(InstanceId, Successor, ReplyTo<Option<Succession>>),
    /// Runs a new instance as shadow of a context of an existing instance, on copies of the given number of
    /// packets.
    Shadow((InstanceId, u8), Box<dyn Instance>, u64, ReplyTo<Option<ShadowReport>>),
    /// Ends the shadows of an instance. The worker answers their `Shadow` commands with the reports.
    EndShadows(InstanceId),
}

impl PluginCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            Self::Change(changes) => Invalidation::Plugins(changes),
            // The packets must reach the worker: the successor may lack an eBPF variant, and a shadow gets
            // copies only of packets at the worker.
            Self::Replace(..) | Self::Shadow(..) => Invalidation::Entries,
            // Flows that stayed at the worker only because of the shadow are offloaded with a later packet.
            Self::EndShadows(_) => Invalidation::Nothing,
            // The instance writes new settings of its eBPF variant into memory that both share. So the
            // entries stay valid.
            Self::Control(..) | Self::Message(..) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::Change(changes) => changes.len() <= FEW,
            Self::EndShadows(_) => true,
            Self::Control(..) | Self::Message(..) | Self::Replace(..) | Self::Shadow(..) => false,
        }
    }

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router, now: Instant) {
        match self {
            Self::Change(changes) => {
                let requeues = changes.iter().any(PluginChange::requeues);
                changes.into_iter().for_each(|change| router.gates.apply(change));
                if !requeues {
                    return router.gates.plugins_mut().release_orphans();
                }
                let mut ended = EndedStages::of(router.gates.plugins_mut());
                ended.raise_barriers();
                let held = ended.take_held();
                Slices::of(router).requeue(held, now);
                // Calls for which nobody pays may be at earlier stages than the packets that have continued.
                router.resume_kept(now);
            }
            Self::Control(instance, message, reply) => {
                let replied = Box::new(move |replied| answer(&reply, replied));
                router.gates.plugins_mut().control(instance, &message, now, replied);
            }
            Self::Message(instance, bytes) => {
                router.gates.plugins_mut().message(instance, bytes, now);
            }
            Self::Replace(instance, successor, reply) => {
                let replaced = Box::new(move |end| answer(&reply, end));
                router.gates.plugins_mut().succeed(instance, successor, now, replaced);
                router.gates.follow_changes();
                router.after_succession();
            }
            Self::Shadow(context, instance, packets, reply) => {
                let reported = Box::new(move |report| answer(&reply, report));
                router.gates.plugins_mut().instances_mut().shadow(
                    context,
                    instance,
                    packets,
                    router.pool.clone(),
                    reported,
                );
            }
            Self::EndShadows(id) => router.gates.plugins_mut().instances_mut().end_shadows(id),
        }
    }
}
