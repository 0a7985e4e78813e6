//! Options of kind, length and data, as in IPv4 (RFC 791, 3.1) and TCP (RFC 9293, 3.1). Kind 0 ends the list,
//! and kind 1 is one octet of padding. Any other option has a length octet, which counts the whole option.
//!
//! No function panics. A malformed length ends the iteration with an error that names the wrong octet.

/// Kind of the option that ends the list.
pub const END: u8 = 0;
/// Kind of the one-octet padding option.
pub const NO_OPERATION: u8 = 1;

/// View of an option in the octets of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Offset of the kind octet from the start of the header that contains the option.
    pub offset: usize,
    /// All octets of the option; never empty.
    pub octets: &'a [u8],
}

impl<'a> RawOption<'a> {
    /// Returns the kind of the option.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.octets.first().copied().unwrap_or(END)
    }

    /// Returns the data after kind and length; empty for [`NO_OPERATION`].
    #[inline]
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.octets.get(2..).unwrap_or(&[])
    }

    /// Returns the length of the whole option in octets.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an option has at least its kind")]
    pub fn len(&self) -> usize {
        self.octets.len()
    }
}

/// Error returned for an option with an invalid length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionFault {
    /// Offset of the wrong octet from the start of the header: the length octet, or the kind if the list ends
    /// after it. An ICMP parameter problem points at this octet.
    pub offset: usize,
}

/// Iterator over options, padding included, up to the end of the list or the first malformed option.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Options<'a> {
    /// Returns an iterator over the options in `octets`, which begin at `offset` in their header.
    #[inline]
    #[must_use]
    pub const fn new(octets: &'a [u8], offset: usize) -> Self {
        Self { rest: octets, offset }
    }

    /// Splits the list after the next option, whose kind is `kind`. Returns the octets of the option, and the
    /// rest.
    #[inline]
    fn split(&self, kind: u8) -> Result<(&'a [u8], &'a [u8]), OptionFault> {
        let fault = OptionFault { offset: self.offset + 1 };
        let length = match kind {
            NO_OPERATION => 1,
            _ => match self.rest.get(1) {
                Some(&length) if length < 2 => return Err(fault),
                Some(&length) => length,
                None => return Err(OptionFault { offset: self.offset }),
            },
        };
        self.rest.split_at_checked(length.into()).ok_or(fault)
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<RawOption<'a>, OptionFault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let kind = *self.rest.first()?;
        if kind == END {
            self.rest = &[];
            return None;
        }
        let (octets, rest) = match self.split(kind) {
            Ok(parts) => parts,
            Err(fault) => {
                self.rest = &[];
                return Some(Err(fault));
            }
        };
        let option = RawOption { offset: self.offset, octets };
        self.rest = rest;
        self.offset += octets.len();
        Some(Ok(option))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_come_in_order_and_end_at_the_end_option() {
        let octets = [1, 7, 4, 9, 9, 1, 0, 7];
        let options: Vec<_> = Options::new(&octets, 20).map(Result::unwrap).collect();
        let seen: Vec<_> = options.iter().map(|o| (o.offset, o.kind(), o.data())).collect();
        assert_eq!(seen, [(20, 1, &[][..]), (21, 7, &[9, 9]), (25, 1, &[])]);
    }

    #[test]
    fn malformed_lengths_are_reported_with_their_offset() {
        for (octets, offset) in
            [(&[1, 7, 0][..], 22), (&[7, 1, 0, 0], 21), (&[7, 5, 0, 0], 21), (&[1, 1, 7], 22)]
        {
            let mut options = Options::new(octets, 20).skip_while(Result::is_ok);
            let fault = options.next().unwrap().unwrap_err();
            assert_eq!(fault.offset, offset, "{octets:?}");
            assert_eq!(options.next(), None, "iteration ends after a fault");
        }
    }

    proptest! {
        #[test]
        fn options_never_overlap_nor_leave_the_list(octets in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut at = 20;
            for option in Options::new(&octets, 20).map_while(Result::ok) {
                prop_assert_eq!(option.offset, at);
                at += option.len();
            }
            prop_assert!(at <= 20 + octets.len());
        }
    }
}
