//! The forward pass of models of the architecture qwen2: from tokens to the scores of the next one.

use std::path::Path;
use std::sync::Arc;

use crate::attention::{Attention, HeadShape};
use crate::fault::EngineFault;
use crate::gguf::GgufHeader;
use crate::kv::KvCache;
use crate::mapping::MappedFile;
use crate::matrix::{Activations, Matrix, RowTable, WeightFile};
use crate::numeric;
use crate::threads::Threads;

/// The architecture that this file computes.
const ARCHITECTURE: &str = "qwen2";
/// The most layers that are loaded.
const MAX_LAYERS: usize = 256;
/// The largest width of any matrix: a bound of the memory that a damaged header can ask for.
const MAX_WIDTH: usize = 1 << 18;
/// The longest context that is computed.
const MAX_CONTEXT: usize = 1 << 20;

/// The sizes of a model.
#[derive(Debug, Clone)]
pub(crate) struct ModelShape {
    pub(crate) layers: usize,
    pub(crate) hidden: usize,
    pub(crate) feed_forward: usize,
    pub(crate) vocabulary: usize,
    pub(crate) context: usize,
    pub(crate) heads: HeadShape,
    pub(crate) epsilon: f32,
    pub(crate) rope_base: f32,
}

impl ModelShape {
    /// Reads and checks the sizes.
    fn read(path: &Path, header: &GgufHeader<'_>) -> Result<Self, EngineFault> {
        let damaged = |reason: String| EngineFault::damaged(path, reason);
        let architecture = header.text("general.architecture").map_err(damaged)?;
        if architecture != ARCHITECTURE {
            let reason = format!("its architecture is {architecture}");
            return Err(EngineFault::unsupported(path, reason));
        }
        let size = |name: &str, most: usize| {
            let key = format!("{ARCHITECTURE}.{name}");
            let size = header.integer(&key).map_err(damaged)?;
            if (1..=most).contains(&size) {
                Ok(size)
            } else {
                Err(damaged(format!("{key} is {size}; 1 to {most} is possible")))
            }
        };
        let hidden = size("embedding_length", MAX_WIDTH)?;
        let query_heads = size("attention.head_count", MAX_WIDTH)?;
        let key_heads = size("attention.head_count_kv", query_heads)?;
        let width = hidden / query_heads;
        if !hidden.is_multiple_of(query_heads)
            || !query_heads.is_multiple_of(key_heads)
            || !width.is_multiple_of(2)
        {
            return Err(damaged(format!("{query_heads} heads do not divide {hidden}")));
        }
        let float = |name: &str| header.float(&format!("{ARCHITECTURE}.{name}")).map_err(damaged);
        Ok(Self {
            layers: size("block_count", MAX_LAYERS)?,
            hidden,
            feed_forward: size("feed_forward_length", MAX_WIDTH)?,
            vocabulary: header.list("tokenizer.ggml.tokens").map_err(damaged)?.len(),
            context: size("context_length", MAX_CONTEXT)?,
            heads: HeadShape { width, query_heads, key_heads },
            epsilon: float("attention.layer_norm_rms_epsilon")? as f32,
            rope_base: float("rope.freq_base")? as f32,
        })
    }
}

/// The weights of a model and how it is computed.
pub(crate) struct Qwen2 {
    shape: ModelShape,
    embeddings: RowTable,
    layers: Vec<DecoderLayer>,
    output_norm: Vec<f32>,
    output: Matrix,
    threads: Threads,
}

/// The weights of one layer.
struct DecoderLayer {
    attention_norm: Vec<f32>,
    query: Projection,
    key: Projection,
    value: Projection,
    attention_output: Matrix,
    feed_forward_norm: Vec<f32>,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

/// A linear layer: a matrix, and the bias that is added to its products.
struct Projection {
    matrix: Matrix,
    bias: Vec<f32>,
}

/// A sequence of tokens: a part that it shares with others, then its own.
#[derive(Debug)]
pub(crate) struct SequenceCache<'a> {
    pub(crate) shared: &'a KvCache,
    pub(crate) own: &'a mut KvCache,
}

/// A token to add to a sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewToken {
    /// The sequence it is added to.
    pub(crate) sequence: usize,
    pub(crate) token: u32,
}

impl Qwen2 {
    /// Loads the model of a mapped file.
    pub(crate) fn load(
        path: &Path,
        map: &Arc<MappedFile>,
        header: &GgufHeader<'_>,
        threads: Threads,
    ) -> Result<Self, EngineFault> {
        let shape = ModelShape::read(path, header)?;
        let file = WeightFile { path, map, header };
        let embedding_size = (shape.hidden, shape.vocabulary);
        let layers = (0..shape.layers)
            .map(|index| DecoderLayer::load(&file, &shape, index, &threads))
            .collect::<Result<_, _>>()?;
        // Small models have no output matrix: they use the embeddings.
        let has_output = header.tensor("output.weight").is_some();
        let output = if has_output { "output.weight" } else { "token_embd.weight" };
        let model = Self {
            embeddings: file.table("token_embd.weight", embedding_size)?,
            layers,
            output_norm: file.vector("output_norm.weight", shape.hidden)?,
            output: file.matrix(output, embedding_size, &threads)?,
            shape,
            threads,
        };
        model.pack()?;
        Ok(model)
    }

    fn pack(&self) -> Result<(), EngineFault> {
        for layer in &self.layers {
            let DecoderLayer { query, key, value, attention_output, gate, up, down, .. } = layer;
            let projections = [&query.matrix, &key.matrix, &value.matrix];
            for matrix in projections.into_iter().chain([attention_output, gate, up, down]) {
                matrix.pack()?;
            }
        }
        self.output.pack()
    }

    pub(crate) fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// An empty cache for this model.
    pub(crate) fn new_cache(&self) -> KvCache {
        KvCache::new(self.shape.layers, self.shape.heads.key_width())
    }

    /// Adds tokens to the caches of their sequences. For each index in `wanted`, returns the scores of the token that
    /// follows the token at that index.
    pub(crate) fn forward(
        &self,
        tokens: &[NewToken],
        sequences: &mut [SequenceCache<'_>],
        wanted: &[usize],
    ) -> Result<Vec<Vec<f32>>, EngineFault> {
        let result = self.try_forward(tokens, sequences, wanted);
        for (index, sequence) in sequences.iter_mut().enumerate() {
            if result.is_ok() {
                let own = tokens.iter().filter(|new| new.sequence == index);
                own.for_each(|new| sequence.own.complete(new.token));
            }
            // Removes what a pass that failed left in some of the layers.
            sequence.own.truncate(usize::MAX);
        }
        result
    }

    fn try_forward(
        &self,
        tokens: &[NewToken],
        sequences: &mut [SequenceCache<'_>],
        wanted: &[usize],
    ) -> Result<Vec<Vec<f32>>, EngineFault> {
        let ids: Vec<u32> = tokens.iter().map(|new| new.token).collect();
        let mut states = self.embeddings.rows(&ids)?;
        let attention = Attention::new(&self.shape, tokens, sequences);
        for (index, layer) in self.layers.iter().enumerate() {
            layer.forward(&self.shape, &self.threads, &mut states, |query, key, value| {
                attention.forward(index, sequences, [query, key, value], &self.threads)
            })?;
        }
        let mut last = Vec::with_capacity(wanted.len() * self.shape.hidden);
        for index in wanted {
            let start = index * self.shape.hidden;
            last.extend(states.get(start..start + self.shape.hidden).unwrap_or_default());
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let last = numeric::rms_norm(&last, &self.output_norm, self.shape.epsilon);
        let scores = self.output.multiply(&Activations::new(last, wanted.len()), &self.threads)?;
        Ok(scores.chunks_exact(self.shape.vocabulary).map(<[f32]>::to_vec).collect())
    }
}

impl DecoderLayer {
    fn load(
        file: &WeightFile<'_>,
        shape: &ModelShape,
        index: usize,
        threads: &Threads,
    ) -> Result<Self, EngineFault> {
        let name = |name: &str| format!("blk.{index}.{name}");
        let matrix = |tensor: &str, size| file.matrix(&name(tensor), size, threads);
        let vector = |tensor: &str, len| file.vector(&name(tensor), len);
        let projection = |tensor: &str, rows| {
            Ok::<_, EngineFault>(Projection {
                matrix: matrix(&format!("{tensor}.weight"), (shape.hidden, rows))?,
                bias: vector(&format!("{tensor}.bias"), rows)?,
            })
        };
        let (hidden, wide) = (shape.hidden, shape.feed_forward);
        Ok(Self {
            attention_norm: vector("attn_norm.weight", hidden)?,
            query: projection("attn_q", hidden)?,
            key: projection("attn_k", shape.heads.key_width())?,
            value: projection("attn_v", shape.heads.key_width())?,
            attention_output: matrix("attn_output.weight", (hidden, hidden))?,
            feed_forward_norm: vector("ffn_norm.weight", hidden)?,
            gate: matrix("ffn_gate.weight", (hidden, wide))?,
            up: matrix("ffn_up.weight", (hidden, wide))?,
            down: matrix("ffn_down.weight", (wide, hidden))?,
        })
    }

    /// Changes `states`, one row a token, by this layer. `attend` turns queries, keys and values into the attended
    /// values.
    fn forward(
        &self,
        shape: &ModelShape,
        threads: &Threads,
        states: &mut [f32],
        mut attend: impl FnMut(Vec<f32>, Vec<f32>, Vec<f32>) -> Vec<f32>,
    ) -> Result<(), EngineFault> {
        let count = states.len() / shape.hidden;
        let normed = numeric::rms_norm(states, &self.attention_norm, shape.epsilon);
        let normed = Activations::new(normed, count);
        let attended = attend(
            self.query.multiply(&normed, threads)?,
            self.key.multiply(&normed, threads)?,
            self.value.multiply(&normed, threads)?,
        );
        let attended = Activations::new(attended, count);
        numeric::add(states, &self.attention_output.multiply(&attended, threads)?);

        let normed = numeric::rms_norm(states, &self.feed_forward_norm, shape.epsilon);
        let normed = Activations::new(normed, count);
        let mut gated = self.gate.multiply(&normed, threads)?;
        numeric::gate(&mut gated, &self.up.multiply(&normed, threads)?);
        let gated = Activations::new(gated, count);
        numeric::add(states, &self.down.multiply(&gated, threads)?);
        Ok(())
    }
}

impl Projection {
    fn multiply(&self, input: &Activations, threads: &Threads) -> Result<Vec<f32>, EngineFault> {
        let mut output = self.matrix.multiply(input, threads)?;
        for row in output.chunks_exact_mut(self.bias.len()) {
            numeric::add(row, &self.bias);
        }
        Ok(output)
    }
}
