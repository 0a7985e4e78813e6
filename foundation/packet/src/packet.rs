//! Packet: an owned chain of memory frames with header offsets and annotations.

mod allocate;
mod chain;
mod prefetch;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use self::chain::Chain;
use crate::frame::Frame;
use crate::opened::{Opened, Start};
use crate::{Annotations, Pool};

/// Owned packet. Dereferences to its annotations.
///
/// [`data`](Self::data) returns the bytes of the first frame. Header offsets are stored relative to the
/// frame's memory, so they stay valid when bytes are added or removed in front.
pub struct Packet {
    chain: Chain,
}

impl Packet {
    /// Returns the address of the first frame's metadata.
    #[inline]
    pub(crate) fn head_address(&self) -> *const Frame {
        self.chain.address()
    }

    /// Returns the bytes of the first frame.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.chain.head().bytes()
    }

    /// Returns the bytes of the first frame, mutable.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let head = self.chain.head_mut();
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
        if self.is_linear() {
            self.chain.head().places.length.into()
        } else {
            self.frames().map(<[u8]>::len).sum()
        }
    }

    /// Returns whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the packet consists of one frame.
    #[inline]
    pub fn is_linear(&self) -> bool {
        self.chain.head().next.is_null()
    }

    /// Iterates over the bytes of each frame, first to last.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.frames().map(Frame::bytes)
    }

    /// Iterates over the frames of the chain as a device needs them: number in the pool, offset and length.
    pub fn segments(&self) -> impl Iterator<Item = (u32, u16, u16)> + '_ {
        self.chain.frames().map(|frame| (frame.index, frame.places.offset, frame.places.length))
    }

    /// Returns the number of free bytes before the first byte.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.chain.head().places.offset.into()
    }

    /// Adds `count` bytes of undefined content in front, and returns the bytes of the first frame, mutable.
    /// Returns `None`, and changes nothing, if the headroom is too small.
    #[inline]
    #[must_use]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.headroom() {
            return None;
        }
        let head = self.chain.head_mut();
        head.places.offset -= count as u16;
        head.places.length += count as u16;
        Some(self.data_mut())
    }

    /// Removes `count` bytes from the front. Returns `false`, and changes nothing, if the first frame has
    /// fewer bytes.
    #[inline]
    #[must_use]
    pub fn trim_front(&mut self, count: usize) -> bool {
        let head = self.chain.head_mut();
        if count > usize::from(head.places.length) {
            return false;
        }
        head.places.offset += count as u16;
        head.places.length -= count as u16;
        true
    }

    /// Shortens the packet to `length` bytes, if it is longer. Returns `false`, and changes nothing, if the
    /// cut is in a later frame that is shared with a copy; call [`make_writable`](Self::make_writable) first.
    #[inline]
    #[must_use]
    pub fn truncate(&mut self, length: usize) -> bool {
        if self.is_linear() {
            let head = self.chain.head_mut();
            head.places.length = length.min(head.places.length.into()) as u16;
            true
        } else {
            self.chain.truncate(length)
        }
    }

    /// Makes the packet linear: copies the bytes of its later frames into its first frame. Returns `false`, and
    /// changes nothing, if they don't fit. The bytes of a borrowed frame fit, unless bytes were appended to the
    /// packet.
    #[inline]
    pub fn gather(&mut self) -> bool {
        self.is_linear() || self.chain.gather()
    }

    /// Replaces frames that are shared with copies, or borrowed, by frames of this packet alone. Returns `false`,
    /// and changes nothing, if the pool has too few frames.
    pub fn make_writable(&mut self, pool: &Pool) -> bool {
        if !self.is_shared() || self.chain.gather() {
            return true;
        }
        let Some(mut own) = pool.allocate() else { return false };
        for bytes in self.frames().skip(1) {
            if !own.append(pool, bytes) {
                return false;
            }
        }
        self.chain.release_rest();
        self.chain(own);
        true
    }

    /// Appends `bytes`, in new frames from `pool` as needed. Returns `false`, and appends nothing, if the
    /// pool has too few frames or the last frame is shared with a copy. In the latter case, call
    /// [`make_writable`](Self::make_writable) first.
    #[must_use]
    pub fn append(&mut self, pool: &Pool, bytes: &[u8]) -> bool {
        self.chain.append(pool, bytes)
    }

    /// Appends the frames of `tail`, for packets that a device delivers in several frames. The last frame of
    /// this packet must not be shared; otherwise the copies of this packet would get the tail too.
    pub fn chain(&mut self, tail: Packet) {
        self.chain.join(tail.chain);
    }

    /// Copies up to `into.len()` bytes of the packet, from `offset` on, into `into`. Returns the number of
    /// copied bytes.
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

    /// Makes a copy of the packet with the same bytes and annotations, except the trace number. The copy owns
    /// its first frame. Packet and copy share the later frames, which become read-only. Returns `None` if the
    /// pool has no free frame.
    pub fn copy(&self, pool: &Pool) -> Option<Packet> {
        let mut copy = pool.allocate()?;
        let (from, to) = (self.chain.head(), copy.chain.head_mut());
        to.places.offset = from.places.offset;
        to.places.length = from.places.length;
        to.places.network = from.places.network;
        to.places.transport = from.places.transport;
        to.annotations = Annotations { trace: 0, ..from.annotations };
        to.next = self.chain.share_rest();
        copy.data_mut().copy_from_slice(self.data());
        Some(copy)
    }

    /// Sets the start of the network header to `offset` bytes from the first byte. An offset beyond the first
    /// frame's bytes is reduced to their end.
    #[inline]
    pub fn set_network(&mut self, offset: usize) {
        let head = self.chain.head_mut();
        head.places.network = head.places.offset + offset.min(head.places.length.into()) as u16;
    }

    /// Sets the start of the transport header to `offset` bytes from the first byte. An offset beyond the
    /// first frame's bytes is reduced to their end.
    #[inline]
    pub fn set_transport(&mut self, offset: usize) {
        let head = self.chain.head_mut();
        head.places.transport = head.places.offset + offset.min(head.places.length.into()) as u16;
    }

    /// Returns the first `COUNT` bytes, the annotations and the length of a packet. Returns `None` unless the
    /// packet is a single frame of at least `COUNT` bytes and its network header begins at byte `NETWORK`.
    #[inline(always)]
    pub fn start_mut<const NETWORK: u16, const COUNT: usize>(&mut self) -> Option<Start<'_, COUNT>> {
        let head = self.chain.head_mut();
        let is_so = head.next.is_null() && head.places.network == head.places.offset + NETWORK;
        if is_so { self.first_mut() } else { None }
    }

    /// Returns the first `COUNT` bytes and the length of the first frame, and the packet's annotations.
    /// Returns `None` if the frame is shorter.
    #[inline(always)]
    pub fn first_mut<const COUNT: usize>(&mut self) -> Option<Start<'_, COUNT>> {
        let head = self.chain.head_mut();
        let length = usize::from(head.places.length);
        if length < COUNT {
            return None;
        }
        // SAFETY: the frame has `COUNT` bytes from its offset on, the first frame is not shared, and its
        // metadata is elsewhere.
        let bytes = unsafe { head.buffer.add(head.places.offset.into()).cast::<[u8; COUNT]>().as_mut() };
        Some(Start { bytes, annotations: &mut head.annotations, length })
    }

    /// Opens the packet: its first frame can be read, and then one write sets its header offsets.
    #[inline(always)]
    pub fn open(&mut self) -> Opened<'_> {
        let head = self.chain.head_mut();
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
        usize::from(self.chain.head().places.network.saturating_sub(self.chain.head().places.offset))
            .min(self.chain.head().places.length.into())
    }

    /// Returns the offset of the transport header, in bytes from the first byte.
    #[inline]
    pub fn transport_offset(&self) -> usize {
        usize::from(self.chain.head().places.transport.saturating_sub(self.chain.head().places.offset))
            .min(self.chain.head().places.length.into())
    }

    /// Returns the bytes of the first frame from the network header on.
    #[inline]
    pub fn network(&self) -> &[u8] {
        self.data().get(self.network_offset()..).unwrap_or_default()
    }

    /// Returns the bytes of the first frame from the network header on, mutable.
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

    /// Gives the packet's only frame to a device, and returns its number in the pool.
    /// [`Pool::packet_from_raw`] takes the frame back.
    ///
    /// # Errors
    /// The packet, if it has several frames; call [`split`](Self::split) first.
    #[inline]
    pub fn into_raw(self) -> Result<u32, Packet> {
        if !self.is_linear() {
            return Err(self);
        }
        Ok(self.chain.into_index())
    }

    /// Splits off the first frame. Returns a packet of that frame alone, and the rest of the chain.
    ///
    /// # Errors
    /// The packet, if its second frame is shared with a copy or borrowed; call
    /// [`make_writable`](Self::make_writable) first.
    pub fn split(mut self) -> Result<(Packet, Option<Packet>), Packet> {
        if self.chain.is_second_shared() {
            return Err(self);
        }
        let rest = self.chain.take_rest();
        Ok((self, rest.map(|chain| Packet { chain })))
    }

    /// Returns whether any frame is shared with a copy or borrowed, and thus read-only.
    pub fn is_shared(&self) -> bool {
        self.chain.frames().any(|frame| !frame.is_own())
    }

    /// Puts a borrowed frame behind the packet's only frame.
    pub(crate) fn attach(&mut self, frame: NonNull<Frame>) {
        self.chain.attach(frame);
    }
}

impl Deref for Packet {
    type Target = Annotations;

    #[inline]
    fn deref(&self) -> &Annotations {
        &self.chain.head().annotations
    }
}

impl DerefMut for Packet {
    #[inline]
    fn deref_mut(&mut self) -> &mut Annotations {
        &mut self.chain.head_mut().annotations
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes, {:?})", self.len(), **self)
    }
}
