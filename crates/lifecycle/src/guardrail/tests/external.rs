//! What is made up, and what is fetched without saying where.

use super::*;

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
        "page = tool('web_fetcher').fetch(args[0])\nfallback_movies = [{ title: 'Heat' }]\nOutcome.ok(fallback_movies)",
        "require 'net/http'\nbegin\n  Net::HTTP.get(URI(args[0]))\nrescue StandardError\n  ['Heat']\nend",
        "movies = (tool('fetcher').get(args[0]).value rescue ['Heat'])\nOutcome.ok(movies: movies)",
        "fallback = ['Heat'] # never mind\nm = tool('fetcher').get(args[0]).value\nm = fallback if m.empty?\n{ movies: m }",
    ] {
        check(Ruby, source, &[HardcodedExternalFallbackSuccess]);
    }
}

#[test]
fn what_stands_in_for_data_is_no_answer() {
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
        format!("{RESCUED}except Exception:\n    result = 'Heat, 1995'"),
        format!("{RESCUED}except Exception:\n    movies = 'Heat, 1995'\nresult = movies"),
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
        "begin\n  tool('fetcher').get(args[0])\nrescue StandardError\n  'Heat, 1995'\nend",
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
    ];
    for (language, source) in &passing {
        check(*language, source, &[]);
    }
}

fn sourced() -> Value {
    json!({"items": [], "provenance": {"sources": [
        {"uri": "u", "fetched_at": "t", "retrieval_tool": "x", "retrieval_mode": " LIVE "}]}})
}

#[test]
fn missing_external_provenance() {
    let sourced = sourced();
    let unsourced = json!({"items": [1]});
    let fetching = [
        (Python, "import requests as r\nresult = r.get(args[0]).json()"),
        (Python, "from urllib.request import urlopen as u\nresult = u(args[0])"),
        (Python, "result = tool('web_fetcher').fetch(args[0])"),
        (Ruby, "Net::HTTP.get(URI(args[0]))"),
        (Ruby, "\"#{1}\"; Net::HTTP.get(URI(args[0]))"),
        (Ruby, "URI.open(args[0]).read"),
        (Ruby, "delegate('page fetcher', purpose: 'p').get(args[0])"),
        (Python, "f = tool('web_fetcher')\nresult = f.fetch(args[0])"),
        (Python, "f = tool('web_fetcher')\nresult = list(map(f.fetch, args))"),
        (
            Python,
            "def get(f, url): return f.fetch(url)\nresult = get(tool('web_fetcher'), args[0])",
        ),
        (Python, "def f(): return tool('web_fetcher')\nresult = f().fetch(args[0])"),
        (Python, "import requests\nresult = requests.Session().get(args[0]).json()"),
        (
            Python,
            "import requests\nwith requests.Session() as s:\n    result = s.get(args[0]).json()",
        ),
        (Python, "import httpx\nresult = httpx.Client().get(args[0]).json()"),
        (Python, "import http.client\nc = http.client.HTTPSConnection('x')\nc.request('GET', '/')"),
        (Python, "from http.client import HTTPConnection as C\nC('x').request('GET', '/')"),
        (Python, "import urllib.request as u\nresult = u.build_opener().open(args[0]).read()"),
        (Ruby, "require 'open-uri'\nURI(args[0]).open.read"),
        (Ruby, "require 'open-uri'\nuri = URI.parse(args[0])\nuri.open { |page| page.read }"),
        (Ruby, "require 'open-uri'\nURI(args[0]).read"),
        (
            Ruby,
            "uri = URI(args[0])\nNet::HTTP.start(uri.host) { |h| h.request(Net::HTTP::Get.new(uri)) }",
        ),
        (Ruby, "f = tool(:web_fetcher)\nargs.map { |url| f.fetch(url).value }"),
        (Ruby, "TCPSocket.open('x', 80) { |s| s.read }"),
        (Ruby, "Socket.tcp('x', 80) { |s| s.read }"),
    ];
    for (language, source) in fetching {
        let inspection = inspect(language, source).unwrap();
        let violation = check_provenance(&inspection, &unsourced).expect(source);
        assert_eq!(violation.rule, MissingExternalProvenance);
        assert_eq!(check_provenance(&inspection, &sourced), None, "{source}");
    }
}

#[test]
fn what_does_not_fetch_needs_no_provenance() {
    let unsourced = json!({"items": [1]});
    let local = [
        (Python, "import urllib.parse\nresult = urllib.parse.quote('requests.get')"),
        (
            Python,
            "import requests\ntry:\n    result = 1\nexcept requests.exceptions.HTTPError:\n    raise",
        ),
        (Ruby, "'use Net::HTTP and require \"net/http\"'"),
        (Ruby, "URI.parse(args[0]).host # Net::HTTP"),
        (Ruby, "tool('formatter').format('fetch')"),
        (Python, "import urllib.request\nresult = urllib.request.quote(args[0])"),
        (
            Python,
            "from urllib.request import Request, pathname2url\nresult = pathname2url(args[0])",
        ),
        (Python, "import requests\nresult = requests.Request('GET', args[0]).url"),
        (Python, "import http.client\nresult = http.client.HTTPException('x').args"),
        (Python, "delegate('page fetcher', purpose='p')\nresult = 1"),
        (
            Python,
            "f = delegate('page fetcher', purpose='p')\nresult = tool('formatter').format(args[0])",
        ),
        (Ruby, "require 'socket'\nSocket.gethostname"),
        (Ruby, "Net::HTTP::Get.new(args[0]).path"),
        (Ruby, "delegate('page fetcher', purpose: 'p')\n1"),
        (Ruby, "URI(args[0]).host"),
        (
            Ruby,
            "f = delegate('page fetcher', purpose: 'p')\ntool('formatter').format(args[0]).value",
        ),
    ];
    for (language, source) in local {
        let inspection = inspect(language, source).unwrap();
        assert_eq!(check_provenance(&inspection, &unsourced), None, "{source}");
    }
}

#[test]
fn every_field_of_a_source_is_needed() {
    let sourced = sourced();
    let inspection = inspect(Ruby, "Net::HTTP.get(1)").unwrap();
    for bad in ["uri", "fetched_at", "retrieval_tool", "retrieval_mode"] {
        let mut value = sourced.clone();
        value["provenance"]["sources"][0][bad] = json!(" ");
        assert!(check_provenance(&inspection, &value).is_some(), "{bad}");
    }
}
