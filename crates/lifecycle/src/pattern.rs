//! Patterns: what programs keep being written for. An event per call; what repeats is shown to the model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::attempt::{Attempt, Reason};
use crate::correction::{self, Correction};
use crate::dialect::{CallExpression, Facts, Inspection, library};
use crate::guardrail::fetches;
use crate::outcome::Outcome;
use crate::request::CallRequest;
use crate::settlement::{Timing, exhausted};
use crate::tool::ToolCount;
use crate::weak_success::{self, WeakSignal};

/// Events kept of one role; the oldest go first.
pub const MAX_EVENTS: usize = 50;
/// Latest events among which a repetition counts.
pub const WINDOW: usize = 5;
/// Times a capability must be seen among them.
const MIN_SEEN: usize = 2;
/// Repeated capabilities shown.
const MAX_SHOWN: usize = 4;

/// A label of what a program does.
struct Row {
    label: &'static str,
    /// What its libraries are known for.
    facts: Facts,
    /// Words in the name or purpose of a tool that does it.
    words: &'static [&'static str],
}

const fn row(label: &'static str, facts: Facts, words: &'static [&'static str]) -> Row {
    Row { label, facts, words }
}

/// Importing a network library is not using the network; see [`capabilities`].
const HTTP_FETCH: Row =
    row("http_fetch", library::NETWORK, &["http", "fetch", "web", "url", "request"]);

const ROWS: [Row; 12] = [
    HTTP_FETCH,
    row("rss_parse", library::RSS, &["rss", "feed", "parse", "parser", "xml"]),
    row("xml_parse", library::XML, &["xml", "parse", "parser"]),
    row("html_extract", library::HTML, &["html", "extract", "scrape", "scraper", "parse"]),
    row("json", library::JSON, &["json"]),
    row("csv", library::CSV, &["csv", "table", "spreadsheet"]),
    row("yaml", library::YAML, &["yaml"]),
    row("file", library::FILES, &["file", "folder", "directory"]),
    row("dates", library::DATES, &["date", "time", "calendar"]),
    row("database", library::DATABASE, &["database", "sql", "query"]),
    row("statistics", library::STATISTICS, &["statistics", "numbers", "average"]),
    row("pdf", library::PDF, &["pdf", "document"]),
];

/// What a program does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Labels, in a fixed order.
    pub labels: Vec<&'static str>,
    /// Whether it asks other agents.
    pub delegates: bool,
}

/// Derives them from a program's syntax tree.
pub fn capabilities(inspection: &Inspection) -> Capabilities {
    let does = |row: &&Row| {
        if row.label == HTTP_FETCH.label {
            fetches(inspection)
        } else {
            inspection.knows_any(row.facts)
        }
    };
    Capabilities {
        labels: ROWS.iter().filter(does).map(|row| row.label).collect(),
        delegates: inspection.calls.iter().any(CallExpression::makes_agent),
    }
}

/// One call, as pattern memory keeps it. The names are those of `patterns.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PatternEvent {
    /// When it ended; RFC 3339, UTC.
    pub timestamp: String,
    /// The same, in milliseconds since 1970.
    pub recorded_at_ms: u64,
    /// The role of the agent.
    pub role: String,
    /// The method called.
    pub method_name: String,
    /// The tree it belongs to.
    pub trace_id: String,
    /// The call.
    pub call_id: String,
    /// The call whose program asked.
    pub parent_call_id: Option<String>,
    /// Distance from the root.
    pub depth: u8,
    /// Whether its program asks other agents.
    pub had_delegated_calls: bool,
    /// `generated`, `persisted` or `repaired`; nothing when no program was tried.
    pub program_source: Option<String>,
    /// What its program does.
    pub capability_patterns: Vec<String>,
    /// `ok` or `error`.
    pub outcome_status: String,
    /// Of an error.
    pub error_type: Option<String>,
    /// `extrinsic`, `adaptive` or `intrinsic`, of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<String>,
    /// What the call counts as for its tool; events of older stores do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<ToolCount>,
    /// The lane whose budget was exhausted, if that ended the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exhausted: Option<String>,
    /// Words of its arguments, by which a correction is distinguished from another question.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub argument_words: Vec<String>,
    /// Its small arguments, by position or name; one that is long or holds a secret is null.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub argument_values: BTreeMap<String, Value>,
    /// Why its success says little.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weak_success_signals: Vec<WeakSignal>,
    /// The answer it corrects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_correction: Option<Correction>,
}

impl PatternEvent {
    /// Whether its success says little.
    pub fn is_weak(&self) -> bool {
        !self.weak_success_signals.is_empty()
    }

    /// Whether a model wrote its program for this call. Events of older stores are all of that kind.
    fn is_written(&self) -> bool {
        self.program_source.as_deref() != Some("persisted")
    }
}

/// The event of a finished call; `earlier` is the last one on its trace of the same role and method.
pub fn event(
    request: &CallRequest,
    outcome: &Outcome,
    attempts: &[Attempt],
    earlier: Option<&PatternEvent>,
    timing: &Timing,
) -> PatternEvent {
    let last = attempts.last();
    let does = last.map(|attempt| &attempt.capabilities);
    let mut event = PatternEvent {
        timestamp: timing.timestamp.clone(),
        recorded_at_ms: timing.since_epoch_ms,
        role: request.role.to_string(),
        method_name: request.method.to_string(),
        trace_id: request.lineage.trace().to_string(),
        call_id: request.id.to_string(),
        parent_call_id: request.lineage.parent().map(ToString::to_string),
        depth: request.lineage.depth(),
        had_delegated_calls: does.is_some_and(|does| does.delegates),
        program_source: last.map(|attempt| attempt.origin.program_source().to_owned()),
        capability_patterns: does
            .map(|does| does.labels.iter().map(|label| (*label).to_owned()).collect())
            .unwrap_or_default(),
        outcome_status: outcome.status().to_owned(),
        error_type: outcome.failure().map(|failure| failure.kind.code().to_owned()),
        failure_class: outcome.failure().map(|failure| failure.cause().name().to_owned()),
        counted: Some(ToolCount::of(outcome, attempts)),
        exhausted: exhausted(attempts).map(|lane| lane.name().to_owned()),
        argument_words: correction::words(&request.arguments),
        argument_values: correction::values(&request.arguments),
        weak_success_signals: weak_signals(outcome, attempts),
        user_correction: None,
    };
    event.user_correction =
        earlier.and_then(|earlier| correction::detect(earlier, &event, timing.began_ms()));
    event
}

fn weak_signals(outcome: &Outcome, attempts: &[Attempt]) -> Vec<WeakSignal> {
    let mut signals = weak_success::signals(outcome);
    let ended_without = |attempt: &Attempt| {
        attempt.rejection.as_ref().is_some_and(|rejection| rejection.reason == Reason::NoResult)
    };
    if outcome.value().is_some_and(Value::is_null) && attempts.iter().any(ended_without) {
        signals.push(weak_success::no_result());
    }
    signals
}

/// A capability the model keeps writing anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeated {
    /// Its label.
    pub capability: String,
    /// How often it was seen.
    pub seen: usize,
    /// Among how many.
    pub of: usize,
    /// A known tool that seems to do it.
    pub tool: Option<String>,
}

/// What is repeated among the latest calls of a method for which a model wrote a program; `events` come oldest first.
/// `tools` are names with what they are for.
pub fn repeated<'a>(
    events: &[PatternEvent],
    request: &CallRequest,
    tools: &(impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone),
) -> Vec<Repeated> {
    if request.lineage.depth() > 0 {
        return Vec::new();
    }
    let of_method =
        |event: &&PatternEvent| event.is_written() && event.method_name == request.method.as_str();
    let window: Vec<&PatternEvent> = events.iter().rev().filter(of_method).take(WINDOW).collect();
    // Newest first, so that what was seen as often stands in the order it was last seen.
    let mut seen: Vec<(&str, usize)> = Vec::new();
    for label in window.iter().flat_map(|event| &event.capability_patterns) {
        match seen.iter_mut().find(|(known, _)| known == label) {
            Some((_, count)) => *count += 1,
            None => seen.push((label, 1)),
        }
    }
    seen.retain(|(_, count)| *count >= MIN_SEEN);
    seen.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown = seen.into_iter().take(MAX_SHOWN);
    shown
        .map(|(capability, seen)| Repeated {
            capability: capability.to_owned(),
            seen,
            of: window.len(),
            tool: tool_for(capability, tools.clone()),
        })
        .collect()
}

/// The tool whose name and purpose hold most words of a capability; by name among equals.
fn tool_for<'a>(
    capability: &str,
    tools: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Option<String> {
    let words = ROWS.iter().find(|row| row.label == capability)?.words;
    let score = |(name, purpose): (&'a str, Option<&'a str>)| {
        let text = format!("{name} {}", purpose.unwrap_or_default()).to_lowercase();
        let said: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
        (words.iter().filter(|word| said.contains(word)).count(), std::cmp::Reverse(name))
    };
    let (count, std::cmp::Reverse(name)) = tools.map(score).max()?;
    (count > 0).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Language, inspect};

    #[test]
    fn capabilities_are_read_from_the_syntax_tree() {
        for (language, source, expected) in [
            (
                Language::Python,
                "import requests\nresult = requests.get(args[0]).text",
                "http_fetch",
            ),
            (
                Language::Python,
                "from bs4 import BeautifulSoup\nresult = BeautifulSoup(args[0]).title",
                "html_extract",
            ),
            (Language::Python, "import json\nresult = json.loads(args[0])", "json"),
            (Language::Python, "import jsonschema\nresult = 1", ""),
            (Language::Python, "result = 'import json and open(file)'  # requests.get", ""),
            (
                Language::Python,
                "import xml.etree.ElementTree as ET\nresult = ET.fromstring(args[0]).tag",
                "xml_parse",
            ),
            (Language::Python, "result = open(args[0]).read()", "file"),
            (
                Language::Python,
                "from datetime import date\nresult = date.today().isoformat()",
                "dates",
            ),
            (
                Language::Python,
                "result = tool('web_fetcher').fetch(args[0])",
                "http_fetch +delegates",
            ),
            (
                Language::Ruby,
                "require 'net/http'\nresult = Net::HTTP.get(URI(args[0]))",
                "http_fetch",
            ),
            (
                Language::Ruby,
                "require 'rss'\nresult = RSS::Parser.parse(args[0]).items.size",
                "rss_parse",
            ),
            (
                Language::Ruby,
                "require 'rexml/document'\nresult = REXML::Document.new(args[0]).root.name",
                "xml_parse",
            ),
            (
                Language::Ruby,
                "require 'json'\nresult = JSON.parse(File.read(args[0]))",
                "json,file",
            ),
            (Language::Ruby, "result = Time.now.year", "dates"),
            (Language::Ruby, "result = delegate('poet').rhyme", " +delegates"),
        ] {
            let found = capabilities(&inspect(language, source).unwrap());
            let delegates = if found.delegates { " +delegates" } else { "" };
            assert_eq!(format!("{}{delegates}", found.labels.join(",")), expected, "{source}");
        }
    }
}
