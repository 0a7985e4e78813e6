//! eBPF variant of a plugin: a program that treats packets inside the XDP program, before a worker sees them,
//! as the instance at the worker would (`include/ebpf_variant.h` of the crate `bpf`).
//!
//! The variant counts in memory that the instance reads. [`VariantCounts`] holds the variant's counts for the
//! instance.

use std::fmt;
use std::sync::Arc;

/// eBPF variant of a plugin, as the plugin contains it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EbpfVariant {
    /// The object file (ELF), as clang makes it.
    pub object: &'static [u8],
    /// Number of settings words, `SETTINGS` in the variant's source.
    pub settings: usize,
    /// Number of counter words, `COUNTERS` in the variant's source.
    pub counters: usize,
}

/// Memory that an instance shares with its eBPF variant.
pub trait VariantMemory: fmt::Debug + Send + Sync {
    /// Returns the id of the memory, unique and not 0.
    fn id(&self) -> u64;

    /// Changes the settings of the variant. A packet sees either all old or all new settings.
    fn configure(&self, settings: &[u64]);

    /// Returns the value of the variant's counter word `word` since the variant was loaded. Values wrap.
    fn counted(&self, word: usize) -> u64;
}

/// Counts of an instance's eBPF variant, which the instance adds to its own counts. All counts are 0 without
/// a variant.
#[derive(Debug, Default)]
pub struct VariantCounts {
    memory: Option<Arc<dyn VariantMemory>>,
    /// Values of the counter words when the memory was attached or the count was reset.
    base: Vec<u64>,
    /// Sums of the counts from memories that were attached earlier.
    before: Vec<u64>,
    /// Id of the memory that `base` refers to; 0 before a memory is attached.
    id: u64,
}

impl VariantCounts {
    /// Creates counts of 0 for `words` counter words.
    pub fn new(words: usize) -> Self {
        Self { memory: None, base: vec![0; words], before: vec![0; words], id: 0 }
    }

    /// Attaches the memory of a variant and sets the variant's settings. Earlier counts are kept.
    pub fn attach(&mut self, memory: Arc<dyn VariantMemory>, settings: &[u64]) {
        memory.configure(settings);
        if memory.id() != self.id {
            self.before = self.all();
            self.base = (0..self.base.len()).map(|word| memory.counted(word)).collect();
            self.id = memory.id();
        }
        self.memory = Some(memory);
    }

    /// Changes the settings of the variant, if there is one.
    pub fn configure(&self, settings: &[u64]) {
        if let Some(memory) = &self.memory {
            memory.configure(settings);
        }
    }

    /// Returns the count of a counter word.
    pub fn counted(&self, word: usize) -> u64 {
        let (Some(base), Some(before)) = (self.base.get(word), self.before.get(word)) else { return 0 };
        let now = self.memory.as_ref().map_or(*base, |memory| memory.counted(word));
        before.wrapping_add(now.wrapping_sub(*base))
    }

    /// Returns the counts of all counter words.
    pub fn all(&self) -> Vec<u64> {
        (0..self.base.len()).map(|word| self.counted(word)).collect()
    }

    /// Sets the count of a counter word to 0.
    pub fn reset(&mut self, word: usize) {
        let Some(memory) = &self.memory else { return self.before[word] = 0 };
        (self.base[word], self.before[word]) = (memory.counted(word), 0);
    }

    /// Sets the counts of all counter words to 0.
    pub fn reset_all(&mut self) {
        (0..self.base.len()).for_each(|word| self.reset(word));
    }

    /// Saves the counts for a successor, which may get the same memory or another one (see
    /// [`restore`](Self::restore)).
    pub fn save(&self) -> Vec<u64> {
        // The variant may count meanwhile, so each word is read only once for both parts.
        let now = match &self.memory {
            Some(memory) => (0..self.base.len()).map(|word| memory.counted(word)).collect(),
            None => self.base.clone(),
        };
        let so_far = now.iter().zip(&self.base).zip(&self.before);
        let counted = so_far.map(|((now, base), before)| before.wrapping_add(now.wrapping_sub(*base)));
        std::iter::once(self.id).chain(counted).chain(now.iter().copied()).collect()
    }

    /// Restores counts that a predecessor saved. To be called before a memory is attached. Returns whether
    /// `saved` has the right number of words.
    pub fn restore(&mut self, saved: &[u64]) -> bool {
        let words = self.base.len();
        let Some((id, counted)) = saved.split_first().filter(|(_, rest)| rest.len() == 2 * words) else {
            return false;
        };
        self.id = *id;
        self.before.copy_from_slice(&counted[..words]);
        self.base.copy_from_slice(&counted[words..]);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Memory {
        id: u64,
        counted: Mutex<[u64; 2]>,
        settings: Mutex<Vec<u64>>,
    }

    impl Memory {
        fn count(&self, first: u64, second: u64) {
            let mut counted = self.counted.lock().unwrap();
            *counted = [counted[0].wrapping_add(first), counted[1].wrapping_add(second)];
        }
    }

    impl VariantMemory for Memory {
        fn id(&self) -> u64 {
            self.id
        }

        fn configure(&self, settings: &[u64]) {
            *self.settings.lock().unwrap() = settings.to_vec();
        }

        fn counted(&self, word: usize) -> u64 {
            self.counted.lock().unwrap()[word]
        }
    }

    fn memory(id: u64) -> Arc<Memory> {
        Arc::new(Memory { id, ..Memory::default() })
    }

    #[test]
    fn counts_of_several_memories_are_added() {
        let mut counts = VariantCounts::new(2);
        assert_eq!((counts.all(), counts.counted(9)), (vec![0, 0], 0));
        let (one, two) = (memory(1), memory(2));
        one.count(7, 7);
        counts.attach(one.clone(), &[4]);
        assert_eq!((counts.all(), one.settings.lock().unwrap().clone()), (vec![0, 0], vec![4]));
        one.count(1, 2);
        counts.attach(two.clone(), &[5]);
        one.count(100, 100);
        two.count(10, 20);
        assert_eq!(counts.all(), [11, 22]);
        counts.attach(two.clone(), &[6]);
        assert_eq!(counts.all(), [11, 22], "it is the same memory");
        counts.reset(0);
        two.count(1, 1);
        assert_eq!(counts.all(), [1, 23]);
        counts.reset_all();
        assert_eq!(counts.all(), [0, 0]);
    }

    #[test]
    fn successor_continues_the_counts_without_loss() {
        let mut old = VariantCounts::new(2);
        let (same, other) = (memory(1), memory(2));
        old.attach(same.clone(), &[]);
        same.count(3, 4);
        let saved = old.save();
        same.count(1, 1);
        let (mut new, mut elsewhere) = (VariantCounts::new(2), VariantCounts::new(2));
        assert!(new.restore(&saved) && elsewhere.restore(&saved));
        new.attach(same, &[]);
        assert_eq!(new.all(), [4, 5]);
        other.count(50, 50);
        elsewhere.attach(other.clone(), &[]);
        other.count(1, 0);
        assert_eq!(elsewhere.all(), [4, 4]);
        assert!(!VariantCounts::new(3).restore(&saved) && !VariantCounts::new(2).restore(&[]));
    }
}
