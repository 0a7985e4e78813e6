//! Tests of streams: captures, traces and drops.

use super::*;

/// Returns a configuration whose port `tape` has received a packet without a route.
fn with_a_drop(directory: &TestDirectory) -> String {
    let udp = "450000200000000040110000c0a80102c633640100350035000c0000";
    let frame = [vec![0x02, 0, 0, 0, 0, 0x11], vec![0x02, 0, 0, 0, 0, 0x22], vec![8, 0], ipv4(udp)].concat();
    let file = directory.join("in.pcap");
    std::fs::write(&file, pcap(&frame)).unwrap();
    format!(
        "[plugins]\nstate = \"none\"\ncache = \"none\"\n[[port]]\nname = \"tape\"\nkind = \"pcap\"\ninput = {:?}\n\
         mac = \"02:00:00:00:00:11\"\naddress = [\"192.168.1.1/24\"]\n",
        file.to_str().unwrap()
    )
}

/// Returns an IPv4 packet with this header, given in hexadecimal, and four bytes of payload. Sets the
/// checksum.
fn ipv4(header: &str) -> Vec<u8> {
    let mut packet: Vec<u8> =
        (0..header.len()).step_by(2).map(|at| u8::from_str_radix(&header[at..at + 2], 16).unwrap()).collect();
    let sum: u32 = packet[..20].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(*b"text");
    packet
}

/// Returns a pcap file with one Ethernet frame.
fn pcap(frame: &[u8]) -> Vec<u8> {
    let head: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    let record = [0, 0, frame.len() as u32, frame.len() as u32];
    let words = head.into_iter().chain(record).flat_map(u32::to_ne_bytes);
    words.chain(frame.iter().copied()).collect()
}

/// Requests a path with an `Accept` header. Returns content type and body of the answer.
async fn ask(server: &Server, path: &str, accept: &str) -> (String, Bytes) {
    let headers = [("accept", accept)];
    let response = request_with(&server.socket(), "GET", path, &headers, Bytes::new()).await;
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    (kind, response.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn drops_come_as_json_and_as_files() {
    let directory = TestDirectory::new();
    let server = Server::with(&with_a_drop(&directory)).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    let packets = loop {
        let (kind, bytes) = ask(&server, "/drops/packets?reason=no_route", "*/*").await;
        assert_eq!(kind, "application/json");
        let packets: Value = serde_json::from_slice(&bytes).unwrap();
        if packets.as_array().is_some_and(|all| !all.is_empty()) {
            break packets;
        }
        assert!(Instant::now() < deadline, "{packets}: {}", server.ask("GET", "/drops", "").await.1);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(packets[0]["port"], "tape", "{packets}");
    let (kind, bytes) = ask(&server, "/drops/packets", "application/x-pcapng").await;
    assert_eq!(kind, "application/x-pcapng");
    let comment = b"dropped: no_route";
    assert!(bytes.windows(comment.len()).any(|part| part == comment), "{}", String::from_utf8_lossy(&bytes));
    assert_eq!(server.ask("GET", "/drops/packets?reason=no_rout", "").await.0, StatusCode::NOT_FOUND);
    server.end().await;
}

#[tokio::test]
async fn a_trace_comes_as_json_as_messages_and_as_a_file() {
    let server = Server::start().await;
    let (kind, bytes) = ask(&server, "/trace?time=1s", "*/*").await;
    assert_eq!((&*kind, &*bytes), ("application/json", &b"[]"[..]));
    let (kind, bytes) = ask(&server, "/trace?time=1s", "text/event-stream").await;
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!((&*kind, &*text), ("text/event-stream", "event: end\ndata: {\"lost\":0,\"packets\":0}\n\n"));
    let (kind, bytes) = ask(&server, "/trace?time=1s", "application/x-pcapng").await;
    assert_eq!((&*kind, &bytes[..4]), ("application/x-pcapng", &[0x0a, 0x0d, 0x0d, 0x0a][..]));
    assert_eq!(server.ask("GET", "/trace?filter=nonsense", "").await.0, StatusCode::BAD_REQUEST);
    server.end().await;
}

#[tokio::test]
async fn a_capture_has_one_place() {
    let server = Server::start().await;
    for (path, status) in [
        ("/capture?port=any&filter=proto+udp&count=3", 200),
        ("/capture?gate=firewall", 200),
        ("/capture?instance=pf", 200),
        ("/capture?port=lan&gate=firewall", 400),
        ("/capture?gate=nowhere", 404),
    ] {
        let response = request(&server.socket(), "GET", path, Bytes::new()).await;
        assert_eq!(response.status(), status, "{path}");
        if status == 200 {
            assert_eq!(response.headers()["content-type"], "application/x-pcapng", "{path}");
        }
    }
    server.end().await;
}

#[tokio::test]
async fn capture_ends_when_its_client_disconnects() {
    let server = Server::start().await;
    let capture = async || request(&server.socket(), "GET", "/capture", Bytes::new()).await;
    let mut captures = Vec::new();
    let refused = loop {
        let answer = capture().await;
        if answer.status() != StatusCode::OK {
            break answer;
        }
        captures.push(answer);
        assert!(captures.len() < 1000, "streams have a bound");
    };
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    captures.pop();
    let deadline = Instant::now() + Duration::from_secs(10);
    while capture().await.status() != StatusCode::OK {
        assert!(Instant::now() < deadline, "the capture goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(captures);
    server.end().await;
}

#[tokio::test]
async fn stopping_ends_captures_and_idle_clients_and_removes_the_socket() {
    let server = Server::start().await;
    let _idle = UnixStream::connect(server.socket()).await.unwrap();
    let capture = request(&server.socket(), "GET", "/capture", Bytes::new()).await;
    let reading = tokio::spawn(capture.into_body().collect());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (socket, began) = (server.socket(), Instant::now());
    server.stop.send(()).unwrap();
    server.task.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let bytes = reading.await.unwrap().unwrap().to_bytes();
    assert_eq!(
        bytes[..4],
        [0x0a, 0x0d, 0x0d, 0x0a],
        "the file's head arrives, and the stream ends as it should"
    );
    assert!(!socket.exists());
    server.control.shutdown().await.unwrap();
}
