use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use millrace_config::Config;
use millrace_controller::{MemoryGuard, StartOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::catalogue::catalogue;
use crate::test_directory::TestDirectory;

mod bodies;
mod every_operation;
mod lists;
mod noted;
mod promises;
mod resources;
mod streams;
mod words;

/// Configuration with ports, and with one object of each changeable kind.
const CONFIG: &str = include_str!("../../../controller/src/operation/tests/router.toml");

/// Router with its API at a Unix socket of the test.
struct Server {
    directory: TestDirectory,
    control: Router,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a router with ports in memory.
    async fn start() -> Self {
        Self::with(CONFIG).await
    }

    /// Starts a router with a configuration.
    async fn with(config: &str) -> Self {
        let config = Config::parse(config, "test.toml").unwrap();
        Self::of(millrace_controller::start(config, StartOptions::default()).await.unwrap())
    }

    fn of(control: Router) -> Self {
        let directory = TestDirectory::new();
        let local = Listener::bind(&directory.join("r.sock")).unwrap();
        let entrances = Entrances { local, groups: BTreeMap::new(), remote: None };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(start(entrances, control.clone()).unwrap().run(async {
            let _ = stopped.await;
        }));
        Self { directory, control, stop, task }
    }

    async fn end(self) {
        self.control.shutdown().await.unwrap();
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
    // The router may refuse a request that the client still sends. The client may then see a closed
    // connection instead of the answer. In this case, repeat the request.
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
async fn nonsense_on_the_socket_harms_no_other_client() {
    let server = Server::start().await;
    let mut client = UnixStream::connect(server.socket()).await.unwrap();
    client.write_all(&[0xff; 4096]).await.unwrap();
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await;
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 400"));
    assert_eq!(server.ask("GET", "/status", "").await.0, StatusCode::OK);
    server.end().await;
}

/// Simulated free memory in bytes, for the test of a memory shortage.
static ROOM: AtomicUsize = AtomicUsize::new(usize::MAX);

#[tokio::test]
async fn memory_shortage_refuses_only_operations_that_allocate() {
    let server = Server::start().await;
    let has_room = |bytes| bytes <= ROOM.load(Ordering::SeqCst);
    server.control.guard_memory(MemoryGuard { has_room, recover: || true });
    let body = json!({"plugin": "statistics", "name": "i1"}).to_string();
    // A body needs several bytes of memory for each of its bytes.
    ROOM.store(body.len(), Ordering::SeqCst);
    let (status, headers, problem) = server.answer("POST", "/instances", body.clone()).await;
    assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE, "{problem}");
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(headers["retry-after"], "2");
    assert_eq!((&problem["status"], &problem["title"]), (&json!(507), &json!("Insufficient Storage")));
    assert!(problem["detail"].as_str().unwrap().starts_with("memory is short"), "{problem}");
    assert_eq!(server.ask("GET", "/instances", "").await.0, StatusCode::OK);
    ROOM.store(usize::MAX, Ordering::SeqCst);
    assert_eq!(server.ask("POST", "/instances", body).await.0, StatusCode::CREATED);
    server.end().await;
}
#[tokio::test]
async fn the_description_names_every_operation_and_every_reference_leads_somewhere() {
    let server = Server::start().await;
    let (status, description) = server.ask("GET", "/openapi.json", "").await;
    assert_eq!((status, &description["openapi"]), (StatusCode::OK, &json!("3.1.0")));
    for resource in catalogue() {
        for endpoint in resource.endpoints {
            let described = &description["paths"][resource.path][endpoint.method.to_lowercase()];
            assert_eq!(described["summary"], endpoint.summary, "{} {}", endpoint.method, resource.path);
            assert!(described["responses"][endpoint.status.to_string()].is_object());
        }
    }
    let text = description.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(description.pointer(pointer).is_some(), "{pointer}");
    }
    server.end().await;
}
