//! Tests of the TCP state: cases by hand, and conversations of two hosts with losses and duplicates.

mod conversation;

use super::*;

const CLIENT: u32 = 100_000;
const SERVER: u32 = 500_000;

fn segment(flags: Flags, sequence: u32, acknowledgment: u32, payload: u32) -> Segment {
    Segment { sequence, acknowledgment, window: 1000, flags, payload, scale: None, is_fragment: false }
}

fn syn() -> Segment {
    segment(Flags::SYN, CLIENT, 0, 0)
}

fn syn_ack() -> Segment {
    segment(Flags::SYN | Flags::ACK, SERVER, CLIENT + 1, 0)
}

fn ack(sequence: u32, acknowledgment: u32, payload: u32) -> Segment {
    segment(Flags::ACK, sequence, acknowledgment, payload)
}

fn established() -> Tcp {
    let mut tcp = Tcp::open(&syn()).unwrap();
    tcp.advance(Direction::Reply, &syn_ack()).unwrap();
    tcp.advance(Direction::Original, &ack(CLIENT + 1, SERVER + 1, 0)).unwrap();
    assert_eq!(tcp.phase(), Phase::Established);
    tcp
}

/// Advances a copy, and returns its phase; the error if the segment is invalid.
fn phase_after(tcp: &Tcp, direction: Direction, segment: &Segment) -> Result<Phase, Invalid> {
    let mut copy = *tcp;
    copy.advance(direction, segment).map(|()| copy.phase())
}

#[test]
fn connection_opens_and_closes() {
    let mut tcp = established();
    let fin = |sequence, acknowledgment| segment(Flags::FIN | Flags::ACK, sequence, acknowledgment, 0);
    let steps = [
        (Direction::Original, ack(CLIENT + 1, SERVER + 1, 100), Phase::Established),
        (Direction::Reply, ack(SERVER + 1, CLIENT + 101, 300), Phase::Established),
        (Direction::Original, fin(CLIENT + 101, SERVER + 301), Phase::Closing),
        (Direction::Reply, ack(SERVER + 301, CLIENT + 102, 0), Phase::Closing),
        // Half closed: the server still sends.
        (Direction::Reply, ack(SERVER + 301, CLIENT + 102, 50), Phase::Closing),
        (Direction::Reply, fin(SERVER + 351, CLIENT + 102), Phase::Closing),
        (Direction::Original, ack(CLIENT + 102, SERVER + 352, 0), Phase::TimeWait),
    ];
    for (direction, segment, phase) in steps {
        tcp.advance(direction, &segment).unwrap();
        assert_eq!(tcp.phase(), phase, "{segment:?}");
    }
}

#[test]
fn only_syn_opens() {
    for flags in [Flags::ACK, Flags::RST, Flags::SYN | Flags::ACK, Flags::FIN | Flags::ACK] {
        assert_eq!(Tcp::open(&segment(flags, 1, 1, 0)), Err(Invalid::NotOpening));
    }
}

#[test]
fn both_sides_may_open_at_once() {
    let mut tcp = Tcp::open(&syn()).unwrap();
    tcp.advance(Direction::Reply, &segment(Flags::SYN, SERVER, 0, 0)).unwrap();
    assert_eq!(tcp.phase(), Phase::SynReceived);
    let both = Flags::SYN | Flags::ACK;
    tcp.advance(Direction::Original, &segment(both, CLIENT, SERVER + 1, 0)).unwrap();
    tcp.advance(Direction::Reply, &segment(both, SERVER, CLIENT + 1, 0)).unwrap();
    assert_eq!(tcp.phase(), Phase::Established);
}

#[test]
fn segments_outside_the_window_are_invalid() {
    let tcp = established();
    for (sequence, payload, valid) in [
        (CLIENT + 1, 1000, true),
        (CLIENT + 1, 1001, true), // a probe of the closed window
        (CLIENT + 1, 1002, false),
        (CLIENT + 2000, 0, false),
        (CLIENT - 998, 0, true), // old, inside the window behind the end
        (CLIENT - 1000, 0, false),
    ] {
        let result = phase_after(&tcp, Direction::Original, &ack(sequence, SERVER + 1, payload));
        assert_eq!(result.is_ok(), valid, "{sequence} {payload}");
        assert!(valid || result == Err(Invalid::Sequence));
    }
}

#[test]
fn acknowledgments_of_data_never_sent_are_invalid() {
    let tcp = established();
    for (acknowledgment, valid) in
        [(SERVER + 1, true), (SERVER + 2, false), (SERVER - 65_999, true), (SERVER - 66_001, false)]
    {
        let result = phase_after(&tcp, Direction::Original, &ack(CLIENT + 1, acknowledgment, 0));
        assert_eq!(result.is_ok(), valid, "{acknowledgment}");
        assert!(valid || result == Err(Invalid::Acknowledgment));
    }
}

#[test]
fn window_scale_counts_if_both_sides_offer_it() {
    for (server_scale, payload, valid) in [(Some(3), 8000, true), (Some(3), 8002, false), (None, 1002, false)]
    {
        let mut tcp = Tcp::open(&Segment { scale: Some(3), ..syn() }).unwrap();
        tcp.advance(Direction::Reply, &Segment { scale: server_scale, ..syn_ack() }).unwrap();
        tcp.advance(Direction::Original, &ack(CLIENT + 1, SERVER + 1, 0)).unwrap();
        // The window of a SYN is never scaled; the first scaled one comes with this acknowledgment.
        tcp.advance(Direction::Reply, &ack(SERVER + 1, CLIENT + 1, 0)).unwrap();
        let result = phase_after(&tcp, Direction::Original, &ack(CLIENT + 1, SERVER + 1, payload));
        assert_eq!(result.is_ok(), valid, "{server_scale:?} {payload}");
    }
}

#[test]
fn only_the_expected_reset_ends_a_connection() {
    let tcp = established();
    let reset = |sequence| phase_after(&tcp, Direction::Original, &segment(Flags::RST, sequence, 0, 0));
    assert_eq!(reset(CLIENT + 1), Ok(Phase::Reset));
    assert_eq!(reset(CLIENT + 2), Ok(Phase::Established));
    assert_eq!(reset(CLIENT + 900), Ok(Phase::Established));
    assert_eq!(reset(CLIENT + 5000), Err(Invalid::Sequence));
    assert_eq!(reset(CLIENT - 2000), Err(Invalid::Sequence));
}

#[test]
fn refused_connection_is_reset_only_by_the_right_acknowledgment() {
    let tcp = Tcp::open(&syn()).unwrap();
    let reset =
        |flags, acknowledgment| phase_after(&tcp, Direction::Reply, &segment(flags, 0, acknowledgment, 0));
    assert_eq!(reset(Flags::RST | Flags::ACK, CLIENT + 1), Ok(Phase::Reset));
    assert_eq!(reset(Flags::RST | Flags::ACK, CLIENT + 2), Err(Invalid::Acknowledgment));
    assert_eq!(reset(Flags::RST, 0), Err(Invalid::Acknowledgment));
}

#[test]
fn syn_of_an_open_connection_changes_nothing() {
    let tcp = established();
    for direction in [Direction::Original, Direction::Reply] {
        let other = segment(Flags::SYN, 77, 0, 0);
        let mut copy = tcp;
        copy.advance(direction, &other).unwrap();
        assert_eq!(copy, tcp);
        assert!(!tcp.is_reopened_by(direction, &other));
    }
}

#[test]
fn closed_connection_opens_again() {
    let mut tcp = established();
    tcp.advance(Direction::Reply, &segment(Flags::RST, SERVER + 1, 0, 0)).unwrap();
    assert!(tcp.is_reopened_by(Direction::Original, &segment(Flags::SYN, 77, 0, 0)));
    assert!(!tcp.is_reopened_by(Direction::Original, &syn_ack()));
}

#[test]
fn time_wait_opens_again_only_after_the_old_sequence_numbers() {
    let mut tcp = established();
    let fin = Flags::FIN | Flags::ACK;
    tcp.advance(Direction::Original, &segment(fin, CLIENT + 1, SERVER + 1, 0)).unwrap();
    tcp.advance(Direction::Reply, &segment(fin, SERVER + 1, CLIENT + 2, 0)).unwrap();
    tcp.advance(Direction::Original, &ack(CLIENT + 2, SERVER + 2, 0)).unwrap();
    assert_eq!(tcp.phase(), Phase::TimeWait);
    let reopens = |sequence| tcp.is_reopened_by(Direction::Original, &segment(Flags::SYN, sequence, 0, 0));
    assert_eq!([reopens(CLIENT + 2), reopens(CLIENT + 3), reopens(CLIENT)], [false, true, false]);
}

#[test]
fn challenge_of_a_forgotten_connection_and_its_reset_pass() {
    let mut tcp = Tcp::open(&syn()).unwrap();
    assert_eq!(phase_after(&tcp, Direction::Reply, &ack(7, 70, 1)), Err(Invalid::NotOpening));
    tcp.advance(Direction::Reply, &ack(7, 70, 0)).unwrap();
    tcp.advance(Direction::Original, &segment(Flags::RST, 70, 0, 0)).unwrap();
    assert_eq!(tcp, Tcp::open(&syn()).unwrap());
}

#[test]
fn nothing_follows_a_fin() {
    let mut tcp = established();
    tcp.advance(Direction::Original, &segment(Flags::FIN | Flags::ACK, CLIENT + 1, SERVER + 1, 0)).unwrap();
    let more = phase_after(&tcp, Direction::Original, &ack(CLIENT + 2, SERVER + 1, 1));
    assert_eq!(more, Err(Invalid::Sequence));
}

#[test]
fn data_of_a_syn_may_be_refused() {
    let tcp = Tcp::open(&Segment { payload: 100, ..syn() }).unwrap();
    for (acknowledgment, valid) in
        [(CLIENT + 1, true), (CLIENT + 101, true), (CLIENT + 102, false), (CLIENT, false)]
    {
        let answer = Segment { acknowledgment, ..syn_ack() };
        assert_eq!(phase_after(&tcp, Direction::Reply, &answer).is_ok(), valid, "{acknowledgment}");
    }
}

#[test]
fn adopted_connection_ends_by_fin_and_by_reset() {
    let mut tcp = Tcp::adopt(&ack(CLIENT, SERVER, 10)).unwrap();
    // Nobody has answered yet, and a host without the connection resets it.
    tcp.advance(Direction::Original, &ack(CLIENT, SERVER, 10)).unwrap();
    assert!(!tcp.phase().is_past_handshake());
    let refusal = segment(Flags::RST, SERVER, 0, 0);
    assert_eq!(phase_after(&tcp, Direction::Reply, &refusal), Ok(Phase::Reset));
    tcp.advance(Direction::Reply, &ack(SERVER, CLIENT + 10, 40_000)).unwrap();
    assert_eq!(tcp.phase(), Phase::Established);
    let reset = segment(Flags::RST, CLIENT + 10, 0, 0);
    assert_eq!(phase_after(&tcp, Direction::Original, &reset), Ok(Phase::Reset));
    let fin = Flags::FIN | Flags::ACK;
    tcp.advance(Direction::Original, &segment(fin, CLIENT + 10, SERVER + 40_000, 0)).unwrap();
    tcp.advance(Direction::Reply, &segment(fin, SERVER + 40_000, CLIENT + 11, 0)).unwrap();
    tcp.advance(Direction::Original, &ack(CLIENT + 11, SERVER + 40_001, 0)).unwrap();
    assert_eq!(tcp.phase(), Phase::TimeWait);
    assert_eq!(Tcp::adopt(&syn_ack()), Err(Invalid::NotOpening));
}

/// The first fragment doesn't show where the segment ends.
#[test]
fn acknowledgment_of_a_fragmented_segment_is_valid() {
    let mut tcp = established();
    let first = Segment { is_fragment: true, ..ack(CLIENT + 1, SERVER + 1, 480) };
    let whole = ack(SERVER + 1, CLIENT + 1001, 0);
    assert_eq!(phase_after(&tcp, Direction::Reply, &whole), Err(Invalid::Acknowledgment));
    tcp.advance(Direction::Original, &first).unwrap();
    assert_eq!(phase_after(&tcp, Direction::Reply, &whole), Ok(Phase::Established));
    // A fragment outside the window is invalid, and changes nothing.
    let mut tcp = established();
    let far = Segment { is_fragment: true, ..ack(CLIENT + 50_000, SERVER + 1, 480) };
    assert_eq!(tcp.advance(Direction::Original, &far), Err(Invalid::Sequence));
    assert_eq!(tcp, established());
}

/// A sender with a forged address doesn't see the answer, so it can't acknowledge it.
#[test]
fn handshake_is_checked_after_fragments_and_changes_of_epoch() {
    let mut tcp = Tcp::open(&Segment { is_fragment: true, ..syn() }).unwrap();
    tcp.enter_epoch(1);
    tcp.advance(Direction::Reply, &syn_ack()).unwrap();
    tcp.enter_epoch(2);
    let forged = Segment { is_fragment: true, ..ack(CLIENT + 1, SERVER + 9000, 8) };
    assert_eq!(phase_after(&tcp, Direction::Original, &forged), Err(Invalid::Acknowledgment));
}

#[test]
fn fin_of_a_fragmented_segment_does_not_end_the_connection_early() {
    let mut tcp = established();
    let fin = segment(Flags::FIN | Flags::ACK, CLIENT + 1, SERVER + 1, 480);
    tcp.advance(Direction::Original, &Segment { is_fragment: true, ..fin }).unwrap();
    // The whole segment again.
    tcp.advance(Direction::Original, &Segment { payload: 1000, ..fin }).unwrap();
    assert_eq!(tcp.phase(), Phase::Closing);
}
