//! What vetting costs: a program of 5 KB, which the specification bounds at 2 ms, and the worst we know of.
//! Fails when a typical program is over the bound.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

mod common;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lifecycle::dialect::{Language, MAX_SOURCE_BYTES};
use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::program::{VetFault, vet};
use lifecycle::request::CallRequest;

use common::{generated, inputs, request, typical};

/// What is promised for a program of [`TYPICAL`] bytes.
const BOUND: Duration = Duration::from_millis(2);
const TYPICAL: usize = 5 * 1024;
const ROUNDS: usize = 400;
const HOSTILE_ROUNDS: usize = 9;

fn main() -> ExitCode {
    println!("vetting a program of {TYPICAL} bytes (bound {} ms)", BOUND.as_millis());
    println!("{:<28} {:>10} {:>10} {:>10} {:>8}", "", "fastest", "median", "p90", "of bound");
    let mut kept = true;
    for language in Language::ALL {
        let request = request(language, inputs());
        let times = timed(&request, typical(language), ROUNDS);
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        let (fastest, median, p90) = (at(0), at(50), at(90));
        let share = median.as_secs_f64() / BOUND.as_secs_f64();
        kept &= median <= BOUND;
        println!(
            "{:<28} {:>10} {:>10} {:>10} {:>7.1}%  {}",
            language.name(),
            ms(fastest),
            ms(median),
            ms(p90),
            share * 100.0,
            if median <= BOUND { "pass" } else { "FAIL" }
        );
    }
    println!(
        "\nthe worst we know of, fastest of {HOSTILE_ROUNDS} (what else runs on the machine is not their cost)"
    );
    println!(
        "{:<28} {:>10} {:>10}  answer at {} KB",
        "",
        "5 KB",
        "128 KB",
        MAX_SOURCE_BYTES / 1024
    );
    for (name, language, make) in HOSTILE {
        let request = request(*language, inputs());
        let cost = |bytes: usize| *timed(&request, &make(bytes), HOSTILE_ROUNDS).first().unwrap();
        let answer = match vet(
            generated(*language, &make(MAX_SOURCE_BYTES)),
            &request,
            &[],
            &GuardrailPolicy::default(),
        ) {
            Ok(_) => "passes".to_owned(),
            Err((_, VetFault::Violations(violations))) => {
                violations.first().map_or("", |found| found.subtype()).to_owned()
            }
            Err((_, VetFault::Syntax(fault))) => fault.message.chars().take(40).collect(),
        };
        println!(
            "{name:<28} {:>10} {:>10}  {answer}",
            ms(cost(TYPICAL)),
            ms(cost(MAX_SOURCE_BYTES))
        );
    }
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

type Make = fn(usize) -> String;

/// Inputs made to hurt: deep, long, or with much for every rule to look at.
const HOSTILE: &[(&str, Language, Make)] = &[
    ("python parentheses", Language::Python, |bytes| {
        format!("result = {}1{}", "(".repeat(bytes / 2 - 8), ")".repeat(bytes / 2 - 8))
    }),
    ("python unclosed brackets", Language::Python, |bytes| "[".repeat(bytes)),
    ("python sum", Language::Python, |bytes| format!("result = 1{}", "+1".repeat(bytes / 2 - 8))),
    ("python attribute chain", Language::Python, |bytes| {
        format!("result = a{}", ".b".repeat(bytes / 2 - 8))
    }),
    ("python f-strings", Language::Python, |bytes| {
        filled("result = f'{context[\"k\"]} {args[0]!r}'\n", bytes)
    }),
    ("python aliases", Language::Python, |bytes| numbered("a{n} = a{m}\n", bytes)),
    ("python literals", Language::Python, |bytes| {
        filled("result = ['a longer text here', 77]\n", bytes)
    }),
    ("python fetch fallbacks", Language::Python, |bytes| {
        filled(
            "try:\n    x = tool('fetcher').fetch(args[0])\nexcept Exception:\n    x = [1]\nresult = x\n",
            bytes,
        )
    }),
    ("python imports", Language::Python, |bytes| numbered("import m{n}\n", bytes)),
    ("python many handlers", Language::Python, |bytes| {
        format!("try: pass\n{}", "except A: x = [1]\n".repeat(bytes / 18 - 2))
    }),
    ("ruby parentheses", Language::Ruby, |bytes| {
        format!("{}1{}", "(".repeat(bytes / 2 - 8), ")".repeat(bytes / 2 - 8))
    }),
    ("ruby unclosed brackets", Language::Ruby, |bytes| "[".repeat(bytes)),
    ("ruby destructuring", Language::Ruby, |bytes| format!("a {{ |{}", "(".repeat(bytes - 8))),
    ("ruby sum", Language::Ruby, |bytes| format!("1{}", "+1".repeat(bytes / 2 - 8))),
    ("ruby call chain", Language::Ruby, |bytes| format!("a{}", ".b".repeat(bytes / 2 - 8))),
    ("ruby nested interpolation", Language::Ruby, |bytes| {
        format!("{}1{}", "\"#{".repeat(bytes / 5 - 4), "}\"".repeat(bytes / 5 - 4))
    }),
    ("ruby heredocs", Language::Ruby, |bytes| filled("x = <<~A\n  #{args[0]}\nA\n", bytes)),
    ("ruby aliases", Language::Ruby, |bytes| numbered("a{n} = a{m}\n", bytes)),
    ("ruby errors", Language::Ruby, |bytes| filled("def (\n", bytes)),
    ("ruby unless", Language::Ruby, |bytes| filled("unless a\n", bytes)),
];

/// One line again and again.
fn filled(line: &str, bytes: usize) -> String {
    line.repeat(bytes / line.len())
}

/// Lines that count.
fn numbered(line: &str, bytes: usize) -> String {
    let mut text = String::new();
    for n in 1_usize.. {
        let next = line.replace("{n}", &n.to_string()).replace("{m}", &(n - 1).to_string());
        if text.len() + next.len() > bytes {
            break;
        }
        text.push_str(&next);
    }
    text
}

/// How long it takes, fastest first.
fn timed(request: &CallRequest, source: &str, rounds: usize) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let program = generated(request.language, source);
            let begun = Instant::now();
            let _ = black_box(vet(program, request, &[], &GuardrailPolicy::default()));
            begun.elapsed()
        })
        .collect();
    times.sort();
    times
}

fn ms(took: Duration) -> String {
    format!("{:.3} ms", took.as_secs_f64() * 1000.0)
}
