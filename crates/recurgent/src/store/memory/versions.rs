//! Stored programs, as `sqlite/lines.rs` keeps them.

use lifecycle::admission::{Admission, Case, Incumbent, MAX_CASES, admit};
use lifecycle::artifact::{Artifact, Generation, Repute, RunVerdict};
use lifecycle::program::Checksum;
use lifecycle::select::unfit;
use lifecycle::settlement::Receipt;
use lifecycle::standing::{Decision, Evidence, Standing, StandingMode, StateKeys, Window, decide};

use super::super::MAX_VERSIONS;
use super::super::catalog::{Decided, KnownArtifact, MAX_DECISIONS, Verdict, Version};

/// Everything under one key.
#[derive(Debug, Default)]
pub(super) struct Line {
    current: u32,
    generations: u32,
    pinned: bool,
    challenger: Option<u32>,
    versions: Vec<Kept>,
    cases: Vec<Case>,
    decisions: Vec<Decided>,
}

/// A version, and the sessions it was called in.
#[derive(Debug)]
struct Kept {
    number: u32,
    generation: Generation,
    sessions: Vec<String>,
    admitted_at: String,
    failing_case: Option<Case>,
}

impl Line {
    /// The version that runs, as it is recalled.
    pub(super) fn recalled(&self) -> Option<Artifact> {
        self.current().map(|kept| self.artifact(kept))
    }

    pub(super) fn known(&self) -> Option<KnownArtifact> {
        let current = self.recalled()?;
        Some(KnownArtifact { current, version: self.current, pinned: self.pinned })
    }

    pub(super) fn state_keys(&self) -> Option<&StateKeys> {
        self.current().map(|kept| &kept.generation.state_keys)
    }

    pub(super) fn cases(&self) -> &[Case] {
        &self.cases
    }

    pub(super) fn decisions(&self) -> Vec<Decided> {
        self.decisions.iter().rev().cloned().collect()
    }

    pub(super) fn versions(&self) -> Vec<Version> {
        let version = |kept: &Kept| Version {
            number: kept.number,
            artifact: self.artifact(kept),
            is_current: kept.number == self.current,
            trigger: kept.generation.trigger,
            parent: kept.generation.parent.clone(),
            failure: kept.generation.failure.clone(),
            pure: kept.generation.pure,
            state_keys: kept.generation.state_keys.clone(),
            admitted_at: kept.admitted_at.clone(),
            failing_case: kept.failing_case.clone(),
        };
        self.versions.iter().rev().map(version).collect()
    }

    pub(super) fn pin(&mut self, pinned: bool) {
        self.pinned = pinned;
    }

    pub(super) fn admit(&mut self, generation: &Generation, session: &str) -> Receipt {
        let new = &generation.artifact;
        let rival = self.recalled().filter(|found| found.checksum != new.checksum);
        let rival = rival.map(|found| Incumbent {
            fit: unfit(&found, StandingMode::Enforced).is_none(),
            pinned: self.pinned,
            cases: found.repute.cases,
        });
        let admission = admit(new, generation.pure, rival);
        self.generations += 1;
        let mut generation = generation.clone();
        if let Some(index) = self.versions.iter().position(|kept| kept.checksum() == &new.checksum)
        {
            generation.artifact.successes += self.versions.remove(index).artifact().successes;
        }
        self.versions.push(Kept {
            number: self.generations,
            generation,
            sessions: vec![session.to_owned()],
            admitted_at: jiff::Timestamp::now().to_string(),
            failing_case: None,
        });
        let mut receipt = Receipt {
            admission: Some(admission),
            generations: Some(self.generations),
            ..Receipt::default()
        };
        match admission {
            Admission::TakesOver => receipt.decision = self.let_run(self.generations),
            Admission::AwaitsTrial => {
                self.challenger = Some(self.generations);
                receipt.challenger = Some(new.checksum.clone());
            }
            Admission::KeptForPinned | Admission::KeptForReusable | Admission::KeptUntried => {}
        }
        self.drop_versions();
        receipt
    }

    pub(super) fn score(
        &mut self,
        checksum: &Checksum,
        verdict: RunVerdict,
        session: &str,
        agreement: f64,
    ) -> Option<Decision> {
        verdict.mark()?;
        let kept = self.versions.iter_mut().find(|kept| kept.checksum() == checksum)?;
        let artifact = &mut kept.generation.artifact;
        artifact.successes += u32::from(verdict == RunVerdict::Succeeded);
        artifact.failures += u32::from(verdict.speaks_against());
        artifact.repute.recent.push(verdict);
        if !kept.sessions.iter().any(|known| known == session) {
            kept.sessions.push(session.to_owned());
        }
        let standing = artifact.repute.standing;
        let mut evidence = Evidence {
            recent: artifact.repute.recent.clone(),
            sessions: kept.sessions.len(),
            state_key_agreement: None,
        };
        if standing != Standing::Durable && evidence.is_clean() {
            evidence.state_key_agreement = Some(agreement);
        }
        let decision = decide(standing, &evidence);
        self.decided(checksum, &decision);
        Some(decision)
    }

    pub(super) fn count_repair(&mut self, checksum: &Checksum) {
        if let Some(kept) = self.versions.iter_mut().find(|kept| kept.checksum() == checksum) {
            kept.generation.artifact.repairs += 1;
        }
    }

    pub(super) fn record_case(&mut self, case: &Case) {
        let is_known = self.cases.iter().any(|known| known.inputs == case.inputs);
        if !is_known && self.cases.len() < usize::try_from(MAX_CASES).unwrap_or(usize::MAX) {
            self.cases.push(case.clone());
        }
    }

    pub(super) fn forget_case(&mut self, case: &Case) {
        self.cases.retain(|known| known.inputs != case.inputs);
    }

    pub(super) fn conclude(
        &mut self,
        incumbent: &Checksum,
        challenger: &Checksum,
        verdict: &Verdict,
    ) -> bool {
        let Some(number) = self.number_of(challenger) else { return false };
        if self.challenger == Some(number) {
            self.challenger = None;
        }
        match verdict {
            Verdict::Passed if !self.pinned && self.number_of(incumbent) == Some(self.current) => {
                self.let_run(number);
                true
            }
            Verdict::Passed => false,
            Verdict::Failed(case) => {
                if let Some(kept) = self.versions.iter_mut().find(|kept| kept.number == number) {
                    kept.failing_case = Some(Case::clone(case));
                }
                false
            }
        }
    }

    pub(super) fn rollback(&mut self, to: Option<&Checksum>) -> Option<Checksum> {
        let wanted = |kept: &&Kept| match to {
            Some(checksum) => kept.checksum() == checksum && kept.number != self.current,
            None => kept.number < self.current && has_run(kept),
        };
        let worked = |kept: &&Kept| kept.artifact().successes > 0;
        let target = self.versions.iter().rev().filter(wanted).find(worked)?;
        let (number, checksum) = (target.number, target.checksum().clone());
        let before = target.artifact().repute.standing;
        let left = self.current().map(|kept| (kept.checksum().clone(), kept.standing()));
        if let Some((left, standing)) = left {
            let decision = Decision::by_hand(standing, Standing::Degraded, "rolled back");
            self.decided(&left, &decision);
        }
        let restored = Decision::by_hand(before, Standing::Probation, "rolled back to");
        self.record(&checksum, &restored);
        if let Some(kept) = self.versions.iter_mut().find(|kept| kept.number == number) {
            kept.generation.artifact.repute.standing = Standing::Probation;
            kept.generation.artifact.repute.recent = Window::default();
        }
        self.current = number;
        self.challenger = None;
        Some(checksum)
    }

    fn let_run(&mut self, number: u32) -> Option<Decision> {
        self.current = number;
        self.challenger = None;
        let kept = self.current()?;
        let recent = kept.artifact().repute.recent.clone();
        let evidence = Evidence { recent, sessions: 1, state_key_agreement: None };
        let decision = decide(kept.standing(), &evidence);
        let checksum = kept.checksum().clone();
        self.decided(&checksum, &decision);
        Some(decision).filter(Decision::is_change)
    }

    fn decided(&mut self, checksum: &Checksum, decision: &Decision) {
        if !decision.is_change() {
            return;
        }
        if let Some(kept) = self.versions.iter_mut().find(|kept| kept.checksum() == checksum) {
            kept.generation.artifact.repute.standing = decision.to;
        }
        self.record(checksum, decision);
    }

    fn record(&mut self, checksum: &Checksum, decision: &Decision) {
        self.decisions.push(Decided {
            checksum: checksum.clone(),
            decided_at: jiff::Timestamp::now().to_string(),
            decision: decision.clone(),
        });
        let excess = self.decisions.len().saturating_sub(MAX_DECISIONS);
        self.decisions.drain(..excess);
    }

    /// The oldest go, except the one that runs and the last that ran before it.
    fn drop_versions(&mut self) {
        let current = self.current;
        let last_good =
            self.versions.iter().rev().find(|kept| kept.number < current && has_run(kept));
        let last_good = last_good.map(|kept| kept.number);
        let excess = self.versions.len().saturating_sub(MAX_VERSIONS);
        let oldest = self.versions.get(..excess).unwrap_or_default();
        let dropped: Vec<u32> = oldest
            .iter()
            .map(|kept| kept.number)
            .filter(|number| *number != current && Some(*number) != last_good)
            .collect();
        self.versions.retain(|kept| !dropped.contains(&kept.number));
    }

    fn current(&self) -> Option<&Kept> {
        self.versions.iter().find(|kept| kept.number == self.current)
    }

    fn number_of(&self, checksum: &Checksum) -> Option<u32> {
        self.versions.iter().find(|kept| kept.checksum() == checksum).map(|kept| kept.number)
    }

    fn artifact(&self, kept: &Kept) -> Artifact {
        let challenger = self.versions.iter().find(|kept| Some(kept.number) == self.challenger);
        let artifact = kept.artifact();
        let repute = Repute {
            cases: u32::try_from(self.cases.len()).unwrap_or(u32::MAX),
            challenger: challenger.map(|kept| kept.checksum().clone()),
            generations: self.generations,
            ..artifact.repute.clone()
        };
        Artifact { repute, ..artifact.clone() }
    }
}

impl Kept {
    fn artifact(&self) -> &Artifact {
        &self.generation.artifact
    }

    fn checksum(&self) -> &Checksum {
        &self.artifact().checksum
    }

    fn standing(&self) -> Standing {
        self.artifact().repute.standing
    }
}

/// It ran, and was not taken back.
fn has_run(kept: &Kept) -> bool {
    matches!(kept.standing(), Standing::Probation | Standing::Durable)
}
