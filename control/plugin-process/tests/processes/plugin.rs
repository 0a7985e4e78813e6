//! Plugin in C for the tests, and its instances.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant as Clock};

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin::native::Form;
use millrace_plugin::process::{ProcessPlugin, START};
use millrace_plugin_abi::{Fault, Instance, Instant, Message, Packets, Plugin, Progress, Verdict};
use millrace_plugin_process::{ChildCommand, ProcessGroups, ProcessKeeper};
use millrace_units::PortId;
use serde_json::{Map, Value};

/// Plugin whose packets with a first byte of 1 crash it, of 2 hang it, of 3 make it tamper with its memory, of 4 end it,
/// and of 5 make it sleep for ever. On the message `try`, it tries forbidden system calls, and replies with the numbers
/// of those that succeed. With `SAVE`, it saves a state in so many milliseconds, and restores the state. With `SERVE`,
/// its constructor serves the worker and never returns. An executable without libraries also tries to execute another
/// program.
const CODE: &str = r##"
#define _GNU_SOURCE
#include "millrace.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"test\",\"version\":\"1.0.0\",\"summary\":\"For tests.\",\"positions\":[\"early\"],\"messages\":{\"try\":\"forbidden calls\"}}");
static char early[200];
__attribute__((constructor)) static void at_start(void) {
    int written = open("/tmp/millrace-process-test", O_CREAT | O_WRONLY, 0600);
    void *much = mmap(0, 2UL << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct rlimit limit = {64, 64};
    snprintf(early, sizeof early, "%d %d %d %d %d %d %d %d %d %d", written >= 0, socket(AF_INET, SOCK_DGRAM, 0) >= 0,
        syscall(SYS_fork) >= 0, open("/proc/1/status", O_RDONLY) >= 0, open("/proc/self/maps", O_RDONLY) >= 0,
        much != MAP_FAILED, syscall(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0) >= 0,
        syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, 0) >= 0, syscall(SYS_memfd_create, "more", 0) >= 0,
        open("/etc/passwd", O_RDONLY) >= 0);
#ifdef HANG
    for (;;) __asm__ volatile("");
#endif
#ifdef SERVE
    millrace_serve();
#endif
}
static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}
int32_t millrace_init(const uint8_t *settings, size_t bytes) {
    (void)settings, (void)bytes;
#ifdef SLOW
    for (long begun = now(); now() < begun + 1000;) __asm__ volatile("");
#endif
    return 0;
}
void millrace_packets(struct millrace_call *call) {
    for (uint32_t i = 0; i < call->count; i++) {
        struct millrace_packet *packet = millrace_packet(call, i);
        switch (((uint8_t *)packet->window)[0]) {
        case 1: __builtin_trap();
        case 2: for (;;) __asm__ volatile("");
        case 4: _exit(0);
        case 5: for (int word = 0;;) syscall(SYS_futex, &word, 0, 0, 0, 0, 0);
        case 3: memset((char *)((uint64_t)packet & ~0xfffULL) - 0xc000, 0xee, 0x1000); break;
        }
    }
}
#ifdef SAVE
static uint8_t state[1 << 20];
int32_t millrace_save(void) {
    for (long begun = now(); now() < begun + SAVE;) __asm__ volatile("");
    for (size_t i = 0; i < sizeof state; i++) state[i] = i;
    return millrace_reply((const char *)state, sizeof state);
}
int32_t millrace_restore(const uint8_t *saved, size_t bytes, uint32_t version) {
    (void)version;
    for (size_t i = 0; i < bytes; i++)
        if (saved[i] != (uint8_t)i) return 1;
    return bytes == sizeof state ? 0 : 2;
}
#endif
int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {
    (void)name, (void)name_bytes, (void)arguments, (void)bytes;
    char reply[400];
    char *none[1] = {0};
    void *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
#ifdef STATIC
    syscall(SYS_execveat, -1, "/bin/true", none, none, 0);
#endif
    syscall(SYS_execve, "/bin/true", none, none);
    int n = snprintf(reply, sizeof reply, "{\"early\":\"%s\",\"worked\":\"%d%d%d%d%d%d%d%d%d%d%d%d%d\"}", early,
        open("/etc/passwd", O_RDONLY) >= 0, open("/tmp/millrace-process-test", O_CREAT | O_WRONLY, 0600) >= 0,
        open("/proc/1/status", O_RDONLY) >= 0, syscall(SYS_ptrace, 0, 0, 0, 0) >= 0, syscall(SYS_prctl, 1, 0, 0, 0, 0) >= 0,
        socket(AF_UNIX, SOCK_STREAM, 0) >= 0, syscall(SYS_fork) >= 0,
        kill(getppid(), 0) == 0, syscall(SYS_clone, 0x100 | 0x10000 | 0x800, 0, 0, 0, 0) >= 0,
        mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED, setuid(0) == 0,
        madvise(shared, 4096, MADV_REMOVE) == 0, madvise(shared, 4096, MADV_DONTNEED) == 0);
    return millrace_reply(reply, n);
}
"##;

pub const FORMS: [Form; 3] = [Form::Object, Form::Static, Form::Dynamic];

pub fn plugin(form: Form) -> Option<ProcessPlugin> {
    plugin_in(&ProcessGroups::default(), form)
}

pub fn plugin_in(groups: &ProcessGroups, form: Form) -> Option<ProcessPlugin> {
    let plugin = confined(&code(form, &[])?, groups, START);
    assert_eq!(plugin.form(), form);
    Some(plugin)
}

/// Compiles the plugin with further arguments.
pub fn code(form: Form, arguments: &[&str]) -> Option<Vec<u8>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("process-{}-{number}.c", std::process::id()));
    let built = source.with_extension("so");
    std::fs::write(&source, CODE).unwrap();
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-w", "-I", "../../sdk/c"]).args(match form {
        Form::Object => ["-shared", "-fPIC"].as_slice(),
        Form::Static => &["-static-pie", "-fPIE", "-DMILLRACE_EXECUTABLE", "-DSTATIC"],
        Form::Dynamic => &["-pie", "-fPIE", "-DMILLRACE_EXECUTABLE"],
    });
    command.args(arguments).arg("-o");
    let Ok(output) = command.arg(&built).arg(&source).output() else {
        println!("skipped: there is no cc");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(&built).unwrap();
    std::fs::remove_file(source).unwrap();
    std::fs::remove_file(built).unwrap();
    Some(bytes)
}

/// Prepares a plugin whose processes are confined, and ready within `start`.
pub fn confined(bytes: &[u8], groups: &ProcessGroups, start: Duration) -> ProcessPlugin {
    let program = env!("CARGO_BIN_EXE_plugin-process-child").into();
    let child = ChildCommand { program, arguments: Vec::new(), start };
    let keeper = ProcessKeeper::start(child).unwrap().in_groups(groups);
    ProcessPlugin::new(bytes, Arc::new(keeper)).unwrap()
}

/// Instance with a call of one packet.
pub struct Bench {
    pub instance: Box<dyn Instance>,
    pub pool: Pool,
}

impl Bench {
    pub fn new(plugin: &ProcessPlugin) -> Self {
        let instance = plugin.create(&Map::new()).map_err(|error| error.to_string()).unwrap();
        Self { instance, pool: Pool::new(64).unwrap() }
    }

    /// Sends a packet with this first byte. Aborts the call after `most`.
    pub fn send(&mut self, first: u8, most: Duration) -> (Verdict, Option<Fault>) {
        self.send_and_abort(first, most, |_| {})
    }

    /// Sends a packet as [`send`](Self::send) does, and shows the instance before it aborts the call.
    pub fn send_and_abort(
        &mut self,
        first: u8,
        most: Duration,
        mut show: impl FnMut(&dyn Instance),
    ) -> (Verdict, Option<Fault>) {
        let mut packets: [Packet; 1] = [self.pool.packet_from(&[first; 60]).unwrap()];
        let key = FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (1, 2), PortId(0));
        let mut verdicts = [Verdict::Pass];
        let keys = [key];
        let mut call = Packets::new(&mut packets, &keys, &[0], &mut verdicts);
        let (begun, mut progress) = (Clock::now(), self.instance.process(&mut call, Instant::ZERO));
        while progress != Progress::Done {
            if begun.elapsed() > most {
                show(&*self.instance);
                self.instance.abort();
                return (Verdict::Fault, self.instance.take_fault());
            }
            progress = self.instance.resume(&mut call, Instant::ZERO);
        }
        (verdicts[0], self.instance.take_fault())
    }

    pub fn ask(&mut self) -> Value {
        let message = Message { name: "try".to_owned(), arguments: Map::new() };
        self.instance.control(&message).unwrap()
    }
}
