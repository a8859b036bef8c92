//! What a program asks of the host while it runs.

use lifecycle::dialect::Language;
use lifecycle::execution::ReportEnding;
use lifecycle::outcome::{Failure, FailureKind, Outcome, Reported};
use lifecycle::request::{Method, Role};
use recurgent::guest::{Answer, Ask, Done};
use serde_json::{Map, Value, json};

use crate::drive::{BOTH, Driver, Program};
use crate::{number, returned, value};

fn outcome(result: Result<Value, Failure>) -> Answer {
    let (role, method) = (Role::parse("adder").unwrap(), Method::parse("add").unwrap());
    Answer::Outcome(Box::new(Outcome::new(role, method, result)))
}

#[test]
fn asks_cross_and_come_back() {
    let driver = Driver::new();
    let python = "adder = tool('adder')\nsum = adder.add(1, 2, by=3)\nbad = adder.add('x')\n\
                  made = delegate('maker', purpose='p', n=2**70)\nadder.remember(seen=True)\n\
                  try: tool('none')\nexcept ToolRegistryViolation as e: refused = e.error_type\n\
                  result = [sum.value, bad.error_type, bad.metadata['n'], content('content:1'), refused, context['tools']]";
    let ruby = "adder = tool('adder')\nsum = adder.add(1, 2, by: 3)\nbad = adder.add('x')\n\
                made = delegate('maker', purpose: 'p', n: 2**70)\nadder.remember(seen: true)\n\
                begin; tool('none'); rescue ToolRegistryViolation => e; refused = e.error_type; end\n\
                [sum.value, bad.error_type, bad.metadata['n'], content('content:1'), refused, context['tools']]";
    for (language, code) in [(Language::Python, python), (Language::Ruby, ruby)] {
        let mut asked = Vec::new();
        let ended = driver.ask(&Program { language, code, ..Program::default() }, |ask| {
            asked.push(ask.clone());
            reply(ask)
        });
        let expected =
            json!([6, "missing_input", 5, {"kept": 1}, "tool_registry_violation", {"adder": {}}]);
        assert!(returned(&ended, &expected), "{language:?}: {ended:#?}");
        let call = |args: Vec<Value>, kwargs: Value| Ask::Call {
            agent: "a1".into(),
            method: "add".into(),
            args,
            kwargs: kwargs.as_object().cloned().unwrap(),
        };
        assert_eq!(asked[0], Ask::Tool { name: "adder".into() });
        assert_eq!(asked[1], call(vec![json!(1), json!(2)], json!({"by": 3})));
        assert_eq!(asked[2], call(vec![json!("x")], json!({})));
        assert!(matches!(&asked[3], Ask::Delegate { role, options, detached: false }
            if role == "maker" && options["n"] == number("1180591620717411303424")));
        let entries = Map::from_iter([("seen".to_owned(), json!(true))]);
        assert_eq!(asked[4], Ask::Remember { agent: "a1".into(), entries });
        assert_eq!(asked.len(), 8);
    }
}

fn reply(ask: Ask) -> Answer {
    match ask {
        Ask::Tool { name } if name == "adder" => Answer::Agent { handle: "a1".into(), role: name },
        Ask::Tool { .. } => Answer::Refused {
            error_type: "tool_registry_violation".into(),
            message: "no such tool".into(),
        },
        Ask::Delegate { role, .. } => Answer::Agent { handle: "a2".into(), role },
        Ask::Call { args, .. } if args == [json!("x")] => {
            let kind =
                FailureKind::Reported(Reported { code: "missing_input".into(), retriable: false });
            outcome(Err(Failure::new(kind, "not a number").with("n", 5)))
        }
        Ask::Call { .. } => outcome(Ok(json!(6))),
        Ask::Content { .. } => Answer::Value(json!({"kept": 1})),
        Ask::Tools => Answer::Value(json!({"adder": {}})),
        Ask::Attach { name } => Answer::Refused {
            error_type: "tool_registry_violation".into(),
            message: format!("no {name}"),
        },
        Ask::Infer { .. } => Answer::Value(json!(["bug"])),
        Ask::Remember { .. }
        | Ask::RuntimeContext { .. }
        | Ask::Look { .. }
        | Ask::SearchTools { .. }
        | Ask::History { .. } => Answer::Value(Value::Null),
    }
}

#[test]
fn questions_and_looks_cross_as_they_are_asked() {
    let driver = Driver::new();
    let python = "result = infer('Which?', each=(x for x in [2**70, 'é']), schema=['bug', 'praise'])\n\
                  infer('Read', {'a': None}, {'type': 'object'})\nlook(result, 'why')";
    let ruby = "answer = infer('Which?', each: [2**70, 'é'].each, schema: ['bug', 'praise'])\n\
                infer('Read', { a: nil }, { type: 'object' })\nlook(answer, 'why')\nanswer";
    for (language, code) in [(Language::Python, python), (Language::Ruby, ruby)] {
        let mut asked = Vec::new();
        let ended = driver.ask(&Program { language, code, ..Program::default() }, |ask| {
            asked.push(ask.clone());
            reply(ask)
        });
        assert!(returned(&ended, &json!(["bug"])), "{language:?}: {ended:#?}");
        let infer = |instruction: &str, data, each, schema| Ask::Infer {
            instruction: instruction.to_owned(),
            data,
            each,
            schema,
        };
        let each = vec![number("1180591620717411303424"), json!("é")];
        let expected = [
            infer("Which?", Value::Null, Some(each), json!(["bug", "praise"])),
            infer("Read", json!({"a": null}), None, json!({"type": "object"})),
            Ask::Look { value: json!(["bug"]), why: "why".to_owned() },
        ];
        assert_eq!(asked, expected, "{language:?}");
    }
}

/// Through a list, no parser sees that it is an agent.
#[test]
fn an_agent_is_given_no_methods() {
    let driver = Driver::new();
    for (language, attach) in [
        (Language::Python, "t.work = lambda: 1"),
        (Language::Python, "setattr(t, 'work', print)"),
        (Language::Python, "t.work = t"),
        (Language::Python, "t.work = t.add"),
        (Language::Ruby, "t.define_singleton_method(:work) { 1 }"),
        (Language::Ruby, "t.send(:define_singleton_method, 'work') { 1 }"),
        (Language::Ruby, "def t.work = 1"),
        (Language::Ruby, "class << t; def work = 1; end"),
        (Language::Ruby, "t.instance_eval { def work = 1 }"),
    ] {
        let code = match language {
            Language::Python => format!("for t in [tool('adder')]:\n    {attach}"),
            Language::Ruby => format!("[tool('adder')].each do |t|\n    {attach}\nend"),
        };
        let mut asked = Vec::new();
        let ended = driver.ask(&Program { language, code: &code, ..Program::default() }, |ask| {
            asked.push(ask.clone());
            reply(ask)
        });
        assert_eq!(asked.last(), Some(&Ask::Attach { name: "work".into() }), "{code}");
        let refused = matches!(&ended, Ok(Done { ending: ReportEnding::Raised { class, message, .. }, .. })
            if class == "ToolRegistryViolation" && message == "no work");
        assert!(refused, "{code}: {ended:?}");
    }
}

#[test]
fn asks_nest_beyond_the_number_of_permits() {
    let driver = Driver::with(|options| options.max_running = 1);
    for language in BOTH {
        assert_eq!(nested(&driver, language, 4), json!(4));
    }
}

/// A program whose ask is answered by a program, and so on.
fn nested(driver: &Driver, language: Language, depth: u32) -> Value {
    let code = if depth == 0 { "0" } else { "content('deeper') + 1" };
    let ended = driver.ask(&Program { language, code, ..Program::default() }, |_| {
        Answer::Value(nested(driver, language, depth - 1))
    });
    value(&ended).cloned().unwrap()
}

#[test]
fn an_answer_too_big_to_cross_is_refused_inside_the_program() {
    let driver = Driver::new();
    for (language, code) in [
        (Language::Python, "try: content('big')\nexcept AskError as e: result = e.error_type"),
        (Language::Ruby, "begin; content('big'); rescue AskError => e; e.error_type; end"),
    ] {
        let big = "x".repeat(40 << 20);
        let program = Program { language, code, ..Program::default() };
        let ended = driver.ask(&program, |_| Answer::Value(json!(big)));
        assert!(returned(&ended, &json!("resource_limit")), "{ended:?}");
    }
}
