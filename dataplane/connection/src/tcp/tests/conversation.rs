//! Two hosts that follow RFC 9293 exchange data through a network that loses, repeats and delays segments.
//! The tracker stands in the middle: it must accept every genuine segment, and refuse forged ones.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Host of a conversation: sends all its data once, and repeats what is not acknowledged.
#[derive(Clone, Debug)]
struct Host {
    /// Sequence number of the SYN.
    first: u32,
    /// Octets that the host sends in all, SYN and FIN included.
    octets: u32,
    /// Octets sent so far, and octets that the peer has acknowledged.
    sent: u32,
    acknowledged: u32,
    /// Octets received in order, and the first sequence number of the peer, once known.
    received: u32,
    peer: Option<u32>,
    window: u32,
    peer_window: u32,
    scale: u8,
}

impl Host {
    fn new(first: u32, data: u32, window: u32, scale: u8) -> Self {
        let (octets, peer_window) = (data + 2, u32::from(u16::MAX));
        let state = Self {
            first,
            octets,
            sent: 0,
            acknowledged: 0,
            received: 0,
            peer: None,
            window,
            peer_window,
            scale,
        };
        assert!(state.window >> scale <= u32::from(u16::MAX));
        state
    }

    fn make(&self, from: u32, count: u32) -> Segment {
        let (syn, fin) = (from == 0 && count > 0, from + count == self.octets && count > 0);
        let mut flags = Flags(0);
        for (flag, set) in [(Flags::SYN, syn), (Flags::FIN, fin), (Flags::ACK, self.peer.is_some())] {
            flags = if set { flags | flag } else { flags };
        }
        let scale = if syn { 0 } else { self.scale };
        Segment {
            sequence: self.first.wrapping_add(from),
            acknowledgment: self.peer.map_or(0, |peer| peer.wrapping_add(self.received)),
            window: (self.window >> scale).min(u16::MAX.into()) as u16,
            flags,
            payload: count - u32::from(syn) - u32::from(fin),
            scale: syn.then_some(self.scale),
            is_fragment: false,
        }
    }

    /// Sends new octets as far as the window permits, or repeats the first that is not acknowledged.
    fn send(&mut self, wanted: u32, repeats: bool) -> Option<Segment> {
        let from = if repeats { self.acknowledged } else { self.sent };
        let room = (self.acknowledged + self.peer_window).saturating_sub(from);
        // The SYN goes alone, and nothing follows before its acknowledgment.
        let most = if from == 0 { 1 } else { wanted };
        let count = most.min(room).min(self.octets - from);
        if from > 0 && self.acknowledged == 0 || self.octets == from || count == 0 {
            return None;
        }
        self.sent = self.sent.max(from + count);
        Some(self.make(from, count))
    }

    fn receive(&mut self, segment: &Segment) {
        if segment.has(Flags::SYN) && self.peer.is_none() {
            self.peer = Some(segment.sequence);
        }
        let Some(peer) = self.peer else { return };
        let (start, end) = (segment.sequence.wrapping_sub(peer), segment.end().wrapping_sub(peer));
        if start <= self.received && end > self.received && end <= self.received + self.window.max(1) {
            self.received = end;
        }
        if segment.has(Flags::ACK) {
            let acknowledged = segment.acknowledgment.wrapping_sub(self.first);
            if acknowledged >= self.acknowledged && acknowledged <= self.sent {
                self.acknowledged = acknowledged;
                // Both hosts of a conversation use one scale.
                let scale = if segment.has(Flags::SYN) { 0 } else { self.scale };
                self.peer_window = u32::from(segment.window) << scale;
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A host sends: new octets, or the oldest again.
    Send { original: bool, octets: u32, repeats: bool },
    /// The next segment in the network arrives.
    Arrive { original: bool },
    /// The network loses it after the tracker.
    Lose { original: bool },
    /// The network repeats it.
    Repeat { original: bool },
    /// A host acknowledges.
    Acknowledge { original: bool },
    /// Somebody off the path sends a reset or data with a random sequence number.
    Forge { original: bool, sequence: u32, reset: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<bool>(), prop_oneof![1..3000u32, 1..100_000u32], any::<bool>())
            .prop_map(|(original, octets, repeats)| Step::Send { original, octets, repeats }),
        8 => any::<bool>().prop_map(|original| Step::Arrive { original }),
        1 => any::<bool>().prop_map(|original| Step::Lose { original }),
        1 => any::<bool>().prop_map(|original| Step::Repeat { original }),
        4 => any::<bool>().prop_map(|original| Step::Acknowledge { original }),
        1 => (any::<bool>(), any::<u32>(), any::<bool>())
            .prop_map(|(original, sequence, reset)| Step::Forge { original, sequence, reset }),
    ];
    proptest::collection::vec(step, 1..500)
}

/// Returns the first sequence number of a host; often one after which the numbers soon begin at 0 again.
fn first() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), u32::MAX - 100_000..]
}

struct World {
    hosts: [Host; 2],
    /// Segments that have passed the tracker, on their way to the host with this index.
    under_way: [VecDeque<Segment>; 2],
    tracker: Option<Tcp>,
}

impl World {
    fn pass(&mut self, from: usize, segment: Segment) -> Result<(), TestCaseError> {
        let direction = if from == 0 { Direction::Original } else { Direction::Reply };
        match &mut self.tracker {
            Some(tcp) => {
                let before = *tcp;
                let result = tcp.advance(direction, &segment);
                prop_assert!(result.is_ok(), "{direction:?} {segment:?} {result:?} {before:?}");
            }
            None => self.tracker = Some(Tcp::open(&segment).expect("the first segment is a SYN")),
        }
        self.under_way[1 - from].push_back(segment);
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let index = |original: bool| usize::from(!original);
        match step {
            Step::Send { original, octets, repeats } => {
                let from = index(original);
                if (from == 0 || self.hosts[1].peer.is_some())
                    && let Some(segment) = self.hosts[from].send(octets, repeats)
                {
                    self.pass(from, segment)?;
                }
            }
            Step::Acknowledge { original } => {
                let host = &self.hosts[index(original)];
                if host.peer.is_some() && host.sent > 0 {
                    let segment = host.make(host.sent, 0);
                    self.pass(index(original), segment)?;
                }
            }
            Step::Arrive { original } => {
                if let Some(segment) = self.under_way[index(original)].pop_front() {
                    self.hosts[index(original)].receive(&segment);
                }
            }
            Step::Lose { original } => drop(self.under_way[index(original)].pop_front()),
            Step::Repeat { original } => {
                let way = &mut self.under_way[index(original)];
                if let Some(segment) = way.front().copied() {
                    way.push_back(segment);
                }
            }
            Step::Forge { original, sequence, reset } => self.forge(original, sequence, reset)?,
        }
        Ok(())
    }

    /// Sends a forged segment. It must be invalid, unless its sequence number is close to the genuine ones by
    /// chance.
    fn forge(&mut self, original: bool, sequence: u32, reset: bool) -> Result<(), TestCaseError> {
        let Some(tcp) = self.tracker.as_mut().filter(|tcp| tcp.phase() != Phase::SynSent) else {
            return Ok(());
        };
        let flags = if reset { Flags::RST } else { Flags::ACK };
        let forged = segment(flags, sequence, sequence.rotate_left(9), 10);
        let direction = if original { Direction::Original } else { Direction::Reply };
        let (sender, _) = tcp.sides_at(direction);
        let distance = (sequence.wrapping_sub(sender.end) as i32).unsigned_abs();
        let before = *tcp;
        let result = tcp.advance(direction, &forged);
        prop_assert!(distance < 1 << 20 || result.is_err() && *tcp == before, "{forged:?} {before:?}");
        *tcp = before;
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The tracker accepts every segment of both hosts, whatever the network loses or repeats, and its phase
    /// agrees with theirs.
    #[test]
    fn genuine_segments_are_valid(
        steps in steps(),
        firsts in (first(), first()),
        data in (0..600_000u32, 0..2_000u32),
        window in prop::sample::select(vec![1000u32, 65_535, 400_000]),
    ) {
        let scale = if window > 65_535 { 3 } else { 0 };
        let hosts = [Host::new(firsts.0, data.0, window, scale), Host::new(firsts.1, data.1, window, scale)];
        let mut world = World { hosts, under_way: Default::default(), tracker: None };
        for step in steps {
            world.step(step)?;
            let [client, server] = &world.hosts;
            let Some(tcp) = &world.tracker else { continue };
            if client.acknowledged == client.octets && server.acknowledged == server.octets {
                prop_assert_eq!(tcp.phase(), Phase::TimeWait);
            }
            if tcp.phase() == Phase::TimeWait {
                prop_assert_eq!((client.received, server.received), (server.octets, client.octets));
            }
            if client.sent < client.octets && server.sent < server.octets && server.acknowledged > 0 {
                prop_assert_eq!(tcp.phase(), Phase::Established);
            }
        }
    }
}
