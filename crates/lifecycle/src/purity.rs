//! Which programs give the same answer whenever they run: only their calls can be run again to compare.
//!
//! Read from the syntax tree, so a program that hides its clock passes for pure; then its recorded calls do
//! not repeat, which their own program is found by (see [`crate::admission`]), and nothing is lost.

use crate::context::VIEWS;
use crate::dialect::{Call, Inspection, Language};
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

/// Whether the program's answer depends on its arguments and its memory alone.
pub(crate) fn is_pure(program: &VettedProgram) -> bool {
    let inspection = program.inspection();
    // Views show what changes beside the call.
    let asks = inspection.calls.iter().any(Call::makes_agent)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dependency::DependencyManifest;
    use crate::guardrail::GuardrailPolicy;
    use crate::program::{GeneratedProgram, vet};
    use crate::request::{Arguments, CallRequest};

    fn pure(language: Language, source: &str) -> bool {
        let arguments = Arguments { args: vec![json!(7)], ..Arguments::default() };
        let request = CallRequest { arguments, language, ..CallRequest::bare("r", "m") };
        let program = GeneratedProgram {
            language,
            source: source.to_owned(),
            manifest: DependencyManifest::default(),
        };
        let policy = GuardrailPolicy { allow_processes: true, ..GuardrailPolicy::default() };
        is_pure(&vet(program, &request, &[], &policy).unwrap())
    }

    #[test]
    fn only_what_depends_on_arguments_and_memory_alone_is_pure() {
        for source in [
            "result = args[0] + 1",
            "import math, json, re\nresult = json.dumps(math.sqrt(args[0]))",
            "context['n'] = context.get('n', 0) + args[0]\nresult = context['n']",
            "from datetime import date\nresult = str(date(2020, 1, args[0]))",
            "def m(x):\n    time = x\n    return time",
        ] {
            assert!(pure(Language::Python, source), "{source}");
        }
        for source in [
            "import time\nresult = time.time() + args[0]",
            "from datetime import datetime\nresult = str(datetime.now()) + str(args[0])",
            "import random\nresult = random.choice([args[0]])",
            "from random import choice as pick\nresult = pick([args[0]])",
            "import uuid\nresult = str(uuid.uuid4()) + str(args[0])",
            "import urllib.request\nresult = urllib.request.urlopen(args[0])",
            "result = tool('x').go(args[0])",
            "result = len(context['conversation_history']) + args[0]",
            "result = content(args[0])",
            "result = open(args[0]).read()",
            "import os\nresult = os.environ.get(args[0])",
            "result = hash(args[0])",
            "import subprocess\nresult = subprocess.run(args)",
        ] {
            assert!(!pure(Language::Python, source), "{source}");
        }
        for source in ["args[0] + 1", "require 'json'\nJSON.dump(args)", "context[:n] = args[0]"] {
            assert!(pure(Language::Ruby, source), "{source}");
        }
        for source in [
            "Time.now.to_i + args[0]",
            "require 'date'\nDate.today.to_s + args[0].to_s",
            "rand + args[0]",
            "args.sample",
            "require 'securerandom'\nSecureRandom.hex(args[0])",
            "require 'net/http'\nNet::HTTP.get(URI(args[0]))",
            "tool('x').go(args[0])",
            "File.read(args[0])",
            "`date #{args[0]}`",
            "content(args[0])",
        ] {
            assert!(!pure(Language::Ruby, source), "{source}");
        }
    }
}
