//! Workspaces with files that the host may read only by a supplementary group.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::{Provider, Scripted};
use recurgent::worker::Layers;
use recurgent::{Language, Runtime};
use serde_json::json;

use super::{for_each, value};

/// Beside a copy of this program: a workspace with files that only a group may read. The copy runs as a member of that
/// group.
const GROUP_WORKSPACE: &str = "group";

/// What an ordinary user may read only by a supplementary group is hidden, and the rest of the workspace can be changed.
#[test]
fn a_workspace_with_files_of_a_group_can_be_changed() {
    let workspace = std::env::current_exe().unwrap().with_file_name(GROUP_WORKSPACE);
    if workspace.exists() {
        for_each(|language, layers, case| check_group_files(&workspace, language, layers, case));
    } else if fs::metadata("/proc/self").unwrap().uid() == 0 {
        run_as_member_of_group(); // only root can make such files
    }
}

fn run_as_member_of_group() {
    const GROUP: u32 = 24;
    const USER: u32 = 61_186;
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let (this, program) = (std::env::current_exe().unwrap(), path("workspaces"));
    // Not by this process: what it forks meanwhile would have the copy open for writing.
    let copied = Command::new("cp").arg(this).arg(&program).status().unwrap();
    assert!(copied.success());
    fs::create_dir_all(path("group/inner")).unwrap();
    for (name, mode, owner) in [
        ("", 0o755, 0),
        ("workspaces", 0o755, 0),
        ("group", 0o755, USER),
        ("group/open.txt", 0o644, USER),
        ("group/key.txt", 0o640, 0),
        ("group/inner/key.txt", 0o644, 0),
        ("group/inner", 0o750, 0),
    ] {
        if name.ends_with("txt") {
            fs::write(path(name), name).unwrap();
        }
        let group = if owner == 0 { GROUP } else { owner };
        chown(path(name), Some(owner), Some(group)).unwrap();
        fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    }
    let joins = format!(
        "import os, sys\nos.setgroups([{GROUP}])\nos.setgid({USER})\nos.setuid({USER})\nos.chdir('/')\nos.execv(sys.argv[1], sys.argv[1:])"
    );
    let ended = Command::new("python3")
        .args(["-c", &joins])
        .arg(&program)
        .args(["--exact", "groups::a_workspace_with_files_of_a_group_can_be_changed"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("1 passed"), "{said}{ended:?}");
}

fn check_group_files(workspace: &Path, language: Language, layers: Layers, case: &str) {
    let keys = ["key.txt", "inner/key.txt"].map(|name| workspace.join(name));
    assert!(keys.iter().all(|key| fs::read(key).is_ok()), "the host itself may read it");
    let place = tempfile::tempdir().unwrap();
    let mut config = Config::defaults();
    for (name, value) in [
        ("state_dir", place.path().to_str().unwrap()),
        ("workspace", workspace.to_str().unwrap()),
        ("workspace_write", "true"),
    ] {
        config.set(name, value).unwrap();
    }
    let model = Arc::new(Scripted::new());
    let code = match language {
        Language::Python => {
            "found = []\nfor name in ('open.txt', 'key.txt', 'inner/key.txt'):\n    try:\n        open(name).read()\n        \
             found.append(name)\n    except OSError: pass\nopen('made.txt', 'w').write('made')\nresult = found"
        }
        Language::Ruby => {
            "found = %w[open.txt key.txt inner/key.txt].select do |name|\n  File.read(name)\n  true\nrescue SystemCallError\n  \
             false\nend\nFile.write('made.txt', 'made')\nfound"
        }
    };
    model.add("clerk.gather", json!({"code": code, "dependencies": []}));
    let runtime = Runtime::builder(config)
        .provider(Arc::clone(&model) as Arc<dyn Provider>)
        .layers(layers)
        .build()
        .unwrap();
    let clerk = runtime.agent("clerk").guest(language).build().unwrap();
    let outcome = clerk.call("gather", ()).unwrap();
    assert_eq!(value(&outcome, case), json!(["open.txt"]), "{case}");
    assert_eq!(fs::read_to_string(workspace.join("made.txt")).unwrap(), "made", "{case}");
    assert!(keys.iter().all(|key| fs::read(key).is_ok()), "{case}");
    fs::remove_file(workspace.join("made.txt")).unwrap();
}
