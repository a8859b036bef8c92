use super::*;
use Language::{Python, Ruby};

fn read(language: Language, source: &str) -> Inspection {
    inspect(language, source).unwrap_or_else(|fault| panic!("{source}\n{fault}"))
}

#[test]
fn languages_have_one_name() {
    for language in Language::ALL {
        assert_eq!(language.name().parse(), Ok(language));
        assert_eq!(serde_json::to_value(language).unwrap(), language.name());
    }
    let error = "perl".parse::<Language>().unwrap_err();
    assert_eq!(error.to_string(), "unknown language \"perl\": expected \"python\" or \"ruby\"");
}

#[test]
fn what_models_write_is_read() {
    for (language, source) in [
        (Python, "x = args[0]\nif x:\n    return x\nreturn None"),
        (
            Python,
            "match args:\n    case [x, *rest]:\n        result = x\n    case _:\n        result = None",
        ),
        (Python, "type Pair[T] = tuple[T, T]\ndef f[T](x: T) -> T: return x"),
        (Python, "result = f'{f\"{1}\"}' + t''"),
        (Python, ""),
        (Python, "\u{feff}result = 1"),
        (Ruby, "return args[0] if args.any?\nnil"),
        (Ruby, "case args\nin [Integer => x, *]\n  x\nin { name: String => n }\n  n\nend"),
        (Ruby, "x = <<~A + <<~B\n  a\nA\n  b\nB\nx"),
        (Ruby, "[1].map { it + 1 }"),
        (Ruby, ""),
        (Ruby, "# encoding: ascii-8bit\n'\u{e9}'"),
        (Ruby, "1\n__END__\n((("),
    ] {
        read(language, source);
    }
}

#[test]
fn faults_say_where() {
    for (language, source, line, column) in
        [(Python, "x = 1\ny = (", 2, 6), (Python, "é = )", 1, 5), (Ruby, "x = 1\né = )", 2, 3)]
    {
        let fault = inspect(language, source).unwrap_err();
        assert_eq!(fault.position, Position { line, column }, "{source} {fault}");
        assert!(!fault.message.is_empty());
    }
    let long = "#".repeat(MAX_SOURCE_BYTES + 1);
    assert!(inspect(Ruby, &long).unwrap_err().message.contains("longer than"));
}

#[test]
fn both_languages_give_the_same_facts() {
    let python = "import json\nt = tool('fetcher')\ncontext['n'] = context.get('m', 0) + args[0]\n\
                  def add(x):\n    return x\nresult = t.get('u')";
    let ruby = "require 'json'\nt = tool('fetcher')\ncontext[:n] = context.fetch(:m, 0) + args[0]\n\
                def add(x)\n  return x\nend\nresult = t.get('u')";
    let facts = |language, source| {
        let found = read(language, source);
        let context: Vec<_> = found.context.iter().map(|u| (u.key.clone(), u.access)).collect();
        let agents: Vec<_> = found.agents().map(|(name, _)| name.to_owned()).collect();
        let imports: Vec<_> = found.imports.iter().map(|i| i.module.clone()).collect();
        let add = found.definitions[0].clone();
        let literals: Vec<_> = found.literals.iter().map(|l| l.value.to_string()).collect();
        (
            context,
            agents,
            imports,
            add.name,
            add.parameters,
            add.reads_parameters,
            literals.contains(&"\"u\"".into()),
            found.reads_arguments,
        )
    };
    let expected = (
        vec![("m".to_owned(), ContextAccess::Read), ("n".to_owned(), ContextAccess::Write)],
        vec!["fetcher".to_owned()],
        vec!["json".to_owned()],
        "add".to_owned(),
        vec!["x".to_owned()],
        true,
        true,
        true,
    );
    assert_eq!(facts(Python, python), expected);
    assert_eq!(facts(Ruby, ruby), expected);
}

/// Memory is written in every way Ruby can write an item or an attribute.
#[test]
fn every_write_to_memory_is_seen() {
    use ContextAccess::{Read, Write};
    for (language, source, expected) in [
        (Ruby, "context[:n] = 1", vec![("n", Write)]),
        (Ruby, "context.n = 1", vec![("n", Write)]),
        (Ruby, "context[:n] += 1", vec![("n", Read), ("n", Write)]),
        (Ruby, "context.n += 1", vec![("n", Read), ("n", Write)]),
        (Ruby, "context.n ||= 1", vec![("n", Read), ("n", Write)]),
        (Ruby, "context.n &&= 1", vec![("n", Read), ("n", Write)]),
        (Ruby, "memory[:n] &&= 1", vec![("n", Read), ("n", Write)]),
        (Ruby, "context[:a], context.b = 1, 2", vec![("a", Write), ("b", Write)]),
        (Ruby, "(context[:a], x), *context.b = args", vec![("a", Write), ("b", Write)]),
        (Ruby, "for context[:i] in args do end", vec![("i", Write)]),
        (Python, "context['n'] += 1", vec![("n", Read), ("n", Write)]),
        (Python, "context.n += 1", vec![("n", Read), ("n", Write)]),
        (Python, "context['a'], context.b = 1, 2", vec![("a", Write), ("b", Write)]),
    ] {
        let found = read(language, source);
        let uses: Vec<_> = found.context.iter().map(|u| (u.key.as_str(), u.access)).collect();
        assert_eq!(uses, expected, "{source}");
    }
}

#[test]
fn a_parameter_that_is_only_added_to_is_read() {
    for (language, source) in [
        (Python, "def add(x):\n    x += 1\n    return 2"),
        (Ruby, "def add(x)\n  x += 1\nend"),
        (Ruby, "def add(x)\n  x ||= 1\nend"),
    ] {
        assert!(read(language, source).reads_inputs(language, "add"), "{source}");
    }
}

#[test]
fn a_missing_library_may_be_rescued_by_any_handler() {
    for (language, source) in [
        (Python, "try:\n    import x\nexcept ValueError:\n    pass\nexcept ImportError:\n    pass"),
        (Ruby, "begin\n  require 'x'\nrescue ArgumentError\n  1\nrescue LoadError\n  2\nend"),
    ] {
        assert!(read(language, source).imports[0].optional, "{source}");
    }
}

#[test]
fn positions_count_characters_of_the_program() {
    let source = "x = 'éé'; y = 7\n\tz = 8";
    let at = |found: &Inspection, value: i64| {
        found
            .literals
            .iter()
            .find(|l| l.value == value)
            .map(|l| (l.position.line, l.position.column))
    };
    for language in Language::ALL {
        let source = if language == Python { source.replace('\t', "") } else { source.to_owned() };
        let found = read(language, &source);
        assert_eq!(at(&found, 7), Some((1, 15)));
        assert_eq!(at(&found, 8), Some((2, if language == Python { 5 } else { 6 })));
    }
}

/// Every way to nest that is known, at and over any limit, on a small stack.
#[test]
fn nesting_never_exhausts_the_stack() {
    let around =
        |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
    for n in [100, 1_000, 20_000, 100_000] {
        let mut sources = vec![
            around("(", ")", n),
            around("[", "]", n),
            around("{1:", "}", n),
            around("f(", ")", n),
            around("-", "", n),
            around("not ", "", n),
            around("~", "", n),
            around("!", "", n),
            around("", "+1", n),
            around("", ".a", n),
            around("", "[1]", n),
            around("", "()", n),
            around("", "**1", n),
            around("", " if 1 else 1", n),
            around("lambda:", "", n),
            around("lambda a=lambda:0,b=", "", n),
            around("a=", "", n),
            around("a,", "", n),
            around("", "&&a", n),
            around("", "||a", n),
            around("", " or 1", n),
            around("a.get(1, ", ")", n),
            around("a.fetch(1){", "}", n),
            around("", ".fetch(1) || 1", n),
            around("map(lambda t: ", ", a)", n),
            around("p ", "", n),
            around("p{", "}", n),
            around("\"#{", "}\"", n),
            around("if a;", ";end", n),
            around("->{", "}", n),
            around("", " if a", n),
            around("", "::A", n),
            around("", " rescue a", n),
            around("def a(b=", "", n),
            around("await ", "", n),
            around("f'{", "}'", n),
            around("a ? b : ", "", n),
            around("if a:\n ", "", n.min(300)),
            "(".repeat(n),
            "[".repeat(n),
            format!("def f({}a{});end", "(a,".repeat(n), ")".repeat(n)),
            format!("case 1; in {}1{}; end", "[".repeat(n), "]".repeat(n)),
            format!("case 1; in 1{}; end", "|1".repeat(n)),
            format!("if a{}; end", " && a".repeat(n)),
            format!("1+1+({}", "1+1+(".repeat(n)),
            format!("begin; {} end", "rescue A\n".repeat(n)),
            format!("if a; {} end", "elsif a;".repeat(n)),
        ];
        sources.retain(|source| source.len() <= MAX_SOURCE_BYTES);
        for source in sources {
            for language in Language::ALL {
                let _ = inspect(language, &source);
            }
        }
    }
}

/// What Prism would take seconds for.
#[test]
fn long_runs_of_prefix_operators_are_refused_before_they_are_parsed() {
    for run in ["!", "! ", "-!", "~", "!\n", "(", "[!", "&"] {
        let source = run.repeat(MAX_SOURCE_BYTES / run.len());
        let fault = inspect(Ruby, &source).unwrap_err();
        assert_eq!(fault.message, "the program is nested too deeply", "{run:?}");
    }
    read(Ruby, &format!("x = '{}'", "-".repeat(1_000)));
}

#[test]
fn ordinary_length_is_not_depth() {
    let python =
        format!("x = [{}]", "{'a': -1, 'b': f(1 + 2).c, 'd': lambda a, b: a},\n".repeat(2_000));
    read(Python, &python);
    let ruby = format!("x = [{}]", "{ a: -1, b: f(1 + 2).c, d: ->(a, b) { a } },\n".repeat(2_000));
    read(Ruby, &ruby);
    read(Python, &"if args:\n    x = args[0]\nelif kwargs:\n    x = 1\n".repeat(1_000));
}

const PROGRAMS: [(Language, &str); 2] = [
    (
        Python,
        "import os, requests as r\nfrom urllib.request import *\n\"\"\"doc\"\"\"\n\
         tools = context.get('tools', {}) or {}\nt = delegate('fetcher', purpose='p')\n\
         class A(B):\n    @wraps\n    def f(self, x, *a, k=1, **kw) -> int:\n        return f'{x!r:>{k}} é' if x else -1\n\
         try:\n    context['n'] += args[0]\nexcept (ValueError, ImportError) as e:\n    result = [{'a': [1, 2.5e3]}]\n\
         for i, (j, k) in enumerate(tools.items()):\n    del context['x']\n    setattr(t, 'a', lambda: i)\n\
         with open('f') as g, h: x = yield [q['name'] for q in tools if q]\n\
         match x:\n    case {'a': [1, *_]} | None: pass\nresult = Outcome.ok(x := 1)\n",
    ),
    (
        Ruby,
        "require 'json'\n# comment\ntools = context[:tools] || {}\nt = delegate('fetcher', purpose: 'p')\n\
         class A < B\n  class << self\n    def f(x, *a, k: 1, **kw, &b) = \"#{x} é #{`ls #{k}`}\"\n  end\nend\n\
         begin\n  context[:n] ||= args[0]\nrescue LoadError, ArgumentError => e\n  [{ a: [1, 2.5e3] }]\nensure\n  1\nend\n\
         tools.each_with_index.map { |(i, j), k| i[:name] }\ntools.map { _1[:name] }\nt.send(:define_method, :a) { it }\n\
         x = <<~TEXT\n  a #{args.first&.b}\nTEXT\ncase x\nin { a: [1, *] } | nil then :b\nin Integer => n unless n > 1 then %w[a b]\nend\n\
         a, (b, *c) = 1, [2]\n@y = ->(z) { z }\nOutcome.ok(a: b) if x =~ /(?<q>a)/\ndef t.q = fork\nresult = %x(ls)\n",
    ),
];

/// A small deterministic generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }
}

#[test]
fn nothing_panics() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (language, program) in PROGRAMS {
        read(language, program);
        for _ in 0..3_000 {
            let mut bytes = program.as_bytes().to_vec();
            for _ in 0..=random.below(4) {
                let (at, length) = (random.below(bytes.len()), random.below(12));
                let end = (at + length).min(bytes.len());
                match random.below(4) {
                    0 => drop(bytes.drain(at..end)),
                    1 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
                    2 => bytes.truncate(at.max(1)),
                    _ => {
                        let piece = bytes[at..end].to_vec();
                        let to = random.below(bytes.len());
                        bytes.splice(to..to, piece);
                    }
                }
                bytes.push(b'\n');
            }
            let _ = inspect(language, &String::from_utf8_lossy(&bytes));
        }
        for _ in 0..3_000 {
            let length = random.below(200);
            let noise: Vec<u8> =
                (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            let _ = inspect(language, &String::from_utf8_lossy(&noise));
        }
    }
}

/// What writes to a stream gives a count, which is not the answer.
#[test]
fn a_program_that_ends_in_output_is_known() {
    for (language, source, expected) in [
        (Python, "import sys\nsys.stdout.write(str(args[0]))", true),
        (Python, "from sys import stdout\nstdout.write('x')", true),
        (Python, "[print(row) for row in args[0]]", true),
        (Python, "out = open('x', 'w')\nout.write('x')", false),
        (Python, "args[0].write", false),
        (Ruby, "$stdout.write(args[0].to_s)", true),
        (Ruby, "STDOUT.syswrite('x')", true),
        (Ruby, "$stdout.puts 3", true),
        (Ruby, "File.write('x', 'y')", false),
        (Ruby, "write('x')", false),
    ] {
        let inspection = inspect(language, source).unwrap();
        assert_eq!(inspection.ends_in_output, expected, "{source}");
    }
}
