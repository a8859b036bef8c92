//! Documents that show something are tests: what they show must be so.
#![expect(clippy::panic, clippy::unwrap_used, clippy::disallowed_methods, reason = "test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use recurgent::config::KEYS;
use recurgent::provider::service_names;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A fenced block: what follows the fence, and its lines.
struct Block {
    info: String,
    text: String,
}

fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in document.lines() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(info), None) => open = Some(Block { info: info.to_owned(), text: String::new() }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    blocks
}

/// A document whose commands run one after the other in a directory of its own.
struct DocumentRun {
    dir: tempfile::TempDir,
    /// The answers of a model to the command of a number: `NN.jsonl`.
    recordings: Option<PathBuf>,
    /// Commands so far.
    commands: usize,
}

impl DocumentRun {
    /// Runs every command of a `console` block and checks that it prints what follows it.
    fn check_console(&mut self, block: &Block) {
        for session in block.text.split("$ ").skip(1) {
            self.commands += 1;
            let (command, expected) = session.split_once('\n').unwrap();
            let output = self.command(command).output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(
                fits(&printed, expected),
                "$ {command}\n{complaint}\nprinted:  {printed}\nexpected: {expected}"
            );
        }
    }

    /// A shell splits the words, so that what is shown can be pasted.
    fn command(&self, command: &str) -> Command {
        let dir = self.dir.path();
        let arguments =
            command.strip_prefix("recurgent ").unwrap_or_else(|| panic!("not ours: {command}"));
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("exec \"$RECURGENT\" {arguments}"))
            .current_dir(dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("RECURGENT", env!("CARGO_BIN_EXE_recurgent"))
            .env("RECURGENT_STATE_DIR", dir.join("state"))
            .env("RECURGENT_MODELS_DIR", dir.join("models"))
            .env("RECURGENT_LOCAL_SERVERS", "");
        let recording = |folder: &PathBuf| folder.join(format!("{:02}.jsonl", self.commands));
        if let Some(recording) = self.recordings.as_ref().map(recording).filter(|it| it.exists()) {
            shell.env("RECURGENT_PROVIDER", format!("replay:{}", recording.display()));
        }
        shell
    }
}

/// Whether a text is as shown; `…` stands for what differs each time.
fn fits(printed: &str, shown: &str) -> bool {
    let mut parts = shown.split('…');
    let mut rest = parts.next().and_then(|first| printed.strip_prefix(first));
    for part in parts {
        rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
    }
    rest == Some("")
}

/// Writes the files a document shows and runs its commands, in order; gives how many there were.
fn check_document(path: &str) -> usize {
    check_recorded_document(path, None)
}

fn check_recorded_document(path: &str, recordings: Option<PathBuf>) -> usize {
    let mut run = DocumentRun { dir: tempfile::tempdir().unwrap(), recordings, commands: 0 };
    for block in blocks(&read(path)) {
        if let Some((_, name)) = block.info.split_once(" file=") {
            std::fs::write(run.dir.path().join(name), &block.text).unwrap();
        } else if block.info == "console" {
            run.check_console(&block);
        }
    }
    run.commands
}

#[test]
fn the_tour_is_true() {
    assert!(check_document("docs/tour.md") >= 7, "the tour shows something");
}

#[test]
fn the_page_about_tools_is_true() {
    assert!(check_document("docs/tools.md") >= 4, "it shows something");
}

#[test]
fn the_page_about_language_work_is_true() {
    assert!(check_document("docs/language-work.md") >= 3, "it shows something");
}

#[test]
fn the_page_about_looking_at_calls_is_true() {
    assert!(check_document("docs/observability.md") >= 5, "it shows something");
}

/// `scripts/first-hour` writes what it shows, and the recordings.
#[test]
fn the_first_hour_is_true() {
    let recordings = root().join("docs/first-hour");
    let commands = check_recorded_document("docs/first-hour.md", Some(recordings.clone()));
    assert!(commands >= 8, "it shows something");
    let known: Vec<String> = (1..=commands).map(|number| format!("{number:02}.jsonl")).collect();
    let found = std::fs::read_dir(recordings).unwrap();
    let found: Vec<String> =
        found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!found.is_empty(), "scripts/first-hour records the answers of a model");
    let stray: Vec<&String> = found.iter().filter(|name| !known.contains(name)).collect();
    assert!(stray.is_empty(), "recordings of no command: {stray:?}");
}

/// The calls of the README that need no model work as they are shown.
#[test]
fn the_calls_of_the_readme_are_true() {
    let readme = read("README.md");
    let is_call = |line: &&str| line.contains("scripted:") && line.contains(" -- call ");
    let calls: Vec<&str> = readme.lines().filter(is_call).collect();
    assert!(calls.len() >= 2, "{calls:?}");
    for call in calls {
        let (before, after) = call.split_once("cargo run").unwrap();
        let (_, arguments) = after.split_once(" -- ").unwrap();
        let state = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{before}\"$RECURGENT\" {arguments}")]).current_dir(root());
        shell.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        shell.env("RECURGENT", env!("CARGO_BIN_EXE_recurgent"));
        let output = shell.env("RECURGENT_STATE_DIR", state.path()).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !output.stdout.is_empty(), "{call}: {complaint}");
    }
}

/// A newcomer types the calls of a page one after the other, in one store: a method that is called with two values and later
/// with one would fail there.
#[test]
fn a_method_is_called_with_as_many_arguments_on_all_of_a_page() {
    let help = Command::new(env!("CARGO_BIN_EXE_recurgent")).arg("--help").output().unwrap();
    for page in [read("README.md"), String::from_utf8(help.stdout).unwrap()] {
        let mut counts = BTreeMap::new();
        for line in page.lines() {
            let is_command =
                |before: &str| ["recurgent", " --"].iter().any(|it| before.ends_with(it));
            let Some((_, call)) =
                line.split_once(" call ").filter(|(before, _)| is_command(before))
            else {
                continue;
            };
            let words: Vec<&str> = call.split("  ").next().unwrap().split(' ').collect();
            let [role, method, args @ ..] = words.as_slice() else { panic!("{line}") };
            let count = args.iter().take_while(|word| !word.starts_with("--")).count();
            let known = counts.entry((*role, *method)).or_insert(count);
            assert_eq!(*known, count, "{line}");
        }
        assert!(counts.len() > 1, "{counts:?}");
    }
}

/// The picture of the README shows what a terminal shows today.
#[test]
fn the_picture_is_what_the_command_prints() {
    let mut check = Command::new("python3");
    check.arg(root().join("scripts/picture")).args(["--check", "--recurgent"]);
    let output = check.arg(env!("CARGO_BIN_EXE_recurgent")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_readme_program_is_the_first_example() {
    let readme = blocks(&read("README.md"));
    let program = &readme.iter().find(|block| block.info.starts_with("rust")).unwrap().text;
    assert!(
        read("examples/01_calculator.rs").ends_with(program),
        "README.md and examples/01_calculator.rs differ"
    );
}

#[test]
fn every_setting_is_documented_with_its_default() {
    let table = read("docs/configuration.md");
    for key in KEYS {
        let row = table.lines().find(|line| {
            line.split('|').nth(1).is_some_and(|names| names.contains(&format!("`{}`", key.name)))
        });
        let row = row.unwrap_or_else(|| panic!("docs/configuration.md lacks `{}`", key.name));
        let shown = row.split('|').nth(2).unwrap().trim().trim_matches('`');
        let default = key.default();
        let expected = match key.name {
            // Without a value, these have a meaning that the page states.
            "allowed_packages" | "allowed_gems" => "all",
            "installer_ca_bundle" => "the system's",
            "uv" => "on `PATH`, else fetched once",
            "cache_dir" => "$XDG_CACHE_HOME/recurgent",
            "state_dir" => "$XDG_STATE_HOME/recurgent",
            "log" => "recurgent.jsonl` in the state directory",
            "python" | "ruby" => "found on `PATH",
            _ if default.is_empty() => "none",
            _ => &default,
        };
        assert_eq!(shown, expected, "{}", key.name);
        if key.name == "provider" {
            let services = service_names();
            let lacks = services.split(", ").find(|name| !row.contains(&format!("`{name}`")));
            assert_eq!(lacks, None, "docs/configuration.md: a service that `provider` may name");
        }
    }
}

#[test]
fn every_log_field_is_documented() {
    let schema: serde_json::Value =
        serde_json::from_str(&read("specs/log-entry.schema.json")).unwrap();
    let page = read("docs/observability.md");
    for field in schema["properties"].as_object().unwrap().keys() {
        assert!(
            page.contains(&format!("`{field}`")) || page.contains(&format!("`{field}[]`")),
            "docs/observability.md lacks `{field}`"
        );
    }
}
