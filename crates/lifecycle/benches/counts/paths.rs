//! What is counted: the decisions every call waits for, each once, on inputs that never change.

use std::any::Any;
use std::hint::black_box;
use std::time::Duration;

use lifecycle::artifact::{Artifact, Cacheability, RUNTIME_VERSION, TrackRecord};
use lifecycle::call::{self, Commit, Generate, Memory, Policy, Step};
use lifecycle::context::{Context, ContextChanges};
use lifecycle::contract::{Contract, ContractSource};
use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::draft::{Draft, Usage, salvage};
use lifecycle::execution::{Environment, Output, Report, ReportEnding, ResultFrom, WorkerTrace};
use lifecycle::guardrail::{GuardrailPolicy, SiblingState};
use lifecycle::inference::Inferred;
use lifecycle::log_entry::{self, AlreadyLogged, EntryDetails};
use lifecycle::program::{Checksum, GeneratedProgram, vet};
use lifecycle::prompt::{self, PromptContext, PromptForm};
use lifecycle::provenance::Observation;
use lifecycle::redact::NamedSecrets;
use lifecycle::request::{CallRequest, Role};
use lifecycle::settlement::{Receipt, Timing};
use lifecycle::tool::{KnownTool, Tool};
use serde_json::{Map, Value, json};

use crate::common::{generated, inputs, request, typical};

/// Ready to run once. Its inputs are made before and those it only read are returned, so that only the path itself
/// is counted.
pub(crate) type Work = Box<dyn FnOnce() -> Box<dyn Any>>;

/// A path: its name, and what readies it.
pub(crate) type HotPath = (&'static str, fn() -> Work);

/// Every counted path.
pub(crate) const PATHS: &[HotPath] = &[
    ("vet python 5 KB", || vetting(Language::Python, typical(Language::Python), inputs())),
    ("vet ruby 5 KB", || vetting(Language::Ruby, typical(Language::Ruby), inputs())),
    ("vet python one line", || vetting(Language::Python, PYTHON_LINE, vec![json!(7)])),
    ("vet ruby one line", || vetting(Language::Ruby, "args[0] + 1", vec![json!(7)])),
    ("payload 5 KB", payload),
    ("payload salvaged 5 KB", salvaged),
    ("prompt first", prompt_first),
    ("prompt retry", prompt_retry),
    ("call stored", call_stored),
    ("call fresh", call_fresh),
    ("log entry", log_entry),
    ("context one key of 1000", context_change),
    ("contract 1000 items", contract_judged),
];

const PYTHON_LINE: &str = "result = args[0] + 1";

fn vetting(language: Language, source: &str, args: Vec<Value>) -> Work {
    let (program, request) = (generated(language, source), request(language, args));
    Box::new(move || {
        black_box(vet(program, &request, &[], &GuardrailPolicy::default()).unwrap());
        Box::new(request)
    })
}

/// What a well-behaved model sends.
fn payload() -> Work {
    let dependencies = json!([{"name": "requests", "version": ">=2.31"}, {"name": "numpy"}]);
    let code = typical(Language::Python);
    let text = json!({"code": code, "dependencies": dependencies}).to_string();
    Box::new(move || {
        let payload = serde_json::from_str(&text).unwrap();
        black_box(GeneratedProgram::parse(Language::Python, &payload).unwrap());
        Box::new(text)
    })
}

/// The same with prose around it and raw line ends in its strings.
fn salvaged() -> Work {
    let code = typical(Language::Python).replace('"', "\\\"");
    let text =
        format!("Here is {{the}} program:\n```json\n{{\"code\": \"{code}\"}}\n```\nIt is short.");
    Box::new(move || {
        black_box(salvage(&text).unwrap());
        Box::new(text)
    })
}

fn prompt_first() -> Work {
    let (request, prompt_context) = (asked(), prompt_context());
    Box::new(move || {
        black_box(prompt::build(&request, &prompt_context, None, PromptForm::Payload));
        Box::new((request, prompt_context))
    })
}

/// From a rejected program to the prompt that says why.
fn prompt_retry() -> Work {
    let (generate, prompt_context) = (generating(), prompt_context());
    Box::new(move || {
        let reply = draft("import os\nos.fork()\nresult = args[0] + 1");
        let Step::Generate(mut retry) = generate.generated(Ok(reply), Duration::ZERO) else {
            return unreached();
        };
        black_box(retry.prompt(&prompt_context, PromptForm::Payload));
        Box::new((retry, prompt_context))
    })
}

/// From recall to settled, without a model.
fn call_stored() -> Work {
    let (request, memory, report) = (asked(), memory(), report());
    Box::new(move || {
        let Step::Recall(recall) = call::begin(request, Policy::default()) else {
            return unreached();
        };
        settle(run(recall.recalled(Ok(memory)), report))
    })
}

/// The same with a model that answers at once.
fn call_fresh() -> Work {
    let (request, prompt_context, report) = (asked(), prompt_context(), report());
    let draft = draft(PYTHON_LINE);
    Box::new(move || {
        let Step::Recall(recall) = call::begin(request, Policy::default()) else {
            return unreached();
        };
        let Step::Generate(mut generate) = recall.recalled(Ok(Memory::default())) else {
            return unreached();
        };
        black_box(generate.prompt(&prompt_context, PromptForm::Payload));
        settle(run(generate.generated(Ok(draft), Duration::ZERO), report));
        Box::new(prompt_context)
    })
}

fn log_entry() -> Work {
    let Step::Recall(recall) = call::begin(asked(), Policy::default()) else { return unreached() };
    let commit = run(recall.recalled(Ok(memory())), report());
    let details = EntryDetails {
        timing: timing(),
        model: "model".to_owned(),
        contract_source: ContractSource::Fields,
        specialist_instance_id: "instance".to_owned(),
        session: None,
        summary: json!({"status": "ok"}),
        sandbox_tier: "full".to_owned(),
        grants: json!({}),
        prep_ticket_id: None,
        debug: None,
        secrets: NamedSecrets::default(),
    };
    Box::new(move || {
        let entry = log_entry::project(&commit, &details, &AlreadyLogged::default());
        black_box(serde_json::to_vec(&entry).unwrap());
        Box::new((commit, details))
    })
}

/// One key written, and the change that its worker must get.
fn context_change() -> Work {
    let mut context = memorised(1000);
    let held = context.version();
    let set = Map::from_iter([("key 500".to_owned(), json!("changed"))]);
    Box::new(move || {
        context.apply(ContextChanges { set, unset: Vec::new() });
        assert_eq!(black_box(context.since(Some(held))).set.len(), 1);
        Box::new(context)
    })
}

fn contract_judged() -> Work {
    let value = json!(vec![json!({"name": "ada", "age": 36}); 1000]);
    let contract = contract();
    Box::new(move || {
        contract.judge(&[json!(7)], &Map::new(), black_box(&value)).unwrap();
        Box::new((contract, value))
    })
}

/// Through its environment and its worker to the end.
fn run(step: Step, report: Report) -> Commit {
    let Step::Prepare(prepare) = step else { return unreached() };
    let Step::Execute(execute) = prepare.prepared(Ok(Environment::bare())) else {
        return unreached();
    };
    let Step::Commit(commit) = execute.executed(Ok(report), Duration::ZERO) else {
        return unreached();
    };
    assert!(commit.outcome().is_ok(), "{:?}", commit.outcome());
    *commit
}

fn settle(commit: Commit) -> Box<dyn Any> {
    black_box(commit.changes(&timing()));
    Box::new(commit.committed(Ok(Receipt::default())).into_parts())
}

/// A path that is not the one it is named for is worth no count.
#[expect(clippy::panic, reason = "a benchmark that cannot run stops")]
fn unreached<T>() -> T {
    panic!("the call took another path than the one to be counted")
}

fn generating() -> Box<Generate> {
    let Step::Recall(recall) = call::begin(asked(), Policy::default()) else { return unreached() };
    let Step::Generate(generate) = recall.recalled(Ok(Memory::default())) else {
        return unreached();
    };
    generate
}

fn asked() -> CallRequest {
    let contract = Some(contract());
    CallRequest {
        contract,
        context: memorised(20),
        ..request(Language::Python, vec![json!(7), json!("a text of some length")])
    }
}

/// At least one record with a name.
fn contract() -> Contract {
    let fields = json!({
        "purpose": "list people",
        "deliverable": {
            "type": "array",
            "min_items": 1,
            "items": {"type": "object", "required": ["name"]}
        }
    });
    Contract::compose(None, fields.as_object().unwrap()).unwrap().0.unwrap()
}

fn memorised(keys: usize) -> Context {
    Context::restored(1, (0..keys).map(|n| (format!("key {n}"), json!({"n": n, "list": [1, 2]}))))
}

fn memory() -> Memory {
    let request = asked();
    let artifact = Artifact {
        role: request.role,
        method: request.method,
        language: request.language,
        contract_fingerprint: contract().fingerprint(),
        runtime_version: RUNTIME_VERSION.to_owned(),
        code: PYTHON_LINE.to_owned(),
        checksum: Checksum::of(PYTHON_LINE),
        manifest: DependencyManifest::default(),
        cacheability: Cacheability::DelegatedContractTool,
        successes: 1,
        failures: 0,
        repairs: 0,
        track_record: TrackRecord::default(),
    };
    Memory { artifacts: vec![artifact], ..Memory::default() }
}

fn draft(code: &str) -> Draft {
    Draft { payload: json!({"code": code}), usage: Usage::default() }
}

fn report() -> Report {
    let set = Map::from_iter([("seen".to_owned(), json!(1))]);
    Report {
        ending: ReportEnding::Value(json!([{"name": "ada", "age": 36}])),
        changes: ContextChanges { set, unset: Vec::new() },
        forged: Vec::new(),
        violations: Vec::new(),
        failed_call: None,
        inferred: Inferred::default(),
        output: Output::default(),
        observed: Observation::default(),
        worker: WorkerTrace::default(),
        result_from: ResultFrom::default(),
    }
}

/// As many tools and methods beside it as a prompt of a grown agent shows.
fn prompt_context() -> PromptContext {
    let tool = |n| KnownTool {
        tool: Tool { name: Role::parse(&format!("tool_{n}")).unwrap(), contract: Some(contract()) },
        methods: vec!["find".to_owned(), "list".to_owned()],
        usage_count: 9,
        success_count: 8,
        failure_count: 1,
        exhaustion_count: 0,
    };
    let sibling = |n| SiblingState {
        method: format!("method_{n}"),
        reads: vec![format!("key {n}")],
        writes: vec![format!("key {n}")],
    };
    PromptContext {
        secrets: NamedSecrets::default(),
        tools: (0..20).map(tool).collect(),
        siblings: (0..10).map(sibling).collect(),
        history_count: 50,
        patterns: Vec::new(),
        rejections: Vec::new(),
        ..PromptContext::default()
    }
}

fn timing() -> Timing {
    Timing {
        timestamp: "2026-01-01T00:00:00Z".to_owned(),
        since_epoch_ms: 1_767_225_600_000,
        duration: Duration::from_millis(3),
    }
}
