//! The evaluator: what the evidence says should be done about a tool. Deterministic and advisory: it reads
//! pattern memory and counters after the fact and changes nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::pattern::PatternEvent;
use crate::settlement::WRONG_BOUNDARY;
use crate::tool::ToolCount;
use crate::weak_success::{WeakSignal, Weakness};

/// Weak successes of one kind that are a pattern by themselves.
const MIN_WEAK: usize = 3;
/// Weak successes of one kind that are a pattern when a caller also protested.
const MIN_WEAK_CORRECTED: usize = 2;
/// Percent of a method's successes they must be.
const MIN_WEAK_PERCENT: usize = 50;
/// Calls a tool must have sent elsewhere.
const MIN_REFERRALS: usize = 2;
/// Calls that ended because retries were spent.
const MIN_EXHAUSTIONS: usize = 2;
/// Calls after which a tool that never answered is given up.
const MIN_HOPELESS: usize = 5;
/// Calls named as evidence of one recommendation, the latest ones.
const MAX_EVIDENCE: usize = 12;

/// What should be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecommendedAction {
    /// Make the contract refuse what callers could not use.
    StrengthenContract,
    /// Write it again from nothing.
    ReForge,
    /// Make two tools of it.
    SplitBoundary,
    /// Give it up.
    Retire,
}

impl RecommendedAction {
    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::StrengthenContract => "strengthen_contract",
            Self::ReForge => "re_forge",
            Self::SplitBoundary => "split_boundary",
            Self::Retire => "retire",
        }
    }
}

/// What to add to a contract.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SuggestedConstraint {
    /// In words: `movies: min_items 1`.
    pub text: String,
    /// As the `deliverable` of a contract that asks for nothing else.
    pub deliverable: Value,
}

/// What should be done about a tool, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
    /// The tool's role.
    pub tool: String,
    /// The method it is about; nothing when it is about the tool.
    pub method: Option<String>,
    /// What should be done.
    pub action: RecommendedAction,
    /// For [`RecommendedAction::StrengthenContract`]: what to add.
    pub constraint: Option<SuggestedConstraint>,
    /// How much speaks for it; more is more.
    pub score: usize,
    /// In words.
    pub reason: String,
    /// The calls that speak for it, oldest first.
    pub evidence_call_ids: Vec<String>,
}

/// What is known of one tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolEvidence<'a> {
    /// Its role.
    pub role: &'a str,
    /// Its calls, oldest first.
    pub events: &'a [PatternEvent],
    /// Calls that ever ended because retries were spent, including those no longer among the events.
    pub exhaustions: u64,
}

/// Sorts by score, the strongest first; among equals the order stays.
pub fn strongest_first(mut found: Vec<Recommendation>) -> Vec<Recommendation> {
    found.sort_by_key(|recommendation| Reverse(recommendation.score));
    found
}

/// What should be done about a tool; the strongest first.
pub fn recommend(evidence: &ToolEvidence<'_>) -> Vec<Recommendation> {
    let mut found = weak_successes(evidence);
    found.extend(referrals(evidence));
    match hopeless(evidence) {
        Some(retire) => found.push(retire),
        None => found.extend(exhaustion(evidence)),
    }
    found.sort_by(|a, b| {
        let key = |r: &Recommendation| (std::cmp::Reverse(r.score), r.action, r.method.clone());
        key(a).cmp(&key(b))
    });
    found
}

/// Successes of one method that were weak in the same way.
fn weak_successes(evidence: &ToolEvidence<'_>) -> Vec<Recommendation> {
    let mut groups: BTreeMap<(&str, &WeakSignal), Vec<&PatternEvent>> = BTreeMap::new();
    let mut successes: BTreeMap<&str, usize> = BTreeMap::new();
    for event in evidence.events.iter().filter(|event| event.outcome_status == "ok") {
        *successes.entry(event.method_name.as_str()).or_default() += 1;
        for signal in &event.weak_success_signals {
            groups.entry((event.method_name.as_str(), signal)).or_default().push(event);
        }
    }
    let corrections: Vec<&PatternEvent> =
        evidence.events.iter().filter(|event| event.user_correction.is_some()).collect();
    let recommended = groups.into_iter().filter_map(|((method, signal), weak)| {
        let linked = linked(&weak, &corrections);
        let all = successes.get(method).copied().unwrap_or(0);
        let often = weak.len() * 100 >= all * MIN_WEAK_PERCENT;
        let needed = if linked.is_empty() { MIN_WEAK } else { MIN_WEAK_CORRECTED };
        if weak.len() < needed || (!often && linked.is_empty()) {
            return None;
        }
        let constraint = constraint(signal);
        let action = if constraint.is_some() {
            RecommendedAction::StrengthenContract
        } else {
            RecommendedAction::ReForge
        };
        let (count, again) = (weak.len(), linked.len());
        let calls = weak.iter().copied().chain(linked);
        Some(Recommendation {
            tool: evidence.role.to_owned(),
            method: Some(method.to_owned()),
            action,
            constraint,
            score: count + 2 * again,
            reason: format!(
                "{count} of {all} successes were weak ({}{}); asked again after {again}",
                signal.signal.name(),
                signal.path.as_ref().map(|path| format!(" at {path}")).unwrap_or_default(),
            ),
            evidence_call_ids: ids(evidence, calls),
        })
    });
    recommended.collect()
}

/// The calls that corrected one of these answers.
fn linked<'a>(weak: &[&PatternEvent], corrections: &[&'a PatternEvent]) -> Vec<&'a PatternEvent> {
    let corrects_one = |event: &&&PatternEvent| {
        event.user_correction.as_ref().is_some_and(|correction| {
            correction.of_weak_success
                && weak.iter().any(|weak| weak.call_id == correction.correction_of_call_id)
        })
    };
    corrections.iter().filter(corrects_one).copied().collect()
}

/// What would have refused it, if a contract can.
fn constraint(signal: &WeakSignal) -> Option<SuggestedConstraint> {
    let at = |clause: &str| match &signal.path {
        Some(path) => format!("{path}: {clause}"),
        None => clause.to_owned(),
    };
    let field = |kind: &str, key: &str| match &signal.path {
        Some(path) => json!({
            "type": "object",
            "required": [path],
            "constraints": {"properties": {path: {"type": kind, key: 1}}},
        }),
        None => json!({"type": kind, key: 1}),
    };
    let schema = |rule: Value| match &signal.path {
        Some(path) => {
            let properties = Map::from_iter([(path.clone(), rule)]);
            json!({"schema": {"type": "object", "required": [path], "properties": properties}})
        }
        None => json!({ "schema": rule }),
    };
    let (text, deliverable) = match (signal.signal, &signal.text) {
        (Weakness::EmptyArray, _) => (at("min_items 1"), field("array", "min_items")),
        (Weakness::EmptyBody, _) => (at("min_length 1"), field("string", "min_length")),
        (Weakness::EmptyObject, _) => {
            (at("at least one field"), schema(json!({"type": "object", "minProperties": 1})))
        }
        (Weakness::WeakStatus, Some(text)) => {
            (at(&format!("not {text:?}")), schema(json!({"not": {"const": text}})))
        }
        (Weakness::WeakStatus, None) | (Weakness::PlaceholderText | Weakness::NoResult, _) => {
            return None;
        }
    };
    Some(SuggestedConstraint { text, deliverable })
}

/// A tool that keeps answering `wrong_tool_boundary` is used for two different tasks.
fn referrals(evidence: &ToolEvidence<'_>) -> Option<Recommendation> {
    let sent = |event: &&PatternEvent| event.error_type.as_deref() == Some(WRONG_BOUNDARY);
    let calls: Vec<&PatternEvent> = evidence.events.iter().filter(sent).collect();
    let methods: BTreeSet<&str> = calls.iter().map(|event| event.method_name.as_str()).collect();
    let methods: Vec<&str> = methods.into_iter().collect();
    (calls.len() >= MIN_REFERRALS).then(|| {
        let reason = format!(
            "{} of {} calls were sent elsewhere (wrong_tool_boundary) by {}",
            calls.len(),
            evidence.events.len(),
            methods.join(", ")
        );
        about_tool(evidence, RecommendedAction::SplitBoundary, 2 * calls.len(), reason, &calls)
    })
}

/// A program whose retries keep being spent is not worth repairing.
fn exhaustion(evidence: &ToolEvidence<'_>) -> Option<Recommendation> {
    let pressing =
        |event: &&PatternEvent| matches!(event.exhausted.as_deref(), Some("guardrail" | "outcome"));
    let calls: Vec<&PatternEvent> = evidence.events.iter().filter(pressing).collect();
    let ever = evidence.exhaustions.max(calls.len() as u64);
    (calls.len() >= MIN_EXHAUSTIONS).then(|| {
        let reason = format!(
            "retries ran out in {} of {} calls ({ever} ever)",
            calls.len(),
            evidence.events.len()
        );
        about_tool(evidence, RecommendedAction::ReForge, 2 * calls.len(), reason, &calls)
    })
}

/// It only ever failed through its own fault.
fn hopeless(evidence: &ToolEvidence<'_>) -> Option<Recommendation> {
    let own = |event: &&PatternEvent| ToolCount::of_event(event) == ToolCount::Failure;
    let failed: Vec<&PatternEvent> = evidence.events.iter().filter(own).collect();
    let answered = evidence.events.iter().any(|event| event.outcome_status == "ok");
    (!answered && failed.len() >= MIN_HOPELESS).then(|| {
        let reason = format!("none of its last {} calls gave a value", evidence.events.len());
        about_tool(evidence, RecommendedAction::Retire, 2 * failed.len(), reason, &failed)
    })
}

fn about_tool(
    evidence: &ToolEvidence<'_>,
    action: RecommendedAction,
    score: usize,
    reason: String,
    calls: &[&PatternEvent],
) -> Recommendation {
    Recommendation {
        tool: evidence.role.to_owned(),
        method: None,
        action,
        constraint: None,
        score,
        reason,
        evidence_call_ids: ids(evidence, calls.iter().copied()),
    }
}

/// Their ids in the order of the calls; the latest, if there are many.
fn ids<'a>(
    evidence: &ToolEvidence<'_>,
    calls: impl Iterator<Item = &'a PatternEvent>,
) -> Vec<String> {
    let chosen: BTreeSet<&str> = calls.map(|event| event.call_id.as_str()).collect();
    let all = evidence.events.iter().map(|event| event.call_id.as_str());
    let mut ids: Vec<String> = all.filter(|id| chosen.contains(id)).map(str::to_owned).collect();
    ids.drain(..ids.len().saturating_sub(MAX_EVIDENCE));
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Contract;
    use crate::correction::Correction;

    fn event(call: &str) -> PatternEvent {
        PatternEvent {
            role: "guide".into(),
            method_name: "movies".into(),
            call_id: call.into(),
            outcome_status: "ok".into(),
            ..PatternEvent::default()
        }
    }

    fn weak(call: &str, signal: Weakness, path: Option<&str>, text: Option<&str>) -> PatternEvent {
        let (path, text) = (path.map(str::to_owned), text.map(str::to_owned));
        let weak_success_signals = vec![WeakSignal { signal, path, text }];
        PatternEvent { weak_success_signals, ..event(call) }
    }

    fn empty(call: &str) -> PatternEvent {
        weak(call, Weakness::EmptyArray, Some("movies"), None)
    }

    fn correcting(event: PatternEvent, of: &str) -> PatternEvent {
        let correction = Correction {
            detected: true,
            signal: "temporal_reask".into(),
            evidence: "refined_question".into(),
            correction_of_call_id: of.into(),
            matched_capability_patterns: Vec::new(),
            shared_words: Vec::new(),
            changed_words: Vec::new(),
            seconds: 1,
            of_weak_success: true,
        };
        PatternEvent { user_correction: Some(correction), ..event }
    }

    fn failed(call: &str, error_type: &str, class: &str) -> PatternEvent {
        PatternEvent {
            outcome_status: "error".into(),
            error_type: Some(error_type.into()),
            failure_class: Some(class.into()),
            ..event(call)
        }
    }

    fn check(events: &[PatternEvent]) -> Vec<(RecommendedAction, Option<String>, String)> {
        recommend(&ToolEvidence { role: "guide", events, exhaustions: 0 })
            .into_iter()
            .map(|r| (r.action, r.constraint.map(|c| c.text), r.evidence_call_ids.join(" ")))
            .collect()
    }

    #[test]
    fn repeated_weak_success_asks_for_the_constraint_that_would_have_refused_it() {
        assert_eq!(check(&[empty("a"), empty("b")]), [], "twice may be chance");
        let named = Some("movies: min_items 1".to_owned());
        assert_eq!(
            check(&[empty("a"), correcting(empty("b"), "a")]),
            [(RecommendedAction::StrengthenContract, named.clone(), "a b".into())]
        );
        assert_eq!(
            check(&[empty("a"), empty("b"), event("c"), empty("d")]),
            [(RecommendedAction::StrengthenContract, named, "a b d".into())]
        );
        let rare: Vec<_> = [empty("a"), empty("b"), empty("c")]
            .into_iter()
            .chain((0..4).map(|n| event(&n.to_string())))
            .collect();
        assert_eq!(check(&rare), [], "mostly it is useful");
    }

    #[test]
    fn every_constraint_can_be_a_contract_and_refuses_what_it_is_about() {
        for (signal, path, text, value, named) in [
            (
                Weakness::EmptyArray,
                Some("movies"),
                None,
                json!({"movies": []}),
                "movies: min_items 1",
            ),
            (Weakness::EmptyArray, None, None, json!([]), "min_items 1"),
            (Weakness::EmptyBody, Some("body"), None, json!({"body": ""}), "body: min_length 1"),
            (
                Weakness::EmptyObject,
                Some("film"),
                None,
                json!({"film": {}}),
                "film: at least one field",
            ),
            (
                Weakness::WeakStatus,
                Some("status"),
                Some("success_no_parse"),
                json!({"status": "success_no_parse"}),
                "status: not \"success_no_parse\"",
            ),
        ] {
            let events = ["a", "b", "c"].map(|call| weak(call, signal, path, text));
            let [found] =
                &recommend(&ToolEvidence { role: "guide", events: &events, exhaustions: 0 })[..]
            else {
                panic!("{named}")
            };
            let constraint = found.constraint.as_ref().unwrap();
            assert_eq!(constraint.text, named);
            let fields =
                Map::from_iter([("deliverable".to_owned(), constraint.deliverable.clone())]);
            let contract = Contract::compose(Some(&fields), &Map::new()).unwrap().0.unwrap();
            assert!(contract.judge(&[], &Map::new(), &value).is_err(), "{named}");
        }
    }

    #[test]
    fn placeholders_referrals_exhaustion_and_hopelessness_have_their_own_advice() {
        let stub = ["a", "b", "c"].map(|c| weak(c, Weakness::PlaceholderText, None, Some("TODO")));
        assert_eq!(check(&stub), [(RecommendedAction::ReForge, None, "a b c".into())]);
        let sent = |call: &str| failed(call, "wrong_tool_boundary", "adaptive");
        assert_eq!(check(&[sent("a")]), []);
        assert_eq!(
            check(&[sent("a"), event("b"), sent("c")]),
            [(RecommendedAction::SplitBoundary, None, "a c".into())]
        );
        let spent = |call: &str| PatternEvent {
            exhausted: Some("outcome".into()),
            ..failed(call, "contract_violation", "adaptive")
        };
        assert_eq!(
            check(&[spent("a"), event("b"), spent("c")]),
            [(RecommendedAction::ReForge, None, "a c".into())]
        );
        let hopeless: Vec<_> = ["a", "b", "c", "d", "e"].into_iter().map(spent).collect();
        assert_eq!(check(&hopeless), [(RecommendedAction::Retire, None, "a b c d e".into())]);
        let world = ["a", "b", "c", "d", "e"].map(|call| failed(call, "http_error", "extrinsic"));
        assert_eq!(check(&world), [], "the world's fault");
        let truthful = ["a", "b", "c", "d", "e"].map(|call| failed(call, "not_found", "adaptive"));
        assert_eq!(check(&truthful), [], "there is nothing to find");
        let counted = Some(ToolCount::Neither);
        let of_caller = ["a", "b", "c", "d", "e"]
            .map(|call| PatternEvent { counted, ..failed(call, "execution", "intrinsic") });
        assert_eq!(check(&of_caller), [], "the caller's fault");
    }
}
