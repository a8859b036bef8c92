//! Names close to that of a popular package: a common way to make people install another one.

use crate::dialect::Language;

use super::folded;

/// Shortest popular name that is compared: short names have too many neighbours.
const MIN_CHARS: usize = 5;

/// The popular package that has a name close to this one; `None`: this name is a popular one itself, or close to none.
///
/// Close means that one character is missing, added, replaced or exchanged with its neighbour, or that only separators
/// differ.
pub fn similar_popular_name(language: Language, name: &str) -> Option<&'static str> {
    let popular = match language {
        Language::Python => PYTHON,
        Language::Ruby => RUBY,
    };
    let name = folded(language, name);
    if popular.contains(&name.as_str()) {
        return None;
    }
    popular.iter().copied().find(|known| known.len() >= MIN_CHARS && is_close(&name, known))
}

fn is_close(name: &str, known: &str) -> bool {
    let joined = |text: &str| text.replace(['-', '_', '.'], "");
    joined(name) == joined(known) || differs_by_one(name.as_bytes(), known.as_bytes())
}

/// Whether one edit turns one name into the other. Names are ASCII.
fn differs_by_one(one: &[u8], other: &[u8]) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let same = short.iter().zip(long).take_while(|(a, b)| a == b).count();
    let rest = |text: &[u8], skipped: usize| text.get(same + skipped..).map(<[u8]>::to_vec);
    match long.len() - short.len() {
        0 => {
            let is_swapped = matches!(
                (short.get(same..same + 2), long.get(same..same + 2)),
                (Some([a, b]), Some([c, d])) if a == d && b == c
            );
            rest(short, 1) == rest(long, 1) || (is_swapped && rest(short, 2) == rest(long, 2))
        }
        1 => rest(short, 0) == rest(long, 1),
        _ => false,
    }
}

/// Widely used Python packages, normalised.
#[rustfmt::skip]
const PYTHON: &[&str] = &[
    "aiohttp", "alembic", "anyio", "arrow", "asyncpg", "attrs", "azure-core", "babel", "bcrypt", "beautifulsoup4",
    "black", "bleach", "boto3", "botocore", "cachetools", "celery", "certifi", "chardet", "charset-normalizer", "click",
    "colorama", "coverage", "cryptography", "cython", "dateparser", "django", "djangorestframework", "dnspython",
    "docutils", "fastapi", "feedparser", "filelock", "flask", "fsspec", "geopandas", "gevent", "google-auth", "greenlet",
    "grpcio", "gunicorn", "html5lib", "httpcore", "httpx", "idna", "importlib-metadata", "isodate", "itsdangerous",
    "jinja2", "jmespath", "joblib", "jsonschema", "keras", "kombu", "langdetect", "lxml", "mako", "markdown",
    "markupsafe", "marshmallow", "matplotlib", "mypy", "networkx", "nltk", "numpy", "oauthlib", "openai", "openpyxl",
    "orjson", "packaging", "pandas", "paramiko", "peewee", "pendulum", "pillow", "plotly", "polars", "portalocker",
    "protobuf", "psutil", "psycopg2", "pyarrow", "pycparser", "pycryptodome", "pydantic", "pygments", "pyjwt", "pymongo",
    "pymysql", "pynacl", "pyparsing", "pypdf", "pyserial", "pytest", "python-dateutil", "python-docx", "python-dotenv",
    "python-slugify", "pytz", "pyyaml", "qrcode", "rapidfuzz", "redis", "regex", "reportlab", "requests",
    "requests-oauthlib", "rich", "rsa", "s3transfer", "scikit-learn", "scipy", "seaborn", "selenium", "sentry-sdk",
    "setuptools", "shapely", "simplejson", "six", "sqlalchemy", "starlette", "statsmodels", "sympy", "tabulate",
    "tenacity", "tensorflow", "termcolor", "tokenizers", "torch", "tornado", "tqdm", "transformers", "typer",
    "typing-extensions", "tzdata", "tzlocal", "ujson", "unidecode", "urllib3", "uvicorn", "virtualenv", "watchdog",
    "websocket-client", "websockets", "werkzeug", "wheel", "wrapt", "xlrd", "xlsxwriter", "xmltodict", "yarl", "zipp",
];

/// Widely used gems, in lower case.
#[rustfmt::skip]
const RUBY: &[&str] = &[
    "actionpack", "activejob", "activemodel", "activerecord", "activesupport", "addressable", "arel", "aws-sdk-core",
    "aws-sdk-s3", "bcrypt", "bootsnap", "builder", "bunny", "capybara", "carrierwave", "chronic", "chunky_png",
    "coderay", "concurrent-ruby", "connection_pool", "crack", "dalli", "devise", "diff-lcs", "domain_name", "dotenv",
    "dry-types", "erubi", "ethon", "excon", "factory_bot", "faker", "faraday", "feedjira", "ffi", "gem-release",
    "globalid", "graphql", "grape", "haml", "hashdiff", "hashie", "highline", "http", "httparty", "httpclient", "i18n",
    "jekyll", "jwt", "kaminari", "kramdown", "liquid", "listen", "loofah", "mail", "mechanize", "mini_magick",
    "mini_portile2", "mongoid", "msgpack", "multi_json", "mustache", "mysql2", "net-ssh", "nokogiri", "oauth2", "omniauth",
    "paperclip", "pdf-reader", "prawn", "prawn-table", "public_suffix", "puma", "pundit", "racc", "rack", "rack-test",
    "rails", "railties", "rainbow", "ransack", "redcarpet", "redis", "rest-client", "roo", "rouge", "rspec", "rspec-core",
    "rubocop", "rubyzip", "sanitize", "sass", "sequel", "sidekiq", "simplecov", "sinatra", "slim", "sqlite3", "stringex",
    "stripe", "thor", "tilt", "typhoeus", "tzinfo", "unicorn", "vcr", "warden", "webmock", "will_paginate", "yard",
    "zeitwerk",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_close_to_a_popular_one_are_found() {
        use Language::{Python, Ruby};
        for (language, name, popular) in [
            (Python, "requests", None),
            (Python, "Requests", None),
            (Python, "request", Some("requests")),
            (Python, "reqeusts", Some("requests")),
            (Python, "requestss", Some("requests")),
            (Python, "numpi", Some("numpy")),
            (Python, "beautiful-soup4", Some("beautifulsoup4")),
            (Python, "typing_extensions", None),
            (Python, "sux", None),
            (Python, "completely-else", None),
            (Ruby, "nokogirl", Some("nokogiri")),
            (Ruby, "Nokogiri", None),
            (Ruby, "rest_client", Some("rest-client")),
            (Ruby, "beta", None),
        ] {
            assert_eq!(similar_popular_name(language, name), popular, "{name}");
        }
    }
}
