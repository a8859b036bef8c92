//! An agent's memory: string keys, JSON values, and a version per change.
//!
//! The host owns it. A worker holds a copy at a known version and is sent only what changed, so the cost
//! of a call follows what changed, not what is kept. Values are shared, so a copy costs its keys only.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::history::HISTORY_KEY;
use crate::request::{decoded_bytes, encoded_bytes};

/// Removals remembered before older workers are sent the whole context again.
const MAX_REMOVALS: usize = 256;

/// Most that an agent may remember, of keys and of values as JSON: it must fit a worker's frame beside arguments.
pub const MAX_CONTEXT_BYTES: usize = 24 << 20;
/// Most memory that the values an agent remembers may take: many small values take far more than their JSON.
pub const MAX_CONTEXT_MEMORY: usize = 64 << 20;

/// Keys that are views the runtime provides, never part of the memory itself.
pub const VIEWS: [&str; 2] = ["tools", HISTORY_KEY];

/// An agent's memory at one version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    version: u64,
    entries: BTreeMap<String, Entry>,
    removals: BTreeMap<String, u64>,
    /// Removals older than this are forgotten.
    horizon: u64,
    /// Of all keys and values.
    bytes: usize,
    /// Memory that the values take.
    decoded_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    value: Arc<Value>,
    version: u64,
    /// Of its key and its value's JSON text.
    bytes: usize,
    /// Memory that its value takes.
    decoded_bytes: usize,
}

impl Entry {
    fn new(key: &str, value: Value, version: u64) -> Self {
        let bytes = key.len().saturating_add(encoded_bytes(&value));
        let decoded_bytes = decoded_bytes(&value);
        Self { value: Arc::new(value), version, bytes, decoded_bytes }
    }
}

/// What an accepted attempt did to the memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContextChanges {
    /// Keys written, with their new values.
    pub set: Map<String, Value>,
    /// Keys removed.
    pub unset: Vec<String>,
}

impl ContextChanges {
    /// Whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.unset.is_empty()
    }
}

/// What a worker must receive to hold `version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextDelta {
    /// The version reached.
    pub version: u64,
    /// The version the worker must hold already; `None`: `set` is everything.
    pub base: Option<u64>,
    /// Values to put in place.
    pub set: Vec<(String, Arc<Value>)>,
    /// Keys to remove.
    pub unset: Vec<String>,
}

impl Context {
    /// A memory read back from the store.
    pub fn restored(version: u64, entries: impl IntoIterator<Item = (String, Value)>) -> Self {
        let entry = |(key, value): (String, Value)| {
            let entry = Entry::new(&key, value, version);
            (key, entry)
        };
        let entries: BTreeMap<String, Entry> = entries.into_iter().map(entry).collect();
        let bytes = entries.values().map(|entry| entry.bytes).sum();
        let decoded_bytes = entries.values().map(|entry| entry.decoded_bytes).sum();
        let removals = BTreeMap::new();
        Self { version, entries, removals, horizon: version, bytes, decoded_bytes }
    }

    /// Counts every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).map(|entry| entry.value.as_ref())
    }

    /// Whether a key is present.
    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Keys and values in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, entry)| (key.as_str(), entry.value.as_ref()))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How much is remembered: of its keys, and of its values as JSON.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that the values take.
    pub fn decoded_bytes(&self) -> usize {
        self.decoded_bytes
    }

    /// Why changes cannot be applied: the memory would be larger than [`MAX_CONTEXT_BYTES`] or [`MAX_CONTEXT_MEMORY`],
    /// and larger than it is. A memory that is too large can be made smaller.
    pub fn over_limit(&self, set: &Map<String, Value>, unset: &[String]) -> Option<String> {
        if set.is_empty() {
            return None;
        }
        let is_set = |key: &&String| set.contains_key(*key);
        let gone = set.keys().chain(unset.iter().filter(|key| !is_set(key)));
        let (mut bytes, mut memory) = (self.bytes, self.decoded_bytes);
        for entry in gone.filter_map(|key| self.entries.get(key)) {
            bytes = bytes.saturating_sub(entry.bytes);
            memory = memory.saturating_sub(entry.decoded_bytes);
        }
        for (key, value) in set {
            bytes = bytes.saturating_add(key.len() + encoded_bytes(value));
            memory = memory.saturating_add(decoded_bytes(value));
        }
        let advice = "remember less, or remove keys it no longer needs";
        if bytes > MAX_CONTEXT_BYTES && bytes > self.bytes {
            return Some(format!(
                "the agent would remember {bytes} bytes, and {MAX_CONTEXT_BYTES} is the most; {advice}"
            ));
        }
        (memory > MAX_CONTEXT_MEMORY && memory > self.decoded_bytes).then(|| {
            format!(
                "what the agent would remember takes {} MB of memory, and {} MB is the most: it has many small values; \
                 {advice}",
                memory >> 20,
                MAX_CONTEXT_MEMORY >> 20
            )
        })
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The whole memory as one object.
    pub fn to_object(&self) -> Map<String, Value> {
        self.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }

    /// Applies changes as one new version; nothing happens when there are none.
    pub fn apply(&mut self, changes: ContextChanges) {
        if changes.is_empty() {
            return;
        }
        self.version += 1;
        for key in changes.unset {
            if let Some(removed) = self.entries.remove(&key) {
                self.bytes = self.bytes.saturating_sub(removed.bytes);
                self.decoded_bytes = self.decoded_bytes.saturating_sub(removed.decoded_bytes);
                self.removals.insert(key, self.version);
            }
        }
        for (key, value) in changes.set {
            self.removals.remove(&key);
            let entry = Entry::new(&key, value, self.version);
            self.bytes = self.bytes.saturating_add(entry.bytes);
            self.decoded_bytes = self.decoded_bytes.saturating_add(entry.decoded_bytes);
            if let Some(replaced) = self.entries.insert(key, entry) {
                self.bytes = self.bytes.saturating_sub(replaced.bytes);
                self.decoded_bytes = self.decoded_bytes.saturating_sub(replaced.decoded_bytes);
            }
        }
        if self.removals.len() > MAX_REMOVALS {
            self.removals.clear();
            self.horizon = self.version;
        }
    }

    /// What must be sent to a worker that holds `base` (or nothing).
    pub fn since(&self, base: Option<u64>) -> ContextDelta {
        let base = base.filter(|base| (self.horizon..=self.version).contains(base));
        let newer = |version: u64| base.is_none_or(|base| version > base);
        ContextDelta {
            version: self.version,
            base,
            set: self
                .entries
                .iter()
                .filter(|(_, entry)| newer(entry.version))
                .map(|(key, entry)| (key.clone(), Arc::clone(&entry.value)))
                .collect(),
            unset: match base {
                None => Vec::new(),
                Some(_) => self
                    .removals
                    .iter()
                    .filter(|(_, at)| newer(**at))
                    .map(|(key, _)| key.clone())
                    .collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(key: &str, value: Value) -> ContextChanges {
        ContextChanges { set: Map::from_iter([(key.to_owned(), value)]), unset: Vec::new() }
    }

    #[test]
    fn a_memory_does_not_grow_past_its_limit_and_can_always_shrink() {
        let mut context = Context::default();
        let half = || json!("x".repeat(MAX_CONTEXT_BYTES / 2));
        let over = |context: &Context, changes: &ContextChanges| {
            context.over_limit(&changes.set, &changes.unset)
        };
        context.apply(set("a", half()));
        assert!(over(&context, &set("b", half())).is_some());
        assert!(over(&context, &set("a", half())).is_none(), "it replaces");
        let mut both = set("b", half());
        both.unset.push("a".to_owned());
        assert!(over(&context, &both).is_none());
        // Written by an older version.
        let entries = ["a", "b", "c"].map(|key| (key.to_owned(), half()));
        let context = Context::restored(1, entries);
        assert!(over(&context, &set("a", json!(1))).is_none(), "still too large, but less");
        assert!(over(&context, &set("d", json!(1))).is_some());
        let removal = ContextChanges { unset: vec!["a".to_owned()], ..ContextChanges::default() };
        assert!(over(&context, &removal).is_none());
    }

    #[test]
    fn many_small_values_cost_more_than_their_text() {
        let small = json!(vec![json!({"a": 1}); 1000]);
        assert!(decoded_bytes(&small) > 50 * encoded_bytes(&small), "{}", decoded_bytes(&small));
        let text = json!("x".repeat(100_000));
        assert!(decoded_bytes(&text) < 101_000);
        let mut context = Context::default();
        context.apply(set("a", small));
        context.apply(set("a", json!(1)));
        assert_eq!(context.decoded_bytes(), decoded_bytes(&json!(1)));
        let many = json!((0..700_000).map(|n| (n.to_string(), json!(0))).collect::<Map<_, _>>());
        let problem = context.over_limit(&set("b", many).set, &[]).unwrap();
        assert!(problem.contains("many small values"), "{problem}");
    }

    #[test]
    fn only_what_changed_crosses() {
        let mut context = Context::default();
        context.apply(set("big", json!("x".repeat(1000))));
        context.apply(set("small", json!(1)));
        let held = context.version();
        context.apply(set("small", json!(2)));
        let delta = context.since(Some(held));
        assert_eq!(delta.base, Some(held));
        assert_eq!(delta.set, vec![("small".to_owned(), Arc::new(json!(2)))]);
        assert_eq!(context.since(None).set.len(), 2);
    }

    #[test]
    fn removals_cross_until_they_are_forgotten() {
        let mut context = Context::default();
        context.apply(set("a", json!(1)));
        let held = context.version();
        context.apply(ContextChanges { set: Map::new(), unset: vec!["a".into()] });
        assert_eq!(context.since(Some(held)).unset, vec!["a".to_owned()]);
        for n in 0..=MAX_REMOVALS {
            context.apply(set(&format!("k{n}"), json!(n)));
            context.apply(ContextChanges { set: Map::new(), unset: vec![format!("k{n}")] });
        }
        assert_eq!(context.since(Some(held)).base, None, "too old: everything is sent");
    }

    #[test]
    fn its_size_is_that_of_what_it_holds() {
        let mut context = Context::default();
        context.apply(set("a", json!([1, 2])));
        context.apply(set("bb", json!("x")));
        assert_eq!(context.bytes(), "a[1,2]bb\"x\"".len());
        context.apply(set("a", json!(null)));
        assert_eq!(context.bytes(), "anullbb\"x\"".len());
        let entries = context.to_object();
        assert_eq!(Context::restored(7, entries).bytes(), context.bytes());
        context.apply(ContextChanges {
            set: Map::new(),
            unset: vec!["a".into(), "bb".into(), "c".into()],
        });
        assert_eq!(context.bytes(), 0);
    }

    #[test]
    fn an_empty_change_makes_no_new_version() {
        let mut context = Context::default();
        context.apply(ContextChanges::default());
        assert_eq!(context.version(), 0);
    }
}
