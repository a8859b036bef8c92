module Recurgent
  # One `execute`: the call, and what the program may ask for while it runs.
  class Execution
    class << self
      attr_accessor :current
    end

    attr_reader :role, :method_name, :args, :kwargs, :context
    # Raised because the call's arguments do not fit the method's function.
    attr_accessor :arity_error
    # The status of the last HTTP response that Ruby's own client received.
    attr_accessor :http_status

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
end
