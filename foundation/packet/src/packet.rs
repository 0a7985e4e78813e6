//! A packet: a chain of frames that it owns.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use crate::frame::Frame;
use crate::opened::{Opened, Start};
use crate::{Annotations, FRAME_SIZE, Pool};

/// An owned packet. Its annotations are reached by dereferencing it.
///
/// The bytes of the first frame are [`data`](Self::data); offsets of headers are relative to the frame's buffer, so
/// that adding and removing bytes in front leaves them valid.
pub struct Packet {
    head: NonNull<Frame>,
    _one_thread: PhantomData<*mut ()>,
}

impl Packet {
    /// # Safety
    /// Nothing else may refer to the frame.
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
        // SAFETY: a packet owns its first frame alone.
        unsafe { self.head.as_ref() }
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Frame {
        // SAFETY: a packet owns its first frame alone.
        unsafe { self.head.as_mut() }
    }

    /// The address of the first frame's metadata.
    #[inline]
    pub(crate) fn head_address(&self) -> *const Frame {
        self.head.as_ptr()
    }

    /// The bytes of the first frame.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.head().bytes()
    }

    /// The bytes of the first frame, to write.
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

    /// Bytes of the whole packet.
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

    /// Whether the packet stands in one frame.
    #[inline]
    pub fn is_linear(&self) -> bool {
        self.head().next.is_null()
    }

    /// The bytes of each frame, first to last.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let mut frame: *const Frame = self.head.as_ptr();
        std::iter::from_fn(move || {
            // SAFETY: the chain's frames live as long as the packet that this iterator borrows.
            let current = unsafe { frame.as_ref() }?;
            frame = current.next;
            Some(current.bytes())
        })
    }

    /// The frames of the chain as their numbers in the pool, with offset and length in each: what a device is told.
    pub fn segments(&self) -> impl Iterator<Item = (u32, u16, u16)> + '_ {
        let mut frame: *const Frame = self.head.as_ptr();
        std::iter::from_fn(move || {
            // SAFETY: the chain's frames live as long as the packet that this iterator borrows.
            let current = unsafe { frame.as_ref() }?;
            frame = current.next;
            Some((current.index, current.places.offset, current.places.length))
        })
    }

    /// Bytes that can still be put in front of the first.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.head().places.offset.into()
    }

    /// Puts `count` bytes in front, their contents as they happen to be, and returns the data of the first frame to
    /// write. `None`, with nothing changed, when the headroom is smaller.
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

    /// Removes `count` bytes from the front. Returns `false`, with nothing changed, when the first frame has fewer.
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

    /// Shortens the packet to `length` bytes; leaves it as it is when it is not longer. Returns `false`, with nothing
    /// changed, when the cut lies behind the first frame and the frames there are shared:
    /// [`make_writable`](Self::make_writable) comes first.
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
            // SAFETY: `frame` is in this packet's chain, so it is alive; nothing refers to its fields for longer than a
            // statement.
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
        // SAFETY: as above, and the frame is referred to by this packet alone.
        let current = unsafe { frame.as_mut() };
        current.places.length = current.places.length.min(left as u16);
        release_chain(std::mem::replace(&mut current.next, ptr::null_mut()));
        true
    }

    /// Replaces frames that are shared with copies by frames of this packet's own. Returns `false`, with nothing
    /// changed, when the pool has too few.
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

    /// Adds `bytes` at the end, taking frames from `pool` as needed. Returns `false`, with nothing added, when there
    /// are too few, or the last frame is shared with a copy: [`make_writable`](Self::make_writable) comes first.
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
                // SAFETY: it was the last frame, owned by this packet; the frames behind it are new.
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

    /// Puts `tail`'s frames behind this packet's: a packet that a device delivered in pieces. The last frame must not be
    /// shared, else copies get the tail as well.
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

    /// Copies up to `into.len()` bytes from `offset` on, and returns how many there were.
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

    /// All bytes in one vector: for the slow path and for tests.
    pub fn to_vec(&self) -> Vec<u8> {
        self.frames().flatten().copied().collect()
    }

    /// A second packet with the same bytes and annotations: its first frame is its own, the frames behind are shared
    /// and from now on read-only. Its journey is not written down. `None` when the pool is empty.
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
            // SAFETY: in this packet's chain, so alive.
            let frame = unsafe { frame.as_ref() };
            frame.references.set(frame.references.get() + 1);
            shared = frame.next;
        }
        Some(copy)
    }

    /// Notes that the network header starts `offset` bytes behind the first byte, and at the end of the first frame's bytes
    /// at the latest.
    #[inline]
    pub fn set_network(&mut self, offset: usize) {
        let head = self.head_mut();
        head.places.network = head.places.offset + offset.min(head.places.length.into()) as u16;
    }

    /// Notes that the transport header starts `offset` bytes behind the first byte, and at the end of the first frame's
    /// bytes at the latest.
    #[inline]
    pub fn set_transport(&mut self, offset: usize) {
        let head = self.head_mut();
        head.places.transport = head.places.offset + offset.min(head.places.length.into()) as u16;
    }

    /// The first `COUNT` bytes of a packet that stands in one frame and whose network header starts `NETWORK` bytes behind the
    /// first byte, its annotations, and its length; `None` for one that is otherwise, or shorter.
    #[inline(always)]
    pub fn start_mut<const NETWORK: u16, const COUNT: usize>(&mut self) -> Option<Start<'_, COUNT>> {
        let head = self.head_mut();
        let is_so = head.next.is_null() && head.places.network == head.places.offset + NETWORK;
        if is_so { self.first_mut() } else { None }
    }

    /// The first `COUNT` bytes of a packet's first frame, the packet's annotations, and the length of that frame; `None` where it has
    /// fewer bytes.
    #[inline(always)]
    pub fn first_mut<const COUNT: usize>(&mut self) -> Option<Start<'_, COUNT>> {
        let head = self.head_mut();
        let length = usize::from(head.places.length);
        if length < COUNT {
            return None;
        }
        // SAFETY: the frame has so many bytes from its offset on, the first frame is not shared, and its metadata lie elsewhere.
        let bytes = unsafe { head.buffer.add(head.places.offset.into()).cast::<[u8; COUNT]>().as_mut() };
        Some(Start { bytes, annotations: &mut head.annotations, length })
    }

    /// The packet to be read, and what is noted on it then.
    #[inline(always)]
    pub fn open(&mut self) -> Opened<'_> {
        let head = self.head_mut();
        // SAFETY: as in `Frame::bytes`; the first frame is not shared, and its metadata lie elsewhere.
        let data = unsafe {
            NonNull::slice_from_raw_parts(
                head.buffer.add(head.places.offset.into()),
                head.places.length.into(),
            )
            .as_ref()
        };
        Opened { data, head }
    }

    /// Where the network header starts, in bytes behind the first.
    #[inline]
    pub fn network_offset(&self) -> usize {
        usize::from(self.head().places.network.saturating_sub(self.head().places.offset))
            .min(self.head().places.length.into())
    }

    /// Where the transport header starts, in bytes behind the first.
    #[inline]
    pub fn transport_offset(&self) -> usize {
        usize::from(self.head().places.transport.saturating_sub(self.head().places.offset))
            .min(self.head().places.length.into())
    }

    /// The bytes of the first frame from the network header on.
    #[inline]
    pub fn network(&self) -> &[u8] {
        self.data().get(self.network_offset()..).unwrap_or_default()
    }

    /// The bytes of the first frame from the network header on, to write.
    #[inline]
    pub fn network_mut(&mut self) -> &mut [u8] {
        let offset = self.network_offset();
        self.data_mut().get_mut(offset..).unwrap_or_default()
    }

    /// The bytes of the first frame from the transport header on.
    #[inline]
    pub fn transport(&self) -> &[u8] {
        self.data().get(self.transport_offset()..).unwrap_or_default()
    }

    /// Bytes of the packet from the network header on.
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

    /// Gives the packet's one frame away, to a device; returns its number. [`Pool::packet_from_raw`] takes it back.
    ///
    /// # Errors
    /// The packet, when it stands in several frames: [`split`](Self::split) it first.
    #[inline]
    pub fn into_raw(self) -> Result<u32, Packet> {
        if !self.is_linear() {
            return Err(self);
        }
        // SAFETY: owned by this packet, which ends here.
        Ok(unsafe { self.into_head().as_ref() }.index)
    }

    /// Takes the first frame off: the packet of that frame alone, and the rest of the chain.
    ///
    /// # Errors
    /// The packet, when the frame behind the first is shared with a copy: [`make_writable`](Self::make_writable) comes
    /// first.
    pub fn split(mut self) -> Result<(Packet, Option<Packet>), Packet> {
        let Some(rest) = NonNull::new(self.head().next) else { return Ok((self, None)) };
        // SAFETY: in this packet's chain, so alive.
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

    /// Asks the processor to bring the packet's metadata into the cache, some packets before [`prefetch`](Self::prefetch).
    #[inline]
    pub fn prefetch_metadata(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing; any address is allowed.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.head.as_ptr().cast());
        }
    }

    /// Asks the processor to bring the packet's first bytes into the cache.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing; any address is allowed.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(
                self.head().buffer.as_ptr().add(self.head().places.offset.into()).cast(),
            );
        }
    }
}

fn release_chain(mut frame: *mut Frame) {
    // SAFETY: the caller gives up its reference to each frame of the chain; a frame without any left returns to its
    // pool, which lives as long as a frame is in use.
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
