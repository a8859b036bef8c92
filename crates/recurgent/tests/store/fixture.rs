//! The stores that are tested, and what they are given.

use std::path::{Path, PathBuf};

use lifecycle::admission::{Case, Inputs, Observed};
use lifecycle::artifact::{
    Artifact, ArtifactChange, ArtifactKey, Author, Cacheability, Generation, RUNTIME_VERSION,
    RunVerdict, TrackRecord, Trigger,
};
use lifecycle::call::StoreFault;
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::history::Content;
use lifecycle::pattern::PatternEvent;
use lifecycle::program::Checksum;
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use lifecycle::settlement::{Changes, Kept, Receipt};
use lifecycle::standing::{Standing, StateKeys, Window};
use lifecycle::tool::{Tool, ToolCount};
use recurgent::store::catalog::StoredVersion;
use recurgent::store::sqlite::SqliteStore;
use recurgent::store::{Owner, Store};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Checks one behaviour on every store.
pub(crate) fn check(behaviour: impl Fn(&dyn Store)) {
    behaviour(&SqliteStore::in_memory().unwrap());
    let (_folder, path) = place();
    behaviour(&SqliteStore::open(&path).unwrap());
}

/// A folder of its own, and a path in it whose parent does not exist yet.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/store.db");
    (folder, path)
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

pub(crate) fn unavailable(path: &Path) -> String {
    match SqliteStore::open(path) {
        Err(StoreFault::Unavailable(message)) => message,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn integrity(path: &Path) -> String {
    let connection = Connection::open(path).unwrap();
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

pub(crate) fn commit(store: &dyn Store, id: &str, changes: &CommittedCall) -> Receipt {
    store.commit(&alone("a1"), &call(id), &changes.0).unwrap()
}

/// The text, successes and failures of what would run now.
pub(crate) fn recalled(store: &dyn Store) -> (String, u32, u32) {
    let [artifact] = &store.recall(&alone("a1"), &call("c")).unwrap().artifacts[..] else {
        panic!("not one")
    };
    (artifact.code.clone(), artifact.successes, artifact.failures)
}

pub(crate) fn calls(
    store: &dyn Store,
    owner: &Owner,
    limit: usize,
    before: Option<&str>,
) -> Vec<String> {
    let records = store.history(owner, limit, before).unwrap();
    records.iter().map(|record| record["call_id"].as_str().unwrap().to_owned()).collect()
}

/// Changes under construction.
pub(crate) struct CommittedCall(pub(crate) Changes);

pub(crate) fn ok(id: &str) -> CommittedCall {
    let record = json!({"call_id": id});
    CommittedCall(Changes {
        kept: Some(Kept::default()),
        artifacts: Vec::new(),
        case: None,
        shape: None,
        record,
        contents: Vec::new(),
        contents_kept_since: None,
        exhausted: None,
        event: PatternEvent::default(),
        counted: ToolCount::Success,
        stored_under: None,
        answers: Vec::new(),
        answers_bytes: 0,
    })
}

pub(crate) fn failed(id: &str) -> CommittedCall {
    CommittedCall(Changes { kept: None, counted: ToolCount::Failure, ..ok(id).0 })
}

impl CommittedCall {
    pub(crate) fn admits(self, artifact: Artifact) -> Self {
        self.generates(generation(artifact))
    }

    pub(crate) fn generates(mut self, generation: Generation) -> Self {
        self.0.artifacts.push(ArtifactChange::Admit(Box::new(generation)));
        self
    }

    pub(crate) fn writes_repair_of(mut self, code: &str) -> Self {
        self.0.artifacts.push(ArtifactChange::RepairWritten { checksum: Checksum::of(code) });
        self
    }

    pub(crate) fn accepts(mut self, case: Case) -> Self {
        self.0.case = Some(case);
        self
    }

    pub(crate) fn scores(mut self, code: &str, verdict: RunVerdict) -> Self {
        self.0.artifacts.push(ArtifactChange::Score { checksum: Checksum::of(code), verdict });
        self
    }

    pub(crate) fn forges(mut self, name: &str, contract: Option<Contract>) -> Self {
        self.0.kept.as_mut().unwrap().tools.push(Tool { name: role(name), contract });
        self
    }

    pub(crate) fn changes(mut self, changes: ContextChanges) -> Self {
        self.0.kept.as_mut().unwrap().context = changes;
        self
    }

    pub(crate) fn observes(mut self, call: &str, trace: &str, labels: &[&str]) -> Self {
        self.0.event = PatternEvent {
            role: "calculator".into(),
            method_name: "add".into(),
            call_id: call.into(),
            trace_id: trace.into(),
            program_source: Some("generated".into()),
            capability_patterns: labels.iter().map(|label| (*label).to_owned()).collect(),
            ..PatternEvent::default()
        };
        self
    }

    pub(crate) fn holds(mut self, names: &[&str]) -> Self {
        self.0.kept.as_mut().unwrap().manifest = packages(names);
        self
    }

    pub(crate) fn keeps(mut self, reference: &str, value: &Value) -> Self {
        let payload = value.to_string();
        self.0.contents.push(Content {
            reference: reference.into(),
            kind: "any",
            payload,
            digest: String::new(),
        });
        self
    }
}

pub(crate) fn sets(key: &str, value: Value) -> ContextChanges {
    ContextChanges { set: [(key.to_owned(), value)].into_iter().collect(), unset: Vec::new() }
}

pub(crate) fn unsets(key: &str) -> ContextChanges {
    ContextChanges { unset: vec![key.to_owned()], ..ContextChanges::default() }
}

pub(crate) fn packages(names: &[&str]) -> DependencyManifest {
    let declared: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    DependencyManifest::parse(Language::Python, Some(&json!(declared))).unwrap()
}

pub(crate) fn role(name: &str) -> Role {
    Role::parse(name).unwrap()
}

pub(crate) fn alone(instance: &str) -> Owner {
    Owner { instance: instance.into(), session: None, role: role("calculator") }
}

pub(crate) fn in_session(name: &str) -> Owner {
    Owner { session: Some(name.into()), ..alone("a1") }
}

pub(crate) fn no_contract() -> Contract {
    Contract {
        purpose: None,
        deliverable: None,
        acceptance: None,
        failure_policy: None,
        intent_signature: None,
        examples: Vec::new(),
        notes: Vec::new(),
    }
}

pub(crate) fn fingerprint(text: &str) -> Fingerprint {
    serde_json::from_value(json!(text)).unwrap()
}

pub(crate) fn program(code: &str) -> Artifact {
    Artifact {
        role: role("calculator"),
        method: Method::parse("add").unwrap(),
        language: Language::Python,
        contract_fingerprint: Fingerprint::none(),
        runtime_version: RUNTIME_VERSION.into(),
        code: code.into(),
        checksum: Checksum::of(code),
        manifest: DependencyManifest::default(),
        cacheability: Cacheability::StableMethodDefault,
        successes: 1,
        failures: 0,
        repairs: 0,
        track_record: TrackRecord {
            standing: Standing::Candidate,
            recent: Window::stored("s".into()),
            ..TrackRecord::default()
        },
    }
}

/// A pure program, written because there was none.
pub(crate) fn generation(artifact: Artifact) -> Generation {
    Generation {
        artifact,
        author: Author::Model,
        trigger: Trigger::Fresh,
        parent: None,
        failure: None,
        state_keys: StateKeys::default(),
        pure: true,
        agreement: None,
        outranks_recorded: false,
    }
}

/// A call with one argument that gave a value.
pub(crate) fn case(argument: u32, digest: &str) -> Case {
    Case {
        inputs: Inputs {
            args: vec![json!(argument)],
            kwargs: serde_json::Map::new(),
            context: serde_json::Map::new(),
        },
        observed: Observed { verdict: RunVerdict::Succeeded, digest: digest.to_owned() },
    }
}

pub(crate) fn key() -> ArtifactKey {
    ArtifactKey::of(&call("c"))
}

/// The programs that are kept, newest first, and which of them runs.
pub(crate) fn line(store: &dyn Store) -> Vec<(String, Standing, bool)> {
    let shown = |version: &StoredVersion| {
        let StoredVersion { artifact, is_current, .. } = version;
        (artifact.code.clone(), artifact.track_record.standing, *is_current)
    };
    store.versions(&key()).unwrap().iter().map(shown).collect()
}

pub(crate) fn call(id: &str) -> CallRequest {
    CallRequest {
        id: CallId(id.into()),
        lineage: Lineage::Root { trace: TraceId::parse("t").unwrap() },
        role: role("calculator"),
        method: Method::parse("add").unwrap(),
        arguments: Arguments::default(),
        contract: None,
        language: Language::Python,
        context: Context::default(),
        manifest: None,
        allowance: Allowance::default(),
    }
}

pub(crate) fn method(name: &str) -> CallRequest {
    CallRequest { method: Method::parse(name).unwrap(), ..call("c") }
}
