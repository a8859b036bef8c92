//! `singleton_method_mutation`: which direct and indirect changes are barred, and which programs pass.

use super::*;

#[test]
fn agents_and_the_runtime_are_not_changed() {
    let barred = [
        (Ruby, "tool('x').define_singleton_method(:a) { 1 }"),
        (Ruby, "t = tool('x')\nt.define_singleton_method :a do 1 end"),
        (Ruby, "t = tool('x')\nt.send(:define_singleton_method, :a) { 1 }"),
        (Ruby, "t = tool('x')\nt.public_send('define_singleton_method', :a) { 1 }"),
        (Ruby, "t = tool('x')\nt.__send__ :define_singleton_method, :a, -> { 1 }"),
        (Ruby, "t = tool('x')\ndef t.a = 1"),
        (Ruby, "t = delegate('x', purpose: 'p')\nclass << t\n def a; end\nend"),
        (Ruby, "t = Agent.for('x')\nt.instance_eval { def a; end }"),
        (Ruby, "tool('x').singleton_class.define_method(:a) { 1 }"),
        (Ruby, "tool('x').class.class_eval { def a; end }"),
        (Ruby, "\"#{1}\"; tool('x').define_singleton_method(:a) { 1 }"),
        (Ruby, "class Agent\n def add; end\nend\nAgent.for('x')"),
        (Ruby, "class Agent::Outcome; end"),
        (Ruby, "module M; class ::Outcome; end; end\nOutcome.ok(1)"),
        (Ruby, "Agent.class_eval { def a; end }"),
        (Python, "t = tool('x')\nt.fetch = lambda url: url"),
        (Python, "def fake(u): return u\nt = delegate('x', purpose='p')\nt.fetch = fake"),
        (Python, "t = tool('x')\nu = t\nu.fetch = lambda: 1"),
        (Python, "tool('x').fetch = lambda: 1"),
        (Python, "t = tool('x')\nsetattr(t, 'fetch', print)"),
        (Python, "t = tool('x')\nobject.__setattr__(t, 'fetch', print)"),
        (Python, "import builtins\nbuiltins.print = None"),
        (Python, "import builtins as b\nsetattr(b, 'print', None)"),
        (Python, "Outcome.ok = None"),
        (Python, "import types\nt = tool('x')\nt.a = types.MethodType(print, t)"),
    ];
    for (language, source) in barred {
        check(language, source, &[SingletonMethodMutation]);
    }
}

#[test]
fn agents_and_the_runtime_are_not_changed_indirectly() {
    let barred = [
        (Python, "__builtins__['print'] = None"),
        (Python, "__builtins__.print = None"),
        (Python, "__builtins__.update(print=None)"),
        (Python, "import builtins\nbuiltins.__dict__['print'] = None"),
        (Python, "import builtins\nvars(builtins)['print'] = None"),
        (Python, "import builtins\nbuiltins.__dict__.update({'print': None})"),
        (Python, "import builtins\nsetattr(builtins, 'print', None)"),
        (Python, "import sys\nsys.modules['builtins'].print = None"),
        (Python, "t = tool('x')\ntype(t).fetch = None"),
        (Python, "t = tool('x')\nsetattr(type(t), 'fetch', None)"),
        (Python, "tool('x').__class__.fetch = None"),
        (Python, "del Outcome.ok"),
        (Python, "delattr(Outcome, 'ok')"),
        (Python, "import builtins\ndel builtins.print"),
        (Ruby, "Outcome.prepend(Module.new)"),
        (Ruby, "Outcome.include(Comparable)"),
        (Ruby, "Outcome.extend(Comparable)"),
        (Ruby, "Outcome.alias_method(:fine?, :ok?)"),
        (Ruby, "Outcome.remove_method(:ok?)"),
        (Ruby, "Outcome.send(:undef_method, :ok?)"),
        (Ruby, "Outcome.define_method(:ok?) { true }"),
        (Ruby, "Outcome.singleton_class.define_method(:ok) { 1 }"),
        (Ruby, "Outcome.define_singleton_method(:ok) { 1 }"),
        (Ruby, "def Outcome.ok(*) = 1"),
        (Ruby, "o = Outcome\ndef o.ok(*) = 1"),
        (Ruby, "class << Outcome\n def ok(*) = 1\nend"),
        (Ruby, "Outcome.class_eval { def ok? = true }"),
        (Ruby, "Outcome.instance_eval { def ok(*) = 1 }"),
        (Ruby, "Object.const_set(:Outcome, 1)"),
        (Ruby, "Object.send(:remove_const, :Agent)"),
        (Ruby, "Agent.send(:remove_const, :Outcome)"),
        (Ruby, "Agent.const_set('Outcome', 1)"),
        (Ruby, "Agent::Outcome = 1"),
        (Ruby, "Outcome = Struct.new(:value)\nOutcome.error('no')"),
        (
            Ruby,
            "Outcome = Data.define(:value)\ndef m(x) = x ? Outcome.new(x) : Outcome.error('no')",
        ),
        (Ruby, "Agent = Struct.new(:name)\nAgent.for('helper')"),
        (Ruby, "Agent = Class.new\ndef m(x) = Agent.for('helper').go(x)"),
        (Ruby, "def context.tools = {}"),
        (Ruby, "context.define_singleton_method(:tools) { {} }"),
        (Ruby, "class << memory\n def tools = {}\nend"),
    ];
    for (language, source) in barred {
        check(language, source, &[SingletonMethodMutation]);
    }
}

#[test]
fn programs_may_change_their_own_objects() {
    let passing = [
        (Ruby, "# x.define_singleton_method(:a)\n'x.define_singleton_method(:a)'"),
        (
            Ruby,
            "class Cart\n def self.empty = new\n class << self\n  def all; end\n end\nend\nCart.empty",
        ),
        (Ruby, "point = Struct.new(:x).new(1)\ndef point.y = 2\npoint.y"),
        (Ruby, "o = Object.new\no.define_singleton_method(:a) { 1 }\no.a"),
        (Ruby, "def fresh = Object.new\no = fresh\ndef o.a = 1\no.a"),
        (Ruby, "o = args[0].dup\nclass << o\n def a = 1\nend\no.a"),
        (Ruby, "args.map { |o| o.define_singleton_method(:a) { 1 } }"),
        (Ruby, "class Cart\n define_singleton_method(:empty) { new }\nend\nCart.empty"),
        (Ruby, "define_singleton_method(:helper) { 1 }\nhelper"),
        (
            Ruby,
            "Cart = Struct.new(:items)\nCart.include(Comparable)\nObject.const_set(:Trolley, Cart)",
        ),
        (Python, "class Cart: pass\nCart.size = lambda self: 1\ndel Cart.size"),
        (Python, "import sys\nsys.modules['cart'] = None\nresult = vars(args[0])"),
        (Ruby, "module Shop; class Agent; end; end"),
        (Ruby, "class Agent\n def add; end\nend\nAgent.new.add"),
        (Ruby, "Outcome = Struct.new(:value)\nOutcome.new(1).value"),
        (
            Ruby,
            "Outcome = Struct.new(:ok, :error)\no = Outcome.new(true, nil)\no.ok && o.error.nil?",
        ),
        (
            Ruby,
            "Outcome = Struct.new(:e) do\n def self.error(e) = new(e)\nend\nOutcome.error('no').e",
        ),
        (Ruby, "class Outcome\n def self.ok(v) = [v]\nend\nOutcome.ok(1)"),
        (Ruby, "Agent = Struct.new(:name)\nlist = [Agent.new('Ann')]\nlist.map(&:name)"),
        (
            Ruby,
            "class Agent\nend\nann = Agent.new\nann.define_singleton_method(:run) { 1 }\nann.run",
        ),
        (
            Ruby,
            "Agent = Struct.new(:name)\nann = Agent.new('Ann')\ndef ann.greet = name\nann.greet",
        ),
        (Ruby, "t = tool('x')\nt.memory = 5\nt.add(1)"),
        (Ruby, "def self.helper = 1\nhelper"),
        (Ruby, "class Mine < Agent; end"),
        (Ruby, "t = tool('x')\nt = {}\nt.define_singleton_method(:a) { 1 }"),
        (Python, "t = tool('x')\nt.memory = 5"),
        (Python, "t = tool('x')\nsetattr(t, 'memory', 5)"),
        (Python, "class Box: pass\nb = Box()\nb.run = lambda: 1\nresult = b.run()"),
        (Python, "s = \"t = tool('x'); t.fetch = lambda: 1\"\nresult = s"),
        (Python, "def tool(x): return type('T', (), {})\nt = tool('x')\nt.run = lambda: 1"),
        (Python, "t = tool('x')\nr = t.fetch('u')\nr.callback = lambda: 1"),
    ];
    for (language, source) in passing {
        check(language, source, &[]);
    }
}
