//! Tree bitmap (Eatherton, Varghese and Dittia 2004) in strides of six bits, with compressed paths.
//!
//! A node holds the prefixes that end inside its stride, as bits of one word in the order of a binary heap.
//! Another word holds a bit for each child node, by the six bits of the stride. Values and child nodes are in
//! dense arrays, indexed by counting bits (as in Poptrie, Asai and Ohara 2015).
//!
//! A path skips strides without branches: a node stores all bits that lead to it. So lookups among 50,000
//! IPv6 hosts take few accesses, not the 22 for all strides.

use super::{AddressBits, Count, NONE, Prefix, PrefixMatch};

const STRIDE: u8 = 6;

/// Set of prefixes in a multibit trie. A lookup takes one access per node on its path, and one for the value.
/// Adding a prefix changes one node.
#[derive(Clone, Debug)]
pub struct TreeBitmap<A> {
    root: Node<A>,
    length: usize,
    /// Heap memory below the root, in bytes.
    heap: usize,
}

#[derive(Clone, Debug, Default)]
struct Node<A> {
    /// Prefix above the node's stride. Its length is a multiple of [`STRIDE`].
    above: Prefix<A>,
    /// Prefixes that end in this node. Bit `2^l + b`, a heap position, stands for the prefix that continues
    /// with the `l` bits `b`.
    prefixes: u64,
    /// Child nodes: bit N stands for the child whose stride bits are N.
    below: u64,
    values: Vec<u32>,
    children: Vec<Node<A>>,
}

/// For each value of the six stride bits, a bit set of heap positions: those of all prefixes with which the
/// six bits begin.
const BEGINNINGS: [u64; 64] = {
    let mut masks = [0; 64];
    let mut bits = 0;
    while bits < 64 {
        let mut length = 0;
        while length < STRIDE as usize {
            masks[bits] |= 1_u64 << (1 << length | bits >> (STRIDE as usize - length));
            length += 1;
        }
        bits += 1;
    }
    masks
};

/// Returns the number of bits of `set` below bit `place`. This is the index of the element for `place` in a
/// dense array.
#[inline]
fn rank(set: u64, place: usize) -> usize {
    (set & ((1 << place) - 1)).count_ones() as usize
}

/// Changes a vector, and adds the growth of its memory to `heap`.
fn resize<T, R>(heap: &mut usize, vector: &mut Vec<T>, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
    *heap -= vector.capacity() * size_of::<T>();
    let result = change(vector);
    *heap += vector.capacity() * size_of::<T>();
    result
}

impl<A: AddressBits> Node<A> {
    fn new(above: Prefix<A>) -> Self {
        Self { above, ..Self::default() }
    }

    /// Returns the heap position of a prefix that ends in this node's stride; `None` for a longer prefix.
    fn place_of(&self, prefix: Prefix<A>) -> Option<usize> {
        let length = prefix.length() - self.above.length();
        (length < STRIDE)
            .then(|| 1 << length | prefix.bits().six_bits(self.above.length()) >> (STRIDE - length))
    }

    /// Returns the prefix at a heap position.
    fn prefix_at(&self, place: usize) -> Prefix<A> {
        let length = place.ilog2() as u8;
        let bits = (place ^ 1 << length) << (STRIDE - length);
        let above = self.above;
        Prefix::new(above.bits().with_six_bits(above.length(), bits), above.length() + length)
    }

    fn insert(&mut self, prefix: Prefix<A>, value: u32, heap: &mut usize) -> Option<u32> {
        if let Some(place) = self.place_of(prefix) {
            let index = rank(self.prefixes, place);
            if self.prefixes >> place & 1 != 0 {
                return Some(std::mem::replace(&mut self.values[index], value));
            }
            self.prefixes |= 1 << place;
            resize(heap, &mut self.values, |values| values.insert(index, value));
            return None;
        }
        let way = prefix.bits().six_bits(self.above.length());
        let index = rank(self.below, way);
        if self.below >> way & 1 == 0 {
            self.below |= 1 << way;
            let node = Node::new(Prefix::new(prefix.bits(), prefix.length() / STRIDE * STRIDE));
            resize(heap, &mut self.children, |children| children.insert(index, node));
        }
        let child = &mut self.children[index];
        let common = child.above.bits().common(prefix.bits()).min(prefix.length());
        if common < child.above.length() {
            // The new prefix and the child diverge above the child, so a new node goes between this node and
            // the child.
            let parting = Node::new(Prefix::new(prefix.bits(), common / STRIDE * STRIDE));
            let old = std::mem::replace(child, parting);
            child.below = 1 << old.above.bits().six_bits(child.above.length());
            resize(heap, &mut child.children, |children| children.push(old));
        }
        child.insert(prefix, value, heap)
    }

    fn remove(&mut self, prefix: Prefix<A>, heap: &mut usize) -> Option<u32> {
        if let Some(place) = self.place_of(prefix) {
            if self.prefixes >> place & 1 == 0 {
                return None;
            }
            self.prefixes &= !(1 << place);
            let index = rank(self.prefixes, place);
            return Some(resize(heap, &mut self.values, |values| {
                let value = values.remove(index);
                values.shrink_to_fit();
                value
            }));
        }
        let way = prefix.bits().six_bits(self.above.length());
        let index = rank(self.below, way);
        if self.below >> way & 1 == 0 || !self.children[index].above.covers(prefix) {
            return None;
        }
        let child = &mut self.children[index];
        let value = child.remove(prefix, heap)?;
        if child.prefixes == 0 && child.children.len() == 1 {
            let only = resize(heap, &mut child.children, |children| std::mem::take(children).pop());
            *child = only?;
        } else if child.prefixes == 0 && child.children.is_empty() {
            self.below &= !(1 << way);
            resize(heap, &mut self.children, |children| {
                children.remove(index);
                children.shrink_to_fit();
            });
        }
        Some(value)
    }

    /// Returns the value of the longest prefix of this node whose heap position is in the set `among`.
    #[inline]
    fn longest(&self, among: u64) -> Option<u32> {
        let here = self.prefixes & among;
        (here != 0).then(|| self.values[rank(self.prefixes, here.ilog2() as usize)])
    }

    /// Calls `found` for all prefixes that `prefix` covers, in this node and below.
    fn within(&self, prefix: Prefix<A>, found: &mut dyn FnMut(Prefix<A>, u32)) {
        let places = (1..64).filter(|place| self.prefixes >> place & 1 != 0);
        for (own, value) in places.map(|place| self.prefix_at(place)).zip(&self.values) {
            if prefix.covers(own) {
                found(own, *value);
            }
        }
        for child in &self.children {
            if prefix.covers(child.above) || child.above.covers(prefix) {
                child.within(prefix, found);
            }
        }
    }
}

impl<A: AddressBits> TreeBitmap<A> {
    /// Iterates over the nodes on the path to a prefix. The last node is the one in which the prefix ends, or
    /// would end if it were in the set.
    fn way_to(&self, prefix: Prefix<A>) -> impl Iterator<Item = &Node<A>> {
        std::iter::successors(Some(&self.root), move |node| {
            let way = prefix.bits().six_bits(node.above.length());
            let goes_on = node.place_of(prefix).is_none() && node.below >> way & 1 != 0;
            let child = goes_on.then(|| &node.children[rank(node.below, way)])?;
            child.above.covers(prefix).then_some(child)
        })
    }
}

impl<A: AddressBits> Default for TreeBitmap<A> {
    fn default() -> Self {
        Self { root: Node::default(), length: 0, heap: 0 }
    }
}

impl<A: AddressBits> PrefixMatch<A> for TreeBitmap<A> {
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        assert_ne!(value, NONE, "NONE is no value");
        let old = self.root.insert(prefix, value, &mut self.heap);
        self.length += usize::from(old.is_none());
        old
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let old = self.root.remove(prefix, &mut self.heap);
        self.length -= usize::from(old.is_some());
        old
    }

    fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        let node = self.way_to(prefix).last()?;
        node.longest(1 << node.place_of(prefix)?)
    }

    #[inline]
    fn lookup(&self, address: A, count: &mut impl Count) -> Option<u32> {
        let (mut node, mut best) = (&self.root, None);
        loop {
            count.read(node);
            if !node.above.holds(address) {
                break;
            }
            let bits = address.six_bits(node.above.length());
            if node.prefixes & BEGINNINGS[bits] != 0 {
                best = Some((node, BEGINNINGS[bits]));
            }
            if node.below >> bits & 1 == 0 {
                break;
            }
            node = &node.children[rank(node.below, bits)];
        }
        let (node, among) = best?;
        count.read(&*node.values);
        node.longest(among)
    }

    fn above(&self, prefix: Prefix<A>) -> Option<u32> {
        let shorter = |node: &Node<A>| {
            let among = BEGINNINGS[prefix.bits().six_bits(node.above.length())];
            node.longest(node.place_of(prefix).map_or(among, |place| among & ((1 << place) - 1)))
        };
        self.way_to(prefix).filter_map(shorter).last()
    }

    fn within(&self, prefix: Prefix<A>, found: &mut dyn FnMut(Prefix<A>, u32)) {
        self.root.within(prefix, found);
    }

    fn len(&self) -> usize {
        self.length
    }

    fn heap(&self) -> usize {
        self.heap
    }
}
