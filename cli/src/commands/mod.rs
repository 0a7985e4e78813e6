//! The commands of the command line, one file per noun or verb.

mod admission;
mod bench;
mod configure;
mod doctor;
mod forwarding;
mod hardware;
mod lab;
mod manual;
mod nouns;
mod observe;
mod plugins;
mod principal;
mod remote;
mod replay;
mod reproduce;
mod run;
mod shell;
mod tag;
mod token;
mod watch;

use std::process::ExitCode;

use self::configure::{check, configuration, init};
use self::forwarding::{connection, control_plane, filter, flow, place, route, router, scheduler};
use self::observe::{capture, drops, events, rates, show, top, trace};
use self::plugins::plugin;
use crate::arguments::{AdmissionAction, Arguments, Command, Connection, Show};
use crate::client::Client;
use crate::output::Failure;

/// Runs the command.
///
/// # Errors
/// The failure in one line, with the exit code.
pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let (json, remote) = (arguments.json, || Client::new(&arguments.connection));
    match arguments.command {
        Command::Run(run) => run::run(&run, &arguments.connection.socket, json)?,
        Command::Check(check) => check::check(&check, json)?,
        Command::Init(asked) => init::init(&asked, json)?,
        Command::Apply(apply) => configuration::apply(&remote()?, &apply, json)?,
        Command::Diff(diff) => return configuration::diff(&remote()?, &diff, json),
        Command::Confirm(confirm) => configuration::confirm(&remote()?, &confirm, json)?,
        Command::History(history) => configuration::history(&remote()?, &history, json)?,
        Command::Rollback(rollback) => configuration::rollback(&remote()?, &rollback, json)?,
        Command::Save(save) => configuration::save(&remote()?, &save, json)?,
        Command::Doctor(doctor) => doctor::doctor(&doctor, &arguments.connection, json)?,
        Command::Replay(replay) => replay::replay(&replay, json)?,
        Command::Bench(bench) => bench::bench(&bench, json)?,
        Command::Reproduce(asked) => reproduce::reproduce(&asked, json)?,
        Command::CompilePlugin { order } => return Ok(compile_plugin(&order)),
        Command::PluginProcess { order } => return Ok(plugin_process(&order)),
        Command::Lab(action) => return lab::lab(&action, json),
        Command::Show(asked) => return show_by_command(&asked, arguments.connection, json),
        Command::Plugin(plugin) => plugin::plugin(remote, &plugin, json)?,
        Command::Instance(instance) => remote::instance(&remote()?, &instance, json)?,
        Command::Gate(gate) => remote::gate(&remote()?, &gate, json)?,
        Command::Bind(bind) => remote::bind(&remote()?, &bind, json)?,
        Command::Unbind(unbind) => remote::unbind(&remote()?, &unbind, json)?,
        Command::Filter(filter) => filter::filter(&remote()?, &filter, json)?,
        Command::Route(route) => route::route(&remote()?, &route, json)?,
        Command::Place(place) => place::place(&remote()?, &place, json)?,
        Command::Flow(flow) => flow::flow(&remote()?, &flow, json)?,
        Command::Connection(asked) => connection::connection(&remote()?, &asked, json)?,
        Command::Neighbour(neighbour) => router::neighbour(&remote()?, &neighbour, json)?,
        Command::Router(router) => router::router(&remote()?, &router, json)?,
        Command::ControlPlane(asked) => control_plane::control_plane(&remote()?, &asked, json)?,
        Command::Admission(asked) => return admission_or_trial(&asked, arguments.connection, json),
        Command::Hardware(asked) => hardware::hardware(&asked, &arguments.connection.socket, json)?,
        Command::Allowance(asked) => admission::allowance::allowance(&remote()?, &asked, json)?,
        Command::Port(port) => scheduler::port(&remote()?, &port, json)?,
        Command::Queue(queue) => scheduler::queue(&remote()?, &queue, json)?,
        Command::Scheduler(scheduler) => scheduler::scheduler(&remote()?, &scheduler, json)?,
        Command::Control(control) => remote::control(&remote()?, &control, json)?,
        Command::Lookup(lookup) => remote::lookup(&remote()?, &lookup, json)?,
        Command::Trace(asked) => trace::trace(&remote()?, &asked, json)?,
        Command::Drops(asked) => drops::drops(&remote()?, &asked, json)?,
        Command::Top(top) => top::top(remote()?, &top, json)?,
        Command::Events(asked) => events::events(&remote()?, &asked, json)?,
        Command::Audit(asked) => events::audit(&remote()?, &asked, json)?,
        Command::Principal(action) => principal::principal(&remote()?, &action, json)?,
        Command::Exec(order) => return Err(principal::exec(&remote()?, &order)),
        Command::Token(asked) => token::token(&remote()?, &asked, json)?,
        Command::Rates(asked) => rates::rates(&remote()?, &asked, json)?,
        Command::Tag { resource } => tag::tag(&remote()?, &resource, json)?,
        Command::Metrics => remote::metrics(&remote()?, json)?,
        Command::Shell(shell) => return shell::shell(&shell, &arguments.connection, json),
        Command::Completions { shell, names } => manual::completions(shell, names)?,
        Command::Manual { directory } => manual::manual(&directory)?,
        Command::Clear => remote::clear(&remote()?, json)?,
        Command::Capture(capture) => capture::capture(&remote()?, &capture)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the command `admission`, or the request that it explains, as a trial.
fn admission_or_trial(
    asked: &AdmissionAction,
    connection: Connection,
    json: bool,
) -> Result<ExitCode, Failure> {
    if let AdmissionAction::Explain { request } = asked {
        let command = admission::trial_of(request)?;
        return run(Arguments { connection, json, command });
    }
    admission::admission(|| Client::new(&connection), asked, json)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows a resource, by its own command if it has one.
fn show_by_command(asked: &Show, connection: Connection, json: bool) -> Result<ExitCode, Failure> {
    let Some(words) = asked.words() else {
        show::show_one(&Client::new(&connection)?, asked, json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let command = crate::arguments::command(words.into_iter())?;
    run(Arguments { connection, json, command })
}

/// Runs an instance of a shared object in confinement, for the router that started this process.
fn plugin_process(order: &[String]) -> ExitCode {
    let Err(error) = millrace_plugin_process::child::run(order);
    eprintln!("{error}");
    ExitCode::FAILURE
}

/// Compiles a plugin in confinement, for the router that started this process.
fn compile_plugin(order: &[String]) -> ExitCode {
    match millrace_compiler::child::run(order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.code())
        }
    }
}
