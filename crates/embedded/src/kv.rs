//! What a model remembers of the tokens it has read: keys and values of every layer.

/// Keys and values of a row of tokens. It can be truncated, extended, saved and loaded.
#[derive(Debug, Clone)]
pub(crate) struct KvCache {
    /// Numbers of one token in one layer, for keys and for values.
    width: usize,
    tokens: Vec<u32>,
    layers: Vec<KvLayer>,
}

/// Keys and values of one layer, `width` numbers a token.
#[derive(Debug, Clone, Default)]
pub(crate) struct KvLayer {
    pub(crate) keys: Vec<f32>,
    pub(crate) values: Vec<f32>,
}

impl KvCache {
    pub(crate) fn new(layers: usize, width: usize) -> Self {
        Self { width, tokens: Vec::new(), layers: vec![KvLayer::default(); layers] }
    }

    /// The tokens that were read.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn layer(&self, index: usize) -> Option<&KvLayer> {
        self.layers.get(index)
    }

    /// Adds one token's keys and values to a layer. The token counts once it is in [`Self::complete`].
    pub(crate) fn push(&mut self, layer: usize, keys: &[f32], values: &[f32]) {
        if let Some(layer) = self.layers.get_mut(layer) {
            layer.keys.extend_from_slice(keys);
            layer.values.extend_from_slice(values);
        }
    }

    /// Counts a token that every layer has.
    pub(crate) fn complete(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Forgets everything after the first `len` tokens, and what an interrupted pass left.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        let numbers = self.tokens.len() * self.width;
        for layer in &mut self.layers {
            layer.keys.truncate(numbers);
            layer.values.truncate(numbers);
        }
    }

    /// The bytes that this many tokens take when they are saved.
    pub(crate) fn saved_bytes(&self, tokens: usize) -> usize {
        tokens * self.width * 2 * self.layers.len() * size_of::<f32>()
    }

    /// The numbers of all tokens, layer by layer, keys before values.
    pub(crate) fn save(&self) -> Vec<u8> {
        let rows = self.layers.iter().flat_map(|layer| [&layer.keys, &layer.values]);
        rows.flatten().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Replaces everything by saved numbers of these tokens. Refuses numbers that are too few or too many.
    pub(crate) fn load(&mut self, tokens: &[u32], saved: &[u8]) -> bool {
        if saved.len() != self.saved_bytes(tokens.len()) {
            return false;
        }
        let (numbers, _) = saved.as_chunks::<{ size_of::<f32>() }>();
        let mut rows = numbers.chunks(tokens.len() * self.width);
        for layer in &mut self.layers {
            for row in [&mut layer.keys, &mut layer.values] {
                row.clear();
                let saved = rows.next().unwrap_or_default();
                row.extend(saved.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
        }
        self.tokens = tokens.to_vec();
        true
    }
}
