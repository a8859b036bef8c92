//! Wrong values that the command line itself takes, because what they mean is known later: flags of settings, and every
//! key of `--set`. `wrong-values.txt` says what each prints; `UPDATE_DOCS=1` writes it.

use std::fmt::Write as _;
use std::path::Path;

use recurgent::config::KEYS;

use crate::calls::cli;

/// The file with the expected output.
const GOLDEN: &str = "tests/wrong-values.txt";
/// A value that means nothing anywhere.
const NONSENSE: &str = "?nonsense?";

#[test]
fn wrong_values_print_what_the_file_says() {
    let cli = cli();
    let help = cli.run(&["config", "--help"]).exits(0).stdout.clone();
    let flags: Vec<&str> = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--")?.split_once(" <"))
        .map(|(flag, _)| flag)
        .filter(|flag| !["guest", "set"].contains(flag))
        .collect();
    assert!(flags.len() > 10, "{flags:?}");
    let of_flags = flags
        .iter()
        .flat_map(|flag| [NONSENSE, ""].map(|value| vec![format!("--{flag}"), value.to_owned()]));
    let of_keys =
        KEYS.iter().map(|key| vec!["--set".to_owned(), format!("{}={NONSENSE}", key.name)]);
    let mut printed = String::new();
    for words in of_flags.chain(of_keys) {
        let line: Vec<&str> =
            ["config"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let ran = cli.run(&line);
        let said = if ran.exit == 0 { "(accepted)" } else { ran.stderr.trim_end() };
        assert!(ran.exit == 0 || ran.exit == 2, "{ran:?}");
        let value = if words[1].is_empty() { "''" } else { &words[1] };
        writeln!(printed, "$ recurgent config {} {value}\n{said}\n", words[0]).unwrap();
    }
    let place = cli.path("").display().to_string();
    let printed = printed.replace(place.trim_end_matches('/'), "…");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&golden, &printed).unwrap();
    }
    let recorded = std::fs::read_to_string(&golden).unwrap_or_default();
    let differs = printed.split("\n\n").zip(recorded.split("\n\n")).find(|(now, then)| now != then);
    assert!(
        printed == recorded,
        "{GOLDEN} is not what is printed; UPDATE_DOCS=1 writes it. First difference: {differs:#?}"
    );
}
