//! A cache of parsed programs, so that a stored program is not parsed at every call.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lifecycle::dialect::Language;
use lifecycle::program::{CachedInspection, VettedProgram};

/// Most programs in the cache.
const MAX_PROGRAMS: usize = 64;
/// Most bytes of program text in the cache; the inspections take several times as much memory.
const MAX_TEXT_BYTES: usize = 512 * 1024;

/// The inspections of one runtime, the one used last at the back.
#[derive(Debug, Default)]
pub(crate) struct InspectionCache(Mutex<VecDeque<CachedInspection>>);

impl InspectionCache {
    /// The inspection of a text. It is found by the text itself, because a stored checksum is not trusted.
    pub(crate) fn find(&self, language: Language, source: &str) -> Option<CachedInspection> {
        let mut kept = self.kept();
        let at = kept.iter().rposition(|inspection| inspection.is_of(language, source))?;
        let inspection = kept.remove(at)?;
        kept.push_back(inspection.clone());
        Some(inspection)
    }

    /// Adds the inspection of a program.
    pub(crate) fn keep(&self, program: &VettedProgram) {
        let text = program.program();
        if self.find(text.language, &text.source).is_none() {
            self.add(CachedInspection::of(program));
        }
    }

    fn add(&self, inspection: CachedInspection) {
        let mut kept = self.kept();
        kept.push_back(inspection);
        let bytes = |kept: &VecDeque<CachedInspection>| {
            kept.iter().map(CachedInspection::bytes).sum::<usize>()
        };
        while kept.len() > MAX_PROGRAMS || bytes(&kept) > MAX_TEXT_BYTES {
            kept.pop_front();
        }
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<CachedInspection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Runtime;
    use crate::config::Config;
    use crate::provider::Scripted;

    #[test]
    fn a_program_that_ran_is_known_when_it_is_recalled() {
        let state = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        config.set("state_dir", state.path().to_str().unwrap()).unwrap();
        let code = "result = args[0] + 1";
        let model = Arc::new(Scripted::new().with("*", code));
        let runtime = Runtime::builder(config).provider(model).build().unwrap();
        let known = || runtime.inspection_cache().find(Language::Python, code).is_some();
        assert!(!known());
        runtime.agent("adder").build().unwrap().call("add", (1,)).unwrap();
        assert!(known());
    }

    #[test]
    fn the_programs_used_last_are_kept_as_far_as_there_is_room() {
        let inspection_cache = InspectionCache::default();
        let add = |source: &str| {
            inspection_cache.add(CachedInspection::new(Language::Python, source).unwrap());
        };
        let has = |source: &str| inspection_cache.find(Language::Python, source).is_some();
        add("used = 1");
        for n in 0..2 * MAX_PROGRAMS {
            add(&format!("n = {n}"));
            assert!(has("used = 1"));
        }
        assert!(has(&format!("n = {}", 2 * MAX_PROGRAMS - 1)) && !has("n = 0"));
        assert!(inspection_cache.find(Language::Ruby, "used = 1").is_none());
        for n in 0..8 {
            add(&format!("long = '{}{n}'", "x".repeat(MAX_TEXT_BYTES / 5)));
        }
        assert!(!has("used = 1"));
        assert!(
            inspection_cache.kept().iter().map(CachedInspection::bytes).sum::<usize>()
                <= MAX_TEXT_BYTES
        );
    }
}
