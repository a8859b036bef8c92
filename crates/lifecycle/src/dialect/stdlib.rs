//! Names that come with the interpreter: never installed, never declared.

use super::Language;

/// Whether `module` (as the program names it) comes with the guest's interpreter.
pub fn provides(language: Language, module: &str) -> bool {
    match language {
        Language::Python => listed(PYTHON, module.split('.').next().unwrap_or(module)),
        Language::Ruby => ruby_feature(module),
    }
}

/// Whether a *package* of this name would only repeat what comes with the interpreter.
///
/// Unlike a module, a package is listed by its whole name: `json-schema` is not `json`, while the gem
/// `net-http` is the feature `net/http`.
pub fn ships(language: Language, package: &str) -> bool {
    match language {
        Language::Python => {
            let module = package.replace(['-', '.'], "_");
            PYTHON.iter().any(|listed| listed.eq_ignore_ascii_case(&module))
        }
        Language::Ruby => {
            let package = package.to_ascii_lowercase();
            listed(RUBY, &package) || listed(RUBY, &package.replace('-', "/"))
        }
    }
}

/// A Ruby feature is listed by itself (`net/http`) or by its first directory (`json/add/core`).
/// `net` and `io` are shared with gems (`net/ssh`), so only their listed features count.
fn ruby_feature(feature: &str) -> bool {
    let feature = feature.strip_suffix(".rb").or(feature.strip_suffix(".so")).unwrap_or(feature);
    let mut parts = feature.splitn(3, '/');
    let first = parts.next().unwrap_or(feature);
    let second = parts.next();
    listed(RUBY, first) || second.is_some_and(|second| listed(RUBY, &format!("{first}/{second}")))
}

fn listed(table: &[&str], name: &str) -> bool {
    table.binary_search(&name).is_ok()
}

/// `sys.stdlib_module_names` of `CPython` 3.9 to 3.13, united. Sorted.
#[rustfmt::skip]
const PYTHON: &[&str] = &[
    "__future__", "__main__", "_abc", "_aix_support", "_android_support", "_ast", "_asyncio",
    "_bisect", "_blake2", "_bootlocale", "_bootsubprocess", "_bz2", "_codecs", "_codecs_cn",
    "_codecs_hk", "_codecs_iso2022", "_codecs_jp", "_codecs_kr", "_codecs_tw", "_collections",
    "_collections_abc", "_colorize", "_compat_pickle", "_compression", "_contextvars", "_crypt",
    "_csv", "_ctypes", "_curses", "_curses_panel", "_datetime", "_dbm", "_decimal",
    "_elementtree", "_frozen_importlib", "_frozen_importlib_external", "_functools", "_gdbm",
    "_hashlib", "_heapq", "_imp", "_interpchannels", "_interpqueues", "_interpreters", "_io",
    "_ios_support", "_json", "_locale", "_lsprof", "_lzma", "_markupbase", "_md5", "_msi",
    "_multibytecodec", "_multiprocessing", "_opcode", "_opcode_metadata", "_operator",
    "_osx_support", "_overlapped", "_pickle", "_posixshmem", "_posixsubprocess", "_py_abc",
    "_pydatetime", "_pydecimal", "_pyio", "_pylong", "_pyrepl", "_queue", "_random", "_scproxy",
    "_sha1", "_sha2", "_sha256", "_sha3", "_sha512", "_signal", "_sitebuiltins", "_socket",
    "_sqlite3", "_sre", "_ssl", "_stat", "_statistics", "_string", "_strptime", "_struct",
    "_suggestions", "_symtable", "_sysconfig", "_thread", "_threading_local", "_tkinter",
    "_tokenize", "_tracemalloc", "_typing", "_uuid", "_warnings", "_weakref", "_weakrefset",
    "_winapi", "_wmi", "_xxsubinterpreters", "_zoneinfo", "abc", "aifc", "antigravity",
    "argparse", "array", "ast", "asynchat", "asyncio", "asyncore", "atexit", "audioop",
    "base64", "bdb", "binascii", "binhex", "bisect", "builtins", "bz2", "cProfile", "calendar",
    "cgi", "cgitb", "chunk", "cmath", "cmd", "code", "codecs", "codeop", "collections",
    "colorsys", "compileall", "concurrent", "configparser", "contextlib", "contextvars", "copy",
    "copyreg", "crypt", "csv", "ctypes", "curses", "dataclasses", "datetime", "dbm", "decimal",
    "difflib", "dis", "distutils", "doctest", "email", "encodings", "ensurepip", "enum",
    "errno", "faulthandler", "fcntl", "filecmp", "fileinput", "fnmatch", "formatter",
    "fractions", "ftplib", "functools", "gc", "genericpath", "getopt", "getpass", "gettext",
    "glob", "graphlib", "grp", "gzip", "hashlib", "heapq", "hmac", "html", "http", "idlelib",
    "imaplib", "imghdr", "imp", "importlib", "inspect", "io", "ipaddress", "itertools", "json",
    "keyword", "lib2to3", "linecache", "locale", "logging", "lzma", "macpath", "mailbox",
    "mailcap", "marshal", "math", "mimetypes", "mmap", "modulefinder", "msilib", "msvcrt",
    "multiprocessing", "netrc", "nis", "nntplib", "nt", "ntpath", "nturl2path", "numbers",
    "opcode", "operator", "optparse", "os", "ossaudiodev", "parser", "pathlib", "pdb", "pickle",
    "pickletools", "pipes", "pkgutil", "platform", "plistlib", "poplib", "posix", "posixpath",
    "pprint", "profile", "pstats", "pty", "pwd", "py_compile", "pyclbr", "pydoc", "pydoc_data",
    "pyexpat", "queue", "quopri", "random", "re", "readline", "reprlib", "resource",
    "rlcompleter", "runpy", "sched", "secrets", "select", "selectors", "shelve", "shlex",
    "shutil", "signal", "site", "smtpd", "smtplib", "sndhdr", "socket", "socketserver", "spwd",
    "sqlite3", "sre_compile", "sre_constants", "sre_parse", "ssl", "stat", "statistics",
    "string", "stringprep", "struct", "subprocess", "sunau", "symbol", "symtable", "sys",
    "sysconfig", "syslog", "tabnanny", "tarfile", "telnetlib", "tempfile", "termios",
    "textwrap", "this", "threading", "time", "timeit", "tkinter", "token", "tokenize",
    "tomllib", "trace", "traceback", "tracemalloc", "tty", "turtle", "turtledemo", "types",
    "typing", "unicodedata", "unittest", "urllib", "uu", "uuid", "venv", "warnings", "wave",
    "weakref", "webbrowser", "winreg", "winsound", "wsgiref", "xdrlib", "xml", "xmlrpc",
    "zipapp", "zipfile", "zipimport", "zlib", "zoneinfo",
];

/// The standard library, default gems and bundled gems of Ruby 3.1 to 3.4, united. Sorted.
#[rustfmt::skip]
const RUBY: &[&str] = &[
    "English", "abbrev", "base64", "benchmark", "bigdecimal", "bundler", "cgi", "complex",
    "continuation", "coverage", "csv", "date", "debug", "delegate", "did_you_mean", "digest",
    "drb", "enumerator", "erb", "error_highlight", "etc", "expect", "fcntl", "fiber", "fiddle",
    "fileutils", "find", "forwardable", "getoptlong", "io/console", "io/nonblock", "io/wait",
    "ipaddr", "irb", "json", "kconv", "logger", "matrix", "minitest", "mkmf", "monitor",
    "mutex_m", "net/ftp", "net/http", "net/https", "net/imap", "net/pop", "net/protocol",
    "net/smtp", "nkf", "objspace", "observer", "open-uri", "open3", "openssl", "optionparser",
    "optparse", "ostruct", "pathname", "power_assert", "pp", "prettyprint", "prime", "prism",
    "pstore", "psych", "pty", "racc", "rake", "random/formatter", "rational", "rbconfig", "rbs",
    "rdoc", "readline", "reline", "repl_type_completor", "resolv", "resolv-replace", "rexml", "rinda",
    "ripper", "rss", "ruby2_keywords", "rubygems", "securerandom", "set", "shellwords",
    "singleton", "socket", "stringio", "strscan", "syntax_suggest", "syslog", "tempfile", "test-unit",
    "test/unit", "thread", "time", "timeout", "tmpdir", "tsort", "typeprof", "un",
    "unicode_normalize", "uri", "weakref", "win32ole", "yaml", "zlib",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        assert!(PYTHON.is_sorted());
        assert!(RUBY.is_sorted());
    }

    #[test]
    fn names_are_found_by_what_the_program_writes() {
        let check = |language, module, expected| {
            assert_eq!(provides(language, module), expected, "{module}");
        };
        check(Language::Python, "os.path", true);
        check(Language::Python, "tomllib", true);
        check(Language::Python, "distutils.core", true);
        check(Language::Python, "requests", false);
        check(Language::Ruby, "json/add/core", true);
        check(Language::Ruby, "net/http", true);
        check(Language::Ruby, "net/http/status", true);
        check(Language::Ruby, "net/ssh", false);
        check(Language::Ruby, "set.rb", true);
        check(Language::Ruby, "stringio", true);
        check(Language::Ruby, "rbconfig", true);
        check(Language::Ruby, "nokogiri", false);
    }

    #[test]
    fn packages_are_found_by_their_whole_name() {
        let check = |language, package, expected| {
            assert_eq!(ships(language, package), expected, "{package}");
        };
        check(Language::Python, "json", true);
        check(Language::Python, "cprofile", true);
        check(Language::Python, "lib2to3", true);
        check(Language::Python, "jsonschema", false);
        check(Language::Python, "http-client", false);
        check(Language::Ruby, "json", true);
        check(Language::Ruby, "net-http", true);
        check(Language::Ruby, "open-uri", true);
        check(Language::Ruby, "json-schema", false);
        check(Language::Ruby, "net-ssh", false);
        check(Language::Ruby, "net-http-persistent", false);
    }
}
