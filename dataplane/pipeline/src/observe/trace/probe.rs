//! Probe: lets the same code of the stages run with and without a trace.

/// Observer that the stages report to while a batch passes them.
pub(crate) trait Probe: Copy {
    /// Returns the trace number of the traced packet, which is then the only packet of the batch; `None` for
    /// a batch that no trace observes.
    fn mark(self) -> Option<u16>;
}

/// No observer: the compiler removes all reports of the stages.
impl Probe for () {
    #[inline(always)]
    fn mark(self) -> Option<u16> {
        None
    }
}

/// Trace number of a packet that passes the stages alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(pub u16);

impl Probe for Mark {
    #[inline(always)]
    fn mark(self) -> Option<u16> {
        Some(self.0)
    }
}
