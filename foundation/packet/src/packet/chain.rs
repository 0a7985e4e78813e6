//! Chain of memory frames with one owner, and the reference counts by which chains share frames.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::frame::Frame;
use crate::{Annotations, FRAME_SIZE, Pool};

/// Owned chain of one or more memory frames. Only this chain uses its first frame. It may share later frames
/// with other chains, and then only reads them. When the chain ends, it releases its frames.
pub(super) struct Chain {
    head: NonNull<Frame>,
    _one_thread: PhantomData<*mut ()>,
}

impl Chain {
    /// Makes a chain of one frame.
    ///
    /// # Safety
    /// No other code may refer to the frame.
    #[inline]
    pub unsafe fn of_frame(frame: NonNull<Frame>, offset: u16, length: u16) -> Self {
        let mut chain = Self { head: frame, _one_thread: PhantomData };
        let head = chain.head_mut();
        head.next = ptr::null_mut();
        head.references.set(1);
        head.places.offset = offset;
        head.places.length = length;
        head.places.network = offset;
        head.places.transport = offset;
        head.annotations = Annotations::EMPTY;
        chain
    }

    /// Allocates a chain of one frame, which holds no bytes yet; appended bytes will begin at `offset` in the
    /// frame. Returns `None`, and counts the failed request, if all frames are in use.
    #[inline]
    pub fn allocate(pool: &Pool, offset: u16) -> Option<Self> {
        let frame = pool.take()?;
        // SAFETY: the frame was free, so no other code refers to it.
        Some(unsafe { Self::of_frame(frame, offset, 0) })
    }

    /// Returns the first frame.
    #[inline]
    pub fn head(&self) -> &Frame {
        // SAFETY: a chain is the only owner of its first frame.
        unsafe { self.head.as_ref() }
    }

    /// Returns the first frame, mutable.
    #[inline]
    pub fn head_mut(&mut self) -> &mut Frame {
        // SAFETY: a chain is the only owner of its first frame.
        unsafe { self.head.as_mut() }
    }

    /// Returns the address of the first frame's metadata.
    #[inline]
    pub fn address(&self) -> *const Frame {
        self.head.as_ptr()
    }

    /// Iterates over the frames, first to last.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        let mut frame: *const Frame = self.head.as_ptr();
        std::iter::from_fn(move || {
            // SAFETY: the chain's frames live as long as the chain that this iterator borrows.
            let current = unsafe { frame.as_ref() }?;
            frame = current.next;
            Some(current)
        })
    }

    fn last(&mut self) -> *mut Frame {
        let mut frame = self.head.as_ptr();
        // SAFETY: every frame of the chain lives as long as the chain.
        while let Some(next) = NonNull::new(unsafe { (*frame).next }) {
            frame = next.as_ptr();
        }
        frame
    }

    /// Shortens the chain to `length` bytes, if it is longer. Returns `false`, and changes nothing, if the
    /// cut is in a later frame that is shared.
    pub fn truncate(&mut self, length: usize) -> bool {
        let mut left = length;
        let mut frame = self.head;
        loop {
            // SAFETY: `frame` is in this chain, so it is alive; no reference to its fields outlives a
            // statement.
            let current = unsafe { frame.as_ref() };
            let (here, is_own) = (usize::from(current.places.length), current.is_own());
            let next = NonNull::new(current.next);
            match next {
                Some(next) if left > here => (left, frame) = (left - here, next),
                None if left >= here => return true,
                _ if !is_own => return false,
                _ => break,
            }
        }
        // SAFETY: `frame` is in this chain, and only this chain refers to it.
        let current = unsafe { frame.as_mut() };
        current.places.length = current.places.length.min(left as u16);
        release(std::mem::replace(&mut current.next, ptr::null_mut()));
        true
    }

    /// Appends `bytes`, in new frames from `pool` as needed. Returns `false`, and appends nothing, if the
    /// pool has too few frames or the last frame is shared.
    #[inline]
    pub fn append(&mut self, pool: &Pool, bytes: &[u8]) -> bool {
        let own = self.last();
        // SAFETY: the last frame of this chain, so alive.
        let (is_own, before) = unsafe { ((*own).is_own(), (*own).places.length) };
        if !is_own {
            return false;
        }
        let mut rest = bytes;
        // SAFETY: the last frame of this chain, owned by it.
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
            let Some(more) = Self::allocate(pool, 0) else {
                // SAFETY: it was the last frame, owned by this chain; the frames after it are new.
                let own = unsafe { &mut *own };
                own.places.length = before;
                release(std::mem::replace(&mut own.next, ptr::null_mut()));
                return false;
            };
            last.next = more.into_head().as_ptr();
            // SAFETY: just taken from the pool, and owned by this chain now.
            last = unsafe { &mut *last.next };
        }
    }

    /// Appends the frames of `tail`. If other chains share the last frame of this chain, those chains get the
    /// tail too.
    pub fn join(&mut self, tail: Self) {
        // SAFETY: the last frame of this chain, owned by it.
        unsafe { (*self.last()).next = tail.into_head().as_ptr() };
    }

    /// Counts a reference of one more chain to each frame after the first. Returns the second frame; null if
    /// there is none.
    pub fn share_rest(&self) -> *mut Frame {
        for frame in self.frames().skip(1) {
            frame.references.set(frame.references.get() + 1);
        }
        self.head().next
    }

    /// Removes and releases all frames after the first.
    pub fn release_rest(&mut self) {
        release(std::mem::replace(&mut self.head_mut().next, ptr::null_mut()));
    }

    /// Returns whether the second frame is shared or borrowed. If so, all later frames are too.
    pub fn is_second_shared(&self) -> bool {
        self.frames().nth(1).is_some_and(|frame| !frame.is_own())
    }

    /// Copies the bytes of all later frames behind the bytes of the first frame, and releases these frames.
    /// Returns `false`, and changes nothing, if the first frame has too little room.
    pub fn gather(&mut self) -> bool {
        let places = self.head().places;
        let end = usize::from(places.offset) + usize::from(places.length);
        let length: usize = self.frames().skip(1).map(|frame| frame.bytes().len()).sum();
        if end + length > FRAME_SIZE {
            return false;
        }
        let mut to = end;
        for frame in self.frames().skip(1) {
            let bytes = frame.bytes();
            // SAFETY: the bytes fit between `end` and the end of the first frame's buffer, which only this chain
            // uses.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), self.head().buffer.as_ptr().add(to), bytes.len())
            };
            to += bytes.len();
        }
        self.head_mut().places.length += length as u16;
        self.release_rest();
        true
    }

    /// Puts a borrowed frame behind a chain of one frame.
    pub fn attach(&mut self, frame: NonNull<Frame>) {
        debug_assert!(self.head().next.is_null(), "the chain has a second frame");
        self.head_mut().next = frame.as_ptr();
    }

    /// Removes all frames after the first, and returns them as a chain. The second frame must not be shared.
    pub fn take_rest(&mut self) -> Option<Self> {
        debug_assert!(!self.is_second_shared(), "the second frame has several owners");
        let rest = std::mem::replace(&mut self.head_mut().next, ptr::null_mut());
        NonNull::new(rest).map(|head| Self { head, _one_thread: PhantomData })
    }

    /// Ends a chain of one frame without releasing the frame. Returns the frame's number in its pool.
    #[inline]
    pub fn into_index(self) -> u32 {
        // SAFETY: this chain owns the frame, and ends here.
        unsafe { self.into_head().as_ref() }.index
    }

    #[inline]
    fn into_head(self) -> NonNull<Frame> {
        let head = self.head;
        std::mem::forget(self);
        head
    }
}

fn release(mut frame: *mut Frame) {
    // SAFETY: the caller gives up its reference to each frame of the chain. A frame without references
    // returns to its pool, which lives as long as a frame is in use.
    while let Some(current) = unsafe { frame.as_ref() } {
        frame = current.next;
        let left = current.references.get() - 1;
        current.references.set(left);
        if left == 0 {
            // SAFETY: as for the frame: its pool lives as long as a frame is in use.
            unsafe { current.pool.as_ref() }.release(current.index);
        }
    }
}

impl Drop for Chain {
    #[inline]
    fn drop(&mut self) {
        release(self.head.as_ptr());
    }
}
