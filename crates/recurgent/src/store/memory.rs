//! The store's fake: the same behaviour, gone with the process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lifecycle::artifact::{Artifact, ArtifactChange, Verdict};
use lifecycle::attempt::RetryLane;
use lifecycle::call::{Memory, StoreFault};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::Contract;
use lifecycle::dialect::Language;
use lifecycle::history::Content;
use lifecycle::program::Checksum;
use lifecycle::prompt::{MAX_SIBLINGS, MAX_TOOLS, Surroundings};
use lifecycle::request::{CallRequest, Method, Role};
use lifecycle::settlement::{Changes, Kept};
use lifecycle::tool::{KnownTool, Tool};
use serde_json::Value;

use super::ranking::{self, Candidate};
use super::{
    Exhaustions, HISTORY_BATCH, MAX_CANDIDATES, MAX_CONTENTS, MAX_CONTENTS_BYTES, MAX_EXHAUSTIONS,
    MAX_HISTORY, MAX_RECALLED, MAX_TOOL_METHODS, MAX_VERSIONS, Owner, Store, fingerprint,
};

/// A store that keeps nothing beyond its own life.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Versions under one contract each, the current one last.
    artifacts: BTreeMap<(Role, Method, Language), Vec<VecDeque<Artifact>>>,
    tools: BTreeMap<Role, Entry>,
    owners: BTreeMap<Key, Held>,
    contents: VecDeque<Content>,
    exhaustions: BTreeMap<(Role, Method, Language, String), Exhaustions>,
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
    /// Call ids and records.
    history: VecDeque<(String, Value)>,
}

impl Store for MemoryStore {
    fn recall(&self, request: &CallRequest) -> Result<Memory, StoreFault> {
        let state = self.state();
        let contract = fingerprint(request);
        let stored = state.artifacts.get(&key_of(request)).into_iter().flatten();
        let mut artifacts: Vec<Artifact> =
            stored.filter_map(|versions| versions.back()).cloned().collect();
        artifacts.sort_by_key(|artifact| artifact.contract_fingerprint != contract);
        artifacts.truncate(MAX_RECALLED);
        Ok(Memory { artifacts })
    }

    fn surroundings(
        &self,
        owner: &Owner,
        request: &CallRequest,
    ) -> Result<Surroundings, StoreFault> {
        let state = self.state();
        let names = ranking::best(state.candidates(), request, MAX_TOOLS);
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
        })
    }

    fn commit(
        &self,
        owner: &Owner,
        request: &CallRequest,
        changes: &Changes,
    ) -> Result<(), StoreFault> {
        let mut state = self.state();
        if let Some(Kept { context, tools, manifest: _ }) = &changes.kept {
            state.set_context(owner, request.context.version(), context)?;
            for tool in tools {
                state.keep_tool(tool);
            }
        }
        state.count_call(request, changes.kept.is_some());
        for change in &changes.artifacts {
            match change {
                ArtifactChange::Admit(artifact) => state.admit(artifact),
                ArtifactChange::Score { checksum, verdict } => {
                    state.score(request, checksum, *verdict);
                }
            }
        }
        if let Some(lane) = changes.exhausted {
            state.count_exhaustion(request, lane);
        }
        state.record(owner, request, changes.record.clone());
        if let Some(content) = &changes.content {
            state.keep_content(content);
        }
        Ok(())
    }

    fn context(&self, owner: &Owner, held: Option<u64>) -> Result<Option<Context>, StoreFault> {
        let state = self.state();
        let kept = state.owners.get(&owner_key(owner)).filter(|_| owner.session.is_some());
        let context = kept.map_or_else(Context::default, |kept| {
            Context::restored(kept.context_version, kept.context.clone())
        });
        Ok((held != Some(context.version())).then_some(context))
    }

    fn remember(
        &self,
        owner: &Owner,
        base: u64,
        changes: &ContextChanges,
    ) -> Result<(), StoreFault> {
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

    fn content(&self, reference: &str) -> Result<Option<Value>, StoreFault> {
        let state = self.state();
        let found = state.contents.iter().find(|content| content.reference == reference);
        Ok(found.and_then(|content| serde_json::from_str(&content.payload).ok()))
    }
}

impl MemoryStore {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set_context(
        &mut self,
        owner: &Owner,
        base: u64,
        changes: &ContextChanges,
    ) -> Result<(), StoreFault> {
        let Some(session) = owner.session.as_ref().filter(|_| !changes.is_empty()) else {
            return Ok(());
        };
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
        let roles_methods = self.artifacts.keys().filter(|(role, ..)| *role == tool.name);
        let methods = || roles_methods.map(|(_, method, _)| method.to_string()).collect();
        let entry = self.tools.entry(tool.name.clone()).or_insert_with(|| Entry {
            contract: None,
            methods: methods(),
            usage_count: 0,
            success_count: 0,
            failure_count: 0,
            last_used: 0,
        });
        entry.usage_count += 1;
        entry.last_used = self.clock;
        if tool.contract.is_some() {
            entry.contract.clone_from(&tool.contract);
        }
    }

    fn count_call(&mut self, request: &CallRequest, ok: bool) {
        let Some(entry) = self.tools.get_mut(&request.role) else { return };
        self.clock += 1;
        entry.last_used = self.clock;
        if ok {
            entry.success_count += 1;
        } else {
            entry.failure_count += 1;
        }
        entry.methods.insert(request.method.to_string());
    }

    fn admit(&mut self, artifact: &Artifact) {
        let key = (artifact.role.clone(), artifact.method.clone(), artifact.language);
        let stored = self.artifacts.entry(key).or_default();
        let mut admitted = artifact.clone();
        let same_contract = |versions: &&mut VecDeque<Artifact>| {
            versions
                .back()
                .is_some_and(|last| last.contract_fingerprint == artifact.contract_fingerprint)
        };
        let Some(versions) = stored.iter_mut().find(same_contract) else {
            stored.push(VecDeque::from([admitted]));
            return;
        };
        let same_text = versions.iter().position(|version| version.checksum == artifact.checksum);
        let earlier = same_text.and_then(|index| versions.remove(index));
        admitted.successes += earlier.map_or(0, |earlier| earlier.successes);
        versions.push_back(admitted);
        if versions.len() > MAX_VERSIONS {
            versions.pop_front();
        }
    }

    fn score(&mut self, request: &CallRequest, checksum: &Checksum, verdict: Verdict) {
        let contract = fingerprint(request);
        let mut stored = self.artifacts.get_mut(&key_of(request)).into_iter().flatten().flatten();
        let ran = |artifact: &&mut Artifact| {
            artifact.checksum == *checksum && artifact.contract_fingerprint == contract
        };
        let Some(artifact) = stored.find(ran) else { return };
        match verdict {
            Verdict::Succeeded => artifact.successes += 1,
            Verdict::Failed => artifact.failures += 1,
            Verdict::Answered | Verdict::Excused => {}
        }
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

    fn record(&mut self, owner: &Owner, request: &CallRequest, record: Value) {
        let history = &mut self.owners.entry(owner_key(owner)).or_default().history;
        history.push_back((request.id.0.clone(), record));
        if history.len() as u64 > MAX_HISTORY + HISTORY_BATCH {
            history.drain(
                ..history.len().saturating_sub(usize::try_from(MAX_HISTORY).unwrap_or(usize::MAX)),
            );
        }
    }

    fn keep_content(&mut self, content: &Content) {
        self.contents.retain(|kept| kept.reference != content.reference);
        self.contents.push_back(content.clone());
        let size = |kept: &Content| kept.payload.len() as u64;
        let mut bytes: u64 = self.contents.iter().map(size).sum();
        while self.contents.len() as u64 > MAX_CONTENTS || bytes > MAX_CONTENTS_BYTES {
            bytes -= self.contents.pop_front().as_ref().map_or(bytes, size);
        }
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

    fn siblings(&self, request: &CallRequest) -> Vec<String> {
        let methods: BTreeSet<&Method> = self
            .artifacts
            .keys()
            .filter(|(role, method, _)| *role == request.role && *method != request.method)
            .map(|(_, method, _)| method)
            .collect();
        methods.into_iter().take(MAX_SIBLINGS).map(Method::to_string).collect()
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
