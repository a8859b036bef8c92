//! Environments whose files are damaged after they were built: that is found, they are built again, and the call goes on.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use recurgent::Language;
use recurgent::environment::CacheState;
use serde_json::{Value, json};

use crate::fixture::{EnvironmentFixture, failure, value};
use crate::sources::PackageServer;

/// Both guests: a file of a package is lost after the environment was proved.
#[test]
fn a_damaged_environment_is_built_again_and_the_call_goes_on() {
    for (source, package, code, lost) in [
        (PackageServer::gems(), "beta", "require 'beta'\nBeta::VERSION", "beta.rb"),
        (
            PackageServer::wheels(),
            "inner-part",
            "import inner_part\nresult = inner_part.NAME",
            "inner_part.py",
        ),
    ] {
        let fixture = source.fixture();
        let dependencies = json!([{"name": package}]);
        let before = value(&fixture.run_program(code, &dependencies)).clone();
        let root = fixture.environments().remove(0);
        assert!(remove_file(&root, lost), "{lost} is there");
        fixture.progress();
        assert_eq!(value(&fixture.run_program(code, &dependencies)), &before);
        assert!(fixture.progress().iter().any(|what| what.starts_with("installing")));
        let cache = fixture.runtime().cache().unwrap();
        let standings: Vec<CacheState> = cache.list().iter().map(|it| it.standing).collect();
        assert_eq!(standings, [CacheState::Superseded, CacheState::Ready]);
        assert_eq!(value(&fixture.run_program(code, &dependencies)), &before);
        assert_eq!(fixture.progress(), Vec::<String>::new(), "it is whole again");

        // Without the source it cannot be built, and both facts are reported.
        let damaged = cache.list().pop().unwrap();
        assert!(remove_file(&damaged.root, lost));
        source.deny("503 Service Unavailable");
        let outcome = fixture.run_program(code, &dependencies);
        let failure = failure(&outcome);
        assert_eq!(failure.kind.code(), "dependency_activation_failed", "{failure:#?}");
        assert!(failure.message.contains("cannot be built again"), "{failure:#?}");
    }
}

/// Both guests: what is lost is loaded only when it is used, so the environment still boots.
#[test]
fn a_file_that_is_lost_and_loaded_late_is_found_missing_and_the_call_goes_on() {
    for (source, code) in [
        (PackageServer::gems(), "require 'late'\nLate.answer"),
        (PackageServer::wheels(), "import late\nresult = late.answer()"),
    ] {
        let fixture = source.fixture();
        let dependencies = json!([{"name": "late"}]);
        assert_eq!(value(&fixture.run_program(code, &dependencies)), &json!(42));
        let root = fixture.environments().remove(0);
        let lost = if code.contains("import") { "part.py" } else { "part.rb" };
        assert!(remove_file(&root, lost), "{lost} is there");
        fixture.progress();
        assert_eq!(value(&fixture.run_program(code, &dependencies)), &json!(42));
        assert!(fixture.progress().iter().any(|what| what.starts_with("installing")));
        assert_eq!(
            fixture.last_log_entry()["attempts"].as_array().map(Vec::len),
            Some(1),
            "none is to blame"
        );
        // A program that raises in an environment that is whole is not run again.
        let raises = if code.contains("import") { "raise ValueError()" } else { "raise 'x'" };
        failure(&fixture.run_program(raises, &dependencies));
        assert_eq!(fixture.progress(), Vec::<String>::new());
    }
}

/// What happens to the machine code of a shared library.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// Its file is cut in the middle.
    Cut,
    /// It is overwritten, which shows in the time of the file.
    Overwritten,
    /// It is overwritten, as by a failing disk: only reading the file shows it.
    Decayed,
}

const DAMAGES: [Damage; 3] = [Damage::Cut, Damage::Overwritten, Damage::Decayed];

/// A real package with shared libraries: those that are loaded with it end the zygote, those that are loaded later end the
/// worker. What uv downloaded is the same file.
#[test]
fn a_damaged_shared_library_of_python_is_replaced_and_the_call_goes_on() {
    let fixture = EnvironmentFixture::new(Language::Python);
    fixture.own_downloads();
    let numpy = json!([{"name": "numpy"}]);
    let code = "import numpy\nresult = [int(numpy.arange(5).sum()), int(numpy.random.default_rng(1).integers(0, 1))]";
    let expected = json!([10, 0]);
    assert_eq!(value(&fixture.run_program(code, &numpy)), &expected);
    for (library, damage) in
        [("_multiarray_umath", Damage::Overwritten), ("_generator", Damage::Decayed)]
    {
        check_repair(&fixture, library, damage, (code, &numpy), &expected);
    }
    // Another environment is not made of the damaged download.
    let both = json!([{"name": "numpy"}, {"name": "python-slugify"}]);
    assert_eq!(value(&fixture.run_program(code, &both)), &expected);
    assert_eq!(fixture.last_log_entry()["attempts"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_damaged_extension_of_a_gem_is_replaced_and_the_call_goes_on() {
    let fixture = PackageServer::gems().fixture();
    for (gem, code) in [
        ("native", "require 'native'\nnative_answer"),
        ("late-native", "require 'late-native'\nLateNative.answer"),
    ] {
        let dependencies = json!([{"name": gem}]);
        assert_eq!(value(&fixture.run_program(code, &dependencies)), &json!(42));
        for damage in DAMAGES {
            check_repair(&fixture, ".so", damage, (code, &dependencies), &json!(42));
        }
    }
}

/// A program that crashes by itself is not run again in a new environment.
#[test]
fn a_crash_in_a_whole_environment_costs_no_rebuild() {
    let fixture = PackageServer::wheels().fixture();
    let dependencies = json!([{"name": "inner-part"}]);
    value(&fixture.run_program("import inner_part\nresult = 1", &dependencies));
    fixture.progress();
    let crashes =
        "import inner_part, faulthandler\nprint(inner_part.NAME)\nfaulthandler._sigsegv()";
    let outcome = fixture.run_program(crashes, &dependencies);
    assert_eq!(failure(&outcome).kind.code(), "worker_crash");
    assert_eq!(fixture.progress(), Vec::<String>::new());
}

fn check_repair(
    fixture: &EnvironmentFixture,
    library: &str,
    damage: Damage,
    (code, dependencies): (&str, &Value),
    expected: &Value,
) {
    let cache = fixture.runtime().cache().unwrap();
    let is_current = |it: &recurgent::environment::Stored| it.standing == CacheState::Ready;
    let mut damaged = 0;
    for environment in cache.list().iter().filter(|it| is_current(it)) {
        for file in files(&environment.root) {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.contains(library) && file.extension().is_some_and(|it| it == "so") {
                damage.apply(&file);
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0, "no {library}");
    fixture.progress();
    let outcome = fixture.run_program(code, dependencies);
    assert_eq!(value(&outcome), expected, "{library} {damage:?}");
    assert!(fixture.progress().iter().any(|what| what.starts_with("installing")));
    assert_eq!(
        fixture.last_log_entry()["attempts"].as_array().map(Vec::len),
        Some(1),
        "no program is to blame"
    );
    fixture.run_program(code, dependencies);
    assert_eq!(fixture.progress(), Vec::<String>::new(), "it is whole again");
}

impl Damage {
    fn apply(self, library: &Path) {
        let modified = library.metadata().unwrap().modified().unwrap();
        let mut bytes = fs::read(library).unwrap();
        match self {
            Self::Cut => bytes.truncate(bytes.len() / 2),
            Self::Overwritten | Self::Decayed => {
                for (begin, end) in machine_code(&bytes) {
                    // The instruction that every processor refuses.
                    bytes[begin..end]
                        .chunks_exact_mut(2)
                        .for_each(|it| it.copy_from_slice(&[0x0f, 0x0b]));
                }
            }
        }
        fs::write(library, bytes).unwrap(); // in place
        if matches!(self, Self::Decayed) {
            File::options().write(true).open(library).unwrap().set_modified(modified).unwrap();
        }
    }
}

/// The executable segments of a shared library (ELF, 64 bits).
fn machine_code(bytes: &[u8]) -> Vec<(usize, usize)> {
    let number = |at: usize, size: usize| {
        let digits = bytes[at..at + size].iter().rev();
        digits.fold(0_usize, |value, digit| value << 8 | usize::from(*digit))
    };
    let headers = (0..number(56, 2)).map(|index| number(32, 8) + index * number(54, 2));
    headers
        .filter(|at| number(*at, 4) == 1 && number(at + 4, 4) & 1 == 1)
        .map(|at| (number(at + 8, 8), number(at + 8, 8) + number(at + 32, 8)))
        .collect()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let inside = entries.flat_map(|entry| {
        if entry.file_type().unwrap().is_dir() { files(&entry.path()) } else { vec![entry.path()] }
    });
    inside.collect()
}

fn remove_file(directory: &Path, name: &str) -> bool {
    let found = files(directory).into_iter().find(|file| file.file_name().unwrap() == name);
    found.is_some_and(|file| fs::remove_file(file).is_ok())
}
