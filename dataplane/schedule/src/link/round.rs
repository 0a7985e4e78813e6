//! The round of deficit round robin: who is backlogged, whose turn it is, and what each may still send (Shreedhar and
//! Varghese, "Efficient Fair Queueing using Deficit Round Robin", 1995).

use crate::arena::NONE;

/// What takes part in a round: numbered entries.
pub(crate) trait Entries {
    /// Bytes of credit per round, at least 1.
    fn quantum(&self, entry: u32) -> u32;
    /// Bytes of its first packet, on the wire.
    fn head(&self, entry: u32) -> u32;
    /// Its place in the round.
    fn place(&mut self, entry: u32) -> Place<'_>;

    /// Adds a quantum when `grant` says so, and tells whether the credit covers the first packet: all that a visit in
    /// the round needs, from one look at the entry.
    #[inline]
    fn visit(&mut self, entry: u32, grant: bool) -> bool {
        let (quantum, head) = (if grant { self.quantum(entry) } else { 0 }, self.head(entry));
        self.place(entry).grant(quantum, head)
    }
}

/// What an entry knows of the round.
pub(crate) struct Place<'a> {
    /// Bytes that the entry may send now.
    pub deficit: &'a mut i32,
    /// The entry behind it.
    pub next: &'a mut u32,
}

impl Place<'_> {
    /// Adds credit, and tells whether it covers `head` bytes.
    #[inline]
    pub fn grant(self, quantum: u32, head: u32) -> bool {
        *self.deficit = self.deficit.saturating_add_unsigned(quantum);
        i64::from(*self.deficit) >= i64::from(head)
    }
}

/// A circle of backlogged entries. Only the entry before the current one is noted, so that passing on writes nothing.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    previous: u32,
    length: u32,
    /// Whether the current entry has got its quantum for this turn.
    granted: bool,
}

impl Default for Round {
    fn default() -> Self {
        Self { previous: NONE, length: 0, granted: false }
    }
}

impl Round {
    /// Entries in the round.
    #[inline]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Puts a backlogged entry at the end of the round, with no credit.
    #[inline]
    pub fn join(&mut self, entries: &mut impl Entries, entry: u32) {
        *entries.place(entry).deficit = 0;
        if self.length == 0 {
            *entries.place(entry).next = entry;
            self.granted = false;
        } else {
            let current = std::mem::replace(entries.place(self.previous).next, entry);
            *entries.place(entry).next = current;
        }
        self.previous = entry;
        self.length += 1;
    }

    /// Whose turn it is: the current entry once its credit covers its first packet.
    #[inline]
    pub fn choose(&mut self, entries: &mut impl Entries) -> Option<u32> {
        let mut passed = 0;
        loop {
            if self.length == 0 {
                return None;
            }
            let current = *entries.place(self.previous).next;
            let grant = !std::mem::replace(&mut self.granted, true);
            if entries.visit(current, grant) {
                return Some(current);
            }
            self.pass(current);
            passed += 1;
            if passed >= self.length {
                self.skip_rounds(entries);
                passed = 0;
            }
        }
    }

    #[inline]
    fn pass(&mut self, current: u32) {
        self.previous = current;
        self.granted = false;
    }

    /// Nobody could send in a whole round: grants everyone at once what rounds to come would, up to the one before
    /// the first in which somebody can.
    #[cold]
    fn skip_rounds(&mut self, entries: &mut impl Entries) {
        let mut fewest = u32::MAX;
        let mut entry = self.previous;
        for _ in 0..self.length {
            entry = *entries.place(entry).next;
            let missing = i64::from(entries.head(entry)) - i64::from(*entries.place(entry).deficit);
            let rounds = (missing.max(1) as u64).div_ceil(entries.quantum(entry).into());
            fewest = fewest.min(u32::try_from(rounds).unwrap_or(u32::MAX));
        }
        for _ in 0..self.length {
            entry = *entries.place(entry).next;
            let gift = entries.quantum(entry).saturating_mul(fewest - 1);
            let deficit = entries.place(entry).deficit;
            *deficit = deficit.saturating_add_unsigned(gift);
        }
    }

    /// The chosen entry has sent `bytes`; `more` says whether it is still backlogged. One that isn't leaves, and its
    /// credit is lost (DRR).
    #[inline]
    pub fn served(&mut self, entries: &mut impl Entries, entry: u32, bytes: u32, more: bool) {
        if more {
            let deficit = entries.place(entry).deficit;
            *deficit = deficit.saturating_sub_unsigned(bytes);
        } else {
            self.leave(entries, entry);
        }
    }

    /// Takes an entry out of the round: at once if it is the current one, else by a walk.
    pub fn leave(&mut self, entries: &mut impl Entries, entry: u32) {
        let mut before = self.previous;
        for _ in 0..self.length {
            let next = *entries.place(before).next;
            if next == entry {
                break;
            }
            before = next;
        }
        if self.length == 0 || *entries.place(before).next != entry {
            return;
        }
        if before == self.previous {
            self.granted = false;
        }
        let behind = *entries.place(entry).next;
        *entries.place(before).next = behind;
        *entries.place(entry).deficit = 0;
        self.length -= 1;
        if self.previous == entry {
            self.previous = before;
        }
        if self.length == 0 {
            self.previous = NONE;
        }
    }
}
