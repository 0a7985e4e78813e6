//! Memory layout of a flow record: a near cache line, which each packet reads and writes, and two far halves
//! of a line.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use millrace_memory::zeroable;
use millrace_packet::{Family, FlowKey};
use millrace_units::{Instant, NextHopIndex, PathId, PortId};

/// Index of a record in its [`FlowTable`](crate::FlowTable).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowIndex(NonZeroU32);

impl FlowIndex {
    /// Returns the index of `slot`; `None` for slot 0, which holds no record.
    #[inline(always)]
    pub(in crate::flow_table) fn from_slot(slot: u32) -> Option<Self> {
        NonZeroU32::new(slot).map(Self)
    }

    /// Returns the slot of the record, 1 or more. Slots are dense, so a caller can keep an array with a value
    /// per record.
    #[inline(always)]
    pub fn slot(self) -> u32 {
        self.0.get()
    }
}

zeroable! {
    /// Answer: the pipeline's classification of a flow's first packet.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    #[repr(C)]
    pub struct FlowAnswer {
        /// Path of the flow: its bindings.
        pub path: PathId,
        /// Mask of the varying fields on which the answer depends, in the pipeline's packing.
        pub varying_mask: u32,
        /// Generation of the filter tables and routes that the answer was computed from.
        pub generation: u32,
        /// Number of the adjacency that the flow's packets use; 0 for none.
        pub adjacency: u32,
        /// Next hop of the flow's packets.
        pub next_hop: NextHopIndex,
        /// Values of the varying fields, under `varying_mask`.
        pub varying_value: u32,
    }
}

zeroable! {
    /// Part of a record that every packet of its flow reads and writes: one cache line.
    #[derive(Debug)]
    #[repr(C, align(64))]
    pub struct FlowRecord {
        pub(in crate::flow_table) key: NearKey,
        pub(in crate::flow_table) variant: u32,
        /// Answer that the pipeline stored last.
        pub answer: FlowAnswer,
        /// Tick of the last packet, shifted left by [`FLAG_BITS`]. The bits below are flags such as [`LIVE`].
        pub(in crate::flow_table) used: u32,
        /// Word in which the pipeline stores the flow state; 0 without flow state.
        pub(in crate::flow_table) state: u32,
        /// Lower half of the packet count.
        pub(in crate::flow_table) packets: u32,
        pub(in crate::flow_table) bytes: u64,
    }
}

impl FlowAnswer {
    /// Packs the varying mask (lower half) and the generation (upper half) into one word, so one comparison
    /// checks both.
    #[inline(always)]
    pub fn validity(&self) -> u64 {
        u64::from(self.varying_mask) | u64::from(self.generation) << 32
    }

    /// Packs the adjacency (lower half) and the next hop (upper half) into one word.
    #[inline(always)]
    pub fn way(&self) -> u64 {
        u64::from(self.adjacency) | u64::from(self.next_hop.0) << 32
    }
}

impl FlowRecord {
    /// Returns the number of this record's variant: 0 for the base record.
    #[inline]
    pub fn variant(&self) -> u32 {
        self.variant
    }

    /// Returns the flow's packet count modulo 2^32. [`FlowTable::packets`](crate::FlowTable::packets) returns
    /// the whole count.
    #[inline]
    pub fn packets_low(&self) -> u32 {
        self.packets
    }

    /// Returns the number of bytes of the flow's packets so far.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the flow has not sent its second packet yet. New flows displace such records first.
    #[inline]
    pub fn is_on_probation(&self) -> bool {
        self.has(PROBATION)
    }

    /// Whether the record belongs to a flow with a reservation. New flows never displace such a record.
    #[inline]
    pub fn is_reserved(&self) -> bool {
        self.has(RESERVED)
    }

    /// Returns the word in which the pipeline stores the flow state; 0 without flow state.
    #[inline]
    pub fn state(&self) -> u32 {
        self.state
    }

    /// Whether plugins keep state for this flow. New flows displace such a record only while it is on
    /// probation.
    #[inline]
    pub fn is_stateful(&self) -> bool {
        self.state != 0
    }

    /// Whether a new flow may displace this record.
    #[inline]
    pub(in crate::flow_table) fn may_go(&self) -> bool {
        self.used & (LIVE | RESERVED) == LIVE && (!self.is_stateful() || self.is_on_probation())
    }

    /// Whether lookups find the record. `false` once it has ended.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.has(LIVE)
    }

    /// Whether the record has this near key and variant.
    #[inline(always)]
    pub(in crate::flow_table) fn is_near(&self, key: NearKey, variant: u32) -> bool {
        self.key.is(key) & (self.variant == variant)
    }

    #[inline(always)]
    pub(in crate::flow_table) fn has(&self, flag: u32) -> bool {
        self.used & flag != 0
    }
}

zeroable! {
    /// Part of a record that is read for IPv6 packets, and when the record's entry moves to another bucket:
    /// half a cache line.
    #[derive(Debug)]
    #[repr(C, align(32))]
    pub(in crate::flow_table) struct FarRecord {
        pub key: FarKey,
        /// Hash of flow and variant, under which the buckets hold the record.
        pub hash: u64,
    }
}

zeroable! {
    /// Part of a record that is used only for the record's creation and end: half a cache line.
    #[derive(Debug)]
    #[repr(C, align(32))]
    pub(in crate::flow_table) struct Upkeep {
        /// Time of the record's creation, in nanoseconds.
        pub created: u64,
        /// Slot before the record in its list; 0 for the first.
        pub previous: u32,
        /// Slot after the record in its list; 0 for the last.
        pub next: u32,
        /// Upper half of the packet count.
        pub packets_high: u32,
        /// Code of the [`RemovalReason`](crate::RemovalReason).
        pub reason: u8,
    }
}

zeroable! {
    /// Whole IPv4 key: addresses, ports, protocol, family and ingress port. For IPv6, the same fields with
    /// only the first 32 bits of each address.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(C)]
    pub struct NearKey([u64; 2]);
}

zeroable! {
    /// Parts of an IPv6 key's addresses that the [`NearKey`] lacks.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(C)]
    pub(in crate::flow_table) struct FarKey([u64; 3]);
}

impl NearKey {
    /// Key that no flow has: its family is invalid. It also differs from the zeros of an unused slot.
    pub const NONE: Self = Self([u64::MAX; 2]);

    /// Returns the key of an IPv4 packet. `addresses` holds the source in the lower half, the destination in
    /// the upper half, each with its first byte lowest. `last` is the key's [last word](FlowKey::last_word).
    #[inline(always)]
    pub fn v4(addresses: u64, last: u64) -> Self {
        Self([addresses, last])
    }

    /// Returns the flow key of an IPv4 packet; `None` for another family.
    #[inline]
    pub fn key4(self) -> Option<FlowKey> {
        let [addresses, last] = self.0;
        self.is_v4().then(|| FlowKey::v4_of_words(addresses, last))
    }

    /// Whether this is the key of an IPv4 packet; it is then a whole key.
    #[inline(always)]
    pub fn is_v4(self) -> bool {
        self.0[1] >> 40 & 0xff == Family::V4 as u64
    }

    /// Returns source and destination of an IPv4 packet.
    #[inline(always)]
    pub fn addresses4(self) -> (Ipv4Addr, Ipv4Addr) {
        let address = |word: u64| (word as u32).to_le_bytes().into();
        (address(self.0[0]), address(self.0[0] >> 32))
    }

    /// Returns the near part of a key.
    #[inline(always)]
    pub fn of(key: &FlowKey) -> Self {
        let addresses = [key.source_bytes(), key.destination_bytes()].map(|bytes| u64::from(word(bytes, 0)));
        Self([addresses[0] | addresses[1] << 32, key.last_word()])
    }

    /// Whether both keys are equal. Compares words in registers; a comparison in memory would first have to
    /// store the keys there.
    #[inline(always)]
    pub(in crate::flow_table) fn is(self, other: Self) -> bool {
        (self.0[0] ^ other.0[0]) | (self.0[1] ^ other.0[1]) == 0
    }

    /// Returns the whole flow key. `far` is used only for IPv6.
    #[inline]
    pub(in crate::flow_table) fn whole(self, far: FarKey) -> FlowKey {
        let [addresses, last] = self.0;
        let (source, destination) = (addresses as u32, (addresses >> 32) as u32);
        let ports = (last as u16, (last >> 16) as u16);
        let (protocol, port) = ((last >> 32) as u8, PortId((last >> 48) as u16));
        if last >> 40 & 0xff == Family::V4 as u64 {
            let address = |word: u32| Ipv4Addr::from(word.to_le_bytes());
            return FlowKey::v4(address(source), address(destination), protocol, ports, port);
        }
        let address = |first: u32, middle: u64, last: u32| {
            let number = u128::from(first) | u128::from(middle) << 32 | u128::from(last) << 96;
            Ipv6Addr::from(number.to_le_bytes())
        };
        let [one, other, ends] = far.0;
        let (source, destination) =
            (address(source, one, ends as u32), address(destination, other, (ends >> 32) as u32));
        FlowKey::v6(source, destination, protocol, ports, port)
    }
}

impl FarKey {
    #[inline(always)]
    pub fn of(key: &FlowKey) -> Self {
        let (source, destination) = (key.source_bytes(), key.destination_bytes());
        let middle = |bytes: &[u8; 16]| u64::from(word(bytes, 4)) | u64::from(word(bytes, 8)) << 32;
        let ends = u64::from(word(source, 12)) | u64::from(word(destination, 12)) << 32;
        Self([middle(source), middle(destination), ends])
    }

    /// Whether this is the far part of `key`. Compares word by word. Otherwise the far part of `key` would be
    /// stored in memory first, and the processor would wait for the stores.
    #[inline(always)]
    pub fn is_of(&self, key: &FlowKey) -> bool {
        let Self([a, b, c]) = Self::of(key);
        (self.0[0] ^ a) | (self.0[1] ^ b) | (self.0[2] ^ c) == 0
    }
}

#[inline(always)]
fn word(bytes: &[u8; 16], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// Number of flag bits in [`FlowRecord::used`], below the time.
pub(in crate::flow_table) const FLAG_BITS: u32 = 4;
/// Mask of all flags.
pub(in crate::flow_table) const FLAGS: u32 = (1 << FLAG_BITS) - 1;
/// Flag: the record is live, so lookups find it.
pub(in crate::flow_table) const LIVE: u32 = 1;
/// Flag: the flow has sent no second packet yet. The record is in the list of records on probation.
pub(in crate::flow_table) const PROBATION: u32 = 2;
/// Flag: the record belongs to a flow with a reservation.
pub(in crate::flow_table) const RESERVED: u32 = 4;

/// Binary logarithm of the nanoseconds in a tick (16.8 ms), the unit of coarse time.
const TICK_SHIFT: u32 = 24;
const TICK_BITS: u32 = 32 - FLAG_BITS;
/// Half the range of ticks: 26 days. A longer idle time would be ambiguous, because ticks wrap.
const LONGEST: u64 = 1 << (TICK_BITS - 1);

/// Returns the tick of the time `now`.
#[inline(always)]
pub(in crate::flow_table) fn tick(now: Instant) -> u32 {
    (now.as_nanos() >> TICK_SHIFT) as u32 & (u32::MAX >> FLAG_BITS)
}

/// Returns the number of ticks from the last packet to `now`; 0 for a packet later than `now`. `used` has the
/// format of [`FlowRecord::used`].
#[inline(always)]
pub(in crate::flow_table) fn ticks_since(now: Instant, used: u32) -> u32 {
    let age = tick(now).wrapping_sub(used >> FLAG_BITS) << FLAG_BITS;
    if age >> 31 == 1 { 0 } else { age >> FLAG_BITS }
}

/// Returns a number of ticks for `time`. If [`ticks_since`] returns more than this number, `time` has
/// certainly passed.
pub(in crate::flow_table) fn ticks(time: Duration) -> u32 {
    let ticks = (time.as_nanos() >> TICK_SHIFT).saturating_add(1);
    ticks.min(u128::from(LONGEST - 2)) as u32
}

/// Returns the time of the last packet with a resolution of one tick. It may be a little later than `now`.
pub(in crate::flow_table) fn last_used(now: Instant, used: u32) -> Instant {
    let ago = i64::from((tick(now).wrapping_sub(used >> FLAG_BITS) << FLAG_BITS).cast_signed() >> FLAG_BITS);
    let tick = (now.as_nanos() >> TICK_SHIFT).saturating_add_signed(-ago);
    Instant::from_nanos(tick << TICK_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_a_cache_line_and_two_halves() {
        assert_eq!((size_of::<FlowRecord>(), size_of::<FarRecord>(), size_of::<Upkeep>()), (64, 32, 32));
        assert_eq!(size_of::<Option<FlowIndex>>(), 4);
    }

    #[test]
    fn key_is_restored_from_its_parts() {
        let four = FlowKey::v4([1, 2, 3, 4].into(), [5, 6, 7, 8].into(), 17, (9, 10), PortId(11));
        let six = FlowKey::v6(
            "2001:db8:1:2:3:4:5:6".parse().unwrap(),
            "fd00:9:8:7:6:5:4:3".parse().unwrap(),
            6,
            (65_535, 1),
            PortId::NONE,
        );
        for key in [four, six] {
            assert_eq!(NearKey::of(&key).whole(FarKey::of(&key)), key);
        }
    }

    #[test]
    fn coarse_time_continues_after_a_tick_wrap() {
        let wrap = Instant::from_nanos(1 << (TICK_SHIFT + TICK_BITS));
        let second = Duration::from_secs(1);
        let before = Instant::from_nanos(wrap.as_nanos() - second.as_nanos() as u64);
        let (used, after) = (tick(before) << FLAG_BITS | LIVE, wrap + second);
        assert!(ticks_since(after, used) > ticks(Duration::from_millis(1950)));
        assert!(ticks_since(after, used) <= ticks(second * 2));
        assert!(after.since(last_used(after, used)) <= second * 2 + Duration::from_millis(17));
        let later = tick(after) << FLAG_BITS;
        assert_eq!(ticks_since(before, later), 0, "a packet after now");
        assert!(after.since(last_used(before, later)) < Duration::from_millis(17));
    }

    #[test]
    fn elapsed_time_follows_its_ticks() {
        for start in [0, 1, 5_000_000, 16_777_215, 16_777_216, 1_000_000_007] {
            for time in [0, 1, 16_777_215, 16_777_216, 30_000_000, 1_000_000_000] {
                let (from, wait) = (Instant::from_nanos(start), Duration::from_nanos(time));
                let used = tick(from) << FLAG_BITS;
                let early = from + wait.saturating_sub(Duration::from_nanos(1));
                assert!(ticks_since(early, used) <= ticks(wait), "{start} {time}");
                let late = from + wait + Duration::from_nanos(2 << TICK_SHIFT);
                assert!(ticks_since(late, used) > ticks(wait), "{start} {time}");
            }
        }
    }
}
