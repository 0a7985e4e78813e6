//! Maximum number of instructions of the XDP program per packet, counted in the compiled program.
//!
//! The count is the length of the longest path from the first instruction to an exit. It assumes that every
//! branch may be taken, and that each loop runs once. The program has loops over the bytes of a packet whose
//! checksum it completes, and over the words of flow table buckets. The number of loops is reported as well.

use super::object::LEVEL0;

const JUMP: u8 = 0x05;
const JUMP32: u8 = 0x06;
const JUMP_ALWAYS: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// Opcode of a 64-bit load, which takes two instruction slots.
const LOAD_WIDE: u8 = 0x18;
/// Number of the helper that returns the time; only token buckets call it.
const TIME: i32 = 5;

/// Maximum number of instructions of the XDP program per packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongestPath {
    /// Maximum number of instructions for a flow without a token bucket.
    pub forward: u32,
    /// Further instructions for a flow with a token bucket.
    pub token_bucket: u32,
    /// Number of loops, each counted as one iteration.
    pub loops: u32,
}

impl LongestPath {
    /// Counts the instructions of the ports' XDP program. `None` only if the program's object file is
    /// invalid.
    pub fn of_program() -> Option<Self> {
        let code = function(LEVEL0, "millrace_xdp")?;
        let mut whole = Search::new(code, None);
        let (longest, forward) = (whole.run()?, Search::new(code, Some(TIME)).run()?);
        let (further, loops) = longest_path(LEVEL0, "look_further")?;
        Some(Self { forward: forward + further, token_bucket: longest - forward, loops: whole.loops + loops })
    }
}

/// Returns two numbers for a function in an object file: its maximum number of instructions per packet, and
/// its number of loops. `None` if the function doesn't exist or no path reaches an exit.
pub(crate) fn longest_path(elf: &[u8], name: &str) -> Option<(u32, u32)> {
    let mut search = Search::new(function(elf, name)?, None);
    Some((search.run()?, search.loops))
}

/// Decoded instruction.
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    fn at(code: &[u8], at: usize) -> Option<Self> {
        let bytes: &[u8; 8] = code.get(at * 8..)?.first_chunk()?;
        let offset = i16::from_le_bytes([bytes[2], bytes[3]]);
        let immediate = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Some(Self { code: bytes[0], offset, immediate })
    }

    /// Returns the indices of the instructions that may follow; none if this instruction ends the program.
    fn next(self, at: usize) -> Vec<usize> {
        let width = if self.code == LOAD_WIDE { 2 } else { 1 };
        let target = |offset: isize| at.wrapping_add_signed(offset + 1);
        match (self.code & 0x07, self.code & 0xf0) {
            (JUMP, EXIT) => Vec::new(),
            (JUMP, JUMP_ALWAYS) => vec![target(self.offset.into())],
            // Jump with a 32-bit offset.
            (JUMP32, JUMP_ALWAYS) => vec![target(self.immediate as isize)],
            (JUMP, CALL) => vec![at + 1],
            (JUMP | JUMP32, _) => vec![at + 1, target(self.offset.into())],
            _ => vec![at + width],
        }
    }

    fn is_call_of(self, helper: i32) -> bool {
        self.code == JUMP | CALL && self.immediate == helper
    }
}

/// Search for the longest path through a program.
struct Search<'a> {
    code: &'a [u8],
    /// Helper that the path must not call.
    without: Option<i32>,
    /// For each finished instruction, the length of the longest path from this instruction to an exit. Inner
    /// `None`: no path leads to an exit. Outer `None`: the instruction is not finished.
    longest: Vec<Option<Option<u32>>>,
    /// Number of backward jumps that close a loop.
    loops: u32,
}

impl<'a> Search<'a> {
    fn new(code: &'a [u8], without: Option<i32>) -> Self {
        Self { code, without, longest: vec![None; code.len() / 8], loops: 0 }
    }

    /// Returns the indices of the instructions that may follow an instruction; none after a call of the
    /// excluded helper.
    fn next(&self, at: usize) -> Vec<usize> {
        let Some(instruction) = Instruction::at(self.code, at) else { return Vec::new() };
        let forbidden = self.without.is_some_and(|helper| instruction.is_call_of(helper));
        if forbidden { Vec::new() } else { instruction.next(at) }
    }

    fn ends(&self, at: usize) -> bool {
        Instruction::at(self.code, at).is_some_and(|instruction| instruction.code == JUMP | EXIT)
    }

    /// Returns the length of the longest path from the first instruction to an exit.
    fn run(&mut self) -> Option<u32> {
        // Depth first: an instruction is finished when all its successors are finished or on the current
        // path.
        let mut path: Vec<(usize, Vec<usize>)> = vec![(0, self.next(0))];
        while let Some((at, left)) = path.last_mut() {
            let at = *at;
            match left.pop() {
                Some(next) if self.longest.get(next)?.is_some() => {}
                Some(next) if path.iter().any(|(before, _)| *before == next) => self.loops += 1,
                Some(next) => path.push((next, self.next(next))),
                None => {
                    let known = |next: &usize| self.longest.get(*next).copied().flatten().flatten();
                    let rest = self.next(at).iter().filter_map(known).max();
                    let longest = if self.ends(at) { Some(1) } else { rest.map(|rest| rest + 1) };
                    *self.longest.get_mut(at)? = Some(longest);
                    path.pop();
                }
            }
        }
        *self.longest.first()?.as_ref()?
    }
}

/// Returns the code of the function `name` in an object file. The file must be ELF, 64 bits, little-endian,
/// as clang writes it for this kernel.
fn function<'a>(elf: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let sections = Sections { elf, start: word(elf, 0x28, 8)?, size: word(elf, 0x3a, 2)? };
    let symbols = (0..word(elf, 0x3c, 2)?).find(|index| sections.field(*index, 4, 4) == Some(2))?;
    let names = sections.content(sections.field(symbols, 0x28, 4)?)?;
    for symbol in sections.content(symbols)?.chunks_exact(24) {
        let own = names.get(word(symbol, 0, 4)?..)?.split(|byte| *byte == 0).next()?;
        if own == name.as_bytes() {
            let (value, size) = (word(symbol, 8, 8)?, word(symbol, 16, 8)?);
            return sections.content(word(symbol, 6, 2)?)?.get(value..value.checked_add(size)?);
        }
    }
    None
}

/// Section table of an ELF file.
struct Sections<'a> {
    elf: &'a [u8],
    start: usize,
    size: usize,
}

impl<'a> Sections<'a> {
    fn field(&self, index: usize, at: usize, bytes: usize) -> Option<usize> {
        word(self.elf, self.start.checked_add(index.checked_mul(self.size)?)?.checked_add(at)?, bytes)
    }

    fn content(&self, index: usize) -> Option<&'a [u8]> {
        let start = self.field(index, 0x18, 8)?;
        self.elf.get(start..start.checked_add(self.field(index, 0x20, 8)?)?)
    }
}

/// Reads a little-endian number of `count` bytes.
fn word(bytes: &[u8], at: usize, count: usize) -> Option<usize> {
    let found = bytes.get(at..at.checked_add(count)?)?;
    Some(found.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u8, offset: i16, immediate: i32) -> Vec<u8> {
        [&[code, 0], offset.to_le_bytes().as_slice(), &immediate.to_le_bytes()].concat()
    }

    fn longest(code: &[u8], without: Option<i32>) -> (Option<u32>, u32) {
        let mut search = Search::new(code, without);
        (search.run(), search.loops)
    }

    #[test]
    fn longest_path_is_found() {
        let program = [
            instruction(0x15, 3, 0),    // if r == 0 goto 4
            instruction(0xb7, 0, 0),    // r = 0
            instruction(0x85, 0, TIME), // call
            instruction(0x05, 1, 0),    // goto 5
            instruction(0xb7, 0, 0),    // r = 0
            instruction(0x95, 0, 0),    // exit
        ]
        .concat();
        assert_eq!(longest(&program, None), (Some(5), 0));
        assert_eq!(longest(&program, Some(TIME)), (Some(3), 0));
        let around = [instruction(0xb7, 0, 0), instruction(0x15, -2, 0), instruction(0x95, 0, 0)].concat();
        assert_eq!(longest(&around, None), (Some(3), 1));
        // Not every backward jump closes a loop.
        let back = [instruction(0x05, 1, 0), instruction(0x95, 0, 0), instruction(0x05, -2, 0)].concat();
        assert_eq!(longest(&back, None), (Some(3), 0));
    }

    #[test]
    fn the_program_of_ports_is_counted() {
        let path = LongestPath::of_program().unwrap();
        assert_eq!(
            path.loops, 4,
            "two over the bytes of a checksum, two over words of the flow cache: {path:?}"
        );
        println!("{path:?}");
        assert!(path.forward > 100 && path.token_bucket > 10, "{path:?}");
    }

    #[test]
    fn invalid_object_file_has_no_longest_path() {
        assert!(function(b"", "millrace_xdp").is_none());
        assert!(function(&[0xff; 100], "millrace_xdp").is_none());
        assert!(function(LEVEL0, "nothing").is_none());
    }
}
