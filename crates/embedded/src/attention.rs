//! Attention: each new token looks at the tokens before it in its sequence.

use rayon::prelude::*;

use crate::kv::KvLayer;
use crate::numeric::{self, vectorised};
use crate::qwen2::{ModelShape, NewToken, SequenceCache};
use crate::threads::Threads;

/// The heads of a model. Several query heads share one head of keys and values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadShape {
    pub(crate) width: usize,
    pub(crate) query_heads: usize,
    pub(crate) key_heads: usize,
}

impl HeadShape {
    /// Numbers of all keys, or all values, of a token in one layer.
    pub(crate) fn key_width(self) -> usize {
        self.key_heads * self.width
    }

    fn query_width(self) -> usize {
        self.query_heads * self.width
    }
}

/// The attention of one forward pass: where its tokens stand, the same in every layer.
pub(crate) struct Attention {
    heads: HeadShape,
    places: Vec<Place>,
}

/// Where a token stands.
struct Place {
    sequence: usize,
    /// How many tokens of its sequence's own part it sees, itself included.
    visible: usize,
    /// Cosines, then sines, of the angles its position rotates by.
    angles: Vec<f32>,
}

impl Attention {
    pub(crate) fn new(
        shape: &ModelShape,
        tokens: &[NewToken],
        sequences: &[SequenceCache<'_>],
    ) -> Self {
        let mut own: Vec<usize> = sequences.iter().map(|it| it.own.len()).collect();
        let mut places = Vec::with_capacity(tokens.len());
        for new in tokens {
            let shared = sequences.get(new.sequence).map_or(0, |it| it.shared.len());
            let Some(own) = own.get_mut(new.sequence) else { continue };
            let angles = angles(shared + *own, shape.heads.width, shape.rope_base);
            *own += 1;
            places.push(Place { sequence: new.sequence, visible: *own, angles });
        }
        Self { heads: shape.heads, places }
    }

    /// Adds keys and values to the caches of one layer and returns the attended values of every token.
    pub(crate) fn forward(
        &self,
        layer: usize,
        sequences: &mut [SequenceCache<'_>],
        [mut query, mut key, value]: [Vec<f32>; 3],
        threads: &Threads,
    ) -> Vec<f32> {
        let key_width = self.heads.key_width();
        let rows = self.places.iter().zip(query.chunks_exact_mut(self.heads.query_width()));
        for (place, row) in rows {
            rotate(row, self.heads.width, &place.angles);
        }
        let rows = key.chunks_exact_mut(key_width).zip(value.chunks_exact(key_width));
        for (place, (key, value)) in self.places.iter().zip(rows) {
            rotate(key, self.heads.width, &place.angles);
            if let Some(sequence) = sequences.get_mut(place.sequence) {
                sequence.own.push(layer, key, value);
            }
        }
        self.attend(layer, sequences, &query, threads)
    }

    fn attend(
        &self,
        layer: usize,
        sequences: &[SequenceCache<'_>],
        query: &[f32],
        threads: &Threads,
    ) -> Vec<f32> {
        let group_width = self.heads.query_width() / self.heads.key_heads;
        let mut output = vec![0.0; query.len()];
        let attend_group = |(index, (output, query)): (usize, (&mut [f32], &[f32]))| {
            let place = self.places.get(index / self.heads.key_heads);
            let sequence = place.and_then(|place| sequences.get(place.sequence));
            let (Some(place), Some(sequence)) = (place, sequence) else { return };
            let segments = [
                sequence.shared.layer(layer).map(|it| (it, sequence.shared.len())),
                sequence.own.layer(layer).map(|it| (it, place.visible)),
            ];
            let head = index % self.heads.key_heads;
            vectorised(|| attend_head(self.heads, head, segments, query, output));
        };
        if threads.is_parallel() {
            threads.run(|| {
                let groups = output.par_chunks_exact_mut(group_width);
                groups.zip(query.par_chunks_exact(group_width)).enumerate().for_each(attend_group);
            });
        } else {
            let groups = output.chunks_exact_mut(group_width);
            groups.zip(query.chunks_exact(group_width)).enumerate().for_each(attend_group);
        }
        output
    }
}

/// The query heads of one token that share the keys of `head`.
#[expect(clippy::inline_always, reason = "vector instructions are chosen by the caller")]
#[inline(always)]
fn attend_head(
    heads: HeadShape,
    head: usize,
    segments: [Option<(&KvLayer, usize)>; 2],
    query: &[f32],
    output: &mut [f32],
) {
    let key_width = heads.key_width();
    let at = head * heads.width..(head + 1) * heads.width;
    let segments = segments.into_iter().flatten();
    let length: usize = segments.clone().map(|(_, visible)| visible).sum();
    let scale = (heads.width as f32).sqrt().recip();
    let mut scores = vec![0.0; length];
    for (query, output) in query.chunks_exact(heads.width).zip(output.chunks_exact_mut(heads.width))
    {
        let keys = segments
            .clone()
            .flat_map(|(layer, visible)| layer.keys.chunks_exact(key_width).take(visible));
        for (score, key) in scores.iter_mut().zip(keys) {
            *score = scale * numeric::dot(query, key.get(at.clone()).unwrap_or_default());
        }
        numeric::softmax(&mut scores);
        let values = segments
            .clone()
            .flat_map(|(layer, visible)| layer.values.chunks_exact(key_width).take(visible));
        for (score, value) in scores.iter().zip(values) {
            numeric::add_scaled(output, *score, value.get(at.clone()).unwrap_or_default());
        }
    }
}

/// The cosines, then the sines, of the angles for a position.
fn angles(position: usize, width: usize, base: f32) -> Vec<f32> {
    let angle = |pair: usize| position as f32 * base.powf(-2.0 * pair as f32 / width as f32);
    let pairs = 0..width / 2;
    pairs.clone().map(|pair| angle(pair).cos()).chain(pairs.map(|pair| angle(pair).sin())).collect()
}

/// Rotates every head of a row: number `i` of its first half together with number `i` of its second half.
fn rotate(row: &mut [f32], width: usize, angles: &[f32]) {
    let (cosines, sines) = angles.split_at(width / 2);
    for head in row.chunks_exact_mut(width) {
        let (first, second) = head.split_at_mut(width / 2);
        for (((first, second), cos), sin) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
            (*first, *second) = (*first * cos - *second * sin, *first * sin + *second * cos);
        }
    }
}
