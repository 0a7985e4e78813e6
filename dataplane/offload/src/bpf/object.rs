//! Compiled programs, embedded in this library, and their loading.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use aya::maps::{Array, Map, MapError};
use aya::programs::{Program, ProgramError, SchedClassifier, SocketFilter, Xdp};
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};

use crate::OffloadError;

pub(crate) static LEVEL0: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/level0.o"));
static LEVEL0_ALONE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/level0_alone.o"));
static HOST_OUTPUT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/host_output.o"));
static SOURCE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/source.o"));
static SEND: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/send.o"));

/// Prefix of all program names in the kernel. By this prefix, a later start of the router recognises programs
/// that an earlier one left.
pub(crate) const NAME_PREFIX: &str = "millrace_";

/// Creates the maps of a port's programs, with an own flow cache, which stays empty. [`load`] then loads each
/// program.
pub(crate) fn level0() -> Result<Ebpf, OffloadError> {
    open("level0", LEVEL0_ALONE, |_| {})
}

/// Creates the maps of a port's programs, with the flow cache whose maps are in `directory`. If the cache
/// does not exist, creates it for `flows` flows in `buckets` buckets.
pub(crate) fn level0_in(directory: &Path, (flows, buckets): (u32, u32)) -> Result<Ebpf, OffloadError> {
    open("level0", LEVEL0, |loader| {
        loader.default_map_pin_directory(directory);
        loader.map_max_entries("cached_flows", flows).map_max_entries("asides", flows);
        loader.map_max_entries("buckets", buckets);
    })
}

/// Creates the maps of the traffic generator.
pub(crate) fn source() -> Result<Ebpf, OffloadError> {
    open("source", SOURCE, |_| {})
}

/// Creates the maps of the program that sends batches.
pub(crate) fn send() -> Result<Ebpf, OffloadError> {
    open("send", SEND, |_| {})
}

/// Creates the maps of the program that redirects host output, the kernel's own packets.
pub(crate) fn host_output() -> Result<Ebpf, OffloadError> {
    open("host_output", HOST_OUTPUT, |_| {})
}

fn open(
    name: &'static str,
    object: &[u8],
    configure: impl FnOnce(&mut EbpfLoader<'_>),
) -> Result<Ebpf, OffloadError> {
    let mut loader = EbpfLoader::new();
    // The programs need no kernel types (BTF), and reading the types would take some 100 ms.
    loader.btf(None).verifier_log_level(VerifierLogLevel::DEBUG);
    configure(&mut loader);
    loader.load(object).map_err(|error| OffloadError::Load { program: name, detail: chain(&error) })
}

/// Loads the program `name` and returns a descriptor of it.
pub(crate) fn load(object: &mut Ebpf, name: &'static str) -> Result<OwnedFd, OffloadError> {
    let failed = |detail: String| OffloadError::Load { program: name, detail };
    let program =
        object.program_mut(name).ok_or_else(|| failed("it is not in the object file".to_owned()))?;
    let loaded = match program {
        Program::Xdp(xdp) => load_once(xdp, Xdp::load, Xdp::fd),
        Program::SchedClassifier(tcx) => load_once(tcx, SchedClassifier::load, SchedClassifier::fd),
        Program::SocketFilter(filter) => load_once(filter, SocketFilter::load, SocketFilter::fd),
        _ => return Err(failed("its section is not of type xdp, tcx or socket".to_owned())),
    };
    loaded.map_err(|error| refused(name, &error))
}

fn load_once<P>(
    program: &mut P,
    load: impl Fn(&mut P) -> Result<(), ProgramError>,
    fd: impl Fn(&P) -> Result<&aya::programs::ProgramFd, ProgramError>,
) -> Result<OwnedFd, ProgramError> {
    match load(program) {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
        Err(error) => return Err(error),
    }
    fd(program)?.as_fd().try_clone_to_owned().map_err(ProgramError::IOError)
}

fn refused(program: &'static str, error: &ProgramError) -> OffloadError {
    match error {
        ProgramError::LoadError { io_error, .. } if io_error.raw_os_error() == Some(libc::EPERM) => {
            let source = std::io::Error::from_raw_os_error(libc::EPERM);
            OffloadError::Permission { what: format!("loading the program {program}"), source }
        }
        _ => OffloadError::Load { program, detail: chain(error) },
    }
}

/// Returns one line with the text of an error and of its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Returns the kernel's id of a program.
pub(crate) fn id_of(program: BorrowedFd<'_>) -> Option<u32> {
    let path = format!("/proc/self/fdinfo/{}", std::os::fd::AsRawFd::as_raw_fd(&program));
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().parse().ok()
}

/// Changes `struct config` with `change`: six bytes of MAC address, then the fallback action.
pub(crate) fn write_config(object: &mut Ebpf, change: impl FnOnce(&mut [u8; 8])) -> Result<(), OffloadError> {
    let failed = |error: MapError| map_error("config", &error);
    let mut map = Array::<_, [u8; 8]>::try_from(map_mut(object, "config")?).map_err(failed)?;
    let mut config = map.get(&0, 0).map_err(failed)?;
    change(&mut config);
    map.set(0, config, 0).map_err(failed)
}

pub(crate) fn map_mut<'a>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Map, OffloadError> {
    object.map_mut(name).ok_or_else(|| missing(name))
}

pub(crate) fn missing(map: &'static str) -> OffloadError {
    OffloadError::Map { map, detail: "it is not in the object file".to_owned() }
}

pub(crate) fn map_error(map: &'static str, error: &MapError) -> OffloadError {
    OffloadError::Map { map, detail: chain(error) }
}
