//! Task of the mirror: reads the socket, applies messages, repeats lists after losses, sends batches to the
//! user.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::listing::{Listing, Reason};
use super::{MirrorOptions, Shared};
use crate::netlink::decode::decode;
use crate::netlink::socket::{Envelope, Received, Socket, messages};
use crate::state::Scope;
use crate::state::message::KernelMessage;
use crate::{HostChange, HostError, HostState, change};

/// Multicast groups: link, neighbour, traffic control, IPv4 and IPv6 address and route, IPv4 and IPv6
/// switches, next-hop objects.
const GROUPS: [u32; 10] = [1, 3, 4, 5, 7, 9, 11, 24, 25, 32];
/// Maximum number of buffers read before other tasks run.
const BUFFERS_PER_ITERATION: usize = 16;
/// Number of changes from which a batch is sent although more messages are waiting.
const LARGE_BATCH: usize = 65536;
/// Delay between a device event and the list of the device's routes. The kernel first announces that a device
/// went down, and then drops the device's routes.
const SETTLING: Duration = Duration::from_millis(100);
const FIRST_LIST: Duration = Duration::from_secs(60);
const MOST_ATTEMPTS: u32 = 10;

type Comparisons = mpsc::UnboundedReceiver<oneshot::Sender<u64>>;

/// Event that woke the task.
enum Event {
    Stop,
    Flush,
    Readable,
    Request(oneshot::Sender<u64>),
    ComparisonTime,
    Settled,
}

pub(super) struct Worker {
    socket: AsyncFd<Socket>,
    buffer: Vec<u8>,
    shared: Arc<Shared>,
    sender: mpsc::Sender<Vec<HostChange>>,
    requests: Comparisons,
    pending: Vec<HostChange>,
    coalesced: usize,
    /// Whether the socket was empty at the last read.
    idle: bool,
    listing: Option<Listing>,
    overrun: bool,
    waiting: Vec<oneshot::Sender<u64>>,
    comparison_due: bool,
    comparison_interval: Duration,
    next_comparison: Instant,
    unsettled: BTreeSet<u32>,
    settled_at: Instant,
}

impl Worker {
    pub fn open(
        options: &MirrorOptions,
        shared: Arc<Shared>,
        sender: mpsc::Sender<Vec<HostChange>>,
        requests: Comparisons,
    ) -> Result<Self, HostError> {
        let mut socket = Socket::open_nonblocking(libc::NETLINK_ROUTE as isize)?;
        socket.set_receive_buffer(options.receive_buffer)?;
        GROUPS.iter().try_for_each(|group| socket.subscribe(*group))?;
        // SAFETY: the socket owns one descriptor, returns the same one at each call, and closes it only when
        // it is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        let socket = registered.map_err(|error| HostError::Socket {
            what: "registering with the event loop",
            source: error.into(),
        })?;
        let now = Instant::now();
        Ok(Self {
            socket,
            buffer: Vec::new(),
            shared,
            sender,
            requests,
            pending: Vec::new(),
            coalesced: 0,
            idle: false,
            listing: None,
            overrun: false,
            waiting: Vec::new(),
            comparison_due: false,
            comparison_interval: options.comparison_interval,
            next_comparison: now + options.comparison_interval,
            unsettled: BTreeSet::new(),
            settled_at: now,
        })
    }

    /// Makes the first list, and sends the whole state as one batch.
    pub async fn list_first(&mut self) -> Result<(), HostError> {
        self.begin(Listing::new(Scope::All, Reason::Start))?;
        let finish = async {
            while self.listing.is_some() || self.overrun {
                let _ = self.socket.readable().await.map_err(receiving)?;
                self.read()?;
                self.start_next()?;
            }
            Ok(())
        };
        let silent = || HostError::Silent { what: "list its state".into(), seconds: FIRST_LIST.as_secs() };
        tokio::time::timeout(FIRST_LIST, finish).await.unwrap_or_else(|_| Err(silent()))?;
        self.pending.clear();
        let first = self.shared.read().snapshot();
        self.sender.try_send(first).map_err(|_| HostError::Stopped)
    }

    /// Follows the kernel until the receiver is dropped or the socket fails.
    pub async fn run(mut self) {
        loop {
            match self.iterate().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::error!(%error, "the kernel mirror stops");
                    return;
                }
            }
        }
    }

    async fn iterate(&mut self) -> Result<bool, HostError> {
        match self.next_event().await? {
            Event::Stop => return Ok(false),
            Event::Flush => {
                // Sending can't fail: this task is the only sender, and the channel just had a free slot.
                let _ = self.sender.try_send(std::mem::take(&mut self.pending));
                self.coalesced = 0;
            }
            Event::Readable => self.read()?,
            Event::Request(answer) => {
                self.waiting.push(answer);
                self.comparison_due = true;
            }
            Event::ComparisonTime => {
                self.comparison_due = true;
                self.next_comparison = Instant::now() + self.comparison_interval;
            }
            Event::Settled => {}
        }
        self.start_next()?;
        Ok(true)
    }

    async fn next_event(&mut self) -> Result<Event, HostError> {
        let flush = !self.pending.is_empty() && (self.idle || self.pending.len() >= LARGE_BATCH);
        let comparing = !self.comparison_interval.is_zero();
        let settling = self.listing.is_none() && !self.unsettled.is_empty();
        Ok(tokio::select! {
            biased;
            room = self.sender.reserve(), if flush => room.map_or(Event::Stop, |_| Event::Flush),
            ready = self.socket.readable() => ready.map(|_| Event::Readable).map_err(receiving)?,
            request = self.requests.recv() => request.map_or(Event::Stop, Event::Request),
            () = tokio::time::sleep_until(self.next_comparison), if comparing => Event::ComparisonTime,
            () = tokio::time::sleep_until(self.settled_at), if settling => Event::Settled,
        })
    }

    /// Starts the most urgent pending list, unless a list is in progress.
    fn start_next(&mut self) -> Result<(), HostError> {
        if self.listing.is_some() {
            return Ok(());
        }
        if self.overrun {
            // After an overrun, the kernel drops further notifications until the mirror has emptied the
            // socket's buffer once.
            if self.idle {
                self.overrun = false;
                self.unsettled.clear();
                return self.begin(Listing::new(Scope::All, Reason::Overrun));
            }
            return Ok(());
        }
        if self.comparison_due {
            self.comparison_due = false;
            let waiting = std::mem::take(&mut self.waiting);
            return self.begin(Listing::new(Scope::All, Reason::Comparison(waiting)));
        }
        if self.settled_at <= Instant::now()
            && let Some(ifindex) = self.unsettled.pop_first()
        {
            return self.begin(Listing::new(Scope::RoutesOf(ifindex), Reason::Device));
        }
        Ok(())
    }

    fn begin(&mut self, mut listing: Listing) -> Result<(), HostError> {
        let mut state = self.shared.write();
        state.begin_list(listing.scope);
        if listing.attempts == 0 {
            listing.differences = state.differences();
        }
        drop(state);
        if listing.scope == Scope::All {
            self.shared.statistics().dumps += 1;
        }
        self.listing = Some(listing);
        self.ask()
    }

    /// Sends the next netlink request of the list in progress.
    fn ask(&mut self) -> Result<(), HostError> {
        if let Some(listing) = &mut self.listing
            && let Some(request) = listing.steps.pop_front()
        {
            listing.sequence = self.socket.get_mut().send(request)?;
        }
        Ok(())
    }

    /// Reads and applies messages until the socket is empty or [`BUFFERS_PER_ITERATION`] is reached.
    fn read(&mut self) -> Result<(), HostError> {
        self.idle = false;
        for _ in 0..BUFFERS_PER_ITERATION {
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = self.socket.try_io(Interest::READABLE, |socket| socket.receive(&mut buffer));
            let applied = match received {
                Ok(()) => self.apply(&buffer),
                Err(error) => self.not_received(error),
            };
            self.buffer = buffer;
            applied?;
            if self.idle {
                break;
            }
        }
        if self.pending.len() >= LARGE_BATCH + 2 * self.coalesced {
            change::coalesce(&mut self.pending);
            self.coalesced = self.pending.len();
        }
        Ok(())
    }

    fn not_received(&mut self, error: io::Error) -> Result<(), HostError> {
        match error.raw_os_error() {
            Some(libc::ENOBUFS) => {
                self.shared.statistics().overruns += 1;
                self.overrun = true;
                if let Some(listing) = &mut self.listing {
                    listing.incomplete = true;
                }
                Ok(())
            }
            Some(libc::EINTR) => Ok(()),
            _ if error.kind() == io::ErrorKind::WouldBlock => {
                self.idle = true;
                Ok(())
            }
            _ => Err(receiving(error)),
        }
    }

    fn apply(&mut self, buffer: &[u8]) -> Result<(), HostError> {
        let (mut count, mut ended) = (0, None);
        let shared = Arc::clone(&self.shared);
        let mut state = shared.write();
        let port = self.socket.get_ref().port;
        for envelope in messages(buffer) {
            let listed = self.belongs_to_list(&envelope, port);
            match envelope.content {
                Received::End { errno } if listed => ended = Some(errno),
                Received::End { .. } => {}
                Received::Message { kind, flags, payload } => {
                    count += 1;
                    match decode(kind, flags, payload) {
                        Some(message) if listed => state.apply_listed(message, &mut self.pending),
                        Some(message) => self.follow(&mut state, message),
                        None => {}
                    }
                }
            }
        }
        drop(state);
        shared.news.send_replace(());
        shared.statistics().messages += count;
        ended.map_or(Ok(()), |errno| self.step_ended(errno))
    }

    fn belongs_to_list(&mut self, envelope: &Envelope<'_>, port: u32) -> bool {
        let Some(listing) = &mut self.listing else { return false };
        let ours = envelope.port == port && envelope.sequence == listing.sequence;
        listing.incomplete |= ours && envelope.interrupted;
        ours
    }

    /// Applies a notification. If the kernel may drop routes at this event without a notification, marks the
    /// device for a route list.
    fn follow(&mut self, state: &mut HostState, message: KernelMessage) {
        let device = match &message {
            KernelMessage::Link(link) => {
                let was = state.link(link.ifindex);
                let lost =
                    was.is_some_and(|was| (was.admin_up && !link.admin_up) || (was.carrier && !link.carrier));
                lost.then_some(link.ifindex)
            }
            KernelMessage::AddressGone(address) => Some(address.ifindex),
            KernelMessage::LinkGone(ifindex) => {
                self.unsettled.remove(ifindex);
                None
            }
            _ => None,
        };
        state.apply_to(message, &mut self.pending);
        if let Some(ifindex) = device {
            self.unsettled.insert(ifindex);
            self.settled_at = Instant::now() + SETTLING;
        }
    }

    fn step_ended(&mut self, errno: i32) -> Result<(), HostError> {
        let Some(mut listing) = self.listing.take() else { return Ok(()) };
        if errno != 0 && !matches!(errno, libc::EOPNOTSUPP | libc::EAFNOSUPPORT) {
            // The device may have been removed, which is no problem. Any other error occurs again in the next
            // comparison, which reports it.
            listing.incomplete = true;
            listing.steps.clear();
            if listing.scope == Scope::All {
                let error = io::Error::from_raw_os_error(errno);
                tracing::warn!(%error, "the kernel did not list its state in full");
            }
        }
        if !listing.steps.is_empty() && !self.overrun {
            self.listing = Some(listing);
            return self.ask();
        }
        if !listing.incomplete && !self.overrun {
            self.finish(listing);
            return Ok(());
        }
        if listing.scope == Scope::All && listing.attempts < MOST_ATTEMPTS && !self.overrun {
            return self.begin(listing.again());
        }
        self.shared.write().outdated.end();
        match listing.reason {
            Reason::Start if !self.overrun => Err(HostError::Refused {
                what: "list its state".into(),
                source: io::Error::from_raw_os_error(if errno == 0 { libc::EAGAIN } else { errno }),
            }),
            Reason::Comparison(waiting) if self.overrun => {
                self.waiting.extend(waiting);
                self.comparison_due = true;
                Ok(())
            }
            // Changes of routes interrupted the list of a device's routes, so list them again. (If the device
            // has been removed, `errno` is not 0.)
            Reason::Device if !self.overrun && errno == 0 => {
                if let Scope::RoutesOf(ifindex) = listing.scope {
                    self.unsettled.insert(ifindex);
                    self.settled_at = Instant::now() + SETTLING;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, listing: Listing) {
        let mut state = self.shared.write();
        state.sweep(listing.scope, &mut self.pending);
        let differences = state.differences() - listing.differences;
        drop(state);
        if listing.scope == Scope::All && !matches!(listing.reason, Reason::Start) {
            // The list shows no queueing disciplines, so these may have changed unnoticed.
            self.pending.push(HostChange::Queueing(None));
        }
        self.shared.news.send_replace(());
        if let Reason::Comparison(waiting) = listing.reason {
            self.shared.statistics().divergences_repaired += differences;
            if differences > 0 {
                tracing::warn!(differences, "the mirror differed from the kernel and was repaired");
            }
            for waiting in waiting {
                // The requester may have given up.
                let _ = waiting.send(differences);
            }
        }
    }
}

fn receiving(source: io::Error) -> HostError {
    HostError::Socket { what: "receiving", source }
}
