//! Punt to kernel: delivers frames to the kernel as if a port had just received them.

use std::os::fd::{AsFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Map, MapData, PerCpuArray, PerCpuValues};

use super::anchor::Anchor;
use super::frame_tape::FrameTape;
use super::live_run::check_lengths;
use crate::bpf::object::{self, map_mut};
use crate::{Attachment, InjectError, OffloadError, PortPrograms};

/// Punts frames to the kernel as if a port had received them.
///
/// The program of a port in native mode never sees such a frame, because the driver runs the program before
/// the point of injection. The program of a port in generic mode, or of an AF_PACKET port, sees the frame,
/// and would send it to user space again. So frames of such a port must go through
/// [`KernelHandback::through`], and the program recognises them. Receive packet steering (`rps_cpus`) on such
/// a port prevents this: the frame reaches the program on another processor, where the program doesn't
/// recognise it. Then the frame goes to user space again and again, until its TTL expires.
#[derive(Debug)]
pub struct KernelHandback {
    program: OwnedFd,
    tape: FrameTape,
    /// Map `pending`, if the program of the port sees punted frames again; `None` otherwise.
    again: Option<Map>,
    _anchor: Anchor,
    /// Owner of the maps; `None` if the maps belong to a port's programs.
    _object: Option<Ebpf>,
}

impl KernelHandback {
    /// Creates a hand-back for any number of ports in native mode.
    ///
    /// # Errors
    /// [`InjectError::Program`] if the program can't be loaded, for instance before Linux 5.18.
    pub fn new() -> Result<Self, InjectError> {
        let mut object = object::level0()?;
        let mut handback = Self::with_maps_of(&mut object, false)?;
        handback._object = Some(object);
        Ok(handback)
    }

    /// Creates a hand-back that serves only the port of `programs`, in any mode.
    pub fn through(programs: &mut PortPrograms) -> Result<Self, InjectError> {
        let again = programs.mode() != Attachment::Native;
        Self::with_maps_of(programs.object_mut(), again)
    }

    fn with_maps_of(object: &mut Ebpf, again: bool) -> Result<Self, InjectError> {
        let program = object::load(object, "millrace_hand")?;
        let anchor = Anchor::hold(program.as_fd())?;
        let mut tape = FrameTape::new(object)?;
        tape.set_meets_again(again);
        let again = if again { Some(pending(object)?) } else { None };
        Ok(Self { program, tape, again, _anchor: anchor, _object: None })
    }

    /// Punts `frame`, which begins with the Ethernet header, to the kernel. The frame counts as received from
    /// `ifindex` of the calling thread's namespace.
    ///
    /// # Errors
    /// [`InjectError::TooLong`] or [`InjectError::TooShort`] for a frame of a wrong length,
    /// [`InjectError::DeviceGone`], [`InjectError::Kernel`].
    pub fn hand_back(&mut self, ifindex: u32, frame: &[u8]) -> Result<(), InjectError> {
        check_lengths(&[frame])?;
        self.hand_back_batch(ifindex, &[frame]).map(drop)
    }

    /// Punts several frames to the kernel, up to 256 with one system call. Returns the number of frames that
    /// the kernel took. Skips frames that are too short or too long. The call lasts until the kernel has
    /// processed the frames, including their forwarding.
    pub fn hand_back_batch(&mut self, ifindex: u32, frames: &[&[u8]]) -> Result<usize, InjectError> {
        let mut taken = 0;
        for frame in frames {
            if self.tape.is_full() {
                // Frames of a run that failed are lost; the others go on.
                taken += self.run(ifindex).unwrap_or(0);
            }
            self.tape.put(frame.len(), [*frame]);
        }
        match self.run(ifindex) {
            Ok(last) => Ok(taken + last),
            Err(_) if taken > 0 => Ok(taken),
            Err(error) => Err(error),
        }
    }

    fn run(&mut self, ifindex: u32) -> Result<usize, InjectError> {
        let run = self.tape.run(self.program.as_fd(), ifindex);
        self.forget_lost()?;
        run.map(|taken| taken as usize)
    }

    /// Clears the number of frames that were announced and that the port's program has not seen. The kernel
    /// dropped these frames. Without this call, the program would let other frames pass in their place.
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
        return Err(OffloadError::Map { map: "pending", detail: "it is not a per-CPU array".to_owned() });
    };
    let descriptor = data.fd().as_fd().try_clone_to_owned().map_err(OffloadError::from_io("pending"))?;
    MapData::from_fd(descriptor).map(Map::PerCpuArray).map_err(|error| map_error(&error))
}

fn map_error(error: &aya::maps::MapError) -> OffloadError {
    OffloadError::Map { map: "pending", detail: object::chain(error) }
}
