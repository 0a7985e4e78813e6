//! Fuzz target of the HTTP API: requests by callers of each role, at a router with ports in memory. No
//! request makes a handler panic. The API refuses a caller without the required role and admits a caller with
//! it. A refused request changes nothing.

use std::sync::LazyLock;

use millrace_api::in_process::{Asking, InProcess};
use millrace_config::{Config, Role};
use millrace_controller::operation::GetConfiguration;
use millrace_controller::{Principal, Router, StartOptions};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::input::Input;

/// Configuration at the start of each input. The router loads no shared object, even on request.
const CONFIG: &str = include_str!("interface.toml");
/// Requests from which inputs choose: method, path, body.
const REQUESTS: &str = include_str!("interface.txt");
/// Names and numbers for the last segment of a path.
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
/// Query strings of paths.
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
/// Values that inputs put in place of values in bodies.
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
/// User ids: four users that exist on any system, and one that exists on none. The groups of the first three
/// have roles.
const USERS: [u32; 5] = [1, 2, 8, 13, 4_000_000_000];
/// Groups with roles.
const GROUPS: [(&str, Role); 3] = [("daemon", Role::Viewer), ("bin", Role::Operator), ("mail", Role::Admin)];
/// Maximum number of requests of a run.
const MOST: usize = 12;
/// Resources that a refused request must not change, in addition to the configuration.
const STATE: [&str; 5] = ["/tokens", "/plugins", "/instances", "/quarantine", "/gates"];

/// Operations of the interface: method, path, and the role that each needs.
static OPERATIONS: LazyLock<Vec<(&'static str, &'static str, Role)>> = LazyLock::new(InProcess::operations);
/// Role of each of [`USERS`]; `None` for no role.
static ROLES_OF_USERS: LazyLock<[Option<Role>; USERS.len()]> = LazyLock::new(|| USERS.map(role_of));

thread_local! {
    static RUNTIME: Runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// Router and its API.
struct World {
    router: Router,
    interface: InProcess,
    /// State before the refused requests, which they must not have changed; `None` after a change, until the
    /// next request.
    state: Option<Vec<String>>,
    /// Requests refused since `state` was read, with their answers.
    refused: Vec<String>,
}

impl World {
    async fn start() -> Self {
        let config = Config::parse(CONFIG, "fuzz").unwrap_or_else(|errors| panic!("{errors}"));
        let started = millrace_controller::start(config, StartOptions::default()).await;
        let router = started.unwrap_or_else(|error| panic!("{error}"));
        let groups = GROUPS.map(|(group, role)| (group.to_owned(), role));
        let interface = InProcess::new(router.clone(), groups.into());
        Self { router, interface, state: None, refused: Vec::new() }
    }

    /// Returns the configuration, tokens, plugins, instances, quarantine and gates. Rates are left out,
    /// because they change by themselves.
    async fn read_state(&mut self) -> Vec<String> {
        let configuration = self.router.execute(&Principal::router(), GetConfiguration).await;
        let mut state = vec![configuration.expect("the configuration can be told").text];
        for path in STATE {
            let answer = self.interface.ask(Asking::Role(Some(Role::Admin)), "GET", path, Vec::new()).await;
            let (status, body) = answer.expect("a request");
            let told = String::from_utf8_lossy(&body).into_owned();
            assert_eq!(status, 200, "{path}: {told}");
            let mut value: Value =
                serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
            without_rates(&mut value);
            state.push(format!("{path}: {value}"));
        }
        state
    }

    /// Asserts that the requests refused since `state` was read have changed nothing. Reading the state takes
    /// longer than most requests, so it is read once for all requests between two changes.
    async fn check_refused(&mut self) {
        if self.refused.is_empty() {
            return;
        }
        let state = Some(self.read_state().await);
        let refused = std::mem::take(&mut self.refused).join("\n");
        assert_eq!(state, self.state, "refused, and half applied: {refused}");
    }

    /// Returns the role that a request needs; viewer for an operation that doesn't exist.
    fn needed(method: &str, path: &str) -> Role {
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
        let exact = |pattern: &str| !pattern.contains('{') && matches(pattern);
        let operations = || OPERATIONS.iter().filter(|(own, ..)| *own == method);
        let path_is_exact = OPERATIONS.iter().any(|(_, pattern, _)| exact(pattern));
        let found = match path_is_exact {
            true => operations().find(|(_, pattern, _)| exact(pattern)),
            false => operations().find(|(_, pattern, _)| matches(pattern)),
        };
        found.map_or(Role::Viewer, |(_, _, role)| *role)
    }
}

/// Removes rates, which are measured again for each request.
fn without_rates(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(without_rates),
        Value::Object(all) => {
            all.retain(|name, _| !name.ends_with("_rate"));
            all.values_mut().for_each(without_rates);
        }
        _ => {}
    }
}

/// Returns the role of a user according to `/etc/passwd` and `/etc/group`. Each of [`USERS`] belongs only to
/// its primary group.
fn role_of(uid: u32) -> Option<Role> {
    let field = |file: &str, key: (usize, &str), field: usize| {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.split(':').nth(key.0) == Some(key.1))?;
        line.split(':').nth(field).map(str::to_owned)
    };
    let group = field("/etc/passwd", (2, &uid.to_string()), 3)?;
    let name = field("/etc/group", (2, &group), 0)?;
    GROUPS.iter().find(|(own, _)| *own == name).map(|(_, role)| *role)
}

/// Sends the requests of an input to a new router.
pub fn run(data: &[u8]) {
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let mut world = World::start().await;
            let mut input = Input::new(data);
            for _ in 0..MOST {
                if input.is_empty() {
                    break;
                }
                request(&mut world, &mut input).await;
            }
            world.check_refused().await;
            world.router.shutdown().await.unwrap_or_else(|error| panic!("{error}"));
        });
    });
}

/// Sends a request.
async fn request(world: &mut World, input: &mut Input<'_>) {
    let lines: Vec<&str> = REQUESTS.lines().collect();
    let asks = input.byte();
    let (asking, role) = if asks & 0x80 == 0 {
        let role = ROLES[usize::from(asks) % ROLES.len()];
        (Asking::Role(role), role)
    } else {
        let user = usize::from(asks) % USERS.len();
        (Asking::User(USERS[user]), ROLES_OF_USERS[user])
    };
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
    let needed = World::needed(method, &path);
    let allowed = role.is_some_and(|role| role >= needed);
    if method != "GET" && allowed {
        world.check_refused().await;
    }
    if world.state.is_none() {
        world.state = Some(world.read_state().await);
    }
    let Some((status, answer)) = world.interface.ask(asking, method, &path, body.clone()).await else {
        return;
    };
    let told = || {
        let (body, answer) = (String::from_utf8_lossy(&body), String::from_utf8_lossy(&answer));
        format!("{method} {path} as {asking:?}: {body}: {status}, {answer}")
    };
    assert_ne!(status, 500, "{}", told());
    if !allowed {
        assert!(matches!(status, 403 | 429), "without the role: {}", told());
    } else if role == Some(Role::Admin) || !path.starts_with("/configuration") {
        // With the role of the operation the API must not answer 403, except for a configuration: parts of it
        // may need a higher role.
        assert_ne!(status, 403, "with the role: {}", told());
    }
    if status >= 400 {
        let told = told();
        world.refused.push(told);
    } else if method != "GET" {
        world.state = None;
    }
}

/// Returns the body with some values replaced, or with bytes inserted.
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

/// Replaces the value number `at` of a body, in depth-first order.
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
