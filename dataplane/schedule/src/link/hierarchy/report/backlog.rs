//! Backlog that a new packet would find at a leaf.

/// Packets that wait ahead of a new packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafBacklog {
    /// Whether the counts cover only the packet's flow. In FQ-CoDel, they also cover flows with the same
    /// hash. If `false`, the counts cover a queue that flows share: a FIFO or the leaf's shared queue.
    pub of_flow: bool,
    /// Number of packets.
    pub packets: u32,
    /// Number of bytes of these packets.
    pub bytes: u32,
}

#[cfg(test)]
mod tests {
    use millrace_units::Instant;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        BufferLimits, FlowNumber, FlowQueuesSettings, FqCodelSettings, Item, LinkOverhead, LinkRate,
        LinkScheduler, NodeId, NodeKind, Share,
    };

    /// Test packet: its flow and its length in bytes.
    #[derive(Clone, Copy, Debug)]
    struct Frame(u32, u32);

    impl Item for Frame {
        fn length(&self) -> u32 {
            self.1
        }

        fn mark_congestion(&mut self) -> bool {
            false
        }
    }

    fn port(kind: &NodeKind) -> LinkScheduler<Frame> {
        let mut port =
            LinkScheduler::new(LinkRate::default(), LinkOverhead::None, BufferLimits::default()).unwrap();
        port.edit().add(NodeId(1), None, Share::Only, kind, Instant::ZERO).unwrap();
        port
    }

    proptest! {
        /// Every kind of leaf reports the same backlog as a list of the packets that arrived and did not
        /// leave.
        #[test]
        fn backlogs_equal_those_of_a_list(steps in prop::collection::vec((0..6u32, 60..1500u32), 1..200), kind in 0..3u8) {
            let kind = match kind {
                0 => NodeKind::Fifo(Default::default()),
                1 => NodeKind::FlowQueues(FlowQueuesSettings::default()),
                _ => NodeKind::FqCodel(FqCodelSettings { flows: 65_536, ..Default::default() }),
            };
            let of_flow = !matches!(kind, NodeKind::Fifo(_));
            let (mut port, mut list) = (port(&kind), Vec::<Frame>::new());
            let mut never = |_: Frame, cause| panic!("{cause}");
            for (flow, length) in steps {
                if flow == 5 {
                    let left = port.dequeue(Instant::ZERO, &mut never);
                    let place = left.and_then(|left| list.iter().position(|one| (one.0, one.1) == (left.0, left.1)));
                    prop_assert_eq!(place.is_some(), left.is_some());
                    place.map(|place| list.remove(place));
                } else {
                    port.enqueue(NodeId(1), FlowNumber(flow), Frame(flow, length), Instant::ZERO, &mut never);
                    list.push(Frame(flow, length));
                }
                prop_assert_eq!(port.is_backlogged(NodeId(1)), !list.is_empty());
                for flow in 0..5 {
                    let before = || list.iter().filter(|one| !of_flow || one.0 == flow);
                    let (packets, bytes) = (before().count() as u32, before().map(|one| one.1).sum());
                    let expected = LeafBacklog { of_flow, packets, bytes };
                    prop_assert_eq!(port.backlog(NodeId(1), FlowNumber(flow)), Some(expected));
                }
            }
            prop_assert_eq!(port.backlog(NodeId(2), FlowNumber(0)), None);
        }
    }

    #[test]
    fn flow_without_its_own_queue_waits_behind_all_flows_of_the_shared_queue() {
        let mut port = port(&NodeKind::FlowQueues(FlowQueuesSettings { queues: 1, ..Default::default() }));
        let mut never = |_: Frame, cause| panic!("{cause}");
        for flow in [1, 2, 3, 3] {
            port.enqueue(NodeId(1), FlowNumber(flow), Frame(flow, 100), Instant::ZERO, &mut never);
        }
        let backlog = |flow| port.backlog(NodeId(1), FlowNumber(flow)).unwrap();
        assert_eq!(backlog(1), LeafBacklog { of_flow: true, packets: 1, bytes: 100 });
        for flow in [2, 3, 4] {
            assert_eq!(backlog(flow), LeafBacklog { of_flow: false, packets: 3, bytes: 300 });
        }
    }
}
