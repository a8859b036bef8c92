//! Programs: a model that follows a script writes them, and the engine forces, checks and ends them.

use embedded::{EndOfText, Form, Generated, GenerationRequest};
use lifecycle::dialect::Language;

use crate::tiny::TinyFile;
use crate::{Fixture, request, run_heard};

/// What a script's line may continue with, and how strongly.
type Script<'a> = &'a [(&'a str, &'a [(&'a str, f32)])];

const HEAD: &str = "def total(items):";

#[track_caller]
fn write(language: Language, head: &str, script: Script<'_>) -> Generated {
    let fixture = Fixture::new(&TinyFile::scripted(script));
    let form = Form::Program { language, head: head.to_owned(), method: "total".to_owned() };
    let request = GenerationRequest { form, max_tokens: 120, ..request("", "x") };
    run_heard(&mut fixture.engine(), &request).remove(0)
}

#[track_caller]
fn check(language: Language, head: &str, script: Script<'_>, expected: &str) {
    let answer = write(language, head, script);
    assert_eq!(answer.text, expected);
    assert_eq!(answer.ending, EndOfText::Stop);
}

/// The last token of the opening fence and of the head is a newline, so a script begins there.
const START: &str = "\n";

#[test]
fn the_head_is_forced_whatever_the_model_begins_with() {
    for beginning in ["Sure", "def total(", "```", "<end>", "x = 1\n"] {
        let script: Script<'_> = &[
            (START, &[(beginning, 9.0)]),
            (beginning, &[("q", 9.0)]),
            (":\n", &[("    return 1\n", 9.0)]),
            ("    return 1\n", &[("<end>", 9.0)]),
        ];
        check(Language::Python, HEAD, script, "def total(items):\n    return 1");
    }
}

#[test]
fn imports_constants_and_helpers_may_come_first() {
    check(
        Language::Python,
        HEAD,
        &[
            (START, &[("import re\n", 9.0)]),
            ("import re\n", &[("LIMIT = 3\n", 9.0)]),
            ("LIMIT = 3\n", &[("def helper(x):\n", 9.0)]),
            ("def helper(x):\n", &[("    return x\n", 9.0)]),
            ("    return x\n", &[("def total(a", 9.0)]),
            (":\n", &[("    return helper(items)\n", 9.0)]),
            ("    return helper(items)\n", &[("<end>", 9.0)]),
        ],
        "import re\nLIMIT = 3\ndef helper(x):\n    return x\ndef total(items):\n    return helper(items)",
    );
}

#[test]
fn python_ends_where_the_function_ends() {
    for after in ["print(total([1]))\n", "# Example\n", "```", "if __name__", "def total(", "<end>"]
    {
        let script: Script<'_> = &[
            (START, &[("def total(", 9.0)]),
            (":\n", &[("    return 1\n", 9.0)]),
            ("    return 1\n", &[(after, 9.0)]),
        ];
        check(Language::Python, HEAD, script, "def total(items):\n    return 1");
    }
}

#[test]
fn helpers_may_follow_if_they_are_whole() {
    let script: Script<'_> = &[
        (START, &[("def total(", 9.0)]),
        (":\n", &[("    return half(1)\n", 9.0)]),
        ("    return half(1)\n", &[("def half(x):\n", 9.0)]),
        ("def half(x):\n", &[("    return x / 2\n", 9.0)]),
        ("    return x / 2\n", &[("```", 9.0)]),
    ];
    let whole = "def total(items):\n    return half(1)\ndef half(x):\n    return x / 2";
    check(Language::Python, HEAD, script, whole);
    let unfinished: Script<'_> = &[
        (START, &[("def total(", 9.0)]),
        (":\n", &[("    return half(1)\n", 9.0)]),
        ("    return half(1)\n", &[("def half(x):\n", 9.0)]),
        ("def half(x):\n", &[("<end>", 9.0)]),
    ];
    check(Language::Python, HEAD, unfinished, "def total(items):\n    return half(1)");
}

#[test]
fn ruby_ends_at_the_end_that_closes_the_method() {
    check(
        Language::Ruby,
        "def total(items)",
        &[
            (START, &[("def total(", 9.0)]),
            (")\n", &[("  items.sum do |x|\n", 9.0)]),
            ("  items.sum do |x|\n", &[("    x\n", 9.0)]),
            ("    x\n", &[("  end\n", 9.0)]),
            ("  end\n", &[("end\n", 9.0)]),
            ("end\n", &[("puts total([1])\n", 9.0)]),
        ],
        "def total(items)\n  items.sum do |x|\n    x\n  end\nend",
    );
}

#[test]
fn a_line_that_cannot_parse_is_written_anew() {
    let script: Script<'_> = &[
        (START, &[("def total(", 9.0)]),
        (":\n", &[("    return = 1\n", 9.0), ("    return 2\n", 8.9)]),
        ("    return = 1\n", &[("<end>", 9.0)]),
        ("    return 2\n", &[("<end>", 9.0)]),
    ];
    let answer = write(Language::Python, HEAD, script);
    assert_eq!(answer.text, "def total(items):\n    return 2");
}

#[test]
fn a_model_that_never_writes_a_line_that_parses_ends() {
    let script: Script<'_> = &[
        (START, &[("def total(", 9.0)]),
        (":\n", &[("    return = 1\n", 90.0)]),
        ("    return = 1\n", &[("<end>", 9.0)]),
    ];
    let answer = write(Language::Python, HEAD, script);
    assert_eq!(answer.ending, EndOfText::Stop);
    assert!(answer.text.contains("return = 1"), "{:?}", answer.text);
}

#[test]
fn repetition_and_length_end_a_program() {
    let repeated: Script<'_> = &[
        (START, &[("def total(", 9.0)]),
        (":\n", &[("    x = 1\n", 9.0)]),
        ("    x = 1\n", &[("    x = 1\n", 9.0)]),
    ];
    assert_eq!(write(Language::Python, HEAD, repeated).ending, EndOfText::Repetition);
    let looped: Script<'_> = &[
        (START, &[("def total(", 9.0)]),
        (":\n", &[("    x = ", 9.0)]),
        ("    x = ", &[("1+", 9.0)]),
        ("1+", &[("2+", 9.0)]),
        ("2+", &[("1+", 9.0)]),
    ];
    assert_eq!(write(Language::Python, HEAD, looped).ending, EndOfText::Repetition);
}
