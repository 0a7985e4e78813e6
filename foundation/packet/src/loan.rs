//! Loans: another thread reads the bytes of packets that stay in this thread's memory.
//!
//! A [`Lender`] keeps each lent packet until its loan has ended. It gives the other thread a [`Loan`], which
//! refers to the packet's bytes. There, a [`Borrower`] makes a packet with a copy of the first bytes, whose second
//! frame refers to the rest. When this packet is dropped, the loan has ended. [`Borrower::ended`] returns it as an
//! [`EndedLoan`], with which the lender releases its packet. Between both threads, loans and ended loans need a
//! channel that orders memory accesses, such as a ring.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::frame::{BORROWED, FRAME_SIZE, Frame, PoolInner};
use crate::places::Places;
use crate::{HEADROOM, Packet, Pool};

/// Minimum length in bytes of lent packets: shorter ones cost less to copy.
const LEAST: usize = 256;
/// Bytes at the front of a lent packet that the borrower's packet has in its first frame, at least.
pub const FRONT: usize = 128;
/// Room for a change of VLAN tags, after which the first frame still has [`FRONT`] bytes.
const TAGS: usize = 16;
/// Bytes at the front of a lent packet that are copied, at most.
pub(crate) const LONGEST_FRONT: usize = 160;
/// Bytes from the start of the transport header on that are copied: a TCP header with all its options.
const TRANSPORT: usize = 60;

/// Reference to bytes of a packet that a [`Lender`] keeps.
#[derive(Debug)]
pub struct Loan {
    lender: u32,
    number: u16,
    length: u16,
    start: NonNull<u8>,
}

// SAFETY: a loan only names bytes. The lender keeps them, and doesn't write them, until it gets the `EndedLoan`
// of this loan. Only a borrower can make one, when no packet refers to the bytes any more.
unsafe impl Send for Loan {}

/// Loan that has ended: no packet of the borrower refers to the lender's packet any more.
#[derive(Debug)]
pub struct EndedLoan {
    lender: u32,
    number: u16,
}

/// Packets lent to another thread.
///
/// When a lender is dropped, the packets of loans that have not ended stay in memory until the process ends.
#[derive(Debug)]
pub struct Lender {
    number: u32,
    kept: Box<[Option<Packet>]>,
    free: Vec<u16>,
}

impl Lender {
    /// Returns a lender of at most `most` packets at a time.
    pub fn new(most: u16) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number, kept: (0..most).map(|_| None).collect(), free: (0..most).rev().collect() }
    }

    /// Returns how many of a packet's first bytes the borrower gets as a copy; `None` if the packet can't be lent,
    /// or isn't worth it.
    #[inline]
    pub fn front_of(&self, packet: &Packet) -> Option<usize> {
        if self.free.is_empty() {
            return None;
        }
        let (length, first) = (packet.len(), packet.data().len());
        if !(LEAST..=FRAME_SIZE - HEADROOM).contains(&length) {
            return None;
        }
        let front = match packet.is_linear() {
            true => (FRONT + TAGS).max(packet.transport_offset() + TRANSPORT),
            false if packet.segments().count() == 2 => first,
            false => return None,
        };
        (front <= LONGEST_FRONT).then_some(front)
    }

    /// Lends a packet's bytes behind the first `front` bytes, a number that [`front_of`](Self::front_of) has
    /// returned for it.
    ///
    /// # Errors
    /// The packet, if it can't be lent.
    pub fn lend(&mut self, packet: Packet, front: usize) -> Result<Loan, Packet> {
        let rest = match packet.is_linear() {
            true => packet.data().get(front..),
            false => packet.frames().nth(1),
        };
        let (Some(rest), Some(number)) = (rest, self.free.pop()) else { return Err(packet) };
        let Some(kept) = self.kept.get_mut(usize::from(number)) else { return Err(packet) };
        let loan = Loan {
            lender: self.number,
            number,
            length: rest.len() as u16,
            start: NonNull::from(rest).cast(),
        };
        *kept = Some(packet);
        Ok(loan)
    }

    /// Releases the packet of an ended loan. Does nothing for a loan of another lender.
    pub fn take_back(&mut self, ended: EndedLoan) {
        let kept = self.kept.get_mut(usize::from(ended.number)).filter(|_| ended.lender == self.number);
        if kept.and_then(Option::take).is_some() {
            self.free.push(ended.number);
        }
    }

    /// Returns the number of packets lent.
    pub fn lent(&self) -> usize {
        self.kept.len() - self.free.len()
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        // The borrower may still read these packets.
        self.kept.iter_mut().for_each(|packet| std::mem::forget(packet.take()));
    }
}

/// Borrower of one lender's packets: metadata of the borrowed frames. It stays in memory until the process ends, since
/// packets, and the [record of a batch](crate::Arrivals), refer to it.
#[derive(Debug)]
pub struct Borrower {
    /// Lender of the first loan, and of all others.
    lender: Option<u32>,
    /// The index of a borrowed frame is the number of its loan. A frame is in the list of free ones if its loan
    /// has ended, and [`ended`](Self::ended) has not returned it.
    inner: NonNull<PoolInner>,
    _one_thread: PhantomData<*mut ()>,
}

impl Borrower {
    /// Returns a borrower for a lender of at most `most` packets at a time.
    pub fn new(most: u16) -> Self {
        let free = UnsafeCell::new(Vec::with_capacity(most.into()));
        let inner =
            PoolInner { region: NonNull::dangling(), frames: Box::new([]), free, exhausted: Cell::new(0) };
        let inner = NonNull::from(Box::leak(Box::new(inner)));
        let frame = |index| {
            UnsafeCell::new(Frame {
                buffer: NonNull::dangling(),
                index: index | BORROWED,
                ..Frame::unused(inner, NonNull::dangling(), 0)
            })
        };
        let frames = (0..u32::from(most)).map(frame).collect();
        // SAFETY: `inner` was just leaked from a box, and no other code refers to it yet.
        unsafe { (*inner.as_ptr()).frames = frames };
        Self { lender: None, inner, _one_thread: PhantomData }
    }

    fn inner(&self) -> &PoolInner {
        // SAFETY: `inner` lives as long as this borrower, and only this thread uses it.
        unsafe { self.inner.as_ref() }
    }

    /// Makes a packet of `front`, copied into a frame of `pool`, and the lent bytes. Returns `None`, and ends the
    /// loan, if the pool has no free frame. A loan of another lender than the first loan never ends.
    pub fn borrow(&mut self, pool: &Pool, front: &[u8], loan: Loan) -> Option<Packet> {
        let Loan { lender, number, length, start } = loan;
        if *self.lender.get_or_insert(lender) != lender {
            return None;
        }
        let mut frame = self.inner().frame(number.into())?;
        let Some(mut packet) = pool.packet_from(front).filter(Packet::is_linear) else {
            self.inner().release(u32::from(number) | BORROWED);
            return None;
        };
        // SAFETY: no packet refers to this frame: its number is that of the loan, which the lender gives to one
        // loan at a time, and a loan can't be used twice.
        let borrowed = unsafe { frame.as_mut() };
        borrowed.buffer = start;
        borrowed.next = ptr::null_mut();
        borrowed.references.set(1);
        borrowed.places = Places { length, ..Places::NONE };
        packet.attach(frame);
        Some(packet)
    }

    /// Returns a loan that has ended, once; `None` if there is none.
    #[inline]
    pub fn ended(&mut self) -> Option<EndedLoan> {
        let index = self.inner().pop()?;
        Some(EndedLoan { lender: self.lender?, number: (index & !BORROWED) as u16 })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use proptest::prelude::*;

    use super::*;

    fn lend(lender: &mut Lender, packet: Packet) -> (Vec<u8>, Loan) {
        let front = lender.front_of(&packet).unwrap();
        let bytes = packet.data()[..front].to_vec();
        (bytes, lender.lend(packet, front).unwrap())
    }

    fn sample(pool: &Pool, length: usize) -> (Vec<u8>, Packet) {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        let packet = pool.packet_from(&bytes).unwrap();
        (bytes, packet)
    }

    #[test]
    fn borrowed_packet_has_the_bytes_and_the_loan_ends_with_it() {
        let (ours, theirs) = (Pool::new(4).unwrap(), Pool::new(4).unwrap());
        let (mut lender, mut borrower) = (Lender::new(2), Borrower::new(2));
        let (bytes, packet) = sample(&ours, 1500);
        let (front, loan) = lend(&mut lender, packet);
        assert_eq!((front.len(), lender.lent(), ours.in_use()), (FRONT + TAGS, 1, 1));
        let borrowed = borrower.borrow(&theirs, &front, loan).unwrap();
        assert_eq!(borrowed.to_vec(), bytes);
        let copy = borrowed.copy(&theirs).unwrap();
        drop(borrowed);
        assert!(borrower.ended().is_none(), "a copy refers to the bytes");
        assert_eq!(copy.to_vec(), bytes);
        drop(copy);
        lender.take_back(borrower.ended().unwrap());
        assert!(borrower.ended().is_none());
        assert_eq!((lender.lent(), ours.in_use(), theirs.in_use()), (0, 0, 0));
    }

    #[test]
    fn borrowed_bytes_are_never_written() {
        let (ours, theirs) = (Pool::new(4).unwrap(), Pool::new(8).unwrap());
        let (mut lender, mut borrower) = (Lender::new(1), Borrower::new(1));
        let (bytes, packet) = sample(&ours, 1000);
        let (front, loan) = lend(&mut lender, packet);
        let mut borrowed = borrower.borrow(&theirs, &front, loan).unwrap();
        assert!(borrowed.is_shared());
        assert!(!borrowed.append(&theirs, b"more") && !borrowed.truncate(500));
        let mut borrowed = borrowed.split().unwrap_err();
        assert!(borrowed.make_writable(&theirs) && borrowed.is_linear() && !borrowed.is_shared());
        assert_eq!((borrowed.to_vec(), theirs.in_use()), (bytes, 1));
        lender.take_back(borrower.ended().unwrap());
        assert_eq!(ours.in_use(), 0);
    }

    #[test]
    fn loan_ends_if_the_borrower_has_no_memory() {
        let (ours, theirs) = (Pool::new(4).unwrap(), Pool::new(1).unwrap());
        let (mut lender, mut borrower) = (Lender::new(1), Borrower::new(1));
        let _full = theirs.allocate().unwrap();
        let (front, loan) = lend(&mut lender, sample(&ours, 300).1);
        assert!(lender.front_of(&sample(&ours, 300).1).is_none(), "all slots are in use");
        assert!(borrower.borrow(&theirs, &front, loan).is_none());
        lender.take_back(borrower.ended().unwrap());
        assert_eq!((lender.lent(), ours.in_use()), (0, 0));
    }

    #[test]
    fn loans_of_another_lender_are_refused() {
        let pool = Pool::new(8).unwrap();
        let (mut one, mut other, mut borrower) = (Lender::new(2), Lender::new(2), Borrower::new(2));
        let (front, loan) = lend(&mut one, sample(&pool, 300).1);
        let borrowed = borrower.borrow(&pool, &front, loan);
        let (front, loan) = lend(&mut other, sample(&pool, 300).1);
        assert!(borrower.borrow(&pool, &front, loan).is_none());
        drop(borrowed);
        let ended = borrower.ended().unwrap();
        other.take_back(EndedLoan { ..ended });
        assert_eq!((one.lent(), other.lent()), (1, 1), "an ended loan is not the other lender's");
    }

    #[test]
    fn packets_that_outlive_lender_and_borrower_keep_their_bytes() {
        let (ours, theirs) = (Pool::new(4).unwrap(), Pool::new(4).unwrap());
        let (mut lender, mut borrower) = (Lender::new(1), Borrower::new(1));
        let (bytes, packet) = sample(&ours, 1500);
        let (front, loan) = lend(&mut lender, packet);
        let borrowed = borrower.borrow(&theirs, &front, loan).unwrap();
        drop((lender, borrower, ours));
        assert_eq!(borrowed.to_vec(), bytes);
    }

    #[test]
    fn headers_are_copied_whole_or_the_packet_is_not_lent() {
        let (pool, lender) = (Pool::new(8).unwrap(), Lender::new(1));
        let mut packet = sample(&pool, 1500).1;
        for (transport, front) in
            [(34, Some(144)), (84, Some(144)), (90, Some(150)), (100, Some(160)), (101, None)]
        {
            packet.set_transport(transport);
            assert_eq!(lender.front_of(&packet), front, "{transport}");
        }
        for (length, is_lent) in [(255, false), (256, true), (1792, true), (1793, false)] {
            assert_eq!(lender.front_of(&sample(&pool, length).1).is_some(), is_lent, "{length}");
        }
    }

    #[test]
    fn packets_cross_threads_and_back_without_a_copy_of_the_rest() {
        let (there, loans) = mpsc::channel::<(Vec<u8>, Loan)>();
        let (back, ended) = mpsc::channel();
        let other = std::thread::spawn(move || {
            let (pool, mut borrower) = (Pool::new(64).unwrap(), Borrower::new(16));
            let mut sums = Vec::new();
            for (front, loan) in loans {
                let packet = borrower.borrow(&pool, &front, loan).unwrap();
                sums.push(packet.to_vec().iter().map(|byte| u64::from(*byte)).sum::<u64>());
                drop(packet);
                back.send(borrower.ended().unwrap()).unwrap();
            }
            sums
        });
        let (pool, mut lender) = (Pool::new(64).unwrap(), Lender::new(16));
        let mut sums = Vec::new();
        for length in (256..1792).step_by(5) {
            while lender.lent() == 16 {
                lender.take_back(ended.recv().unwrap());
            }
            let (bytes, packet) = sample(&pool, length);
            sums.push(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            there.send(lend(&mut lender, packet)).unwrap();
        }
        drop(there);
        assert_eq!(other.join().unwrap(), sums);
        ended.iter().for_each(|ended| lender.take_back(ended));
        assert_eq!((lender.lent(), pool.in_use()), (0, 0));
    }

    proptest! {
        /// Any sequence of loans, copies, changes and releases, also of packets lent on by the borrower, keeps the
        /// bytes of a twin, and all memory comes back.
        #[test]
        fn lent_packets_have_the_bytes_of_their_twins(
            steps in prop::collection::vec((0_u8..7, 0_usize..8, 256_usize..1792), 1..200),
        ) {
            let pools = [0, 1].map(|_| Pool::new(64).unwrap());
            let (mut forth, mut back) = ((Lender::new(4), Borrower::new(4)), (Lender::new(4), Borrower::new(4)));
            let mut here: Vec<(Packet, Vec<u8>, usize)> = Vec::new();
            for (step, at, length) in steps {
                let at = at % here.len().max(1);
                match step {
                    0 | 1 => {
                        let (bytes, packet) = sample(&pools[0], length);
                        here.push((packet, bytes, 0));
                    }
                    2 | 3 if !here.is_empty() => {
                        let (packet, bytes, side) = here.swap_remove(at);
                        let (lender, borrower) = if side == 0 { &mut forth } else { &mut back };
                        match lender.front_of(&packet) {
                            None => here.push((packet, bytes, side)),
                            Some(front) => {
                                let start = packet.data()[..front].to_vec();
                                let loan = lender.lend(packet, front).unwrap();
                                let packet = borrower.borrow(&pools[1 - side], &start, loan).unwrap();
                                here.push((packet, bytes, 1 - side));
                            }
                        }
                    }
                    4 if !here.is_empty() => {
                        let (packet, bytes, side) = &here[at];
                        let copy = packet.copy(&pools[*side]).map(|copy| (copy, bytes.clone(), *side));
                        here.extend(copy);
                    }
                    5 if !here.is_empty() => {
                        let (packet, bytes, side) = &mut here[at];
                        prop_assert!(packet.make_writable(&pools[*side]));
                        packet.data_mut()[0] ^= 0xff;
                        bytes[0] ^= 0xff;
                    }
                    6 if !here.is_empty() => drop(here.swap_remove(at)),
                    _ => {}
                }
                for (lender, borrower) in [&mut forth, &mut back] {
                    while let Some(ended) = borrower.ended() {
                        lender.take_back(ended);
                    }
                }
                here.truncate(24);
                for (packet, bytes, _) in &here {
                    prop_assert_eq!(&packet.to_vec(), bytes);
                }
            }
            here.clear();
            for _ in 0..64 {
                for (lender, borrower) in [&mut forth, &mut back] {
                    while let Some(ended) = borrower.ended() {
                        lender.take_back(ended);
                    }
                }
            }
            prop_assert_eq!((pools[0].in_use(), pools[1].in_use()), (0, 0));
        }
    }
}
