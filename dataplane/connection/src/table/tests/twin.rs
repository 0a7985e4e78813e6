//! Slow twin of the table: a list of connections, searched from its start. It has identities, states and a clock of its
//! own, and shares no code with the table.

mod tcp;

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

/// Host and port.
type End = ([u8; 4], u16);

/// Packet between two hosts: a segment of TCP, or of UDP without one.
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: End,
    to: End,
    segment: Option<tcp::Segment>,
}

impl Sent {
    fn made(&self) -> Made {
        let Self { from: (source, from), to: (destination, to), segment } = *self;
        match segment {
            None => Made::udp(source, destination, (from, to)),
            Some(tcp::Segment { flags, sequence, acknowledgment }) => {
                Made::tcp(source, destination, (from, to), flags, (sequence, acknowledgment))
            }
        }
    }
}

/// State of a connection.
#[derive(Clone, Copy, Debug)]
enum SlowState {
    Tcp(tcp::Tcp),
    /// UDP: how often the sender has changed from one packet to the next, up to 3.
    Udp(u8),
}

/// List of connections that a full table recycles for new ones: of UDP without an answer, or of the others that are not
/// assured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlowList {
    Unanswered,
    Other,
}

impl SlowState {
    fn open(sent: &Sent) -> Result<Self, Invalid> {
        match sent.segment {
            None => Ok(Self::Udp(0)),
            Some(segment) => tcp::Tcp::open(segment).map(Self::Tcp),
        }
    }

    fn after(self, direction: Direction, sent: &Sent) -> Result<Self, Invalid> {
        match (self, sent.segment) {
            (Self::Tcp(tcp), Some(segment)) => tcp.after(direction, segment).map(Self::Tcp),
            (Self::Udp(changes), _) => {
                let last = if changes % 2 == 0 { Direction::Original } else { Direction::Reply };
                Ok(Self::Udp((changes + u8::from(direction != last)).min(3)))
            }
            (Self::Tcp(_), None) => unreachable!("protocols have connections of their own"),
        }
    }

    /// Returns the name in lists, whether the connection is answered, whether it is assured, and its idle time.
    fn shown(&self) -> (&'static str, bool, bool, Duration) {
        let Timeouts { opening, established, closing, closed, udp_unanswered, udp, .. } = CONFIG.timeouts;
        match self {
            Self::Udp(0) => ("unanswered", false, false, udp_unanswered),
            Self::Udp(1 | 2) => ("answered", true, false, udp),
            Self::Udp(_) => ("stream", true, true, udp),
            Self::Tcp(tcp) => match tcp.name() {
                name @ "syn-sent" => (name, false, false, opening),
                name @ "syn-received" => (name, true, false, opening),
                name @ "established" => (name, true, true, established),
                name @ "closing" => (name, true, true, closing),
                name => (name, true, false, closed),
            },
        }
    }

    /// Returns the list of the connection; `None` if it is assured.
    fn list(&self) -> Option<SlowList> {
        let (_, _, is_assured, _) = self.shown();
        let list = if matches!(self, Self::Udp(0)) { SlowList::Unanswered } else { SlowList::Other };
        (!is_assured).then_some(list)
    }
}

struct Slow {
    originator: End,
    other: End,
    state: SlowState,
    /// Nanoseconds at which the connection ends.
    until: u64,
    /// Number of the packet by which the connection has come to its list.
    since: usize,
    /// Number of packets that were not dropped.
    packets: usize,
    word: u32,
    /// Reference that the table has given.
    connection: ConnectionRef,
}

/// End of a connection: reason, the two hosts, the protocol and the word.
type SlowEnd = (EndReason, [(IpAddr, u16); 2], u8, u32);

impl Slow {
    fn is_of(&self, sent: &Sent) -> bool {
        let ends = [self.originator, self.other];
        matches!(self.state, SlowState::Tcp(_)) == sent.segment.is_some()
            && (ends == [sent.from, sent.to] || ends == [sent.to, sent.from])
    }

    fn direction(&self, sent: &Sent) -> Direction {
        if self.originator == sent.from { Direction::Original } else { Direction::Reply }
    }

    fn identity(&self) -> ([(IpAddr, u16); 2], u8) {
        let ends = [self.originator, self.other].map(|(host, port)| (IpAddr::from(host), port));
        (ends, if matches!(self.state, SlowState::Tcp(_)) { 6 } else { 17 })
    }

    fn ended(&self, reason: EndReason) -> SlowEnd {
        let (ends, protocol) = self.identity();
        (reason, ends, protocol, self.word)
    }
}

fn slow_end(ended: &Ended) -> SlowEnd {
    let Ended { key, originator, word, reason, .. } = ended;
    (*reason, key.endpoints(*originator), key.protocol().0, *word)
}

/// Nanoseconds of a tick. A connection ends at the first tick at which its idle time is over for sure.
const TICK: u64 = 250_000_000;

#[derive(Default)]
struct Twin {
    connections: Vec<Slow>,
    /// Number of packets so far.
    packets: usize,
    /// Nanoseconds since the start of the clock.
    now: u64,
}

impl Twin {
    fn track(&mut self, sent: &Sent) -> (Result<(Direction, Relation), Refusal>, Option<SlowEnd>) {
        self.packets += 1;
        let opening = (Direction::Original, Relation::Opening);
        let Some(place) = self.connections.iter().position(|slow| slow.is_of(sent)) else {
            let (opened, ended) = self.open(sent);
            return (opened.map(|()| opening), ended);
        };
        let slow = &self.connections[place];
        let direction = slow.direction(sent);
        if let (SlowState::Tcp(tcp), Some(segment)) = (slow.state, sent.segment)
            && tcp.is_reopened_by(direction, segment)
        {
            let ended = self.connections.remove(place).ended(EndReason::Reopened);
            return (self.open(sent).0.map(|()| opening), Some(ended));
        }
        let state = match slow.state.after(direction, sent) {
            Ok(state) => state,
            Err(invalid) => return (Err(Refusal::Invalid(invalid)), None),
        };
        let (until, now) = (self.until(&state), self.packets);
        let slow = &mut self.connections[place];
        if slow.state.list() != state.list() {
            slow.since = now;
        }
        (slow.state, slow.until) = (state, until);
        slow.packets += 1;
        let is_answered = state.shown().1;
        (Ok((direction, if is_answered { Relation::Established } else { Relation::New })), None)
    }

    /// Opens a connection. Returns the end of the connection that was recycled.
    fn open(&mut self, sent: &Sent) -> (Result<(), Refusal>, Option<SlowEnd>) {
        let state = match SlowState::open(sent) {
            Ok(state) => state,
            Err(invalid) => return (Err(Refusal::Invalid(invalid)), None),
        };
        let is_full = self.connections.len() == CONFIG.maximum as usize;
        let oldest = self.oldest();
        if is_full && oldest.is_none() {
            return (Err(Refusal::TableFull), None);
        }
        let of_source = self.connections.iter().filter(|slow| slow.originator.0 == sent.from.0);
        if of_source.count() >= CONFIG.per_source as usize {
            return (Err(Refusal::SourceFull), None);
        }
        let recycled = oldest.filter(|_| is_full).map(|place| self.connections.remove(place));
        let (until, since, packets, word) = (self.until(&state), self.packets, 1, 0);
        let (originator, other, connection) = (sent.from, sent.to, ConnectionRef::default());
        let slow = Slow { originator, other, state, until, since, packets, word, connection };
        self.connections.push(slow);
        (Ok(()), recycled.map(|slow| slow.ended(EndReason::Recycled)))
    }

    /// Returns the place of the connection that has been in the longer list for longest.
    fn oldest(&self) -> Option<usize> {
        let members = |list: SlowList| {
            let all = self.connections.iter().enumerate();
            all.filter(move |(_, slow)| slow.state.list() == Some(list))
        };
        let is_other = members(SlowList::Other).count() > members(SlowList::Unanswered).count();
        let longer = members(if is_other { SlowList::Other } else { SlowList::Unanswered });
        longer.min_by_key(|(_, slow)| slow.since).map(|(place, _)| place)
    }

    /// Drops a packet of a connection. Returns the end of the connection if it was the last one.
    fn drop_packet(&mut self, place: usize) -> Option<SlowEnd> {
        let slow = &mut self.connections[place];
        slow.packets -= 1;
        (slow.packets == 0).then(|| self.connections.remove(place).ended(EndReason::Dropped))
    }

    /// Returns the nanoseconds at which a connection ends that gets no further packet.
    fn until(&self, state: &SlowState) -> u64 {
        let idle = state.shown().3.as_nanos() as u64;
        (self.now / TICK + idle.div_ceil(TICK) + 1) * TICK
    }

    fn expire(&mut self) -> Vec<SlowEnd> {
        let now = self.now;
        let over = self.connections.extract_if(.., |slow| slow.until <= now);
        sorted(over.map(|slow| slow.ended(EndReason::Expired)))
    }

    /// Returns all connections as the table lists them.
    fn list(&self) -> Vec<String> {
        let shown = |slow: &Slow| {
            let (phase, is_answered, is_assured, _) = slow.state.shown();
            // The table numbers its ticks by 32 bits.
            let until = Instant::from_nanos(u64::from((slow.until / TICK) as u32) * TICK);
            format!("{:?}", (slow.identity(), phase, is_answered, is_assured, until))
        };
        let mut all: Vec<_> = self.connections.iter().map(shown).collect();
        all.sort();
        all
    }
}

/// Returns ends in the order of their texts.
fn sorted(ends: impl Iterator<Item = SlowEnd>) -> Vec<SlowEnd> {
    let mut ends: Vec<_> = ends.collect();
    ends.sort_by_key(|end| format!("{end:?}"));
    ends
}

/// Returns the list of a table in the form of [`Twin::list`].
fn listed(table: &ConnectionTable) -> Vec<String> {
    let shown = |one: Listed| {
        let identity = (one.key.endpoints(one.originator), one.key.protocol().0);
        format!("{:?}", (identity, one.phase, one.is_answered, one.is_assured, one.until))
    };
    let mut all: Vec<_> = table.iter().map(shown).collect();
    all.sort();
    all
}

/// Packets of a step.
#[derive(Clone, Debug)]
enum Packets {
    One(Sent),
    /// A packet and its answer, twice.
    Exchange(Sent),
    /// The next segment of a host, with these flags: it fits to the connection if there is one.
    Next {
        from: End,
        to: End,
        flags: u8,
    },
}

impl Packets {
    fn sent(&self, twin: &Twin) -> Vec<Sent> {
        match *self {
            Self::One(sent) => vec![sent],
            Self::Exchange(sent) => [sent, Sent { from: sent.to, to: sent.from, ..sent }].repeat(2),
            Self::Next { from, to, flags } => {
                let first = tcp::Segment { flags: 2, sequence: 0, acknowledgment: 0 };
                let sent = Sent { from, to, segment: Some(first) };
                let known = twin.connections.iter().find(|slow| slow.is_of(&sent));
                let next = known.and_then(|slow| match slow.state {
                    SlowState::Tcp(tcp) => Some(tcp.next(slow.direction(&sent), flags)),
                    SlowState::Udp(..) => None,
                });
                vec![Sent { segment: next.or(sent.segment), ..sent }]
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send { packets: Packets, word: u32 },
    Wait { millis: u64 },
    Remove { place: usize },
    Drop { place: usize },
}

/// Returns the ends of a packet between any hosts.
fn any_ends() -> impl Strategy<Value = (End, End)> {
    let end = || (prop::sample::select(vec![A, B, C]), prop_oneof![3 => Just(1u16), 1 => Just(2)]);
    (end(), end())
}

/// Returns the ends of a packet of one connection, in either direction.
fn usual_ends() -> impl Strategy<Value = (End, End)> {
    prop::sample::select(vec![((A, 1), (B, 1)), ((B, 1), (A, 1))])
}

fn packets() -> impl Strategy<Value = Packets> {
    // Most packets are of one connection, so that it lives for some time.
    let ends = prop_oneof![4 => usual_ends(), 1 => any_ends()];
    let flags = prop::sample::select(vec![2u8, 2, 0x12, 0x10, 0x10, 0x11, 4, 0x14]);
    let number = || prop_oneof![12 => 0..3u32, 1 => 995..1_005u32, 1 => 66_000..66_004u32];
    let one = (ends, any::<bool>(), flags, number(), number());
    let one = one.prop_map(|((from, to), is_tcp, flags, sequence, acknowledgment)| {
        let segment = is_tcp.then_some(tcp::Segment { flags, sequence, acknowledgment });
        Packets::One(Sent { from, to, segment })
    });
    let exchange = any_ends().prop_map(|(from, to)| Packets::Exchange(Sent { from, to, segment: None }));
    let next = (usual_ends(), prop::sample::select(vec![0x10u8, 0x10, 0x11]));
    let next = next.prop_map(|((from, to), flags)| Packets::Next { from, to, flags });
    prop_oneof![10 => one, 4 => next, 1 => exchange]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![0..300u64, 0..9_000u64, 0..200_000u64, Just(10_000_000)];
    let step = prop_oneof![
        15 => (packets(), any::<u32>()).prop_map(|(packets, word)| Step::Send { packets, word }),
        2 => wait.prop_map(|millis| Step::Wait { millis }),
        1 => (0..4usize).prop_map(|place| Step::Remove { place }),
        3 => (0..4usize).prop_map(|place| Step::Drop { place }),
    ];
    proptest::collection::vec(step, 1..200)
}

/// Time in nanoseconds at which the numbers of ticks soon begin at 0 again.
const LAST_TICKS: u64 = (u32::MAX as u64 - 100) * TICK;

/// Sends a packet to both. The table's reference to a connection stays the same until its end.
fn send(
    table: &mut ConnectionTable,
    twin: &mut Twin,
    sent: &Sent,
    hint: ConnectionRef,
    word: u32,
) -> Tracked {
    let (made, now) = (sent.made(), Instant::from_nanos(twin.now));
    let tracked = table.track(&made.packet(), hint, now);
    let (known, ended) = twin.track(sent);
    assert_eq!(tracked.known.map(|known| (known.direction, known.relation)), known, "{sent:?}");
    assert_eq!(tracked.ended.as_ref().map(slow_end), ended, "{sent:?}");
    if let Ok(Known { connection, relation, is_counted, .. }) = tracked.known {
        assert!(is_counted);
        let (key, _) = ConnectionKey::of(&made.key, &made.octets).unwrap();
        assert_eq!(table.find(&key), Some(connection));
        let slow = twin.connections.iter_mut().find(|slow| slow.is_of(sent)).unwrap();
        if relation == Relation::Opening {
            slow.connection = connection;
        }
        assert_eq!((slow.connection, slow.word), (connection, table.word(connection)));
        table.set_word(connection, word);
        slow.word = word;
    }
    tracked
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn table_equals_its_slow_twin(steps in steps(), start in prop::sample::select(vec![0, LAST_TICKS])) {
        let mut hint = ConnectionRef::default();
        let mut table = ConnectionTable::new(&CONFIG, Instant::from_nanos(start)).unwrap();
        let mut twin = Twin { now: start, ..Twin::default() };
        for step in steps {
            match step {
                Step::Send { packets, word } => {
                    for sent in packets.sent(&twin) {
                        let known = send(&mut table, &mut twin, &sent, hint, word).known;
                        hint = known.map_or(hint, |known| known.connection);
                    }
                }
                Step::Wait { millis } => {
                    twin.now += millis * 1_000_000;
                    let ended = expire(&mut table, Instant::from_nanos(twin.now));
                    prop_assert_eq!(sorted(ended.iter().map(slow_end)), twin.expire());
                }
                Step::Remove { place } => {
                    if place < twin.connections.len() {
                        let slow = twin.connections.remove(place);
                        let removed = table.remove(slow.connection).unwrap();
                        prop_assert_eq!(removed.connection, slow.connection);
                        prop_assert_eq!(slow_end(&removed), slow.ended(EndReason::Removed));
                    }
                }
                Step::Drop { place } => {
                    if let Some(connection) = twin.connections.get(place).map(|slow| slow.connection) {
                        let ended = table.drop_counted(connection);
                        prop_assert_eq!(ended.as_ref().map(slow_end), twin.drop_packet(place));
                    }
                }
            }
            prop_assert_eq!(table.len() as usize, twin.connections.len());
            prop_assert_eq!(listed(&table), twin.list());
        }
    }
}

/// Without this, the twin could agree with a table that refuses everything.
#[test]
fn random_packets_reach_all_phases_and_all_refusals() {
    let (mut runner, mut seen) = (TestRunner::deterministic(), BTreeSet::new());
    for _ in 0..1000 {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let mut twin = Twin::default();
        for step in steps {
            match step {
                Step::Send { packets, .. } => {
                    for sent in packets.sent(&twin) {
                        let (known, ended) = twin.track(&sent);
                        seen.extend(known.err().map(|refusal| format!("{refusal:?}")));
                        seen.extend(ended.map(|(reason, ..)| format!("{reason:?}")));
                    }
                }
                Step::Wait { millis } => {
                    twin.now += millis * 1_000_000;
                    seen.extend(twin.expire().iter().map(|(reason, ..)| format!("{reason:?}")));
                }
                Step::Drop { place } if place < twin.connections.len() => {
                    seen.extend(twin.drop_packet(place).map(|(reason, ..)| format!("{reason:?}")));
                }
                Step::Drop { .. } | Step::Remove { .. } => {}
            }
            seen.extend(twin.connections.iter().map(|slow| slow.state.shown().0.to_owned()));
        }
    }
    let refusals =
        ["SourceFull", "TableFull", "Invalid(NotOpening)", "Invalid(Sequence)", "Invalid(Acknowledgment)"];
    let ends = ["Expired", "Recycled", "Reopened", "Dropped"];
    let udp = ["unanswered", "answered", "stream"];
    let tcp = ["syn-sent", "syn-received", "established", "closing", "time-wait", "reset"];
    for expected in [&refusals[..], &ends, &udp, &tcp].concat() {
        assert!(seen.contains(expected), "{expected} of {seen:?}");
    }
}
