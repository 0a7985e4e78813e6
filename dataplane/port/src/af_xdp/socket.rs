//! AF_XDP socket: bound to one queue of a device, with its four rings and the registered packet memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use millrace_packet::{FRAME_SIZE, Pool};

use super::options::{Bind, Options, ProgramMode, RingSizes};
use super::ring::{Address, ConsumerRing, Descriptor, ProducerRing};
use crate::{PortError, socket_option};

/// Socket option `XDP_MAX_TX_SKB_BUDGET`: maximum number of frames that a call sends in copy mode. It is
/// fixed at 32 before Linux 6.17.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
/// Time for which the port retries to open a queue that is in use. The socket of an ended process holds its
/// queue for up to 50 ms, and longer on a busy machine.
const BUSY_FOR: Duration = Duration::from_secs(1);
const BUSY_STEP: Duration = Duration::from_millis(5);

/// Bound socket and its rings.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) receive: ConsumerRing<Descriptor>,
    pub(super) transmit: ProducerRing<Descriptor>,
    pub(super) fill: ProducerRing<Address>,
    pub(super) completion: ConsumerRing<Address>,
    pub(super) scatter: bool,
    pub(super) zero_copy: bool,
    fd: OwnedFd,
}

impl Socket {
    /// Creates an unbound socket, which needs privileges.
    pub(super) fn create(options: &Options, queue: u32) -> Result<OwnedFd, PortError> {
        let fd = create().map_err(|error| Errors { options, queue }.explain("socket(AF_XDP)", error))?;
        tune(fd.as_fd(), options);
        Ok(fd)
    }

    pub(super) fn open(fd: OwnedFd, pool: &Pool, options: &Options, queue: u32) -> Result<Self, PortError> {
        let errors = Errors { options, queue };
        register_memory(fd.as_fd(), pool)
            .map_err(|error| errors.explain("registering packet memory", error))?;
        size_rings(fd.as_fd(), &options.rings)
            .map_err(|error| errors.explain("setting ring sizes", error))?;
        let offsets =
            socket_option::get::<libc::xdp_mmap_offsets>(fd.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
                .map_err(|error| errors.explain("asking for ring offsets", error))?;
        let (receive, transmit, fill, completion) = map_rings(fd.as_fd(), &options.rings, &offsets)
            .map_err(|error| errors.explain("mapping the rings", error))?;
        let scatter = bind(fd.as_fd(), options, queue).map_err(|error| errors.explain("bind", error))?;
        let zero_copy =
            is_zero_copy(fd.as_fd()).map_err(|error| errors.explain("asking for the mode", error))?;
        Ok(Self { receive, transmit, fill, completion, scatter, zero_copy, fd })
    }

    /// Requests the kernel to send, or to continue receiving, with one system call that never blocks.
    pub(super) fn kick_transmit(&self) -> io::Result<()> {
        // SAFETY: the call passes no buffer and no address.
        let answer =
            unsafe { libc::sendto(self.fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Requests the driver to receive. Necessary with busy polling, or when the driver waits for empty
    /// frames.
    pub(super) fn kick_receive(&self) {
        // Errors are ignored: received frames are in the ring, and the next batch repeats the request.
        // SAFETY: the call passes no buffer and no address.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
    }

    /// Returns the kernel's counters of this socket; zeros if the kernel refuses.
    pub(super) fn statistics(&self) -> libc::xdp_statistics {
        socket_option::get(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS).unwrap_or(NO_STATISTICS)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const NO_STATISTICS: libc::xdp_statistics = libc::xdp_statistics {
    rx_dropped: 0,
    rx_invalid_descs: 0,
    tx_invalid_descs: 0,
    rx_ring_full: 0,
    rx_fill_ring_empty_descs: 0,
    tx_ring_empty_descs: 0,
};

fn create() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just created, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn register_memory(fd: BorrowedFd<'_>, pool: &Pool) -> io::Result<()> {
    let (start, length) = pool.region();
    let region = libc::xdp_umem_reg {
        addr: start.expose_provenance() as u64,
        len: length as u64,
        chunk_size: FRAME_SIZE as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    socket_option::set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)
}

fn size_rings(fd: BorrowedFd<'_>, sizes: &RingSizes) -> io::Result<()> {
    let rings = [
        (libc::XDP_UMEM_FILL_RING, sizes.fill),
        (libc::XDP_UMEM_COMPLETION_RING, sizes.completion),
        (libc::XDP_RX_RING, sizes.receive),
        (libc::XDP_TX_RING, sizes.transmit),
    ];
    rings.into_iter().try_for_each(|(ring, size)| socket_option::set(fd, libc::SOL_XDP, ring, &size))
}

type Rings =
    (ConsumerRing<Descriptor>, ProducerRing<Descriptor>, ProducerRing<Address>, ConsumerRing<Address>);

fn map_rings(fd: BorrowedFd<'_>, sizes: &RingSizes, offsets: &libc::xdp_mmap_offsets) -> io::Result<Rings> {
    Ok((
        ConsumerRing::map(fd, libc::XDP_PGOFF_RX_RING, &offsets.rx, sizes.receive)?,
        ProducerRing::map(fd, libc::XDP_PGOFF_TX_RING, &offsets.tx, sizes.transmit)?,
        ProducerRing::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING as i64, &offsets.fr, sizes.fill)?,
        ConsumerRing::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, &offsets.cr, sizes.completion)?,
    ))
}

/// Sets options that make the socket faster. Ignores errors, because the socket works without them.
fn tune(fd: BorrowedFd<'_>, options: &Options) {
    let _ = socket_option::set(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &options.rings.transmit);
    // In copy mode each frame in transmission counts against the send buffer, which must not be the limit.
    let send_buffer = options.rings.transmit as i32 * 4096;
    let _ = socket_option::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &send_buffer);
    if let Some(busy) = options.busy_poll {
        let values = [
            (libc::SO_PREFER_BUSY_POLL, 1),
            (libc::SO_BUSY_POLL, busy.microseconds as i32),
            (libc::SO_BUSY_POLL_BUDGET, i32::from(busy.budget)),
        ];
        for (name, value) in values {
            let _ = socket_option::set(fd, libc::SOL_SOCKET, name, &value);
        }
    }
}

/// Binds to the queue. Returns whether packets may consist of several memory frames. If binding with several
/// memory frames fails, and the MTU doesn't need them, binds without them.
fn bind(fd: BorrowedFd<'_>, options: &Options, queue: u32) -> io::Result<bool> {
    let copy = match (options.bind, options.program) {
        (Bind::ZeroCopy, _) => libc::XDP_ZEROCOPY,
        (Bind::Copy, _) | (_, ProgramMode::Generic) => libc::XDP_COPY,
        (Bind::Auto, ProgramMode::Native) => 0,
    };
    let flags = copy | libc::XDP_USE_NEED_WAKEUP;
    if options.scatter || options.program == ProgramMode::Generic {
        match bind_patiently(fd, options.ifindex, queue, flags | libc::XDP_USE_SG) {
            Err(error) if is_refusal(&error) && options.mtu <= super::SINGLE_FRAME_MTU => {}
            answer => return answer.map(|()| true),
        }
    }
    bind_patiently(fd, options.ifindex, queue, flags).map(|()| false)
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

fn bind_patiently(fd: BorrowedFd<'_>, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        match bind_once(fd, ifindex, queue, flags) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && waited < BUSY_FOR => {
                std::thread::sleep(BUSY_STEP);
                waited += BUSY_STEP;
            }
            answer => return answer,
        }
    }
}

fn bind_once(fd: BorrowedFd<'_>, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let pointer: *const libc::sockaddr_xdp = &address;
    // SAFETY: `address` is readable for the given size.
    let answer =
        unsafe { libc::bind(fd.as_raw_fd(), pointer.cast(), size_of::<libc::sockaddr_xdp>() as u32) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let options = socket_option::get::<libc::xdp_options>(fd, libc::SOL_XDP, libc::XDP_OPTIONS)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Context that turns the kernel's errors into messages.
struct Errors<'a> {
    options: &'a Options,
    queue: u32,
}

impl Errors<'_> {
    fn explain(&self, call: &'static str, source: io::Error) -> PortError {
        let device = self.options.device.clone();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                PortError::Permission { device, what: "an AF_XDP socket", capability: "CAP_NET_RAW" }
            }
            Some(libc::ENODEV | libc::ENXIO) => PortError::UnknownDevice { device },
            Some(libc::ENETDOWN) => PortError::DeviceDown { device },
            Some(libc::EBUSY) => PortError::Busy { device, holder: self.holder() },
            Some(libc::ENOMEM | libc::ENOBUFS) => PortError::Memory { device, what: call, source },
            Some(libc::EAFNOSUPPORT) => {
                self.unsupported("AF_XDP", "this kernel has no XDP_SOCKETS: use driver af_packet")
            }
            Some(libc::EINVAL) if call == "bind" => {
                PortError::Queue { device, problem: self.refused_queue() }
            }
            Some(libc::EOPNOTSUPP) if self.options.bind == Bind::ZeroCopy => {
                self.unsupported("zero-copy AF_XDP", "use the bind mode auto or copy")
            }
            _ => PortError::Kernel { device, call, source },
        }
    }

    fn holder(&self) -> String {
        format!(
            "another AF_XDP socket is bound to queue {}; stop the program that holds it (`ss --xdp -p` names it)",
            self.queue
        )
    }

    fn refused_queue(&self) -> String {
        let scatter = if self.options.scatter {
            " or does not support multi-buffer XDP, which its MTU needs (Linux 6.6)"
        } else {
            ""
        };
        format!("the kernel refused queue {}: the device has no such queue{scatter}", self.queue)
    }

    fn unsupported(&self, what: &'static str, instead: &str) -> PortError {
        PortError::NotSupported { device: self.options.device.clone(), what, instead: instead.to_owned() }
    }
}
