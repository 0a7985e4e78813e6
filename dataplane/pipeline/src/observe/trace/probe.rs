//! Probe of the stages: the same stages run with and without a trace.

/// Observer of a batch in the stages.
pub(crate) trait Probe: Copy {
    /// Returns the mark of the traced packet, which is the only packet of the batch; `None` for a batch that
    /// no trace observes.
    fn mark(self) -> Option<u16>;
}

/// No observer: all that stages do for an observer compiles to nothing.
impl Probe for () {
    #[inline(always)]
    fn mark(self) -> Option<u16> {
        None
    }
}

/// Mark of a traced packet that passes the stages alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(pub u16);

impl Probe for Mark {
    #[inline(always)]
    fn mark(self) -> Option<u16> {
        Some(self.0)
    }
}
