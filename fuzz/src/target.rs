//! The readers of untrusted bytes. A target describes its answer in a few words; an input with a new description is kept.

use lifecycle::context::Context;
use lifecycle::contract::Contract;
use lifecycle::dialect::{Language, is_same_program};
use lifecycle::draft::salvage;
use lifecycle::execution::ResultFrom;
use lifecycle::guardrail::{GuardrailPolicy, Violation};
use lifecycle::program::{GeneratedProgram, VetFault, vet};
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use serde_json::{Map, Value, json};

pub(crate) struct FuzzTarget {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&[u8]) -> String,
}

impl FuzzTarget {
    /// Whether it takes seeds of this kind.
    pub(crate) fn reads(&self, kind: &str) -> bool {
        kind == "any" || kind == self.name
    }
}

pub(crate) const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "python", run: |bytes| vetted(Language::Python, bytes) },
    FuzzTarget { name: "ruby", run: |bytes| vetted(Language::Ruby, bytes) },
    FuzzTarget { name: "payload", run: payload },
    FuzzTarget { name: "answer", run: answer },
    FuzzTarget { name: "frame", run: recurgent::worker::read_frame },
    FuzzTarget { name: "contract", run: contract },
];

/// Any bytes as a program: inspected, checked by every guardrail, judged for reuse.
fn vetted(language: Language, bytes: &[u8]) -> String {
    let code = String::from_utf8_lossy(bytes).into_owned();
    let Ok(program) = GeneratedProgram::parse(language, &json!({"code": &code})) else {
        return "no program".to_owned();
    };
    let Some(request) = request(language) else { return "no request".to_owned() };
    // Its normal form must be readable whatever the text is.
    let _ = is_same_program(language, &code, &format!("{code}\n"));
    match vet(program, &request, &[], &GuardrailPolicy::default()) {
        Ok(vetted) => format!(
            "passes {} {:?}",
            vetted.cacheability(&request, ResultFrom::Function).reason(),
            vetted.advice().iter().map(Violation::subtype).collect::<Vec<_>>()
        ),
        Err((_, VetFault::Syntax(fault))) => {
            format!("unreadable {}", words(&fault.message))
        }
        Err((_, VetFault::Violations(violations))) => {
            format!("barred {:?}", violations.iter().map(Violation::subtype).collect::<Vec<_>>())
        }
    }
}

/// Any bytes as the answer of a provider.
fn payload(bytes: &[u8]) -> String {
    let Ok(payload) = serde_json::from_slice::<Value>(bytes) else { return "no JSON".to_owned() };
    match GeneratedProgram::parse(Language::Ruby, &payload) {
        Ok(program) => format!("a program with {} packages", program.manifest.dependencies().len()),
        Err(fault) => words(&fault.to_string()),
    }
}

/// Any bytes as the text of a model around its payload.
fn answer(bytes: &[u8]) -> String {
    match salvage(&String::from_utf8_lossy(bytes)) {
        Some(payload) => match GeneratedProgram::parse(Language::Python, &payload) {
            Ok(_) => "a program".to_owned(),
            Err(fault) => words(&fault.to_string()),
        },
        None => "nothing".to_owned(),
    }
}

/// Any bytes as a contract and a value that it checks.
fn contract(bytes: &[u8]) -> String {
    let Ok(Value::Object(mut given)) = serde_json::from_slice::<Value>(bytes) else {
        return "no object".to_owned();
    };
    let value = given.shift_remove("value").unwrap_or_default();
    match Contract::compose(Some(&given), &Map::new()) {
        Ok((Some(contract), _)) => match contract.judge(&[], &Map::new(), &value) {
            Ok(()) => "kept".to_owned(),
            Err(breach) => words(&breach.message()),
        },
        Ok((None, _)) => "none".to_owned(),
        Err(fault) => words(&fault.to_string()),
    }
}

fn request(language: Language) -> Option<CallRequest> {
    Some(CallRequest {
        id: CallId("call".to_owned()),
        lineage: Lineage::Root { trace: TraceId::parse("trace").ok()? },
        role: Role::parse("fuzzer").ok()?,
        method: Method::parse("act").ok()?,
        arguments: Arguments {
            args: vec![json!("a longer text"), json!([7, {"key": "other text"}])],
            kwargs: Map::from_iter([("unit".to_owned(), json!(2.5))]),
        },
        contract: None,
        language,
        manifest: None,
        context: Context::default(),
        allowance: Allowance::default(),
    })
}

/// Inputs known to be difficult, each after the kind of text that it is.
const SEEDS: &[(&str, &str)] = &[
    ("any", ""),
    ("any", "\0"),
    ("any", "\u{feff}result = 1"),
    ("python", "match context:\n    case {'tools': [*_, t]}:\n        result = t\n"),
    ("python", "result = f'{context[\"a\"]!r:>{args[0]}} {lambda x: 1}'\n"),
    ("python", "async def act(a, /, b=1, *c, d, **e):\n    async with a as b, c: yield\n"),
    ("python", "@a.b\nclass A[T: int](B, metaclass=C):\n    x: int = 1\n"),
    (
        "python",
        "try:\n    x = tool('a').fetch(args[0])\nexcept* (A, B) as e:\n    x = [1]\nresult = x\n",
    ),
    ("ruby", "case context\nin {tools: [*, {name: String => n}, *]} then n\nend\n"),
    ("ruby", "x = <<~A + <<-'B'\n  #{<<~C}\n  c\n  C\nA\n  b\nB\n"),
    ("ruby", "def act(a, b = 1, *c, d, e:, f: 2, **g, &h) = ->(x, (y, z)) { _1 }\n"),
    ("ruby", "class << self; attr_accessor :a; end; BEGIN { } ; END { }; alias $a $b\n"),
    (
        "ruby",
        "tool('x').fetch(args[0]) rescue [1]\n%w[a b].each_with_object({}) { |(a, b), h| h[a] ||= b }\n",
    ),
    ("payload", r#"{"code": "result = 1", "dependencies": [{"name": "a", "version": ">= 1"}]}"#),
    ("payload", r#"{"code": 1, "dependencies": {}, "other": null}"#),
    ("answer", "{\"code\": \"result = 1\", \"dependencies\": [{\"name\": \"a\"}]}"),
    ("answer", "<think>or {\"code\": 1}?</think>\n{\"code\": \"a\tb\nc\"} so"),
    ("answer", "{\"a\": {\"code\": {}}} ````py\n```\nresult = {}\n````"),
    ("answer", "Sure:\n```json\n{\"code\": \"x = '}'\nresult = 1\"}\n```\n```sh\nls\n```"),
    (
        "frame",
        r#"{"op":"ask","ask_id":1,"kind":"call","agent":"a1","method_name":"m","args":[1],"kwargs":{}}"#,
    ),
    ("frame", r#"{"op":"ask","ask_id":2,"kind":"delegate","role":"r","options":{"purpose":"p"}}"#),
    (
        "frame",
        r#"{"op":"done","status":"ok","value":[1,{"a":null}],"context":{"set":{"k":1},"unset":["j"]}}"#,
    ),
    (
        "frame",
        r#"{"op":"done","status":"error","error_type":"execution","error_class":"E","error_message":"m","location":{"line":1,"column":1}}"#,
    ),
    (
        "frame",
        r#"{"op":"done","status":"outcome","outcome":{"status":"error","error_type":"t"},"context":{"set":{},"unset":[]}}"#,
    ),
    (
        "contract",
        r#"{"deliverable":{"type":"object","required":["a"],"constraints":{"properties":{"a":{"type":"array","min_items":1}}}},"value":{"a":[]}}"#,
    ),
    (
        "contract",
        r##"{"deliverable":{"schema":{"type":"array","items":{"$ref":"#/$defs/x"},"$defs":{"x":{"pattern":"^a+$"}}}},"value":["aa"]}"##,
    ),
];

/// Inputs known to be difficult, with their target.
pub(crate) fn seeds() -> Vec<(String, Vec<u8>)> {
    SEEDS.iter().map(|(kind, text)| ((*kind).to_owned(), text.as_bytes().to_vec())).collect()
}

/// A message without its names, texts and numbers.
fn words(message: &str) -> String {
    let unquoted = message.split(['`', '"', '\'']).step_by(2);
    unquoted.flat_map(str::chars).filter(|c| c.is_ascii_lowercase() || *c == ' ').take(60).collect()
}
