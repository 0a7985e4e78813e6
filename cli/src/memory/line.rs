//! Line of text that is written without allocating memory.

/// Maximum length of a line in bytes.
const MOST: usize = 256;

/// Line for standard error. Text beyond [`MOST`] bytes is cut off.
#[derive(Debug)]
pub struct Line {
    bytes: [u8; MOST],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; MOST], length: 0 }
    }
}

impl Line {
    /// Appends text.
    pub fn put(&mut self, words: &str) {
        let words = words.as_bytes();
        let room = &mut self.bytes[self.length..];
        let length = words.len().min(room.len());
        room[..length].copy_from_slice(&words[..length]);
        self.length += length;
    }

    /// Appends a number.
    pub fn number(&mut self, mut number: usize) {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.put(std::str::from_utf8(&digits[first..]).unwrap_or_default());
    }

    /// Writes the line to standard error.
    pub fn write(&self) {
        // SAFETY: the bytes are initialised and live. A failed write is ignored, since it can't be reported.
        unsafe { libc::write(libc::STDERR_FILENO, self.bytes.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_stand_behind_each_other_as_far_as_there_is_room() {
        let mut line = Line::default();
        line.put("no ");
        line.number(0);
        line.put(" ");
        line.number(usize::MAX);
        assert_eq!(&line.bytes[..line.length], b"no 0 18446744073709551615");
        line.put(&"x".repeat(1000));
        assert_eq!((line.length, line.bytes[MOST - 1]), (MOST, b'x'));
    }
}
