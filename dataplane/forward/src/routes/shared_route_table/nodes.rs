//! Nodes in the writer's view: allocation, creation and changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::FibFull;
use super::slots::{Entry, HEAD, LINE, Slots, entry, index};
use crate::routes::retired::{Epoch, Retired};

/// Number of lines of the largest node, which has 256 runs.
const MOST_LINES: usize = lines(256);

/// Returns the number of lines of a node with `runs` runs of octets.
const fn lines(runs: usize) -> usize {
    (2 * HEAD + runs).div_ceil(2 * LINE)
}

/// Mark and entry of each octet. Octets with the same prefix, or the same child node, have equal marks;
/// neighbouring octets with equal marks share a run.
pub(super) type Octets = [(u16, Entry); 256];

/// Nodes of a table, and the free lines between them. A line is 64 bytes.
#[derive(Debug)]
pub(super) struct Nodes {
    slots: Arc<Slots>,
    /// First line that was never used. Line 0 never belongs to a node.
    next: usize,
    /// Free blocks, by their number of lines: blocks of 1 line first.
    free: [Vec<u32>; MOST_LINES],
    retired: Retired<u32>,
}

/// Location of an entry, where it can be replaced.
#[derive(Debug)]
pub(super) enum Place<'a> {
    Root(&'a AtomicU32),
    /// Word of a node, and whether the entry is in its upper half.
    Node(&'a AtomicU64, bool),
}

impl Place<'_> {
    /// Stores `entry`. Readers that see it also see the node that it leads to.
    pub fn store(&self, entry: Entry) {
        match self {
            Self::Root(word) => word.store(entry.bits(), Ordering::Release),
            Self::Node(word, upper) => {
                let shift = if *upper { 32 } else { 0 };
                let rest = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
                word.store(rest | u64::from(entry.bits()) << shift, Ordering::Release);
            }
        }
    }
}

impl Nodes {
    pub fn new(slots: Arc<Slots>) -> Self {
        Self { slots, next: 1, free: Default::default(), retired: Retired::default() }
    }

    fn words(&self, node: Entry) -> &[AtomicU64] {
        &self.slots.words[node.line() * LINE..]
    }

    /// Returns the entry of an octet in a node.
    pub fn entry(&self, node: Entry, octet: u8) -> Entry {
        let words = self.words(node);
        entry(words, index(words, octet).0)
    }

    /// Returns the location of the entry that an octet's run shares.
    pub fn place(&self, node: Entry, octet: u8) -> Place<'_> {
        let words = self.words(node);
        let (index, _) = index(words, octet);
        Place::Node(&words[HEAD + index / 2], index % 2 == 1)
    }

    /// Returns whether a run of a node begins at an octet.
    pub fn begins(&self, node: Entry, octet: u8) -> bool {
        self.words(node)[usize::from(octet >> 6)].load(Ordering::Relaxed) >> (octet & 63) & 1 != 0
    }

    /// Returns the default of a node, for octets without their own entry.
    pub fn default(&self, node: Entry) -> Entry {
        Entry::from_bits((self.words(node)[4].load(Ordering::Relaxed) >> 32) as u32)
    }

    pub fn set_default(&self, node: Entry, default: Entry) {
        Place::Node(&self.words(node)[4], true).store(default);
    }

    /// Builds a node that no entry leads to yet.
    pub fn add(&mut self, octets: &Octets, default: Entry) -> Result<Entry, FibFull> {
        let mut begins = [0u64; 4];
        let (mut counts, mut entries, mut runs) = (0u64, [Entry::NONE; 256], 0);
        for (octet, &(mark, entry)) in octets.iter().enumerate() {
            if octet % 64 == 0 {
                counts |= (runs as u64) << (octet / 8);
            }
            if octet == 0 || octets[octet - 1].0 != mark {
                begins[octet / 64] |= 1 << (octet % 64);
                entries[runs] = entry;
                runs += 1;
            }
        }
        let line = self.take(lines(runs))?;
        let words = &self.slots.words[line as usize * LINE..];
        // Relaxed: no reader sees the node before the store of an entry that leads to it.
        for (word, begins) in words.iter().zip(begins) {
            word.store(begins, Ordering::Relaxed);
        }
        words[4].store(counts | u64::from(default.bits()) << 32, Ordering::Relaxed);
        for (word, pair) in words[HEAD..].iter().zip(entries[..runs.next_multiple_of(2)].chunks(2)) {
            word.store(u64::from(pair[0].bits()) | u64::from(pair[1].bits()) << 32, Ordering::Relaxed);
        }
        Ok(Entry::node(line))
    }

    fn take(&mut self, lines: usize) -> Result<u32, FibFull> {
        if let Some(line) = self.free[lines - 1].pop() {
            return Ok(line);
        }
        if self.next + lines <= self.slots.lines() {
            let line = self.next as u32;
            self.next += lines;
            return Ok(line);
        }
        // Splits a larger block: its rest is free for smaller nodes.
        let larger = (lines..MOST_LINES).find(|larger| !self.free[*larger].is_empty()).ok_or(FibFull)?;
        let line = self.free[larger].pop().ok_or(FibFull)?;
        self.free[larger - lines].push(line + lines as u32);
        Ok(line)
    }

    /// Returns the number of lines of a node.
    fn lines_of(&self, node: Entry) -> usize {
        let (last, _) = index(self.words(node), 255);
        lines(last + 1)
    }

    /// Retires a node that no entry leads to any more; readers may still use it.
    pub fn retire(&mut self, node: Entry) {
        if self.has_readers() {
            self.retired.push(node.line() as u32);
        } else {
            self.discard(node);
        }
    }

    /// Returns whether any reader of the table exists. Readers come from the writer or from other readers. So
    /// if there is none, none can appear during the call.
    fn has_readers(&self) -> bool {
        // The table and this struct hold one reference each.
        let others = Arc::strong_count(&self.slots) > 2;
        // Orders the accesses of a dropped reader before the accesses that follow here.
        fence(Ordering::Acquire);
        others
    }

    /// Frees a node at once. No reader may be able to use it.
    pub fn discard(&mut self, node: Entry) {
        let lines = self.lines_of(node);
        self.free[lines - 1].push(node.line() as u32);
    }

    pub fn close_epoch(&mut self) -> Epoch {
        self.retired.close()
    }

    pub fn quiesced(&mut self, epoch: Epoch) {
        while let Some((_, line)) = self.retired.pop_upto(epoch) {
            let lines = self.lines_of(Entry::node(line));
            self.free[lines - 1].push(line);
        }
    }

    /// Returns the number of retired nodes.
    pub fn waiting(&self) -> usize {
        self.retired.len()
    }

    /// Returns the number of lines in use or retired.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        let free = self.free.iter().zip(1..).map(|(places, lines)| places.len() * lines);
        self.next - 1 - free.sum::<usize>()
    }

    /// Returns the memory that nodes take or took, in bytes.
    pub fn memory(&self) -> usize {
        self.next * LINE * size_of::<u64>()
    }
}
