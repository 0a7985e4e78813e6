//! PATRICIA (Morrison 1968): a binary trie without nodes that have a single child.
//!
//! Each node stores its whole prefix, which the lookup compares on the way down. So a lookup ends where the
//! address leaves the trie, and needs no second pass upwards. A node is a prefix of the set, or the branching
//! point of two prefixes.

use super::{AddressBits, Count, NONE, Prefix, PrefixMatch};

/// Set of prefixes in a binary trie with compressed paths. A lookup takes one memory access per node on its
/// path. There is at most one node per bit, and about log2 of the number of prefixes if they are spread
/// evenly.
#[derive(Clone, Debug)]
pub struct Patricia<A> {
    nodes: Vec<Node<A>>,
    root: u32,
    /// First unused node. Unused nodes form a list through their first child.
    unused: u32,
    length: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node<A> {
    prefix: Prefix<A>,
    /// Value of the prefix; [`NONE`] for a branching point.
    value: u32,
    children: [u32; 2],
}

impl<A> Default for Patricia<A> {
    fn default() -> Self {
        Self { nodes: Vec::new(), root: NONE, unused: NONE, length: 0 }
    }
}

/// Link to a node: its parent and the side (0 or 1); `None` for the root.
type Link = Option<(u32, usize)>;

impl<A: AddressBits> Patricia<A> {
    fn node(&self, index: u32) -> &Node<A> {
        &self.nodes[index as usize]
    }

    fn at(&self, link: Link) -> u32 {
        link.map_or(self.root, |(parent, side)| self.node(parent).children[side])
    }

    fn set(&mut self, link: Link, index: u32) {
        match link {
            Some((parent, side)) => self.nodes[parent as usize].children[side] = index,
            None => self.root = index,
        }
    }

    fn new_node(&mut self, node: Node<A>) -> u32 {
        let index = self.unused;
        if index == NONE {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        self.unused = self.node(index).children[0];
        self.nodes[index as usize] = node;
        index
    }

    /// Removes a node. Its parent then links to the node's only child, or to [`NONE`].
    fn take_out(&mut self, link: Link, index: u32) {
        let [left, right] = self.node(index).children;
        self.set(link, if left == NONE { right } else { left });
        self.nodes[index as usize].children = [self.unused, NONE];
        self.unused = index;
    }

    /// Follows the path to `prefix` up to the last node whose prefix is shorter and covers `prefix`. Returns
    /// the link from this node towards `prefix`, and the link that leads to this node.
    fn way_to(&self, prefix: Prefix<A>) -> (Link, Link) {
        let (mut before, mut link) = (None, None);
        loop {
            let index = self.at(link);
            if index == NONE || !self.is_above(index, prefix) {
                return (link, before);
            }
            before = link;
            link = Some((index, prefix.bits().bit(self.node(index).prefix.length())));
        }
    }

    /// Whether the node's prefix is shorter than `prefix` and covers it.
    fn is_above(&self, index: u32, prefix: Prefix<A>) -> bool {
        let own = self.node(index).prefix;
        own.length() < prefix.length() && own.covers(prefix)
    }

    fn index_of(&self, prefix: Prefix<A>) -> Option<(u32, Link, Link)> {
        let (link, before) = self.way_to(prefix);
        let index = self.at(link);
        (index != NONE && self.node(index).prefix == prefix).then_some((index, link, before))
    }

    /// Returns the longest prefix of the set that covers `prefix`, with its value. Considers `prefix` itself
    /// only if `itself` is set.
    pub fn covering(&self, prefix: Prefix<A>, itself: bool) -> Option<(Prefix<A>, u32)> {
        let (mut best, mut index) = (None, self.root);
        while index != NONE {
            let node = self.node(index);
            let same = node.prefix == prefix;
            if !(self.is_above(index, prefix) || same && itself) {
                break;
            }
            if node.value != NONE {
                best = Some((node.prefix, node.value));
            }
            if same {
                break;
            }
            index = node.children[prefix.bits().bit(node.prefix.length())];
        }
        best
    }

    /// Calls `found` for each prefix of the set that is directly below `prefix`: `prefix` covers it, and no
    /// prefix of the set lies between them.
    pub fn next_below(&self, prefix: Prefix<A>, found: &mut dyn FnMut(Prefix<A>)) {
        let mut todo = vec![self.at(self.way_to(prefix).0)];
        while let Some(index) = todo.pop() {
            if index == NONE || !prefix.covers(self.node(index).prefix) {
                continue;
            }
            let node = self.node(index);
            if node.value != NONE && node.prefix != prefix {
                found(node.prefix);
            } else {
                todo.extend(node.children);
            }
        }
    }
}

impl<A: AddressBits> PrefixMatch<A> for Patricia<A> {
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        assert_ne!(value, NONE, "NONE is no value");
        let (link, _) = self.way_to(prefix);
        let index = self.at(link);
        let mut node = Node { prefix, value, children: [NONE; 2] };
        if index != NONE {
            let other = self.node(index).prefix;
            if other == prefix {
                let old = std::mem::replace(&mut self.nodes[index as usize].value, value);
                self.length += usize::from(old == NONE);
                return (old != NONE).then_some(old);
            }
            let common = prefix.bits().common(other.bits()).min(prefix.length()).min(other.length());
            let parting = Prefix::new(prefix.bits(), common);
            let other_side = other.bits().bit(common);
            if common < prefix.length() {
                let own = self.new_node(node);
                node = Node { prefix: parting, value: NONE, children: [own; 2] };
            }
            node.children[other_side] = index;
        }
        let index = self.new_node(node);
        self.set(link, index);
        self.length += 1;
        None
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let (index, link, before) = self.index_of(prefix)?;
        let old = std::mem::replace(&mut self.nodes[index as usize].value, NONE);
        if old == NONE {
            return None;
        }
        self.length -= 1;
        if self.node(index).children.contains(&NONE) {
            self.take_out(link, index);
            if let Some((parent, _)) = link {
                let node = self.node(parent);
                if node.value == NONE && node.children.contains(&NONE) {
                    self.take_out(before, parent);
                }
            }
        }
        Some(old)
    }

    fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        let (index, ..) = self.index_of(prefix)?;
        Some(self.node(index).value).filter(|value| *value != NONE)
    }

    #[inline]
    fn lookup(&self, address: A, count: &mut impl Count) -> Option<u32> {
        let (mut best, mut index) = (NONE, self.root);
        while index != NONE {
            let node = self.node(index);
            count.read(node);
            if !node.prefix.holds(address) {
                break;
            }
            if node.value != NONE {
                best = node.value;
            }
            if node.prefix.length() == A::WIDTH {
                break;
            }
            index = node.children[address.bit(node.prefix.length())];
        }
        (best != NONE).then_some(best)
    }

    fn above(&self, prefix: Prefix<A>) -> Option<u32> {
        self.covering(prefix, false).map(|(_, value)| value)
    }

    fn within(&self, prefix: Prefix<A>, found: &mut dyn FnMut(Prefix<A>, u32)) {
        let mut todo = vec![self.at(self.way_to(prefix).0)];
        while let Some(index) = todo.pop() {
            if index == NONE || !prefix.covers(self.node(index).prefix) {
                continue;
            }
            let node = self.node(index);
            if node.value != NONE {
                found(node.prefix, node.value);
            }
            todo.extend(node.children);
        }
    }

    fn len(&self) -> usize {
        self.length
    }

    fn heap(&self) -> usize {
        self.nodes.capacity() * size_of::<Node<A>>()
    }
}
