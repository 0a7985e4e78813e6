//! End of a capture after a given number of frames.

/// Type of a pcapng block with a frame (draft-ietf-opsawg-pcapng, 4.3).
const ENHANCED_PACKET: u32 = 6;

/// Number of frames until the end of a capture; `None` for no limit.
#[derive(Debug)]
pub(crate) struct FramesLeft(pub Option<u64>);

impl FramesLeft {
    /// Truncates `blocks`, which hold `frames` frames, after the last wanted frame. Returns whether the
    /// capture is complete.
    pub fn take(&mut self, blocks: &mut Vec<u8>, frames: u64) -> bool {
        let Some(left) = &mut self.0 else { return false };
        let is_last = frames >= *left;
        if is_last {
            blocks.truncate(bytes_of_first(*left, blocks));
        }
        *left = left.saturating_sub(frames);
        is_last
    }
}

/// Returns the length of `blocks` up to the end of the frame number `count`. With fewer frames, returns the
/// whole length. `blocks` are complete pcapng blocks in this machine's byte order.
fn bytes_of_first(count: u64, blocks: &[u8]) -> usize {
    let (mut at, mut left) = (0, count);
    while left > 0 {
        let (Some(kind), Some(length)) = (word(blocks, at), word(blocks, at + 4)) else {
            return blocks.len();
        };
        // A block has at least 12 bytes, so a wrong length can't stop the loop from advancing.
        at = at.saturating_add((length as usize).max(12));
        left -= u64::from(kind == ENHANCED_PACKET);
    }
    at.min(blocks.len())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, length: u32) -> Vec<u8> {
        let mut block = vec![0; length as usize];
        block[..4].copy_from_slice(&kind.to_ne_bytes());
        block[4..8].copy_from_slice(&length.to_ne_bytes());
        block
    }

    #[test]
    fn frames_are_counted_and_other_blocks_are_not() {
        let blocks = [block(0x0a0d_0d0a, 28), block(1, 20), block(6, 44), block(6, 40)].concat();
        assert_eq!(bytes_of_first(1, &blocks), 92);
        assert_eq!(bytes_of_first(2, &blocks), 132);
        assert_eq!(bytes_of_first(3, &blocks), 132);
        assert_eq!(bytes_of_first(1, &[]), 0);
    }

    #[test]
    fn a_capture_ends_with_the_last_frame_that_is_wanted() {
        let (header, frame) = (block(0x0a0d_0d0a, 28), block(6, 44));
        let mut left = FramesLeft(Some(3));
        let mut first = [header, frame.clone(), frame.clone()].concat();
        let whole = first.clone();
        assert!(!left.take(&mut first, 2));
        assert_eq!(first, whole);
        let mut second = [frame.clone(), frame.clone()].concat();
        assert!(left.take(&mut second, 2));
        assert_eq!(second, frame);
        assert!(!FramesLeft(None).take(&mut second, u64::MAX));
    }

    #[test]
    fn nonsense_ends() {
        assert_eq!(bytes_of_first(9, &[0; 30]), 30);
        assert_eq!(bytes_of_first(9, &[255; 30]), 30);
    }
}
