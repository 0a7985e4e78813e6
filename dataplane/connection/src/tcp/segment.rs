//! The fields of a TCP segment that change the state of its connection.

use millrace_wire::tcp::{self, Flags};

/// Option kinds (RFC 9293, 3.2; RFC 7323, 2.2).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const WINDOW_SCALE: u8 = 3;
/// Largest window scale; a larger one counts as this one (RFC 7323, 2.3).
const LARGEST_SCALE: u8 = 14;

/// Segment of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Sequence number of the first octet, or of SYN.
    pub sequence: u32,
    /// Acknowledgment number, valid with the flag ACK.
    pub acknowledgment: u32,
    /// Window, not scaled.
    pub window: u16,
    /// Control bits.
    pub flags: Flags,
    /// Length of the payload in octets; of a fragment, its own.
    pub payload: u32,
    /// Window scale that a SYN offers.
    pub scale: Option<u8>,
    /// Whether the segment is fragmented, so that its end is unknown.
    pub is_fragment: bool,
}

impl Segment {
    /// Reads a whole segment. `header` begins with its header; `length` is the length of the segment in octets.
    ///
    /// Returns `None` if the header, options included, is incomplete, or if its flags contradict each other:
    /// SYN with FIN or RST, FIN with RST, or none of SYN, ACK and RST.
    pub fn read(header: &[u8], length: usize) -> Option<Self> {
        let packet = tcp::Packet::new_checked(header).ok()?;
        let flags = packet.flags();
        let payload = u32::try_from(length.checked_sub(packet.header_len())?).ok()?;
        if !is_consistent(flags) {
            return None;
        }
        let options = header.get(tcp::HEADER_LEN..packet.header_len())?;
        let [_, _, _, _, a, b, c, d, ..] = *header else { return None };
        Some(Self {
            sequence: u32::from_be_bytes([a, b, c, d]),
            acknowledgment: packet.acknowledgment(),
            window: packet.window(),
            flags,
            payload,
            scale: flags.contains(Flags::SYN).then(|| window_scale(options)).flatten(),
            is_fragment: false,
        })
    }

    /// Returns whether the segment has a flag.
    #[inline]
    pub fn has(&self, flag: Flags) -> bool {
        self.flags.contains(flag)
    }

    /// Returns the sequence number after the segment. SYN and FIN count as an octet each.
    #[inline]
    pub fn end(&self) -> u32 {
        let flags = u32::from(self.has(Flags::SYN)) + u32::from(self.has(Flags::FIN));
        self.sequence.wrapping_add(self.payload).wrapping_add(flags)
    }
}

fn is_consistent(flags: Flags) -> bool {
    let [syn, fin, rst, ack] =
        [Flags::SYN, Flags::FIN, Flags::RST, Flags::ACK].map(|flag| flags.contains(flag));
    let one_at_most = u8::from(syn) + u8::from(fin) + u8::from(rst) <= 1;
    one_at_most && (syn || rst || ack)
}

/// Returns the window scale among the options of a SYN; `None` without one, or if an option before it has a
/// wrong length.
fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        match *options {
            [] | [END_OF_OPTIONS, ..] => return None,
            [NO_OPERATION, ref rest @ ..] => options = rest,
            [WINDOW_SCALE, 3, scale, ..] => return Some(scale.min(LARGEST_SCALE)),
            [_, length, ..] if length >= 2 => options = options.get(usize::from(length)..)?,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(flags: u8, options: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 20];
        header[4..8].copy_from_slice(&7u32.to_be_bytes());
        header[8..12].copy_from_slice(&9u32.to_be_bytes());
        header[12] = (((20 + options.len()) / 4) << 4) as u8;
        header[13] = flags;
        header[14..16].copy_from_slice(&512u16.to_be_bytes());
        header.extend_from_slice(options);
        header
    }

    #[test]
    fn fields_and_options_are_read() {
        let syn = Segment::read(&header(2, &[2, 4, 5, 180, 1, 3, 3, 7]), 28).unwrap();
        assert_eq!((syn.sequence, syn.end(), syn.scale), (7, 8, Some(7)));
        let data = Segment::read(&header(0x11, &[]), 120).unwrap();
        assert_eq!((data.acknowledgment, data.window, data.payload, data.end()), (9, 512, 100, 108));
    }

    #[test]
    fn scale_above_the_largest_counts_as_the_largest() {
        let scale = |options: &[u8]| Segment::read(&header(2, options), 20 + options.len()).unwrap().scale;
        assert_eq!(scale(&[3, 3, 200, 0]), Some(14));
        assert_eq!([scale(&[0, 3, 3, 7]), scale(&[8, 0, 3, 3, 7, 0, 0, 0]), scale(&[3, 2, 1, 1])], [None; 3]);
    }

    #[test]
    fn contradictory_flags_are_refused() {
        for (flags, whole) in [(0, false), (1, false), (2, true), (3, false), (4, true), (5, false)] {
            assert_eq!(Segment::read(&header(flags, &[]), 20).is_some(), whole, "{flags}");
        }
        for (flags, whole) in [(6, false), (0x10, true), (0x12, true), (0x14, true), (0x11, true)] {
            assert_eq!(Segment::read(&header(flags, &[]), 20).is_some(), whole, "{flags}");
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_panic(octets: Vec<u8>, length in 0..70_000usize) {
            let _ = Segment::read(&octets, length);
        }
    }
}
