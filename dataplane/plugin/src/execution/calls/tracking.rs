//! Tracking of connections: before the first instance of a path whose state belongs to connections, the router finds the
//! connection of each packet. The instance is notified of the ends of connections.

use millrace_plugin_abi::{ConnectionStatus, Progress};
use millrace_units::Instant;

use super::tracker::{TrackedPacket, Tracking};
use super::{Calls, Group};
use crate::BindingCounts;
use crate::connection_state::ConnectionEnd;
use crate::execution::waiting::{End, Errand, Taken};

impl Calls {
    /// Tracks the members of a group that are not tracked yet. Removes those that find no room in the table of
    /// connections, and counts them as drops.
    pub(crate) fn track(&mut self, group: &mut Group<'_>, counts: &mut BindingCounts, now: Instant) {
        let Group { packets, keys, members, taken, tracking, bytes, .. } = group;
        let Some(Tracking { tracker, connections }) = tracking else { return };
        let before = members.len();
        members.retain(|member| {
            let index = usize::from(*member);
            if connections[index].status != ConnectionStatus::Untracked {
                return true;
            }
            let TrackedPacket { connection, ended } = tracker.track(&packets[index], &keys[index], now);
            if let Some(ended) = ended {
                self.connection_ended(&ended);
            }
            match connection {
                Ok(connection) => connections[index] = connection,
                Err(reason) => taken.push((*member, Taken::End(End::Drop(reason)))),
            }
            connection.is_ok()
        });
        let refused = before - members.len();
        counts.drops += refused as u64;
        bytes.take_if(|_| refused > 0);
    }

    /// Ends the state of a connection at all instances, and notifies those that have seen the connection. Members of a group
    /// that were tracked before then have no state.
    #[cold]
    pub(crate) fn connection_ended(&mut self, ended: &ConnectionEnd) {
        let Self { instances, waiting, connections, .. } = self;
        for slot in connections.slots() {
            let Some((flow, state)) = connections.get_mut(slot).and_then(|states| states.end(ended)) else {
                continue;
            };
            let Some(context) = instances.hearing(slot, &flow.key) else { continue };
            if waiting.hands_over(context.instance) {
                // The state may be saved already.
                waiting.keep_end(context, flow, state);
            } else if let Some((hosted, news)) = instances.get_mut(context) {
                if hosted.call(|instance| instance.flow_ended(&flow, state)) != Progress::Done {
                    waiting.suspend_errand(context, Errand::Own);
                }
                hosted.take_outputs(news);
            }
        }
    }
}
