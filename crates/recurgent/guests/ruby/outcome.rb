# How a call ended. When ok, unknown members are those of its value. Reading the value of a failed call raises, unless
# the program checked the outcome before.
class Agent::Outcome
  FIELDS = %i[status value error_type error_message retriable tool_role method_name metadata].freeze
  IDENTITY = %i[status tool_role method_name].freeze
  attr_reader :retriable, :tool_role, :method_name, :metadata

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
      new(**fields.transform_keys(&:to_sym), status: fields["status"].to_sym, value: value, called: true)
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
                 metadata: nil, tool_role: nil, method_name: nil, called: false)
    @called, @checked = called, false
    @status, @value, @error_type, @error_message = status, value, error_type, error_message
    @retriable, @metadata = retriable, metadata
    @tool_role = tool_role || Recurgent::Execution.current&.role
    @method_name = method_name || Recurgent::Execution.current&.method_name
  end

  # Reading one of these counts as a check of the outcome.
  %i[status error_type error_message].each do |name|
    define_method(name) do
      @checked = true
      instance_variable_get(:"@#{name}")
    end
  end

  def ok? = status == :ok
  def error? = !ok?
  alias success? ok?
  alias failure? error?

  def value
    return @value if @status == :ok || @checked || !@called

    raise CallFailed.new(@error_type, "no value: #{@tool_role}.#{@method_name} failed: #{self}; " \
                                      "check `.ok?` before reading `.value`")
  end

  def value_or(default = nil) = ok? ? @value : default
  def to_h = FIELDS.to_h { |name| [name, instance_variable_get(:"@#{name}")] }
  def to_s = @status == :ok ? @value.to_s : "[#{@error_type}] #{@error_message}"
  def inspect = @status == :ok ? @value.inspect : "#<Outcome error #{self}>"
  def ==(other) = other.is_a?(Recurgent::Outcome) ? to_h == other.to_h : ok? && @value == other

  def method_missing(name, ...)
    return @value.public_send(name, ...) if respond_to_missing?(name)

    begin
      super
    rescue NoMethodError => problem
      problem.instance_variable_set(:@failed_call, @error_type) if @called && @status != :ok
      raise
    end
  end

  def respond_to_missing?(name, _private = false) = @status == :ok && @value.respond_to?(name)
end

Outcome = Agent::Outcome

module Recurgent
  # The harness finds these here: a program may have classes of its own with their names.
  Agent, Outcome = ::Agent, ::Outcome
  RUNTIME_CLASSES = { Agent: ::Agent, Outcome: ::Outcome }.freeze
end
