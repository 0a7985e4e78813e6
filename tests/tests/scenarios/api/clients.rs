//! Python client: the committed code matches the API description of a running router, and works as its README
//! describes.

use std::process::Command;

use millrace_testkit::{Ground, Line, Millrace, repository};

/// Program that uses the client. Its arguments are the router's socket and HTTPS address, the file of a
/// token, the file of the trusted certificate, and the certificate's fingerprint.
const PROGRAM: &str = r#"
import os
import sys
import tempfile
import time
from socket import AF_UNIX, socket as Socket
from millrace import Client, Problem

socket, server, token, ca, fingerprint = sys.argv[1:]
token = open(token).read().strip()
for router in (Client(socket), Client(server, token=token, ca=ca), Client(server, token=token, fingerprint=fingerprint)):
    before = [route["to"] for route in router.get_routes()]
    assert "10.2.0.0/24" in before, before
    assert sorted(before) == sorted(route["to"] for route in router.pages("/routes", limit=1))
    added = router.post_filters({"match": "proto tcp dport 25", "action": "drop"})
    assert added["match"] == "proto tcp dport 25", added
    assert [one["id"] for one in router.get_filters()] == [added["id"]]
    try:
        router.post_filters([{"match": "proto tcp dport 26", "action": "drop"}, {"match": "nonsense", "action": "drop"}])
        raise SystemExit("a wrong list was taken")
    except Problem as problem:
        assert problem.status == 400 and problem.errors[0]["entry"] == 1, problem.body
    answer = router.request("GET", f"/filters/{added['id']}")
    try:
        router.delete_filters_id(added["id"], if_match='"0"')
        raise SystemExit("a wrong tag was taken")
    except Problem as problem:
        assert problem.status == 412 and problem.current, problem.body
    router.delete_filters_id(added["id"], if_match=answer.tag)
    name = "g" + fingerprint[:4].replace(":", "").lower()
    router.post_gates({"name": name, "position": "late"})
    assert router.get_gates_name(name)["position"] == "late"
    router.delete_gates_name(name)
    assert "millrace_build_info" in router.get_metrics()
    events = router.follow_events(last=1)
    assert next(events).data["kind"]
    events.close()
    captured = router.get_capture(port="lan", count=1)
    captured.close()
viewer = Client(server, token=router.post_tokens({"name": "v", "role": "viewer"})["token"], ca=ca)
try:
    viewer.delete_counters()
    raise SystemExit("a viewer changed something")
except Problem as problem:
    assert problem.status == 403 and problem.needs == "operator", problem.body
for wrong in (dict(ca=ca, token="nothing"), dict(fingerprint="00" * 32, token=token)):
    try:
        Client(server, **wrong).get_status()
        raise SystemExit(f"{wrong} was taken")
    except (Problem, OSError):
        pass
silent = Socket(AF_UNIX)
place = os.path.join(tempfile.mkdtemp(), "silent")
silent.bind(place)
silent.listen()
for ask in (Client.get_status, lambda router: next(router.follow_events()), lambda router: next(router.get_capture(port="lan"))):
    begun = time.monotonic()
    try:
        ask(Client(place, timeout=1))
        raise SystemExit("who does not answer has answered")
    except TimeoutError:
        assert time.monotonic() - begun < 30
assert Client().get_status()["pid"] == Client(server, token=token, ca=ca).get_status()["pid"], "MILLRACE_SOCKET counts"
print("all done")
"#;

#[test]
fn python_client_is_generated_from_the_api_description_and_works() {
    let Some(_ground) = Ground::enter(&["python3", "curl"]) else { return };
    let line = Line::new();
    line.r.ip("link set lo up");
    let text = format!(
        "[router]\non-death = \"kernel\"\n[plugins]\nstate = \"{}\"\n[api]\nlisten = [\"127.0.0.1:8443\"]\n\
         [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n",
        line.file("state").display()
    );
    let config = line.write("router.toml", &text);
    let router = Millrace::start(&line.r, &format!("--config {}", config.display()));
    let socket = router.socket().display().to_string();
    let curl = Command::new("curl").args(["-s", "--unix-socket", &socket, "http://m/openapi.json"]).output();
    let description = String::from_utf8(curl.expect("curl").stdout).expect("text");
    let (description, made) = (line.write("openapi.json", &description), line.file("made"));
    std::fs::create_dir_all(&made).expect("a directory");
    let tool = repository().join("tools/python-client");
    let output = Command::new("python3").arg(tool).arg(&description).arg(&made).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let package = repository().join("clients/python/src/millrace");
    for file in ["types.py", "operations.py"] {
        let read = |place: &std::path::Path| std::fs::read_to_string(place.join(file)).expect("a file");
        let same = read(&made) == read(&package);
        assert!(same, "{file} is another: tools/python-client OPENAPI.json clients/python/src/millrace");
    }
    let token = line.write("admin.token", &router.ask(&["token", "create", "py", "--role", "admin"]));
    let status = router.json(&["show", "status"]);
    let fingerprint = status["interface"]["fingerprint"].as_str().expect("a fingerprint").to_owned();
    let program = line.write("try.py", PROGRAM);
    let mut command = line.r.command("timeout");
    command.args(["-k", "1", "60", "python3"]).arg(program).args([&socket, "https://127.0.0.1:8443"]);
    command.arg(token).arg(line.file("state").join("interface.crt")).arg(&fingerprint);
    command.env("PYTHONPATH", repository().join("clients/python/src")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("MILLRACE_SOCKET", &socket);
    let output = command.output().expect("python3");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("all done"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
