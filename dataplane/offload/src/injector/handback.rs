//! Frames given back to the kernel, as if a port had just received them.

use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Map, MapData, PerCpuArray, PerCpuValues};

use super::anchor::Anchor;
use super::live_run::{self, MAX_BATCH, check_lengths};
use crate::mapped_map::MappedMap;
use crate::port_programs::map_mut;
use crate::{Attachment, InjectError, OffloadError, PortPrograms, object};

/// Slots of the map `hand_slots`, and bytes of one: a length and a reserved word, then the frame.
const SLOTS: usize = 64;
const SLOT_BYTES: usize = 4096;

/// Hands frames to the kernel as received from a port.
///
/// A port in native mode meets such a frame no more: its program runs before this point. A port in generic mode or an
/// AF_PACKET port does, and would take it again; its frames must go through [`KernelHandback::through`], so that its
/// program knows them. With receive packet steering (`rps_cpus`) on such a port that fails: the frame comes by on
/// another processor, is taken again and must have its TTL to thank for an end.
#[derive(Debug)]
pub struct KernelHandback {
    program: OwnedFd,
    slots: MappedMap,
    cursor: MappedMap,
    /// The map `pending`, where the port meets the frames again.
    again: Option<Map>,
    _anchor: Anchor,
    /// Only when the maps are not a port's.
    _object: Option<Ebpf>,
}

impl KernelHandback {
    /// For ports in native mode, any number of them.
    ///
    /// # Errors
    /// [`InjectError::Program`], also on a kernel older than 5.18.
    pub fn new() -> Result<Self, InjectError> {
        let mut object = object::level0()?;
        let mut handback = Self::with_maps_of(&mut object, false)?;
        handback._object = Some(object);
        Ok(handback)
    }

    /// For the port of `programs` alone, whatever its mode.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn through(programs: &mut PortPrograms) -> Result<Self, InjectError> {
        let again = programs.mode() != Attachment::Native;
        Self::with_maps_of(programs.object_mut(), again)
    }

    fn with_maps_of(object: &mut Ebpf, again: bool) -> Result<Self, InjectError> {
        let program = object::load(object, "millrace_hand")?;
        let anchor = Anchor::hold(program.as_fd())?;
        let slots = MappedMap::new(object, "hand_slots", SLOTS, SLOT_BYTES)?;
        let mut cursor = MappedMap::new(object, "hand_cursor", 1, 8)?;
        cursor.write(4, &u32::from(again).to_ne_bytes());
        let again = if again { Some(pending(object)?) } else { None };
        Ok(Self { program, slots, cursor, again, _anchor: anchor, _object: None })
    }

    /// Gives the kernel `frame`, Ethernet header first, as received from `ifindex` of the calling thread's namespace.
    ///
    /// # Errors
    /// [`InjectError::TooLong`] above what a page holds, [`InjectError::DeviceGone`].
    pub fn hand_back(&mut self, ifindex: u32, frame: &[u8]) -> Result<(), InjectError> {
        self.hand_back_batch(ifindex, &[frame]).map(drop)
    }

    /// Gives the kernel several frames, up to 64 with one system call; returns how many it took. The call lasts until
    /// the kernel has done with them, their forwarding included.
    ///
    /// # Errors
    /// As [`Self::hand_back`]; with [`InjectError::TooLong`] and [`InjectError::TooShort`] none of them was taken.
    pub fn hand_back_batch(&mut self, ifindex: u32, frames: &[&[u8]]) -> Result<usize, InjectError> {
        check_lengths(frames)?;
        let mut taken = 0;
        for part in frames.chunks(SLOTS) {
            taken += self.hand_back_part(ifindex, part)?;
        }
        Ok(taken)
    }

    fn hand_back_part(&mut self, ifindex: u32, frames: &[&[u8]]) -> Result<usize, InjectError> {
        let Some(longest) = frames.iter().max_by_key(|frame| frame.len()) else { return Ok(0) };
        for (slot, frame) in frames.iter().enumerate() {
            // A frame fits a slot: `check_lengths`.
            self.slots.write(slot * SLOT_BYTES, &(frame.len() as u32).to_ne_bytes());
            self.slots.write(slot * SLOT_BYTES + 8, frame);
        }
        self.cursor.write(0, &0_u32.to_ne_bytes());
        let run = live_run::run(self.program.as_fd(), ifindex, longest, frames.len() as u32, MAX_BATCH);
        self.forget_lost()?;
        match run {
            Err(error) if !live_run::was_interrupted(&error) => Err(error),
            _ => Ok(u32::from_ne_bytes(self.cursor.read(0)) as usize),
        }
    }

    /// A frame that the kernel dropped before the port's program saw it again must not let another one pass.
    fn forget_lost(&mut self) -> Result<(), InjectError> {
        let Some(pending) = &mut self.again else { return Ok(()) };
        let mut pending = PerCpuArray::<_, u64>::try_from(pending).map_err(|error| map_error(&error))?;
        let counts = pending.get(&0, 0).map_err(|error| map_error(&error))?;
        if counts.iter().all(|count| *count == 0) {
            return Ok(());
        }
        let zeros =
            PerCpuValues::try_from(vec![0; counts.len()]).map_err(OffloadError::from_io("pending"))?;
        pending.set(0, zeros, 0).map_err(|error| map_error(&error).into())
    }
}

fn pending(object: &mut Ebpf) -> Result<Map, OffloadError> {
    let Map::PerCpuArray(data) = map_mut(object, "pending")? else {
        return Err(OffloadError::Map { map: "pending", detail: "it is no per-processor array".to_owned() });
    };
    let descriptor = data.fd().as_fd().try_clone_to_owned().map_err(OffloadError::from_io("pending"))?;
    MapData::from_fd(descriptor).map(Map::PerCpuArray).map_err(|error| map_error(&error))
}

fn map_error(error: &aya::maps::MapError) -> OffloadError {
    OffloadError::Map { map: "pending", detail: object::chain(error) }
}
