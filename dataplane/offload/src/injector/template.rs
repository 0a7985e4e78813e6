//! Template of the traffic generator: a frame, and the offsets of its fields.

/// Length of `struct slot` of bpf/source.c: 32 bytes of offsets, then the frame.
pub(crate) const SLOT_BYTES: usize = 4096;
const HEAD_BYTES: usize = 32;

/// Offsets of a frame's fields, in bytes from the start of the frame; 0 if the frame has no such field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fields {
    /// Last 4 bytes of the source IP address.
    address: u16,
    /// Source port.
    port: u16,
    /// UDP payload, if it has 16 bytes or more.
    payload: u16,
    /// IPv4 header checksum.
    address_sum: u16,
    /// UDP or TCP checksum.
    port_sum: u16,
}

/// Returns whether an IPv4 frame has a whole header and is no fragment. Otherwise the bytes after the header
/// aren't the ports.
fn is_whole4(frame: &[u8]) -> bool {
    let half = |at: usize| {
        frame.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u16::from_be_bytes)
    };
    let words = half(14) >> 8 & 0x0f;
    words >= 5 && half(20) & 0x3fff == 0
}

impl Fields {
    /// Finds the fields of an untagged IPv4 or IPv6 frame without fragments and extension headers.
    pub(crate) fn of(frame: &[u8]) -> Self {
        let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
        let ethertype = u16::from(byte(12)) << 8 | u16::from(byte(13));
        match (ethertype, byte(14) >> 4) {
            (0x0800, 4) if frame.len() >= 34 && is_whole4(frame) => {
                let transport = 14 + 4 * u16::from(byte(14) & 0x0f);
                Self { address: 26, address_sum: 24, ..Self::default() }.with_transport(
                    frame,
                    byte(23),
                    transport,
                )
            }
            (0x86dd, 6) if frame.len() >= 54 => {
                Self { address: 34, ..Self::default() }.with_transport(frame, byte(20), 54)
            }
            _ => Self::default(),
        }
    }

    fn with_transport(self, frame: &[u8], protocol: u8, at: u16) -> Self {
        let room = frame.len().saturating_sub(usize::from(at));
        match protocol {
            17 if room >= 24 => Self { port: at, port_sum: at + 6, payload: at + 8, ..self },
            17 if room >= 8 => Self { port: at, port_sum: at + 6, ..self },
            6 if room >= 20 => Self { port: at, port_sum: at + 16, ..self },
            _ => self,
        }
    }

    /// Returns the bytes of a slot for a frame, with `zeros` bytes at the start of the UDP payload cleared.
    /// The UDP checksum stays correct.
    pub(crate) fn slot(self, frame: &[u8], zeros: usize) -> Vec<u8> {
        let mut slot = Vec::with_capacity(HEAD_BYTES + frame.len());
        slot.extend((frame.len() as u32).to_ne_bytes());
        for offset in [self.address, self.port, self.payload, self.address_sum, self.port_sum] {
            slot.extend(offset.to_ne_bytes());
        }
        slot.resize(HEAD_BYTES, 0);
        let mut frame = frame.to_vec();
        self.clear_payload(&mut frame, zeros);
        slot.extend(frame);
        slot
    }

    fn clear_payload(self, frame: &mut [u8], zeros: usize) {
        let (payload, sum) = (usize::from(self.payload), usize::from(self.port_sum));
        if payload == 0 || zeros == 0 {
            return;
        }
        let Some(cleared) = frame.get(payload..).and_then(|rest| rest.get(..zeros)) else { return };
        let removed = cleared.as_chunks().0.iter().map(|pair| u16::from_be_bytes(*pair));
        let Some(stored) = frame.get(sum..).and_then(|rest| rest.first_chunk()) else { return };
        let stored = u16::from_be_bytes(*stored);
        // RFC 1624 eqn. 3, with zero as the new value. A stored 0 means that UDP has no checksum.
        let mut total = u32::from(!stored) + removed.map(|word| u32::from(!word)).sum::<u32>();
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        let new = if stored == 0 { 0 } else { !(total as u16) };
        let new = if new == 0 && stored != 0 { 0xffff } else { new };
        if let Some(field) = frame.get_mut(sum..).and_then(|rest| rest.first_chunk_mut()) {
            *field = new.to_be_bytes();
        }
        frame.iter_mut().skip(payload).take(zeros).for_each(|byte| *byte = 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::{frame_to, ipv4_packet, ipv6_packet};

    #[test]
    fn fields_are_found_in_both_families_and_nowhere_else() {
        let v4 = frame_to([2; 6], 0x0800, &ipv4_packet("192.0.2.1", "198.51.100.1", 16));
        let expected = Fields { address: 26, address_sum: 24, port: 34, port_sum: 40, payload: 42 };
        assert_eq!(Fields::of(&v4), expected);
        let v6 = frame_to([2; 6], 0x86dd, &ipv6_packet("2001:db8::1", "2001:db8::2", 15));
        assert_eq!(
            Fields::of(&v6),
            Fields { address: 34, address_sum: 0, port: 54, port_sum: 60, payload: 0 }
        );
        assert_eq!(Fields::of(&frame_to([2; 6], 0x0806, &[0; 46])), Fields::default());
    }

    #[test]
    fn short_headers_and_fragments_have_no_fields() {
        let whole = frame_to([2; 6], 0x0800, &ipv4_packet("192.0.2.1", "198.51.100.1", 16));
        for (at, byte) in [(14, 0x40), (14, 0x44), (20, 0x20), (21, 0x01)] {
            let mut frame = whole.clone();
            frame[at] = byte;
            assert_eq!(Fields::of(&frame), Fields::default(), "byte {at} is {byte:#x}");
        }
    }

    /// Reads frames with long headers: bpf/source.c reaches offsets up to 255 bytes (`FARTHEST`), and would
    /// truncate a larger offset.
    #[test]
    fn fields_are_where_the_program_reaches() {
        for words in 5..=15_u8 {
            let mut frame = frame_to([2; 6], 0x0800, &ipv4_packet("192.0.2.1", "198.51.100.1", 200));
            frame[14] = 0x40 | words;
            let Fields { address, port, payload, address_sum, port_sum } = Fields::of(&frame);
            assert!(
                [address, port, payload, address_sum, port_sum].iter().all(|at| at + 16 <= 255),
                "{words}"
            );
        }
    }

    proptest! {
        #[test]
        fn slot_has_the_length_of_its_frame(
            mut frame in prop::collection::vec(any::<u8>(), 0..120), is_v6 in any::<bool>(), zeros in 0_usize..=16,
        ) {
            let start = if is_v6 { [0x86, 0xdd, 0x60] } else { [8, 0, 0x45] };
            frame.iter_mut().skip(12).zip(start).for_each(|(place, byte)| *place = byte);
            prop_assert_eq!(Fields::of(&frame).slot(&frame, zeros).len(), 32 + frame.len());
        }
    }

    #[test]
    fn clearing_the_payload_keeps_the_checksum_right() {
        let mut frame = frame_to([2; 6], 0x0800, &ipv4_packet("192.0.2.1", "198.51.100.1", 16));
        let fields = Fields::of(&frame);
        let zeroed = fields.slot(&frame, 0)[32..].to_vec();
        // In a one's complement sum, the checksum can make up for a value elsewhere, so it is reduced by the
        // added value.
        let sum = u16::from_be_bytes([frame[40], frame[41]]);
        frame[42..44].copy_from_slice(&0x1234_u16.to_be_bytes());
        let (without, borrow) = sum.overflowing_sub(0x1234);
        frame[40..42].copy_from_slice(&(without - u16::from(borrow)).to_be_bytes());
        assert_eq!(fields.slot(&frame, 16)[32..], zeroed);
    }
}
