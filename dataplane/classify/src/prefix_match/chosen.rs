//! The way of longest prefix match that a configuration names.

use super::{AddressBits, BinarySearchOnLengths, Count, Patricia, Prefix, PrefixMatch, TreeBitmap};

/// The ways of longest prefix match.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrefixMatchKind {
    /// [`Patricia`].
    Patricia,
    /// [`BinarySearchOnLengths`].
    #[default]
    BinarySearchOnLengths,
    /// [`TreeBitmap`].
    TreeBitmap,
}

impl PrefixMatchKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Patricia, Self::BinarySearchOnLengths, Self::TreeBitmap];
}

/// A set of prefixes, searched in the way that was chosen when it was made.
#[derive(Clone, Debug)]
pub enum AnyMatch<A: AddressBits> {
    /// PATRICIA.
    Patricia(Patricia<A>),
    /// Binary search on prefix lengths.
    BinarySearchOnLengths(BinarySearchOnLengths<A>),
    /// Tree bitmap.
    TreeBitmap(TreeBitmap<A>),
}

impl<A: AddressBits> AnyMatch<A> {
    /// No prefixes, to be searched in this way.
    pub fn new(kind: PrefixMatchKind) -> Self {
        match kind {
            PrefixMatchKind::Patricia => Self::Patricia(Patricia::default()),
            PrefixMatchKind::BinarySearchOnLengths => {
                Self::BinarySearchOnLengths(BinarySearchOnLengths::default())
            }
            PrefixMatchKind::TreeBitmap => Self::TreeBitmap(TreeBitmap::default()),
        }
    }
}

/// Asks the one that was chosen.
macro_rules! ask {
    ($self:ident, $way:ident => $answer:expr) => {
        match $self {
            AnyMatch::Patricia($way) => $answer,
            AnyMatch::BinarySearchOnLengths($way) => $answer,
            AnyMatch::TreeBitmap($way) => $answer,
        }
    };
}

impl<A: AddressBits> PrefixMatch<A> for AnyMatch<A> {
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        ask!(self, way => way.insert(prefix, value))
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        ask!(self, way => way.remove(prefix))
    }

    fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        ask!(self, way => way.get(prefix))
    }

    #[inline]
    fn lookup(&self, address: A, count: &mut impl Count) -> Option<u32> {
        ask!(self, way => way.lookup(address, count))
    }

    fn above(&self, prefix: Prefix<A>) -> Option<u32> {
        ask!(self, way => way.above(prefix))
    }

    fn within(&self, prefix: Prefix<A>, found: &mut dyn FnMut(Prefix<A>, u32)) {
        ask!(self, way => way.within(prefix, found));
    }

    fn len(&self) -> usize {
        ask!(self, way => way.len())
    }

    fn heap(&self) -> usize {
        ask!(self, way => way.heap())
    }
}
