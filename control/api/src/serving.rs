//! The threads that speak with clients. Each has the sockets of one kind, and no privileges: what it is asked for is carried out by
//! control.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use millrace_confine::{Calls, confine_thread};
use millrace_controller::Tokens;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::ApiError;
use crate::door::Caller;
use crate::limits::Patient;
use crate::places::Places;

/// How long a client may take to send a request's head, or keep a connection without a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take until both ends have agreed on keys.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// How long answers that are under way may take when the server stops.
const GRACE: Duration = Duration::from_millis(500);
/// Clients at the Unix socket at one time; others wait in the socket's queue.
const LOCAL: usize = 256;
/// Of these, those of users other than root; more are turned away.
const USERS: usize = 192;
/// A rest after the system refused a connection: it lacks descriptors, and asking again at once gets none.
const REST: Duration = Duration::from_millis(100);
/// How often it is looked whether the token of a connection still holds.
const LOOK: Duration = Duration::from_secs(1);

/// What a thread listens at.
#[derive(Debug)]
pub(crate) enum Sockets {
    /// The Unix socket.
    Unix(std::os::unix::net::UnixListener),
    /// TCP, with TLS.
    Tls(Vec<std::net::TcpListener>, Arc<ServerConfig>),
}

impl Sockets {
    /// The name of their thread.
    fn thread(&self) -> &'static str {
        match self {
            Self::Unix(_) => "api-local",
            Self::Tls(..) => "api-remote",
        }
    }
}

/// A thread that serves.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub thread: i32,
    /// Ready when it has ended.
    pub ended: oneshot::Receiver<()>,
}

/// What a thread answers with, and until when.
#[derive(Clone)]
pub(crate) struct Service {
    pub door: axum::Router,
    pub tokens: Tokens,
    /// True when the server stops.
    pub ending: watch::Receiver<bool>,
}

impl Serving {
    /// Starts a thread, which is confined when this returns.
    ///
    /// # Errors
    /// When it can't be started or confined.
    pub fn start(sockets: Sockets, service: Service) -> Result<Self, ApiError> {
        let name = sockets.thread();
        let failed = |what: &'static str| move |why: String| ApiError::Thread { name, what, why };
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let body = move || {
            match begin(sockets) {
                Ok((runtime, doors)) => {
                    let _ = tell.send(Ok(nix::unistd::gettid().as_raw()));
                    runtime.block_on(doors.serve(service));
                }
                // Who starts it hears why it has ended.
                Err(error) => drop(tell.send(Err(error))),
            }
            let _ = end.send(());
        };
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(body);
        spawned.map_err(|error| failed("start")(error.to_string()))?;
        let begun = told.recv().map_err(|error| error.to_string()).and_then(|begun| begun);
        Ok(Self { name, thread: begun.map_err(failed("begin"))?, ended })
    }
}

/// All that takes privileges, and giving them away.
fn begin(sockets: Sockets) -> Result<(tokio::runtime::Runtime, Doors), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let doors = {
        let _context = runtime.enter();
        Doors::open(sockets).map_err(|error| error.to_string())?
    };
    confine_thread(Calls::SERVING).map_err(|error| error.to_string())?;
    Ok((runtime, doors))
}

/// Sockets by which clients come in.
struct Doors(Vec<Door>);

/// A socket by which clients come in.
enum Door {
    Unix(UnixListener, LocalPlaces),
    Tls(TcpListener, TlsAcceptor, Places),
}

/// Room for clients at the Unix socket.
#[derive(Clone)]
struct LocalPlaces {
    /// All of it.
    all: Arc<Semaphore>,
    /// That of users other than root: some is always left.
    users: Arc<Semaphore>,
}

/// A client that has come in.
enum Client {
    Local(UnixStream, OwnedSemaphorePermit, Arc<Semaphore>),
    Remote(TcpStream, SocketAddr, TlsAcceptor, Places),
}

impl Doors {
    fn open(sockets: Sockets) -> io::Result<Self> {
        let all = match sockets {
            Sockets::Unix(listener) => {
                let places = |most| Arc::new(Semaphore::new(most));
                let places = LocalPlaces { all: places(LOCAL), users: places(USERS) };
                vec![Door::Unix(UnixListener::from_std(listener)?, places)]
            }
            Sockets::Tls(listeners, config) => {
                let (tls, places) = (TlsAcceptor::from(config), Places::default());
                let door = |listener| {
                    TcpListener::from_std(listener).map(|one| Door::Tls(one, tls.clone(), places.clone()))
                };
                listeners.into_iter().map(door).collect::<io::Result<_>>()?
            }
        };
        Ok(Self(all))
    }

    /// Answers clients until the server stops; gives those that are being answered half a second then.
    async fn serve(self, service: Service) {
        let mut doors = JoinSet::new();
        for door in self.0 {
            doors.spawn(door.serve(service.clone()));
        }
        while doors.join_next().await.is_some() {}
    }
}

impl Door {
    async fn serve(self, service: Service) {
        let mut ending = service.ending.clone();
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                () = ended(&mut ending) => break,
                accepted = self.accept() => match accepted {
                    Ok(client) => drop(clients.spawn(client.serve(service.clone()))),
                    Err(error) => {
                        tracing::warn!("can't accept a client: {error}");
                        tokio::time::sleep(REST).await;
                    }
                },
                Some(_) = clients.join_next() => {}
            }
        }
        let drained = async { while clients.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, drained).await.is_err() {
            clients.shutdown().await;
        }
    }

    /// Takes in the next client; at the Unix socket once there is a place.
    async fn accept(&self) -> io::Result<Client> {
        match self {
            Self::Unix(listener, places) => {
                let place = places.all.clone().acquire_owned().await.map_err(io::Error::other)?;
                Ok(Client::Local(listener.accept().await?.0, place, places.users.clone()))
            }
            Self::Tls(listener, tls, places) => {
                let (stream, address) = listener.accept().await?;
                Ok(Client::Remote(stream, address, tls.clone(), places.clone()))
            }
        }
    }
}

impl Client {
    async fn serve(self, service: Service) {
        match self {
            Self::Local(stream, _place, users) => serve_local(stream, users, service).await,
            Self::Remote(stream, address, tls, places) => {
                // Whoever comes beyond what its address may have is not heard before others go.
                let Some((_place, stranger)) = places.enter(address.ip()).await else {
                    return tracing::debug!("no place for {address}");
                };
                let caller = Caller::remote(address, stranger);
                serve_remote(stream, address, tls, caller, service).await;
            }
        }
    }
}

async fn serve_local(stream: UnixStream, users: Arc<Semaphore>, service: Service) {
    let credentials = stream.peer_cred().ok();
    let pid = credentials.as_ref().and_then(|credentials| credentials.pid());
    let uid = credentials.map(|credentials| credentials.uid());
    let place = (uid != Some(0)).then(|| users.try_acquire_owned());
    if place.as_ref().is_some_and(Result::is_err) {
        return;
    }
    let caller = Caller::Local { uid, pid, known: OnceLock::new() };
    connection(stream, Arc::new(caller), service).await;
}

async fn serve_remote(
    stream: TcpStream,
    address: SocketAddr,
    tls: TlsAcceptor,
    caller: Caller,
    service: Service,
) {
    // Answers are written whole.
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    match tokio::time::timeout(HANDSHAKE_PATIENCE, tls.accept(stream)).await {
        Ok(Ok(stream)) => connection(stream, Arc::new(caller), service).await,
        Ok(Err(error)) => tracing::debug!("no TLS with {address}: {error}"),
        Err(_) => tracing::debug!("no TLS with {address} in time"),
    }
}

/// A client that has vanished without a word is noticed within a minute, also where nothing is sent to it.
fn keep_alive(stream: &TcpStream) {
    // Where the kernel refuses it, all else goes on.
    let _ = setsockopt(stream, sockopt::TcpKeepIdle, &30);
    let _ = setsockopt(stream, sockopt::TcpKeepInterval, &10);
    let _ = setsockopt(stream, sockopt::TcpKeepCount, &3);
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(stream: S, caller: Arc<Caller>, service: Service) {
    let Service { door, tokens, mut ending } = service;
    let app = TowerToHyperService::new(door.layer(Extension(caller.clone())));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
    let mut connection = pin!(http.serve_connection(TokioIo::new(Patient::new(stream)), app));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = locked_out(&caller, &tokens) => return,
        () = ended(&mut ending) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!("a client's connection ended: {error}");
    }
}

/// Ready when the token of a connection holds no longer: what goes on by it ends.
async fn locked_out(caller: &Caller, tokens: &Tokens) {
    if matches!(caller, Caller::Local { .. }) {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        if caller.holder().is_some_and(|holder| !tokens.holds(&holder)) {
            return;
        }
    }
}

async fn ended(ending: &mut watch::Receiver<bool>) {
    // A closed channel is an end as well.
    let _ = ending.wait_for(|ending| *ending).await;
}
