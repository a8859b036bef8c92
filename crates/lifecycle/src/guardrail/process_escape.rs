//! The rule `process_escape`, against starting, replacing or signalling processes, and raw system calls.

use Language::{Python, Ruby};

use crate::artifact::RunVerdict;
use crate::dialect::library::PROCESS;
use crate::dialect::{Language, LibraryUse, UseKind};

use super::{
    Finding, Guardrail, GuardrailInput, RuleCheck, Severity, ViolationType, passes, violates,
};

pub(super) const GUARDRAIL: Guardrail = Guardrail {
    subtype: "process_escape",
    violation_type: ViolationType::Process,
    severity: Severity::Recoverable,
    failure: None,
    check: RuleCheck::Program(find),
    permitted_by: Some(|policy| policy.allow_processes),
    forbids_reuse: true,
    verdict: RunVerdict::Failed,
    summary: "starting, replacing or signalling processes, and raw system calls",
    details: "\
A program answers from its own worker process; a process that it starts would escape its limits and its
rollback. A timer that interrupts the program itself (`signal.alarm` with a handler of `SIGALRM`) passes. Only calls
of the real functions count, not imports alone; also through import aliases, `getattr`, `send` and `method`; text that names a command
does not. A name that is computed while the program runs, and code in evaluated text, cannot be seen here: the
sandbox of the worker stops them.",
    correction: "Do the work in the program itself with the standard library, or return an error outcome \
                 `unsupported_capability` if it cannot be done without another process.",
    examples: &[
        violates(Python, "from os import system as s\nresult = s(\"ls\")"),
        passes(Python, "system = {\"kill\": 1}\nresult = system[\"kill\"]"),
        passes(
            Python,
            "import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\nsignal.alarm(5)\nresult = args[0]\nsignal.alarm(0)",
        ),
        violates(Python, "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)"),
        passes(Python, "import ctypes\nresult = ctypes.c_int32(args[0]).value"),
        violates(Python, "import ctypes\nctypes.CDLL(None).getpid()"),
        violates(Ruby, "`ls`"),
        violates(Ruby, "IO.popen(\"ls\").read"),
        violates(Ruby, "IO.read(\"|ls\")"),
        passes(Ruby, "IO.read(\"ls\")"),
        passes(Ruby, "system = { kill: 1 }\nsystem[:kill]"),
    ],
};

fn find(input: &GuardrailInput<'_>) -> Option<Finding> {
    let uses = input.inspection.library.iter();
    let starts = |it: &&LibraryUse| {
        // A Python function is a value, so mentioning it is enough; a Ruby method has to be called.
        let counts = match input.language {
            Language::Python => it.kind != UseKind::Imported,
            Language::Ruby => matches!(it.kind, UseKind::Called(_)),
        };
        counts && it.facts.any(PROCESS)
    };
    let found = uses.filter(starts).min_by_key(|it| it.position)?;
    let message =
        format!("`{}` starts or signals a process, which this agent may not do", found.name);
    Some(Finding::at(found.position, message))
}
