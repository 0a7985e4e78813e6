//! Connection state: bytes that instances keep for each connection, both directions together.
//!
//! Each instance with this scope has an array with a block for every connection that the worker can track, by the
//! number of the connection. Control maps the array, and the kernel allocates its pages as they are used: the first
//! packet at a page waits for one. A block belongs to the connection whose serial number it holds. It is zeroed when the
//! first packet of a later connection reaches the instance.
//!
//! The end of a connection marks its block in the arrays of all instances. So a packet that has waited since, or that
//! comes later in the same batch, gets no state, and writes into none of a later connection.

use millrace_memory::{HugeSlice, MemoryError};
use millrace_packet::FlowKey;
use millrace_plugin_abi::{ConnectionStatus, FlowEnd, FlowStates, PacketConnection};
use millrace_units::PortId;

/// Bytes of the router's header in front of the state: packets, bytes, whether the connection has ended, ingress port,
/// serial number.
pub(crate) const HEADER: usize = 24;
const BYTES: usize = 8;
const ENDED: usize = 16;
const PORT: usize = 18;
const SERIAL: usize = 20;

/// Connection that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionEnd {
    /// Number of the connection, as in [`PacketConnection::number`].
    pub number: u32,
    /// Serial number, as in [`PacketConnection::serial`].
    pub serial: u32,
    /// Flow key of the connection's first packet, without its ingress port.
    pub key: FlowKey,
}

/// Connection of a waiting packet, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackedConnection(u64);

impl PackedConnection {
    /// Bits of the number, which is at most 2^26.
    const NUMBER: u32 = 27;
    const COUNTED: u32 = Self::NUMBER + 1;
    const STATUS: u32 = Self::COUNTED + 1;

    /// Packs a connection.
    pub fn of(connection: PacketConnection) -> Self {
        let PacketConnection { number, serial, status, is_reply, is_counted } = connection;
        let flags = u32::from(is_reply) << Self::NUMBER | u32::from(is_counted) << Self::COUNTED;
        let low = number | flags | u32::from(status as u8) << Self::STATUS;
        Self(u64::from(low) | u64::from(serial) << 32)
    }

    /// Returns the connection.
    pub fn get(self) -> PacketConnection {
        let low = self.0 as u32;
        PacketConnection {
            number: low & ((1 << Self::NUMBER) - 1),
            serial: (self.0 >> 32) as u32,
            status: ConnectionStatus::from_number((low >> Self::STATUS) as u8),
            is_reply: low >> Self::NUMBER & 1 != 0,
            is_counted: low >> Self::COUNTED & 1 != 0,
        }
    }
}

/// States that an instance keeps for connections.
#[derive(Debug)]
pub struct ConnectionStates {
    blocks: HugeSlice<u8>,
    /// Bytes of a state.
    bytes: usize,
    stride: usize,
}

impl ConnectionStates {
    /// Maps memory for states of `bytes` bytes of the connections 1 to `connections`.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn new(bytes: usize, connections: u32) -> Result<Self, MemoryError> {
        let stride = HEADER + bytes.next_multiple_of(8);
        let length = (connections as usize + 1).saturating_mul(stride);
        Ok(Self { blocks: HugeSlice::new("connection states", length)?, bytes, stride })
    }

    /// Returns the bytes of a state.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts a packet of a connection, whose state begins with zeros if the instance has not seen the connection.
    /// Returns the number of the connection's block; 0 if the packet has no connection, or if the connection has ended.
    pub(crate) fn enter(&mut self, connection: PacketConnection, port: PortId, length: usize) -> u32 {
        let PacketConnection { number, serial, is_reply, .. } = connection;
        let Some(block) = self.block(number) else { return 0 };
        let known = word(block, SERIAL);
        if known != serial {
            // The block has the latest connection of this number that has ended, or a later one. Serial numbers count
            // the connections of a number, and wrap around.
            let is_later = known == 0 || (serial.wrapping_sub(known) as i32) > 0;
            if !is_later {
                return 0;
            }
            block.fill(0);
            set(block, SERIAL, serial.to_le_bytes());
            let port = if is_reply { PortId::NONE } else { port };
            set(block, PORT, port.0.to_le_bytes());
        } else if has_ended(block) {
            return 0;
        }
        let (packets, bytes) = (long(block, 0) + 1, long(block, BYTES) + length as u64);
        set(block, 0, packets.to_le_bytes());
        set(block, BYTES, bytes.to_le_bytes());
        number
    }

    /// Returns the number of a connection's block; 0 if the connection has ended.
    pub(crate) fn resolve(&mut self, connection: PacketConnection) -> u32 {
        let PacketConnection { number, serial, .. } = connection;
        let is_own =
            self.block(number).is_some_and(|block| word(block, SERIAL) == serial && !has_ended(block));
        if is_own { number } else { 0 }
    }

    /// Marks the end of a connection. Returns the end as the instance is notified of it, with the state; `None` if the
    /// instance has not seen the connection.
    pub(crate) fn end(&mut self, end: &ConnectionEnd) -> Option<(FlowEnd, &[u8])> {
        let bytes = self.bytes;
        let block = self.block(end.number)?;
        let was_seen = word(block, SERIAL) == end.serial && !has_ended(block);
        set(block, SERIAL, end.serial.to_le_bytes());
        set(block, ENDED, [1]);
        let block = Some(block).filter(|_| was_seen)?;
        let mut key = end.key;
        key.port = PortId(block.get(PORT..)?.first_chunk().copied().map_or(0, u16::from_le_bytes));
        let flow = FlowEnd { key, packets: long(block, 0), bytes: long(block, BYTES) };
        Some((flow, block.get(HEADER..HEADER + bytes)?))
    }
}

impl FlowStates for ConnectionStates {
    #[inline]
    fn block(&mut self, number: u32) -> Option<&mut [u8]> {
        let start = (number != 0).then(|| number as usize * self.stride)?;
        self.blocks.get_mut(start..start + self.stride)
    }
}

fn set<const N: usize>(block: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = block.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = value;
    }
}

fn has_ended(block: &[u8]) -> bool {
    block.get(ENDED).is_some_and(|ended| *ended != 0)
}

fn word(block: &[u8], at: usize) -> u32 {
    block.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_le_bytes)
}

fn long(block: &[u8], at: usize) -> u64 {
    block.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes)
}

/// Connection states of all instances of a worker, by the slots of the instances.
#[derive(Debug, Default)]
pub(crate) struct ConnectionStateTables {
    tables: Vec<Option<ConnectionStates>>,
    /// Empty states for instances that are yet to be added, or to replace others, by their slots.
    given: Vec<(u32, ConnectionStates)>,
    /// Whether an instance has begun or ceased to need connections on some paths since the last question.
    has_changed: bool,
}

impl ConnectionStateTables {
    /// Keeps states for an instance that is yet to come to a slot.
    pub fn give(&mut self, slot: u32, states: ConnectionStates) {
        self.given.push((slot, states));
    }

    /// Removes and returns the latest states of `bytes` bytes that are kept for an instance in a slot.
    pub fn take_given(&mut self, slot: u32, bytes: usize) -> Option<ConnectionStates> {
        let at = self.given.iter().rposition(|(of, states)| *of == slot && states.bytes == bytes)?;
        Some(self.given.remove(at).1)
    }

    /// Removes and returns all states of a slot: the states of its instance and of upgrades that wait.
    pub fn remove(&mut self, slot: u32) -> Vec<ConnectionStates> {
        let given = self.given.extract_if(.., |(of, _)| *of == slot);
        let mut removed: Vec<_> = given.map(|(_, states)| states).collect();
        removed.extend(self.put(slot, None));
        removed
    }

    /// Gives an instance the states of `bytes` bytes that are kept for it; none with `None`. Returns the states of the
    /// instance's predecessor in the slot.
    pub fn put(&mut self, slot: u32, bytes: Option<usize>) -> Option<ConnectionStates> {
        let given = bytes.and_then(|bytes| self.take_given(slot, bytes));
        let index = slot as usize;
        if index >= self.tables.len() {
            given.as_ref()?;
            self.tables.resize_with(index + 1, || None);
        }
        self.tables.get_mut(index).and_then(|table| std::mem::replace(table, given))
    }

    /// Notes that an instance has begun or ceased to need connections on some paths.
    pub fn note_change(&mut self, tracks: bool) {
        self.has_changed |= tracks;
    }

    /// Returns whether an instance has begun or ceased to need connections on some paths since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns the states of an instance; `None` if it keeps none.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut ConnectionStates> {
        self.tables.get_mut(slot as usize)?.as_mut()
    }

    /// Returns the slots of instances with states.
    pub fn slots(&self) -> std::ops::Range<u32> {
        0..self.tables.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(number: u32, serial: u32) -> PacketConnection {
        PacketConnection { number, serial, status: ConnectionStatus::New, is_reply: false, is_counted: false }
    }

    fn end(number: u32, serial: u32) -> ConnectionEnd {
        let any = [0, 0, 0, 0].into();
        ConnectionEnd { number, serial, key: FlowKey::v4(any, any, 6, (1, 2), PortId::NONE) }
    }

    #[test]
    fn state_lasts_as_long_as_its_connection() {
        let mut states = ConnectionStates::new(12, 4).unwrap();
        assert_eq!(states.enter(connection(4, 7), PortId(3), 60), 4);
        states.block(4).unwrap()[HEADER] = 9;
        let reply = PacketConnection { is_reply: true, ..connection(4, 7) };
        assert_eq!((states.enter(reply, PortId(5), 40), states.block(4).unwrap()[HEADER]), (4, 9));
        let (flow, state) = states.end(&end(4, 7)).unwrap();
        assert_eq!(
            (flow.key.port, flow.packets, flow.bytes, state[0], state.len()),
            (PortId(3), 2, 100, 9, 12)
        );
        // A later connection gets the number. A packet of the old one that has waited gets no state.
        assert_eq!((states.enter(connection(4, 8), PortId(3), 60), states.block(4).unwrap()[HEADER]), (4, 0));
        assert_eq!((states.enter(connection(4, 7), PortId(3), 60), states.resolve(connection(4, 7))), (0, 0));
        assert_eq!(states.resolve(connection(4, 8)), 4);
        assert!(states.end(&end(4, 7)).is_none());
    }

    #[test]
    fn packet_that_waits_beyond_the_end_of_its_connection_gets_no_state() {
        let mut states = ConnectionStates::new(8, 1).unwrap();
        // The instance has not seen the first connection.
        assert!(states.end(&end(1, 1)).is_none());
        assert_eq!((states.enter(connection(1, 1), PortId(1), 9), states.resolve(connection(1, 1))), (0, 0));
        assert_eq!(states.enter(connection(1, 2), PortId(1), 9), 1);
        assert!(states.end(&end(1, 2)).is_some());
        assert_eq!((states.enter(connection(1, 2), PortId(1), 9), states.resolve(connection(1, 2))), (0, 0));
        assert!(states.end(&end(1, 2)).is_none(), "the instance hears of an end once");
        // The block stays out of use for any time.
        assert_eq!(states.enter(connection(1, 3), PortId(1), 9), 1);
        assert_eq!(states.resolve(connection(1, 3)), 1);
    }

    #[test]
    fn connection_stays_the_same_while_its_packet_waits() {
        let known = [
            ConnectionStatus::Untracked,
            ConnectionStatus::New,
            ConnectionStatus::Established,
            ConnectionStatus::Related,
            ConnectionStatus::Invalid,
        ];
        let flags = [(false, false), (false, true), (true, false)];
        for (status, (is_reply, is_counted)) in
            known.into_iter().flat_map(|status| flags.map(|both| (status, both)))
        {
            let (number, serial) = (1 << 26, u32::MAX);
            let connection = PacketConnection { number, serial, status, is_reply, is_counted };
            assert_eq!(PackedConnection::of(connection).get(), connection);
        }
        assert_eq!(PackedConnection::default().get(), PacketConnection::default());
    }

    #[test]
    fn serial_numbers_wrap_around() {
        let mut states = ConnectionStates::new(8, 1).unwrap();
        assert_eq!(states.enter(connection(1, u32::MAX), PortId(1), 1), 1);
        assert_eq!(states.enter(connection(1, 2), PortId(1), 1), 1);
        assert_eq!(states.enter(connection(1, u32::MAX), PortId(1), 1), 0);
    }

    #[test]
    fn packets_without_a_connection_have_no_state() {
        let mut states = ConnectionStates::new(0, 1).unwrap();
        assert_eq!(
            (states.enter(connection(0, 0), PortId(1), 1), states.enter(connection(2, 1), PortId(1), 1)),
            (0, 0)
        );
        let mut tables = ConnectionStateTables::default();
        assert!(tables.put(3, Some(8)).is_none() && tables.get_mut(3).is_none(), "control has given none");
        let bytes = |states: Option<ConnectionStates>| states.map(|states| states.bytes());
        let states = |bytes| ConnectionStates::new(bytes, 2).unwrap();
        tables.give(3, states(8));
        assert!(tables.put(3, Some(8)).is_none() && tables.get_mut(3).is_some());
        // Each instance gets states of its size.
        [16, 32].into_iter().for_each(|size| tables.give(3, states(size)));
        assert_eq!((bytes(tables.put(3, Some(8))), tables.get_mut(3).is_some()), (Some(8), false));
        assert_eq!((bytes(tables.put(3, Some(32))), tables.get_mut(3).is_some()), (None, true));
        // Removed states are returned, so that they end elsewhere.
        tables.give(4, states(16));
        let removed: Vec<_> = tables.remove(3).into_iter().map(|states| states.bytes()).collect();
        assert_eq!((removed, bytes(tables.take_given(3, 16))), (vec![16, 32], None));
        assert_eq!(bytes(tables.take_given(4, 16)), Some(16));
    }
}
