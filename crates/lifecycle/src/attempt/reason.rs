//! The retry table: every reason an attempt is rejected for, and everything that follows from it.

use crate::blame::Blame;

/// Retries with a budget of their own.
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
    /// The model's service could not be reached, failed or was too busy.
    Transport,
    /// The program looked at a value before the next one is written.
    Look,
}

impl RetryLane {
    /// Every lane.
    pub const ALL: [Self; 6] = [
        Self::Generation,
        Self::Guardrail,
        Self::Execution,
        Self::Outcome,
        Self::Transport,
        Self::Look,
    ];

    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::Guardrail => "guardrail",
            Self::Execution => "execution",
            Self::Outcome => "outcome",
            Self::Transport => "transport",
            Self::Look => "look",
        }
    }

    /// Whether spent retries count against the program and its tool.
    pub fn counts_against_program(self) -> bool {
        match self {
            Self::Guardrail | Self::Outcome => true,
            Self::Generation | Self::Execution | Self::Transport | Self::Look => false,
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
    /// `transport_retries`.
    pub transport: u32,
    /// `look_budget`.
    pub look: u32,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { generation: 1, guardrail: 1, execution: 1, outcome: 1, transport: 4, look: 3 }
    }
}

impl Budgets {
    /// These budgets, none larger than the other's: what an agent that a program makes may spend.
    #[must_use]
    pub fn within(self, other: &Self) -> Self {
        Self {
            generation: self.generation.min(other.generation),
            guardrail: self.guardrail.min(other.guardrail),
            execution: self.execution.min(other.execution),
            outcome: self.outcome.min(other.outcome),
            transport: self.transport.min(other.transport),
            look: self.look.min(other.look),
        }
    }

    /// What `lane` has in all.
    pub fn of(&self, lane: RetryLane) -> u32 {
        match lane {
            RetryLane::Generation => self.generation,
            RetryLane::Guardrail => self.guardrail,
            RetryLane::Execution => self.execution,
            RetryLane::Outcome => self.outcome,
            RetryLane::Transport => self.transport,
            RetryLane::Look => self.look,
        }
    }
}

/// When in an attempt a reason for rejection was found.
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

/// What happens to a call whose stored program is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredNext {
    /// The call ends: no other program would help.
    Ends,
    /// A model repairs the program.
    Repair,
    /// The same, unless the program ran: a terminal rule broken at run time ends the call.
    RepairUnlessRan,
    /// A model widens the program to arguments it was not written for, if the policy allows; else the call ends.
    Widen,
}

impl StoredNext {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ends => "ends",
            Self::Repair => "repair",
            Self::RepairUnlessRan => "repair unless it ran",
            Self::Widen => "widen",
        }
    }
}

/// Reasons that are treated alike beside their lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasonClass {
    /// Nothing special.
    Plain,
    /// The model's service failed: the next try waits, and gets the same feedback.
    Transport,
    /// The call ends, even if an advised or degraded program could still run.
    Final,
}

impl ReasonClass {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Transport => "transport",
            Self::Final => "final",
        }
    }
}

/// One row of the retry table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryRow {
    /// When in an attempt it is found.
    pub stage: Stage,
    /// The lane that may try again; `None`: the call ends.
    pub lane: Option<RetryLane>,
    /// What happens when the program came from storage.
    pub stored: StoredNext,
    /// What it is attributed to: only a fault of the program counts against it.
    pub blame: Blame,
    /// What else is particular to it.
    pub class: ReasonClass,
}

/// Declares the reasons and their rows together.
macro_rules! retry_table {
    ($($(#[$doc:meta])* $reason:ident: $stage:ident, $lane:expr, $stored:ident, $blame:ident, $class:ident;)*) => {
        /// Every reason an attempt can be rejected for: the rows of the retry table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$doc])* $reason,)*
        }

        impl Reason {
            /// Every reason, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$reason),*];

            /// Its row in **the retry table**.
            pub fn row(self) -> RetryRow {
                match self {
                    $(Self::$reason => RetryRow {
                        stage: Stage::$stage,
                        lane: $lane,
                        stored: StoredNext::$stored,
                        blame: Blame::$blame,
                        class: ReasonClass::$class,
                    },)*
                }
            }
        }
    };
}

const GENERATION: Option<RetryLane> = Some(RetryLane::Generation);
const GUARDRAIL: Option<RetryLane> = Some(RetryLane::Guardrail);
const EXECUTION: Option<RetryLane> = Some(RetryLane::Execution);
const OUTCOME: Option<RetryLane> = Some(RetryLane::Outcome);
const TRANSPORT: Option<RetryLane> = Some(RetryLane::Transport);
const LOOK: Option<RetryLane> = Some(RetryLane::Look);

retry_table! {
    /// The payload is not a program.
    PayloadInvalid:       Generation,  GENERATION, Repair,          Program, Plain;
    /// The answer was cut off at the output limit.
    Truncated:            Generation,  GENERATION, Repair,          Program, Plain;
    /// The service failed.
    ProviderDown:         Generation,  TRANSPORT, Repair,          World,   Transport;
    /// The service asked us to slow down.
    RateLimited:          Generation,  TRANSPORT, Repair,          World,   Transport;
    /// The service did not answer in time.
    ProviderTimeout:      Generation,  GENERATION, Repair,          World,   Transport;
    /// No usable key.
    ProviderAuth:         Generation,  None,       Ends,            World,   Plain;
    /// The model refused.
    ProviderRefusal:      Generation,  None,       Ends,            World,   Plain;
    /// The service rejected the request.
    ProviderRejected:     Generation,  None,       Ends,            World,   Plain;
    /// No model may be asked.
    GenerationOff:        Generation,  None,       Ends,            World,   Plain;
    /// A recording lacks the reply.
    ReplayDiverged:       Generation,  None,       Ends,            World,   Final;
    /// The store could not be read for the prompt.
    StoreDown:            Generation,  None,       Ends,            World,   Plain;
    /// The allowance of the call tree is spent.
    AllowanceSpent:       Generation,  None,       Ends,            Caller,  Plain;
    /// The caller cancelled.
    Cancelled:            Execution,   None,       Ends,            World,   Final;
    /// The program does not parse.
    SyntaxInvalid:        Validation,  GENERATION, Repair,          Program, Plain;
    /// The function of a new program cannot take the arguments of the call.
    SignatureUnfit:       Validation,  GENERATION, Repair,          Program, Plain;
    /// A dependency declaration cannot be read.
    ManifestInvalid:      Validation,  GUARDRAIL,  Repair,          Program, Plain;
    /// The program broke a guardrail.
    GuardrailBroken:      Validation,  GUARDRAIL,  Repair,          Program, Plain;
    /// The program broke a terminal guardrail.
    TerminalGuardrail:    Validation,  None,       RepairUnlessRan, Program, Final;
    /// A declared version does not fit the agent's environment.
    ManifestIncompatible: Preparation, GUARDRAIL,  Repair,          World,   Plain;
    /// The packages changed in strict mode.
    ManifestChanged:      Preparation, GUARDRAIL,  Repair,          World,   Plain;
    /// Configuration forbids a package.
    PolicyViolated:       Preparation, GUARDRAIL,  Repair,          World,   Plain;
    /// No versions satisfy the manifest.
    Unresolvable:         Preparation, EXECUTION,  Ends,            World,   Plain;
    /// A package could not be fetched or built.
    InstallFailed:        Preparation, EXECUTION,  Ends,            World,   Plain;
    /// A package cannot be loaded.
    ActivationFailed:     Preparation, EXECUTION,  Ends,            World,   Plain;
    /// A package source did not answer.
    SourceUnreachable:    Preparation, None,       Ends,            World,   Plain;
    /// The packages are still being installed.
    StillPreparing:       Preparation, None,       Ends,            World,   Plain;
    /// The guest language or the sandbox is missing.
    GuestMissing:         Preparation, None,       Ends,            World,   Final;
    /// The program raised an exception.
    Raised:               Execution,   EXECUTION,  Repair,          Program, Plain;
    /// A stored program raised on arguments of a shape it was never accepted with, or rejected a value.
    CallerRaised:         Execution,   EXECUTION,  Widen,           Caller,  Plain;
    /// A required parameter of the stored function gets nothing.
    ArgumentsMissing:     Validation,  None,       Ends,            Caller,  Plain;
    /// The stored function does not take all arguments.
    ArgumentsExtra:       Validation,  EXECUTION,  Widen,           Caller,  Plain;
    /// A service or file that the call names cannot be used.
    OutsideFailed:        Execution,   None,       Ends,            World,   Plain;
    /// A service or file that the program chose cannot be used.
    OutsideChosen:        Execution,   EXECUTION,  Ends,            World,   Plain;
    /// A stored program cannot use what a service answered.
    AnswerUnread:         Execution,   EXECUTION,  Ends,            World,   Plain;
    /// The same, several times in a row: the service changed what it answers.
    AnswerChanged:        Execution,   EXECUTION,  Repair,          Program, Plain;
    /// A call of another agent failed, and the program did not handle it.
    CallFailed:           Execution,   EXECUTION,  Ends,            World,   Plain;
    /// A model did not answer a question of the program.
    InferFailed:          Execution,   None,       Ends,            World,   Plain;
    /// A model's answers to a question of the program cannot be used.
    AnswerUnfit:          Execution,   EXECUTION,  Ends,            World,   Plain;
    /// The program looked at a value that the next one is written for.
    Looked:               Execution,   LOOK,       Repair,          World,   Plain;
    /// The program ran past its time limit.
    TimedOut:             Execution,   EXECUTION,  Repair,          Program, Plain;
    /// The program reached a limit.
    LimitReached:         Execution,   EXECUTION,  Repair,          Program, Plain;
    /// The program ended its worker.
    CrashedByProgram:     Execution,   EXECUTION,  Repair,          Program, Plain;
    /// The host ended the worker.
    CrashedByHost:        Execution,   None,       Ends,            World,   Final;
    /// The result cannot be written as JSON.
    Unserializable:       Execution,   EXECUTION,  Repair,          Program, Plain;
    /// The program ended without a result.
    NoResult:             Judgement,   OUTCOME,    Repair,          Program, Plain;
    /// The value breaks the contract.
    ContractBroken:       Judgement,   OUTCOME,    Repair,          Program, Plain;
    /// An example is not met.
    ExampleMissed:        Judgement,   OUTCOME,    Repair,          Program, Plain;
    /// The value is not the one that the caller expects of this call.
    ExpectationMissed:    Judgement,   OUTCOME,    Repair,          Program, Plain;
    /// The program reported a retriable error.
    ReportedRetriable:    Judgement,   OUTCOME,    Repair,          Program, Plain;
}

impl Reason {
    /// The lane that may try again.
    pub fn lane(self) -> Option<RetryLane> {
        self.row().lane
    }

    /// When it was found.
    pub fn stage(self) -> Stage {
        self.row().stage
    }

    /// Whether it ends the call even if another program could still run.
    pub fn is_final(self) -> bool {
        self.row().class == ReasonClass::Final
    }

    /// Whether the model's service failed, not a program.
    pub fn is_transport(self) -> bool {
        self.row().class == ReasonClass::Transport
    }
}
