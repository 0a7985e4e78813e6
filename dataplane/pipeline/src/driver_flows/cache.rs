//! The driver's flow cache, as the pipeline uses it. Who builds a router fills this in.

use millrace_packet::FlowKey;
use millrace_plugin::Policer;
use millrace_units::{Amount, PortId};
use millrace_wire::MacAddr;

/// What the driver is to do with the packets of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverFlow {
    /// What becomes of them.
    pub action: DriverAction,
    /// The place of a token bucket that those find room in that go on: see [`DriverCache::police`].
    pub policer: Option<u16>,
    /// The place of the form of a plugin that is asked which of them go on.
    pub form: Option<u16>,
}

/// What becomes of packets in the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverAction {
    /// They are forwarded.
    Send(DriverWay),
    /// They are dropped, because a filter says so.
    Drop {
        /// The longest network packet that is: the MTU of the port that it comes in by. Longer ones go up.
        mtu: u16,
    },
}

/// Where packets leave, and as what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverWay {
    /// The port to leave by.
    pub out: PortId,
    /// The longest network packet that may come in by the flow's port, and leave by that one; longer ones go up.
    pub mtu: u16,
    /// The station to send to.
    pub destination: MacAddr,
    /// The port's own address.
    pub source: MacAddr,
}

/// What the driver has done with the packets of a flow. Bytes are those of frames, without what they are padded by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverTotals {
    /// Forwarded; packets modulo 2^32, or more.
    pub sent: Amount,
    /// Dropped, by a filter, because a token bucket was empty, or because the form of a plugin says so.
    pub dropped: Amount,
}

/// A worker's part of the flow cache that the programs of its ports read: for packets that come in by a port, the driver
/// looks their flow up, and does with them what its entry says, if that is of the published generation, begun, and no packet
/// of the flow is still under way up to the worker. All others go up.
///
/// Each of several workers has one; what a worker is done with is said by the one that has the port. All of it is stores and loads.
pub trait DriverCache: Send {
    /// Flows that there is room for still.
    fn room(&self) -> usize;
    /// From now on only entries of this generation are used, which is neither 0 nor the largest number.
    fn publish(&mut self, generation: u64);
    /// Gives a token bucket a place where programs take from it too, and tells which; `None` where there is none left. It keeps
    /// that place as long as it lives.
    fn police(&mut self, policer: &Policer) -> Option<u16>;
    /// Gives a flow an entry that is not used yet; its number, or `None` where there is no room for it.
    fn insert(&mut self, key: &FlowKey, flow: &DriverFlow) -> Option<u32>;
    /// Lets an entry be used, some microseconds after it was inserted, as soon as none of the packets that have gone up
    /// from `port` until now is under way.
    fn begin(&mut self, slot: u32, port: PortId, generation: u64);
    /// Changes an entry whose generation is not the published one.
    fn renew(&mut self, slot: u32, flow: &DriverFlow, generation: u64);
    /// Removes a flow. Returns all that was done with it.
    fn remove(&mut self, key: &FlowKey, slot: u32) -> DriverTotals;
    /// What was done with a flow since it was inserted.
    fn totals(&self, slot: u32) -> DriverTotals;
    /// Packets that went up from a port so far.
    fn up(&self, port: PortId) -> u64;
    /// Packets that went up by one receive queue of a port so far. Who looks at this later than at [`up`](Self::up) finds all that
    /// were counted there.
    fn up_by(&self, port: PortId, queue: usize) -> u64;
    /// Notes in a round of all workers, by its number, what a worker has read of a queue of a port: of the packets that went up by all queues
    /// those before which none of this one is left. Of two rounds in a row both are known.
    fn note_read(&self, queue: (PortId, usize), round: u32, read: u64);
    /// What was noted, by whichever worker; 0 if nothing ever was.
    fn noted_read(&self, queue: (PortId, usize), round: u32) -> u64;
    /// Says how many of these were sent on, or dropped.
    fn set_done(&mut self, port: PortId, done: u64);
    /// Says whether more go up by a receive queue of a port than are dealt with: then flows that have an entry rather lose packets,
    /// until none is under way, than go on going up.
    fn set_overloaded(&self, queue: (PortId, usize), overloaded: bool);
    /// Whether that was last said of one of a port's queues, by whichever worker.
    fn is_overloaded(&self, port: PortId) -> bool;
}
