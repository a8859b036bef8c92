//! How much stores keep of finished calls, and what they drop first.

use crate::pattern::MAX_EVENTS;

/// Records kept for one owner. They are trimmed [`HISTORY_BATCH`] at a time, so there may be that many more.
pub const MAX_HISTORY: u64 = 10_000;
/// Records above [`MAX_HISTORY`] that are trimmed together.
pub const HISTORY_BATCH: u64 = 500;
/// Records kept for all owners together, trimmed as often.
pub const MAX_RECORDS: u64 = 100_000;
/// Values of earlier calls that can be read in one store.
pub const MAX_CONTENTS: u64 = 128;
/// Values above [`MAX_CONTENTS`] that are dropped together.
const CONTENTS_BATCH: u64 = 16;
/// The size of all of them together, as JSON.
pub const MAX_CONTENTS_BYTES: u64 = 2 * 1024 * 1024;
/// Agents without a session whose history is kept; the longest unused are dropped first.
pub const MAX_INSTANCES: u64 = 1_000;
/// New agents without a session after which unused ones are looked for.
const INSTANCES_BATCH: i64 = 100;

/// Events of one role above [`MAX_EVENTS`] that are dropped together: to drop one with each call would be one more page
/// to write.
const EVENTS_BATCH: usize = 32;
/// Changes of standing kept of one artifact; the oldest go first.
pub const MAX_DECISIONS: usize = 50;
/// Rejections kept of one method; the oldest go first.
pub const MAX_REJECTIONS: usize = 32;

/// The last event of a role to drop, when the newest has this number. Numbers only grow.
pub fn last_expired_event(newest: usize) -> Option<usize> {
    newest.checked_sub(MAX_EVENTS).filter(|last| *last > 0 && newest.is_multiple_of(EVENTS_BATCH))
}

/// How many of an owner's oldest records to drop. Most calls drop none: records are dropped in batches.
pub fn excess_records(count: u64) -> Option<u64> {
    (count > MAX_HISTORY + HISTORY_BATCH).then(|| count - MAX_HISTORY)
}

/// The last record to drop, of any owner, when the newest has this id. Ids only grow.
pub fn last_expired_record(newest: u64) -> Option<u64> {
    newest.checked_sub(MAX_RECORDS).filter(|last| *last > 0 && newest.is_multiple_of(HISTORY_BATCH))
}

/// Whether to look for agents without a session that are unused: after the first call of every hundredth.
pub fn is_instance_batch(owner: i64, history_count: u64) -> bool {
    history_count == 1 && owner % INSTANCES_BATCH == 0
}

/// Whether a value is given, when the newest has this id. Values are dropped in batches; one that is about to be dropped is
/// no longer given.
pub fn is_readable_content(id: u64, newest: u64) -> bool {
    id > newest.saturating_sub(MAX_CONTENTS)
}

/// The oldest value that is kept, by its id and by its place among the bytes of all values ever kept. Both only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentBounds {
    first_id: u64,
    first_byte: u64,
}

impl ContentBounds {
    /// The bounds after a value was added: its id, and where its bytes end.
    pub fn after(newest: u64, end: u64) -> Self {
        let first_id = newest.saturating_sub(MAX_CONTENTS - 1);
        Self {
            first_id: if newest.is_multiple_of(CONTENTS_BATCH) { first_id } else { 0 },
            first_byte: end.saturating_sub(MAX_CONTENTS_BYTES),
        }
    }

    /// Whether a value is dropped: its id, and where its bytes start.
    pub fn excludes(self, id: u64, start: u64) -> bool {
        id < self.first_id || start < self.first_byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_dropped_in_batches() {
        let most = MAX_HISTORY + HISTORY_BATCH;
        for (count, dropped) in [(0, None), (most, None), (most + 1, Some(HISTORY_BATCH + 1))] {
            assert_eq!(excess_records(count), dropped, "{count}");
        }
        for (newest, last) in [
            (MAX_RECORDS, None),
            (MAX_RECORDS + 1, None),
            (MAX_RECORDS + HISTORY_BATCH, Some(HISTORY_BATCH)),
        ] {
            assert_eq!(last_expired_record(newest), last, "{newest}");
        }
        for (owner, count, looks) in [(100, 1, true), (100, 2, false), (101, 1, false)] {
            assert_eq!(is_instance_batch(owner, count), looks, "{owner} {count}");
        }
    }

    #[test]
    fn events_are_dropped_in_batches() {
        for (newest, last) in [(32, None), (63, None), (64, Some(14)), (65, None), (96, Some(46))] {
            assert_eq!(last_expired_event(newest), last, "{newest}");
        }
    }

    #[test]
    fn as_many_values_are_given_as_are_kept() {
        for (id, newest, given) in [
            (1, 1, true),
            (1, MAX_CONTENTS, true),
            (1, MAX_CONTENTS + 1, false),
            (2, MAX_CONTENTS + 1, true),
        ] {
            assert_eq!(is_readable_content(id, newest), given, "{id} {newest}");
        }
    }

    #[test]
    fn values_are_dropped_by_number_and_by_size() {
        let few_bytes = ContentBounds::after(MAX_CONTENTS + CONTENTS_BATCH, 10);
        assert!(few_bytes.excludes(16, 0) && !few_bytes.excludes(17, 0));
        let between = ContentBounds::after(MAX_CONTENTS + 5, 10);
        assert!(!between.excludes(5, 0), "values are dropped in batches");
        let few_values = ContentBounds::after(3, MAX_CONTENTS_BYTES + 7);
        assert!(few_values.excludes(2, 6) && !few_values.excludes(2, 7));
    }
}
