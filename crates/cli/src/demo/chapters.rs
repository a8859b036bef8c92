//! The calls of the demo and their expected results.

use recurgent::{Arguments, call};
use serde_json::{Value, json};

use super::feeds::Feeds;
use super::{DemoFault, DemoRun, expect, expect_at, expect_failure};

/// Calls methods whose programs are written on the first call.
pub(super) fn calculator(demo: &DemoRun<'_>) -> Result<(), DemoFault> {
    demo.chapter("1  Calculator", "any method works: written when it is first called");
    let calculator = demo.agent("calculator")?;
    calculator.set("memory", 5)?;
    demo.print_note("calculator.memory = 5", "set, no program");
    expect(&call!(calculator.add(3))?, &json!(8))?;
    expect(&call!(calculator.multiply(4))?, &json!(32))?;
    expect(&call!(calculator.sqrt(144))?, &json!(12))?;
    expect(&call!(calculator.factorial(10))?, &json!(3_628_800))?;
    let boiling = call!(calculator.convert(100, from: "celsius", to: "fahrenheit"))?;
    expect(&boiling, &json!(212))?;
    expect(&call!(calculator.solve("2x + 5 = 17"))?, &json!(6))?;
    expect(
        &call!(calculator.history())?,
        &json!([
            "add(3) -> ok",
            "multiply(4) -> ok",
            "sqrt(144) -> ok",
            "factorial(10) -> ok",
            "convert(100, from: \"celsius\", to: \"fahrenheit\") -> ok",
            "solve(\"2x + 5 = 17\") -> ok",
        ]),
    )
}

/// Tools that are forged once and used again, answers that name their source, and a capability that is missing.
pub(super) fn assistant(demo: &DemoRun<'_>, feeds: &Feeds) -> Result<(), DemoFault> {
    demo.chapter("2  Assistant", "forges two tools, then uses them again");
    let assistant = demo.agent("assistant")?;

    let harbour = feeds.url("harbour.xml");
    let news = assistant.call("ask", (format!("What is the news at {harbour}?"),))?;
    expect_at(
        &news,
        "/headlines",
        &json!([
            "Island ferry runs all winter for the first time",
            "Lighthouse keeper's log found after ninety years",
            "Fishers & divers agree on a reef map",
        ]),
    )?;
    expect_at(&news, "/provenance/sources/0/uri", &json!(harbour))?;

    let workshop = feeds.url("workshop.xml");
    let latest = assistant.call("ask", (format!("The latest at {workshop}?"),))?;
    expect_at(&latest, "/latest", &json!("The town clock keeps time to the second"))?;

    let sky = feeds.url("sky.xml");
    let comets = assistant.call("ask", (format!("Anything about a comet at {sky}?"),))?;
    expect_at(
        &comets,
        "/stories",
        &json!(["A comet you can see without a telescope", "Schoolchildren name a comet crater",]),
    )?;

    let source = assistant.call("ask", ("What's the source?",))?;
    expect_at(&source, "/source", &json!(sky))?;

    let mars = assistant.call("ask", ("Book me a flight to Mars.",))?;
    expect_failure(&mars, "unsupported_capability")
}

/// Methods whose first programs fail.
pub(super) fn recovery(demo: &DemoRun<'_>) -> Result<(), DemoFault> {
    demo.chapter("3  Recovery", "what fails is rolled back and repaired with exact feedback");
    let editor = demo.agent("editor")?;
    let text = "the quick brown fox jumps over the lazy dog";
    expect(&call!(editor.word_count(text))?, &json!(9))?;

    let accountant = demo.agent("accountant")?;
    let prices = Arguments { args: vec![json!(["12.50", "n/a", "7.50"])], ..Arguments::default() };
    expect(
        &accountant.call("average", prices)?,
        &json!({"average": 10, "counted": 2, "skipped": ["n/a"]}),
    )
}

/// Whether two values are equal. Numbers are compared by value: 8 equals 8.0.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        (one, other) => one == other,
    }
}
