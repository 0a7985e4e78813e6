use millrace_units::QueueId;

use super::*;

#[test]
fn long_change_list_is_sent_in_pieces_with_a_marked_last_piece() {
    let told = |changes: u16| -> Vec<(usize, bool, bool)> {
        let changes = (0..changes).map(|node| ScheduleChange::Default(QueueId(node))).collect();
        pieces(changes).map(|(piece, changes)| (changes.len(), piece.begins, piece.ends)).collect()
    };
    assert_eq!(told(0), [(0, true, true)]);
    assert_eq!(told(64), [(64, true, true)]);
    assert_eq!(told(129), [(64, true, false), (64, false, false), (1, false, true)]);
}
