//! `docs/guardrails.md` is written from the rules' own constants. A test checks that it is fresh (`UPDATE_DOCS=1`
//! writes it), and that every example in it is true.
#![expect(clippy::disallowed_methods, reason = "a test reads and writes the page")]
#![cfg(test)]

use std::fmt::Write as _;
use std::path::Path;

use lifecycle::context::Context;
use lifecycle::dialect::{Language, inspect};
use lifecycle::guardrail::{
    GuardrailInput, GuardrailPolicy, Rule, RuleCheck, RuleExample, Severity, SiblingState,
    ValueInput, Violation, examine, examine_request, examine_value,
};
use lifecycle::provenance::Observation;
use lifecycle::request::Arguments;
use serde_json::{Map, Value, json};

const HEAD: &str = "\
# Guardrails

<!-- Written from the rules' own constants by crates/lifecycle/tests/guardrails.rs; run it with UPDATE_DOCS=1. -->

What a program may not do. A rule reads the program's syntax tree (text in strings and comments never counts), what the
program asks for while it runs, or the value it returns; the table says which, as the time when it is decided.
A program that breaks a rule is rejected and written again, with the violation, its place and the correction as
feedback. Guardrails shape iteration; the sandbox is the security boundary ([security.md](security.md)).

*Recoverable* rules use the guardrail lane (`guardrail_recovery_budget`). *Advisory* ones are reported once; if the
program stays as it is, or nothing better comes, it may run and answer, but is not kept. *Terminal* ones, those named
in `guardrail_terminal` ([configuration.md](configuration.md)) by subtype or by type, end the call at once; the table
shows its default. A stored program that breaks a rule before it runs was kept under another policy: it is replaced.

| subtype | type | severity | decided |
|---|---|---|---|
";

const CORPUS: &str = "
## False positives

Rules are measured on honest programs: written without reading the rules, or recorded from a model
(`crates/recurgent/tests/honest`). Each is vetted and executed, beside the other programs of its role, and states its
answer. No program of the set declares a package, so `unused_dependency` is not measured. The table counts the programs
a rule objected to; it is written by that test, which fails at 1 % of the programs of a guest, or at one program for a rule that ends the call.

";
/// Around the table.
const MARKS: [&str; 2] = ["<!-- honest programs -->\n", "<!-- /honest programs -->\n"];

#[test]
fn the_manual_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guardrails.md");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let manual = manual(measured(&written));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &manual).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == manual, "docs/guardrails.md is stale; run this test with UPDATE_DOCS=1");
}

#[test]
fn the_examples_of_every_rule_are_true() {
    for &rule in Rule::ALL {
        for example in rule.guardrail().examples {
            let found = check(rule, example);
            assert_eq!(
                found.is_none(),
                example.passes,
                "{}, {}: {found:?} in\n{}",
                rule.subtype(),
                example.language,
                example.code
            );
        }
    }
}

#[test]
fn every_rule_that_reads_programs_shows_both_verdicts_in_both_languages() {
    for &rule in Rule::ALL {
        if !matches!(rule.guardrail().check, RuleCheck::Program(_)) {
            continue;
        }
        for language in Language::ALL {
            for passes in [false, true] {
                let mut examples = rule.guardrail().examples.iter();
                assert!(
                    examples.any(|it| it.language == language && it.passes == passes),
                    "{} has no {language} example with passes = {passes}",
                    rule.subtype()
                );
            }
        }
    }
}

/// The table of false positives, which the test that runs the programs writes.
fn measured(page: &str) -> &str {
    let [begin, end] = MARKS;
    let after = page.split_once(begin).map_or("", |(_, after)| after);
    after.split_once(end).map_or("", |(table, _)| table)
}

fn manual(measured: &str) -> String {
    let mut page = HEAD.to_owned();
    for &rule in Rule::ALL {
        let subtype = rule.subtype();
        let _ = writeln!(
            page,
            "| [`{subtype}`](#{subtype}) | `{}` | {} | {} |",
            rule.violation_type().name(),
            severity(rule),
            decided(rule),
        );
    }
    let [begin, end] = MARKS;
    let _ = write!(page, "{CORPUS}{begin}{measured}{end}");
    for &rule in Rule::ALL {
        let guardrail = rule.guardrail();
        let (first, rest) = guardrail.summary.split_at(1);
        let _ = write!(page, "\n## {}\n\n", guardrail.subtype);
        let _ = write!(page, "{}{rest}.\n\n{}\n", first.to_uppercase(), guardrail.details);
        for language in Language::ALL {
            page.push_str(&shown(guardrail.examples, language));
        }
        let _ = write!(page, "\nCorrection shown to the model: *{}*\n", guardrail.correction);
    }
    page
}

/// The examples of one language, in a fence.
fn shown(examples: &[RuleExample], language: Language) -> String {
    let examples = examples.iter().filter(|example| example.language == language);
    let block = |example: &RuleExample| {
        let mut comment = if example.passes { "# passes" } else { "# violates" }.to_owned();
        if example.args != "[]" {
            let _ = write!(comment, ", called with {}", example.args);
        }
        if !example.declared.is_empty() {
            let _ = write!(comment, ", declaring {}", example.declared.join(", "));
        }
        if !example.sibling_writes.is_empty() {
            let _ = write!(comment, "; other methods write {}", example.sibling_writes.join(", "));
        }
        format!("{comment}\n{}", example.code)
    };
    let blocks: Vec<String> = examples.map(block).collect();
    if blocks.is_empty() {
        return String::new();
    }
    format!("\n```{}\n{}\n```\n", language.name(), blocks.join("\n\n"))
}

fn severity(rule: Rule) -> &'static str {
    match rule.guardrail().severity {
        Severity::Recoverable => "recoverable",
        Severity::Terminal => "terminal",
        Severity::Advisory => "advisory",
    }
}

fn decided(rule: Rule) -> &'static str {
    match rule.guardrail().check {
        RuleCheck::Program(_) => "before it runs",
        RuleCheck::Request(_) => "while it runs",
        RuleCheck::Value(_) => "after it ran",
    }
}

/// What the rule finds in an example.
fn check(rule: Rule, example: &RuleExample) -> Option<Violation> {
    let inspection = inspect(example.language, example.code)
        .unwrap_or_else(|fault| panic!("{fault} in\n{}", example.code));
    let owned =
        |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
    let siblings = [SiblingState {
        method: "add".to_owned(),
        reads: owned(example.sibling_writes),
        writes: owned(example.sibling_writes),
    }];
    let kept = example.sibling_writes.iter().map(|&key| (key.to_owned(), json!(0)));
    let context = Context::restored(1, kept);
    let args: Vec<Value> = serde_json::from_str(example.args).unwrap();
    let input = GuardrailInput {
        language: example.language,
        role: "calculator",
        method: "convert",
        args: &args,
        kwargs: &Map::new(),
        declared: &owned(example.declared),
        holds_packages: false,
        sibling_state: if example.sibling_writes.is_empty() { &[] } else { &siblings },
        context: &context,
        inspection: &inspection,
    };
    match rule.guardrail().check {
        RuleCheck::Program(_) => {}
        RuleCheck::Request(_) => {
            return inspection.agents().find_map(|(asked, _)| examine_request(input.role, asked));
        }
        RuleCheck::Value(_) => {
            let value: Value = serde_json::from_str(example.returns).unwrap();
            let arguments = Arguments { args, ..Arguments::default() };
            let observed = Observation::of_no_network();
            return examine_value(&ValueInput {
                inspection: &inspection,
                arguments: &arguments,
                observed: &observed,
                value: &value,
            });
        }
    }
    let found = examine(&input, &GuardrailPolicy::default());
    found.into_iter().find(|violation| violation.rule == rule)
}
