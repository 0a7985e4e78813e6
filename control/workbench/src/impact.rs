//! Impact of a plugin as measured: cycles per call, packet and byte, by regression (VERA, section 4.3.1).

use millrace_plugin::KindCost;

/// Point of a measurement: a call's packets, their length in bytes, and its median cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub packets: f64,
    pub bytes: f64,
    pub cycles: f64,
}

/// Returns the cycles of calls. `batches` are calls with different numbers of packets of one length, `sizes` calls
/// with equal numbers of packets of different lengths. `most` is the 99th percentile of cycles of a call with one
/// packet. Noise can bend a line: no part is below 0.
pub(crate) fn cost(batches: &[Point], sizes: &[Point], most: f64) -> Option<KindCost> {
    let per_packet = |point: &Point| (point.bytes, point.cycles / point.packets);
    let (_, byte) = line(&sizes.iter().map(per_packet).collect::<Vec<_>>())?;
    let byte = byte.max(0.0);
    // Without the cycles for bytes, the rest is a line over the number of packets.
    let rest = |point: &Point| (point.packets, point.cycles - byte * point.bytes * point.packets);
    let (call, packet) = line(&batches.iter().map(rest).collect::<Vec<_>>())?;
    let (call, packet) = (call.max(0.0), packet.max(0.0));
    let bytes = batches.first().map_or(0.0, |point| point.bytes);
    let packet_maximum = Some((most - call - byte * bytes).max(packet));
    Some(KindCost { fixed: 0.0, call, packet, packet_maximum, byte }.rounded())
}

/// Returns start and slope of the line with the least squares of relative errors through points; `None` for fewer
/// than two different x. Relative, since the noise of a call grows with its length.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let weight = |y: f64| 1.0 / (y * y).max(1.0);
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| weight(*y) * of(*x, *y)).sum::<f64>();
    let (one, x, y) = (sum(&|_, _| 1.0), sum(&|x, _| x), sum(&|_, y| y));
    let (xx, xy) = (sum(&|x, _| x * x), sum(&|x, y| x * y));
    let spread = one * xx - x * x;
    if !spread.is_normal() || points.len() < 2 {
        return None;
    }
    let slope = (one * xy - x * y) / spread;
    Some(((y - slope * x) / one, slope))
}

#[cfg(test)]
mod tests {
    use millrace_plugin::Cost;
    use proptest::prelude::*;

    use super::*;

    fn points(of: impl Fn(f64, f64) -> f64, which: &[(f64, f64)]) -> Vec<Point> {
        which.iter().map(|&(packets, bytes)| Point { packets, bytes, cycles: of(packets, bytes) }).collect()
    }

    const BATCHES: [(f64, f64); 4] = [(1.0, 128.0), (8.0, 128.0), (32.0, 128.0), (64.0, 128.0)];
    const SIZES: [(f64, f64); 3] = [(32.0, 64.0), (32.0, 512.0), (32.0, 1500.0)];

    proptest! {
        #[test]
        fn regression_finds_the_cost_that_made_the_points(
            call in 10.0..2000.0_f64, packet in 1.0..5000.0_f64, byte in 0.0..10.0_f64,
        ) {
            let takes = |packets: f64, bytes: f64| call + packets * (packet + byte * bytes);
            // Sizes are measured with the cost of a call, which 32 packets share.
            let (batches, sizes) = (points(takes, &BATCHES), points(takes, &SIZES));
            let found = cost(&batches, &sizes, takes(1.0, 128.0) * 2.0).unwrap();
            prop_assert!((found.byte - byte).abs() < 0.01, "{found:?}");
            prop_assert!((found.packet - packet).abs() < 2.0, "{found:?}");
            prop_assert!((found.call - call).abs() < 2.0, "{found:?}");
            prop_assert!(found.packet_maximum.unwrap() >= found.packet);
        }

        #[test]
        fn no_part_of_a_cost_is_negative(cycles in proptest::collection::vec(0.0..1e6_f64, 7)) {
            let with = |which: &[(f64, f64)], cycles: &[f64]| {
                let mut points = points(|_, _| 0.0, which);
                points.iter_mut().zip(cycles).for_each(|(point, cycles)| point.cycles = *cycles);
                points
            };
            let kind = cost(&with(&BATCHES, &cycles), &with(&SIZES, &cycles[4..]), 0.0).unwrap();
            prop_assert!(kind.call >= 0.0 && kind.packet >= 0.0 && kind.byte >= 0.0, "{kind:?}");
            let found = Cost { on: [("worker".to_owned(), kind)].into(), ..Cost::default() };
            prop_assert_eq!(Cost::read(&found.written()).unwrap(), found);
        }
    }

    #[test]
    fn points_of_one_place_make_no_line() {
        assert_eq!(line(&[(1.0, 5.0), (1.0, 6.0)]), None);
        assert_eq!(line(&[(1.0, 5.0)]), None);
        assert_eq!(line(&[]), None);
    }
}
