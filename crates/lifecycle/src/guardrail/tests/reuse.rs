//! `input_baked_code`, `state_key_drift`, and which programs may be kept.

use super::*;

#[test]
fn input_baked_code_and_cacheability() {
    use Cacheability::{ArgIgnoredCode, DelegatedContractTool, StableMethodDefault};
    let baked = Cacheability::InputBakedCode;
    let cases = [
        (Python, "result = 137 * 2", json!([137]), baked),
        (Python, "result = 137.0 * 2", json!([137]), baked),
        (Python, "result = -47 * 2", json!([-47]), baked),
        (Python, "url = 'https://x/?q=Ada Lovelace'\nresult = url", json!(["Ada Lovelace"]), baked),
        (Python, "result = f'Hi Ada Lovelace {1}'", json!([{"name": "Ada Lovelace"}]), baked),
        (Python, "args = [137]\nresult = args[0]", json!([137]), baked),
        (Python, "def add(x): return 137\nresult = add(137)", json!([137]), baked),
        (Python, "def other(x): return x\nresult = other(137)", json!([137]), baked),
        (
            Python,
            "class C:\n    def add(self, x): return x\nresult = C().add(137)",
            json!([137]),
            baked,
        ),
        (Python, "result = args[0] + 137", json!([137]), StableMethodDefault),
        (Python, "def add(x): return x + 137", json!([137]), StableMethodDefault),
        (Python, "import json\ndef other(x): return x + 137", json!([137]), StableMethodDefault),
        (Python, "def one(x): return x\ndef two(x): return 137", json!([137]), baked),
        (Python, "def add(self, *rest): return sum(rest) + 137", json!([137]), StableMethodDefault),
        (Python, "def add(context, x=137): return x", json!([137]), StableMethodDefault),
        (Python, "'''adds 137'''\nresult = 1", json!(["adds 137"]), ArgIgnoredCode),
        (Python, "result = {'total': 3}", json!(["total"]), ArgIgnoredCode),
        (
            Python,
            "result = [0, 1, -1, '', True, None]",
            json!([0, 1, -1, "", true, null]),
            ArgIgnoredCode,
        ),
        (Python, "context['n'] = context.get('n', 0) + 5", json!([7]), ArgIgnoredCode),
        (Python, "result = 'argsort'", json!([7]), ArgIgnoredCode),
        (Ruby, "137 * 2", json!([137]), baked),
        (Ruby, ":celsius", json!(["celsius"]), baked),
        (Ruby, "'args'; 137", json!([137]), baked),
        (Ruby, "\"Hi Ada Lovelace #{1}\"", json!(["Ada Lovelace"]), baked),
        (Ruby, "args = [137]; args[0]", json!([137]), baked),
        (
            Ruby,
            "123456789012345678901234567890",
            serde_json::from_str("[123456789012345678901234567890]").unwrap(),
            baked,
        ),
        (Ruby, "\"#{args[0]} 137\"", json!([137]), StableMethodDefault),
        (Ruby, "def add(x) = x + 137", json!([137]), StableMethodDefault),
        (Ruby, "def other(x) = x + 137", json!([137]), StableMethodDefault),
        (Ruby, "def other(x) = x\nother(137)", json!([137]), baked),
        (Ruby, "def add(ctx, by: 137)\n  ctx[:n] + by\nend", json!([137]), StableMethodDefault),
        (Ruby, "{ total: 3 }", json!(["total"]), ArgIgnoredCode),
        (Ruby, "context[:n] = 5", json!([7]), ArgIgnoredCode),
        (Ruby, "<<~TEXT\n  137\nTEXT", json!([137]), ArgIgnoredCode),
    ];
    for (language, source, args, expected) in cases.into_iter().chain(callables()) {
        let call = Call::with(&args);
        let inspection = inspect(language, source).unwrap();
        let input = call.input(language, &inspection);
        assert_eq!(cacheability(&input, false, ResultFrom::Function), expected, "{source}");
        let rules = if expected == baked { &[InputBakedCode][..] } else { &[] };
        check_call(language, source, &call, rules);
    }
    let inspection = inspect(Ruby, "1").unwrap();
    let call = Call::default();
    let input = call.input(Ruby, &inspection);
    assert_eq!(cacheability(&input, true, ResultFrom::Expression), DelegatedContractTool);
}

/// The parameters of a function are the call's arguments only if the harness called it.
#[test]
fn a_program_that_gives_its_result_itself_must_read_the_arguments_itself() {
    use Cacheability::{ArgIgnoredCode, StableMethodDefault};
    use ResultFrom::{Assigned, Expression, Function, Returned};
    let function = "def add(a, b): return a + b\nX = 1\n";
    for (end, args, result_from, expected) in [
        ("", json!([20, 30]), Function, StableMethodDefault),
        ("result = add(X, 2)", json!([20, 30]), Assigned, ArgIgnoredCode),
        ("return add(X, 2)", json!([20, 30]), Returned, ArgIgnoredCode),
        ("[add(X, 2)]", json!([20, 30]), Expression, ArgIgnoredCode),
        ("result = add(*args)", json!([20, 30]), Assigned, StableMethodDefault),
        ("result = add(X, 2)", json!([]), Assigned, StableMethodDefault),
    ] {
        let inspection = inspect(Python, &format!("{function}{end}")).unwrap();
        let call = Call::with(&args);
        let found = cacheability(&call.input(Python, &inspection), false, result_from);
        assert_eq!(found, expected, "{end} of {args}");
    }
}

#[test]
fn advice_that_cannot_pay_off_is_not_given() {
    let (call, method) = (Call::with(&json!([137])), "Ask");
    let inspection = inspect(Ruby, "137 * 2").unwrap();
    let asked = GuardrailInput { method, ..call.input(Ruby, &inspection) };
    assert_eq!(examine(&asked, &GuardrailPolicy::default()), []);
    let found = cacheability(&asked, true, ResultFrom::Expression);
    assert_eq!(found, Cacheability::DynamicDispatchMethod);
}

/// Programs in which another callable than a function takes the arguments, and programs with constants that prove nothing.
fn callables() -> Vec<(Language, &'static str, Value, Cacheability)> {
    use Cacheability::{ArgIgnoredCode, StableMethodDefault};
    let callable = "class Adder:\n    def __call__(self, x):\n        return x + 137\n";
    let instance = "add = Adder()";
    let source = format!("{callable}{instance}").leak();
    vec![
        (Python, "add = lambda x: x ** 2", json!([2]), StableMethodDefault),
        (Python, "add = lambda x: 137", json!([137]), Cacheability::InputBakedCode),
        (Python, "import operator\nadd = operator.add", json!([137, 2]), StableMethodDefault),
        (
            Python,
            "from functools import partial\nadd = partial(pow, 137)",
            json!([137]),
            StableMethodDefault,
        ),
        (Python, source, json!([137]), StableMethodDefault),
        (Ruby, "define_method(:add) { |x| x + 137 }", json!([137]), StableMethodDefault),
        (Python, "result = 3.5 ** 2", json!([2]), ArgIgnoredCode),
        (Python, "result = round(3.14159, 2) * 100 / 60", json!([60, 100]), ArgIgnoredCode),
        (Ruby, "[1, 2].join(', ')", json!([", "]), ArgIgnoredCode),
        (Ruby, "0.5 * 365 + 32", json!([0.5, 32, 365]), ArgIgnoredCode),
    ]
}

#[test]
fn state_key_drift() {
    let state = |method: &str, reads: &[&str], writes: &[&str]| SiblingState {
        method: method.to_owned(),
        reads: reads.iter().map(|&key| key.to_owned()).collect(),
        writes: writes.iter().map(|&key| key.to_owned()).collect(),
    };
    let values = [("value".to_owned(), json!(1)), ("notes".to_owned(), json!(["a"]))];
    let call = Call {
        siblings: vec![
            state("increment", &["value"], &["value"]),
            state("add_note", &["notes"], &["notes"]),
        ],
        context: Context::restored(1, values),
        ..Call::default()
    };
    for (language, source) in [
        // A key that is read and that no method writes.
        (Python, "result = context['total']"),
        (Python, "result = context.get('total')"),
        (Ruby, "memory[:total]"),
        (Ruby, "context.total.abs"),
        // Another name for a key that is kept, with a value of the same type.
        (Python, "context['values'] = context.get('values', 0) + args[0]"),
        (Python, "context.setdefault('note', []).append(args[0])"),
        (Python, "result = context.get('valu')"),
    ] {
        check_call(language, source, &call, &[StateKeyDrift]);
        check(language, source, &[]);
    }
    for (language, source) in [
        (Python, "context['value'] = context.get('value', 0) + args[0]"),
        (Python, "context['value'] += 1\ncontext['last'] = args[0]"),
        (Python, "result = context['tools'] and context.conversation_history"),
        (Python, "result = context.get(args[0])"),
        (Python, "result = \"context['total']\""),
        (Ruby, "context[:value] = context.fetch(:value, 0) + args[0]"),
        (Ruby, "context.value"),
        (Ruby, "[context.keys, context.size, context.empty?, context.to_h.keys]"),
        (Python, "result = [list(context.keys()), len(context), dict(context)]"),
        (Ruby, "context.key?(:total)"),
        // Other methods keep other keys: that is not evidence.
        (Python, "context['total'] = context.get('total', 0) + args[0]"),
        (Python, "context.setdefault('tasks', []).append(args[0])"),
        (Python, "remember(total=args[0])"),
        (Ruby, "context[:total] ||= 0\ncontext[:total] += args[0]"),
        (Ruby, "def add(ctx, x)\n ctx[:sum] = ctx.fetch(:sum, 0) + x\nend"),
        // The program handles a key that may be absent.
        (Python, "result = context.get('total', 0) + args[0]"),
        (Python, "result = context.get('note', [])"),
        (Ruby, "context.fetch(:total, 0) + args[0]"),
        (Ruby, "context[:note] || []"),
        (Python, "result = context.get('tasks', {})"),
        (Python, "result = context.get('tasks') or []"),
        // The method is called `add`.
        (Python, "result = context['adds'] + context['add']"),
        (Python, "result = len(context['tasks']) if 'tasks' in context else 0"),
        (Python, "try:\n    result = context['tasks']\nexcept KeyError:\n    result = []"),
        (Ruby, "(context[:tasks] || []).size"),
        (Ruby, "context.fetch(:tasks, {}).size"),
        (Ruby, "context[:tasks]&.size"),
        (Ruby, "context[:tasks].size if context.key?(:tasks)"),
        // The same first letter is not another spelling.
        (Python, "context['visits'] = context.get('visits', 0) + 1\nresult = args[0]"),
        (Ruby, "context[:notices] = (context[:notices] || []) + [args[0]]"),
        // A similar name for a value of another type; a name that differs in a number.
        (Python, "context['values'] = {'a': args[0]}"),
        (Python, "context['value2'] = 5"),
        // Keys beside the shared state.
        (Python, "result = context['value'] * context.get('rate', 1)"),
        (Python, "result = context['unit'] if 'unit' in context else context['value']"),
        (Ruby, "context[:value] * (context[:rate] || 1)"),
        (Ruby, "context[:value].round(context.fetch(:digits, 2))"),
    ] {
        check_call(language, source, &call, &[]);
    }
    let inspection = inspect(Ruby, "context[:total]").unwrap();
    let violations = examine(&call.input(Ruby, &inspection), &GuardrailPolicy::default());
    assert!(violations[0].required_correction.contains("`value`"), "{violations:?}");
    assert!(!violations[0].forbids_reuse());
}
