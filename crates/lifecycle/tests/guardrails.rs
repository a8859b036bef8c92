//! The manual of the guardrails is written from their own files: `docs/guardrails.md` is the head of each rule's
//! file and what its examples are told. A test keeps it fresh (`UPDATE_DOCS=1` writes it), and the examples true.
#![expect(clippy::disallowed_methods, reason = "a test reads the sources and writes the page")]
#![cfg(test)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lifecycle::dialect::{Language, inspect};
use lifecycle::guardrail::{
    GuardrailPolicy, Rule, SiblingState, Subject, Violation, check_provenance, examine,
};
use serde_json::{Map, Value, json};

const HEAD: &str = "\
# Guardrails

<!-- Written from the rules' own files by crates/lifecycle/tests/guardrails.rs; run it with UPDATE_DOCS=1. -->

What a program may not do. Each rule reads the program's syntax tree, so text in strings and comments never counts.
A program that breaks one is rejected and written again, told what was wrong, where, and what to do instead.
Guardrails shape iteration; the sandbox is the security boundary ([security.md](security.md)).

*Recoverable* rules use the guardrail lane (`guardrail_recovery_budget`). *Advisory* ones are told once; if the program
stays as it is, or nothing better comes, it may run and answer, but is not kept. *Terminal* ones, those named in
`guardrail_terminal` ([configuration.md](configuration.md)) by subtype or by type, end the call at once; the table
shows its default. A stored program that breaks one before it runs was kept under another policy: it is replaced.

In the examples, comments say what happens: *barred* (rejected), *told* (advised), *passes*. They are checked.

| subtype | type | severity | found |
|---|---|---|---|
";

#[test]
fn the_manual_is_fresh() {
    let manual = manual();
    let path = root().join("docs/guardrails.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &manual).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == manual, "docs/guardrails.md is stale; run this test with UPDATE_DOCS=1");
}

#[test]
fn the_examples_of_every_rule_are_true() {
    for rule in Rule::ALL {
        let head = Head::read(rule);
        for language in Language::ALL {
            let example = head.example(language);
            let barred = told(rule, language, &example.without("passes"));
            let passes = told(rule, language, &example.without("barred"));
            assert!(
                barred.is_some(),
                "{}, in {language}: nothing is barred in\n{}",
                rule.subtype(),
                example.0
            );
            assert!(
                passes.is_none(),
                "{}, in {language}: {passes:?} in\n{}",
                rule.subtype(),
                example.0
            );
            assert_ne!(example.without("barred").trim(), "", "{}: nothing passes", rule.subtype());
        }
    }
}

fn manual() -> String {
    let mut page = HEAD.to_owned();
    for rule in Rule::ALL {
        let subtype = rule.subtype();
        let _ = writeln!(
            page,
            "| [`{subtype}`](#{subtype}) | `{}` | {} | {} |",
            rule.violation_type().name(),
            severity(rule),
            if rule == Rule::MissingExternalProvenance { "after it ran" } else { "before it runs" },
        );
    }
    for rule in Rule::ALL {
        let head = Head::read(rule);
        let _ = write!(page, "\n## {}\n\n{}\n", rule.subtype(), head.text);
        let _ = write!(page, "\nA retry is told:\n\n");
        let mut said: Vec<String> = Vec::new();
        for language in Language::ALL {
            let barred = head.example(language).without("passes");
            let Some(violation) = told(rule, language, &barred) else { continue };
            let line = format!("- {}\n  *{}*", violation.message, violation.required_correction);
            if !said.contains(&line) {
                said.push(line);
            }
        }
        let _ = writeln!(page, "{}", said.join("\n"));
    }
    page
}

fn severity(rule: Rule) -> &'static str {
    if GuardrailPolicy::default().terminal.contains(&rule) {
        "terminal"
    } else if rule.is_advisory() {
        "advisory"
    } else {
        "recoverable"
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The doc comment at the head of a rule's file.
struct Head {
    text: String,
}

impl Head {
    fn read(rule: Rule) -> Self {
        let file = format!("crates/lifecycle/src/guardrail/{}.rs", rule.subtype());
        let source = std::fs::read_to_string(root().join(&file)).unwrap();
        let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
        let text: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let (title, body) = text.split_first().unwrap();
        let named =
            [format!("`{}`: ", rule.subtype()), format!("`{}` (advisory): ", rule.subtype())];
        let summary = named.iter().find_map(|name| title.strip_prefix(name.as_str()));
        let summary = summary.unwrap_or_else(|| panic!("{file} must begin with `{}`", named[0]));
        assert_eq!(title.contains("(advisory)"), rule.is_advisory(), "{file}");
        // Two fences in a row read better apart.
        let body = body.join("\n").replace("```\n```", "```\n\n```");
        Self { text: format!("{}{}\n{body}", summary[..1].to_uppercase(), &summary[1..]) }
    }

    fn example(&self, language: Language) -> Example {
        let fence = format!("```{}\n", language.name());
        let (_, rest) =
            self.text.split_once(&fence).unwrap_or_else(|| panic!("no {language} example"));
        Example(rest.split("```").next().unwrap_or_default().to_owned())
    }
}

/// Lines of code, some with a comment that says what becomes of them.
struct Example(String);

impl Example {
    /// The program without the lines that are said to be `passes`, or `barred` (also `told`).
    fn without(&self, verdict: &str) -> String {
        let kept = self.0.lines().filter(|line| {
            let comment = line.rsplit_once("# ").map_or("", |(_, comment)| comment);
            let word = |words: &[&str]| words.iter().any(|word| comment.contains(word));
            match verdict {
                "passes" => !word(&["passes"]),
                _ => !word(&["barred", "told"]),
            }
        });
        kept.collect::<Vec<_>>().join("\n")
    }
}

/// What the rule finds in a program, in the call its examples speak of.
fn told(rule: Rule, language: Language, source: &str) -> Option<Violation> {
    let inspection =
        inspect(language, source).unwrap_or_else(|fault| panic!("{fault} in\n{source}"));
    if rule == Rule::MissingExternalProvenance {
        let sourced = source.contains("provenance").then(|| {
            json!({"items": [], "provenance": {"sources": [{
                "uri": "http://x", "fetched_at": "now", "retrieval_tool": "t", "retrieval_mode": "live"}]}})
        });
        return check_provenance(&inspection, &sourced.unwrap_or_else(|| json!({"items": []})));
    }
    let declared: Vec<String> = match (rule, source.contains("json")) {
        (Rule::UnusedDependency, true) => vec![match language {
            Language::Python => "requests".to_owned(),
            Language::Ruby => "nokogiri".to_owned(),
        }],
        (Rule::UnusedDependency, false) => vec![match language {
            Language::Python => "beautifulsoup4".to_owned(),
            Language::Ruby => "activesupport".to_owned(),
        }],
        _ => Vec::new(),
    };
    let siblings = [SiblingState {
        method: "add".to_owned(),
        reads: vec!["value".to_owned()],
        writes: vec!["value".to_owned()],
    }];
    let (args, kwargs): (Vec<Value>, Map<String, Value>) =
        (vec![json!(100), json!("Ada Lovelace")], Map::new());
    let subject = Subject {
        language,
        role: "calculator",
        method: "convert",
        args: if rule == Rule::InputBakedCode { &args } else { &[] },
        kwargs: &kwargs,
        declared: &declared,
        holds_packages: false,
        sibling_state: if rule == Rule::StateKeyDrift { &siblings } else { &[] },
        inspection: &inspection,
    };
    let found = examine(&subject, &GuardrailPolicy::default());
    found.into_iter().find(|violation| violation.rule == rule)
}
