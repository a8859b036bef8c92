//! The rule `input_baked_code`: [`GUARDRAIL`] says what it is about.

use Language::{Python, Ruby};
use serde_json::Value;

use crate::dialect::{Language, Literal};

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "input_baked_code",
    violation_type: ViolationType::Reuse,
    severity: Severity::Advisory,
    failure: None,
    check: RuleCheck::Program(find),
    summary: "the arguments of this call written as literals, and never read",
    details: "\
Such a program answers this call and no other, so it cannot be kept. A program that reads `args`, `kwargs` or the
parameters of its function passes, and 0, 1, -1, \"\", true, false and null are not evidence.",
    correction: "Read the inputs from `args` and `kwargs`, or define a function with parameters.",
    examples: &[
        violates(Python, "result = 100 * 9 / 5 + 32").called_with("[100]"),
        passes(Python, "result = args[0] * 9 / 5 + 32").called_with("[100]"),
        passes(Python, "def convert(celsius):\n    return celsius * 9 / 5 + 32").called_with("[100]"),
        violates(Ruby, "\"Hello, Ada Lovelace!\"").called_with("[\"Ada Lovelace\"]"),
        passes(Ruby, "\"Hello, #{args[0]}!\"").called_with("[\"Ada Lovelace\"]"),
    ],
};

/// How long an input text must be to count when it is only a part of a literal.
const EMBEDDED_BYTES: usize = 8;

/// The most scalars of a call's inputs that are looked for.
const MAX_INPUTS: usize = 256;

/// The longest input shown in a message.
const SHOWN_CHARACTERS: usize = 40;

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    let literal = baked_literal(input)?;
    let shown: String = literal.value.to_string().chars().take(SHOWN_CHARACTERS).collect();
    let message =
        format!("the input {shown} of this call is written into the program, which never reads it");
    Some(Finding::at(literal.position, message).correct_by(format!(
        "Read the inputs from `args` and `kwargs`, or define a function `{}` with parameters, so \
         that the program answers any call of this method.",
        input.method
    )))
}

/// The first literal that is an input of this call, in a program that reads no input.
pub(super) fn baked_literal<'a>(input: &GuardrailInput<'a>) -> Option<&'a Literal> {
    if !input.has_inputs() || input.inspection.reads_inputs(input.method) {
        return None;
    }
    let mut inputs = Vec::new();
    input.args.iter().chain(input.kwargs.values()).for_each(|input| telling(input, &mut inputs));
    let is_input = |literal: &&Literal| inputs.iter().any(|input| is_baked(&literal.value, input));
    input.inspection.literals.iter().find(is_input)
}

/// Collects the scalars in `input` whose presence in a program tells something.
fn telling<'a>(input: &'a Value, found: &mut Vec<&'a Value>) {
    if found.len() >= MAX_INPUTS {
        return;
    }
    match input {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            let trivial = number.as_f64().is_some_and(|n| [0.0, 1.0, -1.0].contains(&n));
            found.extend((!trivial).then_some(input));
        }
        Value::String(text) => found.extend((!text.trim().is_empty()).then_some(input)),
        Value::Array(items) => items.iter().for_each(|item| telling(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| telling(field, found)),
    }
}

fn is_baked(literal: &Value, input: &Value) -> bool {
    match (literal, input) {
        (Value::String(literal), Value::String(input)) => {
            let input = input.trim();
            literal.trim() == input || (input.len() >= EMBEDDED_BYTES && literal.contains(input))
        }
        (Value::Number(literal), Value::Number(input)) => {
            literal == input || (literal.as_f64().is_some() && literal.as_f64() == input.as_f64())
        }
        _ => false,
    }
}
