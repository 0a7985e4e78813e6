//! Callers without a role: they can't lock out authorised callers, and the router gives a reason for each
//! refusal.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use millrace_testkit::{Ground, Line, Millrace};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use std::os::fd::{AsRawFd, OwnedFd};

/// Starts a router that serves TLS, where members of the group `daemon` are operators.
fn start(line: &Line) -> Millrace {
    line.r.ip("link set lo up");
    let text = format!(
        "[router]\non-death = \"kernel\"\n[plugins]\nstate = \"{}\"\n\
         [api]\nlisten = [\"127.0.0.1:8443\"]\ngroups = {{ daemon = \"operator\" }}\n\
         [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n",
        line.file("state").display()
    );
    let config = line.write("router.toml", &text);
    Millrace::start(&line.r, &format!("--config {}", config.display()))
}

/// Opens a connection to the router from an address of the loopback device, and sends nothing.
fn mute(from: [u8; 4]) -> TcpStream {
    let stream =
        socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    let stream: OwnedFd = stream;
    let [a, b, c, d] = from;
    bind(stream.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0)).expect("an address");
    connect(stream.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 8443)).expect("a connection");
    TcpStream::from(stream)
}

#[test]
fn mute_connections_from_sixteen_addresses_keep_no_token_out() {
    let Some(_ground) = Ground::enter(&["curl"]) else { return };
    let line = Line::new();
    let router = start(&line);
    let token = router.ask(&["token", "create", "one", "--role", "viewer"]);
    let mute: Vec<TcpStream> = line
        .r
        .within(|| (1..=16).flat_map(|address| (0..64).map(move |_| mute([127, 0, 1, address]))).collect());
    let certificate = line.file("state").join("interface.crt").display().to_string();
    let answer = line.r.run(&format!(
        "curl -s -m 3 -o /dev/null -w %{{http_code}} --interface 127.0.0.77 --cacert {certificate} \
         -H 'Authorization: Bearer {}' https://127.0.0.1:8443/status",
        token.trim()
    ));
    assert_eq!(answer.trim(), "200");
    drop(mute);
    let refused = line.r.run(&format!(
        "curl -si -m 3 -X DELETE --cacert {certificate} -H 'Authorization: Bearer {}' https://127.0.0.1:8443/counters",
        token.trim()
    ));
    let refused = refused.to_ascii_lowercase();
    assert!(refused.starts_with("http/1.1 403") && refused.contains("connection: close"), "{refused}");
}

#[test]
fn a_user_without_a_role_keeps_no_member_of_a_group_out() {
    let Some(_ground) = Ground::enter(&["curl", "setpriv", "python3"]) else { return };
    let line = Line::new();
    let router = start(&line);
    // When the socket's queue is full, connections are refused for a moment.
    let holds = "import socket, sys, time\nheld = []\nfor _ in range(300):\n    one = socket.socket(socket.AF_UNIX)\n    \
                 try: one.connect(sys.argv[1])\n    except OSError: time.sleep(0.02)\n    held.append(one)\n\
                 print(len(held), flush=True)\ntime.sleep(20)\n";
    let as_user = |user: &str| {
        let mut command = Command::new("setpriv");
        // Other users may not be allowed to run the first matching program in root's PATH.
        command.env("PATH", "/usr/bin:/bin").args(["--reuid", user, "--regid", user, "--clear-groups"]);
        command
    };
    let mut stranger = as_user("65534")
        .args(["python3", "-c", holds])
        .arg(router.socket())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("setpriv");
    let mut told = [0; 16];
    let read = stranger.stdout.as_mut().expect("its output").read(&mut told).expect("a number");
    assert!(read > 0);
    let mut member = as_user("1");
    member
        .args(["curl", "-s", "-m", "3", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket"])
        .arg(router.socket());
    let answer = member.arg("http://m/status").output().expect("curl");
    stranger.kill().expect("it runs");
    stranger.wait().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "200");
}

/// Sends a request in pieces with pauses in between. Returns the status of the answer.
fn status(router: &Millrace, pieces: &[&[u8]]) -> String {
    let mut stream = UnixStream::connect(router.socket()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    for piece in pieces {
        stream.write_all(piece).expect("the router still reads");
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[9..]).into_owned()
}

#[test]
fn a_head_of_more_than_16_kib_gets_431() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = start(&line);
    let head = |bytes: usize| format!("GET /status HTTP/1.1\r\nhost: m\r\nx: {}\r\n\r\n", "a".repeat(bytes));
    assert_eq!(status(&router, &[head(8 << 10).as_bytes()]), "200");
    assert_eq!(status(&router, &[head(20 << 10).as_bytes()]), "431");
    assert_eq!(status(&router, &[head(300 << 10).as_bytes()]), "431");
}

#[test]
fn client_that_sends_its_body_after_the_refusal_reads_the_reason() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = start(&line);
    let head = b"POST /lookup HTTP/1.1\r\nhost: m\r\ncontent-type: application/json\r\ncontent-length: 4000000\r\n\r\n";
    let piece = [b'x'; 50_000];
    assert_eq!(status(&router, &[head, &piece, &piece, &piece]), "413");
}
