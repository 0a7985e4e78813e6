//! The filters at the end of a way.

/// Slots of filters in the order in which they win. Up to [`FEW`] stand in the node itself, so that reading them takes no
/// access of its own.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    few: [u32; FEW],
    /// More than [`FEW`] stand for any number of them.
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

    /// Whether reading the slots takes an access to memory of its own.
    #[inline]
    pub fn are_many(&self) -> bool {
        usize::from(self.number) > FEW
    }

    pub fn heap(&self) -> usize {
        size_of_val(&*self.many)
    }
}
