//! Longest prefix match of a configurable kind.

use super::{AddressBits, BinarySearchOnLengths, Count, Patricia, Prefix, PrefixMatch, TreeBitmap};

/// Kind of longest prefix match.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrefixMatchKind {
    /// Longest prefix match by [`Patricia`].
    Patricia,
    /// Longest prefix match by [`BinarySearchOnLengths`].
    #[default]
    BinarySearchOnLengths,
    /// Longest prefix match by [`TreeBitmap`].
    TreeBitmap,
}

impl PrefixMatchKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Patricia, Self::BinarySearchOnLengths, Self::TreeBitmap];
}

/// Set of prefixes of a configured kind.
#[derive(Clone, Debug)]
pub enum AnyMatch<A: AddressBits> {
    /// Set of the kind [`PrefixMatchKind::Patricia`].
    Patricia(Patricia<A>),
    /// Set of the kind [`PrefixMatchKind::BinarySearchOnLengths`].
    BinarySearchOnLengths(BinarySearchOnLengths<A>),
    /// Set of the kind [`PrefixMatchKind::TreeBitmap`].
    TreeBitmap(TreeBitmap<A>),
}

impl<A: AddressBits> AnyMatch<A> {
    /// Returns an empty set of a kind.
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

/// Evaluates an expression on the set, whatever its kind.
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
