//! Leaf: the filters at the end of a path.

/// Slots of filters, sorted by rank. Up to [`FEW`] slots are in the node itself, so that a lookup reads them
/// without another access.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    few: [u32; FEW],
    /// Number of slots; any number above [`FEW`] means that `many` holds them.
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

    /// Whether a read of the slots is an additional memory access.
    #[inline]
    pub fn are_many(&self) -> bool {
        usize::from(self.number) > FEW
    }

    pub fn heap(&self) -> usize {
        size_of_val(&*self.many)
    }
}
