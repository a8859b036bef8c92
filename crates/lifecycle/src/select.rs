//! Which stored program may run, or why none.

use crate::artifact::{Artifact, Author, RUNTIME_VERSION};
use crate::contract::{ContractOrigin, Fingerprint};
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

/// The contract that a call's program must have been made under: the call's own. A contract that the tool was registered
/// with may be younger than its programs, so one made without a contract serves until there is one made for it; what
/// it gives is checked against the contract all the same.
fn accepted_contract(
    stored: &[Artifact],
    request: &CallRequest,
    origin: ContractOrigin,
) -> Fingerprint {
    let wanted = request.contract_fingerprint();
    let is_made_for = |kept: &Artifact| kept.contract_fingerprint == wanted;
    match origin {
        ContractOrigin::Registry if !stored.iter().any(is_made_for) => Fingerprint::none(),
        ContractOrigin::Registry | ContractOrigin::Caller => wanted,
    }
}

/// Picks the stored program for this call from those kept for its role, method and language: the first that may run.
pub fn select(
    stored: Vec<Artifact>,
    request: &CallRequest,
    mode: StandingMode,
    origin: ContractOrigin,
) -> Result<Artifact, Miss> {
    if stored.is_empty() {
        return Err(Miss::NoArtifact);
    }
    let wanted = accepted_contract(&stored, request, origin);
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
    origin: ContractOrigin,
) -> Option<Box<Artifact>> {
    let wanted = accepted_contract(stored, request, origin);
    let artifact = stored.iter().find(|artifact| artifact.contract_fingerprint == wanted)?;
    let is_proven = || artifact.track_record.shapes.prove(request);
    let runs = unfit(artifact, mode) == Some(Miss::Degraded) && is_proven();
    runs.then(|| Box::new(artifact.clone()))
}

/// Why a stored program may not run. One that fails again and again may not, in either mode: its next call would
/// only fail and be repaired. A *standing* of degraded, which outlives the bad calls, counts when enforced.
pub fn unfit(artifact: &Artifact, mode: StandingMode) -> Option<Miss> {
    let track_record = &artifact.track_record;
    if artifact.runtime_version != RUNTIME_VERSION {
        Some(Miss::RuntimeChanged)
    } else if !artifact.cacheability.cacheable() {
        Some(Miss::NotCacheable)
    } else if Checksum::of(&artifact.code) != artifact.checksum {
        Some(Miss::ChecksumMismatch)
    } else if artifact.successes == 0 && track_record.author == Author::Model {
        Some(Miss::NeverSucceeded)
    } else if track_record.rejected {
        Some(Miss::Rejected)
    } else if track_record.recent.regressed()
        || (mode == StandingMode::Enforced && track_record.standing == Standing::Degraded)
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
    use crate::artifact::{Cacheability, RunVerdict, TrackRecord};
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
            track_record: TrackRecord::default(),
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
        let with = |track_record: TrackRecord| Artifact { track_record, ..good() };
        let degraded =
            || with(TrackRecord { standing: Standing::Degraded, ..TrackRecord::default() });
        let failing = || {
            with(TrackRecord { recent: window(&[RunVerdict::Failed; 3]), ..TrackRecord::default() })
        };
        let truthful = || {
            with(TrackRecord {
                recent: window(&[RunVerdict::Answered; 20]),
                ..TrackRecord::default()
            })
        };
        let rejected = || with(TrackRecord { rejected: true, ..TrackRecord::default() });
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
            assert_eq!(
                select(stored, &request(None), mode, ContractOrigin::Caller).err(),
                expected,
                "{input}"
            );
        }
    }

    /// A program that is older than the registration of its tool serves the registered contract, not one of the caller.
    #[test]
    fn a_program_without_a_contract_serves_a_registered_one_until_there_is_one_made_for_it() {
        use ContractOrigin::{Caller, Registry};
        let contracted = request(Some(json!({"purpose": "p"})));
        let plain = || artifact(Fingerprint::none());
        let made_for = || artifact(contracted.contract_fingerprint());
        let failing = || Artifact { successes: 0, ..made_for() };
        for (stored, origin, expected) in [
            (vec![plain()], Registry, Ok(Fingerprint::none())),
            (vec![plain()], Caller, Err(Miss::ContractChanged)),
            (vec![plain(), made_for()], Registry, Ok(contracted.contract_fingerprint())),
            (vec![plain(), failing()], Registry, Err(Miss::NeverSucceeded)),
        ] {
            let found = select(stored, &contracted, StandingMode::Shadow, origin);
            assert_eq!(found.map(|artifact| artifact.contract_fingerprint), expected);
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
        let found = select(vec![kept], &second, StandingMode::Shadow, ContractOrigin::Caller);
        assert!(found.is_ok());
    }
}
