//! The retry table: every reason a try is rejected for, when it is found, and the lane that may try again.

/// Independent budgets of second chances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryLane {
    /// The model gave no usable program.
    Generation,
    /// The program broke a rule before it ran.
    Guardrail,
    /// The program failed while running.
    Execution,
    /// The program ran, and its answer will not do.
    Outcome,
}

impl RetryLane {
    /// Every lane.
    pub const ALL: [Self; 4] = [Self::Generation, Self::Guardrail, Self::Execution, Self::Outcome];

    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::Guardrail => "guardrail",
            Self::Execution => "execution",
            Self::Outcome => "outcome",
        }
    }
}

/// Retries each lane has per call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// `max_generation_attempts` less the first try.
    pub generation: u32,
    /// `guardrail_recovery_budget`.
    pub guardrail: u32,
    /// `execution_repair_budget`.
    pub execution: u32,
    /// `fresh_outcome_repair_budget`.
    pub outcome: u32,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { generation: 1, guardrail: 1, execution: 1, outcome: 1 }
    }
}

impl Budgets {
    /// What `lane` has in all.
    pub fn of(&self, lane: RetryLane) -> u32 {
        match lane {
            RetryLane::Generation => self.generation,
            RetryLane::Guardrail => self.guardrail,
            RetryLane::Execution => self.execution,
            RetryLane::Outcome => self.outcome,
        }
    }
}

/// Every reason an attempt can be rejected for: the rows of the retry table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is explained by its row in `Reason::row`")]
pub enum Reason {
    PayloadInvalid,
    Truncated,
    ProviderDown,
    RateLimited,
    ProviderTimeout,
    ProviderAuth,
    ProviderRefusal,
    ProviderRejected,
    ReplayDiverged,
    StoreDown,
    AllowanceSpent,
    Cancelled,
    SyntaxInvalid,
    ManifestInvalid,
    Barred,
    BarredForGood,
    ManifestIncompatible,
    ManifestChanged,
    PolicyViolated,
    Unresolvable,
    InstallFailed,
    ActivationFailed,
    SourceUnreachable,
    StillPreparing,
    GuestMissing,
    Raised,
    TimedOut,
    LimitReached,
    CrashedByProgram,
    CrashedByHost,
    Unserializable,
    ContractBroken,
    ReportedRetriable,
}

/// When in an attempt something was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Asking the model.
    Generation,
    /// Reading and vetting its program.
    Validation,
    /// Giving it an environment.
    Preparation,
    /// Running it.
    Execution,
    /// Judging its answer.
    Judgement,
}

impl Stage {
    /// The wire name (`latest_failure_stage`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::Validation => "validation",
            Self::Preparation => "preparation",
            Self::Execution => "execution",
            Self::Judgement => "outcome_policy",
        }
    }
}

impl Reason {
    /// Every reason, in table order.
    pub const ALL: [Self; 33] = [
        Self::PayloadInvalid,
        Self::Truncated,
        Self::ProviderDown,
        Self::RateLimited,
        Self::ProviderTimeout,
        Self::ProviderAuth,
        Self::ProviderRefusal,
        Self::ProviderRejected,
        Self::ReplayDiverged,
        Self::StoreDown,
        Self::AllowanceSpent,
        Self::Cancelled,
        Self::SyntaxInvalid,
        Self::ManifestInvalid,
        Self::Barred,
        Self::BarredForGood,
        Self::ManifestIncompatible,
        Self::ManifestChanged,
        Self::PolicyViolated,
        Self::Unresolvable,
        Self::InstallFailed,
        Self::ActivationFailed,
        Self::SourceUnreachable,
        Self::StillPreparing,
        Self::GuestMissing,
        Self::Raised,
        Self::TimedOut,
        Self::LimitReached,
        Self::CrashedByProgram,
        Self::CrashedByHost,
        Self::Unserializable,
        Self::ContractBroken,
        Self::ReportedRetriable,
    ];

    /// **The retry table**: where it was found, and the lane that may try again (`None`: the call ends).
    pub fn row(self) -> (Stage, Option<RetryLane>) {
        use RetryLane as Lane;
        match self {
            Self::PayloadInvalid => (Stage::Generation, Some(Lane::Generation)),
            Self::Truncated => (Stage::Generation, Some(Lane::Generation)),
            Self::ProviderDown => (Stage::Generation, Some(Lane::Generation)),
            Self::RateLimited => (Stage::Generation, Some(Lane::Generation)),
            Self::ProviderTimeout => (Stage::Generation, Some(Lane::Generation)),
            Self::ProviderAuth => (Stage::Generation, None),
            Self::ProviderRefusal => (Stage::Generation, None),
            Self::ProviderRejected => (Stage::Generation, None),
            Self::ReplayDiverged => (Stage::Generation, None),
            Self::StoreDown => (Stage::Generation, None),
            Self::AllowanceSpent => (Stage::Generation, None),
            Self::Cancelled => (Stage::Execution, None),
            Self::SyntaxInvalid => (Stage::Validation, Some(Lane::Generation)),
            Self::ManifestInvalid => (Stage::Validation, Some(Lane::Guardrail)),
            Self::Barred => (Stage::Validation, Some(Lane::Guardrail)),
            Self::BarredForGood => (Stage::Validation, None),
            Self::ManifestIncompatible => (Stage::Preparation, Some(Lane::Guardrail)),
            Self::ManifestChanged => (Stage::Preparation, Some(Lane::Guardrail)),
            Self::PolicyViolated => (Stage::Preparation, Some(Lane::Guardrail)),
            Self::Unresolvable => (Stage::Preparation, Some(Lane::Execution)),
            Self::InstallFailed => (Stage::Preparation, Some(Lane::Execution)),
            Self::ActivationFailed => (Stage::Preparation, Some(Lane::Execution)),
            Self::SourceUnreachable => (Stage::Preparation, None),
            Self::StillPreparing => (Stage::Preparation, None),
            Self::GuestMissing => (Stage::Preparation, None),
            Self::Raised => (Stage::Execution, Some(Lane::Execution)),
            Self::TimedOut => (Stage::Execution, Some(Lane::Execution)),
            Self::LimitReached => (Stage::Execution, Some(Lane::Execution)),
            Self::CrashedByProgram => (Stage::Execution, Some(Lane::Execution)),
            Self::CrashedByHost => (Stage::Execution, None),
            Self::Unserializable => (Stage::Execution, Some(Lane::Execution)),
            Self::ContractBroken => (Stage::Judgement, Some(Lane::Outcome)),
            Self::ReportedRetriable => (Stage::Judgement, Some(Lane::Outcome)),
        }
    }

    /// The lane that may try again.
    pub fn lane(self) -> Option<RetryLane> {
        self.row().1
    }

    /// When it was found.
    pub fn stage(self) -> Stage {
        self.row().0
    }

    /// The program and its agent's environment or policy do not fit each other: elsewhere it may do.
    pub fn is_misfit(self) -> bool {
        matches!(self, Self::ManifestIncompatible | Self::ManifestChanged | Self::PolicyViolated)
    }

    /// It ends the call whatever else could be tried.
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::ReplayDiverged
                | Self::Cancelled
                | Self::BarredForGood
                | Self::GuestMissing
                | Self::CrashedByHost
        )
    }

    /// Asking again without saying anything new may help: the service failed, not the program.
    pub fn is_transport(self) -> bool {
        matches!(self, Self::ProviderDown | Self::RateLimited | Self::ProviderTimeout)
    }
}
