use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket, socketpair};
use nix::unistd::getppid;

use crate::Privileges;

/// `fcntl` commands that choose the process and the signal for a descriptor's signals
/// (`asm-generic/fcntl.h`).
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_PID: libc::c_int = 1;
/// `ioctl` requests that choose the process for a socket's signals (`asm-generic/sockios.h`).
const FIOSETOWN: usize = 0x8901;
const SIOCSPGRP: usize = 0x8902;
const FIOASYNC: usize = 0x5452;

/// Makes a system call; returns its result or its error number.
#[allow(unsafe_code)]
fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<i64, i32> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: callers pass numbers, descriptors of their own, and addresses of values that outlive the call.
    // Values that the kernel writes to are atomic, and as long as the kernel expects.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Err(nix::errno::Errno::last_raw()),
        answer => Ok(answer),
    }
}

fn short(number: libc::c_long, arguments: [usize; 3]) -> Result<i64, i32> {
    let [a, b, c] = arguments;
    call(number, [a, b, c, 0, 0, 0])
}

/// Checks that a thread for files may make a call, and a worker may not.
fn refused_to_workers(name: &str, attempt: impl Fn() -> Result<i64, i32> + Send + Sync) {
    let free = Privileges::Files.apart(&attempt).unwrap();
    assert_ne!(free, Err(libc::EPERM), "{name}: without the rule");
    assert!(free.is_ok() || free == Err(libc::ENOSYS), "{name}: without the rule: {free:?}");
    assert_eq!(Privileges::Memory.apart(&attempt).unwrap(), Err(libc::EPERM), "{name}: with the rule");
}

/// Checks that both a thread for files and a worker may make a call.
fn left_to_workers(name: &str, attempt: impl Fn() -> Result<i64, i32> + Send + Sync) {
    for left in [Privileges::Files, Privileges::Memory] {
        let answer = left.apart(&attempt).unwrap();
        assert!(answer.is_ok(), "{name}: {left:?}: {answer:?}");
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, SockType::Datagram, None, SockFlag::SOCK_NONBLOCK).unwrap()
}

fn number(fd: &impl AsRawFd) -> usize {
    fd.as_raw_fd() as usize
}

fn address<T: ?Sized>(value: &T) -> usize {
    ptr::from_ref(value).cast::<u8>().addr()
}

#[test]
fn a_worker_has_no_other_process_signalled_by_a_descriptor() {
    let (socket, _other) = pair();
    let (fd, other) = (number(&socket), getppid().as_raw() as usize);
    // `struct f_owner_ex`, here for a process.
    let owner = [F_OWNER_PID, getppid().as_raw()];
    let fcntl = |command: libc::c_int, value| short(libc::SYS_fcntl, [fd, command as usize, value]);
    refused_to_workers("F_SETOWN", || fcntl(libc::F_SETOWN, other));
    refused_to_workers("F_SETOWN_EX", || fcntl(F_SETOWN_EX, address(&owner)));
    refused_to_workers("F_SETSIG", || fcntl(F_SETSIG, libc::SIGURG as usize));
    refused_to_workers("O_ASYNC", || fcntl(libc::F_SETFL, (libc::O_NONBLOCK | libc::O_ASYNC) as usize));
    let process = getppid().as_raw();
    for (name, request) in [("FIOSETOWN", FIOSETOWN), ("SIOCSPGRP", SIOCSPGRP)] {
        refused_to_workers(name, || short(libc::SYS_ioctl, [fd, request, address(&process)]));
    }
    let on = 1_i32;
    refused_to_workers("FIOASYNC", || short(libc::SYS_ioctl, [fd, FIOASYNC, address(&on)]));
    left_to_workers("F_SETFL", || fcntl(libc::F_SETFL, libc::O_NONBLOCK as usize));
    left_to_workers("F_GETFD", || fcntl(libc::F_GETFD, 0));
    left_to_workers("FIONBIO", || short(libc::SYS_ioctl, [fd, libc::FIONBIO as usize, address(&on)]));
}

#[test]
fn a_worker_locks_no_file_that_others_wait_for() {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let lock = libc::flock { l_type: libc::F_RDLCK as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    let fcntl =
        |command: libc::c_int| short(libc::SYS_fcntl, [number(&file), command as usize, address(&lock)]);
    refused_to_workers("F_SETLK", || fcntl(libc::F_SETLK));
}

#[test]
fn a_worker_changes_no_setting_of_other_processes() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let other = child.id() as usize;
    // Memory for `struct rlimit64`.
    let limit = [const { AtomicU64::new(0) }; 2];
    let pointer = address(&limit);
    let read_limit =
        |process| call(libc::SYS_prlimit64, [process, libc::RLIMIT_NOFILE as usize, 0, pointer, 0, 0]);
    refused_to_workers("prlimit64", || read_limit(other));
    left_to_workers("its own limits", || read_limit(0));
    let (all, size) = ([u8::MAX; 128], 128);
    let affinity = |process| short(libc::SYS_sched_setaffinity, [process, size, address(&all)]);
    // The test uses a thread id of its own process: for the filter, it is like the id of any other thread.
    // The kernel itself would refuse the call for a process with more capabilities.
    refused_to_workers("sched_setaffinity", || affinity(nix::unistd::gettid().as_raw() as usize));
    left_to_workers("its own affinity", || affinity(0));
    child.kill().unwrap();
    child.wait().unwrap();
    refused_to_workers("setpriority", || short(libc::SYS_setpriority, [0, 0, 19]));
    refused_to_workers("ioprio_set", || short(libc::SYS_ioprio_set, [1, 0, 0]));
    refused_to_workers("PR_SET_PDEATHSIG", || {
        short(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as usize, 0, 0])
    });
    refused_to_workers("PR_SET_CHILD_SUBREAPER", || {
        short(libc::SYS_prctl, [libc::PR_SET_CHILD_SUBREAPER as usize, 0, 0])
    });
    left_to_workers("PR_SET_NAME", || {
        short(libc::SYS_prctl, [libc::PR_SET_NAME as usize, address(c"own"), 0])
    });
    left_to_workers("PR_SET_TIMERSLACK", || short(libc::SYS_prctl, [libc::PR_SET_TIMERSLACK as usize, 1, 0]));
}

#[test]
fn a_worker_makes_threads_and_no_process() {
    let begin = |number, flags: libc::c_int| {
        let made = short(number, [flags as usize, 0, 0])?;
        if made == 0 {
            // In the child process.
            short(libc::SYS_exit_group, [0, 0, 0])?;
        }
        call(libc::SYS_wait4, [made as usize, 0, 0, 0, 0, 0])
    };
    refused_to_workers("clone", || begin(libc::SYS_clone, libc::SIGCHLD));
    #[cfg(target_arch = "x86_64")]
    refused_to_workers("fork", || begin(libc::SYS_fork, 0));
    left_to_workers("a thread", || std::thread::spawn(|| 7).join().map_err(|_| 0));
}

#[test]
fn a_worker_sets_no_filter() {
    // The call only asks whether the kernel knows a filter action.
    let action = libc::SECCOMP_RET_ERRNO;
    let ask = || short(libc::SYS_seccomp, [libc::SECCOMP_GET_ACTION_AVAIL as usize, 0, address(&action)]);
    assert_eq!(Privileges::Files.apart(ask).unwrap(), Ok(0));
    assert_eq!(Privileges::Memory.apart(ask).unwrap(), Err(libc::ENOSYS));
}

#[test]
fn a_worker_has_no_messages_shared_memory_or_timers_with_others() {
    let removed = |made: Result<i64, i32>, control: libc::c_long, arguments: [usize; 3]| {
        let identifier = made?;
        let [second, third, _] = arguments;
        short(control, [identifier as usize, second, third])
    };
    let remove = libc::IPC_RMID as usize;
    let private = libc::IPC_PRIVATE as usize;
    refused_to_workers("shmget", || {
        removed(short(libc::SYS_shmget, [private, 4096, 0o600]), libc::SYS_shmctl, [remove, 0, 0])
    });
    refused_to_workers("msgget", || {
        removed(short(libc::SYS_msgget, [private, 0o600, 0]), libc::SYS_msgctl, [remove, 0, 0])
    });
    refused_to_workers("semget", || {
        removed(short(libc::SYS_semget, [private, 1, 0o600]), libc::SYS_semctl, [0, remove, 0])
    });
    let name = std::ffi::CString::new(format!("millrace-{}", std::process::id())).unwrap();
    // Open the queue for reading: for writing, Landlock would refuse it to file threads, too.
    let flags = (libc::O_CREAT | libc::O_RDONLY) as usize;
    refused_to_workers("mq_open", || {
        let opened = call(libc::SYS_mq_open, [name.as_ptr().addr(), flags, 0o600, 0, 0, 0])?;
        short(libc::SYS_close, [opened as usize, 0, 0])?;
        short(libc::SYS_mq_unlink, [name.as_ptr().addr(), 0, 0])
    });
    let timer = AtomicI32::new(0);
    refused_to_workers("timer_create", || {
        short(libc::SYS_timer_create, [libc::CLOCK_MONOTONIC as usize, 0, address(&timer)])
    });
    for (name, number, arguments) in [
        ("shmat", libc::SYS_shmat, [usize::MAX, 0, 0]),
        ("msgsnd", libc::SYS_msgsnd, [usize::MAX, 0, 0]),
        ("semop", libc::SYS_semop, [usize::MAX, 0, 0]),
        ("mq_timedsend", libc::SYS_mq_timedsend, [usize::MAX, 0, 0]),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, [usize::MAX, 0, 0]),
        ("tkill", libc::SYS_tkill, [0, 0, 0]),
    ] {
        // Without the filter, the kernel refuses these arguments with an error other than EPERM.
        let free = Privileges::Files.apart(|| short(number, arguments)).unwrap();
        assert!(free.is_err_and(|error| error != libc::EPERM), "{name}: {free:?}");
        assert_eq!(
            Privileges::Memory.apart(|| short(number, arguments)).unwrap(),
            Err(libc::EPERM),
            "{name}"
        );
    }
}

#[test]
fn a_worker_gets_no_call_of_the_lists() {
    let processes = [libc::SYS_fork, libc::SYS_vfork];
    for number in super::FILES.iter().chain(super::OTHERS).filter(|number| !processes.contains(number)) {
        // Without the rule, the kernel refuses these invalid arguments with EBADF, EFAULT, EINVAL or ENOSYS.
        let answer = Privileges::Memory.apart(|| call(*number, [usize::MAX; 6])).unwrap();
        assert_eq!(answer, Err(libc::EPERM), "call {number}");
    }
}

#[test]
fn worker_creates_no_socket_and_accepts_no_client() {
    let close = |made: i64| short(libc::SYS_close, [made as usize, 0, 0]);
    let kinds = [
        ("socket(AF_INET)", libc::AF_INET, libc::SOCK_DGRAM),
        ("socket(AF_UNIX)", libc::AF_UNIX, libc::SOCK_DGRAM),
        ("socket(AF_NETLINK)", libc::AF_NETLINK, libc::SOCK_RAW),
    ];
    for (name, family, kind) in kinds {
        refused_to_workers(name, || close(short(libc::SYS_socket, [family as usize, kind as usize, 0])?));
    }
    let both = [const { AtomicI32::new(0) }; 2];
    refused_to_workers("socketpair", || {
        let (family, kind) = (libc::AF_UNIX as usize, libc::SOCK_DGRAM as usize);
        call(libc::SYS_socketpair, [family, kind, 0, address(&both), 0, 0])
    });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // Non-blocking: if the rule is missing, `accept` fails instead of waiting for a client.
    listener.set_nonblocking(true).unwrap();
    refused_to_workers("listen", || short(libc::SYS_listen, [number(&listener), 1, 0]));
    for (name, call) in [("accept", libc::SYS_accept), ("accept4", libc::SYS_accept4)] {
        refused_to_workers(name, || {
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap());
            let accepted = short(call, [number(&listener), 0, 0]);
            drop(client);
            close(accepted?)
        });
    }
}

#[test]
fn a_worker_binds_no_packet_socket_to_another_device() {
    let flags = SockFlag::SOCK_NONBLOCK;
    let Ok(socket) = socket(AddressFamily::Packet, SockType::Raw, flags, None) else {
        assert!(!nix::unistd::geteuid().is_root(), "who is root has such sockets");
        return;
    };
    let loopback = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: 1,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let pointer = address(&loopback);
    let bind = |length| short(libc::SYS_bind, [number(&socket), pointer, length]);
    refused_to_workers("bind", || bind(size_of::<libc::sockaddr_ll>()));
    let short_of = Privileges::Memory.apart(|| bind(size_of::<libc::sockaddr_xdp>())).unwrap();
    assert_eq!(short_of, Err(libc::EINVAL), "an address as long as one of AF_XDP gets to the kernel");
    // Frame to send by the same socket: it leaves by the device in the frame's address.
    let frame = [0_u8; 60];
    refused_to_workers("sendto another device", || {
        let length = size_of::<libc::sockaddr_ll>();
        call(libc::SYS_sendto, [number(&socket), address(&frame), frame.len(), 0, pointer, length])
    });
}

#[test]
fn a_worker_sends_to_no_address_and_sets_no_socket_of_another_family() {
    let to = UdpSocket::bind("127.0.0.1:0").unwrap();
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = to.local_addr().unwrap().port();
    let target = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    let bytes = b"to a stranger";
    let (start, length) = (address(bytes), bytes.len());
    let pointer = address(&target);
    refused_to_workers("sendto", || {
        call(libc::SYS_sendto, [number(&from), start, length, 0, pointer, size_of_val(&target)])
    });
    let (own, _other) = pair();
    left_to_workers("sendto without an address", || {
        call(libc::SYS_sendto, [number(&own), start, length, libc::MSG_DONTWAIT as usize, 0, 0])
    });
    let header: [usize; 7] = [0; 7];
    refused_to_workers("sendmsg", || {
        short(libc::SYS_sendmsg, [number(&own), address(&header), libc::MSG_DONTWAIT as usize])
    });
    let on = 1_i32;
    let set = |level: i32, name: i32| {
        call(
            libc::SYS_setsockopt,
            [number(&from), level as usize, name as usize, address(&on), size_of_val(&on), 0],
        )
    };
    refused_to_workers("setsockopt(SOL_SOCKET)", || set(libc::SOL_SOCKET, libc::SO_REUSEADDR));
    refused_to_workers("setsockopt(IPPROTO_IP)", || set(libc::IPPROTO_IP, libc::IP_TTL));
    let packet = Privileges::Memory.apart(|| set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP)).unwrap();
    assert_eq!(packet, Err(libc::EPERM), "setsockopt(SOL_PACKET)");
    let xdp = Privileges::Memory.apart(|| set(libc::SOL_XDP, libc::XDP_UMEM_REG)).unwrap();
    assert!(xdp.is_err_and(|error| error != libc::EPERM), "an option of AF_XDP: {xdp:?}");
}
