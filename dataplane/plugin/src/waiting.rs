//! Packets that instances keep from going on: those of a call that was suspended, those behind it, and those that are held
//! for a time.
//!
//! A batch can't lose packets in its middle, so an instance's wish is first noted as a [`Ticket`]; when the batch is
//! disposed of, each packet that has one comes here.

use std::collections::{BinaryHeap, VecDeque};

use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_plugin_abi::Position;
use millrace_units::{Instant, PathId};

use crate::slab::Key;

/// Packets that may wait for a suspended call of an instance.
const MOST_BEHIND: usize = 4096;
/// Packets of a call that goes on with those that waited.
pub(crate) const MOST_IN_CALL: usize = 64;

/// A stage of a path, by its place among those of a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The path.
    pub path: PathId,
    /// The position.
    pub position: Position,
    /// The place.
    pub stage: u16,
}

impl Place {
    /// The stage behind.
    pub(crate) fn next(self) -> Self {
        Self { stage: self.stage + 1, ..self }
    }
}

/// A packet with what is needed for it to go on.
#[derive(Debug)]
pub struct Waiting {
    /// The packet.
    pub packet: Packet,
    /// Its flow key.
    pub key: FlowKey,
    /// The link address that it is sent to, if that was found out before.
    pub destination: [u8; 6],
    /// Where it goes on.
    pub place: Place,
}

/// A packet that waits no longer.
#[derive(Debug)]
pub struct Released {
    /// The packet, and where it goes on.
    pub waiting: Waiting,
    /// How its journey ends, if it does not go on.
    pub end: Option<End>,
}

/// How an instance ends the journey of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It is dropped.
    Drop(DropReason),
    /// It was used up.
    Consume,
}

/// Why a packet is no longer in its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Its journey is over.
    End(End),
    /// It waits: with this ticket it is to be handed to [`WorkerPlugins::keep`](crate::WorkerPlugins::keep).
    Keep(Ticket),
}

/// The number of a wish that packets be kept, until the batch is disposed of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u32);

/// What an instance wants with packets.
#[derive(Clone, Copy, Debug)]
enum Wish {
    /// They belong to its call, which goes on.
    Call(Key),
    /// They wait for their turn.
    Turn(Key),
    /// They go on at a time.
    Until(Instant),
}

/// The packets of a call that goes on, and what is needed for them to go on.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub packets: Vec<Packet>,
    pub keys: Vec<FlowKey>,
    pub destinations: Vec<[u8; 6]>,
    /// Where all of them are.
    pub place: Option<Place>,
    /// How often it was given time.
    pub slices: u32,
}

impl Call {
    pub fn push(&mut self, waiting: Waiting) {
        self.packets.push(waiting.packet);
        self.keys.push(waiting.key);
        self.destinations.push(waiting.destination);
        self.place = Some(waiting.place);
    }

    /// Its packets, at `place` from now on, each given to `each` with its number.
    pub fn finish(&mut self, place: Place, mut each: impl FnMut(usize, Waiting)) {
        let rest = self.keys.drain(..).zip(self.destinations.drain(..));
        for (number, (packet, (key, destination))) in self.packets.drain(..).zip(rest).enumerate() {
            each(number, Waiting { packet, key, destination, place });
        }
        (self.place, self.slices) = (None, 0);
    }
}

/// What waits for one instance.
#[derive(Debug)]
pub(crate) struct Backlog {
    pub instance: Key,
    pub call: Call,
    pub behind: VecDeque<Waiting>,
}

impl Backlog {
    /// Makes a call of packets that waited and are at one place; whether there were any.
    pub fn begin_call(&mut self) -> bool {
        let Some(place) = self.behind.front().map(|waiting| waiting.place) else { return false };
        while self.call.packets.len() < MOST_IN_CALL
            && let Some(waiting) = self.behind.pop_front_if(|waiting| waiting.place == place)
        {
            self.call.push(waiting);
        }
        true
    }
}

/// A packet that is held for a time; of two, the earlier is the greater.
#[derive(Debug)]
struct Held {
    until: Instant,
    /// Packets of the same time keep their order.
    order: u64,
    waiting: Waiting,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        (self.until, self.order) == (other.until, other.order)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.until, other.order).cmp(&(self.until, self.order))
    }
}

/// All packets that wait at a worker.
#[derive(Debug, Default)]
pub(crate) struct WaitingRoom {
    tickets: Vec<(Wish, Place)>,
    backlogs: Vec<Backlog>,
    held: BinaryHeap<Held>,
    order: u64,
}

impl WaitingRoom {
    /// Whether a call of the instance goes on, or packets wait for it.
    #[inline]
    pub fn is_busy(&self, instance: Key) -> bool {
        !self.backlogs.is_empty() && self.backlogs.iter().any(|backlog| backlog.instance == instance)
    }

    /// Notes that packets belong to a call of the instance that goes on.
    pub fn suspend(&mut self, instance: Key, place: Place) -> Ticket {
        let call = Call { slices: 1, ..Call::default() };
        self.backlogs.push(Backlog { instance, call, behind: VecDeque::new() });
        self.ticket(Wish::Call(instance), place)
    }

    /// Notes that packets wait for their turn with an instance that is busy.
    pub fn queue(&mut self, instance: Key, place: Place) -> Ticket {
        self.ticket(Wish::Turn(instance), place)
    }

    /// Notes that a packet goes on behind a stage at a time.
    pub fn hold(&mut self, until: Instant, place: Place) -> Ticket {
        self.ticket(Wish::Until(until), place.next())
    }

    fn ticket(&mut self, wish: Wish, place: Place) -> Ticket {
        self.tickets.push((wish, place));
        Ticket(self.tickets.len() as u32 - 1)
    }

    /// Takes a packet that has a ticket. Packets of a batch come in their order. Without room only those of a call that
    /// goes on are taken; others are given back.
    pub fn keep(
        &mut self,
        ticket: Ticket,
        room: bool,
        packet: Packet,
        key: FlowKey,
        destination: [u8; 6],
    ) -> Option<Packet> {
        let Some((wish, place)) = self.tickets.get(ticket.0 as usize).copied() else { return Some(packet) };
        let waiting = Waiting { packet, key, destination, place };
        let (instance, turn) = match wish {
            Wish::Until(_) | Wish::Turn(_) if !room => return Some(waiting.packet),
            Wish::Until(until) => {
                self.hold_packet(until, waiting);
                return None;
            }
            Wish::Call(instance) => (instance, false),
            Wish::Turn(instance) => (instance, true),
        };
        let Some(backlog) = self.backlogs.iter_mut().find(|backlog| backlog.instance == instance) else {
            return Some(waiting.packet);
        };
        if !turn {
            backlog.call.push(waiting);
        } else if backlog.behind.len() < MOST_BEHIND {
            backlog.behind.push_back(waiting);
        } else {
            return Some(waiting.packet);
        }
        None
    }

    /// Takes the backlog of that number out.
    pub fn take_backlog(&mut self, number: usize) -> Option<Backlog> {
        (number < self.backlogs.len()).then(|| self.backlogs.swap_remove(number))
    }

    /// Puts it back where it was.
    pub fn put_backlog(&mut self, number: usize, backlog: Backlog) {
        self.backlogs.push(backlog);
        let last = self.backlogs.len() - 1;
        self.backlogs.swap(number, last);
    }

    /// Holds a packet until a time.
    pub fn hold_packet(&mut self, until: Instant, waiting: Waiting) {
        self.order += 1;
        self.held.push(Held { until, order: self.order, waiting });
    }

    /// Tickets are worth nothing any more: the batch was disposed of.
    pub fn end_of_batch(&mut self) {
        self.tickets.clear();
    }

    /// A packet whose time has come.
    pub fn due(&mut self, now: Instant) -> Option<Waiting> {
        self.held.peek().filter(|held| held.until <= now)?;
        self.held.pop().map(|held| held.waiting)
    }

    /// When something is to be done: at once while calls go on.
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        if self.backlogs.is_empty() { self.held.peek().map(|held| held.until) } else { Some(now) }
    }

    /// How many packets wait.
    pub fn len(&self) -> usize {
        let backlog = |backlog: &Backlog| backlog.call.packets.len() + backlog.behind.len();
        self.held.len() + self.backlogs.iter().map(backlog).sum::<usize>()
    }

    /// Whether nothing is to be done.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.backlogs.is_empty()
    }
}
