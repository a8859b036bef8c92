//! Prompts stay within their budgets, state every rule that a model must know, and show what callers, tools and pages
//! wrote as data only.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test")]

#[path = "prompts/injection.rs"]
mod injection;

use std::fmt::Write as _;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::attempt::{Reason, Rejection};
use lifecycle::call::{Generate, Memory, Policy, Step, begin};
use lifecycle::context::Context;
use lifecycle::contract::Contract;
use lifecycle::dialect::Language;
use lifecycle::draft::{Draft, Usage};
use lifecycle::example::PersonRejection;
use lifecycle::guardrail::{GuardrailPolicy, SiblingState};
use lifecycle::outcome::{Failure, FailureKind};
use lifecycle::outside_tool::{
    MAX_SHOWN, MethodDefinition, OutsideOrigin, OutsideTool, for_prompt,
};
use lifecycle::pattern::Repeated;
use lifecycle::program::Checksum;
use lifecycle::prompt::{MAX_TOOLS, Prompt, PromptContext, PromptForm, build};
use lifecycle::redact::NamedSecrets;
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use lifecycle::tool::{KnownTool, Tool};
use serde_json::{Map, Value, json};
use tiktoken_rs::{CoreBPE, o200k_base};

#[expect(clippy::disallowed_types, reason = "a table that is slow to make")]
static O200K: std::sync::LazyLock<CoreBPE> = std::sync::LazyLock::new(|| o200k_base().unwrap());

fn tokens(text: &str) -> usize {
    O200K.encode_ordinary(text).len()
}

fn tokens_of(prompt: &Prompt) -> usize {
    tokens(&prompt.system) + tokens(&prompt.user)
}

fn request(language: Language, args: Vec<Value>) -> CallRequest {
    CallRequest {
        id: CallId("c".into()),
        lineage: Lineage::Root { trace: TraceId::parse("t").unwrap() },
        role: Role::parse("calculator").unwrap(),
        method: Method::parse("add").unwrap(),
        arguments: Arguments { args, kwargs: Map::new() },
        contract: None,
        language,
        context: Context::default(),
        manifest: None,
        allowance: Allowance::default(),
    }
}

const LANGUAGES: [Language; 2] = [Language::Python, Language::Ruby];

const FORMS: [PromptForm; 2] = [PromptForm::Payload, PromptForm::Program];

#[test]
fn a_first_call_stays_below_900_tokens() {
    for (language, form) in LANGUAGES.iter().flat_map(|it| FORMS.map(|form| (*it, form))) {
        let request = request(language, vec![json!(3)]);
        let prompt = build(&request, &PromptContext::default(), None, form);
        let count = tokens_of(&prompt);
        println!("{language:?} {form:?}: {count} tokens ({} system)", tokens(&prompt.system));
        assert!(count <= 900, "{language:?} {form:?}: {count}");
    }
}

/// What is said of `infer` and `look` is in the prompts of agents that may use them, and in no other.
#[test]
fn only_prompts_of_agents_that_may_ask_explain_it() {
    for (language, form) in LANGUAGES.iter().flat_map(|it| FORMS.map(|form| (*it, form))) {
        let request = request(language, vec![json!(3)]);
        let prompt_of = |may_infer| {
            build(&request, &PromptContext { may_infer, ..PromptContext::default() }, None, form)
        };
        let (with, without) = (prompt_of(true), prompt_of(false));
        let count = tokens_of(&with);
        println!("{language:?} {form:?}: {count} tokens");
        assert!(count <= 900, "{language:?} {form:?}: {count}");
        assert_eq!(with.user, without.user);
        for word in ["infer", "look("] {
            assert!(with.system.contains(word) && !without.system.contains(word), "{word}");
        }
        let named = if language == Language::Python { "each=mails" } else { "each: mails" };
        assert!(with.system.contains(named), "{}", with.system);
    }
}

/// The prompt of a provider that wants a program does not mention JSON, and a package is an import there.
#[test]
fn the_program_form_does_not_speak_of_json() {
    for language in LANGUAGES {
        let request = request(language, vec![json!(3)]);
        let prompt = build(&request, &PromptContext::default(), None, PromptForm::Program);
        let fixed = prompt.user.split_once('\n').map_or("", |(_, rest)| rest);
        for word in ["JSON", "\"code\"", "dependencies"] {
            assert!(!prompt.system.contains(word), "{word}: {}", prompt.system);
            assert!(!fixed.contains(word), "{word}: {fixed}");
        }
        assert!(prompt.system.contains(&format!("```{language}\n")), "{}", prompt.system);
        assert!(prompt.system.contains("import it, and it is installed"), "{}", prompt.system);
    }
}

/// A model that writes programs is asked for another one after a failure; one that writes payloads sees what to correct.
#[test]
fn a_rejected_program_is_shown_to_models_that_can_correct_it() {
    let feedback = json!({"error_message": "no", "code": "x = 1", "code_begins_at_line": 1});
    let request = request(Language::Python, vec![json!(3)]);
    for (form, shown) in [
        (PromptForm::Payload, feedback.clone()),
        (PromptForm::Program, json!({"error_message": "no"})),
    ] {
        let user = build(&request, &PromptContext::default(), Some(&feedback), form).user;
        assert_eq!(sections(&user)["feedback"], shown, "{user}");
    }
}

/// The user part names the head of the function, in both forms.
#[test]
fn every_prompt_names_the_function_to_write() {
    for (language, form) in LANGUAGES.iter().flat_map(|it| FORMS.map(|form| (*it, form))) {
        let request = request(language, vec![json!(3)]);
        let prompt = build(&request, &PromptContext::default(), None, form);
        let head = match language {
            Language::Python => "def add(number):",
            Language::Ruby => "def add(number)",
        };
        assert_eq!(prompt.head.as_deref(), Some(head));
        let line = format!("\nWrite exactly this function: `{head}`\n");
        assert!(prompt.user.contains(&line), "{}", prompt.user);
    }
}

/// Each part of the fixed text has its own budget, so that no part grows at another's cost.
#[test]
fn every_part_of_the_fixed_text_stays_within_its_budget() {
    for (part, text, budget) in [
        ("identity 0", include_str!("../src/prompt/identity_0.md"), 110),
        ("identity 1", include_str!("../src/prompt/identity_1.md"), 60),
        ("identity 2", include_str!("../src/prompt/identity_2.md"), 40),
        ("rules", include_str!("../src/prompt/rules.md"), 400),
        ("payload", include_str!("../src/prompt/payload.md"), 110),
        ("program", include_str!("../src/prompt/program.md"), 60),
        ("python", include_str!("../src/prompt/python.md"), 220),
        ("python program", include_str!("../src/prompt/python_program.md"), 180),
        ("ruby", include_str!("../src/prompt/ruby.md"), 220),
        ("ruby program", include_str!("../src/prompt/ruby_program.md"), 180),
        ("infer", include_str!("../src/prompt/infer.md"), 120),
        ("inference", include_str!("../src/prompt/inference.md"), 120),
    ] {
        let count = tokens(text);
        println!("{part}: {count} of {budget}");
        assert!(count <= budget, "{part}: {count} tokens, budget {budget}");
    }
}

/// A value of about so many bytes.
type Make = fn(usize) -> Value;

#[test]
fn the_size_of_arguments_does_not_change_the_size_of_a_prompt() {
    let count = |value: Value| {
        tokens_of(&build(
            &request(Language::Python, vec![value]),
            &PromptContext::default(),
            None,
            PromptForm::Payload,
        ))
    };
    let shapes: [(&str, Make); 4] = [
        ("text", |bytes| json!("word ".repeat(bytes / 5))),
        ("numbers", |bytes| json!(vec![1; bytes / 2])),
        ("records", |bytes| json!(vec![json!({"name": "ada", "age": 36}); bytes / 25])),
        ("object", |bytes| {
            Value::Object((0..bytes / 12).map(|n| (format!("key_{n}"), json!(n))).collect())
        }),
    ];
    for (name, make) in shapes {
        let (small, large) = (count(make(1000)), count(make(1_000_000)));
        println!("{name}: {small} tokens at 1 KB, {large} at 1 MB");
        assert!(
            large * 100 <= small * 105 && small * 100 <= large * 105,
            "{name}: {small} {large}"
        );
    }
    let many = tokens_of(&build(
        &request(Language::Python, vec![json!("x".repeat(200)); 5000]),
        &PromptContext::default(),
        None,
        PromptForm::Payload,
    ));
    assert!(many < 3000, "5,000 arguments take {many} tokens");
}

/// A program sees the latest page; the prompt says that there is more only if there is.
#[test]
fn older_history_is_mentioned_when_there_is_any() {
    for (records, mentioned) in [(0, false), (100, false), (101, true)] {
        let prompt_context = PromptContext { history_count: records, ..PromptContext::default() };
        let user =
            build(&request(Language::Python, vec![]), &prompt_context, None, PromptForm::Payload)
                .user;
        assert_eq!(user.contains(".before()"), mentioned, "{records}: {user}");
    }
}

/// Grants and turns appear in the prompt only if there are any.
#[test]
fn grants_and_turns_are_shown_when_there_are_any() {
    let request = request(Language::Python, vec![json!("sales.csv")]);
    let plain = build(&request, &PromptContext::default(), None, PromptForm::Payload).user;
    assert!(!plain.contains("granted") && !plain.contains("latest_turns"), "{plain}");
    let turn = json!({"method": "ask", "args": ["my password=hunter2 and what?"], "value": "x".repeat(9000)});
    let prompt_context = PromptContext {
        grants: json!({"network": "off", "read": ["/data/sales.csv"]}),
        turns: vec![turn; 4],
        ..PromptContext::default()
    };
    let user = build(&request, &prompt_context, None, PromptForm::Payload).user;
    assert!(
        user.contains("\ngranted: {\"network\":\"off\",\"read\":[\"/data/sales.csv\"]}\n"),
        "{user}"
    );
    assert!(user.contains("\nlatest_turns: [{\"method\":\"ask\""), "{user}");
    assert!(!user.contains("hunter2"), "{user}");
    assert!(user.len() < plain.len() + 4096, "{} bytes", user.len());
}

fn generate(step: Step) -> Box<Generate> {
    match step {
        Step::Generate(generate) => generate,
        other @ (Step::Recall(_)
        | Step::Prepare(_)
        | Step::Execute(_)
        | Step::Rehearse(_)
        | Step::Commit(_)) => {
            panic!("expected a retry, got {other:?}")
        }
    }
}

fn after(language: Language, code: &str) -> Prompt {
    let Step::Recall(recall) = begin(request(language, vec![json!(3)]), Policy::default()) else {
        panic!("recall comes first")
    };
    let first = generate(recall.recalled(Ok(Memory::default())));
    let draft = Draft { payload: json!({"code": code}), usage: Usage::default() };
    generate(first.generated(Ok(draft), Duration::ZERO))
        .prompt(&PromptContext::default(), PromptForm::Payload)
}

/// A program of real length, wrong in the middle.
fn long_program(wrong: &str) -> String {
    let mut code = String::new();
    for n in 0..400 {
        let wrong = if n == 200 { wrong } else { "" };
        writeln!(code, "value_{n} = sum(int(item['amount_{n}']) for item in args[0])\n{wrong}")
            .unwrap();
    }
    code + "result = value_0\n"
}

#[test]
fn a_retry_adds_at_most_500_tokens() {
    let first = tokens_of(&build(
        &request(Language::Python, vec![json!(3)]),
        &PromptContext::default(),
        None,
        PromptForm::Payload,
    ));
    for (what, code) in [
        ("one violation", "import os\nos.fork()\nresult = args[0]".to_owned()),
        ("many", "import os, requests, numpy, scipy\nos.fork()\nos.execv('a', [])\nresult = requests.get(args[0])".to_owned()),
        ("no syntax", "result = (".to_owned()),
        ("a long program without syntax", long_program("def (:")),
        ("a long violation", long_program("import os; os.fork()")),
        ("one long line", format!("result = [{}", "args[0], ".repeat(3000))),
        ("a blank program", "   ".to_owned()),
    ] {
        let prompt = after(Language::Python, &code);
        let added = tokens_of(&prompt) - first;
        println!("{what}: {added} tokens more");
        assert!(added <= 500, "{what} adds {added} tokens:\n{}", prompt.user);
    }
}

fn repeated(capability: &str, tool: &str) -> Repeated {
    Repeated { capability: capability.into(), seen: 2, of: 5, tool: Some(tool.into()) }
}

/// Every rule that a prompt must state, and words by which it is recognised.
#[test]
fn every_required_rule_is_stated() {
    let prompt_context = PromptContext {
        secrets: NamedSecrets::default(),
        tools: vec![known("fetcher", "fetches pages")],
        siblings: vec![sibling("subtract", "total")],
        history_count: 3,
        patterns: vec![repeated("http_fetch", "fetcher")],
        rejections: Vec::new(),
        ..PromptContext::default()
    };
    for language in LANGUAGES {
        let mut request = request(language, vec![json!(3)]);
        let fields = json!({"purpose": "adds", "deliverable": {"type": "number"}});
        request.contract = Contract::compose(fields.as_object(), &Map::new()).unwrap().0;
        let prompt = build(&request, &prompt_context, None, PromptForm::Payload);
        let all = format!("{}\n{}", prompt.system, prompt.user);
        for (rule, words) in [
            ("identity", "Tool Builder"),
            ("do", "Do it here"),
            ("shape", "Shape it"),
            ("forge", "Forge a tool"),
            ("orchestrate", "Orchestrate"),
            ("environment", "own worker process"),
            ("memory", "`context`"),
            ("history", "conversation_history"),
            ("output contract", "one JSON object {\"code\""),
            ("declared imports", "every other import is listed in `dependencies`"),
            ("nothing speculative", "list nothing speculative"),
            ("declarations", "Declarations are part of the execution contract"),
            ("inputs", "never write this call's values as literals"),
            ("function form", "a function named like the method"),
            ("no methods on agents", "Never define methods on agents"),
            ("no processes", "never start processes"),
            ("truth", "Never return invented data"),
            ("usefulness", "low_utility"),
            ("boundary", "wrong_tool_boundary"),
            ("provenance", "retrieval_mode: live|cached|fixture"),
            ("constraints", "put it in the deliverable's constraints"),
            ("constraint example", "min_items: 1"),
            ("plain example", "\"dependencies\": []}"),
            ("dependency example", "\"version\": \""),
            ("tools", "known_tools: {\"fetcher\""),
            ("siblings", "sibling_methods: {\"subtract\":"),
            ("state keys", "\"writes\":[\"total\"]"),
            ("contract", "contract: {"),
            ("patterns", "recent_patterns: [{\"capability\":\"http_fetch\""),
            ("history count", "history: {\"records\":3}"),
        ] {
            assert!(all.contains(words), "{language:?} does not state {rule}: {words:?}");
        }
        for (level, words) in [(1, "You are a Tool:"), (2, "You are a Leaf"), (5, "You are a Leaf")]
        {
            request.lineage = Lineage::Child {
                trace: TraceId::parse("t").unwrap(),
                parent: CallId("p".into()),
                depth: NonZeroU8::new(level).unwrap(),
            };
            let system = build(&request, &prompt_context, None, PromptForm::Payload).system;
            assert!(system.starts_with(words), "{level}: {system}");
        }
        let dialect = match language {
            Language::Python => "Write Python",
            Language::Ruby => "Write Ruby",
        };
        assert!(prompt.system.contains(dialect));
    }
}

#[test]
fn the_stable_part_is_the_same_for_every_call_of_a_guest_and_depth() {
    let one = build(
        &request(Language::Ruby, vec![json!(3)]),
        &PromptContext::default(),
        None,
        PromptForm::Payload,
    );
    let other = build(
        &request(Language::Ruby, vec![json!("x"), json!([])]),
        &PromptContext::default(),
        None,
        PromptForm::Payload,
    );
    assert_eq!(one.system, other.system);
    assert_ne!(one.user, other.user);
}

#[test]
fn known_tools_are_few() {
    let tools = (0..50).map(|n| known(&format!("tool_{n}"), &"long purpose ".repeat(50))).collect();
    let prompt = build(
        &request(Language::Python, vec![]),
        &PromptContext { tools, ..PromptContext::default() },
        None,
        PromptForm::Payload,
    );
    let shown = sections(&prompt.user).remove("known_tools").unwrap();
    assert_eq!(shown.as_object().unwrap().len(), MAX_TOOLS);
}

fn known(name: &str, purpose: &str) -> KnownTool {
    let fields = json!({"purpose": purpose});
    let contract = Contract::compose(fields.as_object(), &Map::new()).unwrap().0;
    KnownTool {
        tool: Tool { name: Role::parse(name).unwrap(), contract },
        methods: vec!["get".to_owned()],
        usage_count: 0,
        success_count: 0,
        failure_count: 0,
        exhaustion_count: 0,
    }
}

fn sibling(method: &str, key: &str) -> SiblingState {
    SiblingState { method: method.to_owned(), reads: Vec::new(), writes: vec![key.to_owned()] }
}

/// Lines of a user prompt that are not sections, by how they begin.
const FIXED: [&str; 5] = [
    "A program for this call failed, as the feedback says.",
    "Your last program was rejected.",
    "Write exactly this function: `def ",
    "It is called as `",
    "Write the program that answers this call",
];

/// The sections of a user prompt: every other line is one.
fn sections(user: &str) -> Map<String, Value> {
    let mut found = Map::new();
    for line in user.split('\n').filter(|line| !line.is_empty()) {
        if FIXED.iter().any(|fixed| line.starts_with(fixed)) {
            continue;
        }
        let (name, text) = line.split_once(": ").unwrap_or_else(|| panic!("no section: {line:?}"));
        let value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {line:?}"));
        assert!(found.insert(name.to_owned(), value).is_none(), "{name} twice");
    }
    found
}

/// Secrets in contracts, rejections and error messages are redacted.
#[test]
fn no_section_shows_a_secret() {
    const KEY: &str = "sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let mut request = request(Language::Python, vec![]);
    let deliverable = json!({"type": "object", "required": ["token"]});
    let purpose = format!("ask the service with {KEY}");
    let contract = json!({"purpose": purpose, "deliverable": deliverable, "acceptance": {"token": "a string"}});
    let Value::Object(contract) = contract else { panic!("an object") };
    request.contract = Contract::compose(Some(&contract), &Map::new()).unwrap().0;
    let mut secrets = NamedSecrets::default();
    secrets.note("password", &json!("hunter2"));
    let because = format!("it printed {KEY}");
    let prompt_context = PromptContext {
        rejections: vec![PersonRejection {
            language: Language::Python,
            checksum: Checksum::of(""),
            because,
            code: None,
            rejected_at: String::new(),
        }],
        secrets,
        ..PromptContext::default()
    };
    let failure = Failure::new(FailureKind::Execution, format!("no login for hunter2 with {KEY}"));
    let rejection = Rejection::new(Reason::Raised, failure);
    let feedback = rejection.feedback(1, &GuardrailPolicy::default());
    let user = build(&request, &prompt_context, Some(&feedback), PromptForm::Payload).user;
    for secret in [KEY, "hunter2"] {
        assert!(!user.contains(secret), "{user}");
    }
    assert!(user.contains("\"token\":\"a string\""), "a description stays: {user}");
}

/// However many outside tools there are, a prompt has about the size that it has with as many as it shows.
#[test]
fn five_hundred_outside_tools_cost_what_twelve_do() {
    let tools = |count: usize| -> Vec<Arc<OutsideTool>> {
        let method = |index: usize| MethodDefinition {
            name: format!("look_up_{index:03}"),
            description: format!(
                "Looks up the record {index:03} of the warehouse by its words and its date"
            ),
            input: json!({"type": "object", "properties": {"words": {"type": "string"}, "day": {"type": "string"}},
                "required": ["words"]}),
            output: Some(
                json!({"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}}),
            ),
            reads_only: true,
        };
        let tool =
            OutsideTool::new("warehouse", OutsideOrigin::Mcp, (0..count).map(method).collect());
        vec![Arc::new(tool)]
    };
    for language in LANGUAGES {
        for form in FORMS {
            let request = request(language, vec![json!(3)]);
            let size = |count: usize| {
                let outside_tools = for_prompt(&tools(count), &request);
                let known = PromptContext { outside_tools, ..PromptContext::default() };
                let prompt = build(&request, &known, None, form);
                (tokens_of(&prompt), prompt.system.len() + prompt.user.len())
            };
            let (twelve, many) = (size(MAX_SHOWN), size(500));
            assert!(
                many.0 * 100 <= twelve.0 * 105,
                "{many:?} tokens and bytes instead of {twelve:?}"
            );
            assert!(
                many.1 * 100 <= twelve.1 * 105,
                "{many:?} tokens and bytes instead of {twelve:?}"
            );
        }
    }
}
