//! Interprets bytes as choices. After the last byte every choice is the first one, so a shorter input is a simpler case.

/// Characters with a meaning in some format.
const LETTERS: &[char] = &[
    'a', 'Z', '0', '9', ' ', '\t', '\n', '\r', '\0', '\u{1b}', '\u{1f}', '"', '\'', '\\', '/', '.', ',', ':', ';', '=',
    '-', '+', '_', '@', '#', '$', '%', '&', '<', '>', '(', ')', '[', ']', '{', '}', '|', '*', '?', '!', '~', '`', '^',
    '\u{7f}', '\u{85}', '\u{a0}', 'ö', 'ß', '\u{130}', '\u{2028}', '\u{202e}', '\u{3000}', '€', '\u{fffd}', '😀',
];

/// Numbers at the limits of arithmetic.
const NUMBERS: &[i64] = &[
    0,
    1,
    -1,
    2,
    30,
    100,
    i64::MAX,
    i64::MIN,
    i64::MAX - 1,
    i32::MAX as i64,
    i32::MIN as i64,
    i32::MAX as i64 + 1,
    u32::MAX as i64,
    1 << 53,
    253_402_300_800,
    -62_135_596_801,
    1_767_225_600,
];

/// The maximum number of pieces of a text.
const PIECES: usize = 5;

/// The maximum length of a repeated piece: names may have 253 characters, and label values 63.
const REPEATED: usize = 300;

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    rest: &'a [u8],
}

impl<'a> Draw<'a> {
    /// Draws from these bytes.
    #[must_use]
    pub const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// The next byte; 0 at the end.
    pub const fn byte(&mut self) -> u8 {
        match self.rest {
            [first, rest @ ..] => {
                self.rest = rest;
                *first
            }
            [] => 0,
        }
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let low = usize::from(self.byte());
        let drawn = if end > 256 { low | usize::from(self.byte()) << 8 } else { low };
        drawn.checked_rem(end).unwrap_or(0)
    }

    /// True once in `times` calls.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) + 1 == times
    }

    /// One of these; `None` if there are none.
    pub fn one_of<'t, T>(&mut self, all: &'t [T]) -> Option<&'t T> {
        let at = self.below(all.len());
        all.get(at)
    }

    /// One of these words; empty if there are none.
    pub fn word<'t>(&mut self, all: &[&'t str]) -> &'t str {
        self.one_of(all).copied().unwrap_or_default()
    }

    /// A number, often one at the limits of arithmetic.
    pub fn number(&mut self) -> i64 {
        if self.once_in(4) {
            return i64::from_le_bytes(std::array::from_fn(|_| self.byte()));
        }
        self.one_of(NUMBERS).copied().unwrap_or_default()
    }

    /// A text of these words, of characters with a meaning, and of any others.
    pub fn text(&mut self, words: &[&str]) -> String {
        let mut text = String::new();
        for _ in 0..self.below(PIECES) {
            self.piece(words, &mut text);
        }
        text
    }

    fn piece(&mut self, words: &[&str], text: &mut String) {
        match self.below(8) {
            0..=2 => text.push_str(self.word(words)),
            3 | 4 => text.extend(self.one_of(LETTERS)),
            5 => text.push_str(&self.number().to_string()),
            6 => {
                let letter = self.one_of(LETTERS).copied().unwrap_or_default();
                text.extend(std::iter::repeat_n(letter, self.below(REPEATED)));
            }
            _ => {
                let length = self.below(12);
                let bytes: Vec<u8> = (0..length).map(|_| self.byte()).collect();
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
    }

    /// A byte string split at random places; some pieces are empty.
    pub fn split_random<'t>(&mut self, mut bytes: &'t [u8]) -> Vec<&'t [u8]> {
        let mut pieces = Vec::new();
        for _ in 0..self.below(64) {
            let longest = if self.once_in(3) { bytes.len() + 1 } else { 8 };
            let (piece, rest) = bytes.split_at(self.below(longest).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces.push(bytes);
        pieces
    }

    /// The same bytes with a few of them changed, duplicated, inserted or removed at random.
    #[must_use]
    pub fn corrupt(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(16)).min(bytes.len());
            match self.below(5) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.byte()),
                2 => drop(bytes.drain(at..end)),
                3 => {
                    let again = bytes.get(at..end).unwrap_or_default().to_vec();
                    drop(bytes.splice(at..at, again));
                }
                _ => {
                    let byte = self.byte();
                    bytes.iter_mut().skip(at).take(1).for_each(|there| *there = byte);
                }
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_input_gives_the_first_choice() {
        let mut draw = Draw::new(&[]);
        assert_eq!((draw.byte(), draw.below(9), draw.below(0), draw.number()), (0, 0, 0, 0));
        assert_eq!((draw.text(&["a"]).as_str(), draw.word(&["a", "b"]), draw.word(&[])), ("", "a", ""));
        assert!(!draw.once_in(2) && draw.once_in(1));
        assert_eq!(draw.split_random(b"whole"), [b"whole"]);
    }

    #[test]
    fn split_pieces_join_to_the_input() {
        let input: Vec<u8> = (0..200_u8).map(|byte| byte.wrapping_mul(97)).collect();
        for start in 0..input.len() {
            let bytes = b"a list of several objects of the API, one behind the other";
            let pieces = Draw::new(&input[start..]).split_random(bytes);
            assert_eq!(pieces.concat(), bytes);
        }
    }

    #[test]
    fn every_number_of_a_range_is_drawn() {
        let drawn: std::collections::BTreeSet<usize> = (0..=255).map(|byte| Draw::new(&[byte]).below(5)).collect();
        assert_eq!(drawn, (0..5).collect());
        assert_eq!(Draw::new(&[1, 1]).below(1_000), 257);
    }
}
