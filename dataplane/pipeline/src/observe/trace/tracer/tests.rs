use millrace_packet::Pool;

use super::*;

fn order(every: u32, count: u32) -> TraceOrder {
    TraceOrder { filter: None, every, count, time: Duration::from_secs(1) }
}

#[test]
fn one_in_n_packets_is_considered_on_average() {
    let (sink, _source) = trace(1, order(1000, 4000));
    let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
    let looked: usize = (0..40_000).filter(|_| tracer.next_of(50).is_some()).count();
    assert!((1900..2100).contains(&looked), "{looked}");
    let (sink, _source) = trace(1, order(1, 4000));
    let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
    assert!((0..100).all(|_| tracer.next_of(1) == Some(0)));
}

#[test]
fn each_packet_of_a_full_queue_has_an_end() {
    let pool = Pool::new(QUEUE_LIMIT as u32 + 8).unwrap();
    let (sink, mut source) = trace(1, order(1, MOST_TRACED));
    let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
    let marked = |mark| {
        let mut packet = pool.packet_from(&[0; 60]).unwrap();
        packet.trace = mark;
        packet
    };
    let queue: VecDeque<Packet> = (1..=QUEUE_LIMIT as u16).map(marked).collect();
    // All packets entered the router in earlier iterations.
    (0..QUEUE_LIMIT).for_each(|_| tracer.enter());
    tracer.looked();
    tracer.look_for(&queue);
    tracer.left(PortId(1), 1000, 500, DropReason::QueueFull, Instant::ZERO);
    let ends: Vec<(u16, bool)> = std::iter::from_fn(|| source.next_event())
        .map(|event| (event.mark, matches!(event.step, TraceStep::End(TraceEnd::Sent(..)))))
        .collect();
    let expected: Vec<(u16, bool)> = (1..=1000)
        .map(|mark| (mark, true))
        .chain((1501..=QUEUE_LIMIT as u16).map(|mark| (mark, false)))
        .collect();
    assert_eq!(ends, expected, "those that are left have none yet");
}

#[test]
fn packets_queued_in_this_iteration_are_searched_at_their_queue() {
    let pool = Pool::new(64).unwrap();
    let (sink, mut source) = trace(1, order(1, MOST_TRACED));
    let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
    let mut queue: VecDeque<Packet> = (0..20).map(|_| pool.packet_from(&[0; 60]).unwrap()).collect();
    let mut put = |tracer: &mut Tracer, place: u32, mark| {
        queue[place as usize].trace = mark;
        tracer.enter();
        let step = TraceStep::Queued { port: PortId(1), leaf: None, before: place };
        tracer.write_queued(mark, step, Instant::ZERO);
    };
    put(&mut tracer, 4, 1);
    put(&mut tracer, 9, 2);
    assert_eq!(tracer.places, 4..10);
    tracer.look_for(&queue);
    tracer.left(PortId(1), 6, 14, DropReason::QueueFull, Instant::ZERO);
    tracer.looked();
    // The device has taken six packets, so the remaining packets have moved forward in the queue.
    queue.drain(..6);
    tracer.look_for(&queue);
    tracer.left(PortId(1), 14, 0, DropReason::QueueFull, Instant::ZERO);
    tracer.looked();
    assert_eq!((tracer.has_live(), &tracer.places), (false, &NOWHERE));
    let ends: Vec<u16> = std::iter::from_fn(|| source.next_event())
        .filter(|event| matches!(event.step, TraceStep::End(TraceEnd::Sent(..))))
        .map(|event| event.mark)
        .collect();
    assert_eq!(ends, [1, 2]);
    let step = TraceStep::Queued { port: PortId(1), leaf: Some(QueueId(3)), before: 7 };
    tracer.write_queued(3, step, Instant::ZERO);
    assert_eq!(tracer.places, ANYWHERE, "a scheduler says where");
    tracer.looked();
    tracer.write_fragmented(3, 2, Instant::ZERO);
    assert_eq!(tracer.places, ANYWHERE, "the number of fragments says where");
}

#[test]
fn first_bytes_go_with_their_own_packet_also_when_there_was_no_room_for_another_event() {
    let pool = Pool::new(4).unwrap();
    let (sink, mut source) = trace(1, order(1, 4000));
    let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
    let arrives = |tracer: &mut Tracer, mark: u16| {
        let mut packet = pool.packet_from(&[mark as u8; 60]).unwrap();
        (packet.trace, packet.port) = (mark, PortId(1));
        tracer.write_arrived(&packet, Instant::ZERO);
    };
    arrives(&mut tracer, 1);
    (1..RING).for_each(|_| tracer.write(1, TraceStep::GoesOn, Instant::ZERO));
    arrives(&mut tracer, 2);
    assert_eq!(source.lost(), 1);
    let first = source.next_event().unwrap();
    assert_eq!(first.head.unwrap().bytes(), [1; 60]);
    assert!(source.next_event().unwrap().head.is_none());
    arrives(&mut tracer, 3);
    let last = std::iter::from_fn(|| source.next_event()).last().unwrap();
    assert_eq!((last.mark, last.head.unwrap().bytes()), (3, &[3; 60][..]));
}

#[test]
fn trace_ends_by_count_time_or_reader_and_packets_without_room_are_lost() {
    let pool = Pool::new(4).unwrap();
    let mut packet = pool.packet_from(&[0; 60]).unwrap();
    let (sink, source) = trace(1, order(1, 2));
    let mut tracer = Tracer::new(sink, 3, 4095, Instant::ZERO);
    let mut marks = Vec::new();
    while tracer.choose(&mut packet, None, 0) {
        marks.push(packet.trace);
    }
    assert_eq!(marks, [(3 << 12) | 4095, (3 << 12) | 1], "numbers begin anew, and none is 0");
    assert!(tracer.is_over(Instant::ZERO));
    let (sink, slow) = trace(2, order(1, 4000));
    let mut tracer = Tracer::new(sink, 0, 1, Instant::ZERO);
    assert!(!tracer.is_over(Instant::ZERO) && tracer.is_over(Instant::ZERO + Duration::from_secs(1)));
    while tracer.choose(&mut packet, None, 0) {
        tracer.write(packet.trace, TraceStep::Copied(1), Instant::ZERO);
        (1..LONGEST).for_each(|_| tracer.write(packet.trace, TraceStep::GoesOn, Instant::ZERO));
    }
    assert_eq!(slow.lost(), 1);
    drop((source, slow));
    assert!(tracer.is_over(Instant::ZERO));
}
