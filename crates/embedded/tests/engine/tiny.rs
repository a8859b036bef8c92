//! Writes small GGUF files: a random model, and one that follows a script.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

/// What a line of metadata is.
pub(crate) enum Entry {
    Text(&'static str),
    Integer(u32),
    Float(f32),
    Texts(Vec<String>),
    Integers(Vec<u32>),
}

/// A GGUF file in the making.
pub(crate) struct TinyFile {
    pub(crate) entries: Vec<(&'static str, Entry)>,
    pub(crate) tensors: Vec<TinyTensor>,
}

pub(crate) struct TinyTensor {
    pub(crate) name: String,
    pub(crate) dimensions: Vec<u64>,
    pub(crate) format: u32,
    pub(crate) bytes: Vec<u8>,
}

/// The sizes of the random model. Columns are a multiple of 256, as the formats of real files need.
const WIDTH: usize = 256;
const LAYERS: usize = 2;
const QUERY_HEADS: u32 = 8;
const KEY_HEADS: u32 = 2;

impl TinyFile {
    /// A model with random weights in the formats of the real file. With `tied` it has no output matrix.
    pub(crate) fn random(tied: bool) -> Self {
        let tokens = byte_vocabulary(&["de", "def", " r", " re"]);
        let mut file = Self { entries: entries(&tokens, WIDTH, LAYERS), tensors: Vec::new() };
        let mut random = Numbers(7);
        let key_width = WIDTH * KEY_HEADS as usize / QUERY_HEADS as usize;
        for layer in 0..LAYERS {
            let mut matrix = |name: &str, rows: usize, dtype| {
                let name = format!("blk.{layer}.{name}.weight");
                file.tensors.push(quantised(&name, WIDTH, rows, dtype, &mut random));
            };
            matrix("attn_q", WIDTH, GgmlDType::Q4K);
            matrix("attn_k", key_width, GgmlDType::Q4K);
            matrix("attn_v", key_width, GgmlDType::Q6K);
            matrix("attn_output", WIDTH, GgmlDType::Q4K);
            matrix("ffn_gate", WIDTH, GgmlDType::Q4K);
            matrix("ffn_up", WIDTH, GgmlDType::Q4K);
            matrix("ffn_down", WIDTH, GgmlDType::Q6K);
            for (name, len) in [("attn_q", WIDTH), ("attn_k", key_width), ("attn_v", key_width)] {
                let numbers = (0..len).map(|_| random.next()).collect();
                file.tensors.push(vector(&format!("blk.{layer}.{name}.bias"), numbers));
            }
            for name in ["attn_norm", "ffn_norm"] {
                file.tensors.push(vector(&format!("blk.{layer}.{name}.weight"), vec![1.0; WIDTH]));
            }
        }
        let embedding =
            quantised("token_embd.weight", WIDTH, tokens.len(), GgmlDType::Q4K, &mut random);
        file.tensors.push(embedding);
        file.tensors.push(vector("output_norm.weight", vec![1.0; WIDTH]));
        if !tied {
            let output =
                quantised("output.weight", WIDTH, tokens.len(), GgmlDType::Q6K, &mut random);
            file.tensors.push(output);
        }
        file
    }

    /// A model without memory: each token is followed by those that `script` lists for it, with these scores. The
    /// first of a pair is a word of the vocabulary; all words become tokens.
    pub(crate) fn scripted(script: &[(&str, &[(&str, f32)])]) -> Self {
        let words = script.iter().flat_map(|(word, next)| {
            std::iter::once(*word).chain(next.iter().map(|(word, _)| *word))
        });
        let mut extra: Vec<&str> =
            words.filter(|word| *word != "<end>" && word.len() > 1).collect();
        extra.sort_unstable();
        extra.dedup();
        let tokens = byte_vocabulary(&extra);
        let width = tokens.len().next_multiple_of(QUERY_HEADS as usize * 2);
        let id = |word: &str| {
            let word = if word == "<end>" { "<|im_end|>".to_owned() } else { spell(word) };
            tokens.iter().position(|token| *token == word).unwrap()
        };
        let mut embedding = vec![0.0; width * tokens.len()];
        (0..tokens.len()).for_each(|token| embedding[token * width + token] = 1.0);
        let mut output = vec![0.0; width * tokens.len()];
        // Normalising makes of a single one the square root of the width.
        let one = (width as f32).sqrt();
        for (word, next) in script {
            for (follower, score) in *next {
                output[id(follower) * width + id(word)] = score / one;
            }
        }
        let mut file = Self { entries: entries(&tokens, width, 1), tensors: Vec::new() };
        let key_width = width * KEY_HEADS as usize / QUERY_HEADS as usize;
        for (name, rows) in [
            ("attn_q", width),
            ("attn_k", key_width),
            ("attn_v", key_width),
            ("attn_output", width),
            ("ffn_gate", width),
            ("ffn_up", width),
            ("ffn_down", width),
        ] {
            let name = format!("blk.0.{name}.weight");
            file.tensors.push(matrix(&name, width, vec![0.0; width * rows]));
        }
        for (name, len) in [("attn_q", width), ("attn_k", key_width), ("attn_v", key_width)] {
            file.tensors.push(vector(&format!("blk.0.{name}.bias"), vec![0.0; len]));
        }
        for name in ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"] {
            file.tensors.push(vector(&format!("{name}.weight"), vec![1.0; width]));
        }
        file.tensors.push(matrix("token_embd.weight", width, embedding));
        file.tensors.push(matrix("output.weight", width, output));
        file
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.entries.len() as u64).to_le_bytes());
        for (key, entry) in &self.entries {
            text(&mut bytes, key);
            entry.write(&mut bytes);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            text(&mut bytes, &tensor.name);
            bytes.extend((tensor.dimensions.len() as u32).to_le_bytes());
            tensor.dimensions.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
            bytes.extend(tensor.format.to_le_bytes());
            bytes.extend((offset as u64).to_le_bytes());
            offset += tensor.bytes.len().next_multiple_of(32);
        }
        for tensor in &self.tensors {
            bytes.resize(bytes.len().next_multiple_of(32), 0);
            bytes.extend(&tensor.bytes);
        }
        bytes
    }

    /// Replaces a line of metadata.
    pub(crate) fn set(&mut self, key: &str, entry: Entry) {
        self.entries.iter_mut().find(|(it, _)| *it == key).unwrap().1 = entry;
    }
}

impl Entry {
    fn write(&self, bytes: &mut Vec<u8>) {
        let kind: u32 = match self {
            Self::Text(_) => 8,
            Self::Integer(_) => 4,
            Self::Float(_) => 6,
            Self::Texts(_) | Self::Integers(_) => 9,
        };
        bytes.extend(kind.to_le_bytes());
        match self {
            Self::Text(it) => text(bytes, it),
            Self::Integer(it) => bytes.extend(it.to_le_bytes()),
            Self::Float(it) => bytes.extend(it.to_le_bytes()),
            Self::Texts(list) => {
                bytes.extend(8_u32.to_le_bytes());
                bytes.extend((list.len() as u64).to_le_bytes());
                list.iter().for_each(|it| text(bytes, it));
            }
            Self::Integers(list) => {
                bytes.extend(4_u32.to_le_bytes());
                bytes.extend((list.len() as u64).to_le_bytes());
                list.iter().for_each(|it| bytes.extend(it.to_le_bytes()));
            }
        }
    }
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// The 256 bytes, these words, and the control tokens.
fn byte_vocabulary(words: &[&str]) -> Vec<String> {
    let bytes = (0..=255_u8).map(|byte| letter(byte).to_string());
    let words = words.iter().map(|word| spell(word));
    let control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    bytes.chain(words).chain(control).collect()
}

/// A word in the letters that stand for its bytes.
fn spell(word: &str) -> String {
    word.bytes().map(letter).collect()
}

fn letter(byte: u8) -> char {
    let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(&byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !is_printable(byte)).count();
    char::from_u32(0x100 + before as u32).unwrap()
}

fn entries(tokens: &[String], width: usize, layers: usize) -> Vec<(&'static str, Entry)> {
    let count = tokens.len();
    let kinds = (0..count).map(|id| if id + 3 < count { 1 } else { 3 }).collect();
    let exists = |word: String| tokens.contains(&word);
    let merges = ["d e", "de f", "Ġ r", "Ġr e", ": Ċ", ") Ċ"].into_iter();
    let merges = merges.filter(|pair| exists(pair.replace(' ', ""))).map(str::to_owned).collect();
    vec![
        ("general.architecture", Entry::Text("qwen2")),
        ("qwen2.block_count", Entry::Integer(layers as u32)),
        ("qwen2.context_length", Entry::Integer(512)),
        ("qwen2.embedding_length", Entry::Integer(width as u32)),
        ("qwen2.feed_forward_length", Entry::Integer(width as u32)),
        ("qwen2.attention.head_count", Entry::Integer(QUERY_HEADS)),
        ("qwen2.attention.head_count_kv", Entry::Integer(KEY_HEADS)),
        ("qwen2.rope.freq_base", Entry::Float(10_000.0)),
        ("qwen2.attention.layer_norm_rms_epsilon", Entry::Float(1e-6)),
        ("tokenizer.ggml.model", Entry::Text("gpt2")),
        ("tokenizer.ggml.pre", Entry::Text("qwen2")),
        ("tokenizer.ggml.tokens", Entry::Texts(tokens.to_vec())),
        ("tokenizer.ggml.token_type", Entry::Integers(kinds)),
        ("tokenizer.ggml.merges", Entry::Texts(merges)),
        ("tokenizer.ggml.eos_token_id", Entry::Integer(count as u32 - 1)),
    ]
}

fn vector(name: &str, numbers: Vec<f32>) -> TinyTensor {
    let dimensions = vec![numbers.len() as u64];
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    TinyTensor { name: name.to_owned(), dimensions, format: 0, bytes }
}

fn matrix(name: &str, columns: usize, numbers: Vec<f32>) -> TinyTensor {
    let rows = numbers.len() / columns;
    let dimensions = vec![columns as u64, rows as u64];
    TinyTensor { dimensions, ..vector(name, numbers) }
}

fn quantised(
    name: &str,
    columns: usize,
    rows: usize,
    dtype: GgmlDType,
    random: &mut Numbers,
) -> TinyTensor {
    let numbers: Vec<f32> = (0..columns * rows).map(|_| random.next()).collect();
    let tensor = Tensor::from_vec(numbers, (rows, columns), &Device::Cpu).unwrap();
    let bytes = QTensor::quantize(&tensor, dtype).unwrap().data().unwrap().into_owned();
    let format = if dtype == GgmlDType::Q4K { 12 } else { 14 };
    let dimensions = vec![columns as u64, rows as u64];
    TinyTensor { name: name.to_owned(), dimensions, format, bytes }
}

/// Random numbers between -0.1 and 0.1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 / (1_u64 << 24) as f32 - 0.5) / 5.0
    }
}
