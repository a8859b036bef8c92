//! MCP servers: real ones from the package index over stdio and HTTP, in both revisions of the protocol, and one that
//! misbehaves. Programs in both guests call them.
#![cfg(test)]

mod hostile;
mod real;
#[expect(dead_code, reason = "its main is for people")]
#[path = "../../../../examples/06_report.rs"]
mod report;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use mcp::Servers;
use recurgent::config::Config;
use recurgent::json::{Value, json};
use recurgent::provider::Scripted;
use recurgent::{Agent, Language, Outcome, Runtime};

/// A folder for one test, a scripted model, and a language.
struct Fixture {
    language: Language,
    model: Arc<Scripted>,
    folder: tempfile::TempDir,
}

fn check(behaviour: impl Fn(&Fixture)) {
    for language in Language::ALL {
        behaviour(&Fixture::new(language));
    }
}

impl Fixture {
    fn new(language: Language) -> Self {
        Self { language, model: Arc::default(), folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self, servers: &Value, settings: &[(&str, &str)]) -> Config {
        let file = self.path("servers.json");
        fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
        let mut config = Config::defaults();
        let (state, file) = (self.path("state").display().to_string(), file.display().to_string());
        let fixed = [("state_dir", state.as_str()), ("mcp_files", file.as_str()), ("tools", "*")];
        for (key, value) in fixed.iter().chain(settings) {
            config.set(key, value).unwrap();
        }
        config
    }

    fn runtime(&self, servers: &Value, settings: &[(&str, &str)]) -> (Runtime, Servers) {
        let config = self.config(servers, settings);
        let found = Servers::of(&config).unwrap();
        let builder = Runtime::builder(config).provider(Arc::<Scripted>::clone(&self.model));
        let builder = found.toolboxes().fold(builder, recurgent::RuntimeBuilder::toolbox);
        (builder.build().unwrap(), found)
    }

    fn desk(&self, runtime: &Runtime) -> Agent {
        runtime.agent("desk").guest(self.language).build().unwrap()
    }

    /// A program for `desk.method` that calls a tool and gives its value, or its failure as a text.
    fn calls(&self, method: &str, tool: &str, called: &str) {
        let code = match self.language {
            Language::Python => format!(
                "def {method}(given):\n    r = tool('{tool}').{called}(**given)\n    return r.value if r.ok else f'{{r.error_type}}: {{r.error_message}}'"
            ),
            Language::Ruby => format!(
                "def {method}(given)\n  r = tool('{tool}').{called}(**given.transform_keys(&:to_sym))\n  r.ok? ? r.value : \"#{{r.error_type}}: #{{r.error_message}}\"\nend"
            ),
        };
        self.model.add(&format!("desk.{method}"), json!({ "code": code }));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("state/recurgent.jsonl")).unwrap()
    }
}

fn text(outcome: &Outcome) -> &str {
    let failed = || outcome.failure().map_or("", |failure| failure.message.as_str());
    outcome.value().and_then(Value::as_str).unwrap_or_else(failed)
}

/// A Python environment with these packages, made once for all tests by `uv`.
fn environment(name: &str, packages: &[&str]) -> PathBuf {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-servers");
    fs::create_dir_all(&tools).unwrap();
    let lock = File::create(tools.join("lock")).unwrap();
    lock.lock().unwrap();
    let environment = tools.join(name);
    let done = environment.join("installed");
    let wanted = packages.join(" ");
    if fs::read_to_string(&done).is_ok_and(|known| known == wanted) {
        return environment;
    }
    let run = |command: &mut Command| {
        let output = command.output().expect("uv is needed; scripts/test installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(Command::new("uv").args(["venv", "--quiet", "--clear"]).arg(&environment));
    let python = environment.join("bin/python");
    run(Command::new("uv")
        .args(["pip", "install", "--quiet", "--python"])
        .arg(&python)
        .args(packages));
    fs::write(done, wanted).unwrap();
    environment
}
