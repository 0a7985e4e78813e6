//! Running call of an instance, with the packets and requests that wait for its end.

use std::collections::VecDeque;

use millrace_packet::{FlowKey, Packet};
use millrace_plugin_abi::{FlowEnd, PacketConnection, PayerBacklog};
use millrace_units::{Instant, PrincipalId};

use super::{Asked, Errand, PassedOn, Place, Waiting};
use crate::CallLimits;
use crate::connection_state::{ConnectionStates, PackedConnection};
use crate::execution::instances::{Awaited, ContextKey, MOST_IN_CALL};
use crate::flow_state::{FlowStateBlocks, StateRef};

/// Maximum number of flow ends that wait for the end of a state hand-over; further ends are lost.
const MOST_ENDS: usize = 1024;

/// Measured times of a call, and their limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallTimes {
    /// Times of a call that another process runs; `None` for other calls.
    pub awaited: Option<Awaited>,
    /// Cycles of its parts so far; `None` if the first part was not measured.
    pub cycles: Option<u64>,
    /// Earliest time at which one of its packets began to wait for the processor; `None` if nobody pays.
    pub since: Option<Instant>,
    /// Limits of the binding at the latest slice. They stay when the binding ends during the call.
    pub limits: CallLimits,
}

/// Returns the earlier one of two known times.
pub(crate) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

impl CallTimes {
    /// Returns the times of a call after its first part. `awaited`: when another process got it, if it runs there.
    pub fn begun(cycles: Option<u64>, awaited: Option<Instant>) -> Self {
        Self { awaited: awaited.map(Awaited::since), cycles, ..Self::default() }
    }

    /// Ends the wait of the packets after a part of the call, unless it `is_suspended` and the worker runs it: once another
    /// process has a call, it uses no processor time of the worker. Returns when the wait began, once.
    pub fn end_wait(&mut self, is_suspended: bool) -> Option<Instant> {
        self.since.take_if(|_| !is_suspended || self.awaited.is_some())
    }

    /// Adds the cycles of the next part; `is_first`: of the first one.
    pub fn add(&mut self, is_first: bool, cycles: Option<u64>) {
        self.cycles = match is_first {
            true => cycles,
            false => self.cycles.map(|sum| sum.saturating_add(cycles.unwrap_or(0))),
        };
    }
}

/// Running call, with its packets and their data.
#[derive(Default)]
pub(crate) struct Call {
    pub errand: Errand,
    pub packets: Vec<Packet>,
    pub keys: Vec<FlowKey>,
    pub(super) destinations: Vec<[u8; 6]>,
    pub(super) states: Vec<StateRef>,
    /// Connections of the packets.
    pub connections: Vec<PacketConnection>,
    /// Bytes of the packets, and their [places](Waiting::places), when they joined the call.
    pub(super) size: (u64, usize),
    /// State block numbers of the packets' flows or connections, resolved for the latest slice.
    pub numbers: Vec<u32>,
    /// Stage of all packets of the call; `None` for a call without packets.
    pub place: Option<Place>,
    pub(super) passed_on: PassedOn,
    /// Principal that pays for the call; `None` if it runs without waiting for the CPU scheduler.
    pub payer: Option<PrincipalId>,
    /// What the instance may know about this principal.
    pub payer_backlog: Option<PayerBacklog>,
    /// Number of slices so far.
    pub slices: u32,
    pub times: CallTimes,
    /// Whether the instance of the call may have written to the packets.
    pub written: bool,
}

impl Call {
    /// Makes the packets linear, as far as their first frames have room.
    pub fn gather(&mut self) {
        for packet in &mut self.packets {
            packet.gather();
        }
    }

    /// Returns a call whose first slice is over, and whose packets follow. `written`: whether the instance may have
    /// written to the packets. `limits`: limits of its binding.
    pub fn begun(
        (payer, payer_backlog): (Option<PrincipalId>, Option<PayerBacklog>),
        (written, limits): (bool, CallLimits),
        times: CallTimes,
    ) -> Self {
        let times = CallTimes { limits, ..times };
        Self { slices: 1, written, payer, payer_backlog, times, ..Self::default() }
    }

    /// Whether a call is running.
    pub fn is_under_way(&self) -> bool {
        self.place.is_some() || !matches!(self.errand, Errand::Packets)
    }

    pub fn push(&mut self, waiting: Waiting) {
        let (bytes, places) = &mut self.size;
        (*bytes, *places) = (*bytes + waiting.packet.len() as u64, *places + waiting.places());
        self.packets.push(waiting.packet);
        self.keys.push(waiting.key);
        self.destinations.push(waiting.destination);
        self.states.push(waiting.state);
        self.connections.push(waiting.connection.get());
        self.place = Some(waiting.place);
        self.passed_on = waiting.passed_on;
        self.payer = waiting.payer;
        self.times.since = earliest(self.times.since, waiting.since);
    }

    /// Resolves the flow state references of the packets into block numbers.
    pub fn find_states(&mut self, blocks: &FlowStateBlocks) {
        self.numbers.clear();
        self.numbers.extend(self.states.iter().map(|state| blocks.resolve(*state)));
    }

    /// Resolves the connections of the packets into block numbers. Counts the packets before the first slice.
    pub fn find_connections(&mut self, states: &mut ConnectionStates) {
        self.numbers.clear();
        let is_first = self.slices == 0;
        let both = self.packets.iter().zip(&self.connections);
        self.numbers.extend(both.map(|(packet, connection)| match is_first {
            true => states.enter(*connection, packet.port, packet.len()),
            false => states.resolve(*connection),
        }));
    }

    /// Returns the number of packets, and their bytes when they joined the call.
    pub fn load(&self) -> (u64, u64) {
        (self.packets.len() as u64, self.size.0)
    }

    /// Ends the call: passes the index and the data of each packet to `each`. The packets continue at
    /// `place`.
    pub fn finish(&mut self, place: Place, mut each: impl FnMut(usize, Waiting)) {
        let (passed_on, payer, since) = (self.passed_on, self.payer, None);
        let states = self.states.drain(..).zip(self.connections.drain(..));
        let rest = self.keys.drain(..).zip(self.destinations.drain(..)).zip(states);
        for (number, (packet, rest)) in self.packets.drain(..).zip(rest).enumerate() {
            let ((key, destination), (state, connection)) = rest;
            let connection = PackedConnection::of(connection);
            each(
                number,
                Waiting { packet, key, destination, place, state, connection, passed_on, payer, since },
            );
        }
        (self.place, self.payer, self.slices, self.written) = (None, None, 0, false);
        (self.payer_backlog, self.times, self.size) = (None, CallTimes::default(), (0, 0));
    }
}

/// Packets that arrived during an instance's call and wait for its end.
#[derive(Default)]
pub(crate) struct Behind {
    pub(super) packets: VecDeque<Waiting>,
    bytes: u64,
    places: usize,
}

impl Behind {
    /// Returns the number of packets and their total bytes.
    pub fn load(&self) -> (u32, u64) {
        (self.packets.len() as u32, self.bytes)
    }

    /// Returns the [places](Waiting::places) of the packets.
    pub fn places(&self) -> usize {
        self.places
    }

    pub fn push(&mut self, waiting: Waiting) {
        self.bytes += waiting.packet.len() as u64;
        self.places += waiting.places();
        self.packets.push_back(waiting);
    }

    fn pop_if(&mut self, is_it: impl FnMut(&mut Waiting) -> bool) -> Option<Waiting> {
        let waiting = self.packets.pop_front_if(is_it)?;
        self.bytes -= waiting.packet.len() as u64;
        self.places -= waiting.places();
        Some(waiting)
    }
}

/// Running call of a context, with packets and requests that wait for its end.
pub(crate) struct Backlog {
    pub context: ContextKey,
    pub call: Call,
    pub behind: Behind,
    /// Requests of control. They are served before the waiting packets.
    pub asked: VecDeque<Asked>,
    /// Flows that have ended during a state hand-over, with their states. The successor hears of them after the requests.
    pub ends: VecDeque<(FlowEnd, Vec<u8>)>,
}

impl Backlog {
    pub(super) fn new(context: ContextKey, call: Call) -> Self {
        Self { context, call, behind: Behind::default(), asked: VecDeque::new(), ends: VecDeque::new() }
    }

    /// Returns the principal that pays for the running call, or for the next one. Nobody pays for a call that
    /// another process runs, or while the context waits for an upgrade: the worker only asks for the result.
    pub fn payer(&self) -> Option<PrincipalId> {
        match self.call.is_under_way() {
            true if self.call.times.awaited.is_some() => None,
            true => self.call.payer,
            false if self.awaits_upgrade() => None,
            false => self.behind.packets.front().and_then(|waiting| waiting.payer),
        }
    }

    /// Whether further packets stay in their queues: nobody pays for the running call, or none is running, and
    /// others come first.
    pub(super) fn is_closed(&self) -> bool {
        !self.call.is_under_way() || self.payer().is_none()
    }

    /// Returns the principal that waits first for the end of the running call of another one.
    pub fn blocked(&self) -> Option<PrincipalId> {
        let first = self.behind.packets.front()?.payer;
        first.filter(|_| self.call.is_under_way() && self.payer().is_some() && self.payer() != first)
    }

    /// Returns the number of packets in the running call, plus the number of packets that wait for its end.
    pub(super) fn len(&self) -> usize {
        self.call.packets.len() + self.behind.packets.len()
    }

    /// Returns the [places](Waiting::places) of these packets.
    pub(super) fn places(&self) -> usize {
        let (_, of_call) = self.call.size;
        of_call + self.behind.places
    }

    /// Whether the next request is an upgrade of the instance.
    pub(super) fn awaits_upgrade(&self) -> bool {
        matches!(self.asked.front(), Some(Asked::Succeed))
    }

    /// Whether packets wait for the end of the running call, or for the next one.
    pub fn has_waiting(&self) -> bool {
        !self.behind.packets.is_empty()
    }

    /// Whether no call is running, and no request has to be served before the next upgrade.
    pub(super) fn is_between_calls(&self) -> bool {
        !self.call.is_under_way() && matches!(self.asked.front(), None | Some(Asked::Succeed))
    }

    /// Lets the context wait for the next `upgrades` upgrades of its instance.
    pub(super) fn await_upgrades(&mut self, upgrades: usize) {
        let known = self.asked.iter().filter(|asked| matches!(asked, Asked::Succeed)).count();
        self.asked.extend((known..upgrades).map(|_| Asked::Succeed));
    }

    /// Removes the packets that wait for the end of the call, in their order. If the instance now has only
    /// `contexts` contexts, and so this one no longer exists, refuses the requests.
    pub(super) fn take_waiting(&mut self, contexts: u8) -> VecDeque<Waiting> {
        if self.context.number >= contexts {
            self.asked.drain(..).for_each(|asked| asked.refuse("an upgrade ended a context of the instance"));
            self.ends.clear();
        }
        std::mem::take(&mut self.behind).packets
    }

    /// Whether packets, requests or ends of flows wait, or a call runs.
    pub fn has_work(&self) -> bool {
        let nothing_waits = self.asked.is_empty() && self.ends.is_empty() && !self.has_waiting();
        self.call.is_under_way() || !nothing_waits
    }

    /// Keeps the end of a flow for the successor, unless too many wait.
    pub fn keep_end(&mut self, flow: FlowEnd, state: Vec<u8>) {
        if self.ends.len() < MOST_ENDS {
            self.ends.push_back((flow, state));
        }
    }

    /// Forgets the states of flows that have ended.
    pub fn forget_states(&mut self) {
        self.ends.iter_mut().for_each(|(_, state)| state.clear());
    }

    /// Starts a call with up to `most` of the waiting packets of one stage. Returns `false` if no packet waits.
    pub fn begin_call(&mut self, most: usize) -> bool {
        let alike = |waiting: &Waiting| (waiting.place, waiting.passed_on, waiting.payer);
        let Some(first) = self.behind.packets.front().map(alike) else { return false };
        while self.call.packets.len() < most.min(MOST_IN_CALL)
            && let Some(waiting) = self.behind.pop_if(|waiting| alike(waiting) == first)
        {
            self.call.push(waiting);
        }
        true
    }
}
