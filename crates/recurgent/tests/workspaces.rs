//! Do programs change a workspace only by accepted answers? Real workers, both guests, on a layer and on a copy.
#![cfg(test)]

#[path = "workspaces/groups.rs"]
mod groups;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use recurgent::config::Config;
use recurgent::observe::{Event, EventKind, Observer};
use recurgent::provider::Scripted;
use recurgent::worker::{Layers, Tier};
use recurgent::{Agent, Language, Outcome, Runtime};
use serde_json::{Value, json};
use tempfile::TempDir;

/// With namespaces a layer over the workspace keeps the changes; without them, a copy does.
fn containments() -> [(&'static str, Layers); 2] {
    [("layer", Layers::ALL), ("copy", Tier::Landlock.layers())]
}

/// A workspace, and a runtime whose programs may change it.
struct Fixture {
    place: TempDir,
    model: Arc<Scripted>,
    runtime: Runtime,
    language: Language,
}

impl Fixture {
    fn new(language: Language, layers: Layers) -> Self {
        Self::with(language, layers, None)
    }

    /// Its programs may only read the workspace.
    fn unchangeable(language: Language, layers: Layers) -> Self {
        Self::build(language, layers, None, "false")
    }

    fn with(language: Language, layers: Layers, observer: Option<Box<dyn Observer>>) -> Self {
        Self::build(language, layers, observer, "true")
    }

    fn build(
        language: Language,
        layers: Layers,
        observer: Option<Box<dyn Observer>>,
        may_change: &str,
    ) -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        fill(&place.path().join("project"));
        let mut config = Config::defaults();
        for (name, value) in [
            ("state_dir", place.path().join("state").to_str().unwrap()),
            ("workspace", place.path().join("project").to_str().unwrap()),
            ("workspace_write", may_change),
        ] {
            config.set(name, value).unwrap();
        }
        let model = Arc::new(Scripted::new());
        let mut builder = Runtime::builder(config)
            .provider(Arc::clone(&model) as Arc<dyn recurgent::provider::Provider>)
            .layers(layers);
        if let Some(observer) = observer {
            builder = builder.observer(observer);
        }
        Self { runtime: builder.build().unwrap(), place, model, language }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join("project").join(name)
    }

    fn agent(&self, role: &str) -> Agent {
        self.runtime.agent(role).guest(self.language).build().unwrap()
    }

    /// Adds a program for the next call of `role.method`.
    fn write(&self, call: &str, python: &str, ruby: &str) {
        let code = if self.language == Language::Python { python } else { ruby };
        self.model.add(call, json!({"code": code}));
    }

    /// Every file, what it holds or where it leads, and whether it is executable.
    fn files(&self) -> BTreeMap<String, (String, bool)> {
        let mut found = BTreeMap::new();
        let root = self.place.path().join("project");
        let mut pending = vec![root.clone()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                assert!(!meta.file_type().is_fifo(), "{path:?}");
                let holds = if meta.is_symlink() {
                    format!("-> {}", fs::read_link(&path).unwrap().display())
                } else if meta.is_dir() {
                    pending.push(path.clone());
                    "directory".to_owned()
                } else {
                    fs::read_to_string(&path).unwrap()
                };
                let executable = meta.is_file() && meta.permissions().mode() & 0o100 != 0;
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, (holds, executable));
            }
        }
        found
    }
}

/// Programs of root run as a user that owns nothing, so everything is open to all.
fn fill(project: &Path) {
    fs::create_dir_all(project.join("data")).unwrap();
    for (name, text) in [("notes.txt", "one"), ("old.txt", "old"), ("data/rows.csv", "a,1\n")] {
        fs::write(project.join(name), text).unwrap();
        fs::set_permissions(project.join(name), Permissions::from_mode(0o666)).unwrap();
    }
    symlink("notes.txt", project.join("link")).unwrap();
    for directory in [project.to_owned(), project.join("data")] {
        fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    }
}

fn for_each(check: impl Fn(Language, Layers, &str)) {
    for (containment, layers) in containments() {
        for language in Language::ALL {
            check(language, layers, &format!("{containment} {}", language.name()));
        }
    }
}

fn value(outcome: &Outcome, case: &str) -> Value {
    outcome.value().unwrap_or_else(|| panic!("{case}: {outcome:?}")).clone()
}

/// Changes a file, removes one, makes directories, a program and a file of the same content as before.
const CHANGES: (&str, &str) = (
    "import os\n\
     open('notes.txt', 'a').write(' two')\n\
     open('link', 'a').write(' three')\n\
     os.remove('old.txt')\n\
     os.makedirs('new/deep')\n\
     open('new/deep/made.txt', 'w').write('made')\n\
     open('data/rows.csv', 'w').write('a,1\\n')\n\
     open('run.sh', 'w').write('#!/bin/sh\\n')\n\
     os.chmod('run.sh', 0o755)\n\
     result = [open('notes.txt').read(), sorted(os.listdir('.'))]",
    "require 'fileutils'\n\
     File.write('notes.txt', ' two', mode: 'a')\n\
     File.write('link', ' three', mode: 'a')\n\
     File.delete('old.txt')\n\
     FileUtils.mkdir_p('new/deep')\n\
     File.write('new/deep/made.txt', 'made')\n\
     File.write('data/rows.csv', \"a,1\\n\")\n\
     File.write('run.sh', \"#!/bin/sh\\n\")\n\
     File.chmod(0o755, 'run.sh')\n\
     [File.read('notes.txt'), Dir.children('.').sort]",
);

#[test]
fn what_an_accepted_program_changed_reaches_the_workspace() {
    for_each(|language, layers, case| {
        let fixture = Fixture::new(language, layers);
        let untouched = fixture.path("data/rows.csv").metadata().unwrap().modified().unwrap();
        fixture.write("clerk.tidy", CHANGES.0, CHANGES.1);
        let outcome = fixture.agent("clerk").call("tidy", ()).unwrap();
        let names = ["data", "link", "new", "notes.txt", "run.sh"];
        assert_eq!(value(&outcome, case), json!(["one two three", names]), "{case}");
        let expected = [
            ("data", "directory", false),
            ("data/rows.csv", "a,1\n", false),
            ("link", "-> notes.txt", false),
            ("new", "directory", false),
            ("new/deep", "directory", false),
            ("new/deep/made.txt", "made", false),
            ("notes.txt", "one two three", false),
            ("run.sh", "#!/bin/sh\n", true),
        ]
        .map(|(name, holds, executable)| (name.to_owned(), (holds.to_owned(), executable)));
        assert_eq!(fixture.files(), BTreeMap::from(expected), "{case}");
        let mode = |name: &str| fixture.path(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("notes.txt"), 0o666, "{case}: a file keeps its permissions");
        let now = fixture.path("data/rows.csv").metadata().unwrap().modified().unwrap();
        assert_eq!(now, untouched, "{case}: the same content is not written again");
        let note = outcome.notes.iter().find(|note| note.starts_with("workspace: ")).unwrap();
        for part in ["removed old.txt", "wrote notes.txt", "made new"] {
            assert!(note.contains(part), "{case}: {note}");
        }
        // The stored program starts from what is there now.
        let again = fixture.agent("clerk").call("tidy", ()).unwrap();
        assert!(!again.is_ok(), "{case}: old.txt is gone: {again:?}");
    });
}

/// No name is taken from the user or from a program.
#[test]
fn names_that_begin_as_those_of_this_software_are_kept() {
    for_each(|language, layers, case| {
        let fixture = Fixture::new(language, layers);
        fs::create_dir_all(fixture.path(".recurgent-backup/sub")).unwrap();
        for name in [".recurgent-backup/0", ".recurgent-backup/sub/important.txt"] {
            fs::write(fixture.path(name), "precious").unwrap();
        }
        fixture.write(
            "clerk.keep",
            "import os\nos.mkdir('.recurgent-out')\nfor name in ['.recurgent-out/0', '.recurgent-log']:\n    open(name, 'w').write('made')\nresult = 1",
            "Dir.mkdir('.recurgent-out')\n['.recurgent-out/0', '.recurgent-log'].each { |name| File.write(name, 'made') }\n1",
        );
        let outcome = fixture.agent("clerk").call("keep", ()).unwrap();
        assert_eq!(value(&outcome, case), json!(1), "{case}");
        let files = fixture.files();
        for (name, holds) in [
            (".recurgent-backup/0", "precious"),
            (".recurgent-backup/sub/important.txt", "precious"),
            (".recurgent-out/0", "made"),
            (".recurgent-log", "made"),
        ] {
            assert_eq!(
                files.get(name).map(|(holds, _)| holds.as_str()),
                Some(holds),
                "{case}: {name}"
            );
        }
    });
}

/// Where the kernel allows it, nothing is copied, and what a program writes is bounded as its scratch space is.
#[test]
fn with_namespaces_the_version_is_a_layer() {
    for language in Language::ALL {
        let fixture = Fixture::new(language, Layers::ALL);
        if fixture.runtime.workers().containment().tier < Tier::Namespaces {
            return; // there are no namespaces here
        }
        fixture.write(
            "clerk.look",
            "import os\nhere = [line for line in open('/proc/self/mountinfo') if f' {os.getcwd()} ' in line]\nresult = [line.split(' - ')[1].split()[0] for line in here]",
            "here = File.readlines('/proc/self/mountinfo').select { |line| line.include?(\" #{Dir.pwd} \") }\nhere.map { |line| line.split(' - ')[1].split[0] }",
        );
        let outcome = fixture.agent("clerk").call("look", ()).unwrap();
        assert_eq!(outcome.value(), Some(&json!(["overlay"])), "{language:?}: {outcome:?}");
        fixture.write(
            "clerk.flood",
            "for part in range(4):\n    open(f'part{part}', 'wb').write(b'x' * (32 << 20))\nresult = 1",
            "4.times { |part| File.binwrite(\"part#{part}\", 'x' * (32 << 20)) }\n1",
        );
        fixture.write("clerk.flood", "result = 2", "2");
        let outcome = fixture.agent("clerk").call("flood", ()).unwrap();
        assert_eq!(outcome.value(), Some(&json!(2)), "{language:?}: {outcome:?}");
        let log = fs::read_to_string(fixture.place.path().join("state/recurgent.jsonl")).unwrap();
        assert!(log.contains("\"limit\":\"scratch\""), "{language:?}: {log}");
    }
}

#[test]
fn an_attempt_that_fails_leaves_the_workspace_as_it_was() {
    for_each(|language, layers, case| {
        let fixture = Fixture::new(language, layers);
        let before = fixture.files();
        let (python, ruby) = CHANGES;
        fixture.write(
            "clerk.tidy",
            &format!("{python}\nraise KeyError('no')"),
            &format!("{ruby}\nraise KeyError, 'no'"),
        );
        fixture.write(
            "clerk.tidy",
            "import os\nresult = [open('notes.txt').read(), sorted(os.listdir('.'))]",
            "[File.read('notes.txt'), Dir.children('.').sort]",
        );
        let outcome = fixture.agent("clerk").call("tidy", ()).unwrap();
        let names = ["data", "link", "notes.txt", "old.txt"];
        assert_eq!(value(&outcome, case), json!(["one", names]), "{case}: a retry starts afresh");
        assert_eq!(fixture.model.asked().len(), 2, "{case}");
        assert_eq!(fixture.files(), before, "{case}");
    });
}

/// Programs whose changes cannot be kept, with what the message says.
const REFUSED: [(&str, &str, &str); 4] = [
    (
        "import os\nos.symlink('/etc/passwd', 'trap')\nresult = 1",
        "File.symlink('/etc/passwd', 'trap')\n1",
        "symbolic link in the workspace (trap)",
    ),
    (
        "import os\nos.remove('link')\nos.symlink('data', 'link')\nresult = 1",
        "File.delete('link')\nFile.symlink('data', 'link')\n1",
        "symbolic link in the workspace (link)",
    ),
    (
        "import os, shutil\nshutil.rmtree('data')\nos.symlink('/', 'data')\nresult = 1",
        "require 'fileutils'\nFileUtils.rm_r('data')\nFile.symlink('/', 'data')\n1",
        "symbolic link in the workspace (data)",
    ),
    (
        "for part in range(12):\n    open(f'big{part}', 'wb').write(b'x' * (32 << 20))\nresult = 1",
        "12.times { |part| File.binwrite(\"big#{part}\", 'x' * (32 << 20)) }\n1",
        "",
    ),
];

#[test]
fn links_and_floods_are_refused_and_the_next_attempt_goes_on() {
    for_each(|language, layers, case| {
        for (python, ruby, said) in REFUSED {
            let fixture = Fixture::new(language, layers);
            let before = fixture.files();
            fixture.write("clerk.trap", python, ruby);
            fixture.write(
                "clerk.trap",
                "open('notes.txt', 'w').write('safe')\nresult = 2",
                "File.write('notes.txt', 'safe')\n2",
            );
            let outcome = fixture.agent("clerk").call("trap", ()).unwrap();
            assert_eq!(value(&outcome, case), json!(2), "{case}: {python}");
            let log =
                fs::read_to_string(fixture.place.path().join("state/recurgent.jsonl")).unwrap();
            assert!(log.contains(said), "{case}: {said}: {log}");
            let mut expected = before;
            expected.insert("notes.txt".to_owned(), ("safe".to_owned(), false));
            assert_eq!(fixture.files(), expected, "{case}: {python}");
        }
    });
}

/// Adds to a file that the call does not name.
const APPENDS: (&str, &str) = (
    "open('notes.txt', 'a').write(' two')\nresult = 1",
    "File.write('notes.txt', ' two', mode: 'a')\n1",
);

/// No other program could change the workspace, so the model is asked once.
#[test]
fn a_missing_grant_to_change_the_workspace_is_named_and_costs_no_repair() {
    for_each(|language, layers, case| {
        let fixture = Fixture::unchangeable(language, layers);
        let before = fixture.files();
        fixture.write("clerk.note", APPENDS.0, APPENDS.1);
        let outcome = fixture.agent("clerk").call("note", ()).unwrap();
        let failure = outcome.failure().unwrap_or_else(|| panic!("{case}: {outcome:?}"));
        assert_eq!(failure.kind.code(), "unsupported_capability", "{case}: {failure}");
        assert_eq!(failure.metadata["grant"], json!("--workspace-write"), "{case}");
        assert_eq!(fixture.model.asked().len(), 1, "{case}");
        assert_eq!(fixture.files(), before, "{case}");
    });
}

/// Programs of root run as another user: the message says so and what to do, and no repair is asked for.
#[test]
fn permissions_that_shut_out_the_programs_of_root_are_named() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return; // programs run as the same user
    }
    for_each(|language, layers, case| {
        if case.starts_with("copy") {
            return; // it belongs to the programs
        }
        let fixture = Fixture::new(language, layers);
        fs::set_permissions(fixture.path("notes.txt"), Permissions::from_mode(0o644)).unwrap();
        fixture.write("clerk.note", APPENDS.0, APPENDS.1);
        let outcome = fixture.agent("clerk").call("note", ()).unwrap();
        let failure = outcome.failure().unwrap_or_else(|| panic!("{case}: {outcome:?}"));
        assert_eq!(failure.kind.code(), "workspace_unusable", "{case}: {failure}");
        let message = failure.to_string();
        let project = fixture.place.path().join("project");
        let remedy = format!("chmod -R o+rwX {}", project.display());
        assert!(message.contains("programs of root run as another user"), "{case}: {message}");
        assert!(message.contains(&remedy), "{case}: {message}");
        assert_eq!(fixture.model.asked().len(), 1, "{case}");
        // What the message says helps.
        fs::set_permissions(fixture.path("notes.txt"), Permissions::from_mode(0o666)).unwrap();
        fixture.write("clerk.note", APPENDS.0, APPENDS.1);
        let outcome = fixture.agent("clerk").call("note", ()).unwrap();
        assert_eq!(value(&outcome, case), json!(1), "{case}");
    });
}

/// A layer cannot rename a directory that was there: the feedback says what can.
#[test]
fn a_directory_that_cannot_be_renamed_is_moved_by_the_next_attempt() {
    for_each(|language, layers, case| {
        let fixture = Fixture::new(language, layers);
        fixture.write(
            "clerk.rename",
            "import os\nos.rename('data', 'data2')\nresult = 1",
            "File.rename('data', 'data2')\n1",
        );
        fixture.write(
            "clerk.rename",
            "import shutil\nshutil.move('data', 'data2')\nresult = 1",
            "require 'fileutils'\nFileUtils.cp_r('data', 'data2')\nFileUtils.rm_r('data')\n1",
        );
        let outcome = fixture.agent("clerk").call("rename", ()).unwrap();
        assert_eq!(value(&outcome, case), json!(1), "{case}");
        let files = fixture.files();
        assert!(files.contains_key("data2/rows.csv") && !files.contains_key("data"), "{case}");
        if fixture.model.asked().len() > 1 {
            let log =
                fs::read_to_string(fixture.place.path().join("state/recurgent.jsonl")).unwrap();
            let instead = match language {
                Language::Python => "use `shutil.move`",
                Language::Ruby => "use `FileUtils.cp_r` and `FileUtils.rm_r`",
            };
            assert!(log.contains(&format!("cannot be renamed: {instead}")), "{case}: {log}");
        }
    });
}

/// A link that the workspace has may lead anywhere: nothing outside is changed through it.
#[test]
fn nothing_outside_is_changed_through_a_link_of_the_workspace() {
    for_each(|language, layers, case| {
        let fixture = Fixture::new(language, layers);
        let outside = fixture.place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::set_permissions(&outside, Permissions::from_mode(0o777)).unwrap();
        symlink(&outside, fixture.path("out")).unwrap();
        fixture.write(
            "clerk.reach",
            "try:\n    open('out/x.txt', 'w').write('x')\n    result = 'written'\nexcept OSError:\n    result = 'refused'",
            "begin\n  File.write('out/x.txt', 'x')\n  'written'\nrescue SystemCallError\n  'refused'\nend",
        );
        let outcome = fixture.agent("clerk").call("reach", ()).unwrap();
        assert_eq!(outcome.value(), Some(&json!("refused")), "{case}: {outcome:?}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{case}");
    });
}

/// Writes to a file when a helper is called, as an editor beside the program might.
struct Editor(PathBuf);

impl Observer for Editor {
    fn event(&self, event: &Event) {
        if matches!(event.kind, EventKind::Started { .. })
            && event.subject.name.starts_with("helper.")
        {
            fs::write(&self.0, "meanwhile").unwrap();
        }
    }
}

const CALLS_HELPER: (&str, &str) = (
    "open('notes.txt', 'a').write(' two')\nopen('other.txt', 'w').write('other')\nresult = delegate('helper', purpose='p').add(1).value",
    "File.write('notes.txt', ' two', mode: 'a')\nFile.write('other.txt', 'other')\ndelegate('helper', purpose: 'p').add(1).value",
);

#[test]
fn a_file_that_something_else_changed_meanwhile_is_a_conflict() {
    for_each(|language, layers, case| {
        // The file that is changed meanwhile, and whether the program changes it too.
        for (name, is_conflict) in [("notes.txt", true), ("old.txt", false)] {
            let place = tempfile::tempdir().unwrap();
            let watched = place.path().join("watched");
            let editor = Editor(watched.clone());
            let fixture = Fixture::with(language, layers, Some(Box::new(editor)));
            symlink(fixture.path(name), &watched).unwrap();
            fixture.write("clerk.note", CALLS_HELPER.0, CALLS_HELPER.1);
            fixture.write("helper.add", "result = args[0] + 1", "args[0] + 1");
            let outcome = fixture.agent("clerk").call("note", ()).unwrap();
            assert_eq!(fs::read_to_string(fixture.path(name)).unwrap(), "meanwhile", "{case}");
            assert_eq!(fixture.path("other.txt").exists(), !is_conflict, "{case}");
            if !is_conflict {
                assert_eq!(value(&outcome, case), json!(2));
                continue;
            }
            let failure = outcome.failure().unwrap();
            assert_eq!(failure.kind.code(), "workspace_unusable", "{case}: {outcome:?}");
            let message = failure.to_string();
            assert!(message.contains("notes.txt was changed during the call"), "{case}: {message}");
            // The program is not stored either: the next call asks the model.
            fixture.write("clerk.note", "result = 3", "3");
            let again = fixture.agent("clerk").call("note", ()).unwrap();
            assert_eq!(value(&again, case), json!(3));
        }
    });
}

/// A called program sees what its caller wrote, the caller sees what it wrote, and all of it waits for the root.
#[test]
fn called_programs_work_on_their_callers_version() {
    const CALLER: (&str, &str) = (
        "open('notes.txt', 'a').write(' two')\n\
         helper = delegate('helper', purpose='p')\n\
         seen = [helper.add(' three').value, helper.spoil().is_ok]\n\
         result = seen + [open('notes.txt').read(), open('helped.txt').read()]",
        "File.write('notes.txt', ' two', mode: 'a')\n\
         helper = delegate('helper', purpose: 'p')\n\
         seen = [helper.add(' three').value, helper.spoil.ok?]\n\
         seen + [File.read('notes.txt'), File.read('helped.txt')]",
    );
    const ADD: (&str, &str) = (
        "seen = open('notes.txt').read()\nopen('notes.txt', 'w').write(seen + args[0])\nopen('helped.txt', 'w').write('yes')\nresult = seen",
        "seen = File.read('notes.txt')\nFile.write('notes.txt', seen + args[0])\nFile.write('helped.txt', 'yes')\nseen",
    );
    const SPOIL: (&str, &str) = (
        "open('helped.txt', 'w').write('no')\nraise KeyError('no')",
        "File.write('helped.txt', 'no')\nraise KeyError, 'no'",
    );
    for_each(|language, layers, case| {
        for fails in [false, true] {
            let fixture = Fixture::new(language, layers);
            let before = fixture.files();
            let (python, ruby) = CALLER;
            let end = |raise: &str| if fails { format!("\nraise {raise}") } else { String::new() };
            fixture.write(
                "clerk.note",
                &format!("{python}{}", end("KeyError('no')")),
                &format!("{ruby}{}", end("KeyError, 'no'")),
            );
            fixture.write("clerk.note", "result = 0", "0");
            fixture.write("helper.add", ADD.0, ADD.1);
            for _ in 0..3 {
                fixture.write("helper.spoil", SPOIL.0, SPOIL.1);
            }
            let outcome = fixture.agent("clerk").call("note", ()).unwrap();
            if fails {
                assert_eq!(value(&outcome, case), json!(0), "{case}");
                assert_eq!(fixture.files(), before, "{case}");
                continue;
            }
            let expected = json!(["one two", false, "one two three", "yes"]);
            assert_eq!(value(&outcome, case), expected, "{case}");
            let read = |name: &str| fs::read_to_string(fixture.path(name)).unwrap();
            assert_eq!(
                (read("notes.txt").as_str(), read("helped.txt").as_str()),
                ("one two three", "yes")
            );
        }
    });
}
