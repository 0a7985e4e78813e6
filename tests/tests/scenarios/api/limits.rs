//! Attacks on the interface: floods, slow clients, idle connections and huge bodies. Meanwhile the router
//! answers at its Unix socket, forwards, and uses little memory.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use millrace_testkit::{
    Background, Flow, Ground, Line, Millrace, answer_times, eventually, percentile, resident,
};

use crate::support::{routes, to};

/// Duration of each attack.
const TIME: Duration = Duration::from_secs(4);
/// Time limit for 99 of 100 answers at the router's Unix socket.
const PATIENCE: Duration = Duration::from_millis(300);
/// Maximum additional memory of the router, in bytes.
const MEMORY: u64 = 64 << 20;

fn start(line: &Line) -> Millrace {
    start_with(line, "")
}

/// Starts a router as `start` does, with `more` in its configuration.
fn start_with(line: &Line, more: &str) -> Millrace {
    line.r.ip("link set lo up");
    let text = format!(
        "[router]\non-death = \"kernel\"\n[plugins]\nstate = \"{}\"\n[api]\nlisten = [\"127.0.0.1:8443\"]\n\
         [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n\
         [port.scheduler]\nrate = \"1gbit\"\nnode = [{{ name = \"flows\", kind = \"flow-queues\", rate = \"100mbit\" }}]\n\
         [[filter]]\nmatch = \"proto udp dport 9001\"\naction = \"queue flows\"\n{more}",
        line.file("state").display()
    );
    let config = line.write("router.toml", &text);
    Millrace::start(&line.r, &format!("--config {}", config.display()))
}

/// Starts a flow with a reserved rate. The flow sends 1,000 packets of 106 bytes per second, which is 80 % of
/// the reserved rate.
fn reserved_flow(line: &Line, router: &Millrace) -> Flow {
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9001"), 1000, 64);
    let selector = eventually("the flow has a queue", Duration::from_secs(5), || {
        let shown = router.json(&["queue", "show", "wan", "flows"]);
        let mut flows = shown["flows"].as_array()?.iter().filter_map(|flow| flow["flow"].as_str());
        flows.next_back().filter(|selector| selector.contains("dport 9001")).map(str::to_owned)
    });
    router.ask(&["queue", "set", "wan", "flows", "--flow", &selector, "rate=1060kbit"]);
    eventually("its record is reserved", Duration::from_secs(5), || {
        (router.json(&["flow", "list", &selector])["flows"][0]["state"] == "reserved").then_some(())
    });
    flow
}

/// Checks, during an attack, that a plain flow, a reserved flow and requests at the router's socket work
/// within their limits.
fn assert_unmoved(line: &Line, router: &Millrace, what: &str) {
    let pid = router.pid().unsigned_abs();
    // The ping resolves the neighbours before the flows begin.
    line.h1.run("ping -c 2 -i 0.2 -W 2 10.2.0.2");
    let before = resident(pid);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    let reserved = reserved_flow(line, router);
    let times = answer_times(router.socket(), "/status", TIME);
    let grown = resident(pid).saturating_sub(before);
    let report = flow.finish();
    let reserved = reserved.finish();
    assert_eq!((reserved.lost(), reserved.reordered), (0, 0), "{what}: the reserved flow: {reserved:?}");
    assert!(
        report.lost() * 1000 <= report.sent && report.reordered == 0,
        "{what}: the plain flow: {report:?}"
    );
    let late = percentile(&times, 99);
    assert!(late < PATIENCE, "{what}: 99 of 100 answers took up to {late:?}");
    assert!(grown < MEMORY, "{what}: {grown} bytes more");
    println!(
        "{what}: 99 of 100 answers in {late:?}, {} KiB more, {} of {} lost",
        grown >> 10,
        report.lost(),
        report.sent
    );
}

#[test]
fn a_flood_of_requests_over_tls_moves_nothing() {
    let Some(_ground) = Ground::enter_alone(&["wrk"]) else { return };
    let line = Line::new();
    let router = start(&line);
    let token = router.ask(&["token", "create", "wrk", "--role", "viewer"]);
    let header = format!("Authorization: Bearer {}", token.trim());
    for (what, header) in [("with a token", &*header), ("without a token", "X-Nothing: 0")] {
        let words = ["-t1", "-c400", "-d5s", "-H", header, "https://127.0.0.1:8443/status"];
        let mut flood = Background::start(&line.r, "wrk", &words, line.file("wrk.log"));
        assert_unmoved(&line, &router, &format!("a flood {what}"));
        assert!(flood.wait(Duration::from_secs(30)).is_some(), "{}", flood.log());
        assert!(flood.log().contains("requests in"), "{}", flood.log());
    }
    router.assert_conservation();
}

#[test]
fn slow_and_silent_clients_delay_nobody_and_are_closed() {
    let Some(_ground) = Ground::enter_alone(&["curl"]) else { return };
    let line = Line::new();
    let router = start(&line);
    // Connections that send nothing, or a part of a TLS handshake. There are more of them than slots.
    let mute: Vec<TcpStream> = line.r.within(|| {
        let connect = |number: usize| {
            let mut stream = TcpStream::connect("127.0.0.1:8443").expect("a connection");
            if number % 2 == 1 {
                stream.write_all(&[22, 3, 1, 2, 0, 1]).expect("the beginning of a handshake");
            }
            stream
        };
        (0..600).map(connect).collect()
    });
    // At the Unix socket: connections with an incomplete head or body, fewer than there are slots.
    let head = "POST /configuration HTTP/1.1\r\nhost: m\r\ncontent-type: application/json\r\n";
    let slow: Vec<UnixStream> = (0..200)
        .map(|number| {
            let mut stream = UnixStream::connect(router.socket()).expect("a connection");
            let body = if number % 2 == 1 { "content-length: 60000000\r\n\r\n{" } else { "" };
            stream.write_all(format!("{head}{body}").as_bytes()).expect("a part of a request");
            stream
        })
        .collect();
    // A client from another address gets a slot at once. If the client has no token, the router closes its
    // connection.
    let token = router.ask(&["token", "create", "one", "--role", "viewer"]);
    let certificate = line.file("state").join("interface.crt").display().to_string();
    let ask = |from: &str, header: &str| {
        let words = format!("curl -si -m 5 --interface {from} --cacert {certificate} -H '{header}'");
        line.r.try_run(&format!("{words} https://127.0.0.1:8443/status"))
    };
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let heads = [ask("127.0.0.2", &bearer), ask("127.0.0.2", "X-Nothing: 0")]
        .map(|output| String::from_utf8_lossy(&output.stdout).to_ascii_lowercase());
    assert!(heads[0].starts_with("http/1.1 200"), "{heads:?}");
    assert!(!heads[0].contains("connection: close"), "{heads:?}");
    assert!(heads[1].starts_with("http/1.1 401") && heads[1].contains("connection: close"), "{heads:?}");
    assert!(ask("127.0.0.1", &bearer).status.success(), "strangers displace each other");
    assert_unmoved(&line, &router, "clients that don't go on");
    let gone = |stream: &UnixStream| {
        stream.set_nonblocking(true).expect("a socket");
        let mut last = stream;
        let mut read = [0; 512];
        loop {
            match std::io::Read::read(&mut last, &mut read) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    };
    eventually("the slow ones are let go", Duration::from_secs(40), || slow.iter().all(gone).then_some(()));
    drop(mute);
    // Clients from the attacker's address are served again.
    eventually("somebody is answered over TLS", Duration::from_secs(40), || {
        ask("127.0.0.1", &bearer).status.success().then_some(())
    });
}

#[test]
fn bodies_that_are_too_long_are_refused_unread() {
    let Some(_ground) = Ground::enter_alone(&["curl"]) else { return };
    let line = Line::new();
    let router = start(&line);
    let long = line.write("long", &" ".repeat(80 << 20)).display().to_string();
    let socket = router.socket().display().to_string();
    let words = ["-s", "-m", "60", "-w", "%{http_code}", "-o", "/dev/null", "--unix-socket", &*socket];
    let body = format!("@{long}");
    for (path, status) in [("gates", "413"), ("configuration", "413")] {
        let url = format!("http://m/{path}");
        let words = [&words[..], &["--json", &*body, &*url]].concat();
        let mut sent = Background::start(&line.r, "curl", &words, line.file(path));
        assert_unmoved(&line, &router, &format!("a long body to /{path}"));
        assert!(sent.wait(Duration::from_secs(60)).is_some());
        assert_eq!(sent.log().trim(), status, "{path}");
    }
}

#[test]
fn long_answers_delay_nobody() {
    let Some(_ground) = Ground::enter_alone(&["curl"]) else { return };
    let line = Line::new();
    let router = start_with(&line, &routes(10_000));
    // The clients end when the router does.
    let ask = format!(
        "for client in 1 2 3 4 5 6 7 8; do \
           (while curl -s -o /dev/null --unix-socket {} http://x/configuration; do :; done) & \
         done; wait",
        router.socket().display()
    );
    let words = ["30", "bash", "-c", &ask];
    let asking = Background::start(&line.r, "timeout", &words, line.file("asking.log"));
    assert_unmoved(&line, &router, "long answers");
    drop(asking);
    router.assert_conservation();
}
