//! What must never reach a Gemfile or a pyproject.

use super::*;

#[rustfmt::skip]
const NAMES: [&str; 32] = [
    "", " ", ".", "-rf", "_x", "x.", "a b", "a\"; system('x')", "a\ngem 'evil'", "a'", "a#{x}", "a;evil", "../evil",
    "/evil", "https://evil/x.whl", "git+https://evil", "x @ git+https://evil", "x; python_version > '3'", "x>=1", "é",
    "x\u{0}", "a\\b", "$(x)", "`x`", "x]", "x[", "x[a", "x[a]b", "x[]", "x[a,]", "x[a;b]", "x[a] @ file:///x",
];

#[rustfmt::skip]
const VERSIONS: [&str; 40] = [
    "", " ", ",", "1,", ",1", "~> 1.0\"; system('x')", "~> 1.0\", git: \"https://evil", "1.0\ngem 'evil'", "~>\t1.0",
    "1.0'", "#{`x`}", "1.0 # x", "1.0; evil", ">= 1; python_version > '3'", "@ git+https://evil", "@ file:///etc",
    "https://evil/x.whl", "git+https://evil", "file:///x", "*", "latest", "^1.0", ">= ", "~> a", "1..2", "1.", ".1", "- 1",
    "1 2", ">= 1 < 2", "=> 1", "1.0\\", "１.０", "1.0\u{0}", "1.0\u{2028}x", "(>=1)", "> =1", "===", "=== 1; x",
    ">= 99999999999999999999999",
];

#[test]
fn names_are_names() {
    for (language, name) in Language::ALL.into_iter().flat_map(|l| NAMES.map(|name| (l, name))) {
        // A gem's name may end in a dot; a Python package's may not.
        let accepted = language == Ruby && name == "x.";
        let parsed = parse(language, &json!([{"name": name}]));
        assert_eq!(parsed.is_ok(), accepted, "{language} {name:?}");
    }
    let long = "x".repeat(MAX_PACKAGE_BYTES + 1);
    assert!(parse(Python, &json!([{"name": long}])).is_err());
}

#[test]
fn versions_are_constraints() {
    for (language, version) in Language::ALL.into_iter().flat_map(|l| VERSIONS.map(|v| (l, v))) {
        for version in [version.to_owned(), format!(">= 1,{version}"), format!("{version},< 2")] {
            // Alone, these mean any version.
            let is_any = ["", "*", "latest"].contains(&version.trim_matches(' '));
            let parsed = parse(language, &json!([{"name": "x", "version": version}]));
            assert_eq!(parsed.is_ok(), is_any, "{language} {version:?} became {parsed:?}");
            let parsed = parse(language, &json!([{"name": "x", "version": [">= 1", version]}]));
            assert!(parsed.is_err(), "{language} {version:?} became {parsed:?}");
        }
    }
    let long = "1".repeat(MAX_CONSTRAINT_BYTES + 1);
    assert!(parse(Ruby, &json!([{"name": "x", "version": long}])).is_err());
}

#[test]
fn versions_are_texts() {
    for version in
        [json!(1), json!(1.5), json!(true), json!({}), json!([]), json!([1]), json!([["1"]])]
    {
        assert!(parse(Python, &json!([{"name": "x", "version": version}])).is_err(), "{version}");
    }
}
