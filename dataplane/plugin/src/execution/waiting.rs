//! Packets that wait for an instance: those of its suspended call, those that arrived during the call, and
//! those that it holds until a time.
//!
//! A stage can't take packets out of the middle of a batch. Therefore it first records an instance's request
//! to keep packets as a [`Ticket`]. When the batch is disposed of, each packet with a ticket moves here.
//!
//! All packets share a limited number of places (`places.rs`).

mod answers;
mod asked;
mod backlog;
mod followers;
mod held;
mod packet;
mod places;
mod served;

pub(crate) use answers::each_answer;
pub use answers::{Answer, Answers};
pub(crate) use asked::{Asked, Upgrade};
use asked::{MOST_ASKED, too_busy};
pub(crate) use backlog::{Backlog, Behind, Call, CallTimes, earliest};
use followers::Followers;
use held::HeldPackets;
pub use packet::{End, Kept, PassedOn, Place, Released, Taken, Waiting};
pub use served::{AwaitedContext, Served};
use std::time::Duration;

use millrace_packet::{DropReason, Packet};
use millrace_plugin_abi::FlowEnd;
use millrace_units::{Instant, PathId, PrincipalId};

use crate::connection_state::PackedConnection;
use crate::execution::instances::{ContextKey, context_of};
use crate::principal_memory::PrincipalMemory;
use crate::slab::Key;

/// Maximum number of packets that wait for the end of an instance's call.
const MOST_BEHIND: usize = 4096;
/// Maximum time that an instance may hold a packet. A longer time is a fault.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// Number of a recorded request to keep packets, valid until the batch is disposed of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u32);

/// Reason to keep packets.
#[derive(Clone, Copy, Debug)]
enum Wish {
    /// The packets belong to the suspended call of this context.
    Call(ContextKey),
    /// The packets wait until this context is free, so until its call ends.
    Free(ContextKey),
    /// The instance in this slot holds the packet until this time.
    Until(u32, Instant),
    /// The packets wait until the CPU scheduler gives the processor to their payer.
    Processor,
    /// The packets wait at the gate of this rank, behind calls of an ended stage.
    Gate(u32),
}

/// Recorded request to keep packets, with their stage.
#[derive(Clone, Copy, Debug)]
struct Noted {
    wish: Wish,
    place: Place,
    passed_on: PassedOn,
    payer: Option<PrincipalId>,
    since: Option<Instant>,
}

/// Purpose of a call.
#[derive(Default)]
pub(crate) enum Errand {
    /// Processing of packets.
    #[default]
    Packets,
    /// Timer, message of the host companion, or end of a flow.
    Own,
    /// Control message; the answer goes to this receiver.
    Control(Answer),
}

/// All waiting packets of a worker.
#[derive(Default)]
pub(crate) struct WaitingRoom {
    tickets: Vec<Noted>,
    backlogs: Vec<Backlog>,
    /// Upgrades that wait for the end of calls, the oldest first.
    upgrades: Vec<Upgrade>,
    /// Packets that instances hold until a time.
    pub held: HeldPackets,
    /// Packets that wait behind calls of ended stages.
    pub followers: Followers,
    /// Calls of other processes that have ended, until the pipeline notes their turns.
    pub served: Vec<Served>,
    /// Packets that wait for the processor, until the pipeline queues them.
    pub for_processor: Vec<Waiting>,
    /// Earliest time at which a packet of the slice in service began to wait for the processor. Packets that join a
    /// call, or wait for its end, take it along.
    pub since: Option<Instant>,
    /// Number of places for waiting packets at the worker. The pipeline states it with each packet that it hands over.
    places: usize,
}

impl WaitingRoom {
    /// Whether a call of the context is running, or packets wait for the context.
    #[inline]
    pub fn is_busy(&self, context: ContextKey) -> bool {
        !self.backlogs.is_empty() && self.backlogs.iter().any(|backlog| backlog.context == context)
    }

    /// Whether any context of the instance is busy.
    pub fn has_busy_context(&self, instance: Key) -> bool {
        self.backlogs.iter().any(|backlog| backlog.context.instance == instance)
    }

    /// Whether packets for the context stay in their queues: nobody pays for its running call, or none runs and
    /// others are next.
    #[inline]
    pub fn is_closed(&self, context: ContextKey) -> bool {
        !self.backlogs.is_empty()
            && self.backlogs.iter().any(|backlog| backlog.context == context && backlog.is_closed())
    }

    /// Whether packets for any context of the instance wait in their queues.
    pub fn has_closed_context(&self, instance: Key) -> bool {
        self.backlogs.iter().any(|backlog| backlog.context.instance == instance && backlog.is_closed())
    }

    /// Records that packets belong to a suspended call of the context.
    pub fn suspend(&mut self, context: ContextKey, at: (Place, PassedOn), call: Call) -> Ticket {
        let payer = call.payer;
        self.backlogs.push(Backlog::new(context, call));
        self.ticket(Wish::Call(context), at, payer)
    }

    /// Records a suspended call without packets. Packets for the context wait until this call ends.
    pub fn suspend_errand(&mut self, context: ContextKey, errand: Errand) {
        match self.backlog(context) {
            Some(backlog) => (backlog.call.errand, backlog.call.slices) = (errand, 1),
            None => {
                let call = Call { slices: 1, errand, ..Call::default() };
                self.backlogs.push(Backlog::new(context, call));
            }
        }
    }

    /// Records that packets wait for the end of a context's call.
    pub fn queue(
        &mut self,
        context: ContextKey,
        at: (Place, PassedOn),
        payer: Option<PrincipalId>,
    ) -> Ticket {
        self.ticket(Wish::Free(context), at, payer)
    }

    /// Records that packets wait at a stage until the CPU scheduler gives the processor to `payer`.
    pub fn defer(&mut self, payer: PrincipalId, at: (Place, PassedOn)) -> Ticket {
        self.ticket(Wish::Processor, at, Some(payer))
    }

    /// Records that packets wait at the gate of rank `order` and continue at `place`.
    pub fn follow(&mut self, order: u32, place: Place) -> Ticket {
        self.ticket(Wish::Gate(order), (place, PassedOn::default()), None)
    }

    /// Finds the flows of ended stages as [`Followers::find`] does.
    pub fn find_followed(&mut self, ended: impl Fn(Place) -> Option<u32>) {
        self.followers.find(&self.backlogs, ended);
    }

    /// Returns the stage of a packet that waits for the processor; `None` for other tickets.
    pub fn deferred(&self, Ticket(number): Ticket) -> Option<Place> {
        let noted = self.tickets.get(number as usize)?;
        matches!(noted.wish, Wish::Processor).then_some(noted.place)
    }

    /// Records that an instance holds a packet until a time. Afterwards the packet continues at the next
    /// stage. It counts in the memory of `payer`. Returns the packet's ticket.
    pub fn hold(
        &mut self,
        instance: Key,
        until: Instant,
        place: Place,
        payer: Option<PrincipalId>,
    ) -> Ticket {
        self.ticket(Wish::Until(instance.slot, until), (place.next(), PassedOn::default()), payer)
    }

    fn ticket(
        &mut self,
        wish: Wish,
        (place, passed_on): (Place, PassedOn),
        payer: Option<PrincipalId>,
    ) -> Ticket {
        self.tickets.push(Noted { wish, place, passed_on, payer, since: self.since });
        Ticket(self.tickets.len() as u32 - 1)
    }

    /// Takes a packet that has a ticket. The caller passes the packets of a batch in their order.
    ///
    /// At most `most` packets may wait at the worker. A packet of the instance's suspended call is always
    /// taken. Other packets are taken while the instance keeps fewer packets than there are free places.
    ///
    /// Packets that wait for a call, or for its end, count in the memory of their payer, and so do held packets.
    ///
    /// # Errors
    /// A packet that may not wait, with the reason to drop it.
    pub fn keep(
        &mut self,
        ticket: Ticket,
        most: usize,
        kept: Kept,
        memory: &PrincipalMemory,
    ) -> Result<(), (Packet, DropReason)> {
        let Kept { packet, key, destination, state, connection } = kept;
        let connection = PackedConnection::of(connection);
        let busy = |packet: Packet| Err((packet, DropReason::PluginBusy));
        self.places = most;
        let Some(Noted { wish, place, passed_on, payer, since }) =
            self.tickets.get(ticket.0 as usize).copied()
        else {
            return busy(packet);
        };
        let waiting = Waiting { packet, key, destination, place, state, connection, passed_on, payer, since };
        match wish {
            Wish::Until(slot, _) | Wish::Free(ContextKey { instance: Key { slot, .. }, .. })
                if !self.has_room(Some(slot), (slot, 0)) =>
            {
                return busy(waiting.packet);
            }
            Wish::Until(slot, until) => self
                .held
                .push(slot, until, waiting, memory)
                .map_err(|waiting| (waiting.packet, DropReason::PrincipalMemory))?,
            Wish::Processor => self.for_processor.push(waiting),
            Wish::Gate(order) => {
                let has_room = self.has_room(None, (0, 0));
                self.followers.push(order, waiting, has_room).or_else(|waiting| busy(waiting.packet))?;
            }
            Wish::Call(context) => match self.backlog(context) {
                Some(backlog) => {
                    memory.suspend(payer, (1, waiting.packet.len() as u64));
                    backlog.call.push(waiting);
                }
                None => return busy(waiting.packet),
            },
            Wish::Free(context) => {
                self.wait_for(context, waiting, memory).or_else(|waiting| busy(waiting.packet))?;
            }
        }
        Ok(())
    }

    fn backlog(&mut self, context: ContextKey) -> Option<&mut Backlog> {
        self.backlogs.iter_mut().find(|backlog| backlog.context == context)
    }

    /// Returns the backlog of a context, which may be new.
    fn backlog_or_new(&mut self, context: ContextKey) -> Option<&mut Backlog> {
        if self.backlog(context).is_none() {
            self.backlogs.push(Backlog::new(context, Call::default()));
        }
        self.backlog(context)
    }

    /// Queues a packet until the context's call ends.
    ///
    /// # Errors
    /// The packet, if [`MOST_BEHIND`] packets already wait for the context.
    pub fn wait_for(
        &mut self,
        context: ContextKey,
        waiting: Waiting,
        memory: &PrincipalMemory,
    ) -> Result<(), Waiting> {
        match self.backlog_or_new(context) {
            Some(backlog) if backlog.behind.packets.len() < MOST_BEHIND => {
                memory.suspend(waiting.payer, (1, waiting.packet.len() as u64));
                backlog.behind.push(waiting);
                Ok(())
            }
            _ => Err(waiting),
        }
    }

    /// Queues a request of control until the end of the context's call. Returns `false` if the queue is
    /// full; the requester then gets an error.
    pub fn ask(&mut self, context: ContextKey, asked: Asked) -> bool {
        match self.backlog(context) {
            Some(backlog) if backlog.asked.len() < MOST_ASKED => {
                backlog.asked.push_back(asked);
                true
            }
            _ => {
                asked.refuse(&too_busy());
                false
            }
        }
    }

    /// Keeps the end of a flow for the successor of an instance that hands its state over.
    pub fn keep_end(&mut self, context: ContextKey, flow: FlowEnd, state: &[u8]) {
        self.backlog(context).into_iter().for_each(|backlog| backlog.keep_end(flow, state.to_vec()));
    }

    /// Lets an upgrade wait until none of the instance's `contexts` contexts has a running call, and its state is handed
    /// over. Until then, a context whose call ends begins no other call. Returns the upgrade if too many requests wait.
    #[must_use]
    pub fn await_upgrade(&mut self, upgrade: Upgrade, contexts: u8) -> Option<Upgrade> {
        let instance = upgrade.instance;
        let is_full = |backlog: &Backlog| backlog.asked.len() >= MOST_ASKED;
        if self.backlogs.iter().any(|backlog| backlog.context.instance == instance && is_full(backlog)) {
            return Some(upgrade);
        }
        for number in 0..contexts {
            if let Some(backlog) = self.backlog_or_new(ContextKey { instance, number }) {
                backlog.asked.push_back(Asked::Succeed);
            }
        }
        self.upgrades.push(upgrade);
        None
    }

    /// Removes and returns the next upgrade of an instance; `None` while a context has to end its call or to
    /// serve earlier requests first. `own` is the backlog of a context that waits for the upgrade.
    pub fn take_upgrade(&mut self, own: &Backlog) -> Option<Upgrade> {
        let instance = own.context.instance;
        let others = || self.backlogs.iter().filter(|backlog| backlog.context.instance == instance);
        if !others().all(Backlog::is_between_calls) {
            return None;
        }
        let at = self.upgrades.iter().position(|upgrade| upgrade.instance == instance)?;
        Some(self.upgrades.remove(at))
    }

    /// Puts an upgrade back whose state is not handed over yet.
    pub fn put_upgrade(&mut self, upgrade: Upgrade) {
        self.upgrades.insert(0, upgrade);
    }

    /// Ends the wait of the contexts of an instance for an upgrade, except of the context whose backlog is taken.
    pub fn end_wait_for_upgrade(&mut self, instance: Key) {
        for backlog in self.backlogs.iter_mut().filter(|backlog| backlog.context.instance == instance) {
            backlog.asked.pop_front_if(|asked| matches!(asked, Asked::Succeed));
        }
    }

    /// Whether an instance hands its state over to a successor.
    pub fn hands_over(&self, instance: Key) -> bool {
        self.upgrades.iter().any(|upgrade| upgrade.instance == instance && upgrade.hand_over.has_begun())
    }

    /// Gives the waiting packets of an instance to the contexts of its successor, after an upgrade. `own` is the
    /// backlog of one context, `instance` the key of the successor, `contexts` the number of its contexts.
    /// Requests to a context that no longer exists are refused. With another key, the flow state has another format, so the
    /// successor hears of ended flows without it.
    pub fn follow_upgrade(&mut self, own: &mut Backlog, instance: Key, contexts: u8) {
        let old = std::mem::replace(&mut own.context.instance, instance);
        if old != instance {
            own.forget_states();
        }
        self.upgrades
            .iter_mut()
            .filter(|next| next.instance == old)
            .for_each(|next| next.instance = instance);
        let mut waiting = own.take_waiting(contexts);
        for backlog in self.backlogs.iter_mut().filter(|backlog| backlog.context.instance == old) {
            backlog.context.instance = instance;
            if old != instance {
                backlog.forget_states();
            }
            waiting.append(&mut backlog.take_waiting(contexts));
        }
        for waiting in waiting {
            let context = ContextKey { instance, number: context_of(&waiting.key, contexts) };
            if context == own.context {
                own.behind.push(waiting);
            } else if let Some(backlog) = self.backlog_or_new(context) {
                backlog.behind.push(waiting);
            }
        }
        let further = self.upgrades.iter().filter(|next| next.instance == instance).count();
        own.await_upgrades(further);
        for number in (0..contexts).filter(|number| further > 0 && *number != own.context.number) {
            if let Some(backlog) = self.backlog_or_new(ContextKey { instance, number }) {
                backlog.await_upgrades(further);
            }
        }
    }

    /// Removes and returns the backlog at this index.
    pub fn take_backlog(&mut self, number: usize) -> Option<Backlog> {
        (number < self.backlogs.len()).then(|| self.backlogs.swap_remove(number))
    }

    /// Puts a backlog back at its index.
    pub fn put_backlog(&mut self, number: usize, backlog: Backlog) {
        self.backlogs.push(backlog);
        let last = self.backlogs.len() - 1;
        self.backlogs.swap(number, last);
    }

    /// Invalidates all tickets after the batch was disposed of.
    pub fn end_of_batch(&mut self) {
        self.tickets.clear();
    }

    /// Lets suspended calls of a removed principal, the packets behind them, and held packets continue without a payer.
    pub fn forget_payer(&mut self, payer: PrincipalId) {
        self.held.forget_payer(payer);
        for Backlog { call, behind, .. } in &mut self.backlogs {
            let behind = behind.packets.iter_mut().map(|waiting| &mut waiting.payer);
            for paid_by in behind.chain([&mut call.payer]) {
                *paid_by = paid_by.filter(|known| *known != payer);
            }
        }
    }

    /// Returns the principals that pay for suspended calls, for calls that can begin, or for packets that wait
    /// first for the end of another one's call.
    pub fn payers(&self) -> impl Iterator<Item = PrincipalId> + '_ {
        self.backlogs.iter().flat_map(|backlog| [backlog.payer(), backlog.blocked()]).flatten()
    }

    /// Whether there are such principals.
    #[inline]
    pub fn has_payers(&self) -> bool {
        !self.backlogs.is_empty() && self.finds_payer()
    }

    /// Searches for a principal that pays. Outlined, so that iterations without calls save no registers for it.
    #[inline(never)]
    fn finds_payer(&self) -> bool {
        self.payers().next().is_some()
    }

    /// Returns the principal that pays for the call whose end `payer` waits for.
    pub fn blocker_of(&self, payer: PrincipalId) -> Option<PrincipalId> {
        self.backlogs.iter().find(|backlog| backlog.blocked() == Some(payer))?.payer()
    }

    /// Whether [`payers`](Self::payers) has the principal.
    pub fn has_call_of(&self, payer: PrincipalId) -> bool {
        self.backlogs.iter().any(|backlog| [backlog.payer(), backlog.blocked()].contains(&Some(payer)))
    }

    /// Returns the time at which the worker must act next: now if any call runs, otherwise the earliest time
    /// until which a packet is held. `None` if no packet waits and no call runs.
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let is_running = self.backlogs.iter().any(|backlog| backlog.payer().is_none());
        if is_running { Some(now) } else { self.held.next() }
    }

    /// Whether another process runs a call, or may hand over state.
    #[inline]
    pub fn awaits(&self) -> bool {
        self.backlogs.iter().any(|backlog| backlog.call.times.awaited.is_some() || backlog.awaits_upgrade())
    }

    /// Returns the paths that waiting packets use: the paths of their stages, and their accounting paths.
    pub fn paths(&self) -> impl Iterator<Item = PathId> + '_ {
        let held = self.held.iter();
        let behind = self.backlogs.iter().flat_map(|backlog| &backlog.behind.packets);
        let waiting = held
            .chain(behind)
            .chain(self.followers.iter())
            .chain(&self.for_processor)
            .flat_map(|own| [own.place.path, own.packet.counts_for]);
        let calls = self.backlogs.iter().map(|backlog| &backlog.call);
        let called = calls.clone().flat_map(|call| call.packets.iter().map(|packet| packet.counts_for));
        waiting.chain(called).chain(calls.filter_map(|call| call.place).map(|place| place.path))
    }

    /// Returns the number of waiting packets.
    pub fn len(&self) -> usize {
        let in_calls = self.backlogs.iter().map(Backlog::len).sum::<usize>();
        self.held.len() + self.followers.len() + self.for_processor.len() + in_calls
    }

    /// Whether no packet is held, and no call runs or waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.backlogs.is_empty()
    }
}
