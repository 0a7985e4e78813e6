//! Slow twin of the table: a list of connections, searched from its start.

use proptest::prelude::*;

use super::*;

struct Slow {
    key: ConnectionKey,
    originator: Orientation,
    state: State,
    expires: u32,
    word: u32,
    /// Tracked packets that were not dropped.
    packets: u32,
    /// Number of changes of lists when the connection came to its list.
    since: u64,
}

impl Slow {
    /// Returns the end of the connection. The twin has no references to connections.
    fn ended(&self, reason: EndReason) -> Ended {
        let Self { key, originator, word, .. } = *self;
        Ended { connection: ConnectionRef::default(), key, originator, word, reason }
    }
}

/// Connections in any order.
#[derive(Default)]
struct Twin {
    connections: Vec<Slow>,
    /// Number of changes of the lists of connections to recycle.
    changes: u64,
}

impl Twin {
    /// Returns the place of the connection that a new one recycles.
    fn next(&self) -> Option<usize> {
        let lists = || self.connections.iter().filter_map(|slow| slow.state.recycling());
        let count = |list| lists().filter(|own| *own == list).count();
        let is_first = count(Recycling::Unanswered) >= count(Recycling::Unassured);
        let longer = if is_first { Recycling::Unanswered } else { Recycling::Unassured };
        let known = self.connections.iter().enumerate();
        let in_list = known.filter(|(_, slow)| slow.state.recycling() == Some(longer));
        in_list.min_by_key(|(_, slow)| slow.since).map(|(place, _)| place)
    }

    fn track(
        &mut self,
        made: &Made,
        now: Instant,
    ) -> (Result<(Direction, Relation), Refusal>, Option<Ended>) {
        let packet = made.packet();
        let (key, orientation) = ConnectionKey::of(&made.key, &made.octets).unwrap();
        let place = self.connections.iter().position(|slow| slow.key == key);
        let Some(place) = place else {
            let mut ended = None;
            let result = self.open(key, orientation, &packet.transport, now, &mut ended);
            return (result.map(|()| (Direction::Original, Relation::Opening)), ended);
        };
        let mut slow = self.connections.remove(place);
        let direction = if slow.originator == orientation { Direction::Original } else { Direction::Reply };
        if slow.state.is_reopened_by(direction, &packet.transport) {
            let ended = Some(slow.ended(EndReason::Reopened));
            let result = self.open(key, orientation, &packet.transport, now, &mut None);
            return (result.map(|()| (Direction::Original, Relation::Opening)), ended);
        }
        let before = slow.state.recycling();
        if let Err(invalid) = slow.state.advance(direction, &packet.transport) {
            self.connections.insert(place, slow);
            return (Err(Refusal::Invalid(invalid)), None);
        }
        slow.expires = wheel::tick_after(now, CONFIG.timeouts.of(&slow.state));
        slow.packets += 1;
        let relation = if slow.state.is_answered() { Relation::Established } else { Relation::New };
        if slow.state.recycling() != before {
            self.changes += 1;
            slow.since = self.changes;
        }
        self.connections.insert(place, slow);
        (Ok((direction, relation)), None)
    }

    fn open(
        &mut self,
        key: ConnectionKey,
        originator: Orientation,
        transport: &Transport<'_>,
        now: Instant,
        ended: &mut Option<Ended>,
    ) -> Result<(), Refusal> {
        let state = State::open(key.protocol(), transport, false).map_err(Refusal::Invalid)?;
        let is_full = self.connections.len() == CONFIG.maximum as usize;
        let oldest = self.next();
        if is_full && oldest.is_none() {
            return Err(Refusal::TableFull);
        }
        let source = key.source(originator);
        let has_source = |slow: &&Slow| slow.key.source(slow.originator) == source;
        if self.connections.iter().filter(has_source).count() >= CONFIG.per_source as usize {
            return Err(Refusal::SourceFull);
        }
        if let Some(place) = oldest.filter(|_| is_full) {
            let slow = self.connections.remove(place);
            *ended = Some(slow.ended(EndReason::Recycled));
        }
        let expires = wheel::tick_after(now, CONFIG.timeouts.of(&state));
        self.changes += 1;
        let (word, packets, since) = (0, 1, self.changes);
        self.connections.push(Slow { key, originator, state, expires, word, packets, since });
        Ok(())
    }

    fn expire(&mut self, now: Instant) -> Vec<ConnectionKey> {
        let is_over = |slow: &Slow| !wheel::is_after(slow.expires, wheel::tick(now));
        let mut keys: Vec<_> =
            self.connections.iter().filter(|slow| is_over(slow)).map(|slow| slow.key).collect();
        self.connections.retain(|slow| !is_over(slow));
        keys.sort_by_key(|key| format!("{key}"));
        keys
    }
}

fn without_reference(ended: Ended) -> Ended {
    Ended { connection: ConnectionRef::default(), ..ended }
}

#[derive(Clone, Debug)]
enum Step {
    Packet { made: Made, word: u32 },
    Wait { millis: u64 },
    Remove { place: usize },
    Drop { place: usize },
}

fn packets() -> impl Strategy<Value = Made> {
    let address = prop::sample::select(vec![A, B, C]);
    let port = prop_oneof![3 => Just(1u16), 1 => Just(2)];
    let any_ends = (address.clone(), address, port.clone(), port);
    // Most packets are of one connection, so that it lives for some time.
    let ends = prop_oneof![4 => Just((A, B, 1, 1)), 4 => Just((B, A, 1, 1)), 2 => any_ends];
    let flags = prop::sample::select(vec![2u8, 2, 0x12, 0x10, 0x10, 0x11, 4, 0x14]);
    (ends, any::<bool>(), flags, 0..3u32, 0..3u32).prop_map(
        |(ends, is_tcp, flags, sequence, acknowledgment)| {
            let (source, destination, from, to) = ends;
            match is_tcp {
                true => Made::tcp(source, destination, (from, to), flags, (sequence, acknowledgment)),
                false => Made::udp(source, destination, (from, to)),
            }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![0..300u64, 0..9_000u64, 0..200_000u64, Just(10_000_000)];
    let step = prop_oneof![
        10 => (packets(), any::<u32>()).prop_map(|(made, word)| Step::Packet { made, word }),
        2 => wait.prop_map(|millis| Step::Wait { millis }),
        1 => (0..4usize).prop_map(|place| Step::Remove { place }),
        3 => (0..4usize).prop_map(|place| Step::Drop { place }),
    ];
    proptest::collection::vec(step, 1..200)
}

/// Time in nanoseconds at which the numbers of ticks soon begin at 0 again.
const LAST_TICKS: u64 = (u32::MAX as u64 - 100) * 250_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn table_equals_its_slow_twin(steps in steps(), start in prop::sample::select(vec![0, LAST_TICKS])) {
        let (mut now, mut hint) = (Instant::from_nanos(start), ConnectionRef::default());
        let (mut table, mut twin) = (ConnectionTable::new(&CONFIG, now).unwrap(), Twin::default());
        for step in steps {
            match step {
                Step::Packet { made, word } => {
                    let tracked = table.track(&made.packet(), hint, now);
                    let (known, ended) = twin.track(&made, now);
                    prop_assert_eq!(tracked.known.map(|known| (known.direction, known.relation)), known);
                    prop_assert_eq!(tracked.ended.map(without_reference), ended);
                    if let Ok(known) = tracked.known {
                        hint = known.connection;
                        let (key, _) = ConnectionKey::of(&made.key, &made.octets).unwrap();
                        prop_assert_eq!(table.find(&key), Some(hint));
                        let slow = twin.connections.iter_mut().find(|slow| slow.key == key).unwrap();
                        prop_assert_eq!(table.word(hint), slow.word);
                        table.set_word(hint, word);
                        slow.word = word;
                    }
                }
                Step::Wait { millis } => {
                    now += Duration::from_millis(millis);
                    let mut ended: Vec<_> = expire(&mut table, now).iter().map(|ended| ended.key).collect();
                    ended.sort_by_key(|key| format!("{key}"));
                    prop_assert_eq!(ended, twin.expire(now));
                }
                Step::Remove { place } => {
                    if let Some(slow) = twin.connections.get(place) {
                        let connection = table.find(&slow.key).unwrap();
                        let ended = slow.ended(EndReason::Removed);
                        let removed = table.remove(connection).unwrap();
                        prop_assert_eq!((removed.connection, without_reference(removed)), (connection, ended));
                        twin.connections.remove(place);
                    }
                }
                Step::Drop { place } => {
                    if let Some(slow) = twin.connections.get_mut(place) {
                        slow.packets -= 1;
                        let ended = (slow.packets == 0).then(|| slow.ended(EndReason::Dropped));
                        let connection = table.find(&slow.key).unwrap();
                        prop_assert_eq!(table.drop_counted(connection).map(without_reference), ended);
                        if ended.is_some() {
                            twin.connections.remove(place);
                        }
                    }
                }
            }
            prop_assert_eq!(table.len() as usize, twin.connections.len());
            prop_assert_eq!(table.iter().count(), twin.connections.len());
        }
    }
}
