//! Plain frames of one family without a tag, eight abreast: what is asked of them is asked of all by the same instructions, which the
//! compiler makes those of vectors. Where one of the eight is anything else, nothing is said and noted of any; they are read one by
//! one then.

use millrace_classify::{FlowTable, NearKey};
use millrace_packet::{FlowKey, Packet};

use super::{ADDRESS, Arrival, HEADER6, IPV4, IPV6, LINK, Place, SHORTEST, TCP, UDP, half, word};

/// The shortest plain frame of IPv6 without a tag.
const SHORTEST6: usize = LINK + HEADER6;

/// Frames that are read together.
pub(super) const ABREAST: usize = 8;

/// One word of each.
type Lanes = [u64; ABREAST];

/// The words in which all stands that is looked at, as they come: the first byte lowest.
#[derive(Default)]
struct Starts {
    /// The destination, and two bytes.
    destination: Lanes,
    /// The source, and the EtherType.
    source: Lanes,
    /// The first words of the network header.
    first: Lanes,
    second: Lanes,
    /// Behind these: of IPv4 the destination's address, and the ports.
    third: Lanes,
    /// Bytes of the frames.
    length: Lanes,
}

/// What is found in plain ones of IPv4.
#[derive(Default)]
struct Found {
    addresses: Lanes,
    /// The last word of keys, without what the port of arrival says.
    last: Lanes,
    /// Bytes of the network packets.
    total_len: Lanes,
}

impl Starts {
    /// Those of frames of `SHORTEST` bytes at least, each in one piece.
    #[inline(always)]
    fn of<const SHORTEST: usize>(packets: &[Packet; ABREAST]) -> Option<Self> {
        let mut starts = Self::default();
        for (lane, packet) in packets.iter().enumerate() {
            let data = packet.data();
            let start = data.first_chunk::<SHORTEST>().filter(|_| packet.is_linear())?;
            starts.destination[lane] = word(start, 0);
            starts.source[lane] = word(start, 6);
            starts.first[lane] = word(start, LINK);
            starts.second[lane] = word(start, LINK + 8);
            starts.third[lane] = word(start, LINK + 16);
            starts.length[lane] = data.len() as u64;
        }
        Some(starts)
    }

    /// Not 0 where the frame in a lane is not sent to the port, by somebody; or is not of this type; or its network packet, of so many
    /// bytes, does not fit into it, is too long for the port, or too short for its transport header behind `header` bytes.
    #[inline(always)]
    fn wrong(
        &self,
        lane: usize,
        arrival: &Arrival,
        what: u16,
        total_len: u64,
        (header, protocol): (u64, u64),
    ) -> u64 {
        let (source, room) = (self.source[lane], self.length[lane].wrapping_sub(LINK as u64));
        let least = match protocol {
            protocol if protocol == u64::from(UDP) => header + 8,
            protocol if protocol == u64::from(TCP) => header + 20,
            _ => u64::MAX,
        };
        (self.destination[lane] & ADDRESS ^ arrival.mac)
            | source & 1
            | u64::from(source & ADDRESS == 0)
            | (source >> 48 ^ u64::from(what))
            | u64::from(total_len > room)
            | u64::from(room > arrival.mtu as u64)
            | u64::from(total_len < least)
    }

    /// The bytes of the network packets, if all are plain ones of IPv6: what [`Arrival::v6`] asks of one.
    #[inline(always)]
    fn found6(&self, arrival: &Arrival) -> Option<Lanes> {
        let (mut found, mut wrong) = (Lanes::default(), 0);
        for (lane, found) in found.iter_mut().enumerate() {
            let first = self.first[lane];
            let total_len = 40 + swapped(first >> 32);
            wrong |= self.wrong(lane, arrival, IPV6, total_len, (40, first >> 48 & 0xff))
                | (first & 0xf0 ^ 0x60)
                | u64::from(first >> 57 == 0);
            *found = total_len;
        }
        (wrong == 0).then_some(found)
    }

    /// What is found, if all are plain ones of IPv4: what [`Arrival::v4`] asks of one.
    #[inline(always)]
    fn found4(&self, arrival: &Arrival) -> Option<Found> {
        let (mut found, mut wrong) = (Found::default(), 0);
        for lane in 0..ABREAST {
            let (first, second, third) = (self.first[lane], self.second[lane], self.third[lane]);
            let (total_len, protocol) = (swapped(first >> 16), second >> 8 & 0xff);
            wrong |= self.wrong(lane, arrival, IPV4, total_len, (20, protocol))
                | (first & 0xff3f_0000_0000_00ff ^ 0x45)
                | u64::from(second & 0xfe == 0)
                | (header_sum(first, second, third) ^ 0xffff);
            found.addresses[lane] = second >> 32 | third << 32;
            found.last[lane] = swapped(third >> 32) | swapped(third >> 48) << 16 | protocol << 32;
            found.total_len[lane] = total_len;
        }
        (wrong == 0).then_some(found)
    }
}

/// The lowest two bytes the other way round.
#[inline(always)]
fn swapped(bytes: u64) -> u64 {
    bytes >> 8 & 0xff | (bytes & 0xff) << 8
}

/// The one's complement sum of an IPv4 header without options: 0xffff where its checksum is right.
#[inline(always)]
fn header_sum(first: u64, second: u64, third: u64) -> u64 {
    let low = |word: u64| word & 0xffff_ffff;
    let sum = low(first) + (first >> 32) + low(second) + (second >> 32) + low(third);
    // Below 2^35, 2^33, 2^18 and then 0x1_0001.
    let sum = low(sum) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// The notes on eight packets.
pub(super) type Places<'a> = (&'a mut [NearKey; ABREAST], &'a mut [FlowKey; ABREAST], &'a mut [u64; ABREAST]);

impl Arrival {
    /// Reads frames if all are plain ones of one family without a tag; their bytes, then.
    #[inline(always)]
    pub(super) fn read_abreast<const FETCH: bool>(
        &self,
        packets: &mut [Packet; ABREAST],
        places: Places<'_>,
        flows: &FlowTable,
    ) -> Option<u64> {
        // The first tells what most of the others are.
        let first = packets[0].data().first_chunk::<SHORTEST>()?;
        match half(first, 12) {
            IPV4 => self.read_abreast4::<FETCH>(packets, places, flows),
            IPV6 => self.read_abreast6::<FETCH>(packets, places, flows),
            _ => None,
        }
    }

    #[inline(always)]
    fn read_abreast4<const FETCH: bool>(
        &self,
        packets: &mut [Packet; ABREAST],
        (nears, keys, hashes): Places<'_>,
        flows: &FlowTable,
    ) -> Option<u64> {
        let starts = Starts::of::<SHORTEST>(packets)?;
        let found = starts.found4(self)?;
        for lane in 0..ABREAST {
            let place: Place<'_> = (&mut nears[lane], &mut keys[lane], &mut hashes[lane]);
            let (addresses, last) = (found.addresses[lane], found.last[lane]);
            let of_flow = self.note_key4::<FETCH>(place, addresses, last, flows);
            self.note::<LINK>(&mut packets[lane], 20, found.total_len[lane] as usize, of_flow);
        }
        Some(starts.length.iter().sum())
    }

    #[inline(always)]
    fn read_abreast6<const FETCH: bool>(
        &self,
        packets: &mut [Packet; ABREAST],
        (nears, keys, hashes): Places<'_>,
        flows: &FlowTable,
    ) -> Option<u64> {
        let starts = Starts::of::<SHORTEST6>(packets)?;
        let found = starts.found6(self)?;
        for lane in 0..ABREAST {
            let packet = &mut packets[lane];
            // All are so long.
            let Some(start) = packet.data().first_chunk::<SHORTEST6>() else { continue };
            let Some(header) = start[LINK..].first_chunk::<HEADER6>() else { continue };
            let place: Place<'_> = (&mut nears[lane], &mut keys[lane], &mut hashes[lane]);
            let of_flow = self.note_key6::<FETCH>(place, header, flows);
            self.note::<LINK>(packet, 40, found[lane] as usize, of_flow);
        }
        Some(starts.length.iter().sum())
    }
}
