//! Ends of flows that wait for the end of a plugin's current call.

use std::collections::VecDeque;

use millrace_plugin_abi::binary::RawFlowEnd;

/// Maximum number of waiting flow ends; further ends are lost.
const MOST_ENDS: usize = 1024;

/// Ended flow, with the state that the plugin kept for it.
#[derive(Debug, Default)]
pub(crate) struct EndedFlow {
    pub raw: RawFlowEnd,
    pub state: Vec<u8>,
}

/// Queue of waiting flow ends.
#[derive(Debug)]
pub(crate) struct FlowEnds {
    waiting: VecDeque<EndedFlow>,
}

impl Default for FlowEnds {
    fn default() -> Self {
        Self { waiting: VecDeque::with_capacity(MOST_ENDS) }
    }
}

impl FlowEnds {
    /// Queues the end of a flow. If 1,024 ends already wait, this one is lost.
    pub fn push(&mut self, raw: RawFlowEnd, state: &[u8]) {
        if self.waiting.len() < MOST_ENDS {
            self.waiting.push_back(EndedFlow { raw, state: state.to_vec() });
        }
    }

    /// Removes and returns the earliest end.
    #[inline]
    pub fn pop(&mut self) -> Option<EndedFlow> {
        self.waiting.pop_front()
    }

    /// Discards the waiting ends.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_flows_wait_up_to_a_limit() {
        let mut ends = FlowEnds::default();
        (0..MOST_ENDS + 3).for_each(|_| ends.push(RawFlowEnd::default(), &[]));
        assert_eq!(std::iter::from_fn(|| ends.pop()).count(), MOST_ENDS);
    }
}
