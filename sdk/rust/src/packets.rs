//! The packets of a call.

use core::marker::PhantomData;
use core::mem::size_of;

use millrace_plugin_abi::binary::{RawCall, RawPacket};

use crate::Packet;

/// The packets of a call, 1 to 64.
pub struct Packets<'a> {
    first: *mut u8,
    step: usize,
    count: usize,
    state_bytes: u16,
    borrowed: PhantomData<&'a mut RawPacket>,
}

impl<'a> Packets<'a> {
    /// # Safety
    /// Behind the address in `call` stand as many descriptions as it says, with windows and states of their own, and for
    /// `'a` nobody else looks at them.
    pub(crate) unsafe fn new(call: &'a RawCall, state_bytes: u16) -> Self {
        // What is smaller than the first version of the interface is none that could be read.
        let readable = usize::from(call.packet_size) >= size_of::<RawPacket>();
        Self {
            first: call.packets as usize as *mut u8,
            step: call.packet_size.into(),
            count: if readable { call.count as usize } else { 0 },
            state_bytes,
            borrowed: PhantomData,
        }
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none. The router doesn't call for none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The packet at an index below [`len`](Self::len).
    #[inline]
    #[must_use]
    pub fn get(&mut self, index: usize) -> Option<Packet<'_>> {
        // SAFETY: the packet is borrowed from `self`, so it is the only one.
        (index < self.count).then(|| unsafe { self.at(index) })
    }

    /// Each packet, in the order in which they came.
    #[inline]
    pub fn for_each(&mut self, mut look: impl FnMut(Packet<'_>)) {
        for index in 0..self.count {
            // SAFETY: the packet is gone before the next one is made.
            look(unsafe { self.at(index) });
        }
    }

    /// # Safety
    /// `index` is below the count, and no other packet of this index is in use.
    #[inline]
    unsafe fn at<'b>(&self, index: usize) -> Packet<'b> {
        // SAFETY: `Packets::new`: there is a description, aligned to 8 bytes as all memory that is reserved.
        let raw = unsafe { &mut *self.first.add(index * self.step).cast::<RawPacket>() };
        // SAFETY: the same.
        unsafe { Packet::new(raw, self.state_bytes) }
    }
}
