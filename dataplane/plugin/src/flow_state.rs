//! Flow state: bytes that instances keep for each flow. A flow with state has one block, with a part for each
//! instance.
//!
//! Blocks of one size class share chunks of memory. A new flow reuses the block of an ended flow if one is
//! free. The memory is bounded: if no block is free at the limit, the flow has no state.

use millrace_plugin_abi::FlowStates;

/// Bytes of a block in the smallest size class. The blocks of each further class are twice as large as those
/// of the class before.
const LEAST: usize = 16;
/// Number of size classes; the largest blocks have 16 KiB.
const CLASSES: usize = 11;
/// Maximum bytes of a block.
pub(crate) const MOST_BLOCK: usize = LEAST << (CLASSES - 1);
/// Bytes of a chunk.
const CHUNK: usize = 64 << 10;
/// Maximum bytes of all chunks.
const MOST_MEMORY: usize = 256 << 20;
/// Number of low bits in a block number that hold the block's index in its size class.
const INDEX_BITS: u32 = 28;

/// Reference to a block that becomes invalid when the block is released, even if another flow gets the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateRef {
    number: u32,
    serial: u32,
}

/// Memory that the flow state of a worker uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowStateCounts {
    /// Number of flows that have a block.
    pub flows: u32,
    /// Bytes of memory, for blocks in use and free blocks together.
    pub bytes: usize,
    /// Number of flows that got no block since the worker's start.
    pub refused: u64,
}

/// All state blocks of a worker.
#[derive(Debug, Default)]
pub struct FlowStateBlocks {
    classes: [Class; CLASSES],
    /// Bytes of all chunks.
    memory: usize,
    /// Serial number of the block allocated last.
    serial: u32,
    in_use: u32,
    /// Number of flows that got no block since the worker's start.
    refused: u64,
    /// Whether any instance has ever kept flow state.
    is_used: bool,
}

/// Blocks of one size class.
#[derive(Debug, Default)]
struct Class {
    chunks: Vec<Box<[u8]>>,
    /// Serial number that each block got at its allocation; 0 if the block is free.
    serials: Vec<u32>,
    free: Vec<u32>,
}

fn class_of(bytes: usize) -> usize {
    bytes.div_ceil(LEAST).next_power_of_two().trailing_zeros() as usize
}

fn split(number: u32) -> Option<(usize, usize)> {
    let class = (number >> INDEX_BITS).checked_sub(1)? as usize;
    Some((class, (number & ((1 << INDEX_BITS) - 1)) as usize))
}

impl FlowStateBlocks {
    /// Records that an instance keeps `bytes` bytes of state for each flow.
    pub(crate) fn expect(&mut self, bytes: usize) {
        self.is_used |= bytes > 0;
    }

    /// Whether any instance keeps flow state, or has kept it.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Allocates a zeroed block of at least `bytes` bytes, and returns its number. Returns 0 if the memory
    /// limit is reached, or if `bytes` exceeds [`MOST_BLOCK`].
    pub(crate) fn take(&mut self, bytes: usize) -> u32 {
        let class = class_of(bytes);
        let index = self.free_block(class);
        let Some(index) = index else {
            self.refused += 1;
            return 0;
        };
        self.serial = self.serial.wrapping_add(1).max(1);
        if let Some(serial) = self.classes.get_mut(class).and_then(|all| all.serials.get_mut(index as usize))
        {
            *serial = self.serial;
        }
        self.in_use += 1;
        let number = (class as u32 + 1) << INDEX_BITS | index;
        if let Some(block) = self.block(number) {
            block.fill(0);
        }
        number
    }

    /// Counts a flow that gets no block for another reason than the memory of all blocks.
    pub(crate) fn refuse(&mut self) {
        self.refused += 1;
    }

    fn free_block(&mut self, class: usize) -> Option<u32> {
        let class_of_size = self.classes.get_mut(class)?;
        if let Some(index) = class_of_size.free.pop() {
            return Some(index);
        }
        if self.memory + CHUNK > MOST_MEMORY {
            return None;
        }
        self.memory += CHUNK;
        class_of_size.chunks.push(vec![0; CHUNK].into_boxed_slice());
        let (first, count) = (class_of_size.serials.len() as u32, (CHUNK / (LEAST << class)) as u32);
        class_of_size.serials.resize((first + count) as usize, 0);
        class_of_size.free.extend((first + 1..first + count).rev());
        Some(first)
    }

    /// Releases a block; does nothing if the block is already free.
    pub(crate) fn give_back(&mut self, number: u32) {
        let Some((class, index)) = split(number) else { return };
        let Some(class) = self.classes.get_mut(class) else { return };
        if let Some(serial) = class.serials.get_mut(index).filter(|serial| **serial != 0) {
            *serial = 0;
            class.free.push(index as u32);
            self.in_use -= 1;
        }
    }

    /// Returns a reference that stays valid until the block is released.
    pub fn reference(&self, number: u32) -> StateRef {
        StateRef { number, serial: self.serial_of(number) }
    }

    /// Returns the number of the referenced block; 0 if the block was released.
    pub fn resolve(&self, reference: StateRef) -> u32 {
        let lives = reference.serial != 0 && self.serial_of(reference.number) == reference.serial;
        if lives { reference.number } else { 0 }
    }

    fn serial_of(&self, number: u32) -> u32 {
        let serial = split(number).and_then(|(class, index)| self.classes.get(class)?.serials.get(index));
        serial.copied().unwrap_or(0)
    }

    /// Copies `count` bytes from offset `from_offset` in block `from` to offset `to_offset` in block `to`.
    /// `from` and `to` may be the same block. Does nothing if a range is outside its block.
    pub(crate) fn copy(
        &mut self,
        (from, from_offset): (u32, usize),
        (to, to_offset): (u32, usize),
        count: usize,
    ) {
        let mut bytes = [0; CHUNK / 16];
        let Some(bytes) = bytes.get_mut(..count) else { return };
        let Some(source) = self.block(from).and_then(|block| block.get(from_offset..from_offset + count))
        else {
            return;
        };
        bytes.copy_from_slice(source);
        if let Some(target) = self.block(to).and_then(|block| block.get_mut(to_offset..to_offset + count)) {
            target.copy_from_slice(bytes);
        }
    }

    /// Returns the memory and blocks in use.
    pub fn counts(&self) -> FlowStateCounts {
        FlowStateCounts { flows: self.in_use, bytes: self.memory, refused: self.refused }
    }
}

impl FlowStates for FlowStateBlocks {
    #[inline]
    fn block(&mut self, number: u32) -> Option<&mut [u8]> {
        let (class, index) = split(number)?;
        let bytes = LEAST.checked_shl(class as u32)?;
        let blocks = CHUNK / bytes;
        let chunk = self.classes.get_mut(class)?.chunks.get_mut(index / blocks)?;
        let start = index % blocks * bytes;
        chunk.get_mut(start..start + bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reference_ends_with_its_block() {
        let mut blocks = FlowStateBlocks::default();
        let number = blocks.take(20);
        let reference = blocks.reference(number);
        assert_eq!(blocks.resolve(reference), number);
        blocks.give_back(number);
        blocks.give_back(number);
        assert_eq!(blocks.resolve(reference), 0);
        assert_eq!(blocks.take(20), number);
        assert_eq!(blocks.resolve(reference), 0);
        assert_eq!((blocks.resolve(StateRef::default()), blocks.reference(0)), (0, StateRef::default()));
    }

    #[test]
    fn memory_has_a_limit() {
        let mut blocks = FlowStateBlocks::default();
        assert_eq!(blocks.take(MOST_BLOCK + 1), 0);
        let most = MOST_MEMORY / MOST_BLOCK;
        let taken: Vec<u32> = (0..most).map(|_| blocks.take(MOST_BLOCK)).collect();
        assert!(taken.iter().all(|number| *number != 0));
        assert_eq!(blocks.take(MOST_BLOCK), 0);
        let counts = FlowStateCounts { flows: most as u32, bytes: MOST_MEMORY, refused: 2 };
        assert_eq!(blocks.counts(), counts);
        blocks.give_back(taken[0]);
        assert_eq!(blocks.take(MOST_BLOCK), taken[0]);
    }

    proptest! {
        /// Takes, writes and releases blocks; compares their contents with a map from block numbers to bytes.
        #[test]
        fn blocks_equal_a_map(steps in proptest::collection::vec((0..3u8, 1..3000usize, any::<u8>()), 1..200)) {
            let mut blocks = FlowStateBlocks::default();
            let mut oracle: HashMap<u32, Vec<u8>> = HashMap::new();
            for (what, size, byte) in steps {
                let one = oracle.keys().copied().min_by_key(|number| number.wrapping_mul(size as u32));
                match (what, one) {
                    (0, Some(number)) => {
                        blocks.give_back(number);
                        oracle.remove(&number);
                    }
                    (1, Some(number)) => {
                        let bytes = oracle.get_mut(&number).unwrap();
                        let at = size % bytes.len();
                        bytes[at] = byte;
                        blocks.block(number).unwrap()[at] = byte;
                    }
                    _ => {
                        let number = blocks.take(size);
                        prop_assert!(oracle.insert(number, vec![0; size]).is_none());
                    }
                }
                for (number, bytes) in &oracle {
                    prop_assert_eq!(&blocks.block(*number).unwrap()[..bytes.len()], &bytes[..]);
                }
                prop_assert_eq!(blocks.counts().flows as usize, oracle.len());
            }
        }

        /// Looks up a block by a random number, and releases it. Only numbers of existing blocks yield a
        /// block.
        #[test]
        fn any_number_is_looked_for(number: u32) {
            let mut blocks = FlowStateBlocks::default();
            blocks.take(100);
            let known = blocks.block(number).is_some();
            prop_assert!(!known || number >> INDEX_BITS == class_of(100) as u32 + 1);
            blocks.give_back(number);
        }
    }
}
