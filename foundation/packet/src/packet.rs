//! Packet: an owned chain of frames.

mod prefetch;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use crate::frame::Frame;
use crate::opened::{Opened, Start};
use crate::{Annotations, FRAME_SIZE, Pool};

/// Owned packet, which dereferences to its annotations.
///
/// [`data`](Self::data) returns the bytes of the first frame. Header offsets are relative to the frame's
/// buffer, so they stay valid when bytes are added or removed in front.
pub struct Packet {
    head: NonNull<Frame>,
    _one_thread: PhantomData<*mut ()>,
}

impl Packet {
    /// Makes a packet of one frame.
    ///
    /// # Safety
    /// No other code may refer to the frame.
    #[inline]
    pub(crate) unsafe fn from_frame(frame: NonNull<Frame>, offset: u16, length: u16) -> Self {
        let mut packet = Self { head: frame, _one_thread: PhantomData };
        let head = packet.head_mut();
        head.next = ptr::null_mut();
        head.references.set(1);
        head.places.offset = offset;
        head.places.length = length;
        head.places.network = offset;
        head.places.transport = offset;
        head.annotations = Annotations::EMPTY;
        packet
    }

    #[inline]
    fn head(&self) -> &Frame {
        // SAFETY: a packet is the only owner of its first frame.
        unsafe { self.head.as_ref() }
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Frame {
        // SAFETY: a packet is the only owner of its first frame.
        unsafe { self.head.as_mut() }
    }

    /// Returns the address of the first frame's metadata.
    #[inline]
    pub(crate) fn head_address(&self) -> *const Frame {
        self.head.as_ptr()
    }

    /// Returns the bytes of the first frame.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.head().bytes()
    }

    /// Returns the bytes of the first frame, for writes.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let head = self.head_mut();
        // SAFETY: as in `Frame::bytes`; the first frame is not shared.
        unsafe {
            std::slice::from_raw_parts_mut(
                head.buffer.as_ptr().add(head.places.offset.into()),
                head.places.length.into(),
            )
        }
    }

    /// Returns the length of the whole packet in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        if self.head().next.is_null() {
            self.head().places.length.into()
        } else {
            self.frames().map(<[u8]>::len).sum()
        }
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the packet consists of one frame.
    #[inline]
    pub fn is_linear(&self) -> bool {
        self.head().next.is_null()
    }

    /// Iterates over the bytes of each frame, first to last.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let mut frame: *const Frame = self.head.as_ptr();
        std::iter::from_fn(move || {
            // SAFETY: the chain's frames live as long as the packet that this iterator borrows.
            let current = unsafe { frame.as_ref() }?;
            frame = current.next;
            Some(current.bytes())
        })
    }

    /// Iterates over the frames of the chain in the form for a device: number in the pool, offset and length.
    pub fn segments(&self) -> impl Iterator<Item = (u32, u16, u16)> + '_ {
        let mut frame: *const Frame = self.head.as_ptr();
        std::iter::from_fn(move || {
            // SAFETY: the chain's frames live as long as the packet that this iterator borrows.
            let current = unsafe { frame.as_ref() }?;
            frame = current.next;
            Some((current.index, current.places.offset, current.places.length))
        })
    }

    /// Returns the number of free bytes before the first byte.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.head().places.offset.into()
    }

    /// Adds `count` bytes of undefined content in front, and returns the bytes of the first frame for writes.
    /// Returns `None`, and changes nothing, when the headroom is too small.
    #[inline]
    #[must_use]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.headroom() {
            return None;
        }
        let head = self.head_mut();
        head.places.offset -= count as u16;
        head.places.length += count as u16;
        Some(self.data_mut())
    }

    /// Removes `count` bytes from the front. Returns false, and changes nothing, when the first frame has
    /// fewer.
    #[inline]
    #[must_use]
    pub fn trim_front(&mut self, count: usize) -> bool {
        let head = self.head_mut();
        if count > usize::from(head.places.length) {
            return false;
        }
        head.places.offset += count as u16;
        head.places.length -= count as u16;
        true
    }

    /// Shortens the packet to `length` bytes, if it is longer. Returns false, and changes nothing, when the
    /// cut is in a later frame that is shared with a copy; call [`make_writable`](Self::make_writable) first.
    #[inline]
    #[must_use]
    pub fn truncate(&mut self, length: usize) -> bool {
        if self.is_linear() {
            let head = self.head_mut();
            head.places.length = length.min(head.places.length.into()) as u16;
            true
        } else {
            self.truncate_chain(length)
        }
    }

    fn truncate_chain(&mut self, length: usize) -> bool {
        let mut left = length;
        let mut frame = self.head;
        loop {
            // SAFETY: `frame` is in this packet's chain, so it is alive; no reference to its fields outlives
            // a statement.
            let current = unsafe { frame.as_ref() };
            let (here, is_own) = (usize::from(current.places.length), current.references.get() == 1);
            let next = NonNull::new(current.next);
            match next {
                Some(next) if left > here => (left, frame) = (left - here, next),
                None if left >= here => return true,
                _ if !is_own => return false,
                _ => break,
            }
        }
        // SAFETY: as above, and only this packet refers to the frame.
        let current = unsafe { frame.as_mut() };
        current.places.length = current.places.length.min(left as u16);
        release_chain(std::mem::replace(&mut current.next, ptr::null_mut()));
        true
    }

    /// Replaces frames shared with copies by frames of this packet alone. Returns false, and changes nothing,
    /// when the pool has too few frames.
    pub fn make_writable(&mut self, pool: &Pool) -> bool {
        if !self.is_shared() {
            return true;
        }
        let Some(mut own) = pool.allocate() else { return false };
        for bytes in self.frames().skip(1) {
            if !own.append(pool, bytes) {
                return false;
            }
        }
        release_chain(std::mem::replace(&mut self.head_mut().next, ptr::null_mut()));
        self.chain(own);
        true
    }

    /// Appends `bytes`, with frames from `pool` as needed. Returns false, and appends nothing, when the pool
    /// has too few frames, or the last frame is shared with a copy; call
    /// [`make_writable`](Self::make_writable) first.
    #[must_use]
    pub fn append(&mut self, pool: &Pool, bytes: &[u8]) -> bool {
        let own = self.last();
        // SAFETY: the last frame of this packet's chain, so alive.
        let (is_own, before) = unsafe { ((*own).references.get() == 1, (*own).places.length) };
        if !is_own {
            return false;
        }
        let mut rest = bytes;
        // SAFETY: the last frame of this packet's chain, owned by it.
        let mut last = unsafe { &mut *own };
        loop {
            let end = usize::from(last.places.offset) + usize::from(last.places.length);
            let here = rest.len().min(FRAME_SIZE.saturating_sub(end));
            // SAFETY: `here` bytes fit between `end` and the end of the frame's buffer.
            unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), last.buffer.as_ptr().add(end), here) };
            last.places.length += here as u16;
            rest = rest.get(here..).unwrap_or_default();
            if rest.is_empty() {
                return true;
            }
            let Some(more) = pool.allocate() else {
                // SAFETY: it was the last frame, owned by this packet; the frames after it are new.
                let own = unsafe { &mut *own };
                own.places.length = before;
                release_chain(std::mem::replace(&mut own.next, ptr::null_mut()));
                return false;
            };
            last.next = more.into_head().as_ptr();
            // SAFETY: just taken from the pool, and owned by this chain now.
            last = unsafe { &mut *last.next };
            last.places.offset = 0;
        }
    }

    /// Appends the frames of `tail`, for packets that a device delivers in pieces. The last frame of this
    /// packet must not be shared, else its copies get the tail as well.
    pub fn chain(&mut self, tail: Packet) {
        // SAFETY: the last frame of this packet's chain, owned by it.
        unsafe { (*self.last()).next = tail.into_head().as_ptr() };
    }

    fn last(&mut self) -> *mut Frame {
        let mut frame = self.head.as_ptr();
        // SAFETY: every frame of the chain lives as long as the packet.
        while let Some(next) = NonNull::new(unsafe { (*frame).next }) {
            frame = next.as_ptr();
        }
        frame
    }

    /// Copies up to `into.len()` bytes from `offset` on; returns the number of copied bytes.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> usize {
        let (length, mut skip, mut room) = (into.len(), offset, into);
        for bytes in self.frames() {
            let (skipped, bytes) = bytes.split_at_checked(skip).unwrap_or((bytes, &[]));
            skip -= skipped.len();
            let (into, rest) = room.split_at_mut(bytes.len().min(room.len()));
            if let Some(bytes) = bytes.get(..into.len()) {
                into.copy_from_slice(bytes);
            }
            room = rest;
        }
        length - room.len()
    }

    /// Returns all bytes in one vector, for the slow path and for tests.
    pub fn to_vec(&self) -> Vec<u8> {
        self.frames().flatten().copied().collect()
    }

    /// Makes a second packet with the same bytes and annotations, except the trace number. The copy owns its
    /// first frame. Packet and copy share the later frames, which become read-only. Returns `None` when the
    /// pool is empty.
    pub fn copy(&self, pool: &Pool) -> Option<Packet> {
        let mut copy = pool.allocate()?;
        let (from, to) = (self.head(), copy.head_mut());
        to.places.offset = from.places.offset;
        to.places.length = from.places.length;
        to.places.network = from.places.network;
        to.places.transport = from.places.transport;
        to.annotations = Annotations { trace: 0, ..from.annotations };
        to.next = from.next;
        copy.data_mut().copy_from_slice(self.data());
        let mut shared = self.head().next;
        while let Some(frame) = NonNull::new(shared) {
            // SAFETY: the frame is in this packet's chain, so it is alive.
            let frame = unsafe { frame.as_ref() };
            frame.references.set(frame.references.get() + 1);
            shared = frame.next;
        }
        Some(copy)
    }

    /// Sets the start of the network header to `offset` bytes from the first byte, at most to the end of the
    /// first frame's bytes.
    #[inline]
    pub fn set_network(&mut self, offset: usize) {
        let head = self.head_mut();
        head.places.network = head.places.offset + offset.min(head.places.length.into()) as u16;
    }

    /// Sets the start of the transport header to `offset` bytes from the first byte, at most to the end of
    /// the first frame's bytes.
    #[inline]
    pub fn set_transport(&mut self, offset: usize) {
        let head = self.head_mut();
        head.places.transport = head.places.offset + offset.min(head.places.length.into()) as u16;
    }

    /// Returns the first `COUNT` bytes, the annotations and the length of a packet. Returns `None` unless the
    /// packet is one frame of at least `COUNT` bytes, with its network header `NETWORK` bytes from the first
    /// byte.
    #[inline(always)]
    pub fn start_mut<const NETWORK: u16, const COUNT: usize>(&mut self) -> Option<Start<'_, COUNT>> {
        let head = self.head_mut();
        let is_so = head.next.is_null() && head.places.network == head.places.offset + NETWORK;
        if is_so { self.first_mut() } else { None }
    }

    /// Returns the first `COUNT` bytes and the length of the first frame, with the packet's annotations.
    /// Returns `None` if the frame is shorter.
    #[inline(always)]
    pub fn first_mut<const COUNT: usize>(&mut self) -> Option<Start<'_, COUNT>> {
        let head = self.head_mut();
        let length = usize::from(head.places.length);
        if length < COUNT {
            return None;
        }
        // SAFETY: the frame has `COUNT` bytes from its offset on, the first frame is not shared, and its
        // metadata is elsewhere.
        let bytes = unsafe { head.buffer.add(head.places.offset.into()).cast::<[u8; COUNT]>().as_mut() };
        Some(Start { bytes, annotations: &mut head.annotations, length })
    }

    /// Opens the packet for reads of its first frame, followed by one write of its header offsets.
    #[inline(always)]
    pub fn open(&mut self) -> Opened<'_> {
        let head = self.head_mut();
        // SAFETY: as in `Frame::bytes`; the first frame is not shared, and its metadata is elsewhere.
        let data = unsafe {
            NonNull::slice_from_raw_parts(
                head.buffer.add(head.places.offset.into()),
                head.places.length.into(),
            )
            .as_ref()
        };
        Opened { data, head }
    }

    /// Returns the offset of the network header, in bytes from the first byte.
    #[inline]
    pub fn network_offset(&self) -> usize {
        usize::from(self.head().places.network.saturating_sub(self.head().places.offset))
            .min(self.head().places.length.into())
    }

    /// Returns the offset of the transport header, in bytes from the first byte.
    #[inline]
    pub fn transport_offset(&self) -> usize {
        usize::from(self.head().places.transport.saturating_sub(self.head().places.offset))
            .min(self.head().places.length.into())
    }

    /// Returns the bytes of the first frame from the network header on.
    #[inline]
    pub fn network(&self) -> &[u8] {
        self.data().get(self.network_offset()..).unwrap_or_default()
    }

    /// Returns the bytes of the first frame from the network header on, for writes.
    #[inline]
    pub fn network_mut(&mut self) -> &mut [u8] {
        let offset = self.network_offset();
        self.data_mut().get_mut(offset..).unwrap_or_default()
    }

    /// Returns the bytes of the first frame from the transport header on.
    #[inline]
    pub fn transport(&self) -> &[u8] {
        self.data().get(self.transport_offset()..).unwrap_or_default()
    }

    /// Returns the length of the packet from the network header on, in bytes.
    #[inline]
    pub fn network_len(&self) -> usize {
        self.len() - self.network_offset()
    }

    #[inline]
    fn into_head(self) -> NonNull<Frame> {
        let head = self.head;
        std::mem::forget(self);
        head
    }

    /// Releases the packet's only frame to a device; returns its number. [`Pool::packet_from_raw`] takes the
    /// frame back.
    ///
    /// # Errors
    /// The packet, when it has several frames; call [`split`](Self::split) first.
    #[inline]
    pub fn into_raw(self) -> Result<u32, Packet> {
        if !self.is_linear() {
            return Err(self);
        }
        // SAFETY: this packet owns the frame, and ends here.
        Ok(unsafe { self.into_head().as_ref() }.index)
    }

    /// Splits off the first frame: returns the packet of that frame alone, and the rest of the chain.
    ///
    /// # Errors
    /// The packet, when its second frame is shared with a copy; call [`make_writable`](Self::make_writable)
    /// first.
    pub fn split(mut self) -> Result<(Packet, Option<Packet>), Packet> {
        let Some(rest) = NonNull::new(self.head().next) else { return Ok((self, None)) };
        // SAFETY: the frame is in this packet's chain, so it is alive.
        if unsafe { rest.as_ref() }.references.get() > 1 {
            return Err(self);
        }
        self.head_mut().next = ptr::null_mut();
        Ok((self, Some(Packet { head: rest, _one_thread: PhantomData })))
    }

    /// Whether any frame is shared with a copy.
    pub fn is_shared(&self) -> bool {
        let mut frame: *const Frame = self.head.as_ptr();
        // SAFETY: every frame of the chain lives as long as the packet.
        while let Some(current) = unsafe { frame.as_ref() } {
            if current.references.get() > 1 {
                return true;
            }
            frame = current.next;
        }
        false
    }
}

fn release_chain(mut frame: *mut Frame) {
    // SAFETY: the caller gives up its reference to each frame of the chain. A frame without references
    // returns to its pool, which lives as long as a frame is in use.
    while let Some(current) = unsafe { frame.as_ref() } {
        frame = current.next;
        let left = current.references.get() - 1;
        current.references.set(left);
        if left == 0 {
            // SAFETY: as above.
            unsafe { current.pool.as_ref() }.release(current.index);
        }
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        release_chain(self.head.as_ptr());
    }
}

impl Deref for Packet {
    type Target = Annotations;

    #[inline]
    fn deref(&self) -> &Annotations {
        &self.head().annotations
    }
}

impl DerefMut for Packet {
    #[inline]
    fn deref_mut(&mut self) -> &mut Annotations {
        &mut self.head_mut().annotations
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes, {:?})", self.len(), **self)
    }
}

mod allocate;
#[cfg(test)]
mod tests;
