//! Which programs return the same value whenever they run: only their calls can be run again to compare.
//!
//! Decided from the syntax tree and the tables of library facts, so a program that hides its clock counts as
//! pure. Its recorded calls then do not repeat, and [`crate::admission`] finds that out; nothing is lost.

use crate::context::VIEWS;
use crate::dialect::CallExpression;
use crate::dialect::library::IMPURE;
use crate::program::VettedProgram;

/// Whether the program's value depends on its arguments and its memory alone.
pub(crate) fn is_pure(program: &VettedProgram) -> bool {
    let inspection = program.inspection();
    // Views show what changes beside the call.
    let reads_view = inspection.context.iter().any(|used| VIEWS.contains(&used.key.as_str()));
    let delegates = inspection.calls.iter().any(CallExpression::makes_agent);
    !reads_view && !delegates && !inspection.uses_any(IMPURE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dependency::DependencyManifest;
    use crate::dialect::Language;
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
            "result = tools.search(args[0])",
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
            "tools.search(args[0])",
        ] {
            assert!(!pure(Language::Ruby, source), "{source}");
        }
    }
}
