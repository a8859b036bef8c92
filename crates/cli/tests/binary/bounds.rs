//! One call cannot make the host exceed the bounds of memory and disk that docs/security.md states, whatever its
//! programs do. The test measures the memory of the host process.

use std::process::Child;
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::fixture::{CliFixture, CommandResult};

/// `max_tree_memory_mb` of these calls.
const TREE_MB: u64 = 64;
/// What docs/security.md adds to it: one frame, its values and their copies, and the host itself.
const HOST_MB: u64 = 384;
/// `log_tree_mb` of these calls.
const LOG_MB: u64 = 1;
/// What one call may add to the store: forged tools, contents, and the records of its calls.
const STORE_MB: u64 = 24;

/// Programs that together try to make the host keep something, by role and method.
struct Attack {
    name: &'static str,
    python: &'static [(&'static str, &'static str)],
    ruby: &'static [(&'static str, &'static str)],
}

#[rustfmt::skip]
const ATTACKS: &[Attack] = &[
    Attack { name: "text passed down to the depth limit",
        python: &[("boss.run", "result = delegate('ping', purpose='x').work('x' * 5_000_000).ok"),
                  ("ping.work", "result = delegate('pong', purpose='x').work(args[0]).ok"),
                  ("pong.work", "result = delegate('ping', purpose='x').work(args[0]).ok")],
        ruby: &[("boss.run", "delegate('ping', purpose: 'x').work('x' * 5_000_000).ok?"),
                ("ping.work", "delegate('pong', purpose: 'x').work(args[0]).ok?"),
                ("pong.work", "delegate('ping', purpose: 'x').work(args[0]).ok?")] },
    Attack { name: "many small values passed down",
        python: &[("boss.run", "v = 1\nfor _ in range(90): v = [v]\nresult = delegate('ping', purpose='x').work([v] * 3000).ok"),
                  ("ping.work", "result = delegate('pong', purpose='x').work(args[0]).ok"),
                  ("pong.work", "result = delegate('ping', purpose='x').work(args[0]).ok")],
        ruby: &[("boss.run", "v = 1\n90.times { v = [v] }\ndelegate('ping', purpose: 'x').work([v] * 3000).ok?"),
                ("ping.work", "delegate('pong', purpose: 'x').work(args[0]).ok?"),
                ("pong.work", "delegate('ping', purpose: 'x').work(args[0]).ok?")] },
    Attack { name: "many small values returned",
        python: &[("boss.run", "t = delegate('ping', purpose='x')\nresult = [t.work(n).ok for n in range(2)]"),
                  ("ping.work", "v = args[0]\nfor _ in range(90): v = [v]\nresult = [v] * 10_800")],
        ruby: &[("boss.run", "t = delegate('ping', purpose: 'x')\n2.times.map { |n| t.work(n).ok? }"),
                ("ping.work", "v = args[0]\n90.times { v = [v] }\n[v] * 10_800")] },
    Attack { name: "long texts returned",
        python: &[("boss.run", "t = delegate('ping', purpose='x')\nresult = [t.work(n).ok for n in range(2)]"),
                  ("ping.work", "result = 'x' * 30_000_000 + str(args[0])")],
        ruby: &[("boss.run", "t = delegate('ping', purpose: 'x')\n2.times.map { |n| t.work(n).ok? }"),
                ("ping.work", "'x' * 30_000_000 + args[0].to_s")] },
    Attack { name: "long errors",
        python: &[("boss.run", "t = delegate('ping', purpose='x')\nu = delegate('pong', purpose='x')\nresult = [[t.work(n).ok, u.work(n).ok] for n in range(2)]"),
                  ("ping.work", "raise ValueError('x' * 30_000_000 + str(args[0]))"),
                  ("pong.work", "result = Outcome.error(error_type='odd', error_message='x' * 14_000_000, retriable=False, metadata={'more': 'y' * 14_000_000 + str(args[0])})")],
        ruby: &[("boss.run", "t = delegate('ping', purpose: 'x')\nu = delegate('pong', purpose: 'x')\n2.times.map { |n| [t.work(n).ok?, u.work(n).ok?] }"),
                ("ping.work", "raise 'x' * 30_000_000 + args[0].to_s"),
                ("pong.work", "Outcome.error(error_type: 'odd', error_message: 'x' * 14_000_000, retriable: false, metadata: { more: 'y' * 14_000_000 + args[0].to_s })")] },
    Attack { name: "much printed",
        python: &[("boss.run", "t = delegate('ping', purpose='x')\nresult = [t.work(n).ok for n in range(2)]"),
                  ("ping.work", "import sys\nfor _ in range(100):\n    print('x' * 1_000_000)\n    print('y' * 1_000_000, file=sys.stderr)\nresult = args[0]")],
        ruby: &[("boss.run", "t = delegate('ping', purpose: 'x')\n2.times.map { |n| t.work(n).ok? }"),
                ("ping.work", "100.times { puts 'x' * 1_000_000; warn 'y' * 1_000_000 }\nargs[0]")] },
    Attack { name: "memories of many agents",
        python: &[("boss.run", "for n in range(40):\n    delegate(f'keeper {n}', purpose='x').remember(text='x' * 15_000_000)\nresult = args[0]")],
        ruby: &[("boss.run", "40.times { |n| delegate(\"keeper #{n}\", purpose: 'x').remember(text: 'x' * 15_000_000) }\nargs[0]")] },
    Attack { name: "a memory of many small values",
        python: &[("boss.run", "context['many'] = {'%x' % n: 0 for n in range(900_000)}\nresult = args[0]")],
        ruby: &[("boss.run", "context[:many] = (0...900_000).to_h { |n| [n.to_s(16), 0] }\nargs[0]")] },
    Attack { name: "memories of many small values of several agents",
        python: &[("boss.run", "held = [delegate('ping', purpose='x') for _ in range(6)]\nresult = [agent.work(n).ok for n, agent in enumerate(held)]"),
                  ("ping.work", "context['many'] = {'%x' % n: 0 for n in range(300_000)}\nresult = args[0]")],
        ruby: &[("boss.run", "held = Array.new(6) { delegate('ping', purpose: 'x') }\nheld.each_with_index.map { |agent, n| agent.work(n).ok? }"),
                ("ping.work", "context[:many] = (0...300_000).to_h { |n| [n.to_s(16), 0] }\nargs[0]")] },
    Attack { name: "memories that called agents write",
        python: &[("boss.run", "held = [delegate('ping', purpose='x') for _ in range(40)]\nresult = [agent.work(n).ok for n, agent in enumerate(held)]"),
                  ("ping.work", "context['text'] = 'x' * 15_000_000\nresult = args[0]")],
        ruby: &[("boss.run", "held = Array.new(40) { delegate('ping', purpose: 'x') }\nheld.each_with_index.map { |agent, n| agent.work(n).ok? }"),
                ("ping.work", "context[:text] = 'x' * 15_000_000\nargs[0]")] },
    Attack { name: "contracts of tools that called agents forge",
        python: &[("boss.run", "t = delegate('ping', purpose='x')\nresult = [t.work(n).ok for n in range(40)]"),
                  ("ping.work", "for n in range(60): delegate(f'tool {args[0]} {n}', purpose='x' * 250_000)\nresult = args[0]")],
        ruby: &[("boss.run", "t = delegate('ping', purpose: 'x')\n40.times.map { |n| t.work(n).ok? }"),
                ("ping.work", "60.times { |n| delegate(\"tool #{args[0]} #{n}\", purpose: 'x' * 250_000) }\nargs[0]")] },
    Attack { name: "calls with many arguments",
        python: &[("boss.run", "t = delegate('ping', purpose='x')\nresult = [t.work(n, *['x' * 900] * 60).ok for n in range(500)]"),
                  ("ping.work", "result = args[0]")],
        ruby: &[("boss.run", "t = delegate('ping', purpose: 'x')\n500.times.map { |n| t.work(n, *(['x' * 900] * 60)).ok? }"),
                ("ping.work", "args[0]")] },
    Attack { name: "many calls with long texts",
        python: &[("boss.run", "t = delegate('ping', purpose='x')\nresult = [t.work('x' * 100_000, n=n).ok for n in range(150)]"),
                  ("ping.work", "print(args[0])\nresult = args[0]")],
        ruby: &[("boss.run", "t = delegate('ping', purpose: 'x')\n150.times.map { |n| t.work('x' * 100_000, n: n).ok? }"),
                ("ping.work", "puts args[0]\nargs[0]")] },
];

#[test]
fn one_call_of_python_programs_stays_within_the_bounds_of_the_host() {
    for attack in ATTACKS {
        check(attack, "python", attack.python);
    }
}

#[test]
fn one_call_of_ruby_programs_stays_within_the_bounds_of_the_host() {
    for attack in ATTACKS {
        check(attack, "ruby", attack.ruby);
    }
}

fn check(attack: &Attack, guest: &str, programs: &[(&str, &str)]) {
    let script: Map<String, Value> =
        programs.iter().map(|(name, code)| ((*name).to_owned(), json!([{"code": code}]))).collect();
    let cli = CliFixture::new(&Value::Object(script).to_string());
    let line = ["call", "boss", "run", "1", "--guest", guest, "--json"];
    let mut command = cli.command(&line);
    command
        .env("RECURGENT_MAX_TREE_MEMORY_MB", TREE_MB.to_string())
        .env("RECURGENT_LOG_TREE_MB", LOG_MB.to_string())
        .env("RECURGENT_DEBUG", "true")
        .env("RECURGENT_EXECUTION_TIMEOUT_SECONDS", "600");
    let (peak, ran) = measured(command.spawn().unwrap(), &line);
    let name = format!("{} in {guest}", attack.name);
    // It ends with an outcome: nothing crashed, and no ordinary limit of the program hides the attack.
    let outcome = ran.json();
    let kind = outcome["error_type"].as_str();
    assert!(matches!(kind, None | Some("resource_limit")), "{name}: {outcome}");
    assert!(peak <= (TREE_MB + HOST_MB) << 10, "{name}: the host took {} MB", peak >> 10);
    let log = std::fs::metadata(cli.path("state/recurgent.jsonl")).unwrap().len();
    assert!(log <= (LOG_MB << 20) + (1 << 20), "{name}: {log} bytes of log");
    let store = std::fs::metadata(cli.path("state/recurgent.sqlite")).unwrap().len();
    assert!(store <= STORE_MB << 20, "{name}: {store} bytes of store");
}

/// The most memory that a process took, in KiB, and what came of it.
fn measured(child: Child, line: &[&str]) -> (u64, CommandResult) {
    let status = format!("/proc/{}/status", child.id());
    let ended = thread::spawn(move || child.wait_with_output().unwrap());
    let mut peak = 0;
    while !ended.is_finished() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let taken = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let taken = taken.and_then(|taken| taken.trim().trim_end_matches(" kB").parse().ok());
        peak = taken.unwrap_or(0).max(peak);
        thread::sleep(Duration::from_millis(2));
    }
    assert!(peak > 0, "the memory of the process was not measured");
    (peak, CommandResult::of(line, &ended.join().unwrap()))
}
