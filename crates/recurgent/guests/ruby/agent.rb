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
    ::Recurgent::Outcome.from_host(answer["outcome"])
  end

  def respond_to?(name, _private = false)
    name.end_with?("=") || ::Recurgent::Agent.method_defined?(name)
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

  def class = ::Recurgent::Agent
  def is_a?(kind) = ::Recurgent::Agent <= kind ? true : false
  alias kind_of? is_a?
  def instance_of?(kind) = kind == ::Recurgent::Agent
  def nil? = false
  def object_id = __id__
  def to_s = "#<Agent #{@role}>"
  alias inspect to_s
end
