//! Which stored program may run, or why none.

use crate::artifact::{Artifact, Author, RUNTIME_VERSION};
use crate::contract::Fingerprint;
use crate::guardrail::is_dynamic;
use crate::program::Checksum;
use crate::request::CallRequest;
use crate::standing::{Standing, StandingMode};

/// Why no stored program was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// Nothing is stored for this role, method and language.
    NoArtifact,
    /// Only programs made under another contract.
    ContractChanged,
    /// Made for another guest surface.
    RuntimeChanged,
    /// Its reason forbids reuse.
    NotCacheable,
    /// Its text is not what was stored.
    ChecksumMismatch,
    /// It never worked.
    NeverSucceeded,
    /// It fails more than it works.
    Degraded,
    /// A person took it out of service.
    Rejected,
    /// A person asked for another program.
    Requested,
}

impl Miss {
    /// The wire name (`selection_miss_reason`).
    pub fn name(self) -> &'static str {
        match self {
            Self::NoArtifact => "no_artifact",
            Self::ContractChanged => "contract_changed",
            Self::RuntimeChanged => "runtime_changed",
            Self::NotCacheable => "not_cacheable",
            Self::ChecksumMismatch => "checksum_mismatch",
            Self::NeverSucceeded => "never_succeeded",
            Self::Degraded => "degraded",
            Self::Rejected => "rejected",
            Self::Requested => "requested",
        }
    }
}

/// Whether nothing is stored yet that answers calls like this one, and a program written for it may be reused.
pub fn is_first_call(stored: &[Artifact], request: &CallRequest) -> bool {
    let wanted = request.contract_fingerprint();
    let is_known = stored.iter().any(|artifact| artifact.contract_fingerprint == wanted);
    !is_known && !is_dynamic(request.method.as_str())
}

/// Whether the only program that could run was made without a contract, before its tool was registered with one.
pub(crate) fn is_kept_without_contract(
    stored: &[Artifact],
    request: &CallRequest,
    mode: StandingMode,
) -> bool {
    let (wanted, none) = (request.contract_fingerprint(), Fingerprint::none());
    let is_made_for = |kept: &Artifact| kept.contract_fingerprint == wanted;
    let runs = |kept: &Artifact| kept.contract_fingerprint == none && unfit(kept, mode).is_none();
    !stored.iter().any(is_made_for) && stored.iter().any(runs)
}

/// Picks the stored program for this call from those kept for its role, method and language: the first that may run.
pub fn select(
    stored: Vec<Artifact>,
    request: &CallRequest,
    mode: StandingMode,
) -> Result<Artifact, Miss> {
    if stored.is_empty() {
        return Err(Miss::NoArtifact);
    }
    let wanted = request.contract_fingerprint();
    let mut first_miss = None;
    for artifact in stored.into_iter().filter(|kept| kept.contract_fingerprint == wanted) {
        match unfit(&artifact, mode) {
            Some(miss) => first_miss = first_miss.or(Some(miss)),
            None => return Ok(artifact),
        }
    }
    Err(first_miss.unwrap_or(Miss::ContractChanged))
}

/// The program that is not selected only because it is degraded, if it was accepted with arguments of this shape: it
/// runs when no better one can be obtained.
pub(crate) fn degraded(
    stored: &[Artifact],
    request: &CallRequest,
    mode: StandingMode,
) -> Option<Box<Artifact>> {
    let wanted = request.contract_fingerprint();
    let artifact = stored.iter().find(|artifact| artifact.contract_fingerprint == wanted)?;
    let is_proven = || artifact.repute.shapes.prove(request);
    let runs = unfit(artifact, mode) == Some(Miss::Degraded) && is_proven();
    runs.then(|| Box::new(artifact.clone()))
}

/// Why a stored program may not run. One that fails again and again may not, in either mode: its next call would
/// only fail and be repaired. A *standing* of degraded, which outlives the bad calls, counts when enforced.
pub fn unfit(artifact: &Artifact, mode: StandingMode) -> Option<Miss> {
    let repute = &artifact.repute;
    if artifact.runtime_version != RUNTIME_VERSION {
        Some(Miss::RuntimeChanged)
    } else if !artifact.cacheability.cacheable() {
        Some(Miss::NotCacheable)
    } else if Checksum::of(&artifact.code) != artifact.checksum {
        Some(Miss::ChecksumMismatch)
    } else if artifact.successes == 0 && repute.author == Author::Model {
        Some(Miss::NeverSucceeded)
    } else if repute.rejected {
        Some(Miss::Rejected)
    } else if repute.recent.regressed()
        || (mode == StandingMode::Enforced && repute.standing == Standing::Degraded)
    {
        Some(Miss::Degraded)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::artifact::{Cacheability, Repute, RunVerdict};
    use crate::contract::Contract;
    use crate::dependency::DependencyManifest;
    use crate::dialect::Language;
    use crate::standing::Window;

    fn request(contract: Option<serde_json::Value>) -> CallRequest {
        let contract = contract
            .and_then(|fields| Contract::compose(None, fields.as_object().unwrap()).unwrap().0);
        CallRequest { contract, ..CallRequest::bare("fetcher", "fetch_url") }
    }

    fn artifact(fingerprint: Fingerprint) -> Artifact {
        Artifact {
            role: request(None).role,
            method: request(None).method,
            language: Language::Python,
            contract_fingerprint: fingerprint,
            runtime_version: RUNTIME_VERSION.into(),
            code: "result = args[0]".into(),
            checksum: Checksum::of("result = args[0]"),
            manifest: DependencyManifest::default(),
            cacheability: Cacheability::StableMethodDefault,
            successes: 1,
            failures: 0,
            repairs: 0,
            repute: Repute::default(),
        }
    }

    fn window(verdicts: &[RunVerdict]) -> Window {
        let mut window = Window::default();
        for verdict in verdicts {
            window.push(*verdict);
        }
        window
    }

    #[test]
    fn every_miss_says_why() {
        use StandingMode::{Enforced, Shadow};
        let good = || artifact(Fingerprint::none());
        let with = |repute: Repute| Artifact { repute, ..good() };
        let degraded = || with(Repute { standing: Standing::Degraded, ..Repute::default() });
        let failing =
            || with(Repute { recent: window(&[RunVerdict::Failed; 3]), ..Repute::default() });
        let truthful =
            || with(Repute { recent: window(&[RunVerdict::Answered; 20]), ..Repute::default() });
        let rejected = || with(Repute { rejected: true, ..Repute::default() });
        let other = artifact(request(Some(json!({"purpose": "p"}))).contract_fingerprint());
        for (stored, mode, expected) in [
            (vec![], Shadow, Some(Miss::NoArtifact)),
            (vec![other.clone()], Shadow, Some(Miss::ContractChanged)),
            (vec![other, good()], Shadow, None),
            (
                vec![Artifact { runtime_version: "0".into(), ..good() }],
                Shadow,
                Some(Miss::RuntimeChanged),
            ),
            (
                vec![Artifact { cacheability: Cacheability::AdviceIgnored, ..good() }],
                Shadow,
                Some(Miss::NotCacheable),
            ),
            (vec![Artifact { code: "x".into(), ..good() }], Shadow, Some(Miss::ChecksumMismatch)),
            (vec![Artifact { successes: 0, ..good() }], Shadow, Some(Miss::NeverSucceeded)),
            (vec![failing()], Shadow, Some(Miss::Degraded)),
            (vec![failing()], Enforced, Some(Miss::Degraded)),
            (vec![degraded()], Shadow, None),
            (vec![degraded()], Enforced, Some(Miss::Degraded)),
            (vec![rejected()], Shadow, Some(Miss::Rejected)),
            (vec![rejected(), good()], Shadow, None),
            (vec![truthful()], Enforced, None),
            (vec![Artifact { failures: 1000, ..good() }], Enforced, None),
        ] {
            let input = format!("{mode:?} {stored:?}");
            assert_eq!(select(stored, &request(None), mode).err(), expected, "{input}");
        }
    }

    #[test]
    fn the_same_demands_are_the_same_contract_whatever_was_intended() {
        let first = request(Some(json!({
            "purpose": "p", "deliverable": {"type": "object", "required": ["a", "b"]},
            "intent_signature": "ask: Google"
        })));
        let second = request(Some(json!({
            "intent_signature": "ask: Yahoo",
            "deliverable": {"required": ["a", "b"], "type": "object"}, "purpose": "p"
        })));
        let kept = artifact(first.contract_fingerprint());
        assert!(select(vec![kept], &second, StandingMode::Shadow).is_ok());
    }
}
