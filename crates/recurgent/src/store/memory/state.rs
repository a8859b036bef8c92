//! What the store in memory holds, and how a call changes it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use lifecycle::admission::Admission;
use lifecycle::artifact::{ArtifactChange, ArtifactKey};
use lifecycle::attempt::RetryLane;
use lifecycle::call::StoreFault;
use lifecycle::context::ContextChanges;
use lifecycle::contract::Contract;
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::guardrail::SiblingState;
use lifecycle::history::Content;
use lifecycle::pattern::{MAX_EVENTS, PatternEvent};
use lifecycle::request::{CallRequest, Method, Role};
use lifecycle::settlement::{Changes, Receipt};
use lifecycle::standing::state_key_agreement;
use lifecycle::tool::{KnownTool, Tool};
use serde_json::Value;

use super::super::ranking::Candidate;
use super::super::{
    Exhaustions, HISTORY_BATCH, MAX_CANDIDATES, MAX_CONTENTS, MAX_CONTENTS_BYTES, MAX_HISTORY,
    MAX_REASK_DISTANCE, MAX_SIBLINGS_KNOWN, MAX_TOOL_METHODS, Owner, merged, session_mark,
};
use super::versions::Line;
use crate::upkeep::time_before;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) artifacts: BTreeMap<ArtifactKey, Line>,
    pub(super) tools: BTreeMap<Role, Entry>,
    /// Calls that worked and that did not, of roles that are no tools yet.
    pub(super) early_calls: BTreeMap<Role, (u64, u64)>,
    pub(super) owners: BTreeMap<Key, Held>,
    /// With the time each was kept.
    pub(super) contents: VecDeque<(String, Content)>,
    pub(super) exhaustions: BTreeMap<(Role, Method, Language, String), Exhaustions>,
    /// Oldest first, with the mark of the session each belongs to.
    pub(super) patterns: BTreeMap<Role, VecDeque<(String, PatternEvent)>>,
    /// Counts uses of tools, to order them by the last.
    pub(super) clock: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
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
pub(super) struct Held {
    pub(super) context_version: u64,
    pub(super) context: BTreeMap<String, Value>,
    pub(super) manifests: BTreeMap<Language, DependencyManifest>,
    /// Call ids and records.
    pub(super) history: VecDeque<(String, Value)>,
}

impl State {
    /// Whether this is news to whoever else uses the owner's session.
    pub(super) fn outgrown(
        &self,
        owner: &Owner,
        language: Language,
        manifest: &DependencyManifest,
    ) -> bool {
        let held = self.owners.get(&owner_key(owner));
        let before = held.and_then(|held| held.manifests.get(&language));
        before.map_or(!manifest.is_empty(), |before| before != manifest)
    }

    pub(super) fn keep_manifest(
        &mut self,
        owner: &Owner,
        language: Language,
        manifest: &DependencyManifest,
    ) {
        if owner.session.is_some() {
            let held = self.owners.entry(owner_key(owner)).or_default();
            held.manifests.insert(language, manifest.clone());
        }
    }

    pub(super) fn set_context(
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

    pub(super) fn keep_tool(&mut self, tool: &Tool) {
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

    pub(super) fn count_call(&mut self, request: &CallRequest, ok: bool) {
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

    pub(super) fn settle(
        &mut self,
        owner: &Owner,
        request: &CallRequest,
        changes: &Changes,
    ) -> Receipt {
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

    pub(super) fn count_exhaustion(&mut self, request: &CallRequest, lane: RetryLane) {
        let (guardrail, outcome) = match lane {
            RetryLane::Guardrail => (1, 0),
            RetryLane::Outcome => (0, 1),
            RetryLane::Generation | RetryLane::Execution => return,
        };
        let contract_fingerprint = request.contract_fingerprint();
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

    pub(super) fn record(&mut self, owner: &Owner, request: &CallRequest, record: Value) -> u64 {
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
    pub(super) fn keep_content(&mut self, content: &Content) -> u64 {
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

    pub(super) fn observe(&mut self, owner: &Owner, request: &CallRequest, event: &PatternEvent) {
        let events = self.patterns.entry(request.role.clone()).or_default();
        events.push_back((session_mark(owner, request), event.clone()));
        if events.len() > MAX_EVENTS {
            events.pop_front();
        }
    }

    pub(super) fn patterns_of(&self, role: &Role) -> Vec<PatternEvent> {
        self.patterns.get(role).into_iter().flatten().map(|(_, event)| event.clone()).collect()
    }

    pub(super) fn earlier(&self, owner: &Owner, request: &CallRequest) -> Option<PatternEvent> {
        let mark = session_mark(owner, request);
        let latest = self.patterns.get(&request.role)?.iter().rev().take(MAX_REASK_DISTANCE);
        let mut of_root = latest.filter(|_| request.lineage.depth() == 0);
        let method = request.method.as_str();
        let found = of_root.find(|(of, event)| event.method_name == method && *of == mark);
        found.map(|(_, event)| event.clone())
    }

    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let mut entries: Vec<_> = self.tools.iter().collect();
        entries.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.last_used));
        let candidate = |(name, entry): (&Role, &Entry)| Candidate {
            name: name.to_string(),
            purpose: entry.contract.as_ref().and_then(|contract| contract.purpose.clone()),
            usage_count: entry.usage_count,
        };
        entries.into_iter().take(MAX_CANDIDATES).map(candidate).collect()
    }

    pub(super) fn siblings(&self, request: &CallRequest) -> Vec<SiblingState> {
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

    pub(super) fn known_tool(&self, name: &Role) -> Option<KnownTool> {
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

pub(super) fn owner_key(owner: &Owner) -> Key {
    let name = if owner.session.is_some() { String::new() } else { owner.instance.clone() };
    (owner.session.clone(), name, owner.role.clone())
}

fn key_of(request: &CallRequest) -> (Role, Method, Language) {
    (request.role.clone(), request.method.clone(), request.language)
}
