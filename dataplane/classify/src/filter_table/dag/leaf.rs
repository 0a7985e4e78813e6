//! Leaf: the filters at the end of a path.

/// Slots of the filters of a leaf, sorted by rank. If there are at most [`FEW`] slots, they are in the node
/// itself, so a lookup needs no further memory access to read them.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    few: [u32; FEW],
    /// Number of slots in `few`. A greater number than [`FEW`] means that `many` holds the slots.
    number: u8,
    many: Box<[u32]>,
}

const FEW: usize = 8;

impl Leaf {
    pub fn new(slots: &[u32]) -> Self {
        let mut few = [0; FEW];
        match few.get_mut(..slots.len()) {
            Some(own) => {
                own.copy_from_slice(slots);
                Self { few, number: slots.len() as u8, many: Box::default() }
            }
            None => Self { few, number: u8::MAX, many: slots.into() },
        }
    }

    #[inline]
    pub fn slots(&self) -> &[u32] {
        self.few.get(..usize::from(self.number)).unwrap_or(&self.many)
    }

    /// Whether reading the slots takes a further memory access.
    #[inline]
    pub fn are_many(&self) -> bool {
        usize::from(self.number) > FEW
    }

    pub fn heap(&self) -> usize {
        size_of_val(&*self.many)
    }
}
