//! Calls of outside tools in recordings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use recurgent::Runtime;
use recurgent::provider::Scripted;
use recurgent::schemars::{self, JsonSchema};
use recurgent::toolbox::HostFunction;
use serde::Deserialize;
use serde_json::{Value, json};

use super::check;

#[derive(Deserialize, JsonSchema)]
struct Word {
    word: String,
}

/// A replay reaches no tool: the recorded answers, failures among them, come in their order, and one that was not
/// recorded is reported.
#[test]
fn a_recording_answers_instead_of_the_tools() {
    check(|fixture| {
        let file = fixture.state.path().join("session.jsonl");
        let count = Arc::new(AtomicUsize::new(0));
        let code_of = (
            "def go(word):\n    r = tool('dictionary').define(word=word)\n    return [r.value if r.ok else r.error_message, r.ok]",
            "def go(word)\n  r = tool('dictionary').define(word: word)\n  [r.ok? ? r.value : r.error_message, r.ok?]\nend",
        );
        fixture.writes("desk.go", code_of.0, code_of.1);
        let live = Runtime::builder(fixture.config(&[]))
            .provider(Arc::<Scripted>::clone(&fixture.model))
            .record(file.clone())
            .build()
            .unwrap();
        let counted = Arc::clone(&count);
        live.toolbox()
            .add(HostFunction::new("dictionary.define", move |word: Word| {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                if word.word == "xyzzy" {
                    Err("no such word")
                } else {
                    Ok(format!("{} {number}", word.word))
                }
            }))
            .unwrap();
        let words = ["a", "xyzzy", "a"];
        let play = |runtime: &Runtime, words: &[&str]| -> Vec<Value> {
            let desk = fixture.agent(runtime, "desk").session("s").build().unwrap();
            let value = |word: &&str| desk.call("go", (*word,)).unwrap().value().unwrap().clone();
            words.iter().map(value).collect()
        };
        let then = play(&live, &words);
        assert_eq!(then[0], json!(["a 0", true]));
        assert_eq!(then[1], json!(["no such word", false]));
        let home = tempfile::tempdir().unwrap();
        let provider = format!("replay:{}", file.display());
        let config = fixture
            .config(&[("provider", &provider), ("state_dir", &home.path().display().to_string())]);
        let replay = Runtime::builder(config).build().unwrap();
        let now = play(&replay, &words);
        assert_eq!(now, then);
        assert_eq!(count.load(Ordering::SeqCst), 3);
        assert!(replay.provider().unused().is_empty());
        fixture.writes("desk.go", code_of.0, code_of.1);
        let missing = play(&replay, &["b"]).pop().unwrap();
        let said = missing[0].as_str().unwrap_or_default().to_owned();
        assert!(said.contains("holds no further call of dictionary.define"), "{said}");
    });
}

/// A value that the caller names as a secret is in no file, wherever the program passes it on.
#[test]
fn no_secret_of_a_call_is_logged_or_recorded() {
    const SECRET: &str = "correcthorsebattery";
    check(|fixture| {
        let file = fixture.state.path().join("session.jsonl");
        let code_of = (
            "def go(password):\n    r = tool('dictionary').define(word='log in with ' + password)\n    return r.ok",
            "def go(password:)\n  tool('dictionary').define(word: 'log in with ' + password).ok?\nend",
        );
        let call = |runtime: &Runtime| {
            let desk = fixture.agent(runtime, "desk").build().unwrap();
            let given = json!({"password": SECRET});
            let named = given.as_object().unwrap().clone();
            desk.call("go", recurgent::Arguments { args: Vec::new(), kwargs: named }).unwrap()
        };
        fixture.writes("desk.go", code_of.0, code_of.1);
        let live = Runtime::builder(fixture.config(&[]))
            .provider(Arc::<Scripted>::clone(&fixture.model))
            .record(file.clone())
            .build()
            .unwrap();
        let refuse = |word: Word| Err::<String, _>(format!("there is no {}", word.word));
        live.toolbox().add(HostFunction::new("dictionary.define", refuse)).unwrap();
        let then = call(&live);
        assert_eq!(then.value(), Some(&json!(false)), "{then:?}");
        let logged = fixture.log();
        assert!(logged[0].pointer("/attempts/0/outside_calls/0/arguments").is_some());
        for written in [Value::from(logged).to_string(), std::fs::read_to_string(&file).unwrap()] {
            assert!(written.contains("log in with"), "{written}");
            assert!(!written.contains(SECRET), "{written}");
        }
        let home = tempfile::tempdir().unwrap();
        let provider = format!("replay:{}", file.display());
        let config = fixture
            .config(&[("provider", &provider), ("state_dir", &home.path().display().to_string())]);
        let now = call(&Runtime::builder(config).build().unwrap());
        assert_eq!(now.value(), then.value(), "{now:?}");
    });
}
