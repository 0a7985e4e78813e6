//! Client threads. Each serves the sockets of one kind, and has no privileges; control carries out the
//! requests.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use futures_util::future::BoxFuture;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use millrace_confine::{Calls, confine_thread};
use millrace_controller::{Principal, Tokens};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::geteuid;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::ApiError;
use crate::entrance::access_control::{Caller, LocalUser, Standing};
use crate::entrance::control_channel::ControlChannel;
use crate::limits::places::{Places, Sizes};
use crate::limits::{Patient, network};

/// Time limit for the arrival of a request's head. It also limits the idle time between two requests.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for authenticating the caller of a connection, including the TLS handshake.
const STRANGERS_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of a request's head, in bytes; a longer head gets 431.
const MOST_HEAD: usize = 16 << 10;
/// Time limit for reading and discarding the rest of a request after its answer. Without this, a client that
/// still sends could lose the answer.
const LINGER: Duration = Duration::from_secs(2);
/// Time limit for running answers when the server stops.
const GRACE: Duration = Duration::from_millis(500);
/// Maximum number of connections of root and the router's own user at the Unix socket; further ones wait.
const RESERVED: usize = 256;
/// Limits on connections of other users at the Unix socket.
const LOCAL: Sizes =
    Sizes { strangers: 64, each_source: 16, known: 160, administrators: 32, each_caller: 40 };
/// Limits on connections over TCP.
const REMOTE: Sizes =
    Sizes { strangers: 128, each_source: 32, known: 320, administrators: 64, each_caller: 80 };
/// Pause after a failed accept. Usually the process lacks file descriptors then, so an immediate retry would
/// fail, too.
const REST: Duration = Duration::from_millis(100);
/// Interval between checks whether a connection's token is still valid.
const LOOK: Duration = Duration::from_secs(1);

/// Listening sockets of a thread.
#[derive(Debug)]
pub(crate) enum Sockets {
    /// Unix socket.
    Unix(std::os::unix::net::UnixListener),
    /// TCP sockets, with TLS.
    Tls(Vec<std::net::TcpListener>, Arc<ServerConfig>),
}

impl Sockets {
    /// Returns the name of the thread for these sockets.
    fn thread(&self) -> &'static str {
        match self {
            Self::Unix(_) => "api-local",
            Self::Tls(..) => "api-remote",
        }
    }
}

/// Handle of a running client thread.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Name of the thread.
    pub name: &'static str,
    /// Id of the thread.
    pub thread: i32,
    /// Receiver that is notified when the thread has ended.
    pub ended: oneshot::Receiver<()>,
}

/// HTTP service and limits that a client thread uses.
#[derive(Clone)]
pub(crate) struct Service {
    pub access: axum::Router,
    pub tokens: Tokens,
    pub channel: ControlChannel,
    /// Whether the server stops.
    pub ending: watch::Receiver<bool>,
}

impl Serving {
    /// Starts a client thread. The thread is confined when this function returns.
    ///
    /// # Errors
    /// Returns an error if the thread can't be started or confined.
    pub fn start(sockets: Sockets, service: Service) -> Result<Self, ApiError> {
        let name = sockets.thread();
        let failed = |what: &'static str| move |why: String| ApiError::Thread { name, what, why };
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let body = move || {
            match begin(sockets) {
                Ok((runtime, acceptors)) => {
                    let _ = tell.send(Ok(nix::unistd::gettid().as_raw()));
                    runtime.block_on(serve(acceptors, service));
                }
                // The caller of `start` gets the error.
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

/// Does the part of a client thread's start that needs privileges, then drops the privileges.
fn begin(sockets: Sockets) -> Result<(tokio::runtime::Runtime, Vec<Acceptor>), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let acceptors = {
        let _context = runtime.enter();
        Acceptor::open(sockets).map_err(|error| error.to_string())?
    };
    confine_thread(Calls::SERVING).map_err(|error| error.to_string())?;
    Ok((runtime, acceptors))
}

/// Listening socket, with the slots of its clients.
enum Acceptor {
    Unix(UnixListener, LocalPlaces),
    Tls(TcpListener, TlsAcceptor, Places<IpAddr>),
}

/// Slots for clients at the Unix socket.
#[derive(Clone)]
struct LocalPlaces {
    /// Slots of root and of the router's own user.
    reserved: Arc<Semaphore>,
    /// Slots of other users.
    users: Places<Option<u32>>,
}

/// Serves clients until the server stops. Unfinished answers then have half a second to end.
async fn serve(acceptors: Vec<Acceptor>, service: Service) {
    let acceptors: JoinSet<()> = acceptors.into_iter().map(|one| one.serve(service.clone())).collect();
    acceptors.join_all().await;
}

impl Acceptor {
    fn open(sockets: Sockets) -> io::Result<Vec<Self>> {
        match sockets {
            Sockets::Unix(listener) => {
                let reserved = Arc::new(Semaphore::new(RESERVED));
                let places = LocalPlaces { reserved, users: Places::new(LOCAL) };
                Ok(vec![Self::Unix(UnixListener::from_std(listener)?, places)])
            }
            Sockets::Tls(listeners, config) => {
                let (tls, places) = (TlsAcceptor::from(config), Places::new(REMOTE));
                let acceptor =
                    |one| TcpListener::from_std(one).map(|one| Self::Tls(one, tls.clone(), places.clone()));
                listeners.into_iter().map(acceptor).collect()
            }
        }
    }

    async fn serve(self, service: Service) {
        let mut ending = service.ending.clone();
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                () = ended(&mut ending) => break,
                accepted = self.accept(&service) => match accepted {
                    Ok(client) => drop(clients.spawn(client)),
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

    /// Accepts the next client. Returns the future that serves this client.
    async fn accept(&self, service: &Service) -> io::Result<BoxFuture<'static, ()>> {
        match self {
            Self::Unix(listener, places) => {
                let (stream, _) = listener.accept().await?;
                Ok(Box::pin(serve_local(stream, places.clone(), service.clone())))
            }
            Self::Tls(listener, tls, places) => {
                let (stream, address) = listener.accept().await?;
                let caller = Caller::remote(address, places.enter(network(address.ip())));
                Ok(Box::pin(serve_remote(stream, tls.clone(), caller, service.clone())))
            }
        }
    }
}

async fn serve_local(stream: UnixStream, places: LocalPlaces, service: Service) {
    let credentials = stream.peer_cred().ok();
    let pid = credentials.as_ref().and_then(|credentials| credentials.pid());
    let uid = credentials.map(|credentials| credentials.uid());
    let is_own = uid.is_some_and(|uid| uid == 0 || uid == geteuid().as_raw());
    let _reserved = match is_own {
        true => places.reserved.acquire_owned().await.ok(),
        false => None,
    };
    let place = if is_own { Standing::reserved() } else { Standing::stranger(places.users.enter(uid)) };
    let caller = Arc::new(Caller::Local { uid, pid, known: LocalUser::default(), place });
    tokio::select! {
        () = connection(stream, caller.clone(), service) => {}
        () = caller.remains_stranger(STRANGERS_PATIENCE) => {
            tracing::debug!(uid, "closed the connection of a local client that has no role");
        }
    }
}

async fn serve_remote(stream: TcpStream, tls: TlsAcceptor, caller: Caller, service: Service) {
    // TCP_NODELAY: each answer is one write, so waiting for more data only adds delay.
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    let caller = Arc::new(caller);
    let served = async {
        match tls.accept(stream).await {
            Ok(stream) => connection(stream, caller.clone(), service).await,
            Err(error) => tracing::debug!("TLS handshake with a client failed: {error}"),
        }
    };
    tokio::select! {
        () = served => {}
        () = caller.remains_stranger(STRANGERS_PATIENCE) => {
            tracing::debug!("closed the connection of a remote client that sent no valid token");
        }
    }
}

/// Enables TCP keepalive, so that a vanished client is noticed within a minute even if nothing is sent to it.
fn keep_alive(stream: &TcpStream) {
    // A failure to set an option is harmless.
    let _ = setsockopt(stream, sockopt::TcpKeepIdle, &30);
    let _ = setsockopt(stream, sockopt::TcpKeepInterval, &10);
    let _ = setsockopt(stream, sockopt::TcpKeepCount, &3);
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(stream: S, caller: Arc<Caller>, service: Service) {
    let Service { access, tokens, channel, mut ending } = service;
    let access = TowerToHyperService::new(access.layer(Extension(caller.clone())));
    let app = service_fn(move |request| Box::pin(access.call(request)));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(MOST_HEAD);
    let mut connection = http.serve_connection(TokioIo::new(Patient::new(stream)), app);
    let result = tokio::select! {
        result = poll_fn(|context| connection.poll_without_shutdown(context)) => result,
        () = locked_out(&caller, &tokens, &channel) => return,
        () = ended(&mut ending) => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    if let Err(error) = result {
        tracing::debug!("a client's connection ended: {error}");
    }
    linger(connection.into_parts().io.into_inner(), caller.unread()).await;
}

/// Closes a connection without losing the answer. A client that is still sending would get a reset.
/// Therefore, first discards up to `most` bytes of the client's data.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, most: u64) {
    let drained = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(most), &mut tokio::io::sink()).await
    };
    // After `LINGER`, the connection is closed even if the client still sends, so the client may get a reset.
    let _ = tokio::time::timeout(LINGER, drained).await;
}

/// Returns when the token of a connection is revoked or expires, or when its local user has a lower role than before.
/// The caller then ends the connection and its streams.
async fn locked_out(caller: &Caller, tokens: &Tokens, channel: &ControlChannel) {
    loop {
        tokio::time::sleep(LOOK).await;
        let is_out = match caller {
            Caller::Local { uid, known, .. } => has_lost_role(*uid, known, channel).await,
            Caller::Remote { .. } => caller.holder().is_some_and(|holder| !tokens.holds(&holder)),
        };
        if is_out {
            return;
        }
    }
}

/// Asks for the role of a local user again if the known one is old. Returns whether it is lower than before.
async fn has_lost_role(uid: Option<u32>, known: &LocalUser, channel: &ControlChannel) -> bool {
    let (Some(uid), Some(before)) = (uid, known.last()) else { return false };
    if known.fresh(Instant::now()).is_some() {
        return false;
    }
    // Without an answer, the router is ending.
    let Ok(found) = channel.find(uid).await else { return false };
    let is_lower = found.role < before.role;
    known.note(Principal { who: found.who, role: found.role, ..before }, Instant::now());
    is_lower
}

async fn ended(ending: &mut watch::Receiver<bool>) {
    // A closed channel also means that the server stops.
    let _ = ending.wait_for(|ending| *ending).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use millrace_controller::{Role, Who};
    use rustls::pki_types::PrivateKeyDer;
    use tokio::time::Instant as Clock;

    use super::*;
    use crate::entrance::access_control::AccessControl;
    use crate::entrance::control_channel::Message;
    use crate::entrance::users::Known;
    use crate::limits::{Key, Limits};

    /// Service of a client thread, with the handles that keep it running.
    struct Served {
        service: Service,
        limits: Limits,
        asked: tokio::sync::mpsc::Receiver<Message>,
        _end: watch::Sender<bool>,
    }

    fn served() -> Served {
        let (channel, asked) = ControlChannel::new();
        let (tokens, limits) = (Tokens::default(), Limits::default());
        let access =
            AccessControl { channel: channel.clone(), tokens: tokens.clone(), limits: limits.clone() };
        let (end, ending) = watch::channel(false);
        let service = Service { access: access.service(Vec::new()), tokens, channel, ending };
        Served { service, limits, asked, _end: end }
    }

    #[tokio::test]
    async fn client_that_sends_a_large_body_after_its_head_reads_429() {
        let Served { service, limits, .. } = &served();
        // Empty the token bucket by requests dated one hour ahead, so that the bucket can't refill during the
        // test.
        let late = Instant::now() + Duration::from_secs(3600);
        while limits.request(Key::User(Some(7)), late).is_ok() {}
        let caller = Caller::Local {
            uid: Some(7),
            pid: None,
            known: LocalUser::default(),
            place: Standing::reserved(),
        };
        let (mut client, stream) = UnixStream::pair().unwrap();
        let answering = tokio::spawn(connection(stream, Arc::new(caller), service.clone()));
        let body = vec![b' '; 16 << 20];
        let head =
            format!("POST /configuration HTTP/1.1\r\nhost: m\r\ncontent-length: {}\r\n\r\n", body.len());
        client.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        client.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 429");
        client.write_all(&body).await.unwrap();
        let mut rest = String::new();
        client.read_to_string(&mut rest).await.unwrap();
        assert!(rest.contains("requests per second"), "{rest}");
        drop(client);
        answering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn unauthenticated_client_is_closed_after_ten_seconds() {
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The client keeps the connection without starting a handshake.
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let caller = Caller::remote(address, Places::new(REMOTE).enter(address.ip()));
        let begun = Clock::now();
        let served = serve_remote(stream, TlsAcceptor::from(Arc::new(config)), caller, served().service);
        tokio::time::timeout(Duration::from_secs(60), served).await.expect("its time is bound");
        assert_eq!(begun.elapsed().as_secs(), STRANGERS_PATIENCE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_of_a_local_user_ends_when_its_role_is_withdrawn() {
        let Served { service, mut asked, .. } = served();
        let operator = Principal { role: Some(Role::Operator), ..Principal::user(Some(7), None) };
        for (minutes, expected) in [(0, false), (2, true)] {
            let known = LocalUser::default();
            known.note(operator.clone(), Instant::now() - Duration::from_secs(60 * minutes));
            let caller = Caller::Local { uid: Some(7), pid: None, known, place: Standing::reserved() };
            let answers = async {
                while let Some(message) = asked.recv().await {
                    let Message::Find(uid, reply) = message else { continue };
                    let _ = reply.send(Known { who: Who::user(uid, None), role: Some(Role::Viewer) });
                }
            };
            let out = locked_out(&caller, &service.tokens, &service.channel);
            let seen = tokio::select! {
                () = out => true,
                () = answers => false,
                () = tokio::time::sleep(Duration::from_secs(10)) => false,
            };
            assert_eq!(seen, expected, "{minutes} minutes");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn authenticated_client_is_not_closed() {
        let caller = Caller::Remote {
            address: "127.0.0.1:9".parse().unwrap(),
            holder: Mutex::default(),
            place: Standing::reserved(),
        };
        let let_go = caller.remains_stranger(STRANGERS_PATIENCE);
        assert!(tokio::time::timeout(Duration::from_secs(3600), let_go).await.is_err());
    }

    #[test]
    fn no_caller_holds_more_than_a_quarter_of_the_places() {
        for sizes in [LOCAL, REMOTE] {
            assert!(sizes.each_caller * 4 <= sizes.known);
            assert!(sizes.administrators * 8 >= sizes.known, "some are the administrators'");
        }
    }
}
