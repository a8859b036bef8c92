//! Records that are made up, and sources that are.

use super::*;
use crate::provenance::{Observation, ObservedSource};
use crate::request::Arguments;

const RESCUED: &str =
    "import urllib.request\ntry:\n    movies = urllib.request.urlopen(args[0]).read()\n";
const FETCHED: &str = "import urllib.request\nr = urllib.request.urlopen(args[0]).read()\n";

#[test]
fn hardcoded_external_fallback_success() {
    let cases = [
        format!("{RESCUED}except Exception:\n    movies = [{{'title': 'Heat'}}]\nresult = movies"),
        format!("{RESCUED}except Exception:\n    result = {{'movies': ['Heat']}}"),
        format!(
            "fallback_movies = ['Heat']\n{RESCUED}except Exception:\n    movies = None\nresult = Outcome.ok(movies or fallback_movies)"
        ),
    ];
    for source in &cases {
        check(Python, source, &[HardcodedExternalFallbackSuccess]);
    }
    for source in [
        "require 'net/http'\nbegin\n  Net::HTTP.get(URI(args[0]))\nrescue StandardError\n  ['Heat']\nend",
        "movies = (tool('fetcher').get(args[0]).value rescue ['Heat'])\nOutcome.ok(movies: movies)",
    ] {
        check(Ruby, source, &[HardcodedExternalFallbackSuccess]);
    }
}

#[test]
fn placeholder_data_is_not_an_answer() {
    for source in [
        format!("{FETCHED}result = r or ['Heat']"),
        format!("{FETCHED}movies = r or [{{'title': 'Heat'}}]\nresult = {{'movies': movies}}"),
        format!("{FETCHED}result = Outcome.ok(r if r else ['Heat'])"),
        format!("{FETCHED}import json\nresult = json.loads(r).get('movies', ['Heat'])"),
        "result = tool('fetcher').get(args[0]).value_or(['Heat'])".to_owned(),
        format!("MOVIES = ['Heat']\n{RESCUED}except Exception:\n    result = MOVIES"),
        format!(
            "MOVIES = ['Heat']\ndef add(x):\n    {}    except OSError:\n        return MOVIES",
            RESCUED.replace("    ", "        ").replace("try", "    try")
        ),
        format!("{RESCUED}except Exception:\n    result = [dict(title='Heat')]"),
        // The counterparts of status pages and caches: nothing says that the records are not fetched.
        format!(
            "{RESCUED}except Exception:\n    result = {{'url': args[0], 'state': 'UP', 'movies': [{{'title': 'Heat'}}]}}"
        ),
        format!(
            "{RESCUED}except Exception:\n    result = {{'url': args[0], 'movies': [{{'title': 'Heat'}}]}}"
        ),
        format!(
            "{RESCUED}except Exception:\n    result = {{'status': 'success', 'count': 1, 'movies': ['Heat']}}"
        ),
        format!(
            "{RESCUED}except Exception:\n    result = {{'ok': True, 'movies': [{{'title': 'Heat', 'ok': True}}]}}"
        ),
        format!("{RESCUED}except Exception:\n    result = {{'cached': False, 'movies': ['Heat']}}"),
        format!("{RESCUED}except Exception:\n    result = context.get('movies') or ['Heat']"),
        format!("{FETCHED}context['movies'] = r\nresult = context['movies'] or ['Heat']"),
        format!(
            "{FETCHED}context['movies'] = r\nfound = context.get('movies')\nresult = found or ['Heat']"
        ),
    ] {
        check(Python, &source, &[HardcodedExternalFallbackSuccess]);
    }
    for source in [
        "MOVIES = ['Heat'].freeze\nbegin\n  tool('fetcher').get(args[0])\nrescue => e\n  MOVIES\nend",
        "MOVIES = ['Heat']\nbegin\n  tool('fetcher').get(args[0])\nrescue => e\n  MOVIES\nend",
        "m = tool('fetcher').get(args[0]).value || ['Heat']\n{ movies: m }",
        "m = tool('fetcher').get(args[0]).value\nm ||= ['Heat']\nm",
        "m = tool('fetcher').get(args[0]).value\nm.fetch(:movies) { ['Heat'] }",
        "m = tool('fetcher').get(args[0]).value\nm.fetch(:movies, ['Heat'])",
        "tool('fetcher').get(args[0]).value_or(['Heat'])",
        "tool('fetcher').get(args[0]) rescue ['Heat']",
        "m = tool('fetcher').get(args[0]) rescue ['Heat']\nm",
        "begin\n  tool('fetcher').get(args[0])\nrescue => e\n  { url: args[0], state: 'UP', movies: ['Heat'] }\nend",
        "begin\n  tool('fetcher').get(args[0])\nrescue => e\n  { url: args[0], movies: [{ title: 'Heat' }] }\nend",
        "begin\n  tool('fetcher').get(args[0])\nrescue => e\n  context[:movies] || ['Heat']\nend",
        "context[:movies] = tool('fetcher').get(args[0]).value\ncontext[:movies] || ['Heat']",
    ] {
        check(Ruby, source, &[HardcodedExternalFallbackSuccess]);
    }
}

#[test]
fn defaults_and_honest_failures_pass() {
    let passing = [
        (Python, format!("{RESCUED}except Exception as e:\n    result = Outcome.error('fetch_failed', str(e))")),
        (Python, format!("{RESCUED}except Exception as e:\n    result = {{'ok': False, 'error': 'network'}}")),
        (Python, format!("{RESCUED}except Exception:\n    result = []")),
        (Python, "fallback = ['a']\nresult = fallback".to_owned()),
        (Python, format!("{RESCUED}except Exception:\n    result = {{'items': [], 'warnings': ['source unreachable']}}")),
        (Python, format!("{RESCUED}except Exception:\n    result = {{'ok': False, 'tried': ['a', 'b']}}")),
        (Python, format!("{RESCUED}except Exception:\n    result = {{'items': ['Heat'], 'source': 'sample'}}")),
        (Python, format!("{RESCUED}except Exception:\n    result = 'down'")),
        (Python, "import urllib.request\nfallback_urls = ['https://a.example/x', 'https://b.example/x']\nresult = None\nfor url in fallback_urls:\n    try:\n        result = urllib.request.urlopen(url).read()\n        break\n    except OSError:\n        continue".to_owned()),
        (Python, format!("{FETCHED}mirrors = r or ['https://a.example', 'https://b.example']\nresult = mirrors")),
        (Python, format!("{FETCHED}try:\n    n = int(r)\nexcept ValueError:\n    n = [1, 2]\nresult = n")),
        (Ruby, "page = tool('web_fetcher').fetch(args[0])\nfallback_movies = [{ title: 'Heat' }]\n[page, fallback_movies]".to_owned()),
        (Ruby, "tool('skyscraper index').find(args[0]).value || ['Heat']".to_owned()),
        (Ruby, "begin\n  tool('fetcher').get(args[0])\nrescue StandardError\n  'down'\nend".to_owned()),
        (Python, format!("columns = ['a', 'b']\n{RESCUED}except Exception:\n    raise\nresult = [movies, columns]")),
        (Ruby, "p = tool('fetcher').get(args[0])\nOutcome.error(error_type: 'low_utility', error_message: 'none')".to_owned()),
        (Ruby, "fallback_movies = ['Heat']\n'Net::HTTP'\nOutcome.ok(fallback_movies)".to_owned()),
        (Python, format!("fields = kwargs.get('fields') or ['title']\n{FETCHED}result = [r, fields]")),
        (Python, format!("fields = kwargs.get('fields', ['title'])\n{FETCHED}result = [r, fields]")),
        (Python, format!("{FETCHED}def add(x, fields=None):\n    fields = fields or ['title']\n    return [r, fields]")),
        (Python, format!("{FETCHED}result = r or []")),
        (Python, format!("{FETCHED}def price(text):\n    try:\n        return float(text)\n    except ValueError:\n        return 'n/a'\nresult = price(r)")),
        (Python, format!("{RESCUED}except Exception as e:\n    result = Outcome.error('fetch_failed', 'no answer')")),
        (Python, format!("{RESCUED}except Exception as e:\n    raise RuntimeError('no answer')")),
        (Ruby, "fields = kwargs[:fields] || ['title']\nm = tool('fetcher').get(args[0])\n[m, fields]".to_owned()),
        (Ruby, "fields = kwargs.fetch(:fields) { ['title'] }\nm = tool('fetcher').get(args[0])\n[m, fields]".to_owned()),
        (Ruby, "def add(x, fields: nil)\n  fields ||= ['title']\n  [tool('fetcher').get(x).value, fields]\nend".to_owned()),
        (Ruby, "m = tool('fetcher').get(args[0]).value || []\nm".to_owned()),
        (Python, format!("{RESCUED}except Exception:\n    result = {{'service': args[0], 'state': 'DOWN', 'checks': [{{'name': 'http', 'passed': False}}]}}")),
        (Python, format!("{RESCUED}except Exception:\n    result = {{'service': args[0], 'checks': [{{'name': 'http', 'passed': False}}]}}")),
        (Python, format!("{RESCUED}except Exception:\n    result = {{'url': args[0], 'status': 'unreachable', 'tags': ['web', 'public']}}")),
        (Python, format!("{RESCUED}except Exception:\n    result = {{'url': args[0], 'cached': True, 'movies': ['Heat']}}")),
        (Python, format!("{RESCUED}except Exception:\n    result = [{{'name': 'http', 'passed': False}}, {{'name': 'tls', 'passed': False}}]")),
        (Python, format!("cached = context.get('feeds')\nfeeds = cached or ['news', 'tech']\n{FETCHED}result = [r, feeds]")),
        (Python, format!("feeds = context['feeds'] or ['news', 'tech']\n{FETCHED}result = [r, feeds]")),
        (Ruby, "begin\n  tool('fetcher').get(args[0])\nrescue => e\n  { service: args[0], state: 'DOWN', checks: [{ name: 'http', passed: false }] }\nend".to_owned()),
        (Ruby, "cached = context[:feeds]\nfeeds = cached || ['news', 'tech']\nm = tool('fetcher').get(args[0])\n[m, feeds]".to_owned()),
        (Ruby, "feeds = context[:feeds]\nfeeds ||= ['news', 'tech']\nm = tool('fetcher').get(args[0])\n[m, feeds]".to_owned()),
    ];
    for (language, source) in &passing {
        check(*language, source, &[]);
    }
}

/// What a program of a call with these arguments claims, and what its run reached.
fn check_claim(
    (language, source): (Language, &str),
    args: &Value,
    observed: &Observation,
    value: &Value,
) -> Option<Violation> {
    let inspection = inspect(language, source).unwrap();
    let args = args.as_array().unwrap().clone();
    let arguments = Arguments { args, ..Arguments::default() };
    let (inspection, arguments) = (&inspection, &arguments);
    examine_value(&ValueInput { inspection, arguments, observed, value })
}

fn claim(mode: &str) -> Value {
    json!({"items": [1], "provenance": {"sources": [
        {"uri": "https://news.example/x", "fetched_at": "t", "retrieval_tool": "x", "retrieval_mode": mode}]}})
}

#[test]
fn a_live_source_must_have_been_reached() {
    let nothing = Observation::of_no_network();
    let source = ObservedSource {
        uri: "news.example:443".to_owned(),
        fetched_at: "2026-01-01T00:00:00Z".to_owned(),
        tool: None,
    };
    let reached = Observation::of_sources([source]);
    let unobserved = Observation::default();
    let plain = (Python, "result = build(args)");
    let none = json!([]);
    for (observed, value, violates) in [
        (&nothing, claim("live"), true),
        (&nothing, claim(" LIVE "), true),
        (&nothing, claim("fixture"), false),
        (&nothing, claim("cached"), false),
        (&nothing, json!({"items": [1]}), false),
        (&nothing, json!([1, 2]), false),
        (&reached, claim("live"), false),
        (&unobserved, claim("live"), false),
    ] {
        let found = check_claim(plain, &none, observed, &value);
        assert_eq!(found.is_some(), violates, "{value} {found:?}");
        assert!(found.is_none_or(|violation| violation.rule == FalseExternalProvenance));
    }
}

#[test]
fn a_source_that_was_handed_to_the_program_is_not_its_claim() {
    let nothing = Observation::of_no_network();
    let none = json!([]);
    for program in [
        (Python, "result = content('content:1')"),
        (Python, "result = context['page']"),
        (Python, "result = tool('reader').read().value"),
        (Ruby, "context[:page]"),
        (Ruby, "delegate('reader', purpose: 'read').read.value"),
    ] {
        assert_eq!(check_claim(program, &none, &nothing, &claim("live")), None, "{program:?}");
    }
    let given = json!([claim("live")]);
    let program = (Python, "result = args[0]");
    assert_eq!(check_claim(program, &given, &nothing, &claim("live")), None);
}
