//! Limits on clients: rate of requests, number of simultaneous streams (`streams.rs`), connections, memory,
//! and the time to read an answer.

pub(crate) mod places;
pub(crate) mod remote_limit;
pub(crate) mod room;
pub(crate) mod shares;
mod streams;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::http::problem::Problem;
pub(crate) use streams::Streams;

/// Long-term rate of a caller's requests, per second.
const PER_SECOND: f64 = 2000.0;
/// Burst of a caller's requests.
const BURST: f64 = 4000.0;
/// Long-term rate of a caller's audited refusals, per second (12 per minute). This limit keeps a caller from
/// flooding the audit log.
const REFUSALS: f64 = 0.2;
/// Burst of a caller's audited refusals, in refusals.
const REFUSALS_BURST: f64 = 20.0;
/// Long-term rate of the audited refusals of all callers without a valid token, per second, and their burst.
const STRANGERS: f64 = 1.0;
const STRANGERS_BURST: f64 = 60.0;
/// Maximum number of token buckets for requests, and also of those for refusals.
const BUCKETS: usize = 10_000;
/// Time after which an unused request bucket is full again.
const FILLED: Duration = Duration::from_secs(4);
/// Time after which an unused refusal bucket is full again.
const FORGIVEN: Duration = Duration::from_secs(100);
/// Time limit for a client that doesn't read its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Limits on clients, with their current state. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    requests: Buckets,
    /// Token buckets of refusals. A refusal takes its token from here, and none from the buckets of requests.
    refusals: Buckets,
    /// The same for callers without a valid token.
    strangers: Buckets,
    /// Streams in progress.
    pub streams: Streams,
}

type Buckets = Arc<Mutex<HashMap<Key, Bucket>>>;
/// Long-term rate of a bucket, per second, and its burst.
type Rate = (f64, f64);

/// Owner of a token bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// User at the Unix socket.
    User(Option<u32>),
    /// Holder of a token, by the token's name.
    Token(String),
    /// Callers without a valid token, by address; IPv6 addresses by /64 network.
    Stranger(IpAddr),
    /// All callers without a valid token.
    Strangers,
}

impl Key {
    /// Returns the key of a caller without a valid token.
    pub fn stranger(from: IpAddr) -> Self {
        Self::Stranger(network(from))
    }
}

/// Returns the address under which a remote caller is counted: IPv6 addresses by /64 network.
pub(crate) fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Token bucket that fills with time; each request takes a token.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Returns the tokens that the bucket has at a time.
    fn filled(self, (rate, burst): Rate, now: Instant) -> f64 {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * rate;
        (self.tokens + gained).min(burst)
    }
}

impl Limits {
    /// Takes a token for a request from the caller's bucket. A new bucket always gets room, so users without
    /// a role, however many, keep nobody out.
    ///
    /// # Errors
    /// Returns 429 if the bucket is empty.
    pub fn request(&self, who: Key, now: Instant) -> Result<(), Problem> {
        let (mut buckets, rate) = (lock(&self.requests), (PER_SECOND, BURST));
        if lacks_room(&mut buckets, &who, FILLED, now) {
            remove_fullest(&mut buckets, rate, now);
        }
        if draw(&mut buckets, who, rate, now) {
            return Ok(());
        }
        let detail = format!(
            "more than {PER_SECOND} requests per second: wait a second, or send several changes as one list"
        );
        Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).with_retry(1))
    }

    /// Returns whether to audit another refusal of a caller, and takes a token for it.
    pub fn refusal(&self, who: Key, now: Instant) -> bool {
        let each = (REFUSALS, REFUSALS_BURST);
        match who {
            Key::Stranger(_) => {
                take(&self.strangers, who, each, FORGIVEN, now)
                    && take(&self.strangers, Key::Strangers, (STRANGERS, STRANGERS_BURST), FORGIVEN, now)
            }
            who => take(&self.refusals, who, each, FORGIVEN, now),
        }
    }
}

fn lock(buckets: &Buckets) -> MutexGuard<'_, HashMap<Key, Bucket>> {
    buckets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a token from a caller's bucket. Returns false if the bucket is empty, or if there is no room for a
/// new bucket.
fn take(buckets: &Buckets, key: Key, rate: Rate, full_after: Duration, now: Instant) -> bool {
    let mut buckets = lock(buckets);
    !lacks_room(&mut buckets, &key, full_after, now) && draw(&mut buckets, key, rate, now)
}

/// Returns whether a new bucket for this caller has no room. At the maximum number of buckets, first removes
/// those unused for `full_after`: such a bucket is full again, so a new bucket can replace it when its caller
/// returns.
fn lacks_room(buckets: &mut HashMap<Key, Bucket>, key: &Key, full_after: Duration, now: Instant) -> bool {
    if buckets.len() < BUCKETS || buckets.contains_key(key) {
        return false;
    }
    buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < full_after);
    buckets.len() >= BUCKETS
}

/// Removes the bucket with the most tokens. Its caller gains the fewest from a new bucket.
fn remove_fullest(buckets: &mut HashMap<Key, Bucket>, rate: Rate, now: Instant) {
    let tokens = |bucket: &Bucket| bucket.filled(rate, now);
    let fullest = buckets.iter().max_by(|(_, one), (_, other)| tokens(one).total_cmp(&tokens(other)));
    if let Some(key) = fullest.map(|(key, _)| key.clone()) {
        buckets.remove(&key);
    }
}

/// Takes a token from a caller's bucket, which is full if it is new. Returns false if the bucket is empty.
fn draw(buckets: &mut HashMap<Key, Bucket>, key: Key, rate: Rate, now: Instant) -> bool {
    let bucket = buckets.entry(key).or_insert(Bucket { tokens: rate.1, at: now });
    *bucket = Bucket { tokens: bucket.filled(rate, now), at: now };
    if bucket.tokens < 1.0 {
        return false;
    }
    bucket.tokens -= 1.0;
    true
}

/// Connection on which a write fails if the client doesn't read its answer for [`PATIENCE`].
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Timer until the write fails; `None` while no write is blocked.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, patience: PATIENCE, stalled: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read the answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn request_rate_limit_of_a_user_delays_no_other_user() {
        let limits = Limits::default();
        let now = Instant::now();
        let granted = (0..10_000).filter(|_| limits.request(Key::User(Some(1)), now).is_ok()).count();
        assert_eq!(granted, BURST as usize);
        assert!(limits.request(Key::User(Some(2)), now).is_ok());
        let later = now + Duration::from_millis(500);
        let granted = (0..10_000).filter(|_| limits.request(Key::User(Some(1)), later).is_ok()).count();
        assert!((999..=1001).contains(&granted), "{granted}");
    }

    #[test]
    fn many_users_keep_no_other_user_out() {
        let (limits, now) = (Limits::default(), Instant::now());
        let asks = |uid| limits.request(Key::User(Some(uid)), now).is_ok();
        // A user may act as all users of its range of subordinate ids.
        assert!((1..=BUCKETS as u32).all(asks));
        assert!(asks(0));
        while asks(7) {}
        // An empty bucket is not the one that makes room.
        assert!((20_000..20_010).all(asks));
        assert!(!asks(7));
        assert_eq!(limits.requests.lock().unwrap().len(), BUCKETS);
    }

    #[test]
    fn unauthenticated_clients_are_counted_by_network_and_block_nobody() {
        let (limits, now) = (Limits::default(), Instant::now());
        let stranger = |address: IpAddr, now| limits.refusal(Key::stranger(address), now);
        let from = |text: &str| stranger(text.parse().unwrap(), now);
        assert_eq!((0..100).filter(|_| from("fd00::1")).count(), REFUSALS_BURST as usize);
        assert!(!from("fd00::2") && from("fd00:0:0:1::1") && from("10.0.0.1"));
        let noted =
            (0..BUCKETS as u32).filter(|address| stranger(IpAddr::V4((*address).into()), now)).count();
        assert_eq!(noted, STRANGERS_BURST as usize - REFUSALS_BURST as usize - 2, "of all together");
        assert!(!from("10.0.0.2"), "there is no room for more");
        assert!(limits.request(Key::User(Some(7)), now).is_ok(), "users have their own");
        assert!(limits.refusal(Key::User(Some(7)), now), "also of refusals");
        assert!(stranger("10.0.0.2".parse().unwrap(), now + FORGIVEN));
        assert!(limits.strangers.lock().unwrap().len() < 10);
    }

    #[tokio::test]
    async fn client_that_does_not_read_is_closed() {
        let (_client, server) = tokio::net::UnixStream::pair().unwrap();
        let mut patient = Patient { patience: Duration::from_millis(50), ..Patient::new(server) };
        let much = vec![0; 8 << 20];
        let error = tokio::time::timeout(Duration::from_secs(10), patient.write_all(&much)).await;
        assert_eq!(error.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
