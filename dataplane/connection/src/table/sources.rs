//! Number of connections of each originator's address.

use millrace_memory::{MemoryError, zeroable};

use super::chains::{Chained, Chains};
use crate::hash::KeyHash;

zeroable! {
    /// Address with connections.
    #[derive(Debug)]
    pub(super) struct Source {
        address: [u8; 16],
        connections: u32,
        chain: u32,
    }
}

impl Chained for Source {
    fn next(&self) -> u32 {
        self.chain
    }

    fn set_next(&mut self, slot: u32) {
        self.chain = slot;
    }
}

/// Addresses with connections.
#[derive(Debug)]
pub(super) struct Sources {
    chains: Chains<Source>,
    /// Maximum number of connections of an address.
    most: u32,
}

impl Sources {
    /// Creates a table for `addresses` addresses, with at most `most` connections each.
    pub fn new(addresses: u32, most: u32) -> Result<Self, MemoryError> {
        // With a maximum of 0, an address would keep its slot without a connection.
        Ok(Self { chains: Chains::new("sources of connections", addresses)?, most: most.max(1) })
    }

    /// Returns the bytes that the table maps for each address.
    pub const fn bytes_per_source() -> usize {
        Chains::<Source>::bytes_per_slot()
    }

    /// Counts a new connection of an address, and returns the address's slot. Returns `None` if the address
    /// has its maximum, or if there are too many addresses.
    #[inline]
    pub fn add(&mut self, hash: &KeyHash, address: &[u8; 16]) -> Option<u32> {
        let hashed = hash.of_address(address);
        let found = self.chains.find(hashed, |source| source.address == *address);
        let slot = match found {
            Some(slot) => slot,
            None => {
                let slot = self.chains.insert(hashed)?;
                let source = &mut self.chains.slots[slot as usize];
                (source.address, source.connections) = (*address, 0);
                slot
            }
        };
        let source = &mut self.chains.slots[slot as usize];
        if source.connections >= self.most {
            return None;
        }
        source.connections += 1;
        Some(slot)
    }

    /// Counts the end of a connection of the address in a slot.
    #[inline]
    pub fn remove(&mut self, hash: &KeyHash, slot: u32) {
        let source = &mut self.chains.slots[slot as usize];
        source.connections = source.connections.saturating_sub(1);
        if source.connections == 0 {
            let hashed = hash.of_address(&source.address);
            self.chains.remove(hashed, slot);
        }
    }

    /// Returns the number of addresses with connections.
    pub fn len(&self) -> u32 {
        self.chains.len()
    }
}
