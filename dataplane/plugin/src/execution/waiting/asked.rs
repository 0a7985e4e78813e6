//! Requests to a context of an instance that wait for the end of its call, and upgrades of the instance.

use millrace_plugin_abi::{Message, PluginError};

use super::Answer;
use crate::connection_state::ConnectionStates;
use crate::execution::health::FaultHistory;
use crate::execution::succession::{HandOver, Successed, Succession, Successor};
use crate::slab::Key;

/// Maximum number of requests of control that wait for the end of an instance's call.
pub(super) const MOST_ASKED: usize = 64;

/// Request to a context of an instance.
pub(crate) enum Asked {
    /// Control message, with the receiver of the answer.
    Message(Message, Answer),
    /// Message from the host companion.
    Tell(Vec<u8>),
    /// Wait for the next [upgrade](Upgrade) of the instance.
    Succeed,
}

impl Asked {
    /// Refuses the request for this reason.
    pub fn refuse(self, problem: &str) {
        match self {
            Self::Message(message, answer) => {
                let text = format!("message {:?} is refused: {problem}", message.name);
                answer(Some(Err(PluginError::Refused(text))));
            }
            Self::Tell(_) | Self::Succeed => {}
        }
    }
}

/// Upgrade of an instance. It waits until no context of the instance has a running call, and then for the hand-over of
/// the state.
pub(crate) struct Upgrade {
    /// Instance to be replaced.
    pub instance: Key,
    pub successor: Successor,
    pub hand_over: HandOver,
    /// Receiver of the result.
    pub told: Successed,
}

impl Upgrade {
    /// Refuses the upgrade, because too many requests wait. Gives back the states of connections that are kept for it.
    pub fn refuse(self, connection_states: Option<ConnectionStates>) {
        let Successor { contexts, .. } = self.successor;
        let (inherited, history) = (Err(too_busy()), FaultHistory::default());
        (self.told)(Some(Succession { contexts, inherited, history, connection_states }));
    }
}

/// Returns the reason that a busy instance refuses a request.
pub(super) fn too_busy() -> String {
    format!("the instance is busy, and its queue of {MOST_ASKED} messages is full; try again later")
}
