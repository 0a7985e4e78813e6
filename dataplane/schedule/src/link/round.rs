//! The round of deficit round robin: who is backlogged, whose turn it is, and what each may still send (Shreedhar and
//! Varghese, "Efficient Fair Queueing using Deficit Round Robin", 1995).

use crate::arena::NONE;

/// What takes part in a round: numbered entries.
pub(crate) trait Entries {
    /// Bytes of credit for so many rounds. A fraction of a byte is kept, and comes with later rounds.
    fn credit(&mut self, entry: u32, rounds: u32) -> u32;
    /// In how many rounds an entry gets so many bytes.
    fn rounds(&self, entry: u32, bytes: u32) -> u32;
    /// Bytes of its first packet, on the wire.
    fn head(&self, entry: u32) -> u32;
    /// Its place in the round.
    fn place(&mut self, entry: u32) -> Place<'_>;

    /// Adds a quantum when `grant` says so, and tells whether the credit covers the first packet: all that a visit in
    /// the round needs, from one look at the entry.
    #[inline]
    fn visit(&mut self, entry: u32, grant: bool) -> bool {
        let (credit, head) = (if grant { self.credit(entry, 1) } else { 0 }, self.head(entry));
        self.place(entry).grant(credit, head)
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
    pub fn grant(self, credit: u32, head: u32) -> bool {
        *self.deficit = self.deficit.saturating_add_unsigned(credit);
        i64::from(*self.deficit) >= i64::from(head)
    }
}

/// What became of an entry whose turn it was.
pub(crate) enum Visit {
    /// Its credit does not cover its first packet.
    Poor,
    /// It sent a packet, and has more.
    Sent,
    /// It sent its last packet.
    Emptied,
}

/// Entries that can send.
pub(crate) trait Server: Entries {
    /// Adds a quantum when `grant` says so, and takes the first packet if the credit covers it then. The entry behind it
    /// comes along.
    fn serve(&mut self, entry: u32, grant: bool) -> (Visit, u32);
    /// An entry has left the round.
    fn left(&mut self, entry: u32);
}

/// A circle of backlogged entries. The current one and the one before it are noted, so that passing on writes nothing.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    previous: u32,
    current: u32,
    length: u32,
    /// Whether the current entry has got its quantum for this turn.
    granted: bool,
}

impl Default for Round {
    fn default() -> Self {
        Self { previous: NONE, current: NONE, length: 0, granted: false }
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

    /// Whose turn it is: the current entry once its credit covers its first packet.
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

    /// Serves one entry after the other, each while its credit lasts, for `most` packets: what [`choose`](Self::choose) and
    /// [`served`](Self::served) do in turns.
    #[inline]
    pub fn serve(&mut self, entries: &mut impl Server, most: usize) {
        let (mut passed, mut sent) = (0, 0);
        while sent < most && self.length > 0 {
            let current = self.current;
            let grant = !std::mem::replace(&mut self.granted, true);
            let (visit, next) = entries.serve(current, grant);
            match visit {
                Visit::Poor => {
                    self.pass(next);
                    passed += 1;
                    if passed >= self.length {
                        self.skip_rounds(entries);
                        passed = 0;
                    }
                    continue;
                }
                Visit::Sent => {}
                Visit::Emptied => {
                    *entries.place(self.previous).next = next;
                    self.length -= 1;
                    self.go_to(next);
                    entries.left(current);
                }
            }
            (passed, sent) = (0, sent + 1);
        }
    }

    /// Goes on to the entry behind the current one, which stays.
    #[inline]
    fn pass(&mut self, next: u32) {
        self.previous = self.current;
        self.go_to(next);
    }

    /// It is the turn of `next`, from its begin.
    #[inline]
    fn go_to(&mut self, next: u32) {
        (self.current, self.granted) = (next, false);
        if self.length == 0 {
            (self.previous, self.current) = (NONE, NONE);
        }
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
