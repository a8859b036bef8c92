//! Typos of the caller do not cost a program.

use recurgent::Arguments;
use serde_json::{Value, json};

use crate::{check, code, metadata};

#[test]
fn three_typos_do_not_cost_a_program() {
    check(|fixture| {
        fixture.writes("c.add", "def add(x):\n    return 5 + x", "def add(x) = 5 + x");
        let agent = fixture.agent("c", "off");
        assert_eq!(agent.call("add", (3,)).unwrap().value(), Some(&json!(8)));
        for typo in ["foo", "bar", "baz"] {
            fixture.refuse_model_key("c.add");
            let outcome = agent.call("add", (typo,)).unwrap();
            assert_eq!(code(&outcome), "execution", "{outcome:?}");
            let message = &outcome.failure().unwrap().message;
            assert!(message.starts_with("TypeError: "), "{message}");
            assert_eq!(metadata(&outcome, "blame"), Some("caller"));
            assert_eq!(metadata(&outcome, "parameters"), Some("x"));
            assert_eq!(metadata(&outcome, "repair_error_type"), Some("provider_auth"));
        }
        let asked = fixture.asked();
        assert_eq!(agent.call("add", (4,)).unwrap().value(), Some(&json!(9)));
        assert_eq!(fixture.asked(), asked, "the stored program still runs");
        assert_eq!(fixture.failures("c", "add"), 0);
    });
}

/// Also where the typo has the type of what the program was accepted with: a date that does not exist, a fraction where
/// only integers were given, a name that is not among those known, a zero; and if the program reads the clock.
#[test]
fn typos_of_the_same_type_do_not_cost_a_program() {
    const DAY: (&str, &str) = (
        "import datetime\ndef m(d):\n    return datetime.date.fromisoformat(d).day",
        "require 'date'\ndef m(d) = Date.iso8601(d).day",
    );
    const REPEAT: (&str, &str) = (
        "def m(n):\n    return [n for _ in range(n)]",
        "def m(n)\n  raise TypeError, 'no Integer' unless n.is_a?(Integer)\n  Array.new(n, n)\nend",
    );
    const RATE: (&str, &str) = (
        "def m(unit):\n    if unit not in ('m', 'km'):\n        raise ValueError('no unit: ' + unit)\n    return unit",
        "def m(unit)\n  raise ArgumentError, \"no unit: #{unit}\" unless %w[m km].include?(unit)\n  unit\nend",
    );
    const UNTIL: (&str, &str) = (
        "import datetime\ndef m(d):\n    date = datetime.date.fromisoformat(d)\n    \
         return [date.day, str(datetime.date.today())][0]",
        "require 'date'\ndef m(d) = [Date.iso8601(d).day, Date.today.to_s][0]",
    );
    const SCALE: (&str, &str) = (
        "class NoScale(Exception):\n    pass\ndef m(name):\n    if name not in ('C', 'F'):\n        raise NoScale(name)\n    return name",
        "def m(name)\n  raise \"no scale #{name}\" unless %w[C F].include?(name)\n  name\nend",
    );
    const HALF: (&str, &str) = ("def m(x):\n    return 10 // x", "def m(x) = 10 / x");
    for ((python, ruby), proven, typos) in [
        (DAY, json!("2024-01-05"), [json!("2024-13-45"), json!("tomorrow"), json!("05/01/2024")]),
        (REPEAT, json!(2), [json!(2.5), json!(0.1), json!(1.5)]),
        (RATE, json!("km"), [json!("mile"), json!("inch"), json!("KM")]),
        (SCALE, json!("C"), [json!("K"), json!("R"), json!("X")]),
        (UNTIL, json!("2030-01-01"), [json!("2030-13-45"), json!("tomorow"), json!("1/2/2030")]),
        (HALF, json!(5), [json!(0), json!(0), json!(0)]),
    ] {
        check(|fixture| {
            fixture.writes("c.m", python, ruby);
            let agent = fixture.agent("c", "off");
            let first = agent.call("m", (proven.clone(),)).unwrap();
            assert!(first.is_ok(), "{first:?}");
            for typo in &typos {
                fixture.refuse_model_key("c.m");
                let outcome = agent.call("m", (typo.clone(),)).unwrap();
                assert_eq!(metadata(&outcome, "blame"), Some("caller"), "{typo}: {outcome:?}");
                let message = &outcome.failure().unwrap().message;
                let is_proven = typo.is_string() || *typo == json!(0);
                assert_eq!(message.contains("tools reject c m"), is_proven, "{message}");
                assert_ne!(message.contains("never accepted"), is_proven, "{message}");
            }
            assert_eq!(fixture.failures("c", "m"), 0);
            let asked = fixture.asked();
            let again = agent.call("m", (proven.clone(),)).unwrap();
            assert_eq!((again.value(), fixture.asked()), (first.value(), asked));
        });
    }
}

/// Also where the typo is inside a record: in a list, in an object of an object, in one record of several.
#[test]
fn typos_in_records_do_not_cost_a_program() {
    let proven = json!([[{"v": 1}, {"v": 2}], {"at": {"day": 3}}]);
    let typos = [
        json!([[{"w": 1}], {"at": {"day": 3}}]),
        json!([[{"v": 1}, {"V": 2}], {"at": {"day": 3}}]),
        json!([[{"v": "1"}], {"at": {"day": 3}}]),
        json!([[{"v": 1}], {"at": {"dya": 3}}]),
    ];
    check(|fixture| {
        fixture.writes(
            "c.total",
            "def total(rows, when):\n    return sum(row['v'] for row in rows) + when['at']['day']",
            "def total(rows, at) = rows.sum { |row| row.fetch('v') } + at['at'].fetch('day')",
        );
        let agent = fixture.agent("c", "off");
        let call = |args: &Value| {
            let args = args.as_array().unwrap().clone();
            agent.call("total", Arguments { args, ..Arguments::default() }).unwrap()
        };
        assert_eq!(call(&proven).value(), Some(&json!(6)));
        for typo in &typos {
            fixture.refuse_model_key("c.total");
            let outcome = call(typo);
            assert_eq!(metadata(&outcome, "blame"), Some("caller"), "{typo}: {outcome:?}");
        }
        assert_eq!(fixture.failures("c", "total"), 0);
        let other = json!([[{"v": 5}], {"at": {"day": 0}}]);
        assert_eq!(call(&other).value(), Some(&json!(5)), "the stored program still runs");
    });
}
