//! The tour with a real model: nothing is recorded, so answers may be wrong, and the tour says so.

use recurgent::{Agent, Arguments, Cause, Example, Method, Outcome, ProgramFault};
use serde_json::{Value, json};

use super::chapters::same;
use super::{DemoFault, DemoRun, unexpected};
use crate::render::paint::{Style, broken};

/// Before what is said about an answer.
const INDENTATION: &str = "    ";

/// A method, what it is for, and two calls of it with the answers they should give.
struct Pair {
    role: &'static str,
    method: &'static str,
    purpose: &'static str,
    calls: [(Value, Value); 2],
}

/// Right and wrong answers of a tour.
#[derive(Debug, Default)]
pub(super) struct Score {
    right: u32,
    asked: u32,
}

impl Score {
    /// `5 of 6`.
    pub(super) fn text(&self) -> String {
        format!("{} of {}", self.right, self.asked)
    }
}

/// Methods that a model writes, then the same methods with other arguments, which need no model.
pub(super) fn written(demo: &DemoRun<'_>, score: &mut Score) -> Result<(), DemoFault> {
    demo.chapter("1  Written", "the model writes each program once; the second call runs it");
    for pair in pairs() {
        let agent = demo.agent_for(pair.role, pair.purpose)?;
        for (arguments, expected) in &pair.calls {
            let outcome = called(&agent, pair.method, arguments)?;
            demo.judge(&outcome, expected, score)?;
        }
    }
    Ok(())
}

/// A method whose name says too little: two examples say the rest, and programs run on them before they answer.
pub(super) fn taught(demo: &DemoRun<'_>, score: &mut Score) -> Result<(), DemoFault> {
    demo.chapter("2  Taught", "two examples say what a name cannot");
    let agent = demo.agent_for("librarian", "write the name of an author for a catalogue")?;
    let examples = [("Mary Shelley", "SHELLEY, Mary"), ("Italo Calvino", "CALVINO, Italo")];
    let method = Method::parse("entry").map_err(ProgramFault::from)?;
    for (name, entry) in examples {
        let example = Example::parse(&json!({"args": [name], "value": entry}));
        let example = example.map_err(|fault| DemoFault::Example(fault.to_string()))?;
        demo.runtime.programs().teach(agent.role(), &method, &example)?;
        demo.print_note(&format!("librarian.entry(\"{name}\") gives \"{entry}\""), "taught");
    }
    for (name, expected) in [("Ursula Guin", "GUIN, Ursula"), ("Jorge Borges", "BORGES, Jorge")] {
        let outcome = called(&agent, "entry", &json!([name]))?;
        demo.judge(&outcome, &json!(expected), score)?;
    }
    Ok(())
}

fn called(agent: &Agent, method: &str, arguments: &Value) -> Result<Outcome, DemoFault> {
    let args = arguments.as_array().cloned().unwrap_or_default();
    Ok(agent.call(method, Arguments { args, ..Arguments::default() })?)
}

fn pairs() -> [Pair; 3] {
    [
        Pair {
            role: "calculator",
            method: "add",
            purpose: "add two numbers",
            calls: [(json!([3, 4]), json!(7)), (json!([20, 22]), json!(42))],
        },
        Pair {
            role: "invoice reader",
            method: "total",
            purpose: "the total of invoice lines, each [name, quantity, unit price]",
            calls: [
                (json!([[["pens", 2, 1.5], ["ink", 1, 7.0]]]), json!(10)),
                (json!([[["paper", 3, 4.0]]]), json!(12)),
            ],
        },
        Pair {
            role: "editor",
            method: "slug",
            purpose: "a slug of a title: lower case, words joined by hyphens",
            calls: [
                (json!(["Hello World Again"]), json!("hello-world-again")),
                (json!(["A Room With a View"]), json!("a-room-with-a-view")),
            ],
        },
    ]
}

impl DemoRun<'_> {
    /// Says whether an answer is right. A wrong one is the model's; a call that could not be made ends the tour.
    fn judge(
        &self,
        outcome: &Outcome,
        expected: &Value,
        score: &mut Score,
    ) -> Result<(), DemoFault> {
        if outcome.failure().is_some_and(|failure| failure.kind.cause() == Cause::Extrinsic) {
            return Err(no_model(outcome, expected));
        }
        score.asked += 1;
        if outcome.value().is_some_and(|value| same(value, expected)) {
            score.right += 1;
            return Ok(());
        }
        let correction = "recurgent tools reject, teach and edit correct it";
        let judgement = format!("not right: it should be {expected}; {correction}");
        for line in broken(&judgement, self.width.saturating_sub(INDENTATION.len())) {
            self.say(&self.paint.in_style(Style::Bad, &format!("{INDENTATION}{line}")));
        }
        self.say("");
        Ok(())
    }
}

/// The fault of a tour whose model does not answer; the guest may be missing as well.
fn no_model(outcome: &Outcome, expected: &Value) -> DemoFault {
    match (unexpected(outcome, expected.to_string()), outcome.failure()) {
        (DemoFault::Unexpected { .. }, Some(failure)) => {
            DemoFault::NoModel(Box::new(failure.clone()))
        }
        (fault, _) => fault,
    }
}
