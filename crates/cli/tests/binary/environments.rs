//! `recurgent env`: each verb does what its help says, and refuses what it must.

use std::fs;

use serde_json::{Value, json};

use crate::fixture::CliFixture;

fn cli() -> CliFixture {
    let cli = CliFixture::new("{}");
    cli.build_source();
    cli
}

fn listed(cli: &CliFixture) -> Vec<Value> {
    cli.answer(&["env", "list"]).0["environments"].as_array().unwrap().clone()
}

#[test]
fn an_environment_is_prepared_listed_shown_refreshed_and_removed() {
    let cli = cli();
    let page = cli.path("source/simple/sound/index.html");
    let all = fs::read_to_string(&page).unwrap();
    let older: String = all.lines().filter(|line| !line.contains("sound-2")).collect();
    fs::write(&page, older).unwrap();
    assert_eq!(listed(&cli), [] as [Value; 0]);
    let ran = cli.run(&["env", "list"]);
    assert!(ran.stderr.contains("no environments yet"), "{ran:?}");

    let ran = cli.run(&["env", "prepare", "sound>=1"]);
    assert_eq!(ran.exit, 0, "{ran:?}");
    let id = ran.stdout.split(' ').next().unwrap().to_owned();
    for line in ["resolving dependencies…", "installing 1 package…", "loading packages…"] {
        assert!(ran.stderr.contains(line), "{ran:?}");
    }
    let (again, exit) = cli.answer(&["env", "prepare", "sound >=1"]);
    assert_eq!((exit, &again["status"]), (0, &json!("ready")), "{again:#}");
    assert_eq!((&again["env_id"], &again["environment_cache_hit"]), (&json!(id), &json!(true)));

    let (shown, exit) = cli.answer(&["env", "show", &id[..7]]);
    assert_eq!(exit, 0);
    assert_eq!((&shown["status"], &shown["guest"]), (&json!("ready"), &json!("python")));
    assert_eq!(shown["dependencies"], json!([{"name": "sound", "version": ">=1"}]));
    assert_eq!(shown["packages"], json!(["sound 1.0.0"]));
    assert!(shown["lock"].as_str().unwrap().contains("sound"), "{shown:#}");
    assert!(shown["bytes"].as_u64().unwrap() > 0 && shown["in_use"] == json!(false));
    let text = cli.run(&["env", "show", &id[..7]]).stdout;
    for part in [&id, "sound >=1", "sound 1.0.0", "internal_only file://", "uv.lock"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let list = cli.run(&["env", "list"]).stdout;
    assert!(list.contains(&id[..12]) && list.contains("ready"), "{list}");
    assert!(list.contains("1 environment, "), "{list}");

    // Its source gets something newer: only a refresh takes it.
    fs::write(&page, all).unwrap();
    assert_eq!(cli.answer(&["env", "prepare", "sound>=1"]).0["environment_cache_hit"], json!(true));
    let (refreshed, exit) = cli.answer(&["env", "refresh", &id]);
    assert_eq!((exit, &refreshed["env_id"]), (0, &json!(id)), "{refreshed:#}");
    assert_eq!(refreshed["environment_cache_hit"], json!(false));
    let states: Vec<Value> = listed(&cli).iter().map(|env| env["status"].clone()).collect();
    assert_eq!(states, ["superseded", "ready"]);
    assert_eq!(cli.answer(&["env", "show", &id]).0["packages"], json!(["sound 2.0.0"]));

    let (gone, exit) = cli.answer(&["env", "gc"]);
    assert_eq!((exit, gone["removed"].as_array().unwrap().len()), (0, 1), "{gone:#}");
    assert_eq!(gone["removed"][0]["status"], "superseded");
    let ran = cli.run(&["env", "prune"]);
    assert!(ran.stdout.contains("would remove 1 environment") && ran.stdout.contains("--yes"));
    assert_eq!(listed(&cli).len(), 1, "nothing is removed without --yes");
    let (gone, exit) = cli.answer(&["env", "prune", "--yes"]);
    assert_eq!((exit, &gone["removed"][0]["env_id"]), (0, &json!(id)));
    assert_eq!(listed(&cli), [] as [Value; 0]);
    let (made, exit) = cli.answer(&["env", "prepare", "sound>=1"]);
    assert_eq!((exit, &made["environment_cache_hit"]), (0, &json!(false)), "it is made anew");
}

#[test]
fn unfinished_environments_are_collected_and_used_ones_are_not() {
    let cli = cli();
    let (made, _) = cli.answer(&["env", "prepare", "sound"]);
    let half = cli.path("cache/python-envs").join("ab".repeat(32));
    fs::create_dir(&half).unwrap();
    let (would, exit) = cli.answer(&["env", "gc", "--dry-run"]);
    assert_eq!((exit, &would["dry_run"]), (0, &json!(true)));
    assert_eq!(would["removed"][0]["status"], "unfinished");
    assert!(half.exists());
    let ran = cli.run(&["env", "gc"]);
    assert!(ran.stdout.contains("removed 1 environment"), "{ran:?}");
    assert!(!half.exists());
    let (kept, _) = cli.answer(&["env", "gc", "--older-than", "12h"]);
    assert_eq!(kept["removed"], json!([]), "it was used a moment ago");
    let (gone, _) = cli.answer(&["env", "gc", "--older-than", "0"]);
    assert_eq!(gone["removed"][0]["env_id"], made["env_id"], "unused for no days at all");
}

#[test]
fn downloads_beyond_their_limit_are_removed_with_what_is_unneeded() {
    let cli = cli();
    cli.answer(&["env", "prepare", "sound"]);
    let download = cli.path("cache/uv/a download");
    let download_again = || fs::write(&download, vec![0; 3 << 20]).unwrap();
    download_again();
    let gc = |limit| cli.answer(&["env", "gc", "--set", limit]).0["downloads"].clone();
    assert_eq!(gc("downloads_total_mb=8"), json!({"removed_bytes": 0, "kept_because": null}));
    assert!(download.exists());
    let removed = gc("downloads_total_mb=1")["removed_bytes"].as_u64().unwrap();
    assert!(removed >= 3 << 20 && !download.exists(), "{removed}");
    assert_eq!(listed(&cli).len(), 1, "the environment stays");

    // A build uses them.
    download_again();
    let lock = fs::File::open(cli.path("cache/downloads.lock")).unwrap();
    lock.lock_shared().unwrap();
    let kept = gc("downloads_total_mb=1");
    assert_eq!(kept["kept_because"], "another process builds an environment");
    drop(lock);
    assert!(cli.run(&["env", "prune"]).stdout.contains("would remove downloads, "));
    assert!(download.exists());
    assert!(cli.run(&["env", "prune", "--yes"]).stdout.contains("removed downloads, "));
    assert!(!download.exists());
    let (made, exit) = cli.answer(&["env", "prepare", "sound"]);
    assert_eq!((exit, &made["status"]), (0, &json!("ready")), "{made:#}");
    let (privacy, _) = cli.answer(&["config", "--privacy"]);
    assert!(privacy["kept"].to_string().contains("at most 8192 MB"), "{privacy:#}");
}

#[test]
fn what_another_process_builds_stays() {
    let cli = cli();
    let place = cli.path("cache/python-envs");
    let building = place.join("cd".repeat(32));
    fs::create_dir_all(&building).unwrap();
    let lock = fs::File::create(building.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(listed(&cli)[0]["status"], "building");
    let (gone, exit) = cli.answer(&["env", "prune", "--yes"]);
    assert_eq!((exit, &gone["removed"]), (0, &json!([])));
    assert_eq!(gone["kept"][0]["reason"], "another process builds it");
    drop(lock);
    assert_eq!(cli.answer(&["env", "prune", "--yes"]).0["removed"].as_array().unwrap().len(), 1);
    assert!(!building.exists());
}

#[test]
fn impossible_requests_are_refused_with_a_reason() {
    let cli = cli();
    let ids: Vec<Value> = ["sound", "sound<2"]
        .iter()
        .map(|package| cli.answer(&["env", "prepare", package]).0["env_id"].clone())
        .collect();
    assert_ne!(ids[0], ids[1]);
    let rows: [(&[&str], i32, &str, &str); 7] = [
        (&["env", "show", "zzz"], 1, "not_found", "`recurgent env list` shows them"),
        (&["env", "refresh", "zzz"], 1, "not_found", "begins with \"zzz\""),
        (&["env", "show", ""], 1, "not_found", "2 environments have an id that begins with"),
        (&["env", "prepare", "nonesuch"], 1, "dependency_resolution_failed", "nonesuch"),
        (&["env", "prepare", "faulty"], 1, "dependency_activation_failed", "cannot be loaded"),
        (&["env", "prepare", "sound=1'"], 1, "invalid_dependency_manifest", "dependencies[0]"),
        (&["env", "prune", "--yes", "--dry-run"], 2, "usage", "cannot be used with"),
    ];
    for (line, exit, error_type, says) in rows {
        let (answer, code) = cli.answer(line);
        assert_eq!(
            (code, &answer["error_type"]),
            (exit, &json!(error_type)),
            "{line:?}: {answer:#}"
        );
        assert!(answer["error_message"].as_str().unwrap().contains(says), "{line:?}: {answer:#}");
        let ran = cli.run(line);
        assert_eq!((ran.exit, ran.stdout.as_str()), (exit, ""), "{line:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{line:?}: {ran:?}");
        assert!(!ran.stderr.contains("--trace"), "no program was tried: {line:?}: {ran:?}");
    }
    let ran = cli.run(&["env", "prepare", "json"]);
    assert!(ran.exit == 0 && ran.stderr.contains("standard library"), "{ran:?}");
}
