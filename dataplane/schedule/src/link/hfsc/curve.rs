//! Service curves of two pieces, and the curves that run with a class (Stoica, Zhang and Ng, "A Hierarchical Fair
//! Service Curve Algorithm for Link-Sharing, Real-Time and Priority Services", 1997; sections II and IV).

use crate::Rate;

/// A service curve: how many bytes, counted on the wire, a class gets in a time after it became backlogged.
///
/// A steep first piece (concave) gives low delay at a low rate, a flat one (convex) the opposite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Curve {
    /// Slope of the first piece.
    pub first: Rate,
    /// How long the first piece lasts, in nanoseconds; 0 for a straight line of slope `then`.
    pub duration: u64,
    /// Slope of the second piece, above 0.
    pub then: Rate,
}

impl Curve {
    /// A straight line.
    pub const fn linear(rate: Rate) -> Self {
        Self { first: rate, duration: 0, then: rate }
    }

    /// The curve of a session whose packets of `bytes` (on the wire) must be sent within `delay` nanoseconds, at a rate
    /// of `rate`: the mapping of the paper, section VI.
    pub fn from_delay(bytes: u32, delay: u64, rate: Rate) -> Self {
        let needed = u128::from(bytes) * 8_000_000_000 / u128::from(delay.max(1));
        let needed = Rate(u64::try_from(needed).unwrap_or(u64::MAX));
        if needed > rate {
            return Self { first: Rate(needed.0.saturating_add(1)), duration: delay, then: rate };
        }
        Self { first: Rate(0), duration: delay - rate.time_for(bytes.into()).min(delay), then: rate }
    }

    /// Whether the first piece isn't the steeper one.
    #[inline]
    pub(crate) fn is_convex(&self) -> bool {
        self.duration == 0 || self.first <= self.then
    }

    /// Bytes at the end of the first piece.
    #[inline]
    pub(crate) fn first_bytes(&self) -> u64 {
        self.first.bytes_in(self.duration)
    }

    /// Bytes after `time` nanoseconds.
    pub fn bytes_after(&self, time: u64) -> u64 {
        if time <= self.duration {
            return self.first.bytes_in(time);
        }
        self.first_bytes().saturating_add(self.then.bytes_in(time - self.duration))
    }
}

/// What a class is told. One of `real_time` and `link_sharing` must be there; an inner class has no `real_time`.
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
    /// Link sharing by `rate`, and nothing else.
    pub const fn sharing(rate: Rate) -> Self {
        Self { real_time: None, link_sharing: Some(Curve::linear(rate)), upper_limit: None }
    }
}

/// A service curve that starts at a point and may have been cut by others: the minimum of all those that began with a
/// backlog of the class. The slopes are the service curve's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Running {
    x: u64,
    y: u64,
    /// Width and height of the first piece that is left.
    dx: u64,
    dy: u64,
}

impl Running {
    /// The curve from the point (`x`, `y`) on.
    pub fn new(curve: &Curve, x: u64, y: u64) -> Self {
        Self { x, y, dx: curve.duration, dy: curve.first_bytes() }
    }

    /// The same without its first piece, if the curve is convex: what becomes eligible in advance, so that a steeper
    /// second piece can be kept (section IV.B).
    #[inline]
    pub fn eligible(&self, curve: &Curve) -> Self {
        if curve.is_convex() { Self { dx: 0, dy: 0, ..*self } } else { *self }
    }

    /// When the curve reaches `y` bytes.
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

    /// Bytes that the curve has reached at `x`.
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

    /// The minimum of this curve and the one that starts at (`x`, `y`): a new backlog begins there.
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
        // They intersect: the first piece lasts until the new curve has caught up with this one's second piece.
        let slopes = Rate(curve.first.0 - curve.then.0);
        let mut width = slopes.time_for(here - y);
        width = width.saturating_add(self.x.saturating_add(self.dx).saturating_sub(x));
        *self = Self { x, y, dx: width, dy: curve.first.bytes_in(width) };
    }

    /// The same curve, of which so many bytes more don't count.
    pub fn pass_over(&mut self, bytes: u64) {
        self.y = self.y.saturating_add(bytes);
    }

    /// The same curve from its point at `y` bytes on, moved so that this point is at time `x`.
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

/// `part` of `whole`, of `width`; all of it at most.
fn part_of(width: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(width) * u128::from(part.min(whole)) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(width)
}
