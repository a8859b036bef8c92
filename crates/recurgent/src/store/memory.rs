//! The store's fake: the same behaviour, gone with the process.

mod versions;
mod state;

use std::sync::{Mutex, MutexGuard, PoisonError};

use lifecycle::admission::Case;
use lifecycle::artifact::{Artifact, ArtifactKey};
use lifecycle::call::{Memory, StoreFault};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::pattern::{PatternEvent, repeated};
use lifecycle::program::Checksum;
use lifecycle::prompt::{MAX_TOOLS, PromptContext};
use lifecycle::request::{CallRequest, Role};
use lifecycle::settlement::{Changes, Kept, Receipt};
use lifecycle::tool::{KnownTool, Tool};
use serde_json::Value;

use super::catalog::{Catalog, Decided, KnownArtifact, Verdict, Version};
use super::ranking;
use super::{Exhaustions, MAX_EXHAUSTIONS, MAX_RECALLED, Owner, Store};
use state::{State, owner_key};
use versions::Line;

/// A store that keeps nothing beyond its own life.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<State>);

impl Store for MemoryStore {
    fn recall(&self, owner: &Owner, request: &CallRequest) -> Result<Memory, StoreFault> {
        let state = self.state();
        let contract = request.contract_fingerprint();
        let of_method = |key: &ArtifactKey| {
            key.role == request.role
                && key.method == request.method
                && key.language == request.language
        };
        let stored = state.artifacts.iter().filter(|(key, _)| of_method(key));
        let mut artifacts: Vec<Artifact> = stored.filter_map(|(_, line)| line.recalled()).collect();
        artifacts.sort_by_key(|artifact| artifact.contract_fingerprint != contract);
        artifacts.truncate(MAX_RECALLED);
        Ok(Memory { artifacts, earlier: state.earlier(owner, request), ..Memory::default() })
    }

    fn prompt_context(
        &self,
        owner: &Owner,
        request: &CallRequest,
    ) -> Result<PromptContext, StoreFault> {
        let state = self.state();
        let candidates = state.candidates();
        let known = candidates.iter().map(|c| (c.name.as_str(), c.purpose.as_deref()));
        let patterns = repeated(&state.patterns_of(&request.role), request, &known);
        let names = ranking::best(candidates, request, MAX_TOOLS);
        Ok(PromptContext {
            tools: names
                .iter()
                .filter_map(|name| state.known_tool(&Role::parse(name).ok()?))
                .collect(),
            siblings: state.siblings(request),
            history_count: state
                .owners
                .get(&owner_key(owner))
                .map_or(0, |held| held.history.len() as u64),
            patterns,
        })
    }

    fn commit(
        &self,
        owner: &Owner,
        request: &CallRequest,
        changes: &Changes,
    ) -> Result<Receipt, StoreFault> {
        let mut state = self.state();
        if let Some(Kept { context, tools, manifest }) = &changes.kept {
            let grown = state.outgrown(owner, request.language, manifest);
            if grown || !context.is_empty() {
                state.set_context(owner, request.context.version(), context)?;
            }
            state.keep_manifest(owner, request.language, manifest);
            for tool in tools {
                state.keep_tool(tool);
            }
        }
        state.count_call(request, changes.kept.is_some());
        let mut receipt = state.settle(owner, request, changes);
        if let Some(lane) = changes.exhausted {
            state.count_exhaustion(request, lane);
        }
        state.observe(owner, request, &changes.event);
        receipt.history_count = Some(state.record(owner, request, changes.record.clone()));
        for content in &changes.contents {
            receipt.contents_evicted += state.keep_content(content);
        }
        if let Some(since) = &changes.contents_kept_since {
            let before = state.contents.len();
            state.contents.retain(|(kept_at, _)| kept_at >= since);
            receipt.contents_evicted += (before - state.contents.len()) as u64;
        }
        Ok(receipt)
    }

    fn context(&self, owner: &Owner, held: Option<u64>) -> Result<Option<Context>, StoreFault> {
        let state = self.state();
        let kept = state.owners.get(&owner_key(owner)).filter(|_| owner.session.is_some());
        let context = kept.map_or_else(Context::default, |kept| {
            Context::restored(kept.context_version, kept.context.clone())
        });
        Ok((held != Some(context.version())).then_some(context))
    }

    fn manifest(
        &self,
        owner: &Owner,
        language: Language,
    ) -> Result<Option<DependencyManifest>, StoreFault> {
        let state = self.state();
        let held = state.owners.get(&owner_key(owner));
        Ok(held.and_then(|held| held.manifests.get(&language)).cloned())
    }

    fn remember(
        &self,
        owner: &Owner,
        base: u64,
        changes: &ContextChanges,
    ) -> Result<(), StoreFault> {
        if changes.is_empty() {
            return Ok(());
        }
        self.state().set_context(owner, base, changes)
    }

    fn keep_tool(&self, tool: &Tool) -> Result<(), StoreFault> {
        self.state().keep_tool(tool);
        Ok(())
    }

    fn tools(&self, name: Option<&Role>, limit: usize) -> Result<Vec<KnownTool>, StoreFault> {
        let state = self.state();
        let wanted = |role: &&Role| name.is_none_or(|name| name == *role);
        let names = state.tools.keys().filter(wanted);
        let mut tools: Vec<KnownTool> = names.filter_map(|name| state.known_tool(name)).collect();
        tools.sort_by_key(|known| std::cmp::Reverse(known.usage_count));
        tools.truncate(limit);
        Ok(tools)
    }

    fn exhaustions(&self, role: &Role) -> Result<Vec<Exhaustions>, StoreFault> {
        let state = self.state();
        let of_role = state.exhaustions.iter().filter(|((owner, ..), _)| owner == role);
        Ok(of_role.map(|(_, counted)| counted.clone()).take(MAX_EXHAUSTIONS).collect())
    }

    fn patterns(&self, role: &Role) -> Result<Vec<PatternEvent>, StoreFault> {
        Ok(self.state().patterns_of(role))
    }

    fn pattern_roles(&self, limit: usize, after: Option<&Role>) -> Result<Vec<Role>, StoreFault> {
        let state = self.state();
        let later = state.patterns.keys().filter(|role| after.is_none_or(|after| *role > after));
        Ok(later.take(limit).cloned().collect())
    }

    fn history(
        &self,
        owner: &Owner,
        limit: usize,
        before: Option<&str>,
    ) -> Result<Vec<Value>, StoreFault> {
        let state = self.state();
        let Some(held) = state.owners.get(&owner_key(owner)) else { return Ok(Vec::new()) };
        let end = match before {
            None => held.history.len(),
            Some(before) => held.history.iter().position(|(call, _)| call == before).unwrap_or(0),
        };
        let start = end.saturating_sub(limit);
        Ok(held.history.range(start..end).map(|(_, record)| record.clone()).collect())
    }

    fn content(
        &self,
        reference: &str,
        kept_since: Option<&str>,
    ) -> Result<Option<Value>, StoreFault> {
        let state = self.state();
        let in_time = |at: &str| kept_since.is_none_or(|since| at >= since);
        let found = state.contents.iter().find(|(at, c)| c.reference == reference && in_time(at));
        Ok(found.and_then(|(_, content)| serde_json::from_str(&content.payload).ok()))
    }
}

impl Catalog for MemoryStore {
    fn artifacts(
        &self,
        role: Option<&Role>,
        limit: usize,
    ) -> Result<Vec<KnownArtifact>, StoreFault> {
        let state = self.state();
        let wanted = |key: &ArtifactKey| role.is_none_or(|role| *role == key.role);
        let lines = state.artifacts.iter().filter(|(key, _)| wanted(key));
        Ok(lines.filter_map(|(_, line)| line.known()).take(limit).collect())
    }

    fn versions(&self, key: &ArtifactKey) -> Result<Vec<Version>, StoreFault> {
        Ok(self.line(key, |line| line.versions()))
    }

    fn decisions(&self, key: &ArtifactKey) -> Result<Vec<Decided>, StoreFault> {
        Ok(self.line(key, |line| line.decisions()))
    }

    fn corpus(&self, key: &ArtifactKey) -> Result<Vec<Case>, StoreFault> {
        Ok(self.line(key, |line| line.cases().to_vec()))
    }

    fn forget_case(&self, key: &ArtifactKey, case: &Case) -> Result<(), StoreFault> {
        self.line(key, |line| line.forget_case(case));
        Ok(())
    }

    fn conclude(
        &self,
        key: &ArtifactKey,
        incumbent: &Checksum,
        challenger: &Checksum,
        verdict: &Verdict,
    ) -> Result<bool, StoreFault> {
        Ok(self.line(key, |line| line.conclude(incumbent, challenger, verdict)))
    }

    fn rollback(
        &self,
        key: &ArtifactKey,
        to: Option<&Checksum>,
    ) -> Result<Option<Checksum>, StoreFault> {
        Ok(self.line(key, |line| line.rollback(to)))
    }

    fn pin(&self, key: &ArtifactKey, pinned: bool) -> Result<bool, StoreFault> {
        Ok(self.line(key, |line| {
            line.pin(pinned);
            true
        }))
    }
}

impl MemoryStore {
    /// What there is to say of one line; nothing, if there is none.
    fn line<T: Default>(&self, key: &ArtifactKey, say: impl FnOnce(&mut Line) -> T) -> T {
        self.state().artifacts.get_mut(key).map(say).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
