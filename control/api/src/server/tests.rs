use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use millrace_controller::CaptureAt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::catalogue::catalogue;
use crate::test_control::{TestControl, TestDirectory, block};

mod every_operation;
mod noted;
mod words;

/// A server of its own socket.
struct Server<C = TestControl> {
    directory: TestDirectory,
    control: C,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    fn start() -> Self {
        Self::of(TestControl::default())
    }
}

impl<C: Control> Server<C> {
    fn of(control: C) -> Self {
        let directory = TestDirectory::new();
        let local = Listener::bind(&directory.join("r.sock")).unwrap();
        let entrances = Entrances { local, groups: BTreeMap::new(), remote: None };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(start(entrances, control.clone()).unwrap().run(async {
            let _ = stopped.await;
        }));
        Self { directory, control, stop, task }
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("r.sock")
    }

    async fn ask(&self, method: &str, path: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
        let (status, _, value) = self.answer(method, path, body).await;
        (status, value)
    }

    async fn answer(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, hyper::HeaderMap, Value) {
        let response = request(&self.socket(), method, path, body.into()).await;
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        (head.status, head.headers, value)
    }
}

async fn request(socket: &Path, method: &str, path: &str, body: Bytes) -> Response<Incoming> {
    request_with(socket, method, path, &[], body).await
}

async fn request_with(
    socket: &Path,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Response<Incoming> {
    // Who is refused while he still sends may meet a closed connection before he reads why: such a request is made again.
    for _ in 0..100 {
        let stream = UnixStream::connect(socket).await.unwrap();
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "millrace");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        if let Ok(answer) = sender.send_request(request.body(Full::new(body.clone())).unwrap()).await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{method} {path}: the connection is closed each time");
}

#[tokio::test]
async fn every_listed_resource_answers_each_of_its_methods_and_no_other() {
    let server = Server::start();
    let (_, list) = server.ask("GET", "/", "").await;
    let all = catalogue::<TestControl>();
    assert_eq!(list["resources"].as_array().unwrap().len(), all.len());
    for resource in all {
        let methods: Vec<_> = resource.operations.iter().map(|operation| operation.method).collect();
        let path = resource.path.replace("{name}", "x").replace("{id}", "0");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let path = match &*path {
                "/capture" => "/capture?count=1",
                "/rates" => "/rates?hz=10",
                path => path,
            };
            let (status, headers, value) = server.answer(method, path, "").await;
            let taken = methods.contains(&method);
            assert_eq!(status != StatusCode::METHOD_NOT_ALLOWED, taken, "{method} {path}: {status}");
            if !taken {
                let allow = headers["allow"].to_str().unwrap();
                assert!(methods.iter().all(|method| allow.contains(method)), "{path} allows {allow}");
                assert_eq!(value["status"], 405);
            }
        }
    }
}

#[tokio::test]
async fn an_instance_lives_from_post_to_delete() {
    let server = Server::start();
    let new = json!({"plugin": "statistics", "name": "s1", "settings": {"n": 5}}).to_string();
    let (status, instance) = server.ask("POST", "/instances", new.clone()).await;
    assert_eq!((status, &instance["settings"]["n"]), (StatusCode::CREATED, &json!(5)));
    assert_eq!(server.ask("POST", "/instances", new).await.0, StatusCode::CONFLICT);
    assert_eq!(server.ask("GET", "/instances/s1", "").await.1["plugin"], "statistics");
    let message = json!({"message": "read", "arguments": {"a": 1}}).to_string();
    let (status, reply) = server.ask("POST", "/instances/s1/control", message).await;
    assert_eq!((status, reply), (StatusCode::OK, json!({"message": "read", "arguments": {"a": 1}})));
    let message = json!({"message": "read", "slow": true}).to_string();
    let (status, reply) = server.ask("POST", "/instances/s1/control", message).await;
    assert_eq!((status, reply), (StatusCode::OK, json!({"slow": "read", "arguments": {}})));
    let binding = json!({"instance": "s1", "gate": "monitor", "filter": "proto udp"}).to_string();
    let (status, bound) = server.ask("POST", "/bindings", binding.clone()).await;
    assert_eq!((status, &bound["priority"]), (StatusCode::CREATED, &json!(0)));
    assert_eq!(server.ask("GET", "/gates/monitor", "").await.1["bindings"][0]["filter"], "proto udp");
    assert_eq!(server.ask("DELETE", "/bindings", binding.clone()).await.0, StatusCode::OK);
    assert_eq!(server.ask("DELETE", "/bindings", binding).await.0, StatusCode::NOT_FOUND);
    assert_eq!(server.ask("DELETE", "/instances/s1", "").await.0, StatusCode::OK);
    assert_eq!(server.ask("GET", "/instances", "").await.1, json!([]));
}

#[tokio::test]
async fn a_filter_lives_from_post_to_delete() {
    let server = Server::start();
    let new = json!({"match": "proto udp dport 53", "action": "drop", "priority": 3}).to_string();
    let (status, filter) = server.ask("POST", "/filters", new.clone()).await;
    assert_eq!(
        (status, &filter["gate"], &filter["priority"]),
        (StatusCode::CREATED, &json!("route"), &json!(3))
    );
    for _ in 1..4 {
        server.ask("POST", "/filters", new.clone()).await;
    }
    assert_eq!(server.ask("GET", "/filters", "").await.1.as_array().map(Vec::len), Some(4));
    assert_eq!(server.ask("GET", "/filters/2", "").await.1["action"], "drop");
    assert_eq!(server.ask("DELETE", "/filters/2", "").await.1["id"], 2);
    assert_eq!(server.ask("DELETE", "/filters/2", "").await.0, StatusCode::NOT_FOUND);
    let (status, _) = server.ask("DELETE", "/filters", json!({"ids": [0, 2]}).to_string()).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "one of them is gone");
    let (status, gone) = server.ask("DELETE", "/filters", json!({"ids": [0, 3]}).to_string()).await;
    assert_eq!((status, gone.as_array().map(Vec::len)), (StatusCode::OK, Some(2)));
    assert_eq!(server.ask("GET", "/filters", "").await.1[0]["id"], 1);
    let (_, gates) = server.ask("GET", "/filters/explain?packet=src+10.0.0.1+dst+10.0.0.2", "").await;
    assert_eq!(gates[0]["gate"], "src 10.0.0.1 dst 10.0.0.2");
}

#[tokio::test]
async fn a_route_lives_from_post_to_delete() {
    let server = Server::start();
    let new = json!({"to": "10.9.0.0/16", "via": ["10.2.0.2", "10.2.0.3"], "port": "wan"}).to_string();
    let (status, route) = server.ask("POST", "/routes", new).await;
    assert_eq!((status, &route["to"]), (StatusCode::CREATED, &json!("10.9.0.0/16")));
    let told = server.control.routes.lock().unwrap()[0].clone();
    assert_eq!((told.via.len(), told.port.as_deref()), (2, Some("wan")));
    let (status, route) = server.ask("GET", "/routes/lookup?address=10.9.1.1", "").await;
    assert_eq!((status, &route["to"]), (StatusCode::OK, &json!("10.9.0.0/16")));
    let old = json!({"to": "10.9.0.0/16"}).to_string();
    assert_eq!(server.ask("DELETE", "/routes", old.clone()).await.0, StatusCode::OK);
    assert_eq!(server.ask("DELETE", "/routes", old).await.0, StatusCode::CONFLICT);
    assert_eq!(server.ask("GET", "/routes/lookup?address=10.9.1.1", "").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn flows_are_asked_for_in_an_order_and_forgotten() {
    use millrace_controller::FlowOrder;
    let server = Server::start();
    assert_eq!(server.ask("GET", "/flows", "").await.1, json!({"found": 3, "flows": []}));
    server.ask("GET", "/flows?filter=proto+udp&order=recent&limit=7", "").await;
    let asked = server.control.queries.lock().unwrap().clone();
    assert_eq!((asked[0].order, asked[0].limit), (FlowOrder::Bytes, None));
    assert_eq!((asked[1].order, asked[1].limit), (FlowOrder::Recent, Some(7)));
    assert_eq!(asked[1].filter.as_deref(), Some("proto udp"));
    assert_eq!(server.ask("DELETE", "/flows", "").await.1, json!({"flushed": 3}));
    assert_eq!(server.ask("DELETE", "/flows?filter=proto+udp", "").await.1, json!({"flushed": 1}));
}

#[tokio::test]
async fn errors_are_problems_that_say_what_would_be_right() {
    let server = Server::start();
    let large = format!("{{\"packet\": \"{}\"}}", "x".repeat(2 << 20));
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        ("GET", "/statsu", "", 404, "did you mean \"/status\""),
        ("GET", "/ports/lan", "", 404, "no port is named \"lan\"; no ports here"),
        ("GET", "/schedulers/wan", "", 404, "port \"wan\" has no scheduler: `scheduler add wan"),
        ("GET", "/schedulers/nowhere", "", 404, "no port is named \"nowhere\"; ports here: wan"),
        ("GET", "/routes", "", 500, "the mirror has ended"),
        ("POST", "/routes", r#"{"to": "10.9.0.0/16", "vai": []}"#, 400, "did you mean \"via\""),
        ("POST", "/routes", r#"{"to": "10.9.0.0/16", "via": ["10.2.0"]}"#, 400, "IP address"),
        ("POST", "/routes", r#"{"to": "10.9.0.0/16", "kind": "blackhol"}"#, 400, "blackhole"),
        ("DELETE", "/routes", r#"{"to": "10.9.0.0/16"}"#, 409, "bird's"),
        ("GET", "/routes/lookup?adress=10.0.0.1", "", 400, "did you mean \"address\""),
        ("POST", "/filters", r#"{"match": "*", "action": "dorp"}"#, 400, "no action"),
        ("POST", "/filters", r#"{"match": "*", "acton": "drop"}"#, 400, "did you mean \"action\""),
        ("POST", "/filters", r#"{"match": "*"}"#, 400, "lacks the key \"action\""),
        ("DELETE", "/filters/one", "", 400, "no id"),
        ("GET", "/filters/5", "", 404, "no filter has the id 5"),
        ("DELETE", "/filters", r#"{"ids": [-1]}"#, 400, "\"ids[0]\" is -1"),
        ("GET", "/filters/explain", "", 400, "lacks the key \"packet\""),
        ("GET", "/flows?order=size", "", 400, "\"order\": no value here is named \"size\""),
        ("GET", "/flows?limit=x", "", 400, "\"limit\" is no whole number"),
        ("DELETE", "/flows?flter=x", "", 400, "did you mean \"filter\""),
        ("GET", "/flows?colour=red", "", 400, "keys here: filter, order, limit"),
        ("GET", "/ports?filter=lan", "", 400, "no key of this request is named \"filter\"; no keys here"),
        ("GET", "/ports/lan?x", "", 400, "\"x\"; no keys here"),
        ("DELETE", "/counters?ports=lan", "", 400, "\"ports\"; no keys here"),
        ("POST", "/plugins", r#"{"file": "/p.wasm", "allow-downgrade": true}"#, 400, "\"allow_downgrade\""),
        ("POST", "/lookup", "", 400, "no body"),
        ("POST", "/lookup", "{", 400, "EOF"),
        ("POST", "/lookup", "\u{fffd}", 400, "line 1"),
        ("POST", "/lookup", "[]", 400, "has to be an object"),
        ("POST", "/lookup", "{}", 400, "lacks the key \"packet\""),
        ("POST", "/lookup", &large, 413, "1048576 bytes are the most here"),
        ("POST", "/instances", r#"{"plugin": "a", "nmae": "b"}"#, 400, "did you mean \"name\""),
        ("POST", "/instances", r#"{"plugin": "statistic", "name": "b"}"#, 404, "did you mean \"statistics\""),
        ("POST", "/gates", r#"{"name": "g", "position": "odd"}"#, 400, "no position"),
        ("DELETE", "/instances/none", "", 404, "no instance"),
        ("DELETE", "/instances/%ff", "", 400, "UTF-8"),
        (
            "POST",
            "/bindings",
            r#"{"instance":"x","gate":"g","filter":"","priority":1e99}"#,
            400,
            "\"priority\" is 1e",
        ),
        ("PUT", "/ports", "", 405, "/ports does not take PUT"),
        ("POST", "/lookup", r#"["src 10.0.0.1"]"#, 400, "it has to be an object"),
        ("POST", "/routes", "[[]]", 400, "it has to be an object"),
        ("GET", "/bindings?limit=0", "", 400, "1 to 10000"),
        ("GET", "/neighbours?limit=x", "", 400, "limit"),
        ("GET", "/events?kind=link", "", 400, "no kind of event is named \"link\""),
        ("GET", "/audit?last=0", "", 400, "1 to 10000"),
        ("GET", "/rates?hz=11", "", 400, "1 to 10"),
        ("GET", "/plugins/nobody", "", 404, "no plugin"),
        ("GET", "/capture?prot=lan", "", 400, "did you mean \"port\""),
        ("GET", "/capture?snap=-1", "", 400, "snap"),
        ("GET", "/capture?port=nowhere", "", 404, "no port"),
    ];
    for (method, path, body, expected, detail) in cases {
        let (status, headers, problem) = server.answer(method, path, (*body).to_owned()).await;
        assert_eq!(status, *expected, "{method} {path}: {problem}");
        assert_eq!(headers["content-type"], "application/problem+json", "{method} {path}");
        assert_eq!(problem["status"], *expected);
        assert!(problem["title"].is_string() && problem["type"] == "about:blank", "{problem}");
        let text = problem["detail"].as_str().unwrap();
        assert!(text.contains(detail) && !text.contains('\n'), "{method} {path}: {text}");
    }
}

#[tokio::test]
async fn journeys_and_drops_come_as_json_as_messages_and_as_files() {
    let server = Server::start();
    let ask = async |path: &str, accept: &str| {
        let headers = [("accept", accept)];
        let response = request_with(&server.socket(), "GET", path, &headers, Bytes::new()).await;
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        (kind, response.into_body().collect().await.unwrap().to_bytes())
    };
    let (kind, bytes) = ask("/trace?count=2", "*/*").await;
    let packets: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((&*kind, packets[1]["number"].as_u64()), ("application/json", Some(2)));
    let (kind, bytes) = ask("/trace?count=2", "text/event-stream").await;
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!((&*kind, text.matches("event: packet").count()), ("text/event-stream", 2));
    assert!(text.ends_with("event: end\ndata: {\"lost\":0,\"packets\":2}\n\n"), "{text}");
    for (path, comment) in [("/trace", "sent by port wan"), ("/drops/packets", "dropped: no_route")] {
        let (kind, bytes) = ask(path, "application/x-pcapng").await;
        assert_eq!(kind, "application/x-pcapng");
        assert!(bytes.windows(comment.len()).any(|part| part == comment.as_bytes()), "{path}");
    }
    let (_, bytes) = ask("/drops/packets?reason=no_route", "*/*").await;
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap()[0]["reason"], "no_route");
    let refused = request(&server.socket(), "GET", "/drops/packets?reason=no_rout", Bytes::new()).await;
    assert_eq!(refused.status(), 404);
    let refused = request(&server.socket(), "GET", "/trace?filter=nonsense", Bytes::new()).await;
    assert_eq!(refused.status(), 400);
}

#[tokio::test]
async fn a_capture_ends_at_its_count() {
    let server = Server::start();
    let response =
        request(&server.socket(), "GET", "/capture?port=any&filter=proto+udp&count=3", Bytes::new()).await;
    assert_eq!(response.headers()["content-type"], "application/x-pcapng");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let expected = [block(0x0a0d_0d0a, 12), block(6, 16), block(6, 16), block(6, 16)].concat();
    assert_eq!(bytes, expected);
    let asked = server.control.captured.lock().unwrap().remove(0);
    assert_eq!(
        (asked.place, asked.filter.as_deref(), asked.snap),
        (CaptureAt::Anywhere, Some("proto udp"), 65_535)
    );
    let refused = request(&server.socket(), "GET", "/capture?port=lan&gate=firewall", Bytes::new()).await;
    assert_eq!(refused.status(), 400);
}

#[tokio::test]
async fn a_capture_ends_when_its_client_goes() {
    let server = Server::start();
    let mut client = UnixStream::connect(server.socket()).await.unwrap();
    client.write_all(b"GET /capture HTTP/1.1\r\nhost: m\r\n\r\n").await.unwrap();
    let mut some = [0; 400];
    client.read_exact(&mut some).await.unwrap();
    assert_eq!(server.control.captures.load(Ordering::SeqCst), 1);
    drop(client);
    let deadline = Instant::now() + Duration::from_secs(5);
    while server.control.captures.load(Ordering::SeqCst) > 0 {
        assert!(Instant::now() < deadline, "the capture goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn stopping_ends_captures_and_idle_clients_and_removes_the_socket() {
    let server = Server::start();
    let _idle = UnixStream::connect(server.socket()).await.unwrap();
    let capture = request(&server.socket(), "GET", "/capture", Bytes::new()).await;
    let reading = tokio::spawn(capture.into_body().collect());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let socket = server.socket();
    let began = Instant::now();
    server.stop.send(()).unwrap();
    server.task.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let bytes = reading.await.unwrap().unwrap().to_bytes();
    assert!(bytes.len() > 12, "what was captured arrives, and the stream ends as it should");
    assert!(!socket.exists());
    assert_eq!(server.control.captures.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn nonsense_on_the_socket_harms_no_other_client() {
    let server = Server::start();
    let mut client = UnixStream::connect(server.socket()).await.unwrap();
    client.write_all(&[0xff; 4096]).await.unwrap();
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await;
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 400"));
    assert_eq!(server.ask("GET", "/status", "").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_configuration_is_applied_in_the_name_of_who_sent_it() {
    let server = Server::start();
    // Longer than any other request may be.
    let text = "# a comment\n".repeat(200_000);
    let body = json!({"text": text, "origin": "router.toml", "comment": "why", "confirm": "60s"}).to_string();
    let (status, value) = server.ask("POST", "/configuration", body).await;
    assert_eq!((status, &value["revision"], &value["confirm"]), (StatusCode::OK, &json!(1), &json!("1m")));
    let (_, who) = server.control.applied.lock().unwrap()[0].clone();
    assert_eq!(who.uid, Some(nix::unistd::geteuid().as_raw()));
    let (status, value) =
        server.ask("POST", "/configuration/rollback", r#"{"revision": 7, "comment": "back"}"#).await;
    assert_eq!((status, &value["origin"]), (StatusCode::OK, &json!("")));
    assert_eq!(server.control.applied.lock().unwrap()[1].0.text, "revision 7");
    let (status, _) = server.ask("POST", "/configuration", r#"{"txt": ""}"#).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, value) = server.ask("POST", "/configuration/diff", r#"{}"#).await;
    assert_eq!((status, &value["origin"]), (StatusCode::OK, &json!("base")));
    assert_eq!(server.ask("POST", "/configuration/confirm", "").await.0, StatusCode::CONFLICT);
    assert_eq!(server.ask("GET", "/revisions/3", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(server.ask("GET", "/revisions/three", "").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_list_is_done_whole_or_each_wrong_entry_is_named() {
    let server = Server::start();
    let list = json!([{"to": "10.9.0.0/16", "port": "lan"}, {"to": "10.10.0.0/16", "port": "lan"}]);
    let (status, answer) = server.ask("POST", "/routes", list.to_string()).await;
    assert_eq!((status, answer), (StatusCode::CREATED, json!({"added": 2})));
    let list = json!([{"to": "10.9.0.0/16"}, {"to": "10.10.0.0/16"}]);
    let (status, answer) = server.ask("DELETE", "/routes", format!(" {list}")).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"removed": 2})));

    let list = json!([{"to": "10.9.0.0/16"}, {"too": "10.9.0.0/16"}, {"to": "10.9.0.0/16", "via": ["x"]}, 7]);
    let (status, answer) = server.ask("POST", "/routes", list.to_string()).await;
    assert_eq!((status, &answer["wrong"]), (StatusCode::BAD_REQUEST, &json!(3)));
    let errors = answer["errors"].as_array().unwrap();
    assert_eq!(errors.iter().map(|error| error["entry"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(errors[0]["detail"].as_str().unwrap().contains("did you mean \"to\"?"), "{answer}");
    assert!(server.control.routes.lock().unwrap().is_empty(), "nothing was added");

    let list = json!([{"match": "*", "action": "drop"}, {"match": "proto udp", "action": "drop"}]);
    let (status, answer) = server.ask("POST", "/filters", list.to_string()).await;
    assert_eq!((status, answer), (StatusCode::CREATED, json!({"added": 2, "ids": [1, 2], "shadowed": []})));
    let list = json!([{"match": "*", "action": "drop"}, {"match": "*", "action": "sing"}]);
    let (status, answer) = server.ask("POST", "/filters", list.to_string()).await;
    assert_eq!((status, &answer["errors"][0]["entry"]), (StatusCode::BAD_REQUEST, &json!(1)));
}

#[tokio::test]
async fn a_list_may_be_longer_than_other_requests() {
    let server = Server::start();
    let list: Vec<Value> = (0..40_000).map(|_| json!({"to": "10.9.0.0/16", "port": "lan"})).collect();
    let body = Value::from(list).to_string();
    assert!(body.len() > 1 << 20);
    assert_eq!(server.ask("POST", "/routes", body.clone()).await.1, json!({"added": 40_000}));
    assert_eq!(server.ask("POST", "/bindings", body).await.0, StatusCode::PAYLOAD_TOO_LARGE);
}

/// A request with a body of so many bytes, of which the last is not sent.
async fn almost_sent(socket: &Path, length: usize) -> UnixStream {
    let mut client = UnixStream::connect(socket).await.unwrap();
    let head = format!("POST /routes HTTP/1.1\r\nhost: m\r\ncontent-length: {length}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&vec![b' '; length - 1]).await.unwrap();
    client
}

#[tokio::test]
async fn a_body_that_is_said_to_be_too_long_is_refused_before_it_comes() {
    let server = Server::start();
    for (path, length) in [("/instances", (1 << 20) + 1), ("/configuration", (64 << 20) + 1)] {
        let mut client = UnixStream::connect(server.socket()).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: m\r\ncontent-length: {length}\r\nexpect: 100-continue\r\n\r\n"
        );
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413");
    }
}

#[tokio::test]
async fn long_bodies_share_a_memory_and_short_ones_get_through() {
    let server = Server::start();
    let socket = server.socket();
    let third = || request(&socket, "POST", "/routes", vec![b' '; 1 << 20].into());
    let deadline = Instant::now() + Duration::from_secs(30);
    let (waiting, refused) = loop {
        let waiting = [almost_sent(&socket, 64 << 20).await, almost_sent(&socket, 64 << 20).await];
        let answer = third().await;
        if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
            break (waiting, answer);
        }
        // It came before the end of the second, which is refused instead.
        assert!(Instant::now() < deadline, "{}", answer.status());
    };
    assert_eq!(refused.headers()["retry-after"], "1");
    let short = json!({"plugin": "statistics", "name": "s1"}).to_string();
    assert_eq!(server.ask("POST", "/instances", short).await.0, StatusCode::CREATED);
    drop(waiting);
    let deadline = Instant::now() + Duration::from_secs(5);
    while third().await.status() != StatusCode::BAD_REQUEST {
        assert!(Instant::now() < deadline, "what has gone takes no memory");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_is_said_to_be_no_json_is_not_read() {
    let server = Server::start();
    for (kind, expected) in [
        ("application/json", 404),
        ("application/json; charset=utf-8", 404),
        ("application/merge-patch+json", 404),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("", 415),
    ] {
        let headers = [("content-type", kind)];
        let body = r#"{"plugin": "nothing", "name": "x"}"#;
        let response = request_with(&server.socket(), "POST", "/instances", &headers, body.into()).await;
        assert_eq!(response.status(), expected, "{kind}");
    }
}

#[tokio::test]
async fn a_change_is_made_only_where_the_tag_holds() {
    let server = Server::start();
    let new = json!({"plugin": "statistics", "name": "s1", "settings": {"n": 5}}).to_string();
    server.ask("POST", "/instances", new).await;
    let (_, headers, _) = server.answer("GET", "/instances/s1", "").await;
    let tag = headers["etag"].to_str().unwrap().to_owned();
    let free = async |tag: &str| {
        let headers = [("if-match", tag)];
        let response =
            request_with(&server.socket(), "DELETE", "/instances/s1", &headers, Bytes::new()).await;
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let (status, headers, problem) = free("\"0\"").await;
    assert_eq!((status, headers["etag"].to_str().unwrap()), (412, &*tag));
    assert_eq!(problem["current"]["name"], "s1");
    // What is counted doesn't count; what is bound does.
    let binding = json!({"instance": "s1", "gate": "monitor", "filter": "proto udp"}).to_string();
    server.ask("POST", "/bindings", binding).await;
    assert_eq!(free(&format!("\"1\", {tag}")).await.0, 200);
    assert_eq!(free("*").await.0, 404);
}

#[tokio::test]
async fn who_has_what_there_is_is_not_sent_it_again() {
    let server = Server::start();
    let new = json!({"plugin": "statistics", "name": "s1"}).to_string();
    server.ask("POST", "/instances", new).await;
    let (_, headers, _) = server.answer("GET", "/instances/s1", "").await;
    let tag = headers["etag"].to_str().unwrap().to_owned();
    let get = async |path: &str, known: &str| {
        let headers = [("if-none-match", known)];
        let response = request_with(&server.socket(), "GET", path, &headers, Bytes::new()).await;
        let (head, body) = response.into_parts();
        let told = head.headers.get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        (head.status.as_u16(), told, body.collect().await.unwrap().to_bytes().is_empty())
    };
    let is_known = (304, Some(tag.clone()), true);
    for known in [tag.clone(), format!("\"0\", W/{tag}"), "*".to_owned()] {
        assert_eq!(get("/instances/s1", &known).await, is_known, "{known}");
    }
    assert_eq!(get("/instances/s1", "\"0\"").await, (200, Some(tag), false));
    assert_eq!(get("/instances/s2", "*").await.0, 404);
    assert_eq!(get("/ports", "*").await, (200, None, false), "a list has no tag");
}

#[tokio::test]
async fn a_body_is_refused_where_it_would_not_be_read() {
    let server = Server::start();
    let mut count = 0;
    for resource in catalogue::<TestControl>() {
        let path = resource.path.replace("{id}", "1").replace(['{', '}'], "");
        for operation in resource.operations.iter().filter(|one| one.body.is_none()) {
            let (status, problem) = server.ask(operation.method, &path, r#"{"revision": 12345}"#).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{} {path}: {problem}", operation.method);
            let text = problem["detail"].as_str().unwrap();
            assert!(text.contains(&format!("{} {path} takes no body", operation.method)), "{text}");
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
    // One that is read has to be what is asked for.
    let (status, problem) = server.ask("POST", "/configuration/confirm", r#"{"revison": 1}"#).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(problem["detail"].as_str().unwrap().contains("did you mean \"revision\""), "{problem}");
    let confirmed = server.ask("POST", "/configuration/confirm", r#"{"revision": 1}"#).await.0;
    assert_eq!(confirmed, StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_tag_is_refused_where_it_would_not_be_looked_at() {
    let server = Server::start();
    for resource in catalogue::<TestControl>() {
        let path = resource.path.replace("{id}", "1").replace(['{', '}'], "");
        for operation in resource.operations.iter().filter(|one| one.method != "GET" && !one.tagged) {
            let headers = [("if-match", "\"1\"")];
            let answer =
                request_with(&server.socket(), operation.method, &path, &headers, Bytes::new()).await;
            let (head, body) = answer.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let problem: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(head.status.as_u16(), 412, "{} {path}: {problem}", operation.method);
            assert!(problem["detail"].as_str().unwrap().contains("leave it out"), "{problem}");
        }
    }
}

#[tokio::test]
async fn a_list_comes_in_pages_that_lead_to_each_other() {
    let server = Server::start();
    let new = json!({"match": "proto udp dport 53", "action": "drop"}).to_string();
    for _ in 0..5 {
        server.ask("POST", "/filters", new.clone()).await;
    }
    let (mut path, mut ids) = ("/filters?limit=2".to_owned(), Vec::new());
    loop {
        let (_, headers, page) = server.answer("GET", &path, "").await;
        ids.extend(page.as_array().unwrap().iter().map(|filter| filter["id"].as_u64().unwrap()));
        let Some(link) = headers.get("link") else { break };
        path = link.to_str().unwrap().strip_suffix(">; rel=\"next\"").unwrap()[1..].to_owned();
    }
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    assert!(path.contains("limit=2") && path.contains("cursor=3"), "{path}");
}

#[tokio::test]
async fn the_description_names_every_operation_and_every_reference_leads_somewhere() {
    let server = Server::start();
    let (status, description) = server.ask("GET", "/openapi.json", "").await;
    assert_eq!((status, &description["openapi"]), (StatusCode::OK, &json!("3.1.0")));
    for resource in catalogue::<TestControl>() {
        for operation in resource.operations {
            let described = &description["paths"][resource.path][operation.method.to_lowercase()];
            assert_eq!(described["summary"], operation.summary, "{} {}", operation.method, resource.path);
            assert!(described["responses"][operation.status.to_string()].is_object());
        }
    }
    let text = description.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(description.pointer(pointer).is_some(), "{pointer}");
    }
}

#[tokio::test]
async fn without_memory_only_what_takes_none_is_done_until_there_is_some() {
    let server = Server::start();
    let body = json!({"plugin": "statistics", "name": "i1"}).to_string();
    *server.control.room.lock().unwrap() = Some(body.len() - 1);
    let (status, headers, problem) = server.answer("POST", "/instances", body.clone()).await;
    assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE, "{problem}");
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(headers["retry-after"], "2");
    assert_eq!((&problem["status"], &problem["detail"]), (&json!(507), &json!("memory is short")));
    assert_eq!(server.ask("GET", "/instances", "").await.0, StatusCode::OK);
    // A room of nothing at all.
    *server.control.room.lock().unwrap() = Some(0);
    let (status, _, problem) = server.answer("POST", "/instances", body.clone()).await;
    assert_eq!(
        (status, &problem["title"]),
        (StatusCode::INSUFFICIENT_STORAGE, &json!("Insufficient Storage"))
    );
    *server.control.room.lock().unwrap() = None;
    assert_eq!(server.ask("POST", "/instances", body).await.0, StatusCode::CREATED);
}
