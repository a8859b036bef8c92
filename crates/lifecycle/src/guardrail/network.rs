//! Which programs fetch external data: by their own network use, or through a tool that does.

use crate::dialect::library::NETWORK;
use crate::dialect::{CallExpression, Inspection, Operand, UseKind};

/// Words in the name of a tool that say it fetches.
const FETCHING_WORDS: &[&str] = &["fetch", "scrape", "crawl", "download"];

/// Whether the program fetches.
pub(crate) fn fetches(inspection: &Inspection) -> bool {
    inspection.calls_any(NETWORK)
        || inspection.calls.iter().any(|call| asks_fetcher(call) || passes_fetcher(call))
        || inspection.returned.iter().any(|returned| names_fetcher(&returned.value))
}

/// The calls that reach the network, or have a tool do it: their indices, in order.
pub(super) fn fetching_calls(inspection: &Inspection) -> Vec<usize> {
    let direct = inspection.library.iter().filter_map(|it| match it.kind {
        UseKind::Called(index) if it.facts.any(NETWORK) => Some(index),
        UseKind::Called(_) | UseKind::Imported | UseKind::Named | UseKind::Taken => None,
    });
    let asked = inspection.calls.iter().enumerate().filter(|(_, call)| asks_fetcher(call));
    let mut calls: Vec<usize> = direct.chain(asked.map(|(index, _)| index)).collect();
    calls.sort_unstable();
    calls
}

/// Whether a call asks a tool whose name says that it fetches.
fn asks_fetcher(call: &CallExpression) -> bool {
    call.receiver.as_ref().and_then(Operand::role).is_some_and(says_fetch)
}

/// Whether a fetching tool is an argument of a call: the called code is assumed to call the tool.
fn passes_fetcher(call: &CallExpression) -> bool {
    call.arguments.iter().any(|argument| names_fetcher(&argument.value))
}

/// Whether a value is, or contains, a tool whose name says that it fetches.
fn names_fetcher(value: &Operand) -> bool {
    value.members().iter().any(|member| member.role().is_some_and(says_fetch))
}

/// Whether a word of a name begins with one of [`FETCHING_WORDS`]: as in `web_fetcher` and `page downloader`, and not in
/// `skyscraper`.
fn says_fetch(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| FETCHING_WORDS.iter().any(|known| word.starts_with(known)))
}
