//! Server of the API: client threads talk to clients, and control answers the requests.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use hyper_util::service::TowerToHyperService;
use millrace_controller::{Role, Router};
use tokio::sync::{mpsc, oneshot, watch};

use crate::entrance::access_control::AccessControl;
use crate::entrance::control_channel::{ControlChannel, Message, carry_out};
use crate::entrance::listener::{Listener, SocketFile};
use crate::entrance::remote::Remote;
use crate::entrance::serving::{Service, Serving, Sockets};
use crate::entrance::users::Users;
use crate::limits::Limits;
use crate::served::{Interface, Served};
use crate::{ApiError, catalogue};

/// Interval at which the time of each token's last use is written to disk.
const LOOK: Duration = Duration::from_secs(30);
/// Interval between checks for changed certificate files.
const RENEWAL: Duration = Duration::from_secs(1);

/// Sockets of the API.
#[derive(Debug)]
pub struct Entrances {
    /// Unix socket.
    pub local: Listener,
    /// Roles of users at the Unix socket, by the names of their groups. Root and the router's own user have
    /// all rights; users in none of these groups have none.
    pub groups: BTreeMap<String, Role>,
    /// TCP sockets with TLS, for holders of tokens.
    pub remote: Option<Remote>,
}

/// Running API server.
#[derive(Debug)]
pub struct Server {
    control: Router,
    resources: TowerToHyperService<axum::Router>,
    asked: mpsc::Receiver<Message>,
    threads: Vec<oneshot::Receiver<()>>,
    end: watch::Sender<bool>,
    users: Users,
    interface: Arc<Interface>,
    socket: SocketFile,
}

/// Starts the client threads. Requests are answered while [`Server::run`] runs.
///
/// # Errors
/// Returns an error if a thread can't be started or confined.
pub fn start(entrances: Entrances, control: Router) -> Result<Server, ApiError> {
    let Entrances { local, groups, remote } = entrances;
    let (end, ending) = watch::channel(false);
    let (channel, asked) = ControlChannel::new();
    let limits = Limits::default();
    let tokens = control.tokens().clone();
    let service = |channel: ControlChannel| {
        let access =
            AccessControl { channel: channel.clone(), tokens: tokens.clone(), limits: limits.clone() }
                .service(catalogue::needs());
        Service { access, tokens: tokens.clone(), channel, ending: ending.clone() }
    };
    if !groups.is_empty() {
        local.open_to_all()?;
    }
    let (listener, socket) = local.into_parts();
    let mut interface = Interface::at(socket.path(), remote.as_ref());
    let for_remote = service(channel.for_remote());
    let mut all = vec![(Sockets::Unix(listener), service(channel))];
    all.extend(remote.map(|remote| (Sockets::Tls(remote.listeners, remote.config), for_remote)));
    let started = all.into_iter().map(|(sockets, service)| Serving::start(sockets, service));
    let started = started.collect::<Result<Vec<Serving>, ApiError>>()?;
    interface.threads = started.iter().map(|serving| (serving.name, serving.thread)).collect();
    let interface = Arc::new(interface);
    let served = Served::new(control.clone(), ending, limits, interface.clone());
    let resources = TowerToHyperService::new(catalogue::router(served));
    let threads = started.into_iter().map(|serving| serving.ended).collect();
    let users = Users::new(groups);
    Ok(Server { control, resources, asked, threads, end, users, interface, socket })
}

impl Server {
    /// Answers requests until `shutdown` is ready. Then removes the socket, ends streams, and gives
    /// unfinished answers half a second.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let mut look = tokio::time::interval(LOOK);
        let mut renewal = tokio::time::interval(RENEWAL);
        renewal.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(message) = self.asked.recv() => {
                    take(message, &self.control, &self.resources, &self.users);
                }
                _ = look.tick() => self.write_uses(),
                _ = renewal.tick() => self.renew(),
            }
        }
        let Self { control, resources, mut asked, threads, end, users, socket, .. } = self;
        drop(socket);
        end.send_replace(true);
        let ended = async {
            for thread in threads {
                // A closed channel also means that the thread has ended.
                let _ = thread.await;
            }
        };
        let mut ended = pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => break,
                Some(message) = asked.recv() => take(message, &control, &resources, &users),
            }
        }
        keep_uses(&control);
    }

    /// Writes the time of each token's last use to disk.
    fn write_uses(&self) {
        let control = self.control.clone();
        tokio::task::spawn_blocking(move || keep_uses(&control));
    }

    /// Reads the certificate again if its files have changed.
    fn renew(&self) {
        if self.interface.has_certificate() {
            let interface = self.interface.clone();
            tokio::task::spawn_blocking(move || interface.renew());
        }
    }
}

fn keep_uses(control: &Router) {
    if let Err(error) = control.tokens().keep_uses() {
        tracing::warn!("can't store the time of last use of API tokens: {error}");
    }
}

pub(crate) fn take(
    message: Message,
    control: &Router,
    resources: &TowerToHyperService<axum::Router>,
    users: &Users,
) {
    match message {
        Message::Carry(request, reply) => {
            let request: Request = *request;
            tokio::spawn(carry_out(resources.clone(), control.events().clone(), request, reply));
        }
        // Don't wait until the line is written.
        Message::Note(entry) => drop(control.note(*entry)),
        Message::Find(uid, reply) => {
            let users = users.clone();
            tokio::task::spawn_blocking(move || reply.send(users.find(uid)));
        }
    }
}

#[cfg(test)]
mod tests;
