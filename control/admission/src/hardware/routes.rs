//! Shortest paths from ports to processors.

use std::collections::VecDeque;

use super::{End, Path};

/// Returns, for each port and processor, the paths of the route with the fewest paths: of several, the first in
/// the order of the file.
pub(super) fn shortest(ports: usize, processors: usize, paths: &[Path]) -> Vec<Vec<Option<Vec<usize>>>> {
    (0..ports).map(|port| from(End::Port(port), processors, paths)).collect()
}

fn from(start: End, processors: usize, paths: &[Path]) -> Vec<Option<Vec<usize>>> {
    let mut found: Vec<Option<Vec<usize>>> = vec![None; processors];
    let mut open = VecDeque::from([(start, Vec::new())]);
    while let Some((end, route)) = open.pop_front() {
        for (index, path) in paths.iter().enumerate().filter(|(_, path)| path.from == end) {
            let Some(slot @ None) = found.get_mut(path.to) else { continue };
            let route: Vec<usize> = route.iter().copied().chain([index]).collect();
            *slot = Some(route.clone());
            open.push_back((End::Processor(path.to), route));
        }
    }
    found
}
