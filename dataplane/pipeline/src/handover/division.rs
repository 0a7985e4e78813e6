//! Division of the parcels to another worker among principals.
//!
//! A class of packets may have as many bytes under way as parcels have room left (dynamic thresholds: Choudhury and
//! Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998). So however much one class sends,
//! others find room: when `n` classes flood a slow worker, each has a part of `1 / (n + 1)`, and as much stays free. A
//! class gets its room back when the other worker returns the parcel.

use millrace_packet::Packet;
use millrace_units::{PrincipalId, QueueId};

use super::Errand;

/// Room in bytes that plain packets leave to packets for the kernel: a parcel.
const KERNEL_ROOM: usize = 32 << 10;
/// Greatest number of a principal with a class of its own.
const MOST_PRINCIPALS: u32 = 1 << 20;

/// Packets that share a part of the parcels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// Packets that nobody pays for, without a queue at their port.
    Plain,
    /// Packets that nobody pays for, with a queue.
    Queued,
    /// Packets for the kernel whose bindings and filters name no principal.
    Kernel,
    /// Packets that a principal pays for.
    Of(PrincipalId),
}

impl Class {
    /// Returns the class of a packet with an errand, of the principal that pays for it.
    #[inline]
    pub fn of(errand: Errand, packet: &Packet, payer: Option<PrincipalId>) -> Self {
        match payer {
            Some(payer) if payer.0 < MOST_PRINCIPALS => Self::Of(payer),
            _ if errand == Errand::Host => Self::Kernel,
            _ if packet.queue != QueueId(0) => Self::Queued,
            _ => Self::Plain,
        }
    }
}

/// Load of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HandoverLoad {
    /// Bytes under way.
    pub bytes: u64,
    /// Packets that found no room.
    pub dropped: u64,
}

/// Bytes of a class in a parcel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    class: Class,
    bytes: u32,
}

/// Bytes under way to another worker, by class.
#[derive(Debug, Default)]
pub(super) struct Division {
    plain: HandoverLoad,
    queued: HandoverLoad,
    kernel: HandoverLoad,
    /// Loads by number of the principal.
    principals: Vec<HandoverLoad>,
    /// Whether a packet has had a queue or a principal. Before, only packets for the kernel need room beside plain ones.
    is_divided: bool,
}

impl Division {
    /// Whether a record of a class finds room, with `free` bytes left.
    #[inline]
    pub fn admits(&mut self, class: Class, length: usize, free: usize) -> bool {
        if class == Class::Plain && !self.is_divided {
            return free > KERNEL_ROOM;
        }
        self.load(class).bytes + length as u64 <= free as u64
    }

    /// Counts a record of a class, the latest one of a parcel.
    #[inline]
    pub fn add(&mut self, class: Class, bytes: u32, parts: &mut Vec<Part>) {
        self.load(class).bytes += u64::from(bytes);
        match parts.last_mut() {
            Some(part) if part.class == class => part.bytes += bytes,
            _ => parts.push(Part { class, bytes }),
        }
    }

    /// Counts a packet that found no room.
    #[cold]
    pub fn refuse(&mut self, class: Class) {
        self.load(class).dropped += 1;
    }

    /// Gives the classes of a returned parcel their room back.
    #[inline]
    pub fn take_back(&mut self, parts: &mut Vec<Part>) {
        for Part { class, bytes } in parts.drain(..) {
            self.load(class).bytes -= u64::from(bytes);
        }
    }

    /// Returns the load of a principal.
    pub fn load_of(&self, principal: PrincipalId) -> HandoverLoad {
        self.principals.get(principal.0 as usize).copied().unwrap_or_default()
    }

    /// Forgets the lost packets of a principal.
    pub fn forget(&mut self, principal: PrincipalId) {
        self.principals.get_mut(principal.0 as usize).into_iter().for_each(|load| load.dropped = 0);
    }

    #[inline]
    fn load(&mut self, class: Class) -> &mut HandoverLoad {
        self.is_divided |= matches!(class, Class::Queued | Class::Of(_));
        match class {
            Class::Plain => &mut self.plain,
            Class::Queued => &mut self.queued,
            Class::Kernel => &mut self.kernel,
            Class::Of(PrincipalId(number)) => {
                let place = number as usize;
                if place >= self.principals.len() {
                    self.reserve(place);
                }
                // Can't fail: there is room for the principal.
                self.principals.get_mut(place).unwrap_or(&mut self.queued)
            }
        }
    }

    /// Makes room for principals up to a number. Numbers are given without gaps, so this happens once for each principal
    /// at most.
    #[cold]
    fn reserve(&mut self, place: usize) {
        self.principals.resize(place + 1, HandoverLoad::default());
    }
}
