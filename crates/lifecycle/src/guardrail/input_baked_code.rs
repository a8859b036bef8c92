//! The rule `input_baked_code`, against the arguments of this call written as literals, and never read.

use Language::{Python, Ruby};
use serde_json::Value;

use crate::artifact::RunVerdict;
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
    permitted_by: None,
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "the arguments of this call written as literals, and never read",
    details: "\
Such a program answers this call and no other, so it cannot be kept. A program that reads `args`, `kwargs` or the
parameters of its function or callable passes. Values that programs contain anyway are not evidence: true, false and
null, whole numbers from -16 to 16, the usual constants of units and rounding (24, 32, 60, 100, 365, 0.5, ...), and
texts without a letter or of one character. Methods whose programs are never reused (`ask`, `chat`, ...) are not
advised.",
    correction: "Read the inputs from `args` and `kwargs`, or define a function with parameters.",
    examples: &[
        violates(Python, "result = 37.5 * 9 / 5 + 32").called_with("[37.5]"),
        passes(Python, "result = args[0] * 9 / 5 + 32").called_with("[100]"),
        passes(Python, "convert = lambda celsius: celsius * 9 / 5 + 32").called_with("[32]"),
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
    if !input.has_inputs()
        || super::is_dynamic(input.method)
        || input.inspection.reads_inputs(input.language, input.method)
    {
        return None;
    }
    let mut inputs = Vec::new();
    input.args.iter().chain(input.kwargs.values()).for_each(|input| evidence(input, &mut inputs));
    let is_input = |literal: &&Literal| inputs.iter().any(|input| is_baked(&literal.value, input));
    input.inspection.literals.iter().find(is_input)
}

/// Whole numbers up to this size are written in programs of every kind.
const SMALL: f64 = 16.0;

/// Larger numbers that are: of units, calendars, rounding and storage.
#[rustfmt::skip]
const NATURAL_NUMBERS: &[f64] = &[
    0.01, 0.1, 0.25, 0.5, 0.75, 1.5, 1.8, 2.54, 9.81, 20.0, 24.0, 25.0, 28.0, 30.0, 31.0, 32.0,
    50.0, 52.0, 60.0, 64.0, 90.0, 99.0, 100.0, 120.0, 128.0, 180.0, 200.0, 255.0, 256.0, 273.15,
    360.0, 365.0, 366.0, 400.0, 500.0, 512.0, 999.0, 1000.0, 1024.0, 1440.0, 3600.0, 4096.0,
    10_000.0, 65_535.0, 65_536.0, 86_400.0, 100_000.0, 1_000_000.0,
];

/// Whether a number is a constant that programs contain whatever they are called with.
fn is_natural_number(number: f64) -> bool {
    let small = number.fract() == 0.0 && number.abs() <= SMALL;
    small || NATURAL_NUMBERS.contains(&number.abs())
}

/// Whether a text is one: a separator, a sign, a letter.
fn is_natural_text(text: &str) -> bool {
    text.trim().chars().count() <= 1 || !text.chars().any(char::is_alphanumeric)
}

/// Collects the scalars in `input` whose presence in a program is evidence.
fn evidence<'a>(input: &'a Value, found: &mut Vec<&'a Value>) {
    if found.len() >= MAX_INPUTS {
        return;
    }
    match input {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            let natural = number.as_f64().is_some_and(is_natural_number);
            found.extend((!natural).then_some(input));
        }
        Value::String(text) => found.extend((!is_natural_text(text)).then_some(input)),
        Value::Array(items) => items.iter().for_each(|item| evidence(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| evidence(field, found)),
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
