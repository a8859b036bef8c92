//! Random changes: bytes and pieces are moved, repeated or copied from other inputs, and words of the languages are inserted.

/// The highest number of changes to one input.
const MAX_CHANGES: u64 = 6;
/// The highest number of repetitions of a piece: enough to reach every limit on nesting.
const MAX_REPEATS: u64 = 12_000;

/// Tokens that parsers look for.
const WORDS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "\"\"\"",
    "`",
    "#{",
    "#",
    "\\",
    "\n",
    "\r",
    "\t",
    "\0",
    ":",
    ",",
    ".",
    ";",
    "|",
    "&",
    "*",
    "**",
    "->",
    "=>",
    "<<~A\n",
    "A\n",
    "%w(",
    "%q{",
    "__END__\n",
    "=begin\n",
    "=end\n",
    "def ",
    "end\n",
    "class ",
    "if ",
    "else ",
    "lambda ",
    "for ",
    "in ",
    "while ",
    "match ",
    "case ",
    "when ",
    "try:\n",
    "except ",
    "begin\n",
    "rescue ",
    "f\"{",
    "}}",
    "async ",
    "await ",
    "yield ",
    "return ",
    "not ",
    "-",
    "~",
    "0x",
    "1e999",
    "0b2",
    "tool(",
    "delegate(",
    "context[",
    "tools",
    "args",
    "result = ",
    "Outcome.error(",
    "import ",
    "from ",
    "require ",
    "\u{feff}",
    "\u{200d}",
    "é",
    "𝕏",
    "if a: b",
    "a if b else ",
    "|x, (y, z)|",
    "{\"op\":\"done\"",
    "{\"code\":",
    "null",
    "[[[[",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "-0",
    "9999999999999999999999",
    "\"ask_id\":",
];

/// Makes inputs from a corpus; the same seed makes the same inputs.
pub(crate) struct Mutator {
    state: u64,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    pub(crate) fn new(seed: u64, corpus: Vec<Vec<u8>>) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, corpus }
    }

    /// Adds an input to the corpus.
    pub(crate) fn keep(&mut self, input: Vec<u8>) {
        self.corpus.push(input);
    }

    pub(crate) fn next(&mut self, longest: usize) -> Vec<u8> {
        let mut input = self.pick();
        for _ in 0..=self.below(MAX_CHANGES) {
            self.change(&mut input);
        }
        input.truncate(longest);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let (start, end) = self.range(input.len());
        match self.below(9) {
            0 => {
                let bit = 1 << self.below(8);
                if let Some(byte) = input.get_mut(start) {
                    *byte ^= bit;
                }
            }
            1 => {
                let byte = u8::try_from(self.below(256)).unwrap_or_default();
                input.insert(start, byte);
            }
            2 => drop(input.drain(start..end)),
            3 => {
                let piece = input.get(start..end).unwrap_or_default().to_vec();
                self.splice(input, &piece);
            }
            4 => {
                let other = self.pick();
                let (from, to) = self.range(other.len());
                self.splice(input, other.get(from..to).unwrap_or_default());
            }
            5 => {
                let word = self.word();
                let times = 1 << self.below(14);
                self.splice(input, &word.repeat(times.min(MAX_REPEATS.try_into().unwrap_or(1))));
            }
            6 => input.truncate(start),
            _ => {
                let word = self.word();
                self.splice(input, &word);
            }
        }
    }

    fn splice(&mut self, input: &mut Vec<u8>, piece: &[u8]) {
        let (at, _) = self.range(input.len());
        drop(input.splice(at..at, piece.iter().copied()));
    }

    fn word(&mut self) -> Vec<u8> {
        let at = self.index(WORDS.len());
        WORDS.get(at).map_or_else(Vec::new, |word| word.as_bytes().to_vec())
    }

    fn pick(&mut self) -> Vec<u8> {
        let at = self.index(self.corpus.len());
        self.corpus.get(at).cloned().unwrap_or_default()
    }

    /// Two positions in order.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let (one, other) = (self.index(length + 1), self.index(length + 1));
        (one.min(other), one.max(other))
    }

    fn index(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).unwrap_or(1).max(1);
        usize::try_from(self.below(length)).unwrap_or_default()
    }

    /// The generator `SplitMix64`.
    fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}
