//! What becomes of the packages a program declares: what is prepared, refused, reported, kept and logged.
#![expect(clippy::panic, clippy::unwrap_used, reason = "test")]

use std::time::Duration;

use lifecycle::artifact::{
    Artifact, ArtifactChange, Cacheability, RUNTIME_VERSION, RunVerdict, TrackRecord,
};
use lifecycle::call::{Commit, Generate, Memory, Policy, Prepare, Step, begin};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::{ContractSource, Fingerprint};
use lifecycle::dependency::{DependencyManifest, DependencyPolicy, ManifestMode, PackageName};
use lifecycle::dialect::Language;
use lifecycle::draft::{Draft, Usage};
use lifecycle::execution::{
    Environment, EnvironmentFault, FailedPreparation, Output, Report, ReportEnding, ResultFrom,
    WorkerFault, WorkerTrace,
};
use lifecycle::inference::Inferred;
use lifecycle::log_entry::{self, AlreadyLogged, EntryDetails};
use lifecycle::outcome::{Failure, FailureKind};
use lifecycle::program::Checksum;
use lifecycle::prompt::{PromptContext, PromptForm};
use lifecycle::provenance::Observation;
use lifecycle::redact::{NamedSecrets, redacted};
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use lifecycle::settlement::{Receipt, Timing};
use serde_json::{Map, Value, json};

const CODE: &str = "from slugify import slugify\nresult = slugify(args[0])";

/// A call of an agent whose environment holds `held`.
struct Scene {
    held: Option<Value>,
    policy: Policy,
    memory: Memory,
}

impl Scene {
    fn new() -> Self {
        Self { held: None, policy: Policy::default(), memory: Memory::default() }
    }

    fn holding(held: Value) -> Self {
        Self { held: Some(held), ..Self::new() }
    }

    fn begun(self) -> Step {
        let request = CallRequest {
            id: CallId("c".into()),
            lineage: Lineage::Root { trace: TraceId::parse("t").unwrap() },
            role: Role::parse("namer").unwrap(),
            method: Method::parse("slug").unwrap(),
            arguments: Arguments { args: vec![json!("A title")], kwargs: Map::new() },
            contract: None,
            language: Language::Python,
            context: Context::default(),
            manifest: self.held.as_ref().map(manifest),
            allowance: Allowance::default(),
        };
        let Step::Recall(recall) = begin(request, self.policy) else {
            panic!("recall comes first")
        };
        recall.recalled(Ok(self.memory))
    }

    /// The model answers with `CODE` and these packages.
    fn declaring(self, declared: &Value) -> Step {
        draft(self.begun(), CODE, declared)
    }
}

fn manifest(declared: &Value) -> DependencyManifest {
    DependencyManifest::parse(Language::Python, Some(declared)).unwrap()
}

fn slugify(version: &str) -> Value {
    json!([{"name": "python-slugify", "version": version}])
}

fn draft(step: Step, code: &str, declared: &Value) -> Step {
    let payload = json!({"code": code, "dependencies": declared});
    generate(step).generated(Ok(Draft { payload, usage: Usage::default() }), Duration::ZERO)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "anything else fails the test")]
fn generate(step: Step) -> Box<Generate> {
    match step {
        Step::Generate(generate) => generate,
        other => panic!("expected a model to be asked, got {other:?}"),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "anything else fails the test")]
fn prepare(step: Step) -> Box<Prepare> {
    match step {
        Step::Prepare(prepare) => prepare,
        other => panic!("expected a preparation, got {other:?}"),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "anything else fails the test")]
fn commit(step: Step) -> Box<Commit> {
    match step {
        Step::Commit(commit) => commit,
        other => panic!("expected the end, got {other:?}"),
    }
}

fn feedback(step: Step) -> (Value, Box<Generate>) {
    let mut generate = generate(step);
    let user = generate.prompt(&PromptContext::default(), PromptForm::Payload).user;
    let line = user.lines().find_map(|line| line.strip_prefix("feedback: ")).unwrap();
    (serde_json::from_str(line).unwrap(), generate)
}

fn environment(manifest: &DependencyManifest, provides: &[&str]) -> Environment {
    Environment {
        id: Some("e1".into()),
        manifest: manifest.clone(),
        root: Some("/cache/e1".into()),
        cache_hit: true,
        prepare_time: Duration::from_micros(1250),
        provides: Some(provides.iter().map(|&name| name.to_owned()).collect()),
        ..Environment::bare()
    }
}

/// Prepares what is asked for, providing `slugify`, and runs it to this end.
fn run(step: Step, ending: ReportEnding) -> Step {
    let prepare = prepare(step);
    let environment = environment(prepare.manifest(), &["slugify"]);
    let Step::Execute(execute) = prepare.prepared(Ok(environment)) else { panic!("it may run") };
    let report = Report {
        ending,
        changes: ContextChanges::default(),
        forged: vec![],
        violations: vec![],
        failed_call: None,
        inferred: Inferred::default(),
        output: Output::default(),
        observed: Observation::default(),
        worker: WorkerTrace::default(),
        result_from: ResultFrom::default(),
    };
    execute.executed(Ok(report), Duration::ZERO)
}

fn answered() -> ReportEnding {
    ReportEnding::Value(json!("a-title"))
}

fn kept(step: Step) -> Option<DependencyManifest> {
    commit(step).committed(Ok(Receipt::default())).into_parts().1.map(|kept| kept.manifest)
}

#[test]
fn what_is_prepared_is_what_is_held_and_what_is_declared() {
    let plain = "result = args[0]";
    let both = "import numpy, slugify\nresult = slugify.slugify(args[0])";
    for (held, code, declared, expected) in [
        (None, plain, json!([]), json!([])),
        (None, CODE, slugify("8.0"), slugify("==8")),
        (Some(slugify(">=8")), plain, json!([]), slugify(">=8")),
        (
            Some(slugify(">=8")),
            both,
            json!([{"name": "Numpy"}, {"name": "python_slugify"}]),
            json!([{"name": "numpy", "version": ">=0"}, {"name": "python-slugify", "version": ">=8"}]),
        ),
    ] {
        let step = draft(Scene { held, ..Scene::new() }.begun(), code, &declared);
        assert_eq!(prepare(step).manifest().to_json(), expected, "{declared}");
    }
}

#[test]
fn nothing_is_prepared_for_what_is_refused() {
    let strict = || Policy { manifest_mode: ManifestMode::Strict, ..Policy::default() };
    let allowing = |name: &str| Policy {
        dependencies: DependencyPolicy {
            allowed: PackageName::parse(Language::Python, name).into_iter().collect(),
            ..DependencyPolicy::default()
        },
        ..Policy::default()
    };
    let any = || json!([{"name": "json"}, {"name": "python-slugify"}]);
    for (held, policy, declared, code, reported) in [
        (
            None,
            Policy::default(),
            slugify("newest"),
            "invalid_dependency_manifest",
            json!({"field": "dependencies[0].version", "dependency_name": "python-slugify",
                   "required_correction": "write it like `>=2.5,<3` or `==2.5.*`, or leave `version` out"}),
        ),
        (
            Some(slugify(">=8")),
            Policy::default(),
            slugify("<8"),
            "dependency_manifest_incompatible",
            json!({"field": "dependencies[0].version", "dependency_name": "python-slugify",
                   "held": ">=8", "declared": "<8",
                   "required_correction": "Declare `python-slugify` as `>=8`, or leave its `version` out."}),
        ),
        (
            Some(json!([])),
            strict(),
            any(),
            "dependency_manifest_changed",
            json!({"field": "dependencies[1].name", "dependency_name": "python-slugify", "held": "nothing",
                   "required_correction": "Declare nothing, or exactly: nothing. Do without `python-slugify`."}),
        ),
        (
            None,
            allowing("numpy"),
            any(),
            "dependency_policy_violation",
            json!({"field": "dependencies[1].name", "dependency_name": "python-slugify",
                   "policy": "allowed_packages", "allowed": ["numpy"],
                   "required_correction": "use the standard library, or only these packages: numpy"}),
        ),
    ] {
        let scene = Scene { held, policy, ..Scene::new() };
        let (block, again) = feedback(scene.declaring(&declared));
        assert_eq!(block["error_type"], code);
        assert_eq!(block["remaining_guardrail_budget"], 0, "{code} uses the guardrail lane");
        for (key, value) in reported.as_object().unwrap() {
            assert_eq!(&block[key], value, "{code}: {key}");
        }
        let other = draft(Step::Generate(again), "import slugify\nresult = args[0]", &declared);
        let commit = commit(other);
        let failure = commit.outcome().failure().unwrap();
        assert_eq!(failure.kind.code(), code, "its own type when the lane is spent");
        assert_eq!(failure.metadata["specialist_role"], "namer");
        assert_eq!(failure.metadata["method_name"], "slug");
        assert_eq!(failure.metadata["dependency_name"], "python-slugify");
        assert_eq!(failure.metadata["guardrail_recovery_attempts"], 1);
    }
}

type Make = fn(Box<Failure>) -> EnvironmentFault;

#[test]
fn each_fault_of_an_environment_has_its_lane_and_type() {
    let failure = || {
        let failure = Failure::new(FailureKind::Execution, "the tool said no");
        Box::new(failure.with("env_id", "e1").with("stage", "lock").with("source", "https://x"))
    };
    let cases: [(Make, &str, Option<&str>); 6] = [
        (
            EnvironmentFault::Refused,
            "dependency_policy_violation",
            Some("remaining_guardrail_budget"),
        ),
        (
            EnvironmentFault::Unresolvable,
            "dependency_resolution_failed",
            Some("remaining_execution_budget"),
        ),
        (
            EnvironmentFault::InstallFailed,
            "dependency_install_failed",
            Some("remaining_execution_budget"),
        ),
        (
            EnvironmentFault::ActivationFailed,
            "dependency_activation_failed",
            Some("remaining_execution_budget"),
        ),
        (EnvironmentFault::SourceUnreachable, "dependency_install_failed", None),
        (EnvironmentFault::Preparing, "environment_preparing", None),
    ];
    for (fault, code, lane) in cases {
        let prepared = prepare(Scene::new().declaring(&slugify(">=8")));
        let step = prepared.prepared(Err(fault(failure()).into()));
        if let Some(lane) = lane {
            let (block, _) = feedback(step);
            assert_eq!((&block["error_type"], &block["stage"]), (&json!(code), &json!("lock")));
            assert_eq!(block[lane], 0, "{code}: {block}");
        } else {
            let commit = commit(step);
            let failure = commit.outcome().failure().unwrap();
            assert_eq!(failure.kind.code(), code);
            assert!(failure.kind.retriable());
            for (key, value) in [
                ("specialist_role", "namer"),
                ("method_name", "slug"),
                ("env_id", "e1"),
                ("source", "https://x"),
            ] {
                assert_eq!(failure.metadata[key], value, "{code}");
            }
        }
    }
}

#[test]
fn a_worker_that_cannot_activate_its_environment_is_reported_as_such() {
    let prepare = prepare(Scene::new().declaring(&slugify(">=8")));
    let environment = environment(prepare.manifest(), &["slugify"]);
    let Step::Execute(execute) = prepare.prepared(Ok(environment)) else { panic!("it may run") };
    let failure = Failure::new(FailureKind::Execution, "cannot load such file")
        .with("dependency_name", "python-slugify");
    let fault = WorkerFault::ActivationFailed(Box::new(failure));
    let (block, _) = feedback(execute.executed(Err(fault.into()), Duration::ZERO));
    assert_eq!(block["error_type"], "dependency_activation_failed");
    assert_eq!(block["dependency_name"], "python-slugify");
}

#[test]
fn imports_are_held_against_what_the_environment_provides() {
    for (code, provides, barred) in [
        (CODE, vec!["slugify", "text_unidecode"], None),
        (CODE, vec!["text_unidecode"], Some("`slugify`")),
        (
            "import slugify, text_unidecode as t, os\nresult = t.f(args[0])",
            vec!["slugify", "text_unidecode"],
            None,
        ),
        (
            "import slugify\nimport PIL.Image\nresult = args[0]",
            vec!["slugify", "pil"],
            Some("`PIL`"),
        ),
        (
            "import slugify\ntry:\n    import lxml\nexcept ImportError:\n    lxml = None\nresult = args[0]",
            vec!["slugify"],
            None,
        ),
    ] {
        let step = draft(Scene::new().begun(), code, &slugify(">=8"));
        let prepare = prepare(step);
        let environment = environment(prepare.manifest(), &provides);
        let step = prepare.prepared(Ok(environment));
        match barred {
            None => assert!(matches!(step, Step::Execute(_)), "{code}: {step:?}"),
            Some(name) => {
                let (block, _) = feedback(step);
                assert_eq!(block["violation_subtype"], "undeclared_dependency");
                assert!(block["violation_message"].as_str().unwrap().starts_with(name), "{block}");
                assert_eq!(block["remaining_guardrail_budget"], 0);
            }
        }
    }
}

#[test]
fn what_is_held_may_be_imported_without_being_declared() {
    let step = Scene::holding(slugify(">=8")).declaring(&json!([]));
    let accepted = commit(run(step, answered()));
    let changes = accepted.changes(&Timing {
        timestamp: "now".into(),
        since_epoch_ms: 0,
        duration: Duration::ZERO,
    });
    let [ArtifactChange::Admit(new)] = changes.artifacts.as_slice() else { panic!("{changes:?}") };
    assert_eq!(
        new.artifact.manifest,
        manifest(&slugify(">=8")),
        "stored with what it needs anywhere"
    );

    let (block, _) = feedback(Scene::holding(json!([])).declaring(&json!([])));
    assert_eq!(block["violation_subtype"], "undeclared_dependency");
}

#[test]
fn a_manifest_is_kept_only_after_success() {
    let raised = || ReportEnding::Raised {
        class: "E".into(),
        message: "m".into(),
        location: None,
        facts: Box::default(),
    };
    let ran = run(Scene::new().declaring(&slugify(">=8")), answered());
    assert_eq!(kept(ran), Some(manifest(&slugify(">=8"))));

    let failed = run(Scene::new().declaring(&slugify(">=8")), raised());
    let other = "import slugify\nresult = slugify.slugify(args[0])";
    let failed = run(draft(failed, other, &slugify(">=8")), raised());
    assert_eq!(kept(failed), None);

    // A rejected attempt's packages do not stick: the next one runs on the bare language.
    let refused = prepare(Scene::new().declaring(&slugify(">=8")));
    let fault =
        EnvironmentFault::Unresolvable(Box::new(Failure::new(FailureKind::Execution, "no")));
    let plain = draft(refused.prepared(Err(fault.into())), "result = args[0].lower()", &json!([]));
    assert!(prepare(plain).manifest().is_empty());
}

fn stored(manifest: DependencyManifest) -> Memory {
    let artifact = Artifact {
        role: Role::parse("namer").unwrap(),
        method: Method::parse("slug").unwrap(),
        language: Language::Python,
        contract_fingerprint: Fingerprint::none(),
        runtime_version: RUNTIME_VERSION.into(),
        code: CODE.into(),
        checksum: Checksum::of(CODE),
        manifest,
        cacheability: Cacheability::StableMethodDefault,
        successes: 1,
        failures: 0,
        repairs: 0,
        track_record: TrackRecord::default(),
    };
    Memory { artifacts: vec![artifact], ..Memory::default() }
}

#[test]
fn a_stored_program_brings_its_manifest() {
    let memory = stored(manifest(&slugify(">=8")));
    let step = Scene { memory, ..Scene::holding(json!([{"name": "numpy"}])) }.begun();
    let expected =
        json!([{"name": "numpy", "version": ">=0"}, {"name": "python-slugify", "version": ">=8"}]);
    let prepare = prepare(step);
    assert_eq!(prepare.manifest().to_json(), expected);
}

#[test]
fn a_stored_program_that_does_not_fit_this_agent_is_repaired_and_not_blamed() {
    let memory = stored(manifest(&slugify(">=8")));
    let step = Scene { memory, ..Scene::holding(slugify("<8")) }.begun();
    let (block, again) = feedback(step);
    assert_eq!(block["error_type"], "dependency_manifest_incompatible");
    let commit = commit(run(draft(Step::Generate(again), CODE, &slugify("<8")), answered()));
    let changes = commit.changes(&Timing {
        timestamp: "now".into(),
        since_epoch_ms: 0,
        duration: Duration::ZERO,
    });
    let excused = |change: &ArtifactChange| {
        matches!(change, ArtifactChange::Score { verdict: RunVerdict::Excused, .. })
    };
    assert!(changes.artifacts.iter().any(excused), "{changes:?}");
}

#[test]
fn a_forged_manifest_in_storage_is_never_prepared() {
    let falsified = json!([{"name": "x", "version": "1\"; import os"}]);
    let memory = stored(serde_json::from_value(falsified).unwrap());
    let (block, _) = feedback(Scene { memory, ..Scene::new() }.begun());
    assert_eq!(block["error_type"], "invalid_dependency_manifest");
}

#[test]
fn the_model_is_shown_what_is_held() {
    let user = generate(Scene::holding(slugify(">=8")).begun())
        .prompt(&PromptContext::default(), PromptForm::Payload)
        .user;
    assert!(
        user.contains(r#"installed_dependencies: [{"name":"python-slugify","version":">=8"}]"#),
        "{user}"
    );
    let user =
        generate(Scene::new().begun()).prompt(&PromptContext::default(), PromptForm::Payload).user;
    assert!(!user.contains("installed_dependencies"));
}

fn logged(commit: &Commit) -> Value {
    let details = EntryDetails {
        timing: Timing { timestamp: "now".into(), since_epoch_ms: 0, duration: Duration::ZERO },
        model: "m".into(),
        contract_source: ContractSource::None,
        specialist_instance_id: "i".into(),
        session: None,
        summary: json!({}),
        sandbox_tier: "process".into(),
        grants: json!({"network": "off", "read": [], "write": []}),
        prep_ticket_id: Some("ticket-1".into()),
        debug: None,
        secrets: NamedSecrets::default(),
    };
    let entry = log_entry::project(commit, &details, &AlreadyLogged::default());
    let text = serde_json::to_string(&entry).unwrap();
    let entry = Value::from(entry);
    assert_eq!(text, entry.to_string(), "each name is set once");
    assert_eq!(redacted(entry.clone()), entry, "no name is one of a secret");
    let schema = include_str!("../../../specs/log-entry.schema.json");
    let schema =
        jsonschema::validator_for(&schema.parse::<serde_json::StandardValue>().unwrap()).unwrap();
    schema
        .validate(&serde_json::to_standard(&entry))
        .unwrap_or_else(|fault| panic!("{fault} at {}", fault.instance_path()));
    entry
}

#[test]
fn the_log_shows_what_was_declared_and_what_was_prepared() {
    let declared = json!([{"name": "Python_Slugify", "version": ">= 8.0"}, {"name": "json"}]);
    let entry = logged(&commit(run(Scene::new().declaring(&declared), answered())));
    for (key, value) in [
        ("program_dependencies", declared),
        ("normalized_dependencies", slugify(">=8")),
        (
            "dependency_notes",
            json!([
                "`json` comes with python: it is not installed, and its version is the interpreter's"
            ]),
        ),
        ("env_id", json!("e1")),
        ("environment_cache_hit", json!(true)),
        ("env_prepare_ms", json!(1.3)),
        ("env_resolve_ms", json!(0.0)),
        ("env_install_ms", json!(0.0)),
        ("prep_ticket_id", json!("ticket-1")),
    ] {
        assert_eq!(entry[key], value, "{key}");
    }

    let unreachable = Failure::new(FailureKind::Execution, "no answer").with("env_id", "e2");
    let fault = EnvironmentFault::SourceUnreachable(Box::new(unreachable));
    let failed = FailedPreparation::from(fault);
    let entry = |failed| {
        logged(&commit(prepare(Scene::new().declaring(&slugify(">=8"))).prepared(Err(failed))))
    };
    let unknown = entry(failed.clone());
    assert_eq!(unknown["env_id"], "e2", "known from the failure");
    assert_eq!(unknown["environment_cache_hit"], Value::Null);
    assert_eq!(unknown["normalized_dependencies"], slugify(">=8"));
    let environment = Environment {
        id: Some("e2".into()),
        prepare_time: Duration::from_millis(30),
        resolve_time: Duration::from_millis(20),
        install_time: Duration::from_millis(9),
        ..Environment::bare()
    };
    let known = entry(FailedPreparation { environment: Some(Box::new(environment)), ..failed });
    for tried in [&known, &known["attempts"][0]] {
        for (key, value) in [
            ("env_id", json!("e2")),
            ("environment_cache_hit", json!(false)),
            ("env_prepare_ms", json!(30.0)),
            ("env_resolve_ms", json!(20.0)),
            ("env_install_ms", json!(9.0)),
            ("program_dependencies", slugify(">=8")),
            ("normalized_dependencies", slugify(">=8")),
        ] {
            assert_eq!(tried[key], value, "{key}");
        }
    }

    let (_, again) = feedback(Scene::new().declaring(&json!("slugify")));
    let entry = logged(&commit(draft(Step::Generate(again), CODE, &json!({"a": 1}))));
    assert_eq!(
        entry["program_dependencies"],
        json!({"a": 1}),
        "as it came, even when it cannot be read"
    );
    assert_eq!(entry["normalized_dependencies"], Value::Null);
    assert_eq!(entry["outcome_error_type"], "invalid_dependency_manifest");
}
