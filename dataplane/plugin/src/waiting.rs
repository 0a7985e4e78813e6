//! Packets that instances keep from going on: those of a call that was suspended, those behind it, and those that are held
//! for a time.
//!
//! A batch can't lose packets in its middle, so an instance's wish is first noted as a [`Ticket`]; when the batch is
//! disposed of, each packet that has one comes here.
//!
//! All instances share the memory for packets that wait. One may keep as many as are still free beside it: alone it gets half of
//! all, a second one half of the rest, so that nobody can take what others need (*dynamic thresholds*, Choudhury and Hahne,
//! IEEE/ACM Transactions on Networking 6(2), 1998, with a factor of one).

use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_plugin_abi::{Message, PluginError, Position, Reply};
use millrace_units::{Instant, PathId};

use crate::direction::Direction;
use crate::flow_state::{FlowStateBlocks, StateRef};
use crate::slab::Key;
use crate::succession::{Successed, Succession, Successor};

/// Packets that may wait for a suspended call of an instance.
const MOST_BEHIND: usize = 4096;
/// Control messages that may wait for an instance that is busy.
const MOST_ASKED: usize = 64;
/// How long an instance may hold a packet; longer is a fault.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_secs(60);
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

    /// The stage before; `None` at the first.
    pub(crate) fn before(self) -> Option<Self> {
        Some(Self { stage: self.stage.checked_sub(1)?, ..self })
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
    /// The state of its flow.
    pub state: StateRef,
    /// How many instances have sent it to others in a row.
    pub passed_on: u8,
}

/// A packet that waits no longer.
#[derive(Debug)]
pub struct Released {
    /// The packet, and where it goes on.
    pub waiting: Waiting,
    /// Where it was sent, if it goes on.
    pub direction: Option<Direction>,
    /// How its journey ends, if it does not go on.
    pub end: Option<End>,
}

impl Released {
    /// One that simply goes on.
    pub(crate) fn on(waiting: Waiting) -> Self {
        Self { waiting, direction: None, end: None }
    }
}

/// A packet that was taken out of its group to be kept.
#[derive(Debug)]
pub struct Kept {
    /// The packet.
    pub packet: Packet,
    /// Its flow key.
    pub key: FlowKey,
    /// The link address that it is sent to, if that was found out before.
    pub destination: [u8; 6],
    /// The state of its flow.
    pub state: StateRef,
}

/// How an instance ends the journey of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It is dropped.
    Drop(DropReason),
    /// It was used up.
    Consume,
    /// It is classified anew.
    Classify,
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
    /// They go on at a time; the instance of this slot holds them.
    Until(u32, Instant),
}

/// A wish, for packets at a place.
#[derive(Clone, Copy, Debug)]
struct Noted {
    wish: Wish,
    place: Place,
    passed_on: u8,
}

/// What a call is about.
#[derive(Default)]
pub(crate) enum Errand {
    /// Packets.
    #[default]
    Packets,
    /// What the instance does from time to time, or at the end of a flow.
    Own,
    /// A control message: the answer goes there.
    Control(Answer),
}

/// What control wants of an instance.
pub(crate) enum Asked {
    /// An answer to a message.
    Message(Message, Answer),
    /// That it hears a message of its other half.
    Tell(Vec<u8>),
    /// Its place, for another one.
    Succeed(Successor, Successed),
}

impl Asked {
    fn refuse(self, problem: String) {
        match self {
            Self::Message(message, answer) => {
                let text = format!("message {:?} is refused: {problem}", message.name);
                answer(Some(Err(PluginError::Refused(text))));
            }
            Self::Tell(_) => {}
            Self::Succeed(Successor { instance, .. }, told) => {
                told(Some(Succession { instance, inherited: Err(problem) }));
            }
        }
    }
}

/// Takes the answer to a control message; `None` when the instance is not there, or gone before it answered.
pub type Answer = Box<dyn FnOnce(Option<Reply>) + Send>;

/// A call that goes on: its packets, and what is needed for them to go on.
#[derive(Default)]
pub(crate) struct Call {
    pub errand: Errand,
    pub packets: Vec<Packet>,
    pub keys: Vec<FlowKey>,
    destinations: Vec<[u8; 6]>,
    states: Vec<StateRef>,
    /// Numbers of the blocks of state, as of the last slice.
    pub numbers: Vec<u32>,
    /// Where all of them are.
    pub place: Option<Place>,
    passed_on: u8,
    /// How often it was given time.
    pub slices: u32,
    /// Whether an instance that had the packets may have written to them.
    pub written: bool,
}

impl Call {
    /// Whether there is anything.
    pub fn is_under_way(&self) -> bool {
        self.place.is_some() || !matches!(self.errand, Errand::Packets)
    }

    pub fn push(&mut self, waiting: Waiting) {
        self.packets.push(waiting.packet);
        self.keys.push(waiting.key);
        self.destinations.push(waiting.destination);
        self.states.push(waiting.state);
        self.place = Some(waiting.place);
        self.passed_on = waiting.passed_on;
    }

    /// Looks up which blocks of state there still are.
    pub fn find_states(&mut self, blocks: &FlowStateBlocks) {
        self.numbers.clear();
        self.numbers.extend(self.states.iter().map(|state| blocks.resolve(*state)));
    }

    /// Its packets, at `place` from now on, each given to `each` with its number.
    pub fn finish(&mut self, place: Place, mut each: impl FnMut(usize, Waiting)) {
        let passed_on = self.passed_on;
        let rest = self.keys.drain(..).zip(self.destinations.drain(..)).zip(self.states.drain(..));
        for (number, (packet, ((key, destination), state))) in self.packets.drain(..).zip(rest).enumerate() {
            each(number, Waiting { packet, key, destination, place, state, passed_on });
        }
        (self.place, self.slices, self.written) = (None, 0, false);
    }
}

/// Packets behind a call of an instance.
#[derive(Default)]
pub(crate) struct Behind {
    packets: VecDeque<Waiting>,
    bytes: u64,
}

impl Behind {
    /// How many there are, and their bytes.
    pub fn load(&self) -> (u32, u64) {
        (self.packets.len() as u32, self.bytes)
    }

    pub fn push(&mut self, waiting: Waiting) {
        self.bytes += waiting.packet.len() as u64;
        self.packets.push_back(waiting);
    }

    fn pop_if(&mut self, is_it: impl FnMut(&mut Waiting) -> bool) -> Option<Waiting> {
        let waiting = self.packets.pop_front_if(is_it)?;
        self.bytes -= waiting.packet.len() as u64;
        Some(waiting)
    }
}

/// What waits for one instance.
pub(crate) struct Backlog {
    pub instance: Key,
    pub call: Call,
    pub behind: Behind,
    /// Control messages, which come first.
    pub asked: VecDeque<Asked>,
}

impl Backlog {
    fn new(instance: Key, call: Call) -> Self {
        Self { instance, call, behind: Behind::default(), asked: VecDeque::new() }
    }

    /// How many packets there are.
    fn len(&self) -> usize {
        self.call.packets.len() + self.behind.packets.len()
    }

    /// Makes a call of packets that waited and are at one place; whether there were any.
    pub fn begin_call(&mut self) -> bool {
        let alike = |waiting: &Waiting| (waiting.place, waiting.passed_on);
        let Some(first) = self.behind.packets.front().map(alike) else { return false };
        while self.call.packets.len() < MOST_IN_CALL
            && let Some(waiting) = self.behind.pop_if(|waiting| alike(waiting) == first)
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
    /// The slot of the instance that holds it.
    by: u32,
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
#[derive(Default)]
pub(crate) struct WaitingRoom {
    tickets: Vec<Noted>,
    backlogs: Vec<Backlog>,
    held: BinaryHeap<Held>,
    order: u64,
    /// How many packets the instance of each slot holds, of those that hold any.
    holders: Vec<(u32, usize)>,
}

impl WaitingRoom {
    /// Whether a call of the instance goes on, or packets wait for it.
    #[inline]
    pub fn is_busy(&self, instance: Key) -> bool {
        !self.backlogs.is_empty() && self.backlogs.iter().any(|backlog| backlog.instance == instance)
    }

    /// Notes that packets belong to a call of the instance that goes on, and whether it may have written to them.
    pub fn suspend(&mut self, instance: Key, place: Place, passed_on: u8, written: bool) -> Ticket {
        let call = Call { slices: 1, written, ..Call::default() };
        self.backlogs.push(Backlog::new(instance, call));
        self.ticket(Wish::Call(instance), place, passed_on)
    }

    /// Notes that the instance is busy with something that is no packets. What waits for it goes on afterwards.
    pub fn suspend_errand(&mut self, instance: Key, errand: Errand) {
        match self.backlogs.iter_mut().find(|backlog| backlog.instance == instance) {
            Some(backlog) => (backlog.call.errand, backlog.call.slices) = (errand, 1),
            None => {
                let call = Call { slices: 1, errand, ..Call::default() };
                self.backlogs.push(Backlog::new(instance, call));
            }
        }
    }

    /// Notes that packets wait for their turn with an instance that is busy.
    pub fn queue(&mut self, instance: Key, place: Place, passed_on: u8) -> Ticket {
        self.ticket(Wish::Turn(instance), place, passed_on)
    }

    /// Notes that an instance holds a packet, which goes on behind a stage at a time.
    pub fn hold(&mut self, instance: Key, until: Instant, place: Place) -> Ticket {
        self.ticket(Wish::Until(instance.slot, until), place.next(), 0)
    }

    fn ticket(&mut self, wish: Wish, place: Place, passed_on: u8) -> Ticket {
        self.tickets.push(Noted { wish, place, passed_on });
        Ticket(self.tickets.len() as u32 - 1)
    }

    /// Takes a packet that has a ticket. Packets of a batch come in their order. At most `most` packets are to wait: of an
    /// instance that has its share of these only those of a call that goes on are taken; others are given back.
    pub fn keep(&mut self, ticket: Ticket, most: usize, kept: Kept) -> Option<Packet> {
        let Kept { packet, key, destination, state } = kept;
        let Some(Noted { wish, place, passed_on }) = self.tickets.get(ticket.0 as usize).copied() else {
            return Some(packet);
        };
        let waiting = Waiting { packet, key, destination, place, state, passed_on };
        match wish {
            Wish::Until(slot, _) | Wish::Turn(Key { slot, .. }) if !self.has_room(slot, most) => {
                Some(waiting.packet)
            }
            Wish::Until(slot, until) => {
                self.hold_packet(slot, until, waiting);
                None
            }
            Wish::Call(instance) => match self.backlog(instance) {
                Some(backlog) => {
                    backlog.call.push(waiting);
                    None
                }
                None => Some(waiting.packet),
            },
            Wish::Turn(instance) => self.wait_for(instance, waiting).err().map(|waiting| waiting.packet),
        }
    }

    /// Whether the instance of a slot may keep one more packet, where at most `most` are to wait.
    fn has_room(&self, slot: u32, most: usize) -> bool {
        let behind = self.backlogs.iter().filter(|backlog| backlog.instance.slot == slot).map(Backlog::len);
        let held = self.holders.iter().filter(|(holder, _)| *holder == slot).map(|(_, held)| *held);
        behind.chain(held).sum::<usize>() < most.saturating_sub(self.len())
    }

    fn backlog(&mut self, instance: Key) -> Option<&mut Backlog> {
        self.backlogs.iter_mut().find(|backlog| backlog.instance == instance)
    }

    /// Lets a packet wait for its turn with an instance.
    ///
    /// # Errors
    /// The packet, when too many wait.
    pub fn wait_for(&mut self, instance: Key, waiting: Waiting) -> Result<(), Waiting> {
        if self.backlog(instance).is_none() {
            self.backlogs.push(Backlog::new(instance, Call::default()));
        }
        match self.backlog(instance) {
            Some(backlog) if backlog.behind.packets.len() < MOST_BEHIND => {
                backlog.behind.push(waiting);
                Ok(())
            }
            _ => Err(waiting),
        }
    }

    /// Lets control wait for an instance that is busy; whether there was room.
    pub fn ask(&mut self, instance: Key, asked: Asked) -> bool {
        match self.backlog(instance) {
            Some(backlog) if backlog.asked.len() < MOST_ASKED => {
                backlog.asked.push_back(asked);
                true
            }
            _ => {
                asked.refuse(format!(
                    "the instance is busy, and {MOST_ASKED} messages wait already; ask again"
                ));
                false
            }
        }
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

    /// Holds a packet for the instance of a slot until a time.
    pub fn hold_packet(&mut self, by: u32, until: Instant, waiting: Waiting) {
        self.order += 1;
        self.held.push(Held { until, order: self.order, by, waiting });
        match self.holders.iter_mut().find(|(holder, _)| *holder == by) {
            Some((_, held)) => *held += 1,
            None => self.holders.push((by, 1)),
        }
    }

    /// Lets those packets go on at once, in the order of their times, that are held for nobody any longer.
    pub fn let_go(&mut self, is_orphan: impl Fn(u32, Place) -> bool) {
        if !self.held.iter().any(|held| is_orphan(held.by, held.waiting.place)) {
            return;
        }
        let mut held = std::mem::take(&mut self.held).into_vec();
        held.sort_unstable_by(|one, other| other.cmp(one));
        for (order, held) in (1..).zip(&mut held) {
            held.order = order;
            if is_orphan(held.by, held.waiting.place) {
                held.until = Instant::ZERO;
            }
        }
        self.order = held.len() as u64;
        self.held = held.into();
    }

    /// Tickets are worth nothing any more: the batch was disposed of.
    pub fn end_of_batch(&mut self) {
        self.tickets.clear();
    }

    /// A packet whose time has come.
    pub fn due(&mut self, now: Instant) -> Option<Waiting> {
        self.held.peek().filter(|held| held.until <= now)?;
        let held = self.held.pop()?;
        let holders = self.holders.iter_mut().enumerate();
        if let Some((at, (_, count))) = holders.into_iter().find(|(_, (holder, _))| *holder == held.by) {
            *count -= 1;
            if *count == 0 {
                self.holders.swap_remove(at);
            }
        }
        Some(held.waiting)
    }

    /// When something is to be done: at once while calls go on.
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        if self.backlogs.is_empty() { self.held.peek().map(|held| held.until) } else { Some(now) }
    }

    /// How many packets wait.
    pub fn len(&self) -> usize {
        self.held.len() + self.backlogs.iter().map(Backlog::len).sum::<usize>()
    }

    /// Whether nothing is to be done.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.backlogs.is_empty()
    }
}
