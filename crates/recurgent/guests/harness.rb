# Guest side of the worker protocol (specs/worker-protocol.md), for Ruby 3.1 and later.
#
# One process starts here as the *zygote*: it activates its environment, if it is given one, answers
# `fork` and `reap` on descriptor 0 and never touches guest code. Each fork becomes a *worker*, which
# serves `execute` frames on its channel:
#
#   Zygote --fork--> Worker --per execute--> Execution
#                      |- Channel    frames and asks, one at a time
#                      |- Context    the agent's context, tracking the keys a program touches
#                      `- Programs   compiled programs by digest
#
# A program may patch, close or replace anything it can reach. What `done` needs is therefore bound
# once, as a Method or UnboundMethod, where that is cheap.

# The environment: exactly the gems of its lock, activated before anything else could activate others.
# Not by Bundler's setup: what comes with Ruby as a gem (csv, matrix, rexml) must load here as anywhere.
module Recurgent
  # A declared gem that is installed but does not load.
  class Inactive < StandardError
    attr_reader :gem_name

    def initialize(gem_name, problem)
      super("#{gem_name}: #{problem.class}: #{problem.message}")
      @gem_name = gem_name
    end
  end

  module Activation
    class << self
      attr_reader :problem

      # `gem_home name=version … -- declared= …`, as the host gives it.
      def run(gem_home, *rest)
        locked, declared = rest.slice_when { |argument, _| argument == "--" }.to_a
        Gem.use_paths(gem_home, [gem_home, *Gem.path])
        named(locked - ["--"]) { |name, version| gem(name, "= #{version}") }
        named(declared) { |name, _| load_feature(Gem.loaded_specs.fetch(name)) }
      rescue Inactive => problem
        @problem = problem
      end

      private

      def named(gems)
        gems.to_a.each do |entry|
          name, version = entry.split("=", 2)
          yield name, version
        rescue Exception => problem # a gem may even exit
          raise Inactive.new(name, problem)
        end
      end

      # The feature named like the gem, or the only one it has.
      def load_feature(spec)
        features = spec.full_require_paths.flat_map { |path| Dir.children(path) if File.directory?(path) }
        files = features.compact.filter_map { |file| file[/\A(.+)\.(?:rb|so|bundle)\z/, 1] }.uniq
        likely = [spec.name, spec.name.tr("-", "/"), spec.name.tr("-", "_")]
        feature = likely.find { |name| found?(spec, name) } || (files.first if files.one?)
        require feature if feature
      end

      def found?(spec, feature)
        spec.full_require_paths.any? { |path| Dir.glob("#{feature}.{rb,so,bundle}", base: path).any? }
      end
    end
  end
end

Recurgent::Activation.run(*ARGV) unless ARGV.empty?
ARGV.clear

require "json"
require "socket"
require "set"
require "time"

Encoding.default_external = Encoding::UTF_8
$VERBOSE = nil if $VERBOSE

# Another agent, as a program sees it: any method name is a call the host answers with an Outcome.
# Only what Ruby itself needs to handle an object is answered here.
class Agent < BasicObject
  class << self
    def for(role, **options) = ::Recurgent::Execution.current.delegate(role, detached: true, **options)
    private :new
  end

  def initialize(execution, answer)
    @execution, @agent_id, @role = execution, answer["agent"], answer["role"]
  end

  def tool(name) = @execution.tool(name)

  def delegate(role, **options) = @execution.delegate(role, **options)

  def remember(**entries)
    @execution.ask("remember", agent: @agent_id, entries: entries)
    self
  end

  def runtime_context
    ::Recurgent::Record.wrap(@execution.ask("runtime_context", agent: @agent_id)["value"])
  end

  def method_missing(name, *args, **kwargs, &block)
    ::Kernel.raise ::ArgumentError, "a block cannot be passed to another agent" if block
    answer = @execution.ask("call", agent: @agent_id, method_name: name, args: args, kwargs: kwargs)
    ::Agent::Outcome.from_host(answer["outcome"])
  end

  def respond_to?(name, _private = false)
    name.end_with?("=") || ::Agent.method_defined?(name)
  end

  def define_singleton_method(name, *) = @execution.ask("attach", name: name)
  alias singleton_method_added define_singleton_method
  alias instance_variable_set define_singleton_method

  # Without the name of a method, `send` is one itself: a mailer has it.
  def send(*args, **kwargs, &block)
    named = ::Symbol === args[0] || /\A[a-z_]\w*[?!=]?\z/ === args[0]
    named ? __send__(*args, **kwargs, &block) : method_missing(:send, *args, **kwargs, &block)
  end
  alias public_send send

  # What Ruby and its libraries send any object. Only with the arguments it has there is it answered
  # here: `actor.freeze(2)` is a method like any other.
  {
    hash: -> { __id__.hash },
    eql?: ->(other) { equal?(other) },
    "===": ->(other) { equal?(other) },
    "<=>": ->(other) { equal?(other) ? 0 : nil },
    itself: -> { self },
    freeze: -> { self },
    frozen?: -> { false },
    dup: -> { self },
    clone: -> { self },
    method: ->(name) { ->(*args, **kwargs) { __send__(name, *args, **kwargs) } },
    singleton_methods: -> { [] },
    instance_variables: -> { [] },
    instance_variable_get: ->(_name) {},
    instance_variable_defined?: ->(_name) { false },
    pretty_print: ->(printer) { printer.text(to_s) },
  }.each do |name, answer|
    define_method(name) do |*args, **kwargs, &block|
      plumbing = args.size == answer.arity && !block && kwargs.except(:freeze).empty?
      plumbing ? instance_exec(*args, &answer) : method_missing(name, *args, **kwargs, &block)
    end
  end

  def class = ::Agent
  def is_a?(kind) = ::Agent <= kind ? true : false
  alias kind_of? is_a?
  def instance_of?(kind) = kind == ::Agent
  def nil? = false
  def object_id = __id__
  def to_s = "#<Agent #{@role}>"
  alias inspect to_s
end

# How a call ended. When ok, unknown members are those of its value.
class Agent::Outcome
  FIELDS = %i[status value error_type error_message retriable tool_role method_name metadata].freeze
  IDENTITY = %i[status tool_role method_name].freeze
  attr_reader(*FIELDS)

  class << self
    def ok(positional = nil, value: nil, **extra)
      value = positional if value.nil?
      if value.nil? then value = extra unless extra.empty?
      elsif value.is_a?(Hash) then value = value.merge(extra)
      end
      new(status: :ok, value: value)
    end

    def call(...)
      block_given? ? ok(yield) : ok(...)
    end

    def error(*positional, **fields)
      fields = named_fields(positional, fields).merge(fields)
      metadata = fields.delete(:metadata)
      metadata = metadata.nil? ? {} : { metadata: metadata } unless metadata.is_a?(Hash)
      known = fields.slice(:error_type, :error_message, :retriable)
      new(status: :error,
          error_type: (known[:error_type] || "execution").to_s,
          error_message: (known[:error_message] || "The program reported an error.").to_s,
          retriable: known[:retriable] == true,
          metadata: metadata.merge(fields.except(*known.keys, *IDENTITY)))
    end

    def from_host(fields)
      value = Recurgent::Record.wrap(fields["value"])
      new(**fields.transform_keys(&:to_sym), status: fields["status"].to_sym, value: value)
    end

    alias success ok
    alias failure error
    private :new

    private

    # error(map), error(message) or error(type, message, retriable).
    def named_fields(positional, fields)
      return positional[0].to_h { |key, value| [key.to_sym, value] } if positional[0].is_a?(Hash)
      return { error_message: positional[0] } if positional.one? && !fields.key?(:error_message)

      %i[error_type error_message retriable].zip(positional).first(positional.size).to_h
    end
  end

  def initialize(status:, value: nil, error_type: nil, error_message: nil, retriable: false,
                 metadata: nil, tool_role: nil, method_name: nil)
    @status, @value, @error_type, @error_message = status, value, error_type, error_message
    @retriable, @metadata = retriable, metadata
    @tool_role = tool_role || Recurgent::Execution.current&.role
    @method_name = method_name || Recurgent::Execution.current&.method_name
  end

  def ok? = @status == :ok
  def error? = !ok?
  alias success? ok?
  alias failure? error?
  def value_or(default = nil) = ok? ? @value : default
  def to_h = FIELDS.to_h { |name| [name, public_send(name)] }
  def to_s = ok? ? @value.to_s : "[#{@error_type}] #{@error_message}"
  def inspect = ok? ? @value.inspect : "#<Outcome error #{self}>"
  def ==(other) = other.is_a?(Agent::Outcome) ? to_h == other.to_h : ok? && @value == other

  def method_missing(name, ...)
    return super unless respond_to_missing?(name)

    @value.public_send(name, ...)
  end

  def respond_to_missing?(name, _private = false) = ok? && @value.respond_to?(name)
end

Outcome = Agent::Outcome

# The host refused an ask.
class AskError < StandardError
  attr_reader :error_type

  def initialize(error_type, message)
    super(message)
    @error_type = error_type
  end
end

class ToolRegistryViolation < AskError; end

module Recurgent
  IPC_VERSION = 1
  FILE = "program.rb"
  MAX_DEPTH = 100
  MAX_MESSAGE = 2000
  MAX_PATH = 300
  MAX_EXPLANATION = 900
  KEPT_PROGRAMS = 256
  REHEARSALS = 16
  DEFAULT_FRAME_BYTES = 32 << 20
  PR_SET_PDEATHSIG = 1
  OUT_OF_MEMORY = 112
  PRCTL = { "x86_64" => 157, "aarch64" => 167 }.freeze

  DUMP = JSON::State.new(max_nesting: 0).method(:generate)
  PARSER = JSON::Parser
  PARSE = RubyVM::AbstractSyntaxTree.method(:parse)
  COMPILE = RubyVM::InstructionSequence.method(:compile)

  CLASS = Kernel.instance_method(:class)
  NAME = Module.instance_method(:name)
  BACKTRACE = Exception.instance_method(:backtrace)

  def self.load(text) = PARSER.new(text, max_nesting: 0).parse

  # --- the JSON boundary ----------------------------------------------------------------------

  # A value that cannot cross. Steps of the path are added innermost first, while unwinding.
  class NotSerializable < TypeError
    attr_writer :root

    def initialize(reason)
      super
      @root, @steps = "$", []
    end

    def within(step)
      @steps << step
      self
    end

    def path = (@root + @steps.reverse.map { |step| Boundary.path_step(step) }.join)[0, MAX_PATH]
  end

  module Boundary
    module_function

    # `value` as JSON text; NotSerializable names the place that cannot cross, below `root`.
    def encode(value, root = "$")
      DUMP.call(value.instance_of?(String) ? plain_text(value) : plain(value, {}.compare_by_identity))
    rescue NotSerializable => problem
      problem.root = root
      raise
    end

    # A copy of `value` made of plain JSON types, so that no `to_json` of the program is called.
    def plain(value, ancestors)
      case value
      when String then plain_text(value)
      when Integer, true, false, nil then value
      when Hash, Array then plain_container(value, ancestors)
      when Symbol then plain_text(value.name)
      when Float
        value.finite? ? value : raise(NotSerializable, "#{value} is not a JSON number; use a finite one or nil")
      when Outcome then plain(value.ok? ? value.value : value.to_h, ancestors)
      else plain_text(text_form(value))
      end
    end

    def plain_container(value, ancestors)
      raise NotSerializable, "contains itself" if ancestors[value]
      raise NotSerializable, "nested deeper than #{MAX_DEPTH} levels" if ancestors.size >= MAX_DEPTH

      ancestors[value] = true
      copy = value.is_a?(Hash) ? plain_object(value, ancestors) : plain_array(value, ancestors)
      ancestors.delete(value)
      copy
    end

    def plain_object(value, ancestors)
      copy = {}
      name = nil
      value.each_pair do |key, item|
        name = nil
        text = plain_key(key)
        raise NotSerializable, "two keys become #{text.inspect}" if copy.key?(text)

        name = text
        copy[name] = plain(item, ancestors)
      end
      copy
    rescue NotSerializable => problem
      raise name ? problem.within(name) : problem
    end

    def plain_array(value, ancestors)
      index = -1
      value.map { |item| index += 1; plain(item, ancestors) }
    rescue NotSerializable => problem
      raise problem.within(index)
    end

    def plain_key(key)
      case key
      when String then plain_text(key)
      when Symbol then plain_text(key.name)
      when Integer then key.to_s
      else raise NotSerializable, "a key of class #{key.class} is neither text nor an integer"
      end
    end

    def plain_text(text)
      encoding = text.encoding
      if encoding != Encoding::UTF_8 && encoding != Encoding::US_ASCII
        text = encoding == Encoding::BINARY ? text.dup.force_encoding("UTF-8") : text.encode("UTF-8")
      end
      raise NotSerializable, "text is not valid UTF-8" unless text.valid_encoding?

      text.instance_of?(String) ? text : String.new(text)
    rescue EncodingError
      raise NotSerializable, "text is not valid UTF-8"
    end

    def text_form(value)
      case value
      when Time then value.strftime("%FT%T#{fraction(value.subsec)}#{value.utc? ? 'Z' : '%:z'}")
      when DateTime then value.strftime("%FT%T#{fraction(value.sec_fraction)}%:z")
      when Date then value.strftime("%F")
      when Rational then value.to_s
      else
        return value.to_s("F") if defined?(::BigDecimal) && value.is_a?(::BigDecimal)

        raise NotSerializable, "#{Recurgent.class_name(value)} is not a JSON value; #{advice(value)}"
      end
    end

    def advice(value)
      case value
      when Agent then "call one of its methods"
      when Proc, Method then "call it"
      when Struct then "use a Hash"
      when Enumerable then "use an Array"
      else "use a Hash, an Array, text or a number"
      end
    end

    def fraction(part) = part.zero? ? "" : ".%N"

    def path_step(step)
      return "[#{step}]" if step.is_a?(Integer)

      step.match?(/\A[[:alpha:]_]\w*\z/) ? ".#{step}" : "[#{DUMP.call(step)}]"
    end
  end

  # A JSON object from the host: keys are strings, and symbols find them too.
  class Record < Hash
    def self.wrap(value)
      case value
      when Hash then value.each_with_object(new) { |(key, item), record| record[key] = wrap(item) }
      when Array then value.map { |item| wrap(item) }
      else value
      end
    end

    %i[[] fetch delete assoc key? has_key? include? member?].each do |name|
      define_method(name) { |key, *rest, &block| super(stored(key), *rest, &block) }
    end

    %i[values_at fetch_values slice except].each do |name|
      define_method(name) { |*keys, &block| super(*keys.map { |key| stored(key) }, &block) }
    end

    %i[merge merge! update].each do |name|
      define_method(name) { |*others, &block| super(*others.map { |other| stored_keys(other) }, &block) }
    end

    def []=(key, value)
      super(stored(key), value)
    end
    alias store []=

    def replace(other) = super(stored_keys(other))

    def dig(key, *rest)
      value = self[key]
      rest.empty? || value.nil? ? value : value.dig(*rest)
    end

    def deconstruct_keys(wanted)
      (wanted || keys).select { |key| key?(key) }.to_h { |key| [key.to_sym, self[key]] }
    end

    private

    def stored(key) = key.is_a?(Symbol) ? key.name : key
    def stored_keys(other) = other.to_hash.to_h { |key, value| [stored(key), value] }
  end

  # A call's keywords: stored under symbols, so that `**kwargs` passes them on.
  class Keywords < Record
    private

    def stored(key) = key.is_a?(String) ? key.to_sym : key
  end

  # --- the channel ----------------------------------------------------------------------------

  # An `execute` frame this worker cannot serve; `kind` tells the host what to send again.
  class Refusal < StandardError
    attr_reader :kind

    def initialize(kind, message)
      super(message)
      @kind = kind
    end
  end

  # JSON lines on the attempt's socket. Frames from several threads never interleave.
  class Channel
    GETS = IO.instance_method(:gets)
    WRITE = IO.instance_method(:write)
    attr_reader :pid, :frame_bytes

    def initialize(fd)
      @lock, @asks, @frame_bytes = Mutex.new, 0, DEFAULT_FRAME_BYTES
      belong_here
      @reader = IO.for_fd(fd, "rb", autoclose: false)
      @writer = IO.for_fd(fd, "wb", autoclose: false)
      @writer.sync = true
    end

    # Forked copies of this process may not ask.
    def belong_here
      @pid = Process.pid
    end

    def synchronize(&block) = @lock.synchronize(&block)

    def receive_execute
      loop do
        size, frame = receive
        next unless frame["op"] == "execute" # else it answers an ask its program gave up on

        @frame_bytes = frame["limits"]["frame_bytes"]
        return size, frame
      end
    end

    def exchange(kind, fields)
      ask_id = @asks += 1
      ask = %({"op":"ask","ask_id":#{ask_id},"kind":"#{kind}"#{fields}})
      refuse("ask") if ask.bytesize >= @frame_bytes
      send_frame(ask)
      size, answer = receive
      size, answer = receive until answer["ask_id"] == ask_id
      refuse("answer") if size > @frame_bytes
      answer
    end

    # A frame goes out whole, even when a timeout fires in the program meanwhile.
    def send_frame(frame)
      line = frame + "\n" # one write is cheaper than two parts
      Thread.handle_interrupt(Object => :never) { WRITE.bind_call(@writer, line) }
    end

    private

    def receive
      line = GETS.bind_call(@reader, "\n")
      Process.exit!(0) unless line&.end_with?("\n") # the host is done with this worker
      [line.bytesize, Recurgent.load(line.force_encoding(Encoding::UTF_8))]
    end

    def refuse(what)
      raise AskError.new("resource_limit", "the #{what} is over #{@frame_bytes} bytes")
    end
  end

  # --- the context ----------------------------------------------------------------------------

  # A page of history records, oldest first. The context hands out the latest.
  class History < Array
    KEY = "conversation_history"
    ASK = ["history", { limit: 100 }].freeze

    # The page before a call, given as its record or id; without one, the page before this one.
    def before(call = first)
      return self if call.nil?

      call_id = call.is_a?(Hash) ? call["call_id"] : call.to_s
      kind, fields = ASK
      History.new(Record.wrap(Execution.current.ask(kind, **fields, before: call_id)["value"])).freeze
    end
  end

  # The agent's context. A value handed out may be changed in place, so reading a key touches it;
  # `delta` re-encodes only touched keys. Looking at keys alone touches nothing.
  class Context < Record
    # Keys answered by the host on first use in an execution; read-only, never part of the delta.
    LAZY = { "tools" => ["tools", {}], History::KEY => History::ASK }.freeze
    KEYED = %i[[] []= store fetch delete assoc dig values_at fetch_values slice deconstruct_keys
               key? has_key? include? member? to_hash].freeze
    VALUELESS = %i[keys size length empty? each_key inspect to_s hash default default_proc
                   compare_by_identity? eql? ==].freeze
    GET, SET, DELETE, HAS, CLEAR = %i[[] []= delete key? clear].map { |name| Hash.instance_method(name) }

    # Everything else Hash offers may hand out any value.
    (Hash.instance_methods(false) + Enumerable.instance_methods - KEYED - VALUELESS).each do |name|
      define_method(name) do |*args, **options, &block|
        touch_all
        super(*args, **options, &block)
      ensure
        @touched.merge(keys) # the ones it added
      end
    end

    %i[[] fetch delete assoc].each do |name|
      define_method(name) do |key, *rest, &block|
        key = stored(key)
        return lazy(key) if LAZY.key?(key) && name != :delete

        writable(key) if name == :delete
        touch(key)
        super(key, *rest, &block)
      end
    end

    %i[values_at fetch_values slice].each do |name|
      define_method(name) do |*keys, &block|
        keys.each { |key| touch(stored(key)) }
        super(*keys, &block)
      end
    end

    %i[key? has_key? include? member?].each do |name|
      define_method(name) { |key| LAZY.key?(stored(key)) || super(key) }
    end

    def initialize
      super
      @version, @agreed, @touched, @stale, @lazy = nil, {}, Set.new, Set.new, {}
    end

    def []=(key, value)
      key = writable(stored(key))
      touch(key)
      super
    end
    alias store []=

    # Copies are plain records: they share values, but not the tracking.
    def dup = Record.new.merge!(self)
    def clone(**) = dup

    %i[merge compact].each do |name|
      define_method(name) { |*args, &block| dup.public_send(name, *args, &block) }
    end

    def method_missing(name, *args)
      key = name.name
      return self[key.chomp("=")] = args[0] if key.end_with?("=") && args.size == 1
      return self[key] if args.empty? && key?(key)

      super
    end

    def respond_to_missing?(name, _private = false) = name.end_with?("=") || key?(name)

    # Go from the version agreed last to the one the host names.
    def __advance(change)
      if change["base"].nil?
        CLEAR.bind_call(self)
        @agreed.clear
      elsif change["base"] != @version
        raise Refusal.new("UnknownBase", "this worker holds version #{@version}")
      else
        restore(@stale - change["set"].keys - change["unset"])
      end
      apply(change)
      @touched, @lazy = Set.new, {}
      @stale = @touched # every touched key is suspect until `__delta` says which changed
    end

    # The `context` of a `done`: touched keys whose text differs from the agreed one.
    def __delta
      changed, removed = {}, []
      @touched.to_a.each do |key|
        if HAS.bind_call(self, key)
          text = Boundary.encode(GET.bind_call(self, key), "$context#{Boundary.path_step(key)}")
          changed[key] = text if text != @agreed[key]
        elsif @agreed.key?(key)
          removed << key
        end
      end
      @stale = Set.new(changed.keys + removed)
      entries = changed.map { |key, text| "#{Boundary.encode(key)}:#{text}" }
      %({"set":{#{entries.join(',')}},"unset":#{Boundary.encode(removed)}})
    end

    private

    def apply(change)
      change["unset"].each { |key| forget(key) }
      change["set"].each do |key, value|
        SET.bind_call(self, key, value)
        @agreed.delete(key)
      end
      @version = change["version"]
    end

    def forget(key)
      DELETE.bind_call(self, key)
      @agreed.delete(key)
    end

    def restore(keys)
      keys.each do |key|
        next DELETE.bind_call(self, key) unless @agreed.key?(key)

        SET.bind_call(self, key, Record.wrap(Recurgent.load(@agreed[key])))
      end
    end

    # Keep the text the host agreed to, and only now make records of the parsed value.
    def touch(key)
      return unless @touched.add?(key)
      return if @agreed.key?(key) || !HAS.bind_call(self, key)

      value = GET.bind_call(self, key)
      @agreed[key] = Boundary.encode(value)
      SET.bind_call(self, key, Record.wrap(value))
    end

    def touch_all = keys.each { |key| touch(key) }

    def writable(key)
      raise FrozenError, "context[#{key.inspect}] is read-only" if LAZY.key?(key)
      raise TypeError, "a context key is text, not #{key.inspect}" unless key.is_a?(String)

      key
    end

    def stored(key) = key.is_a?(Integer) ? key.to_s : super

    def lazy(key)
      @lazy[key] ||= begin
        kind, fields = LAZY[key]
        value = Record.wrap(Execution.current.ask(kind, **fields)["value"])
        (key == History::KEY ? History.new(value) : value).freeze
      end
    end
  end

  # --- executions and what a program sees -----------------------------------------------------

  # One `execute`: who is called, and what the program may ask for while it runs.
  class Execution
    class << self
      attr_accessor :current
    end

    attr_reader :role, :method_name, :args, :kwargs, :context

    def initialize(channel, context, frame)
      @channel, @context, @open = channel, context, true
      @role, @method_name = frame["role"], frame["method_name"]
      @args = Record.wrap(frame["args"])
      @kwargs = Keywords.new.merge!(Record.wrap(frame["kwargs"]))
      Execution.current = self
    end

    def ask(kind, **fields)
      text = +""
      fields.each { |name, value| text << %(,"#{name}":#{Boundary.encode(value, "$#{name}")}) }
      # Before the lock: a forked copy of it may never open.
      raise AskError.new("protocol", "a forked process cannot ask the host") if Process.pid != @channel.pid

      answer = @channel.synchronize do
        raise AskError.new("protocol", "the call this thread belongs to has ended") unless @open

        @channel.exchange(kind, text)
      end
      answer["error"] ? raise(ask_error(answer["error"])) : answer
    end

    # Send `done`. From here on threads the program left behind can ask nothing.
    def finish(done)
      @channel.synchronize do
        @open = false
        @channel.send_frame(done)
      end
    end

    def tool(name) = Agent.send(:new, self, ask("tool", name: name))

    def delegate(role, detached: false, **options)
      Agent.send(:new, self, ask("delegate", role: role, options: options, detached: detached))
    end

    def content(ref) = Record.wrap(ask("content", ref: ref)["value"])

    private

    def ask_error(error)
      kind = error["error_type"] == "tool_registry_violation" ? ToolRegistryViolation : AskError
      kind.new(error["error_type"], error["error_message"])
    end
  end

  # `self` of a program. Its own `def`s land on this object, beside these, and so see them.
  class Main
    def initialize(execution)
      @execution = execution
    end

    def context = @execution.context
    alias memory context
    alias runtime_context context
    def args = @execution.args
    def kwargs = @execution.kwargs
    def tool(name) = @execution.tool(name)
    def delegate(role, **options) = @execution.delegate(role, **options)
    def content(ref) = @execution.content(ref)
    def remember(**entries) = context.update(entries)
    def to_s = "main"
    alias inspect to_s

    private

    def include(*modules) = extend(*modules)
    def private(*) = nil
    alias public private
  end

  # --- programs -------------------------------------------------------------------------------

  class InvalidCode < StandardError; end

  # A compiled program: each call of the factory gives a fresh body, and a reader of its `result`.
  class Program
    # Line 0, so that the program's own lines count from 1 and its first column stays the first.
    HEAD = "->() { result = nil; [->() {\n"
    TAIL = "\n}, ->() { result }] }"
    NODE = RubyVM::AbstractSyntaxTree::Node
    DEFINITIONS = %i[DEFN DEFS CLASS MODULE SCLASS].freeze
    # What a program may call and still only define.
    REQUIRING = Set[:require, :require_relative].freeze

    def initialize(source)
      text = without_data(source)
      scan(text)
      @factory = COMPILE.call(HEAD + text + TAIL, FILE, FILE, 0, frozen_string_literal: frozen?(text)).eval
    rescue ScriptError, ArgumentError, EncodingError => problem
      raise InvalidCode, problem.message
    end

    def run(execution)
      main = Main.new(execution)
      body, result = @factory.call
      added = @constants.reject { |name| Object.const_defined?(name, false) }
      value = main.instance_exec(&body)
      value = nil if @ends_in_definition # a Symbol or nil that only `def` itself meant
      value = result.call unless nil == result.call
      nil == value ? call_function(main, execution) : value # a BasicObject has no `nil?`
    ensure
      added&.each { |name| Object.send(:remove_const, name) if Object.const_defined?(name, false) }
    end

    private

    # The text before `__END__`. Inside a heredoc or comment the marker is content, and what comes
    # before it does not parse.
    def without_data(source)
      source.to_enum(:scan, /^__END__\r?$/).each do
        before = Regexp.last_match.pre_match
        return before if parses?(before)
      end
      source
    end

    def parses?(text)
      PARSE.call(text)
    rescue SyntaxError
      false
    end

    def frozen?(text)
      text[/\A(\s*(#.*)?\n)*?\s*#.*frozen[_-]string[_-]literal:\s*(\w+)/i, 3]&.downcase == "true"
    end

    # Parsing the bare text also refuses what would close the wrapper around it. What is learnt:
    # functions its top level calls, constants it defines, and whether it ends in a definition.
    def scan(text)
      @called, @constants = Set.new, Set.new
      top = tree_of(text).children[2]
      last = top&.type == :BLOCK ? top.children.compact.last : top
      @ends_in_definition = DEFINITIONS.include?(last&.type)
      pending = [top]
      while (node = pending.pop)
        note(node)
        pending.concat(node.children.grep(NODE)) unless DEFINITIONS.include?(node.type)
      end
    end

    def tree_of(text)
      PARSE.call(text)
    rescue SyntaxError
      COMPILE.call(text, FILE, FILE, 1) # says the same, with the line
      raise
    end

    def note(node)
      first, second = node.children
      case node.type
      when :FCALL, :VCALL then @called << first
      when :CALL then @called << second if first.type == :SELF
      when :CDECL then @constants << first if first.is_a?(Symbol)
      when :CLASS, :MODULE then @constants << first.children[1] if first.type == :COLON2 && !first.children[0]
      end
    end

    # The function form: the program defines the method and leaves calling it to us.
    def call_function(main, execution)
      defined = main.singleton_methods(false)
      name = execution.method_name.to_sym
      name = only_function(defined) unless defined.include?(name)
      return if name.nil? || @called.include?(name)

      args = execution.args
      args = [execution.context, *args] if wants_context?(main.method(name), execution)
      main.__send__(name, *args, **execution.kwargs)
    end

    # The only function of a program that does nothing but define it, whatever it is called.
    def only_function(defined)
      defined.first if defined.one? && @ends_in_definition && @called.subset?(REQUIRING)
    end

    # Whether its first parameter is the context, and the call's own arguments leave it free.
    def wants_context?(function, execution)
      positional = function.parameters.select { |kind, _| %i[req opt rest].include?(kind) }
      kind, first = positional.first
      kind != :rest && %i[ctx context].include?(first) &&
        (positional.any? { |other, _| other == :rest } || execution.args.size < positional.size)
    end
  end

  # The programs used last, by digest.
  class Programs
    def initialize
      @kept = {}
    end

    def check(frame)
      return if frame.key?("code") || @kept.key?(frame["code_digest"])

      raise Refusal.new("UnknownDigest", "this worker does not hold #{frame['code_digest']}")
    end

    def find(frame)
      digest = frame["code_digest"]
      unless (program = @kept.delete(digest))
        program = Program.new(frame["code"])
        @kept.shift if @kept.size >= KEPT_PROGRAMS
      end
      @kept[digest] = program
    end
  end

  # --- the end of an execution ----------------------------------------------------------------

  # Raised where no process or thread can be made; sockets that would block raise EAGAIN as well.
  FORK_FAILURE = lambda do |problem|
    case problem
    when ThreadError then problem.message.include?("can't create Thread")
    when Errno::EAGAIN then problem.message.match?(/fork|exec|spawn| - \S*\z/)
    else false
    end
  end

  class << self
    # The `done` frame of a program that gave `value`.
    def success(value, context)
      result =
        if Outcome === value
          fields = value.to_h.except(:value)
          %("outcome","outcome":{"value":#{Boundary.encode(value.value)},#{Boundary.encode(fields)[1..]})
        else
          %("ok","value":#{Boundary.encode(value)})
        end
      %({"op":"done","status":#{result},"context":#{context.__delta}})
    end

    # The `done` frame of a program that ended in the exception `problem`.
    def failure(problem)
      fields = { op: "done", status: "error", error_type: "execution",
                 error_class: class_name(problem), error_message: message_of(problem),
                 location: location_of(problem) }
      fields[:error_message] += Network::ADVICE if Network.off && Network.missed?(problem)
      Boundary.encode(fields.merge(special_fields(problem)))
    end

    def oversized(frame_bytes)
      Boundary.encode({ op: "done", status: "error", error_type: "resource_limit",
                        error_class: "FrameTooLarge", limit: "frame", location: nil,
                        error_message: "the frame is over #{frame_bytes} bytes" })
    end

    def class_name(object)
      valid_text(NAME.bind_call(CLASS.bind_call(object)) || "(anonymous class)")
    rescue TypeError # not a Kernel object
      Agent === object ? "Agent" : "BasicObject"
    end

    private

    # What sets this kind of failure apart from a plain `execution` error.
    def special_fields(problem)
      case problem
      when InvalidCode
        line = problem.message[/\A[^\n]*?:(\d+):/, 1]
        { error_type: "invalid_code", error_class: "SyntaxError",
          location: line && { line: line.to_i, column: nil } }
      when NotSerializable then { error_type: "non_serializable_result", path: valid_text(problem.path) }
      when SystemExit then { error_type: "worker_crash", exit: problem.status }
      when SignalException then { error_type: "worker_crash", exit: 128 + problem.signo }
      when NoMemoryError, Errno::ENOMEM then { error_type: "resource_limit", limit: "memory" }
      when Errno::EMFILE, Errno::ENFILE then { error_type: "resource_limit", limit: "files" }
      when Errno::ENOSPC, Errno::EDQUOT then { error_type: "resource_limit", limit: "scratch" }
      when Errno::EFBIG then { error_type: "resource_limit", limit: "file_size" }
      when FORK_FAILURE then { error_type: "resource_limit", limit: "processes" }
      when Refusal then { error_type: "protocol", error_class: problem.kind }
      when AskError then { ask_error_type: valid_text(problem.error_type.to_s) }
      else {}
      end
    end

    def message_of(problem)
      valid_text(problem.message.to_s[0, MAX_MESSAGE])
    rescue Exception # a program's own `message`
      "(its message could not be read)"
    end

    def valid_text(text) = text.encode("UTF-8", invalid: :replace, undef: :replace).scrub

    # The innermost place in the program the exception passed through.
    def location_of(problem)
      line = BACKTRACE.bind_call(problem)&.find { |entry| entry.start_with?("#{FILE}:") }
      line && { line: line[/:(\d+)/, 1].to_i, column: nil }
    end
  end

  # --- the worker -----------------------------------------------------------------------------

  # stdout and stderr, put back however a program left them.
  class Output
    def initialize
      @spare = [STDOUT.dup, STDERR.dup]
      @streams = [STDOUT, STDERR]
    end

    def take(*streams)
      [@spare, @streams].each { |own| own.zip(streams) { |stream, given| stream.reopen(given) } }
    end

    def settle
      [$stdout, $stderr, *@streams].each { |stream| flush(stream) }
      @streams = @streams.each_with_index.map { |stream, index| restored(stream, index) }
      $stdout, $stderr = @streams
    end

    private

    def restored(stream, index)
      stream = IO.for_fd(index + 1, "w", autoclose: false) if stream.closed?
      stream.reopen(@spare[index])
    end

    def flush(stream)
      stream.flush
    rescue Exception # closed, replaced or broken by the program: its output is its own affair
      nil
    end
  end

  # Made once, in the zygote, on a channel that leads nowhere; each fork is given its own.
  class Worker
    def initialize(socket)
      @socket, @channel, @output = socket, Channel.new(socket.fileno), Output.new
      forget
    end

    def forget
      @context, @programs = Context.new, Programs.new
    end

    def take(channel, stdout, stderr)
      @socket.reopen(channel)
      @channel.belong_here
      @output.take(stdout, stderr)
    end

    # Exceptions other threads raise in this one are let in only while a program runs.
    def serve
      Thread.handle_interrupt(Object => :never) { loop { serve_one } }
    end

    def serve_one
      size, frame = @channel.receive_execute
      execution = Execution.new(@channel, @context, frame)
      limit = @channel.frame_bytes
      done = size > limit ? Recurgent.oversized(limit) : run(frame, execution)
      (Thread.list - [Thread.current]).each(&:kill)
      @output.settle
      Process.exit!(0) if Process.pid != @channel.pid # forked by the program: no say in the result
      execution.finish(done.bytesize < limit ? done : Recurgent.oversized(limit))
    end

    private

    def run(frame, execution)
      if frame["ipc_version"] != IPC_VERSION
        raise Refusal.new("UnknownIpcVersion", "this worker speaks version #{IPC_VERSION}")
      end

      @programs.check(frame) # refused frames leave the context's version as it is
      @context.__advance(frame["context"])
      program = @programs.find(frame)
      value = Thread.handle_interrupt(Object => :immediate) { program.run(execution) }
      Recurgent.success(value, @context)
    rescue Exception => problem
      Recurgent.failure(problem)
    end
  end

  # A worker that has served programs of our own. What warms up with use, such as inline caches, is then written
  # before the fork and stays shared, and not once by every worker.
  def self.rehearse
    host, own = UNIXSocket.pair
    worker = Worker.new(own)
    REHEARSALS.times do |version|
      host.puts(Boundary.encode({
        op: "execute", ipc_version: IPC_VERSION, role: "zygote", method_name: "rehearse",
        code_digest: version.to_s, code: "args[0] + 1", args: [version], kwargs: {},
        context: { version: version, base: version.zero? ? nil : version - 1, set: {}, unset: [] },
        limits: { frame_bytes: DEFAULT_FRAME_BYTES }
      }))
      worker.serve_one
      host.gets
    end
    host.close
    Execution.current = nil
    worker.tap(&:forget)
  end

  # A sandbox without a network refuses as if something were broken; models then try again.
  module Network
    ADVICE = "; the network is off for this agent, so trying again will not help: do without it, or " \
             "report the error type capability_unavailable"
    REFUSALS = [Errno::EPERM, Errno::EACCES, Errno::ENETUNREACH, Errno::EAFNOSUPPORT].freeze
    SOCKET_CALL = /\b(?:socket|connect|bind|sendto)\(2\)/
    CAUSE = Exception.instance_method(:cause)
    MAX_CAUSES = 16

    class << self
      attr_accessor :off

      def missed?(problem)
        MAX_CAUSES.times do
          return false if problem.nil?
          return true if SocketError === problem
          return true if REFUSALS.any? { |kind| kind === problem } && told?(problem)

          problem = CAUSE.bind_call(problem)
        end
        false
      end

      private

      def told?(problem)
        SOCKET_CALL.match?(problem.message)
      rescue Exception # a program's own `message`
        false
      end
    end
  end

  # --- the seal -------------------------------------------------------------------------------

  # What the host has a worker do to itself: a list of system calls (specs/worker-protocol.md).
  class Seal
    OPEN = RUBY_PLATFORM.start_with?("x86_64") ? 257 : 56

    def initialize(steps)
      @kept = []
      @steps = steps.map { |number, *arguments| [number, arguments.map { |it| argument(it) }] }
    end

    def apply(ruleset)
      known = { "ruleset" => ruleset&.fileno }
      @steps.each do |number, arguments|
        result = syscall(number, *arguments.map { |it| it.is_a?(Hash) ? known[it["the"]] : it })
        known["opened"] = result if number == OPEN
      end
    end

    private

    def argument(given)
      case given
      when String then address(bytes(given))
      when Array then address(bytes(given.first) + [address(bytes(given.last))].pack("J"))
      else given
      end
    end

    def address(content)
      @kept << content # what is pointed to must stay
      [content].pack("P").unpack1("J")
    end

    def bytes(hex) = [hex].pack("H*")
  end

  # --- the zygote -----------------------------------------------------------------------------

  # Forks workers on the host's request and reaps them; single-threaded, free of guest code.
  class Zygote
    def initialize(worker)
      @worker = worker
      @control = Socket.for_fd(0)
      @control.autoclose = false
      @pid, @workers = Process.pid, Set.new
      seals = Recurgent.load(ENV.delete("RECURGENT_SEAL") || "{}")
      Network.off = seals["network"] == false
      Seal.new(seals["zygote"] || []).apply(nil)
      @seal = Seal.new(seals["worker"] || [])
    end

    def serve
      tell(op: "ready", ipc_version: IPC_VERSION, guest: "ruby", version: RUBY_VERSION, pid: @pid)
      loop do
        packet, _, _, *controls = @control.recvmsg(4096, 0, 4096, scm_rights: true)
        break if packet.nil? || packet.empty?

        received = controls.flat_map { |control| control.unix_rights || [] }
        answer(Recurgent.load(packet), received)
      rescue SystemCallError, ArgumentError, JSON::ParserError => problem
        tell(op: "failed", message: "#{problem.class}: #{problem.message}")
      ensure
        received&.each(&:close)
      end
      @workers.to_a.each { |pid| reap(pid) }
    end

    def fail_to_boot(problem)
      explanation = problem.message.scrub[0, MAX_EXPLANATION]
      tell(op: "failed", package: problem.gem_name, message: explanation)
    end

    private

    def answer(message, received)
      case message["op"]
      when "fork" then fork_worker(message["scratch"], message["doors"].to_i, *received)
      when "reap" then tell(op: "reaped", pid: message["pid"], **reap(message["pid"]))
      else raise ArgumentError, "unknown op #{message['op'].inspect}"
      end
    end

    def fork_worker(scratch, doors, channel, stdout, stderr, *handed)
      started, starting = IO.pipe
      status = OUT_OF_MEMORY
      pid = fork do
        started.close
        enter_groups(handed.shift(doors))
        become_worker(scratch, channel, stdout, stderr, starting, *handed)
      rescue NoMemoryError
        nil # not even enough is left to say so: its status does
      rescue Exception => problem
        status = 1
        starting.write(problem.message)
      ensure
        Process.exit!(status)
      end
      @workers << pid
      starting.close
      said = started.readpartial(MAX_EXPLANATION) rescue ""
      started.close
      raise ArgumentError, "the worker ended before it started: #{said} #{reap(pid)}" if said != "+"
    end

    def enter_groups(doors)
      doors.each do |door|
        door.syswrite("0") rescue nil # the host takes in who is not there
        door.close
      end
    end

    # In the child. Never returns, so nothing of the zygote runs here again.
    def become_worker(scratch, channel, stdout, stderr, starting, ruleset = nil)
      Process.setsid
      if scratch
        ENV["HOME"] = ENV["TMPDIR"] = scratch
        Dir.chdir(scratch)
      end
      @seal.apply(ruleset)
      syscall(PRCTL.fetch(RUBY_PLATFORM[/\A\w+/]), PR_SET_PDEATHSIG, Signal.list["KILL"], 0, 0, 0)
      Process.exit!(1) if Process.ppid != @pid # the zygote died before the signal was armed
      trap("INT", "SYSTEM_DEFAULT")
      # Said by the worker itself: the host takes its process number from the kernel.
      @control.send(%({"op":"forked","pid":#{Process.pid}}), 0)
      STDIN.reopen(File::NULL)
      @worker.take(channel, stdout, stderr)
      starting.write("+")
      [channel, stdout, stderr, starting, ruleset].compact.each(&:close)
      @worker.serve
    end

    def reap(pid)
      raise ArgumentError, "no worker #{pid}" unless @workers.include?(pid)

      kill_group(pid) # so that waiting cannot block, and nothing the worker started outlives it
      _, status = Process.wait2(pid)
      @workers.delete(pid)
      wait_for_group(pid)
      { signal: status.termsig, exit: status.exitstatus }
    end

    # Waits for what a worker started: it became the zygote's when the worker ended.
    def wait_for_group(leader)
      loop { Process.wait(-leader) }
    rescue Errno::ECHILD
      nil
    end

    def kill_group(pid)
      [-pid, pid].each do |target|
        Process.kill(:KILL, target)
      rescue Errno::ESRCH
        nil
      end
    end

    def tell(**message) = @control.send(Boundary.encode(message), 0)
  end
end

# Signals end a worker as the kernel has it, except SIGPIPE: a write then raises instead.
%w[HUP QUIT TERM ALRM USR1 USR2].each { |name| trap(name, "SYSTEM_DEFAULT") }
trap("INT", "IGNORE") # the host decides when a zygote ends
if Process.respond_to?(:warmup)
  Process.warmup
else
  GC.start
  # For something this large, malloc first puts together all that was freed; workers would do it page by page.
  String.new(capacity: 100_000).clear
end
# After that, so that the holes in the heap are filled here and not by each worker.
zygote = Recurgent::Zygote.new(Recurgent.rehearse)
Recurgent::Activation.problem ? zygote.fail_to_boot(Recurgent::Activation.problem) : zygote.serve
Process.exit!(0)
