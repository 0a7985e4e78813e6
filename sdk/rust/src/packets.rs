//! Packets of a call.

use core::marker::PhantomData;
use core::mem::size_of;

use millrace_plugin_abi::binary::{RawCall, RawPacket};

use crate::Packet;

/// Packets of a call, 1 to 64.
pub struct Packets<'a> {
    first: *mut u8,
    step: usize,
    count: usize,
    state_bytes: u16,
    borrowed: PhantomData<&'a mut RawPacket>,
}

impl<'a> Packets<'a> {
    /// # Safety
    /// `call` must point to as many packet descriptions as it states, each with its own window and flow
    /// state. Nothing else may access them during `'a`.
    pub(crate) unsafe fn new(call: &'a RawCall, state_bytes: u16) -> Self {
        // A description smaller than in the first version of the interface can't be read.
        let readable = usize::from(call.packet_size) >= size_of::<RawPacket>();
        Self {
            first: call.packets as usize as *mut u8,
            step: call.packet_size.into(),
            count: if readable { call.count as usize } else { 0 },
            state_bytes,
            borrowed: PhantomData,
        }
    }

    /// Returns the number of packets.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no packets, which is never so in a call of the router.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the packet at an index; `None` if there are fewer packets.
    #[inline]
    #[must_use]
    pub fn get(&mut self, index: usize) -> Option<Packet<'_>> {
        // SAFETY: the packet borrows `self`, so it is the only one.
        (index < self.count).then(|| unsafe { self.at(index) })
    }

    /// Calls `look` with each packet, in the order in which they arrived.
    #[inline]
    pub fn for_each(&mut self, mut look: impl FnMut(Packet<'_>)) {
        for index in 0..self.count {
            // SAFETY: the packet is dropped before the next one is created.
            look(unsafe { self.at(index) });
        }
    }

    /// # Safety
    /// `index` must be below the count, and no other packet of this index may be in use.
    #[inline]
    unsafe fn at<'b>(&self, index: usize) -> Packet<'b> {
        // SAFETY: by `Packets::new` a description is there, aligned to 8 bytes like all reserved memory.
        let raw = unsafe { &mut *self.first.add(index * self.step).cast::<RawPacket>() };
        // SAFETY: by `Packets::new`, the description's window and flow state belong to this packet.
        unsafe { Packet::new(raw, self.state_bytes) }
    }
}
