//! Several processes and one environment; processes that are killed; processes with misleading environment variables.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use recurgent::Language;
use serde_json::{Value, json};

use crate::fixture::{EnvironmentFixture, value};
use crate::sources::PackageServer;

/// The environment variable with the instructions of the process below, as JSON.
const ORDER: &str = "ENVIRONMENTS_TEST_ORDER";
/// Far more than anything here needs.
const HANG_TIMEOUT: Duration = Duration::from_mins(5);

/// A process that prepares what its input names, and prints the result. Run by the tests below.
#[test]
fn a_process_that_calls() {
    #[expect(clippy::disallowed_methods, reason = "a test process has no other configuration")]
    let Ok(order) = std::env::var(ORDER) else { return };
    let order: Value = serde_json::from_str(&order).unwrap();
    let mut fixture = EnvironmentFixture::new(order["guest"].as_str().unwrap().parse().unwrap());
    for (key, setting) in order["settings"].as_object().unwrap() {
        fixture.set(key, setting.as_str().unwrap());
    }
    let outcome = fixture.run_program(order["code"].as_str().unwrap(), &order["dependencies"]);
    let logged = fixture.last_log_entry();
    println!(
        "\nanswer: {}",
        json!({
            "result": outcome.result.map_err(|failure| failure.to_string()),
            "env_id": logged["env_id"],
            "hit": logged["environment_cache_hit"],
        })
    );
}

/// Starts such a process, for the environments of `fixture`.
pub(crate) fn start_process(
    fixture: &EnvironmentFixture,
    order: &Value,
    variables: &[(&str, &str)],
) -> Child {
    let mut settings = json!({});
    for (key, text, _) in fixture.config.entries() {
        let ours = ["cache_dir", "source_mode", "gem_sources", "python_indexes", "installer_env"];
        if ours.contains(&key.name) {
            settings[key.name] = json!(text);
        }
    }
    let mut order = order.clone();
    order["guest"] = json!(fixture.language.name());
    order["settings"] = settings;
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::a_process_that_calls", "--nocapture"])
        .env(ORDER, order.to_string())
        .env("TMPDIR", fixture.path("scratch")) // what a killed process leaves goes with the fixture
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

pub(crate) fn answer(mut process: Child) -> Value {
    let mut text = String::new();
    process.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    process.wait().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("answer: "));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no answer in {text}"))).unwrap()
}

fn sluggish() -> Value {
    json!({"code": "require 'sluggish'\n7", "dependencies": [{"name": "sluggish"}]})
}

#[test]
fn eight_processes_that_want_one_environment_build_it_once() {
    let source = PackageServer::gems();
    let fixture = source.fixture();
    let processes: Vec<Child> = (0..8).map(|_| start_process(&fixture, &sluggish(), &[])).collect();
    let answers: Vec<Value> = processes.into_iter().map(answer).collect();
    for one in &answers {
        assert_eq!(one["result"], json!({"Ok": 7}), "{answers:#?}");
        assert_eq!(one["env_id"], answers[0]["env_id"]);
    }
    assert_eq!(source.asked_for("/gems/sluggish-1.0.0.gem"), 1);
    assert_eq!(fixture.environments().len(), 1);
    let later = answer(start_process(&fixture, &sluggish(), &[]));
    assert_eq!(later["hit"], json!(true));
}

#[test]
fn what_a_killed_build_left_is_cleared_and_built_again() {
    let source = PackageServer::gems();
    let fixture = source.fixture();
    let mut killed = start_process(&fixture, &sluggish(), &[]);
    let begun = Instant::now();
    let under_way = || {
        let lock = fixture.environments().iter().any(|root| root.join("Gemfile.lock").exists());
        lock && source.asked_for("/gems/sluggish-1.0.0.gem") > 0
    };
    while !under_way() {
        assert!(begun.elapsed() < HANG_TIMEOUT, "the build does not get under way");
        std::thread::sleep(Duration::from_millis(10));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(fixture.environments().iter().all(|root| !root.join(".ready").exists()));
    let again = answer(start_process(&fixture, &sluggish(), &[]));
    assert_eq!((&again["result"], &again["hit"]), (&json!({"Ok": 7}), &json!(false)));
    let ready: Vec<_> = fixture.environments();
    assert_eq!(ready.len(), 1, "{ready:?}");
    assert!(ready[0].join(".ready").exists());
    // The killed process could not tidy up its own directory.
    clear_abandoned(&fixture);
}

/// Removes the fixture of a process that was killed.
fn clear_abandoned(fixture: &EnvironmentFixture) {
    let shared = fixture.directory.path().parent().unwrap();
    for entry in std::fs::read_dir(shared).unwrap().filter_map(Result::ok) {
        let owner = std::fs::read_to_string(entry.path().join("owner")).unwrap_or_default();
        if !owner.is_empty() && !Path::new("/proc").join(owner.trim()).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[test]
fn a_second_process_finds_the_same_environment_ready() {
    let fixture = PackageServer::wheels().fixture();
    let order = json!({"code": "import outer_part\nresult = outer_part.NAME", "dependencies": [{"name": "outer-part"}]});
    let first = answer(start_process(&fixture, &order, &[]));
    let second = answer(start_process(&fixture, &order, &[]));
    assert_eq!((&first["hit"], &second["hit"]), (&json!(false), &json!(true)));
    assert_eq!(first["env_id"], second["env_id"]);
}

#[test]
fn nothing_of_the_callers_environment_changes_the_result_or_is_changed() {
    let project = tempfile::tempdir().unwrap();
    let gemfile = project.path().join("Gemfile");
    std::fs::write(&gemfile, "raise 'the project of the caller was loaded'\n").unwrap();
    let shadow = project.path().join("inner_part.py");
    std::fs::write(&shadow, "NAME = 'shadow'\n").unwrap();
    let (gemfile, project_text) = (gemfile.to_str().unwrap(), project.path().to_str().unwrap());
    let nowhere = "http://127.0.0.1:9/";
    let hostile = [
        ("BUNDLE_GEMFILE", gemfile),
        ("BUNDLE_PATH", project_text),
        ("BUNDLE_APP_CONFIG", project_text),
        ("BUNDLE_FROZEN", "true"),
        ("BUNDLE_MIRROR__ALL", nowhere),
        ("GEM_HOME", project_text),
        ("GEM_PATH", project_text),
        ("RUBYOPT", "-rno_such_feature"),
        ("RUBYLIB", project_text),
        ("PYTHONPATH", project_text),
        ("PYTHONHOME", project_text),
        ("PIP_INDEX_URL", nowhere),
        ("PIP_CONFIG_FILE", gemfile),
        ("UV_INDEX_URL", nowhere),
        ("UV_DEFAULT_INDEX", nowhere),
        ("UV_OFFLINE", "1"),
        ("UV_CACHE_DIR", project_text),
        ("VIRTUAL_ENV", project_text),
        ("HTTP_PROXY", nowhere),
        ("http_proxy", nowhere),
    ];
    for (source, order) in [
        (
            PackageServer::gems(),
            json!({"code": "require 'alpha'\nAlpha::VERSION", "dependencies": [{"name": "alpha"}]}),
        ),
        (
            PackageServer::wheels(),
            json!({"code": "import outer_part\nresult = outer_part.NAME", "dependencies": [{"name": "outer-part"}]}),
        ),
    ] {
        let (plain, crossed) = (source.fixture(), source.fixture());
        let expected = answer(start_process(&plain, &order, &[]));
        let printed = answer(start_process(&crossed, &order, &hostile));
        assert_eq!(printed, expected);
        assert!(printed["result"]["Ok"].is_string(), "{printed}");
    }
    let files = std::fs::read_dir(project.path()).unwrap().count();
    assert_eq!(files, 2, "the caller's project is as it was");
}

#[test]
fn threads_of_one_process_share_one_build() {
    let source = PackageServer::gems();
    let fixture = source.fixture();
    fixture.model_writes("check", "require 'sluggish'\n7", &json!([{"name": "sluggish"}]));
    let runtime = fixture.runtime();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let runtime = runtime.clone();
            scope.spawn(move || {
                let agent = runtime.agent("tester").build().unwrap();
                assert_eq!(value(&agent.call("check", ()).unwrap()), &json!(7));
            });
        }
    });
    assert_eq!(source.asked_for("/gems/sluggish-1.0.0.gem"), 1);
}

#[test]
fn uv_is_fetched_at_most_once_and_that_is_reported() {
    let source = PackageServer::wheels();
    let mut fixture = EnvironmentFixture::new(Language::Python);
    std::fs::remove_file(fixture.path("cache").join("tools")).unwrap();
    fixture.set("python_indexes", &source.url());
    let slug = json!([{"name": "python-slugify"}]);
    let code = "from slugify import slugify\nresult = slugify('A B')";
    assert_eq!(value(&fixture.run_program(code, &slug)), "a-b");
    let progress = fixture.progress();
    let fetched = fixture.path("cache/tools/uv/bin/uv").exists();
    assert_eq!(
        progress.iter().any(|what| what.starts_with("fetching uv")),
        fetched,
        "{progress:?}"
    );
    let unconstrained = json!([{"name": "text-unidecode"}]);
    value(&fixture.run_program("import text_unidecode\nresult = 1", &unconstrained));
    assert!(!fixture.progress().iter().any(|what| what.starts_with("fetching uv")));
}

/// An internal index need not have uv.
#[test]
fn uv_does_not_come_from_the_source_of_packages() {
    let source = PackageServer::wheels();
    let fixture = source.fixture();
    std::fs::remove_file(fixture.path("cache").join("tools")).unwrap();
    let outcome =
        fixture.run_program("import inner_part\nresult = 1", &json!([{"name": "inner-part"}]));
    assert_eq!(value(&outcome), &json!(1));
    assert_eq!(source.asked_for("/simple/uv/"), 0);
    assert!(source.asked_for("/simple/inner-part/") > 0, "{:?}", source.requests());
}

/// Under root, programs run as a user that owns nothing, and must be able to read what was installed for them.
#[test]
fn packages_install_with_a_umask_of_077() {
    for test in [
        "policy::internal_only_asks_the_internal_source_alone",
        "hostile::a_build_script_reaches_nothing_and_its_package_is_installed",
    ] {
        let ended = Command::new("/bin/sh")
            .args(["-c", "umask 077; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(test)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(said.contains("1 passed"), "{said}");
    }
}
