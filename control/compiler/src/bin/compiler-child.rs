//! Compiling process for tests, without the router's binary. Other first arguments select a process that
//! misbehaves on purpose.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use millrace_compiler::child;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match what.as_str() {
        "compile-plugin" => return compile(&rest),
        "escape" => return escape(true),
        "stay" => return escape(false),
        "sleep" => std::thread::sleep(Duration::from_secs(100)),
        "close-and-sleep" => close_and_sleep(),
        "talk" => talk(),
        "write" => write(),
        "abort" => std::process::abort(),
        "fail" => return ExitCode::from(17),
        _ => {}
    }
    ExitCode::SUCCESS
}

fn compile(arguments: &[String]) -> ExitCode {
    match child::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::from(error.code())
        }
    }
}

/// Tries forbidden operations, and reports those that succeed. With `confined`, first confines itself as the
/// compiler does.
fn escape(confined: bool) -> ExitCode {
    let mut wasm = Vec::new();
    let threads = match confined.then(|| child::confine_for_test(1 << 30, 10)).transpose() {
        Ok(threads) => threads,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            return ExitCode::from(error.code());
        }
    };
    let _ = std::io::stdin().read_to_end(&mut wasm);
    let mut worked = Vec::new();
    let mut tried = |what: &str, succeeded: bool| {
        if succeeded {
            worked.push(what.to_owned());
        }
    };
    tried("a file", std::fs::File::open("/etc/passwd").is_ok());
    let by_another = |_: rayon::BroadcastContext<'_>| std::fs::File::open("/etc/passwd").is_ok();
    let opened = threads.map_or_else(|| rayon::broadcast(by_another), |all| all.broadcast(by_another));
    tried("a file, by another thread", opened.contains(&true));
    tried("a directory", std::fs::read_dir("/").is_ok());
    tried("a new file", std::fs::File::create("/tmp/millrace-escape").is_ok());
    tried("UDP", std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
    tried("TCP", std::net::TcpListener::bind("127.0.0.1:0").is_ok());
    tried("a Unix socket", std::os::unix::net::UnixStream::pair().is_ok());
    tried("a process", std::process::Command::new("/bin/true").spawn().is_ok());
    tried("a thread", std::thread::Builder::new().spawn(|| ()).is_ok());
    tried("a signal", nix::sys::signal::kill(nix::unistd::getppid(), None).is_ok());
    tried("executable memory", executable_memory());
    tried("its user", nix::unistd::setuid(nix::unistd::Uid::from_raw(0)).is_ok());
    let _ = std::io::stderr().write_all(worked.join(", ").as_bytes());
    ExitCode::from(child::REFUSED)
}

#[allow(unsafe_code)]
fn executable_memory() -> bool {
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the call maps new memory, which no other code uses.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

fn close_and_sleep() {
    let _ = nix::unistd::close(1);
    let _ = nix::unistd::close(2);
    std::thread::sleep(Duration::from_secs(100));
}

fn talk() {
    let mut error = std::io::stderr().lock();
    while error.write_all(b"\x1b[31mno end ").is_ok() {}
}

fn write() {
    let mut out = std::io::stdout().lock();
    while out.write_all(&[0; 65_536]).is_ok() {}
}
