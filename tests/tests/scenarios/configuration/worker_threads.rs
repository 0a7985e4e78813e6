//! Processors and scheduling policy of workers.

use std::fs;

use millrace_testkit::{Ground, Line, Millrace};

use super::changes::{BASE, file, start};

/// Thread of the router: name, processors on which it may run, policy and priority.
struct Thread {
    name: String,
    processors: String,
    policy: u32,
    priority: u32,
}

fn threads(router: &Millrace) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{}/task", router.pid())).expect("the router's threads");
    tasks.flatten().filter_map(|task| read(&task.path().display().to_string())).collect()
}

/// Reads a thread of `/proc` (see proc(5)); `None` if it has ended.
fn read(task: &str) -> Option<Thread> {
    let name = fs::read_to_string(format!("{task}/comm")).ok()?.trim().to_owned();
    let status = fs::read_to_string(format!("{task}/status")).ok()?;
    let stat = fs::read_to_string(format!("{task}/stat")).ok()?;
    let processors =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
    // The fields after the name, of which the first is the third of the line.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    Some(Thread { name, processors, priority: field(40)?, policy: field(41)? })
}

fn with(keys: &str) -> String {
    BASE.replace("[router]\n", &format!("[router]\n{keys}\n"))
}

#[test]
fn workers_run_alone_on_their_processor_under_their_policy() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return eprintln!("skipped: needs two processors");
    }
    let line = Line::new();
    let (router, _) = start(&line, &with("worker-processors = [1]\nworker-policy = \"fifo 7\""));
    let (workers, others): (Vec<_>, Vec<_>) =
        threads(&router).into_iter().partition(|thread| thread.name.starts_with("worker-"));
    assert_eq!(workers.len(), 1);
    let worker = &workers[0];
    // Policy 1 is SCHED_FIFO.
    assert_eq!((&*worker.processors, worker.policy, worker.priority), ("1", 1, 7));
    assert!(others.len() > 2);
    for thread in others {
        let listed = thread.processors.split([',', '-']).any(|number| number == "1");
        assert!(!listed && thread.policy == 0, "{}: {}", thread.name, thread.processors);
    }
    line.h1.run("ping -c 3 -i 0.2 10.2.0.2");
}

#[test]
fn router_refuses_to_start_with_a_processor_that_does_not_exist() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let file = file(&line, "router.toml", &with("worker-processors = [1000]"));
    let refused = Millrace::try_start(&line.r, &format!("--config {file}")).unwrap_err();
    for words in ["can't bind thread", "to processors 1000", "processors here: 0"] {
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}
