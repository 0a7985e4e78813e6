//! Operations of the interface, by callers of each role, at a router with ports in memory. No request may make a handler panic; a
//! caller without the role is refused; what is refused changes nothing.

use std::cell::RefCell;

use millrace_api::in_process::InProcess;
use millrace_config::{Config, Role};
use millrace_controller::{Router, StartOptions};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::input::Input;

/// The configuration that each input begins with. No shared object is loaded, whatever is asked for.
const CONFIG: &str = include_str!("interface.toml");
/// Requests that a router takes: method, path, body.
const REQUESTS: &str = include_str!("interface.txt");
/// Names and numbers in paths.
const NAMES: [&str; 20] = [
    "lan",
    "wan",
    "pf",
    "n",
    "audit",
    "empty",
    "null",
    "bulk",
    "flows",
    "all",
    "firewall",
    "1",
    "2",
    "0",
    "%00",
    "..",
    "4294967296",
    "port-filter",
    "x%20y",
    "-1",
];
/// Arguments behind a path.
const ARGUMENTS: [&str; 10] = [
    "",
    "",
    "",
    "?limit=1",
    "?limit=0&after=9",
    "?filter=proto%20tcp",
    "?order=packets",
    "?at=ports&snap=5",
    "?x=1",
    "?limit=18446744073709551616",
];
/// Values that take the place of others in bodies.
const VALUES: [&str; 22] = [
    "null",
    "0",
    "-1",
    "1",
    "4294967296",
    "18446744073709551615",
    "1e400",
    "true",
    "\"\"",
    "[]",
    "{}",
    "\"lan\"",
    "\"drop\"",
    "\"10.2.0.9\"",
    "\"10.6.0.0/16\"",
    "\"1mbit\"",
    "\"0bit\"",
    "\"1500B\"",
    "\"*\"",
    "\"fd00::/8\"",
    "\"linear\"",
    "[null]",
];
const ROLES: [Option<Role>; 4] = [Some(Role::Admin), Some(Role::Operator), Some(Role::Viewer), None];
/// Requests of a run, at most.
const MOST: usize = 12;

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// A router and its interface, which last as long as the process.
struct World {
    runtime: Runtime,
    router: Router,
    interface: InProcess<Router>,
    operations: Vec<(&'static str, &'static str, Role)>,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let config = Config::parse(CONFIG, "fuzz").unwrap_or_else(|errors| panic!("{errors}"));
        let started = runtime.block_on(millrace_controller::start(config, StartOptions::default()));
        let router = started.unwrap_or_else(|error| panic!("{error}"));
        let interface = InProcess::new(router.clone());
        Self { runtime, router, interface, operations: InProcess::<Router>::operations() }
    }

    fn ask(&mut self, role: Option<Role>, method: &str, path: &str, body: Vec<u8>) -> Option<(u16, Vec<u8>)> {
        self.runtime.block_on(self.interface.ask(role, method, path, body))
    }

    fn configuration(&self) -> String {
        self.router.configuration().expect("the configuration can be told").text
    }

    /// Brings the configuration back to what each input begins with.
    fn reset(&mut self) {
        let body = serde_json::json!({ "text": CONFIG }).to_string().into_bytes();
        let answer = self.ask(Some(Role::Admin), "POST", "/configuration", body);
        let (status, body) = answer.expect("a request");
        assert!(status < 300, "{status}: {}", String::from_utf8_lossy(&body));
    }

    /// The role that a request needs; the least for one that there isn't.
    fn needed(&self, method: &str, path: &str) -> Option<Role> {
        let path = path.split('?').next().unwrap_or(path);
        let matches = |pattern: &str| {
            let (mut own, mut given) = (pattern.split('/'), path.split('/'));
            loop {
                match (own.next(), given.next()) {
                    (None, None) => return true,
                    (Some(own), Some(given)) if own == given || own.starts_with('{') => {}
                    _ => return false,
                }
            }
        };
        let found = self.operations.iter().find(|(own, pattern, _)| *own == method && matches(pattern));
        found.map(|(_, _, role)| *role)
    }
}

/// Sends the requests of an input.
pub fn run(data: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        let world = world.get_or_insert_with(World::new);
        let mut input = Input::new(data);
        let mut changed = false;
        for _ in 0..MOST {
            if input.is_empty() {
                break;
            }
            changed |= request(world, &mut input);
        }
        if changed {
            world.reset();
        }
    });
}

/// Sends a request; whether it may have changed something.
fn request(world: &mut World, input: &mut Input<'_>) -> bool {
    let lines: Vec<&str> = REQUESTS.lines().collect();
    let role = input.pick(&ROLES);
    let line = lines[usize::from(input.word()) % lines.len()];
    let mut parts = line.splitn(3, ' ');
    let (method, path, body) =
        (parts.next().unwrap_or("GET"), parts.next().unwrap_or("/"), parts.next().unwrap_or(""));
    let mut path = path.to_owned();
    if input.one_in(4) {
        let name = input.pick(&NAMES);
        path = path.rsplit_once('/').map_or(path.clone(), |(front, _)| format!("{front}/{name}"));
    }
    path += input.pick(&ARGUMENTS);
    let body = body.replace("THE CONFIGURATION", &CONFIG.escape_default().to_string());
    let body = changed_body(input, body);
    let before = world.configuration();
    let told = || format!("{method} {path} as {role:?}: {}", String::from_utf8_lossy(&body));
    let Some((status, answer)) = world.ask(role, method, &path, body.clone()) else { return false };
    assert_ne!(status, 500, "{}: {}", told(), String::from_utf8_lossy(&answer));
    let lacks = world.needed(method, &path).is_some_and(|needed| role.is_none_or(|role| role < needed));
    if lacks {
        assert!(matches!(status, 403 | 429), "{}: {status}, without the role", told());
    }
    if status >= 400 {
        let after = world.configuration();
        assert_eq!(after, before, "{}: {status}, and half applied", told());
        return false;
    }
    method != "GET"
}

/// A body with some of its values replaced, or with bytes in the middle of it.
fn changed_body(input: &mut Input<'_>, body: String) -> Vec<u8> {
    let changes = input.below(6);
    if changes < 3 {
        return body.into_bytes();
    }
    if changes == 5 {
        let mut bytes = body.into_bytes();
        let at = usize::from(input.word()).min(bytes.len());
        let count = input.below(16);
        bytes.splice(at..at, input.take(count).iter().copied());
        return bytes;
    }
    let Ok(mut value) = serde_json::from_str::<Value>(&body) else { return body.into_bytes() };
    for _ in 0..changes - 2 {
        let mut at = input.below(16);
        let with = serde_json::from_str(input.pick(&VALUES)).unwrap_or(Value::Null);
        replace(&mut value, &mut at, &with);
    }
    value.to_string().into_bytes()
}

/// Replaces the value that `at` others come before.
fn replace(value: &mut Value, at: &mut usize, with: &Value) -> bool {
    if *at == 0 {
        *value = with.clone();
        return true;
    }
    *at -= 1;
    match value {
        Value::Array(all) => all.iter_mut().any(|one| replace(one, at, with)),
        Value::Object(all) => all.values_mut().any(|one| replace(one, at, with)),
        _ => false,
    }
}
