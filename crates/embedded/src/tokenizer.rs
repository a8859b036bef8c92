//! Text to tokens and back, as the model's own file describes it: byte-level BPE with the pre-tokenizer of qwen2.
//!
//! Text never becomes a control token: those are not the result of any merge, and are only added by name.

mod merge;

use std::collections::HashMap;

use regex::Regex;

use crate::gguf::GgufHeader;
use merge::{MergeRule, merge};

/// The most tokens of a vocabulary.
const MAX_VOCABULARY: usize = 1 << 20;
/// Where the pre-tokenizer cuts text. The rule for spaces before a word, a lookahead in the original, is in
/// [`Tokenizer::piece_end`].
const PIECES: &str = r"^(?:(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+)";

/// A vocabulary and its merges.
#[derive(Debug)]
pub(crate) struct Tokenizer {
    /// The bytes of every token; none for control tokens.
    tokens: Vec<Option<Box<[u8]>>>,
    control: HashMap<String, u32>,
    single_bytes: Vec<u32>,
    merges: HashMap<(u32, u32), MergeRule>,
    pieces: Regex,
    end: u32,
}

impl Tokenizer {
    /// Reads `tokenizer.ggml.*`. The error is a sentence.
    pub(crate) fn read(header: &GgufHeader<'_>) -> Result<Self, TokenizerError> {
        let model = header.text("tokenizer.ggml.model")?;
        let split = header.text("tokenizer.ggml.pre")?;
        if model != "gpt2" || split != "qwen2" {
            return Err(TokenizerError::Unsupported(format!(
                "its tokenizer is {model} with {split}"
            )));
        }
        let (ids, tokens, control) = read_vocabulary(header)?;
        let end = header.integer("tokenizer.ggml.eos_token_id")?;
        if end >= tokens.len() {
            return Err(format!("the end of a text is token {end}, which does not exist").into());
        }
        let single_bytes = byte_letters()
            .into_iter()
            .enumerate()
            .map(|(byte, letter)| {
                let id = ids.get(letter.encode_utf8(&mut [0; 4]) as &str).copied();
                id.ok_or_else(|| format!("its vocabulary has no token for the byte {byte}"))
            })
            .collect::<Result<_, String>>()?;
        let merges = read_merges(header, &ids)?;
        let pieces = Regex::new(PIECES).map_err(|error| error.to_string())?;
        Ok(Self { tokens, control, single_bytes, merges, pieces, end: end as u32 })
    }

    /// The tokens of a text.
    pub(crate) fn encode(&self, mut text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        while !text.is_empty() {
            let (piece, rest) = text.split_at(self.piece_end(text));
            let bytes = piece.bytes().filter_map(|byte| self.single_bytes.get(usize::from(byte)));
            tokens.extend(merge(bytes.copied().collect(), &self.merges));
            text = rest;
        }
        tokens
    }

    /// Where the first piece of a text ends. Spaces before a word leave the last of them to the word.
    fn piece_end(&self, text: &str) -> usize {
        let end = self.pieces.find(text).map_or(text.len(), |found| found.end());
        let (piece, rest) = text.split_at(end);
        let is_space = !piece.ends_with(['\r', '\n']) && piece.chars().all(char::is_whitespace);
        let last = piece.chars().next_back().map_or(0, char::len_utf8);
        if is_space && !rest.is_empty() && last < end { end - last } else { end }
    }

    /// The control token of this name.
    pub(crate) fn control(&self, name: &str) -> Option<u32> {
        self.control.get(name).copied()
    }

    /// The token that ends a text.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Whether a token has no text: it is a control token or unused.
    pub(crate) fn is_control(&self, token: u32) -> bool {
        self.bytes(token).is_none()
    }

    /// The bytes of a token, which may be a part of a character.
    pub(crate) fn bytes(&self, token: u32) -> Option<&[u8]> {
        self.tokens.get(token as usize)?.as_deref()
    }
}

/// Why there is no tokenizer.
#[derive(Debug)]
pub(crate) enum TokenizerError {
    Damaged(String),
    Unsupported(String),
}

impl From<String> for TokenizerError {
    fn from(reason: String) -> Self {
        Self::Damaged(reason)
    }
}

type Vocabulary<'a> = (HashMap<&'a str, u32>, Vec<Option<Box<[u8]>>>, HashMap<String, u32>);

/// Ids by the written form of tokens, the bytes of tokens, and the control tokens by name.
fn read_vocabulary<'a>(header: &GgufHeader<'a>) -> Result<Vocabulary<'a>, String> {
    const NORMAL: i128 = 1;
    const CONTROL: i128 = 3;
    let words = header.list("tokenizer.ggml.tokens")?;
    let kinds = header.list("tokenizer.ggml.token_type")?;
    if words.len() != kinds.len() || words.len() > MAX_VOCABULARY {
        return Err(format!("it has {} tokens with {} types", words.len(), kinds.len()));
    }
    let letters: HashMap<char, u8> = byte_letters().into_iter().zip(0..=u8::MAX).collect();
    let (mut ids, mut tokens, mut control) = (HashMap::new(), Vec::new(), HashMap::new());
    for (id, (word, kind)) in (0_u32..).zip(words.iter().zip(kinds)) {
        let word = word.as_text().ok_or("a token is not a text")?;
        let kind = kind.as_integer().ok_or("the type of a token is not an integer")?;
        if kind == CONTROL {
            control.insert(word.to_owned(), id);
        }
        let bytes: Option<Box<[u8]>> = match kind {
            NORMAL => word.chars().map(|letter| letters.get(&letter).copied()).collect(),
            _ => None,
        };
        if bytes.is_some() {
            ids.insert(word, id);
        }
        tokens.push(bytes);
    }
    Ok((ids, tokens, control))
}

fn read_merges(
    header: &GgufHeader<'_>,
    ids: &HashMap<&str, u32>,
) -> Result<HashMap<(u32, u32), MergeRule>, String> {
    let mut merges = HashMap::new();
    let mut joined = String::new();
    for (rank, rule) in (0_u32..).zip(header.list("tokenizer.ggml.merges")?) {
        let rule = rule.as_text().ok_or("a merge is not a text")?;
        let (left, right) = rule.split_once(' ').ok_or("a merge is not a pair")?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let id = |word: &str| {
            ids.get(word).copied().ok_or(format!("it merges to {word:?}, which is not a token"))
        };
        merges.insert((id(left)?, id(right)?), MergeRule { rank, token: id(&joined)? });
    }
    Ok(merges)
}

/// The letter that stands for each byte in a vocabulary: printable ones for themselves, the others shifted behind them.
fn byte_letters() -> [char; 256] {
    let mut shifted = '\u{100}'..;
    let mut letters = ['\0'; 256];
    for (byte, letter) in (0..=u8::MAX).zip(letters.iter_mut()) {
        *letter = match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => shifted.next().unwrap_or_default(),
        };
    }
    letters
}

/// Joins the bytes of tokens to text. Bytes of an unfinished character wait for the next token.
#[derive(Debug, Default, Clone)]
pub(crate) struct TextJoiner {
    waiting: Vec<u8>,
}

impl TextJoiner {
    /// The text that is complete with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.waiting.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match str::from_utf8(&self.waiting) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.waiting.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.waiting.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(wrong) = error.error_len() else {
                        self.waiting = rest.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.waiting = rest.get(wrong..).unwrap_or_default().to_vec();
                }
            }
        }
    }
}
