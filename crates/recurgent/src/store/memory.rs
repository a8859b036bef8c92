//! The store's fake: the same behaviour, gone with the process.

mod lines;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lifecycle::admission::{Admission, Case};
use lifecycle::artifact::{Artifact, ArtifactChange, ArtifactKey};
use lifecycle::attempt::RetryLane;
use lifecycle::call::{Memory, StoreFault};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::Contract;
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::guardrail::SiblingState;
use lifecycle::history::Content;
use lifecycle::pattern::{MAX_EVENTS, PatternEvent, repeated};
use lifecycle::program::Checksum;
use lifecycle::prompt::{MAX_TOOLS, Surroundings};
use lifecycle::request::{CallRequest, Method, Role};
use lifecycle::settlement::{Changes, Kept, Receipt};
use lifecycle::standing::state_key_agreement;
use lifecycle::tool::{KnownTool, Tool};
use serde_json::Value;

use super::catalog::{Catalog, Decided, KnownArtifact, Ruling, Version};
use super::ranking::{self, Candidate};
use super::{
    Exhaustions, HISTORY_BATCH, MAX_CANDIDATES, MAX_CONTENTS, MAX_CONTENTS_BYTES, MAX_EXHAUSTIONS,
    MAX_HISTORY, MAX_REASK_DISTANCE, MAX_RECALLED, MAX_SIBLINGS_KNOWN, MAX_TOOL_METHODS, Owner,
    Store, fingerprint, merged, session_mark,
};
use crate::upkeep::time_before;
use lines::Line;

/// A store that keeps nothing beyond its own life.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    artifacts: BTreeMap<ArtifactKey, Line>,
    tools: BTreeMap<Role, Entry>,
    /// Calls that worked and that did not, of roles that are no tools yet.
    early_calls: BTreeMap<Role, (u64, u64)>,
    owners: BTreeMap<Key, Held>,
    /// With the time each was kept.
    contents: VecDeque<(String, Content)>,
    exhaustions: BTreeMap<(Role, Method, Language, String), Exhaustions>,
    /// Oldest first.
    /// With the mark of the session each belongs to.
    patterns: BTreeMap<Role, VecDeque<(String, PatternEvent)>>,
    /// Counts uses of tools, to order them by the last.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    contract: Option<Contract>,
    methods: BTreeSet<String>,
    usage_count: u64,
    success_count: u64,
    failure_count: u64,
    last_used: u64,
}

/// By session if there is one, by the agent object if not.
type Key = (Option<String>, String, Role);

#[derive(Debug, Default)]
struct Held {
    context_version: u64,
    context: BTreeMap<String, Value>,
    manifests: BTreeMap<Language, DependencyManifest>,
    /// Call ids and records.
    history: VecDeque<(String, Value)>,
}

impl Store for MemoryStore {
    fn recall(&self, owner: &Owner, request: &CallRequest) -> Result<Memory, StoreFault> {
        let state = self.state();
        let contract = fingerprint(request);
        let of_method = |key: &ArtifactKey| {
            key.role == request.role
                && key.method == request.method
                && key.language == request.language
        };
        let stored = state.artifacts.iter().filter(|(key, _)| of_method(key));
        let mut artifacts: Vec<Artifact> = stored.filter_map(|(_, line)| line.recalled()).collect();
        artifacts.sort_by_key(|artifact| artifact.contract_fingerprint != contract);
        artifacts.truncate(MAX_RECALLED);
        Ok(Memory { artifacts, earlier: state.earlier(owner, request) })
    }

    fn surroundings(
        &self,
        owner: &Owner,
        request: &CallRequest,
    ) -> Result<Surroundings, StoreFault> {
        let state = self.state();
        let candidates = state.candidates();
        let known = candidates.iter().map(|c| (c.name.as_str(), c.purpose.as_deref()));
        let patterns = repeated(&state.patterns_of(&request.role), request, &known);
        let names = ranking::best(candidates, request, MAX_TOOLS);
        Ok(Surroundings {
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
        ruling: &Ruling,
    ) -> Result<bool, StoreFault> {
        Ok(self.line(key, |line| line.conclude(incumbent, challenger, ruling)))
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

impl State {
    /// Whether this is news to whoever else uses the owner's session.
    fn outgrown(&self, owner: &Owner, language: Language, manifest: &DependencyManifest) -> bool {
        let held = self.owners.get(&owner_key(owner));
        let before = held.and_then(|held| held.manifests.get(&language));
        before.map_or(!manifest.is_empty(), |before| before != manifest)
    }

    fn keep_manifest(&mut self, owner: &Owner, language: Language, manifest: &DependencyManifest) {
        if owner.session.is_some() {
            let held = self.owners.entry(owner_key(owner)).or_default();
            held.manifests.insert(language, manifest.clone());
        }
    }

    fn set_context(
        &mut self,
        owner: &Owner,
        base: u64,
        changes: &ContextChanges,
    ) -> Result<(), StoreFault> {
        let Some(session) = &owner.session else { return Ok(()) };
        let held = self.owners.entry(owner_key(owner)).or_default();
        if held.context_version != base {
            return Err(StoreFault::Conflict { session: session.clone() });
        }
        held.context_version += 1;
        for key in &changes.unset {
            held.context.remove(key);
        }
        held.context.extend(changes.set.clone());
        Ok(())
    }

    fn keep_tool(&mut self, tool: &Tool) {
        self.clock += 1;
        let of_role = self.artifacts.keys().filter(|key| key.role == tool.name);
        let methods = || of_role.map(|key| key.method.to_string()).collect();
        // Its first calls are committed before the call that forged it.
        let (success_count, failure_count) =
            self.early_calls.remove(&tool.name).unwrap_or_default();
        let entry = self.tools.entry(tool.name.clone()).or_insert_with(|| Entry {
            contract: None,
            methods: methods(),
            usage_count: 0,
            success_count,
            failure_count,
            last_used: 0,
        });
        entry.usage_count += 1;
        entry.last_used = self.clock;
        if tool.contract.is_some() {
            entry.contract.clone_from(&tool.contract);
        }
    }

    fn count_call(&mut self, request: &CallRequest, ok: bool) {
        let Some(entry) = self.tools.get_mut(&request.role) else {
            if request.lineage.depth() > 0 {
                let early = self.early_calls.entry(request.role.clone()).or_default();
                *(if ok { &mut early.0 } else { &mut early.1 }) += 1;
            }
            return;
        };
        self.clock += 1;
        entry.last_used = self.clock;
        if ok {
            entry.success_count += 1;
        } else {
            entry.failure_count += 1;
        }
        entry.methods.insert(request.method.to_string());
    }

    fn settle(&mut self, owner: &Owner, request: &CallRequest, changes: &Changes) -> Receipt {
        let session = session_mark(owner, request);
        let key = ArtifactKey::of(request);
        let of_role = self.artifacts.iter().filter(|(key, _)| key.role == request.role);
        let agreement = state_key_agreement(of_role.filter_map(|(_, line)| line.state_keys()));
        let mut receipt = Receipt::default();
        for change in &changes.artifacts {
            match change {
                ArtifactChange::Admit(generation) => {
                    let line = self.artifacts.entry(generation.artifact.key()).or_default();
                    let made = line.admit(generation, &session);
                    receipt = Receipt { decision: receipt.decision.or(made.decision), ..made };
                }
                ArtifactChange::Score { checksum, verdict } => {
                    let line = self.artifacts.get_mut(&key);
                    receipt.decision =
                        line.and_then(|line| line.score(checksum, *verdict, &session, agreement));
                }
                ArtifactChange::Mended { checksum } => {
                    if let Some(line) = self.artifacts.get_mut(&key) {
                        line.count_repair(checksum);
                    }
                }
            }
        }
        let is_current = receipt.admission.is_none_or(|made| made == Admission::TakesOver);
        if let (true, Some(case), Some(line)) =
            (is_current, &changes.case, self.artifacts.get_mut(&key))
        {
            line.record_case(case);
        }
        receipt
    }

    fn count_exhaustion(&mut self, request: &CallRequest, lane: RetryLane) {
        let (guardrail, outcome) = match lane {
            RetryLane::Guardrail => (1, 0),
            RetryLane::Outcome => (0, 1),
            RetryLane::Generation | RetryLane::Execution => return,
        };
        let contract_fingerprint = fingerprint(request);
        let (role, method, language) = key_of(request);
        let key = (role, method.clone(), language, contract_fingerprint.to_string());
        let counted = self.exhaustions.entry(key).or_insert(Exhaustions {
            method,
            language,
            contract_fingerprint,
            guardrail: 0,
            outcome: 0,
        });
        counted.guardrail += guardrail;
        counted.outcome += outcome;
    }

    fn record(&mut self, owner: &Owner, request: &CallRequest, record: Value) -> u64 {
        let history = &mut self.owners.entry(owner_key(owner)).or_default().history;
        history.push_back((request.id.0.clone(), record));
        if history.len() as u64 > MAX_HISTORY + HISTORY_BATCH {
            history.drain(
                ..history.len().saturating_sub(usize::try_from(MAX_HISTORY).unwrap_or(usize::MAX)),
            );
        }
        history.len() as u64
    }

    /// Gives how many others had to go.
    fn keep_content(&mut self, content: &Content) -> u64 {
        self.contents.retain(|(_, kept)| kept.reference != content.reference);
        self.contents.push_back((time_before(Duration::ZERO), content.clone()));
        let size = |(_, kept): &(String, Content)| kept.payload.len() as u64;
        let mut dropped = 0;
        let mut bytes: u64 = self.contents.iter().map(size).sum();
        while self.contents.len() as u64 > MAX_CONTENTS || bytes > MAX_CONTENTS_BYTES {
            bytes -= self.contents.pop_front().as_ref().map_or(bytes, size);
            dropped += 1;
        }
        dropped
    }

    fn observe(&mut self, owner: &Owner, request: &CallRequest, event: &PatternEvent) {
        let events = self.patterns.entry(request.role.clone()).or_default();
        events.push_back((session_mark(owner, request), event.clone()));
        if events.len() > MAX_EVENTS {
            events.pop_front();
        }
    }

    fn patterns_of(&self, role: &Role) -> Vec<PatternEvent> {
        self.patterns.get(role).into_iter().flatten().map(|(_, event)| event.clone()).collect()
    }

    fn earlier(&self, owner: &Owner, request: &CallRequest) -> Option<PatternEvent> {
        let mark = session_mark(owner, request);
        let latest = self.patterns.get(&request.role)?.iter().rev().take(MAX_REASK_DISTANCE);
        let mut of_root = latest.filter(|_| request.lineage.depth() == 0);
        let method = request.method.as_str();
        let found = of_root.find(|(of, event)| event.method_name == method && *of == mark);
        found.map(|(_, event)| event.clone())
    }

    fn candidates(&self) -> Vec<Candidate> {
        let mut entries: Vec<_> = self.tools.iter().collect();
        entries.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.last_used));
        let candidate = |(name, entry): (&Role, &Entry)| Candidate {
            name: name.to_string(),
            purpose: entry.contract.as_ref().and_then(|contract| contract.purpose.clone()),
            usage_count: entry.usage_count,
        };
        entries.into_iter().take(MAX_CANDIDATES).map(candidate).collect()
    }

    fn siblings(&self, request: &CallRequest) -> Vec<SiblingState> {
        let others = self
            .artifacts
            .iter()
            .filter(|(key, _)| key.role == request.role && key.method != request.method);
        let states = others.filter_map(|(key, line)| {
            let keys = line.state_keys()?.clone();
            Some(SiblingState {
                method: key.method.to_string(),
                reads: keys.reads,
                writes: keys.writes,
            })
        });
        merged(states.take(MAX_SIBLINGS_KNOWN).collect())
    }

    fn known_tool(&self, name: &Role) -> Option<KnownTool> {
        self.tools.get(name).map(|entry| KnownTool {
            tool: Tool { name: name.clone(), contract: entry.contract.clone() },
            methods: entry.methods.iter().take(MAX_TOOL_METHODS).cloned().collect(),
            usage_count: entry.usage_count,
            success_count: entry.success_count,
            failure_count: entry.failure_count,
            exhaustion_count: self
                .exhaustions
                .iter()
                .filter(|((role, ..), _)| role == name)
                .map(|(_, counted)| counted.guardrail + counted.outcome)
                .sum(),
        })
    }
}

fn owner_key(owner: &Owner) -> Key {
    let name = if owner.session.is_some() { String::new() } else { owner.instance.clone() };
    (owner.session.clone(), name, owner.role.clone())
}

fn key_of(request: &CallRequest) -> (Role, Method, Language) {
    (request.role.clone(), request.method.clone(), request.language)
}
