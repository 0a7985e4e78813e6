//! Tests of the association state with packets made by hand.

use proptest::prelude::*;

use super::*;

const ORIGINATOR: u32 = 0x1111_1111;
const OTHER: u32 = 0x2222_2222;

fn packet(tag: u32, chunks: &[(u8, u8, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0, 1, 0, 2];
    bytes.extend_from_slice(&tag.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for (kind, flags, value) in chunks {
        bytes.extend_from_slice(&[*kind, *flags]);
        bytes.extend_from_slice(&(value.len() as u16 + 4).to_be_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

fn init(kind: u8, packet_tag: u32, tag: u32) -> Vec<u8> {
    packet(packet_tag, &[(kind, 0, &[&tag.to_be_bytes()[..], &[0; 12]].concat())])
}

fn established() -> Sctp {
    let mut sctp = Sctp::open(&init(chunk::INIT, 0, ORIGINATOR)).unwrap();
    let steps = [
        (Direction::Reply, init(chunk::INIT_ACK, ORIGINATOR, OTHER), SctpPhase::InitAck),
        (Direction::Original, packet(OTHER, &[(chunk::COOKIE_ECHO, 0, &[7; 5])]), SctpPhase::CookieEcho),
        (Direction::Reply, packet(ORIGINATOR, &[(chunk::COOKIE_ACK, 0, &[])]), SctpPhase::Established),
    ];
    for (direction, packet, phase) in steps {
        sctp.advance(direction, &packet).unwrap();
        assert_eq!(sctp.phase(), phase);
    }
    sctp
}

#[test]
fn association_opens_and_shuts_down() {
    let mut sctp = established();
    let steps = [
        (Direction::Reply, packet(ORIGINATOR, &[(0, 3, &[1; 9]), (chunk::SHUTDOWN, 0, &[0; 4])])),
        (Direction::Original, packet(OTHER, &[(chunk::SHUTDOWN_ACK, 0, &[])])),
    ];
    for (direction, packet) in steps {
        sctp.advance(direction, &packet).unwrap();
        assert_eq!(sctp.phase(), SctpPhase::Closing);
    }
    let complete = packet(ORIGINATOR, &[(chunk::SHUTDOWN_COMPLETE, 0, &[])]);
    sctp.advance(Direction::Reply, &complete).unwrap();
    assert_eq!(sctp.phase(), SctpPhase::Closed);
}

#[test]
fn only_init_alone_and_without_tag_opens() {
    assert_eq!(Sctp::open(&init(chunk::INIT, 5, ORIGINATOR)), Err(Invalid::Tag));
    assert_eq!(Sctp::open(&init(chunk::INIT, 0, 0)), Err(Invalid::Tag));
    assert_eq!(Sctp::open(&packet(5, &[(0, 3, &[1; 4])])), Err(Invalid::NotOpening));
    assert_eq!(Sctp::open(&[0; 11]), Err(Invalid::Malformed));
}

#[test]
fn abort_with_a_guessed_tag_is_invalid() {
    let mut sctp = established();
    for (tag, flags) in [(0, 0), (ORIGINATOR, 0), (OTHER, 1), (77, 0), (77, 1)] {
        let abort = packet(tag, &[(chunk::ABORT, flags, &[])]);
        let valid = (tag, flags) == (OTHER, 1);
        assert_eq!(sctp.advance(Direction::Original, &abort).is_ok(), valid, "{tag:#x} {flags}");
        sctp = established();
    }
    let reflected = packet(ORIGINATOR, &[(chunk::ABORT, 1, &[])]);
    sctp.advance(Direction::Original, &reflected).unwrap();
    assert_eq!(sctp.phase(), SctpPhase::Closed);
}

/// 0 is no tag, so nobody can reflect it.
#[test]
fn reflected_tag_that_is_not_known_yet_is_invalid() {
    let abort = packet(0, &[(chunk::ABORT, 1, &[])]);
    let mut opened = Sctp::open(&init(chunk::INIT, 0, ORIGINATOR)).unwrap();
    assert_eq!(opened.advance(Direction::Reply, &abort), Err(Invalid::Tag));
    let mut learning = established();
    learning.enter_epoch(1);
    assert_eq!(learning.advance(Direction::Original, &abort), Err(Invalid::Tag));
}

#[test]
fn answer_to_a_repeated_init_replaces_the_lost_one() {
    let mut sctp = Sctp::open(&init(chunk::INIT, 0, ORIGINATOR)).unwrap();
    let cookie = |tag| packet(tag, &[(chunk::COOKIE_ECHO, 0, &[7; 5])]);
    sctp.advance(Direction::Reply, &init(chunk::INIT_ACK, ORIGINATOR, OTHER)).unwrap();
    sctp.advance(Direction::Original, &init(chunk::INIT, 0, ORIGINATOR)).unwrap();
    sctp.advance(Direction::Reply, &init(chunk::INIT_ACK, ORIGINATOR, OTHER + 1)).unwrap();
    assert_eq!(sctp.advance(Direction::Original, &cookie(OTHER)), Err(Invalid::Tag));
    sctp.advance(Direction::Original, &cookie(OTHER + 1)).unwrap();
    // The cookie was accepted: a late answer counts no more.
    sctp.advance(Direction::Reply, &init(chunk::INIT_ACK, ORIGINATOR, OTHER)).unwrap();
    sctp.advance(Direction::Reply, &packet(ORIGINATOR, &[(chunk::COOKIE_ACK, 0, &[])])).unwrap();
    sctp.advance(Direction::Original, &packet(OTHER + 1, &[(0, 3, &[1; 9])])).unwrap();
    assert_eq!(sctp.phase(), SctpPhase::Established);
}

#[test]
fn init_after_the_end_opens_anew_from_either_side() {
    let again = init(chunk::INIT, 0, 99);
    let mut sctp = established();
    assert!(!sctp.is_reopened_by(&again));
    sctp.advance(Direction::Original, &packet(OTHER, &[(chunk::ABORT, 0, &[])])).unwrap();
    assert!(sctp.is_reopened_by(&again) && !sctp.is_reopened_by(&init(chunk::INIT, 5, 99)));
}

#[test]
fn init_of_a_restart_changes_nothing() {
    let mut sctp = established();
    sctp.advance(Direction::Original, &init(chunk::INIT, 0, 99)).unwrap();
    assert_eq!(sctp, established());
}

proptest! {
    #[test]
    fn any_octets_are_read_without_panic(packets: Vec<(bool, Vec<u8>)>) {
        let mut sctp = established();
        for (original, octets) in packets {
            let direction = if original { Direction::Original } else { Direction::Reply };
            let before = sctp;
            if sctp.advance(direction, &octets).is_err() {
                prop_assert_eq!(sctp, before);
            }
        }
    }
}

#[test]
fn tags_are_learned_again_after_a_change_of_epoch() {
    let mut sctp = established();
    let data = |tag| packet(tag, &[(0, 3, &[1; 9])]);
    assert_eq!(sctp.advance(Direction::Original, &data(7)), Err(Invalid::Tag));
    sctp.enter_epoch(1);
    sctp.advance(Direction::Original, &data(7)).unwrap();
    sctp.advance(Direction::Reply, &data(9)).unwrap();
    for (direction, tag) in [(Direction::Original, 9), (Direction::Reply, 7)] {
        assert_eq!(sctp.advance(direction, &data(tag)), Err(Invalid::Tag));
    }
}
