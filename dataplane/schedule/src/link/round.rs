//! Round of deficit round robin: the backlogged entries, the current entry, and the credit of each entry
//! (Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin", 1995).

use crate::arena::NONE;

/// Largest quantum in bytes: a deficit of two quanta fits into an `i32`.
pub(crate) const MOST_QUANTUM: u32 = 1 << 30;

/// Entries of a round, identified by number.
pub(crate) trait Entries {
    /// Returns the bytes of credit for `rounds` rounds. A fraction of a byte is kept for later rounds.
    fn credit(&mut self, entry: u32, rounds: u32) -> u32;
    /// Returns the number of rounds in which an entry gets `bytes` bytes.
    fn rounds(&self, entry: u32, bytes: u32) -> u32;
    /// Returns the bytes on the wire of an entry's first packet.
    fn head(&self, entry: u32) -> u32;
    /// Returns the fields of an entry that the round uses.
    fn place(&mut self, entry: u32) -> Place<'_>;

    /// Adds a quantum if `grant` is set. Returns whether the credit covers the entry's first packet. This is
    /// the only access to an entry during a visit.
    #[inline]
    fn visit(&mut self, entry: u32, grant: bool) -> bool {
        let (credit, head) = (if grant { self.credit(entry, 1) } else { 0 }, self.head(entry));
        self.place(entry).grant(credit, head)
    }
}

/// Fields of an entry that the round uses.
pub(crate) struct Place<'a> {
    /// Bytes that the entry may send now.
    pub deficit: &'a mut i32,
    /// Next entry in the round.
    pub next: &'a mut u32,
}

impl Place<'_> {
    /// Adds credit. Returns whether the credit covers `head` bytes.
    #[inline]
    pub fn grant(self, credit: u32, head: u32) -> bool {
        *self.deficit = self.deficit.saturating_add_unsigned(credit);
        i64::from(*self.deficit) >= i64::from(head)
    }
}

/// Result of a visit to an entry.
pub(crate) enum Visit {
    /// Credit below the length of the first packet.
    Poor,
    /// One packet sent, with more packets waiting.
    Sent,
    /// Last packet sent.
    Emptied,
}

/// Entries that can send packets.
pub(crate) trait Server {
    /// Returns the entries.
    fn entries(&mut self) -> &mut impl Entries;
    /// Adds a quantum if `grant` is set, and sends the entry's first packet if the credit covers this packet.
    /// Also returns the next entry of the round.
    fn serve(&mut self, entry: u32, grant: bool) -> (Visit, u32);
    /// Handles an entry that has left the round.
    fn left(&mut self, entry: u32);
}

/// Circular list of backlogged entries. The round stores the current entry and the entry before it, so the
/// step to the next entry changes no entry.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    previous: u32,
    current: u32,
    length: u32,
    /// Whether the current entry has received its quantum for this visit.
    granted: bool,
}

impl Default for Round {
    fn default() -> Self {
        Self { previous: NONE, current: NONE, length: 0, granted: false }
    }
}

impl Round {
    /// Returns the number of entries in the round.
    #[inline]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Adds a backlogged entry at the end of the round, with no credit.
    #[inline]
    pub fn join(&mut self, entries: &mut impl Entries, entry: u32) {
        if self.length == 0 {
            self.current = entry;
            self.granted = false;
        } else {
            *entries.place(self.previous).next = entry;
        }
        let Place { deficit, next } = entries.place(entry);
        (*deficit, *next) = (0, self.current);
        self.previous = entry;
        self.length += 1;
    }

    /// Returns the entry to serve next. Advances the round until the credit of the current entry covers this
    /// entry's first packet.
    #[inline]
    pub fn choose(&mut self, entries: &mut impl Entries) -> Option<u32> {
        let mut passed = 0;
        loop {
            if self.length == 0 {
                return None;
            }
            let current = self.current;
            let grant = !std::mem::replace(&mut self.granted, true);
            if entries.visit(current, grant) {
                return Some(current);
            }
            self.pass(*entries.place(current).next);
            passed += 1;
            if passed >= self.length {
                self.skip_rounds(entries);
                passed = 0;
            }
        }
    }

    /// Serves one entry after the other, each until its credit is used up. Sends up to `most` packets in all.
    /// The result is the same as with [`choose`](Self::choose) and [`served`](Self::served) for each packet.
    #[inline]
    pub fn serve(&mut self, server: &mut impl Server, most: usize) {
        let (mut passed, mut sent) = (0, 0);
        while sent < most && self.length > 0 {
            let current = self.current;
            let grant = !std::mem::replace(&mut self.granted, true);
            let (visit, next) = server.serve(current, grant);
            match visit {
                Visit::Poor => {
                    self.pass(next);
                    passed += 1;
                    if passed >= self.length {
                        self.skip_rounds(server.entries());
                        passed = 0;
                    }
                    continue;
                }
                Visit::Sent => {}
                Visit::Emptied => {
                    *server.entries().place(self.previous).next = next;
                    self.length -= 1;
                    self.go_to(next);
                    server.left(current);
                }
            }
            (passed, sent) = (0, sent + 1);
        }
    }

    /// Advances to the next entry. The current entry stays in the round.
    #[inline]
    fn pass(&mut self, next: u32) {
        self.previous = self.current;
        self.go_to(next);
    }

    /// Makes `next` the current entry.
    #[inline]
    fn go_to(&mut self, next: u32) {
        (self.current, self.granted) = (next, false);
        if self.length == 0 {
            (self.previous, self.current) = (NONE, NONE);
        }
    }

    /// Gives all entries the credit of several rounds at once, after a whole round in which no entry could
    /// send. Skips rounds up to the one before an entry can send again.
    #[cold]
    fn skip_rounds(&mut self, entries: &mut impl Entries) {
        let mut fewest = u32::MAX;
        let mut entry = self.previous;
        for _ in 0..self.length {
            entry = *entries.place(entry).next;
            let missing = i64::from(entries.head(entry)) - i64::from(*entries.place(entry).deficit);
            let missing = u32::try_from(missing.max(1)).unwrap_or(u32::MAX);
            fewest = fewest.min(entries.rounds(entry, missing));
        }
        for _ in 0..self.length {
            entry = *entries.place(entry).next;
            let gift = entries.credit(entry, fewest - 1);
            let deficit = entries.place(entry).deficit;
            *deficit = deficit.saturating_add_unsigned(gift);
        }
    }

    /// Accounts for `bytes` sent by the chosen entry. `more`: whether the entry is still backlogged. An entry
    /// that is not backlogged leaves the round and loses its credit, as DRR requires.
    #[inline]
    pub fn served(&mut self, entries: &mut impl Entries, entry: u32, bytes: u32, more: bool) {
        if more {
            let deficit = entries.place(entry).deficit;
            *deficit = deficit.saturating_sub_unsigned(bytes);
        } else {
            self.leave(entries, entry);
        }
    }

    /// Removes an entry from the round. If it isn't the current entry, this takes a search.
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
        let Place { deficit, next } = entries.place(entry);
        let behind = *next;
        *deficit = 0;
        *entries.place(before).next = behind;
        self.length -= 1;
        if entry == self.current {
            self.go_to(behind);
        } else if entry == self.previous {
            self.previous = before;
        }
    }
}
