//! Byte-pair merges of one piece of text, in time that grows with its length times its logarithm.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// What two neighbours become, and how soon: lower ranks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MergeRule {
    pub(crate) rank: u32,
    pub(crate) token: u32,
}

/// A token of the piece, and its neighbours among those that are left.
struct Symbol {
    /// `None` once it was merged into the token left of it.
    token: Option<u32>,
    previous: Option<usize>,
    next: Option<usize>,
}

/// A merge that was possible when it was queued: rank, place, and the pair it was about.
type QueuedMerge = Reverse<(u32, usize, (u32, u32))>;

/// Applies the merges, lowest rank first and leftmost among equals.
pub(super) fn merge(tokens: Vec<u32>, rules: &HashMap<(u32, u32), MergeRule>) -> Vec<u32> {
    let count = tokens.len();
    let mut symbols: Vec<Symbol> = tokens
        .into_iter()
        .enumerate()
        .map(|(index, token)| Symbol {
            token: Some(token),
            previous: index.checked_sub(1),
            next: (index + 1 < count).then_some(index + 1),
        })
        .collect();
    let mut queue: BinaryHeap<QueuedMerge> =
        (0..count).filter_map(|index| candidate(&symbols, index, rules)).collect();
    while let Some(Reverse((_, left, pair))) = queue.pop() {
        if pair_at(&symbols, left) != Some(pair) {
            continue; // One of the two was merged with another neighbour meanwhile.
        }
        let Some(rule) = rules.get(&pair) else { continue };
        join(&mut symbols, left, rule.token);
        let previous = symbols.get(left).and_then(|symbol| symbol.previous);
        queue.extend(previous.and_then(|index| candidate(&symbols, index, rules)));
        queue.extend(candidate(&symbols, left, rules));
    }
    symbols.into_iter().filter_map(|symbol| symbol.token).collect()
}

/// The tokens at `left` and right of it.
fn pair_at(symbols: &[Symbol], left: usize) -> Option<(u32, u32)> {
    let symbol = symbols.get(left)?;
    Some((symbol.token?, symbols.get(symbol.next?)?.token?))
}

fn candidate(
    symbols: &[Symbol],
    left: usize,
    rules: &HashMap<(u32, u32), MergeRule>,
) -> Option<QueuedMerge> {
    let pair = pair_at(symbols, left)?;
    Some(Reverse((rules.get(&pair)?.rank, left, pair)))
}

/// Makes one symbol of `left` and the one right of it.
fn join(symbols: &mut [Symbol], left: usize, token: u32) {
    let Some(right) = symbols.get(left).and_then(|symbol| symbol.next) else { return };
    let after = symbols.get_mut(right).and_then(|symbol| {
        symbol.token = None;
        symbol.next
    });
    if let Some(symbol) = symbols.get_mut(left) {
        symbol.token = Some(token);
        symbol.next = after;
    }
    if let Some(symbol) = after.and_then(|after| symbols.get_mut(after)) {
        symbol.previous = Some(left);
    }
}
