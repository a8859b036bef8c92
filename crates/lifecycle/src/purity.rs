//! Which programs give the same answer whenever they run: only their calls can be run again to compare.
//!
//! Read from the syntax tree, so a program that hides its clock passes for pure; then its recorded calls do
//! not repeat, which their own program is found by (see [`crate::admission`]), and nothing is lost.

use crate::dialect::{Inspection, Language};
use crate::guardrail::fetches;
use crate::program::VettedProgram;

/// Python functions, classes and modules by the start of their full name: clocks, chance, files, the host.
const PYTHON: &[&str] = &[
    "asyncio.",
    "multiprocessing.",
    "builtins.open",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "getpass.",
    "glob.",
    "io.open",
    "numpy.random",
    "os.",
    "pathlib.",
    "platform.",
    "random.",
    "secrets.",
    "shutil.",
    "socket.",
    "sqlite3.",
    "subprocess.",
    "sys.stdin",
    "tempfile.",
    "threading.",
    "time.",
    "uuid.uuid1",
    "uuid.uuid4",
];
/// Python functions by their own name.
const PYTHON_BARE: &[&str] =
    &["open", "input", "id", "hash", "eval", "exec", "__import__", "content"];

/// Ruby classes with what of them is impure; `*` stands for everything.
const RUBY: &[(&str, &str)] = &[
    ("Date", "today"),
    ("DateTime", "now"),
    ("Dir", "*"),
    ("ENV", "*"),
    ("Etc", "*"),
    ("File", "*"),
    ("FileUtils", "*"),
    ("IO", "*"),
    ("Pathname", "*"),
    ("Process", "*"),
    ("Random", "*"),
    ("SecureRandom", "*"),
    ("Socket", "*"),
    ("Tempfile", "*"),
    ("Thread", "*"),
    ("Time", "new"),
    ("Time", "now"),
];
/// Ruby methods that are impure whatever they are called on.
const RUBY_BARE: &[&str] = &[
    "rand",
    "srand",
    "shuffle",
    "shuffle!",
    "sample",
    "gets",
    "open",
    "object_id",
    "hash",
    "eval",
    "instance_eval",
    "class_eval",
    "content",
    "`",
    "system",
    "spawn",
    "fork",
    "exec",
];

/// Keys of the context that are views of what changes beside the call.
const VIEWS: [&str; 2] = crate::context::VIEWS;

/// Whether the program's answer depends on its arguments and its memory alone.
pub(crate) fn is_pure(program: &VettedProgram) -> bool {
    let inspection = program.inspection();
    let asks = inspection.calls.iter().any(crate::dialect::Call::makes_agent)
        || inspection.context.iter().any(|used| VIEWS.contains(&used.key.as_str()));
    let depends = match program.program().language {
        Language::Python => python(inspection),
        Language::Ruby => ruby(inspection),
    };
    !asks && !depends && !fetches(inspection)
}

fn python(inspection: &Inspection) -> bool {
    let listed = |path: &str| PYTHON.iter().any(|start| path.starts_with(start));
    let bare = |name: &str| PYTHON_BARE.contains(&name);
    inspection.paths.iter().any(|used| listed(&used.path))
        || inspection
            .calls
            .iter()
            .any(|call| call.path().is_some_and(|path| listed(&path) || bare(&path)))
}

fn ruby(inspection: &Inspection) -> bool {
    let listed = |class: &str, method: &str| {
        let class = class.trim_start_matches("::");
        RUBY.iter().any(|(known, what)| *known == class && (*what == "*" || *what == method))
    };
    inspection.calls.iter().any(|call| {
        let class = call.receiver.as_ref().and_then(|receiver| receiver.path());
        RUBY_BARE.contains(&call.name.as_str())
            || class.is_some_and(|class| listed(class, &call.name))
    }) || inspection.paths.iter().any(|used| listed(&used.path, "*"))
}
