//! A method's file as the reference runtime wrote it: Ruby, counters for the whole method, a card per version.

use std::collections::BTreeMap;

use lifecycle::artifact::RUNTIME_VERSION;
use lifecycle::contract::{Contract, Fingerprint};
use lifecycle::dialect::Language;
use lifecycle::program::Checksum;
use serde_json::{Map, Value};

use super::super::bundle::{ArtifactEntry, ToolEntry, VersionEntry};
use super::wire::JsonFields;

/// Reads one. Its programs are for the guest surface that runs here too, and are vetted again before each use.
pub(super) fn artifact(
    file: &JsonFields<'_>,
    tools: &[ToolEntry],
) -> Result<ArtifactEntry, String> {
    let role = file.role()?;
    let current = file.needed("code_checksum")?;
    let head = version(file, file, &current)?;
    let others: BTreeMap<String, Value> = file.typed("versions")?.unwrap_or_default();
    let mut versions = Vec::new();
    for (checksum, other) in others.iter().filter(|(checksum, _)| **checksum != current) {
        let other = JsonFields::of(other)
            .and_then(|other| version(file, &other, checksum))
            .map_err(|why| format!("version {checksum}: {why}"))?;
        versions.push(other);
    }
    versions.sort_by(|a, b| (&a.admitted_at, &a.checksum).cmp(&(&b.admitted_at, &b.checksum)));
    versions.push(head);
    for (number, version) in (1..).zip(&mut versions) {
        version.number = number;
    }
    Ok(ArtifactEntry {
        contract_fingerprint: fingerprint(file, role.as_str(), tools)?,
        role,
        method: file.method()?,
        language: Language::Ruby,
        current: Checksum::stored(current),
        versions,
        rest: Map::new(),
    })
}

/// One version; what it does not say itself, the method's file says for it.
fn version(
    file: &JsonFields<'_>,
    own: &JsonFields<'_>,
    checksum: &str,
) -> Result<VersionEntry, String> {
    let code = own.code(checksum)?;
    let cards: BTreeMap<String, Value> = file.typed("scorecards")?.unwrap_or_default();
    let card = cards.get(checksum).map(JsonFields::of).transpose()?;
    let is_head = file.text("code_checksum")?.as_deref() == Some(checksum);
    let counted = |on_card: &str, on_file: &str| -> Result<u64, String> {
        let of_card = card.as_ref().map(|card| card.number(on_card)).transpose()?.flatten();
        let of_file = if is_head { file.number(on_file)? } else { None };
        Ok(of_card.or(of_file).unwrap_or(0))
    };
    Ok(VersionEntry {
        number: 0,
        checksum: Checksum::of(&code),
        code,
        manifest: own.manifest(Language::Ruby)?,
        cacheability: file.cacheability()?,
        runtime_version: RUNTIME_VERSION.to_owned(),
        prompt_version: file.text("prompt_version")?.unwrap_or_default(),
        successes: counted("successes", "success_count")?,
        failures: counted("failures", "failure_count")?,
        repairs: if is_head { file.number("repair_count_since_regen")?.unwrap_or(0) } else { 0 },
        admitted_at: own.time("created_at")?.unwrap_or_default(),
        rest: Map::new(),
    })
}

/// Its fingerprints were made otherwise, of the intent too: what counts here is the contract the registry knows.
fn fingerprint(file: &JsonFields<'_>, role: &str, tools: &[ToolEntry]) -> Result<String, String> {
    let given = file.text("contract_fingerprint")?;
    let is_none = given.as_deref().is_none_or(|given| given == "none");
    let tool = tools.iter().find(|tool| tool.name.as_str() == role);
    let contract = tool.and_then(|tool| tool.contract.as_ref()).filter(|_| !is_none);
    Ok(match (contract, given) {
        (Some(contract), _) => Contract::fingerprint(contract).to_string(),
        (None, Some(given)) => given,
        (None, None) => Fingerprint::none().to_string(),
    })
}
