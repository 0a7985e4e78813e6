//! The connection table.

mod chains;
mod list;
mod recyclable;
mod sources;
#[cfg(test)]
mod tests;
mod wheel;

use std::ops::Range;

use millrace_packet::FlowKey;
use millrace_units::Instant;

use self::chains::{Chained, Chains};
use self::recyclable::Recyclable;
use self::sources::Sources;
use self::wheel::Wheel;
use crate::config::{ConnectionConfig, ConnectionTableError};
use crate::direction::Direction;
use crate::hash::KeyHash;
use crate::invalid::Invalid;
use crate::key::{ConnectionKey, Orientation};
use crate::listed::Listed;
use crate::quoted::{Quoted, is_error};
use crate::record::Record;
use crate::state::{Recycling, State, Transport};
use crate::timeouts::Timeouts;
use crate::tracked::{ConnectionRef, EndReason, Ended, Known, Refusal, Relation, Tracked};

impl Chained for Record {
    #[inline]
    fn next(&self) -> u32 {
        self.chain
    }

    #[inline]
    fn set_next(&mut self, slot: u32) {
        self.chain = slot;
    }
}

/// Table of connections. The description of this crate states its guarantees.
#[derive(Debug)]
pub struct ConnectionTable {
    hash: KeyHash,
    records: Chains<Record>,
    sources: Sources,
    /// Connections that are not assured.
    recyclable: Recyclable,
    wheel: Wheel,
    timeouts: Timeouts,
    adopts: bool,
    /// Number of times that packets may have begun or ceased to pass untracked. Wraps around.
    epoch: u16,
}

/// Packet to be tracked.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Flow key of the packet.
    pub key: &'a FlowKey,
    /// The packet from its transport header on.
    pub transport: Transport<'a>,
}

impl ConnectionTable {
    /// Bytes of memory that the table maps for each connection.
    pub const BYTES_PER_CONNECTION: usize = Chains::<Record>::bytes_per_slot() + Sources::bytes_per_source();

    /// Creates an empty table, and maps all its memory. The kernel allocates pages as they are used.
    ///
    /// # Errors
    /// [`ConnectionTableError`] if the size is outside its range, or the kernel has no memory.
    pub fn new(config: &ConnectionConfig, now: Instant) -> Result<Self, ConnectionTableError> {
        let ConnectionConfig { maximum, per_source, timeouts, adopts, seed } = *config;
        if !(1..=ConnectionConfig::LARGEST).contains(&maximum) {
            return Err(ConnectionTableError::Size { given: maximum });
        }
        Ok(Self {
            hash: KeyHash::new(seed),
            records: Chains::new("connections", maximum)?,
            // With one address more, the source of a new connection has room beside that of a recycled one.
            sources: Sources::new(maximum + 1, per_source)?,
            recyclable: Recyclable::default(),
            wheel: Wheel::new(now),
            timeouts,
            adopts,
            epoch: 0,
        })
    }

    /// Sets the time of an empty table. Does nothing if the table has connections.
    pub fn begin(&mut self, now: Instant) {
        if self.is_empty() {
            self.wheel = Wheel::new(now);
        }
    }

    /// Begins an epoch: from now on, packets of other connections than before may pass untracked.
    pub fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Returns the maximum number of connections.
    pub fn maximum(&self) -> u32 {
        self.records.maximum()
    }

    /// Returns the number of connections.
    #[inline]
    pub fn len(&self) -> u32 {
        self.records.len()
    }

    /// Returns whether there is no connection.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    /// Returns the number of addresses that have opened connections.
    pub fn sources(&self) -> u32 {
        self.sources.len()
    }

    /// Tracks a packet: finds or opens its connection, and advances the connection's state. `hint` is the
    /// connection of an earlier packet of the same flow, or the default.
    ///
    /// An invalid packet changes nothing. An ICMP error changes nothing either; it has the direction against
    /// that of the packet that it quotes.
    #[inline]
    pub fn track(&mut self, packet: &Packet<'_>, hint: ConnectionRef, now: Instant) -> Tracked {
        let octets = packet.transport.octets;
        if packet.transport.is_later_fragment() && ConnectionKey::is_of_messages(packet.key) {
            return self.follow(packet, hint, now);
        }
        let Some((key, orientation)) = ConnectionKey::of(packet.key, octets) else {
            return Tracked { known: self.relate(packet.key, octets), ended: None };
        };
        let slot = match self.slot_of(hint) {
            Some(slot) if self.records.slots[slot as usize].key == key => Some(slot),
            _ => self.slot_with(&key),
        };
        match slot {
            Some(slot) => self.advance(slot, orientation, &packet.transport, now),
            None => self.open(&key, orientation, &packet.transport, now),
        }
    }

    /// Returns the connection with this key.
    pub fn find(&self, key: &ConnectionKey) -> Option<ConnectionRef> {
        self.slot_with(key).map(|slot| self.reference(slot))
    }

    /// Returns the word that the caller has stored for a connection; 0 if none, or if the connection has
    /// ended.
    #[inline]
    pub fn word(&self, connection: ConnectionRef) -> u32 {
        self.slot_of(connection).map_or(0, |slot| self.records.slots[slot as usize].word)
    }

    /// Stores a word for a connection. Does nothing if the connection has ended.
    #[inline]
    pub fn set_word(&mut self, connection: ConnectionRef, word: u32) {
        if let Some(slot) = self.slot_of(connection) {
            self.records.slots[slot as usize].word = word;
        }
    }

    /// Ends a connection. Returns `None` if it has ended before.
    pub fn remove(&mut self, connection: ConnectionRef) -> Option<Ended> {
        let slot = self.slot_of(connection)?;
        Some(self.end(slot, EndReason::Removed))
    }

    /// Takes back a [counted](Known::is_counted) packet that was dropped. Ends the connection if all its packets so far
    /// were dropped.
    pub fn drop_counted(&mut self, connection: ConnectionRef) -> Option<Ended> {
        let slot = self.slot_of(connection)?;
        self.records.slots[slot as usize].uncount().then(|| self.end(slot, EndReason::Dropped))
    }

    /// Ends the next connection whose idle time is over. Decreases `budget` by the number of steps. Returns
    /// `None` if no idle time is over, or if the budget is used up.
    pub fn expire(&mut self, now: Instant, budget: &mut u32) -> Option<Ended> {
        let slot = self.wheel.expired(&mut self.records.slots, now, budget)?;
        Some(self.release(slot, EndReason::Expired))
    }

    /// Returns all connections, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Listed> + '_ {
        self.list(1..self.numbers_end())
    }

    /// Returns the end of the range of numbers that connections have had: the largest number, plus 1.
    pub fn numbers_end(&self) -> u32 {
        self.records.ever_used().end
    }

    /// Returns the connections whose [numbers](ConnectionRef::number) are in a range.
    pub fn list(&self, numbers: Range<u32>) -> impl Iterator<Item = Listed> + '_ {
        let known = self.records.ever_used();
        let slots = numbers.start.max(known.start)..numbers.end.min(known.end);
        slots.filter_map(|slot| {
            let record = &self.records.slots[slot as usize];
            let listed = || Listed {
                key: record.key,
                originator: record.originator(),
                phase: record.state.phase(),
                is_answered: record.state.is_answered(),
                is_assured: record.state.is_assured(),
                until: wheel::instant(record.expires),
            };
            (record.state != State::Free).then(listed)
        })
    }

    /// Tracks a later fragment of an ICMP message, whose octets show neither type nor identifier. It belongs to the
    /// query of its flow.
    #[cold]
    fn follow(&mut self, packet: &Packet<'_>, hint: ConnectionRef, now: Instant) -> Tracked {
        let of_flow = |slot: u32| Some((slot, self.records.slots[slot as usize].key.query_of(packet.key)?));
        match self.slot_of(hint).and_then(of_flow) {
            Some((slot, orientation)) => self.advance(slot, orientation, &packet.transport, now),
            None => Tracked { known: Err(Refusal::Invalid(Invalid::NotOpening)), ended: None },
        }
    }

    /// Returns the connection of the packet that an ICMP error quotes. The error must go to the sender of that packet.
    #[cold]
    fn relate(&self, error: &FlowKey, message: &[u8]) -> Result<Known, Refusal> {
        if !is_error(error.protocol, message) {
            return Err(Refusal::Invalid(Invalid::NotOpening));
        }
        let refused = Refusal::Invalid(Invalid::QuotesNothing);
        let quoted = Quoted::read(error.protocol, message).ok_or(refused)?;
        let slot = self.slot_with(&quoted.key).ok_or(refused)?;
        let record = &self.records.slots[slot as usize];
        let sender = record.direction(quoted.orientation);
        let [(source, _), _] = quoted.key.endpoints(quoted.orientation);
        if error.destination() != source || !record.state.has_sent(sender, quoted.sequence) {
            return Err(refused);
        }
        let (connection, direction) = (self.reference(slot), sender.other());
        Ok(Known { connection, direction, relation: Relation::Related, is_counted: false })
    }

    #[inline]
    fn advance(
        &mut self,
        slot: u32,
        orientation: Orientation,
        transport: &Transport<'_>,
        now: Instant,
    ) -> Tracked {
        let record = &mut self.records.slots[slot as usize];
        let direction = record.direction(orientation);
        record.state.enter_epoch(self.epoch);
        if record.state.is_reopened_by(direction, transport) {
            let key = record.key;
            let ended = self.end(slot, EndReason::Reopened);
            let Tracked { known, .. } = self.open(&key, orientation, transport, now);
            return Tracked { known, ended: Some(ended) };
        }
        if let Err(invalid) = record.state.advance(direction, transport) {
            return Tracked { known: Err(Refusal::Invalid(invalid)), ended: None };
        }
        let relation = if record.state.is_answered() { Relation::Established } else { Relation::New };
        let is_counted = record.count();
        self.prolong(slot, now);
        let connection = self.reference(slot);
        Tracked { known: Ok(Known { connection, direction, relation, is_counted }), ended: None }
    }

    /// Sets the end of a connection's idle time after a packet, and protects an assured connection.
    #[inline]
    fn prolong(&mut self, slot: u32, now: Instant) {
        let record = &mut self.records.slots[slot as usize];
        let expires = wheel::tick_after(now, self.timeouts.of(&record.state));
        let is_sooner = wheel::is_after(record.expires, expires);
        record.expires = expires;
        let after = record.state.recycling();
        let before = record.set_recycling(after);
        if is_sooner {
            self.wheel.remove(&mut self.records.slots, slot);
            self.wheel.add(&mut self.records.slots, slot);
        }
        if before != after {
            self.move_between((before, after), slot);
        }
    }

    /// Moves a record between the lists of connections that new ones may recycle.
    fn move_between(&mut self, (from, to): (Option<Recycling>, Option<Recycling>), slot: u32) {
        if let Some(from) = from {
            self.recyclable.remove(&mut self.records.slots, from, slot);
        }
        if let Some(to) = to {
            self.recyclable.push(&mut self.records.slots, to, slot);
        }
    }

    #[cold]
    fn open(
        &mut self,
        key: &ConnectionKey,
        orientation: Orientation,
        transport: &Transport<'_>,
        now: Instant,
    ) -> Tracked {
        let mut ended = None;
        let known = self.try_open(key, orientation, transport, now, &mut ended);
        Tracked { known, ended }
    }

    fn try_open(
        &mut self,
        key: &ConnectionKey,
        orientation: Orientation,
        transport: &Transport<'_>,
        now: Instant,
        ended: &mut Option<Ended>,
    ) -> Result<Known, Refusal> {
        if key.is_query() && orientation == Orientation::Backward {
            return Err(Refusal::Invalid(Invalid::NotOpening));
        }
        let mut state = State::open(key.protocol(), transport, self.adopts).map_err(Refusal::Invalid)?;
        state.begin_epoch(self.epoch);
        let oldest = self.recyclable.next().filter(|_| self.records.is_full());
        if self.records.is_full() && oldest.is_none() {
            return Err(Refusal::TableFull);
        }
        let address = key.source(orientation);
        let source = self.sources.add(&self.hash, address).ok_or(Refusal::SourceFull)?;
        *ended = oldest.map(|slot| self.end(slot, EndReason::Recycled));
        let slot = self.records.insert(self.hash.of(key)).ok_or(Refusal::TableFull)?;
        let record = &mut self.records.slots[slot as usize];
        (record.key, record.state, record.source) = (*key, state, source);
        record.serial = record.serial.max(1);
        (record.word, record.packets) = (0, 1);
        record.set_originator(orientation);
        let recycling = state.recycling();
        record.set_recycling(recycling);
        record.expires = wheel::tick_after(now, self.timeouts.of(&state));
        self.move_between((None, recycling), slot);
        self.wheel.add(&mut self.records.slots, slot);
        Ok(Known {
            connection: self.reference(slot),
            direction: Direction::Original,
            relation: Relation::Opening,
            is_counted: true,
        })
    }

    fn end(&mut self, slot: u32, reason: EndReason) -> Ended {
        self.wheel.remove(&mut self.records.slots, slot);
        self.release(slot, reason)
    }

    /// Frees the record of a connection that has left the timing wheel.
    fn release(&mut self, slot: u32, reason: EndReason) -> Ended {
        let list = self.records.slots[slot as usize].recycling();
        self.move_between((list, None), slot);
        let connection = self.reference(slot);
        let record = &mut self.records.slots[slot as usize];
        (record.state, record.serial) = (State::Free, record.serial.wrapping_add(1).max(1));
        let (key, originator, word) = (record.key, record.originator(), record.word);
        let ended = Ended { connection, key, originator, word, reason };
        self.sources.remove(&self.hash, record.source);
        self.records.remove(self.hash.of(&ended.key), slot);
        ended
    }

    #[inline]
    fn slot_with(&self, key: &ConnectionKey) -> Option<u32> {
        self.records.find(self.hash.of(key), |record| record.key == *key)
    }

    #[inline]
    fn slot_of(&self, connection: ConnectionRef) -> Option<u32> {
        let record = self.records.slots.get(connection.slot as usize)?;
        (connection.serial != 0 && record.serial == connection.serial).then_some(connection.slot)
    }

    #[inline]
    fn reference(&self, slot: u32) -> ConnectionRef {
        ConnectionRef { slot, serial: self.records.slots[slot as usize].serial }
    }
}
