//! Service curves of two pieces, and the running curves of a class (Stoica, Zhang and Ng, "A Hierarchical
//! Fair Service Curve Algorithm for Link-Sharing, Real-Time and Priority Services", 1997; sections II and
//! IV).

use crate::Rate;

/// Service curve: bytes on the wire that a class gets, by time since it became backlogged.
///
/// A steep first piece (concave curve) gives a low delay to a class of low rate. A flat first piece (convex
/// curve) gives a high delay to a class of high rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Curve {
    /// Slope of the first piece.
    pub first: Rate,
    /// Duration of the first piece in nanoseconds; 0 for a straight line of slope `then`.
    pub duration: u64,
    /// Slope of the second piece, above 0.
    pub then: Rate,
}

impl Curve {
    /// Creates a straight line.
    pub const fn linear(rate: Rate) -> Self {
        Self { first: rate, duration: 0, then: rate }
    }

    /// Whether the curve is convex: its first piece is no steeper than its second.
    #[inline]
    pub(crate) fn is_convex(&self) -> bool {
        self.duration == 0 || self.first <= self.then
    }

    /// Returns the bytes at the end of the first piece.
    #[inline]
    pub(crate) fn first_bytes(&self) -> u64 {
        self.first.bytes_in(self.duration)
    }

    /// Returns the bytes after `time` nanoseconds.
    pub fn bytes_after(&self, time: u64) -> u64 {
        if time <= self.duration {
            return self.first.bytes_in(time);
        }
        self.first_bytes().saturating_add(self.then.bytes_in(time - self.duration))
    }
}

/// Curves of a class. At least one of `real_time` and `link_sharing` is required; an inner class has no
/// `real_time`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Curves {
    /// Real-time service curve; leaf classes only.
    pub real_time: Option<Curve>,
    /// Link-sharing service curve.
    pub link_sharing: Option<Curve>,
    /// Upper-limit service curve; limits link sharing only.
    pub upper_limit: Option<Curve>,
}

impl Curves {
    /// Returns a link-sharing curve of `rate`, and no other curve.
    pub const fn sharing(rate: Rate) -> Self {
        Self { real_time: None, link_sharing: Some(Curve::linear(rate)), upper_limit: None }
    }
}

/// Running curve of a class: the minimum of the service curves that started at the beginnings of the class's
/// backlogs. Its slopes are those of the service curve.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Running {
    x: u64,
    y: u64,
    /// Remaining duration of the first piece, in nanoseconds.
    dx: u64,
    /// Remaining bytes of the first piece.
    dy: u64,
}

impl Running {
    /// Creates the curve that starts at the point (`x`, `y`).
    pub fn new(curve: &Curve, x: u64, y: u64) -> Self {
        Self { x, y, dx: curve.duration, dy: curve.first_bytes() }
    }

    /// Returns the eligible curve. For a concave curve, it is this curve itself. For a convex curve, it lacks
    /// the first piece, so that packets become eligible before the steeper second piece needs them (section
    /// IV.B).
    #[inline]
    pub fn eligible(&self, curve: &Curve) -> Self {
        if curve.is_convex() { Self { dx: 0, dy: 0, ..*self } } else { *self }
    }

    /// Returns the time at which the curve reaches `y` bytes.
    #[inline]
    pub fn time_of(&self, curve: &Curve, y: u64) -> u64 {
        if y <= self.y {
            return self.x;
        }
        let above = y - self.y;
        if above <= self.dy {
            return self.x.saturating_add(curve.first.time_for(above));
        }
        self.x.saturating_add(self.dx).saturating_add(curve.then.time_for(above - self.dy))
    }

    /// Returns the bytes that the curve has reached at time `x`.
    #[inline]
    fn bytes_at(&self, curve: &Curve, x: u64) -> u64 {
        if x <= self.x {
            return self.y;
        }
        let behind = x - self.x;
        if behind <= self.dx {
            return self.y.saturating_add(curve.first.bytes_in(behind));
        }
        self.y.saturating_add(self.dy).saturating_add(curve.then.bytes_in(behind - self.dx))
    }

    /// Replaces this curve by the minimum of itself and the service curve that starts at (`x`, `y`), where a
    /// new backlog begins.
    pub fn cut(&mut self, curve: &Curve, x: u64, y: u64) {
        let here = self.bytes_at(curve, x);
        if curve.is_convex() {
            if here >= y {
                (self.x, self.y) = (x, y);
            }
            return;
        }
        if here <= y {
            return;
        }
        let (dx, dy) = (curve.duration, curve.first_bytes());
        let end = self.bytes_at(curve, x.saturating_add(dx));
        if end >= y.saturating_add(dy) {
            *self = Self { x, y, dx, dy };
            return;
        }
        // The curves intersect: the first piece lasts until the new curve meets this curve's second piece.
        let slopes = Rate(curve.first.0 - curve.then.0);
        let mut width = slopes.time_for(here - y);
        width = width.saturating_add(self.x.saturating_add(self.dx).saturating_sub(x));
        *self = Self { x, y, dx: width, dy: curve.first.bytes_in(width) };
    }

    /// Raises the curve by `bytes` bytes, which the class then gets in addition to its share.
    pub fn pass_over(&mut self, bytes: u64) {
        self.y = self.y.saturating_add(bytes);
    }

    /// Moves the part of the curve above `y` bytes in time: the curve then starts at `x` with `y` bytes.
    pub fn move_to(&mut self, x: u64, y: u64) {
        let gone = y.saturating_sub(self.y);
        let width = match (gone, self.dy) {
            (0, _) => 0,
            (_, 0) => self.dx,
            (gone, whole) => part_of(self.dx, gone, whole),
        };
        *self = Self { x, y, dx: self.dx - width, dy: self.dy.saturating_sub(gone) };
    }
}

/// Returns `width` times `part` / `whole`, at most `width`.
fn part_of(width: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(width) * u128::from(part.min(whole)) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(width)
}
